/* unicode_utf8.c - one character of UTF-8 at a time (Unicode Standard, table 3-7). */
#include "runtime/model/unicode_utf8.h"

#include <stdbool.h>

#include "base/assertion.h"

/* Continuation bytes that the lead byte asks for; 0 = not a lead byte of more than one. */
static uint32_t continuation_count(unsigned char lead) {
    if (lead >= 0xc2 && lead <= 0xdf) return 1;
    if (lead >= 0xe0 && lead <= 0xef) return 2;
    if (lead >= 0xf0 && lead <= 0xf4) return 3;
    return 0;
}

/* The second byte excludes overlong forms, surrogates and what lies past U+10FFFF. */
static bool second_fits(unsigned char lead, unsigned char second) {
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high;
}

qr_utf8 qr_utf8_read(const char *data, size_t size) {
    QR_ASSERT(size > 0);
    const unsigned char *p = (const unsigned char *)data;
    if (p[0] < 0x80) return (qr_utf8){QR_UTF8_CHARACTER, 1, p[0]};
    uint32_t count = continuation_count(p[0]);
    if (count == 0) return (qr_utf8){QR_UTF8_ILL, 1, 0};
    uint32_t code_point = p[0] & (0x3fu >> count);
    for (uint32_t i = 1; i <= count; i++) {
        if (i == size) return (qr_utf8){QR_UTF8_CUT, i, 0};
        bool fits = i == 1 ? second_fits(p[0], p[1]) : (p[i] & 0xc0) == 0x80;
        if (!fits) return (qr_utf8){QR_UTF8_ILL, i, 0};
        code_point = code_point << 6 | (p[i] & 0x3fu);
    }
    return (qr_utf8){QR_UTF8_CHARACTER, count + 1, code_point};
}

size_t qr_utf8_write(uint32_t c, char *to) {
    QR_ASSERT(c <= 0x10ffff && !(c >= 0xd800 && c <= 0xdfff));
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    size_t count = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char leads[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(leads[count] | c >> (6 * count));
    for (size_t i = 1; i <= count; i++) to[i] = (char)(0x80 | (c >> (6 * (count - i)) & 0x3f));
    return count + 1;
}
