/* unicode_utf8.h - reading UTF-8 that may be ill-formed or cut.
 *
 * Ill-formed bytes are grouped into maximal subparts as the Unicode Standard recommends (chapter 3, "U+FFFD Substitution
 * of Maximal Subparts"): each becomes one U+FFFD where text must be valid, and single bytes where it need not be.
 */
#ifndef QR_MODEL_UNICODE_UTF8_H
#define QR_MODEL_UNICODE_UTF8_H

#include <stddef.h>
#include <stdint.h>

typedef enum qr_utf8_kind {
    QR_UTF8_CHARACTER, /* a code point of `length` bytes */
    QR_UTF8_ILL,       /* `length` bytes that can never be part of a character */
    QR_UTF8_CUT,       /* all the bytes there are (`length`) could begin a character */
} qr_utf8_kind;

typedef struct qr_utf8 {
    qr_utf8_kind kind;
    uint32_t length;     /* 1 .. 4 */
    uint32_t code_point; /* CHARACTER only */
} qr_utf8;

/* Reads what begins at data; size >= 1. */
qr_utf8 qr_utf8_read(const char *data, size_t size);
/* Writes a code point (not a surrogate, at most U+10FFFF) to `to`; returns its 1 .. 4 bytes. */
size_t qr_utf8_write(uint32_t code_point, char *to);
#endif
