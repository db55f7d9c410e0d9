/* Typed access: any integer type where the value fits, and errors that name the key. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/gguf.h"
#include "tests/support/gguf_writer.h"

static qr_gguf *gguf;
static uint8_t *file;

static void open_writer(gguf_writer *w) {
    size_t size;
    file = gguf_writer_finish(w, &size);
    cr_assert_eq(qr_gguf_open_memory("values", file, size, &gguf, NULL), QUIRE_OK);
    gguf_writer_deinit(w);
}

static void close_writer(void) {
    qr_gguf_close(gguf);
    free(file);
}

Test(model_gguf_values, integers_of_every_width) {
    gguf_writer w = {0};
    gguf_writer_raw(&w, "u8", 0, "\xff", 1);
    gguf_writer_raw(&w, "i8", 1, "\x7f", 1);
    gguf_writer_raw(&w, "u16", 2, "\xff\xff", 2);
    gguf_writer_raw(&w, "i16", 3, "\xff\x7f", 2);
    gguf_writer_raw(&w, "u32", 4, "\xff\xff\xff\xff", 4);
    gguf_writer_raw(&w, "i32", 5, "\xff\xff\xff\x7f", 4);
    gguf_writer_raw(&w, "u64", 10, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    gguf_writer_raw(&w, "i64", 11, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8);
    open_writer(&w);
    const struct {
        const char *key;
        uint64_t value;
    } wanted[] = {{"u8", 255},         {"i8", 127},        {"u16", 65535},      {"i16", 32767},
                  {"u32", UINT32_MAX}, {"i32", INT32_MAX}, {"u64", UINT64_MAX}, {"i64", INT64_MAX}};
    for (size_t i = 0; i < 8; i++) {
        uint64_t value;
        cr_assert_eq(qr_gguf_get_u64(gguf, wanted[i].key, &value, NULL), QUIRE_OK);
        cr_assert_eq(value, wanted[i].value, "%s", wanted[i].key);
    }
    close_writer();
}

Test(model_gguf_values, wrong_types_and_ranges_name_the_key) {
    gguf_writer w = {0};
    double infinite = (double)INFINITY;
    gguf_writer_raw(&w, "negative", 5, "\xff\xff\xff\xff", 4);
    gguf_writer_f32(&w, "float", 1.5f);
    gguf_writer_raw(&w, "infinite", 12, &infinite, 8);
    gguf_writer_text(&w, "text", "words");
    gguf_writer_i32s(&w, "numbers", (int32_t[]){1, -2}, 2);
    open_writer(&w);
    uint64_t u;
    double d;
    bool b;
    qr_text t, *ts;
    int32_t *is;
    quire_error e;
    cr_assert_eq(qr_gguf_get_u64(gguf, "negative", &u, &e), QUIRE_FORMAT);
    cr_assert_not_null(strstr(e.text, "negative"));
    cr_assert_eq(qr_gguf_get_u64(gguf, "float", &u, &e), QUIRE_FORMAT);
    cr_assert_eq(qr_gguf_get_u64(gguf, "numbers", &u, &e), QUIRE_FORMAT);
    cr_assert_eq(qr_gguf_get_f64(gguf, "float", &d, &e), QUIRE_OK);
    cr_assert_eq(d, 1.5);
    cr_assert_eq(qr_gguf_get_f64(gguf, "infinite", &d, &e), QUIRE_FORMAT);
    cr_assert_eq(qr_gguf_get_f64(gguf, "text", &d, &e), QUIRE_FORMAT);
    cr_assert_eq(qr_gguf_get_bool(gguf, "float", &b, &e), QUIRE_FORMAT);
    cr_assert_eq(qr_gguf_get_text(gguf, "float", &t, &e), QUIRE_FORMAT);
    cr_assert_eq(qr_gguf_get_text(gguf, "text", &t, &e), QUIRE_OK);
    cr_assert_eq(t.size, 5);
    cr_assert_eq(memcmp(t.data, "words", 5), 0);
    cr_assert_eq(qr_gguf_get_texts(gguf, "numbers", &ts, &u, &e), QUIRE_FORMAT);
    cr_assert_null(ts);
    cr_assert_eq(qr_gguf_get_texts(gguf, "text", &ts, &u, &e), QUIRE_FORMAT);
    cr_assert_eq(qr_gguf_get_i32s(gguf, "float", &is, &u, &e), QUIRE_FORMAT);
    cr_assert_eq(qr_gguf_get_u64(gguf, "absent", &u, NULL), QUIRE_NOT_FOUND);
    cr_assert(qr_gguf_is_array(gguf, "numbers"));
    cr_assert_not(qr_gguf_is_array(gguf, "float"));
    cr_assert_not(qr_gguf_is_array(gguf, "absent"));
    close_writer();
}

Test(model_gguf_values, arrays) {
    gguf_writer w = {0};
    const uint8_t wide[12 + 16] = {11, 0,   0,   0,   2,   0,   0, 0, 0, 0,   0, 0, 0, 0,
                                   0,  128, 255, 255, 255, 255, 0, 0, 0, 128, 0, 0, 0, 0};
    gguf_writer_i32s(&w, "numbers", (int32_t[]){1, -2, INT32_MIN}, 3);
    gguf_writer_raw(&w, "wide", 9, wide, sizeof wide);
    gguf_writer_texts(&w, "texts", (const char *[]){"", "bb", "ccc"}, 3);
    gguf_writer_texts(&w, "none", NULL, 0);
    open_writer(&w);
    int32_t *numbers;
    qr_text *texts;
    uint64_t count;
    quire_error error;
    cr_assert_eq(qr_gguf_get_i32s(gguf, "numbers", &numbers, &count, NULL), QUIRE_OK);
    cr_assert_eq(count, 3);
    cr_assert_eq(numbers[2], INT32_MIN);
    free(numbers);
    cr_assert_eq(qr_gguf_get_i32s(gguf, "wide", &numbers, &count, &error), QUIRE_FORMAT); /* INT32_MAX + 1 */
    cr_assert_not_null(strstr(error.text, "wide"));
    cr_assert_eq(qr_gguf_get_texts(gguf, "texts", &texts, &count, NULL), QUIRE_OK);
    cr_assert_eq(count, 3);
    for (size_t i = 1; i < 3; i++) cr_assert_eq(texts[i].size, i + 1);
    cr_assert_eq(texts[2].data[0], 'c');
    free(texts);
    cr_assert_eq(qr_gguf_get_texts(gguf, "none", &texts, &count, NULL), QUIRE_OK);
    cr_assert_eq(count, 0);
    free(texts);
    close_writer();
}
