#include "base/hash.h"

#include <criterion/criterion.h>
#include <string.h>

Test(base_hash, equal_bytes_hash_equal) {
    const char a[] = "the same bytes", b[] = "the same bytes";
    cr_assert_eq(qr_hash_bytes(a, sizeof a, 3), qr_hash_bytes(b, sizeof b, 3));
    cr_assert_eq(qr_hash_bytes(NULL, 0, 0), qr_hash_bytes("x", 0, 0));
}

#ifdef QR_CONSTANT_HASH
Test(base_hash, a_constant_hash_build_says_nothing) { cr_assert_eq(qr_hash_bytes("a", 1, 0), qr_hash_bytes("bcd", 3, 9)); }
#else
Test(base_hash, one_bit_or_the_seed_changes_it) {
    unsigned char bytes[64] = {0};
    uint64_t before = qr_hash_bytes(bytes, sizeof bytes, 0);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        cr_expect_neq(qr_hash_bytes(bytes, sizeof bytes, 0), before);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    cr_assert_neq(qr_hash_bytes(bytes, sizeof bytes, 1), before);
}
#endif

Test(base_hash, mix64_is_the_published_finaliser) {
    /* splitmix64 from state 0 and 1 (Vigna's splitmix64.c): first outputs. */
    cr_assert_eq(qr_mix64(0), 0xe220a8397b1dcdafu);
    cr_assert_eq(qr_mix64(0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
}
