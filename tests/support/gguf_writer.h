/* gguf_writer.h - writes GGUF v3 files for tests, right ones and (by raw entries) wrong ones. Aborts when out of memory. */
#ifndef QR_TESTS_GGUF_WRITER_H
#define QR_TESTS_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct byte_buffer {
    uint8_t *data;
    size_t size, capacity;
} byte_buffer;

void byte_buffer_add(byte_buffer *buffer, const void *data, size_t size);

/* Zero-initialise; set version and alignment to change their defaults (3, 32). omit: a key or tensor that is left out
 * when it comes, so that a test can put something else in its place. */
typedef struct gguf_writer {
    uint32_t version, alignment;
    const char *omit;
    uint64_t key_count, tensor_count;
    byte_buffer keys, infos, data;
} gguf_writer;

void gguf_writer_deinit(gguf_writer *writer);

void gguf_writer_u32(gguf_writer *writer, const char *key, uint32_t value);
void gguf_writer_f32(gguf_writer *writer, const char *key, float value);
void gguf_writer_bool(gguf_writer *writer, const char *key, bool value);
void gguf_writer_text(gguf_writer *writer, const char *key, const char *value);
void gguf_writer_texts(gguf_writer *writer, const char *key, const char *const *values, uint64_t count);
void gguf_writer_i32s(gguf_writer *writer, const char *key, const int32_t *values, uint64_t count);
/* Any type number and value bytes. */
void gguf_writer_raw(gguf_writer *writer, const char *key, uint32_t type, const void *value, size_t size);

/* dims fastest first. type: ggml's number. Copies data, padded. */
void gguf_writer_tensor(gguf_writer *writer, const char *name, uint32_t type, const uint64_t *dims, uint32_t dim_count,
                        const void *data, size_t size);
/* A tensor info that says what it likes; no data. */
void gguf_writer_raw_tensor(gguf_writer *writer, const char *name, uint32_t type, const uint64_t *dims, uint32_t dim_count,
                            uint64_t offset);

/* The file, malloc'd. */
uint8_t *gguf_writer_finish(const gguf_writer *writer, size_t *size);
#endif
