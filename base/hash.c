/* hash.c - xxh3 with a seed, or the one value of a constant-hash build. */
#include "base/hash.h"

#include <xxhash.h>

uint64_t qr_hash_bytes(const void *data, size_t size, uint64_t seed) {
#ifdef QR_CONSTANT_HASH
    (void)data, (void)size, (void)seed;
    return 0x51f15eedu;
#else
    return XXH3_64bits_withSeed(data, size, seed);
#endif
}

uint64_t qr_checksum_bytes(const void *data, size_t size) { return XXH3_64bits(data, size); }
