/* gguf_writer.c - see gguf_writer.h. */
#include "tests/support/gguf_writer.h"

#include <stdlib.h>
#include <string.h>

enum { TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_STRING = 8, TYPE_ARRAY = 9 };

void byte_buffer_add(byte_buffer *b, const void *data, size_t size) {
    if (!size) return;
    if (b->size + size > b->capacity) {
        b->capacity = (b->size + size) * 2;
        b->data = realloc(b->data, b->capacity);
        if (!b->data) abort();
    }
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void add_u32(byte_buffer *b, uint32_t value) { byte_buffer_add(b, &value, sizeof value); }
static void add_u64(byte_buffer *b, uint64_t value) { byte_buffer_add(b, &value, sizeof value); }

static void add_text(byte_buffer *b, const char *text) {
    add_u64(b, strlen(text));
    byte_buffer_add(b, text, strlen(text));
}

static void pad(byte_buffer *b, uint32_t alignment) {
    static const uint8_t zero;
    while (b->size % alignment) byte_buffer_add(b, &zero, 1);
}

static uint32_t alignment_of(const gguf_writer *w) { return w->alignment ? w->alignment : 32; }

void gguf_writer_deinit(gguf_writer *w) {
    free(w->keys.data);
    free(w->infos.data);
    free(w->data.data);
    memset(w, 0, sizeof *w);
}

static bool left_out(const gguf_writer *w, const char *name) { return w->omit && !strcmp(w->omit, name); }

void gguf_writer_raw(gguf_writer *w, const char *key, uint32_t type, const void *value, size_t size) {
    if (left_out(w, key)) return;
    add_text(&w->keys, key);
    add_u32(&w->keys, type);
    byte_buffer_add(&w->keys, value, size);
    w->key_count++;
}

/* Takes the value. */
static void add_value(gguf_writer *w, const char *key, uint32_t type, byte_buffer *value) {
    gguf_writer_raw(w, key, type, value->data, value->size);
    free(value->data);
}

void gguf_writer_u32(gguf_writer *w, const char *key, uint32_t value) {
    gguf_writer_raw(w, key, TYPE_U32, &value, sizeof value);
}

void gguf_writer_f32(gguf_writer *w, const char *key, float value) { gguf_writer_raw(w, key, TYPE_F32, &value, sizeof value); }

void gguf_writer_bool(gguf_writer *w, const char *key, bool value) {
    uint8_t byte = value;
    gguf_writer_raw(w, key, TYPE_BOOL, &byte, 1);
}

void gguf_writer_text(gguf_writer *w, const char *key, const char *value) {
    byte_buffer b = {0};
    add_text(&b, value);
    add_value(w, key, TYPE_STRING, &b);
}

static byte_buffer begin_array(uint32_t type, uint64_t count) {
    byte_buffer b = {0};
    add_u32(&b, type);
    add_u64(&b, count);
    return b;
}

void gguf_writer_texts(gguf_writer *w, const char *key, const char *const *values, uint64_t count) {
    byte_buffer b = begin_array(TYPE_STRING, count);
    for (uint64_t i = 0; i < count; i++) add_text(&b, values[i]);
    add_value(w, key, TYPE_ARRAY, &b);
}

void gguf_writer_i32s(gguf_writer *w, const char *key, const int32_t *values, uint64_t count) {
    byte_buffer b = begin_array(TYPE_I32, count);
    byte_buffer_add(&b, values, count * sizeof *values);
    add_value(w, key, TYPE_ARRAY, &b);
}

void gguf_writer_raw_tensor(gguf_writer *w, const char *name, uint32_t type, const uint64_t *dims, uint32_t dim_count,
                            uint64_t offset) {
    add_text(&w->infos, name);
    add_u32(&w->infos, dim_count);
    byte_buffer_add(&w->infos, dims, dim_count * sizeof *dims);
    add_u32(&w->infos, type);
    add_u64(&w->infos, offset);
    w->tensor_count++;
}

void gguf_writer_tensor(gguf_writer *w, const char *name, uint32_t type, const uint64_t *dims, uint32_t dim_count,
                        const void *data, size_t size) {
    if (left_out(w, name)) return;
    gguf_writer_raw_tensor(w, name, type, dims, dim_count, w->data.size);
    byte_buffer_add(&w->data, data, size);
    pad(&w->data, alignment_of(w));
}

uint8_t *gguf_writer_finish(const gguf_writer *w, size_t *size) {
    byte_buffer file = {0};
    byte_buffer_add(&file, "GGUF", 4);
    add_u32(&file, w->version ? w->version : 3);
    add_u64(&file, w->tensor_count);
    add_u64(&file, w->key_count);
    byte_buffer_add(&file, w->keys.data, w->keys.size);
    byte_buffer_add(&file, w->infos.data, w->infos.size);
    if (w->data.size) pad(&file, alignment_of(w));
    byte_buffer_add(&file, w->data.data, w->data.size);
    *size = file.size;
    return file.data;
}
