/* unicode_class.c - class of a code point: a switch for white space, arithmetic for ASCII, binary search for the rest. */
#include "runtime/model/unicode_class.h"

#include <stdbool.h>
#include <stddef.h>

#include "runtime/model/unicode_ranges.h"

/* White_Space of Unicode: 25 code points, the same since version 6.3. */
static bool is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    switch (c) {
    case 0x85:
    case 0xa0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202f:
    case 0x205f:
    case 0x3000: return true;
    default: return c >= 0x2000 && c <= 0x200a;
    }
}

static const unicode_range *find_range(const unicode_range *ranges, size_t count, uint32_t c) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (c > ranges[middle].last) {
            low = middle + 1;
        } else if (c < ranges[middle].first) {
            high = middle;
        } else {
            return &ranges[middle];
        }
    }
    return NULL;
}

qr_unicode_class qr_unicode_class_of(uint32_t c) {
    if (c < 0x80) {
        uint32_t lower = c | 0x20;
        if (lower >= 'a' && lower <= 'z') return QR_UNICODE_LETTER;
        if (c >= '0' && c <= '9') return QR_UNICODE_NUMBER;
        return is_space(c) ? QR_UNICODE_SPACE : QR_UNICODE_OTHER;
    }
    if (is_space(c)) return QR_UNICODE_SPACE;
    const unicode_range *range = find_range(unicode_ranges, sizeof unicode_ranges / sizeof unicode_ranges[0], c);
    return range ? range->class : QR_UNICODE_OTHER;
}

bool qr_unicode_joins(uint32_t c) {
    return find_range(unicode_joining_ranges, sizeof unicode_joining_ranges / sizeof unicode_joining_ranges[0], c) != NULL;
}
