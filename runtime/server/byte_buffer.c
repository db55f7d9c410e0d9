/* byte_buffer.c - see byte_buffer.h. */
#include "runtime/server/byte_buffer.h"

#include "base/assertion.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_CAPACITY_MIN = 256 };

void qr_bytes_deinit(qr_bytes *bytes) {
    free(bytes->data);
    *bytes = (qr_bytes){0};
}

void qr_bytes_clear(qr_bytes *bytes) { bytes->size = 0; }

static void bytes_fail(qr_bytes *bytes) {
    free(bytes->data);
    *bytes = (qr_bytes){.failed = true};
}

/* Room for `size` more bytes and one terminator, which is not counted. */
static bool bytes_grow(qr_bytes *bytes, size_t size) {
    if (bytes->failed) return false;
    if (size >= SIZE_MAX / 2 - bytes->size) return bytes_fail(bytes), false;
    size_t need = bytes->size + size + 1;
    if (need <= bytes->capacity) return true;
    size_t capacity = bytes->capacity ? bytes->capacity : BYTES_CAPACITY_MIN;
    while (capacity < need) capacity += capacity / 2 + 1;
    char *data = realloc(bytes->data, capacity);
    if (!data) return bytes_fail(bytes), false;
    bytes->data = data;
    bytes->capacity = capacity;
    return true;
}

void qr_bytes_append(qr_bytes *bytes, const void *data, size_t size) {
    if (!bytes_grow(bytes, size)) return;
    if (size) memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    bytes->data[bytes->size] = 0;
}

void qr_bytes_text(qr_bytes *bytes, const char *text) { qr_bytes_append(bytes, text, strlen(text)); }

void qr_bytes_format(qr_bytes *bytes, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    QR_ASSERT(length >= 0);
    if (bytes_grow(bytes, (size_t)length)) {
        vsnprintf(bytes->data + bytes->size, (size_t)length + 1, format, again);
        bytes->size += (size_t)length;
    }
    va_end(again);
    va_end(arguments);
}

void qr_bytes_consume(qr_bytes *bytes, size_t size) {
    QR_ASSERT(size <= bytes->size);
    bytes->size -= size;
    if (bytes->size) memmove(bytes->data, bytes->data + size, bytes->size);
}

char *qr_bytes_take(qr_bytes *bytes, size_t *size) {
    char *data = bytes->data;
    *size = bytes->size;
    bool failed = bytes->failed;
    *bytes = (qr_bytes){.failed = failed};
    return data;
}
