/* Malformed headers (R37): each is refused with the status and a text that names the field. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/gguf.h"
#include "tests/support/gguf_writer.h"

static const float zeros[64];

/* Takes the writer's file apart from what is expected of it. */
static void expect(gguf_writer *w, quire_status expected, const char *word) {
    size_t size;
    uint8_t *file = gguf_writer_finish(w, &size);
    qr_gguf *g;
    quire_error error = {0};
    quire_status status = qr_gguf_open_memory("bad.gguf", file, size, &g, &error);
    cr_assert_eq(status, expected, "%s: %s %s", word, quire_status_name(status), error.text);
    if (expected) cr_assert_not_null(strstr(error.text, word), "\"%s\" not in \"%s\"", word, error.text);
    qr_gguf_close(g);
    free(file);
    gguf_writer_deinit(w);
}

static void expect_raw(const void *bytes, size_t size, quire_status expected, const char *word) {
    qr_gguf *g;
    quire_error error = {0};
    uint8_t *copy = malloc(size);
    memcpy(copy, bytes, size);
    cr_assert_eq(qr_gguf_open_memory("bad.gguf", copy, size, &g, &error), expected, "%s", error.text);
    cr_assert_not_null(strstr(error.text, word), "\"%s\" not in \"%s\"", word, error.text);
    free(copy);
}

static void tensor(gguf_writer *w, const char *name, uint64_t elements) {
    gguf_writer_tensor(w, name, 0, (uint64_t[]){elements}, 1, zeros, elements * 4);
}

Test(model_gguf_read, versions_2_and_3_only) {
    for (uint32_t version = 0; version < 6; version++) {
        gguf_writer w = {.version = version ? version : 77};
        tensor(&w, "t", 8);
        expect(&w, version == 2 || version == 3 ? QUIRE_OK : QUIRE_UNSUPPORTED, "version");
    }
    gguf_writer w = {.version = 3u << 24};
    expect(&w, QUIRE_UNSUPPORTED, "big-endian");
}

Test(model_gguf_read, magic_and_counts) {
    uint8_t header[64] = "GGUX";
    expect_raw(header, sizeof header, QUIRE_FORMAT, "magic");
    memcpy(header, "GGUF\3\0\0\0", 8);
    for (int field = 8; field <= 16; field += 8)
        for (int shift = 4; shift < 64; shift += 4) {
            uint64_t count = 1ull << shift;
            memset(header + 8, 0, 16);
            memcpy(header + field, &count, 8);
            expect_raw(header, sizeof header, QUIRE_FORMAT, "");
        }
}

