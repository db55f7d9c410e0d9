/* error.h - filling a quire_error, and making text from outside safe to show. */
#ifndef QR_BASE_ERROR_H
#define QR_BASE_ERROR_H

#include <quire/status.h>

#define QR_NO_OFFSET UINT64_MAX

/* Fills *error (NULL is fine) and returns status, so that a failing call is one line. Bytes of the formatted text that
 * are not valid UTF-8 or are control characters become '?'. source may be NULL. */
__attribute__((format(printf, 5, 6))) quire_status qr_fail(quire_error *error, quire_status status, const char *source,
                                                           uint64_t offset, const char *format, ...);
void qr_error_clear(quire_error *error);

/* Bytes of the valid UTF-8 character at text[0, size), 0 when there is none (overlong forms, surrogates, values past
 * U+10FFFF and characters that end beyond size are not valid). */
size_t qr_utf8_length(const char *text, size_t size);

/* Copies from[0, from_bytes) to to[capacity], ending it with a zero. Control characters and bytes that are not UTF-8 become
 * '?'; the copy ends at a whole character. Returns the bytes written, the zero not counted. Capacity is at least 1. */
size_t qr_text_sanitize(char *to, size_t capacity, const char *from, size_t from_bytes);
#endif
