/* Opening: good files, mapping, look-up, truncation at every byte. What malformed headers do is in gguf_read.c. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/model/gguf.h"
#include "tests/support/gguf_writer.h"

static uint8_t *good_file(size_t *size) {
    gguf_writer w = {0};
    const float vector[8] = {1, 2, 3};
    gguf_writer_text(&w, "general.architecture", "llama");
    gguf_writer_u32(&w, "a.number", 7);
    gguf_writer_texts(&w, "a.texts", (const char *[]){"x", "", "long text"}, 3);
    gguf_writer_tensor(&w, "second", 0, (uint64_t[]){4, 2}, 2, vector, sizeof vector);
    gguf_writer_tensor(&w, "first", 0, (uint64_t[]){7}, 1, vector, 7 * sizeof *vector); /* padding ends the file */
    uint8_t *file = gguf_writer_finish(&w, size);
    gguf_writer_deinit(&w);
    return file;
}

Test(model_gguf, a_good_file_opens_from_memory_and_by_path) {
    size_t size;
    uint8_t *file = good_file(&size);
    char path[] = "/tmp/quire-gguf-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, file, size), (ssize_t)size);
    close(fd);
    for (int mapped = 0; mapped < 2; mapped++) {
        qr_gguf *g;
        quire_error error;
        quire_status status = mapped ? qr_gguf_open(path, &g, &error) : qr_gguf_open_memory("memory", file, size, &g, &error);
        cr_assert_eq(status, QUIRE_OK);
        cr_assert_eq(qr_gguf_tensor_count(g), 2);
        cr_assert_eq(qr_gguf_file_bytes(g), size);
        const qr_gguf_tensor *t = qr_gguf_find_tensor(g, "second");
        cr_assert_eq(t, qr_gguf_tensor_at(g, 0));
        cr_assert_eq(t->dims[0], 4);
        cr_assert_eq(t->dims[1], 2);
        cr_assert_eq(t->dims[3], 1);
        cr_assert_eq(t->size_bytes, 32);
        cr_assert_eq(((const float *)(const void *)t->data)[1], 2.0f);
        cr_assert_null(qr_gguf_find_tensor(g, "third"));
        cr_assert_null(qr_gguf_find_tensor(g, "firs"));
        qr_gguf_drop_pages(g);
        cr_assert_eq(((const float *)(const void *)qr_gguf_find_tensor(g, "first")->data)[2], 3.0f);
        qr_gguf_close(g);
    }
    unlink(path);
    free(file);
}

Test(model_gguf, every_truncation_is_refused_with_path_and_offset) {
    size_t size;
    uint8_t *file = good_file(&size);
    for (size_t length = 0; length < size; length++) {
        /* A copy of its own, so that a sanitizer sees any read behind the end. */
        uint8_t *cut = malloc(length + !length);
        memcpy(cut, file, length);
        qr_gguf *g;
        quire_error error;
        cr_assert_eq(qr_gguf_open_memory("cut.gguf", cut, length, &g, &error), QUIRE_FORMAT, "at %zu", length);
        cr_assert_null(g);
        cr_assert_str_eq(error.source, "cut.gguf");
        cr_assert_leq(error.offset, length, "offset %llu at %zu: %s", (unsigned long long)error.offset, length, error.text);
        cr_assert_neq(error.text[0], 0);
        free(cut);
    }
    free(file);
}

Test(model_gguf, what_is_not_a_model_file_is_refused_by_name) {
    qr_gguf *g;
    quire_error error;
    char path[] = "/tmp/quire-gguf-XXXXXX";
    int fd = mkstemp(path);
    close(fd);
    cr_assert_eq(qr_gguf_open(path, &g, &error), QUIRE_FORMAT); /* empty */
    cr_assert_str_eq(error.source, path);
    unlink(path);
    cr_assert_eq(qr_gguf_open(path, &g, &error), QUIRE_IO); /* gone */
    cr_assert_str_eq(error.source, path);
    cr_assert_eq(qr_gguf_open("/tmp", &g, &error), QUIRE_IO);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(qr_gguf_open(path, &g, &error), QUIRE_IO); /* does not hang */
    unlink(path);
    cr_assert_null(g);
}

Test(model_gguf, many_names_are_all_found) {
    gguf_writer w = {0};
    enum { COUNT = 1000 };
    char name[32];
    const float zero[8] = {0};
    for (int i = 0; i < COUNT; i++) {
        (void)snprintf(name, sizeof name, "key.%d", i * 7919 % COUNT);
        gguf_writer_u32(&w, name, (uint32_t)(i * 7919 % COUNT));
        (void)snprintf(name, sizeof name, "tensor.%d", i * 7919 % COUNT);
        gguf_writer_tensor(&w, name, 0, (uint64_t[]){8}, 1, zero, sizeof zero);
    }
    size_t size;
    uint8_t *file = gguf_writer_finish(&w, &size);
    qr_gguf *g;
    cr_assert_eq(qr_gguf_open_memory("many", file, size, &g, NULL), QUIRE_OK);
    for (int i = 0; i < COUNT; i++) {
        uint64_t value;
        (void)snprintf(name, sizeof name, "key.%d", i);
        cr_assert_eq(qr_gguf_get_u64(g, name, &value, NULL), QUIRE_OK);
        cr_assert_eq(value, (uint64_t)i);
        (void)snprintf(name, sizeof name, "tensor.%d", i);
        const qr_gguf_tensor *t = qr_gguf_find_tensor(g, name);
        cr_assert_not_null(t);
        cr_assert_eq(memcmp(t->name.data, name, t->name.size), 0);
    }
    qr_gguf_close(g);
    gguf_writer_deinit(&w);
    free(file);
}