Test(model_gguf_read, dimensions) {
    const struct {
        uint32_t count, type;
        uint64_t dims[6];
        const char *word;
    } bad[] = {
        {0, 0, {0}, "1 to 4 dimensions"},
        {5, 0, {8, 1, 1, 1, 1}, "1 to 4 dimensions"},
        {1, 0, {0}, "zero"},
        {2, 0, {8, 0}, "zero"},
        {2, 0, {1ull << 32, 1ull << 32}, "overflow"},
        {4, 0, {1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16}, "overflow"},
        {2, 0, {1ull << 62, 4}, "overflow"},
        {1, 0, {UINT64_MAX}, "overflow"},
        {1, 0, {INT64_MAX}, "overflows"},
        {1, 2, {16}, "whole blocks"},
        {2, 2, {16, 2}, "whole blocks"},
        {1, 12, {128}, "whole blocks"},
        {1, 0, {1ull << 40}, "file ends"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gguf_writer w = {0};
        gguf_writer_raw_tensor(&w, "t", bad[i].type, bad[i].dims, bad[i].count, 0);
        byte_buffer_add(&w.data, zeros, sizeof zeros);
        expect(&w, QUIRE_FORMAT, bad[i].word);
    }
}

Test(model_gguf_read, a_dimension_count_of_four_billion) {
    gguf_writer w = {0};
    gguf_writer_raw_tensor(&w, "t", 0, (uint64_t[]){8}, 1, 0);
    byte_buffer_add(&w.data, zeros, sizeof zeros);
    memset(w.infos.data + 9, 0xff, 4);
    expect(&w, QUIRE_FORMAT, "1 to 4 dimensions");
}

Test(model_gguf_read, tensor_types) {
    for (uint32_t type = 0; type < 64; type++) {
        gguf_writer w = {0};
        gguf_writer_raw_tensor(&w, "t", type, (uint64_t[]){256}, 1, 0);
        static const uint8_t data[1024];
        byte_buffer_add(&w.data, data, sizeof data);
        bool ours = type < 4 || (type >= 6 && type <= 8) || (type >= 12 && type <= 14) || type == 30;
        bool known = ours || (type >= 9 && type <= 30) || type == 34 || type == 35 || type == 39;
        expect(&w, ours ? QUIRE_OK : known ? QUIRE_UNSUPPORTED : QUIRE_FORMAT, "type");
    }
}

Test(model_gguf_read, offsets) {
    const struct {
        uint64_t offset;
        const char *word;
    } bad[] = {
        {1, "aligned"},
        {16, "aligned"},
        {32, "overlaps"},
        {0, "overlaps"},
        {96, "file ends"},
        {1ull << 63, "file ends"},
        {UINT64_MAX - 31, "file ends"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gguf_writer w = {0};
        tensor(&w, "first", 16); /* bytes 0 to 63 */
        gguf_writer_raw_tensor(&w, "second", 0, (uint64_t[]){8}, 1, bad[i].offset);
        byte_buffer_add(&w.data, zeros, 32);
        expect(&w, QUIRE_FORMAT, bad[i].word);
    }
}

Test(model_gguf_read, alignment) {
    const uint32_t bad[] = {0, 1, 3, 4, 12, 33, 1u << 17, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gguf_writer w = {0};
        gguf_writer_u32(&w, "general.alignment", bad[i]);
        tensor(&w, "t", 8);
        expect(&w, QUIRE_FORMAT, "general.alignment");
    }
    for (uint32_t good = 8; good <= 4096; good *= 2) {
        gguf_writer w = {.alignment = good};
        gguf_writer_u32(&w, "general.alignment", good);
        tensor(&w, "t", 8);
        tensor(&w, "u", 3);
        expect(&w, QUIRE_OK, "");
    }
    gguf_writer w = {0};
    gguf_writer_f32(&w, "general.alignment", 32);
    expect(&w, QUIRE_FORMAT, "general.alignment");
    gguf_writer_text(&w, "general.alignment", "32");
    expect(&w, QUIRE_FORMAT, "general.alignment");
    gguf_writer_i32s(&w, "general.alignment", (int32_t[]){32}, 1);
    expect(&w, QUIRE_FORMAT, "general.alignment");
}

Test(model_gguf_read, duplicates) {
    gguf_writer w = {0};
    gguf_writer_u32(&w, "a", 1);
    gguf_writer_u32(&w, "b", 1);
    gguf_writer_f32(&w, "a", 1);
    expect(&w, QUIRE_FORMAT, "a: the key is there twice");
    tensor(&w, "t", 8);
    tensor(&w, "u", 8);
    tensor(&w, "t", 8);
    expect(&w, QUIRE_FORMAT, "t: the tensor is there twice");
}

Test(model_gguf_read, names) {
    char name[70000];
    memset(name, 'n', sizeof name);
    gguf_writer w = {0};
    name[65536] = 0;
    gguf_writer_u32(&w, name, 1);
    expect(&w, QUIRE_FORMAT, "key");
    name[65535] = 0;
    gguf_writer_u32(&w, name, 1);
    expect(&w, QUIRE_OK, "");
    gguf_writer_u32(&w, "", 1);
    expect(&w, QUIRE_FORMAT, "key");
    name[65] = 0;
    tensor(&w, name, 8);
    expect(&w, QUIRE_FORMAT, "tensor name");
    name[64] = 0;
    tensor(&w, name, 8);
    expect(&w, QUIRE_OK, "");
    tensor(&w, "", 8);
    expect(&w, QUIRE_FORMAT, "tensor name");
}

static void array(gguf_writer *w, uint32_t type, uint64_t count, const void *values, size_t size) {
    uint8_t value[64] = {0};
    memcpy(value, &type, 4);
    memcpy(value + 4, &count, 8);
    memcpy(value + 12, values, size);
    gguf_writer_raw(w, "list", 9, value, 12 + size);
}

Test(model_gguf_read, value_types_and_lengths) {
    gguf_writer w = {0};
    for (uint32_t type = 13; type < 64; type++) {
        gguf_writer_raw(&w, "odd", type, zeros, 8);
        expect(&w, QUIRE_FORMAT, "odd");
        array(&w, type, 1, zeros, 8);
        expect(&w, QUIRE_FORMAT, "list");
    }
    array(&w, 9, 1, zeros, 12);
    expect(&w, QUIRE_UNSUPPORTED, "list: arrays of arrays");
    for (int shift = 3; shift < 64; shift++) {
        static const uint32_t types[] = {0, 4, 7, 8, 10};
        for (size_t i = 0; i < 5; i++) {
            array(&w, types[i], 1ull << shift, zeros, 4);
            expect(&w, QUIRE_FORMAT, "list");
        }
        uint64_t length = 1ull << shift;
        gguf_writer_raw(&w, "text", 8, &length, 8);
        expect(&w, QUIRE_FORMAT, "text");
    }
    gguf_writer_raw(&w, "flag", 7, "\2", 1);
    expect(&w, QUIRE_FORMAT, "flag: a bool");
    array(&w, 7, 2, "\1\3", 2);
    expect(&w, QUIRE_FORMAT, "list: a bool");
    array(&w, 4, 0, zeros, 0);
    expect(&w, QUIRE_OK, "");
}

Test(model_gguf_read, error_texts_are_printable) {
    gguf_writer w = {0};
    gguf_writer_raw(&w, "bad\x01\xff\n", 99, zeros, 8);
    size_t size;
    uint8_t *file = gguf_writer_finish(&w, &size);
    qr_gguf *g;
    quire_error error;
    cr_assert_eq(qr_gguf_open_memory("x", file, size, &g, &error), QUIRE_FORMAT);
    for (const char *c = error.text; *c; c++) cr_assert(*c >= 32 && *c < 127);
    free(file);
    gguf_writer_deinit(&w);
}
