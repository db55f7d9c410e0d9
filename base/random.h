/* random.h - a small reproducible generator (splitmix64) for eviction sampling, property tests and simulations.
 * Not for secrets. */
#ifndef QR_BASE_RANDOM_H
#define QR_BASE_RANDOM_H

#include <stdint.h>

typedef struct qr_random {
    uint64_t state;
} qr_random;

static inline uint64_t qr_random_u64(qr_random *r) {
    uint64_t x = (r->state += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Uniform in [0, bound), bound >= 1; the bias is below 2^-32. */
static inline uint32_t qr_random_below(qr_random *r, uint32_t bound) {
    return (uint32_t)(((qr_random_u64(r) >> 32) * bound) >> 32);
}

/* Uniform in [0, 1) with 53 bits. */
static inline double qr_random_unit(qr_random *r) { return (double)(qr_random_u64(r) >> 11) * 0x1p-53; }
#endif
