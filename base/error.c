/* error.c - filling a quire_error.
 *
 * Texts often quote bytes of a file or a client, so everything that goes in is made printable here, in one place.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool utf8_is_continuation(unsigned char byte) { return (byte & 0xc0u) == 0x80u; }

/* Length that the first byte announces; 0 for bytes that cannot begin a character. */
static size_t utf8_announced(unsigned char first) {
    if (first < 0x80) return 1;
    if (first >= 0xc2 && first < 0xe0) return 2;
    if (first >= 0xe0 && first < 0xf0) return 3;
    if (first >= 0xf0 && first < 0xf5) return 4;
    return 0;
}

size_t qr_utf8_length(const char *text, size_t size) {
    const unsigned char *u = (const unsigned char *)text;
    size_t length = size ? utf8_announced(u[0]) : 0;
    if (length > size) return 0;
    for (size_t i = 1; i < length; i++)
        if (!utf8_is_continuation(u[i])) return 0;
    if (u[0] == 0xe0 && u[1] < 0xa0) return 0; /* overlong */
    if (u[0] == 0xed && u[1] > 0x9f) return 0; /* surrogate */
    if (u[0] == 0xf0 && u[1] < 0x90) return 0; /* overlong */
    if (u[0] == 0xf4 && u[1] > 0x8f) return 0; /* past U+10FFFF */
    return length;
}

/* C0, DEL and C1 (which some terminals obey). */
static bool text_is_control(const char *character, size_t length) {
    unsigned char first = (unsigned char)character[0];
    if (length == 1) return first < 0x20 || first == 0x7f;
    return length == 2 && first == 0xc2 && (unsigned char)character[1] < 0xa0;
}

size_t qr_text_sanitize(char *to, size_t capacity, const char *from, size_t from_bytes) {
    size_t written = 0;
    for (size_t i = 0; i < from_bytes;) {
        size_t length = qr_utf8_length(from + i, from_bytes - i);
        bool bad = length == 0 || text_is_control(from + i, length);
        size_t out = bad ? 1 : length;
        if (written + out >= capacity) break;
        if (bad) to[written] = '?';
        else memcpy(to + written, from + i, length);
        written += out;
        i += length ? length : 1;
    }
    to[written] = 0;
    return written;
}

/* Bytes of text without a character that a buffer's end cut in two. */
static size_t text_whole(const char *text, size_t size) {
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        size_t announced = utf8_announced((unsigned char)text[size - back]);
        if (announced > back) return size - back;
        if (announced) break;
    }
    return size;
}

quire_status qr_fail(quire_error *error, quire_status status, const char *source, uint64_t offset, const char *format, ...) {
    if (!error) return status;
    char raw[sizeof error->text];
    va_list arguments;
    va_start(arguments, format);
    int needed = vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    size_t size = needed < 0 ? 0 : (size_t)needed;
    if (size >= sizeof raw) size = text_whole(raw, sizeof raw - 1);
    error->status = status;
    error->offset = offset;
    qr_text_sanitize(error->text, sizeof error->text, raw, size);
    qr_text_sanitize(error->source, sizeof error->source, source ? source : "", source ? strlen(source) : 0);
    return status;
}

void qr_error_clear(quire_error *error) {
    if (!error) return;
    memset(error, 0, sizeof *error);
    error->offset = QR_NO_OFFSET;
}
