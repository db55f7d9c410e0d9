#include <criterion/criterion.h>

#include "attention/canonical.h"

Test(attention_canonical, exp2_is_close_and_exact_where_it_must_be) {
    for (float x = 0; x >= -64; x -= 0.00173f) {
        double error = (double)qr_canonical_exp2(x) / exp2((double)x) - 1;
        cr_assert(fabs(error) < 1.3e-7, "2^%g: %g", (double)x, error); /* one rounding is 6e-8 */
    }
    for (int n = 0; n >= -64; n--) cr_assert_eq(qr_canonical_exp2((float)n), ldexpf(1, n));
    cr_assert_eq(qr_canonical_exp2(-0.0f), 1.0f);
}

Test(attention_canonical, exp2_is_nothing_far_down_and_nan_for_nan) {
    cr_assert_eq(qr_canonical_exp2(nextafterf(-64, -65)), 0.0f);
    cr_assert_gt(qr_canonical_exp2(-64), 0.0f);
    cr_assert_eq(qr_canonical_exp2(-1e30f), 0.0f);
    cr_assert_eq(qr_canonical_exp2(-INFINITY), 0.0f);
    for (uint32_t low = 0; low < 1024; low++) { /* no payload can turn into a number */
        cr_assert(isnan(qr_canonical_exp2(qr_bits_f32(0x7fc00000u | low))));
        cr_assert(isnan(qr_canonical_exp2(qr_bits_f32(0xffc00000u | low))));
    }
}

Test(attention_canonical, tree_adds_halves) {
    float lane[16], expect[8];
    for (int i = 0; i < 16; i++) lane[i] = 1.0f / (float)(i * i * i + 1);
    for (int i = 0; i < 8; i++) expect[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++) expect[i] += expect[i + 4];
    float sum = (expect[0] + expect[2]) + (expect[1] + expect[3]);
    cr_assert_eq(qr_f32_bits(qr_canonical_tree16(lane)), qr_f32_bits(sum));
}

Test(attention_canonical, maximum_passes_over_nan) {
    float lane[16];
    for (int at = 0; at < 16; at++) {
        for (int i = 0; i < 16; i++) lane[i] = -INFINITY;
        lane[at] = qr_canonical_max(NAN, -3.0f);
        cr_assert_eq(qr_canonical_max16(lane), -3.0f);
    }
    cr_assert(signbit(qr_canonical_max(0.0f, -0.0f))); /* of equals the earlier stays, as in maxps */
}
