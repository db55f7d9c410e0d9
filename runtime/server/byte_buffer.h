/* byte_buffer.h - a growing run of bytes: request bodies, replies, and small arrays of plain structs.
 *
 * Running out of memory is sticky: the buffer empties itself, `failed` stays set and later appends do nothing, so that a
 * writer of many pieces checks once, where the bytes are used.
 *
 * Thread: one owner.
 */
#ifndef QR_SERVER_BYTE_BUFFER_H
#define QR_SERVER_BYTE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

/* Zero-initialised is empty. */
typedef struct qr_bytes {
    char *data;
    size_t size, capacity;
    bool failed;
} qr_bytes;

void qr_bytes_deinit(qr_bytes *bytes); /* leaves it empty and usable */
void qr_bytes_clear(qr_bytes *bytes);  /* size 0, memory kept */
void qr_bytes_append(qr_bytes *bytes, const void *data, size_t size);
void qr_bytes_text(qr_bytes *bytes, const char *text);
__attribute__((format(printf, 2, 3))) void qr_bytes_format(qr_bytes *bytes, const char *format, ...);
/* Drops the first `size` bytes. */
void qr_bytes_consume(qr_bytes *bytes, size_t size);
/* Gives the memory to the caller (free) and leaves the buffer empty. */
char *qr_bytes_take(qr_bytes *bytes, size_t *size);

#endif
