/* checked.h - sizes that cannot wrap. All return false on overflow and then leave *out zero. */
#ifndef QR_BASE_CHECKED_H
#define QR_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool qr_mul_size(size_t a, size_t b, size_t *out) {
    if (!__builtin_mul_overflow(a, b, out)) return true;
    *out = 0;
    return false;
}

static inline bool qr_add_size(size_t a, size_t b, size_t *out) {
    if (!__builtin_add_overflow(a, b, out)) return true;
    *out = 0;
    return false;
}

static inline bool qr_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    if (!__builtin_mul_overflow(a, b, out)) return true;
    *out = 0;
    return false;
}

static inline bool qr_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    if (!__builtin_add_overflow(a, b, out)) return true;
    *out = 0;
    return false;
}

/* Next multiple of a power of two; the caller knows that it cannot wrap. */
static inline size_t qr_align_up(size_t value, size_t alignment) { return (value + alignment - 1) & ~(alignment - 1); }

static inline uint64_t qr_div_up(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }
#endif
