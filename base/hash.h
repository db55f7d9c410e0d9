/* hash.h - hashing for tables and digests. xxh3 underneath; never a proof of equality (compare what was hashed).
 * A build with QR_CONSTANT_HASH makes qr_hash_* return one value, to prove that nothing trusts them. */
#ifndef QR_BASE_HASH_H
#define QR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t qr_hash_bytes(const void *data, size_t size, uint64_t seed);

/* XXH3-64 of bytes, to notice damage; not affected by QR_CONSTANT_HASH. */
uint64_t qr_checksum_bytes(const void *data, size_t size);

/* splitmix64's finaliser (Steele, Lea, Flood 2014): a bijection; not affected by QR_CONSTANT_HASH. */
static inline uint64_t qr_mix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
#endif
