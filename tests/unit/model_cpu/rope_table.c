/* rope_table.c - our own powers, cosines and sines against the C library's long double ones. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/random.h"
#include "runtime/model/cpu/matmul.h"

/* x86-64 long double has 64 bits, enough for angles up to 2^32 in units of 1e-9. */
static void check_angle(uint32_t position, double frequency) {
    float table[2];
    qr_rope_row(table, position, &frequency, 2);
    long double angle = (long double)((double)position * frequency);
    /* Half an ulp of fp32 in [1/2, 1], and the double's own error. */
    cr_assert_leq(fabsl(table[0] - cosl(angle)), 0x1.001p-25L, "cos at %u * %a", position, frequency);
    cr_assert_leq(fabsl(table[1] - sinl(angle)), 0x1.001p-25L, "sin at %u * %a", position, frequency);
}

Test(model_cpu_rope_table, cosine_and_sine_are_rounded_exact_values) {
    qr_random r = {21};
    for (int i = 0; i < 200000; i++) {
        uint32_t position = (uint32_t)(qr_random_u64(&r) >> (32 + qr_random_below(&r, 32)));
        check_angle(position, pow(10.0, -8.0 * qr_random_unit(&r)));
        check_angle(position, 1.0);
    }
    check_angle(UINT32_MAX, 1.0);
}

Test(model_cpu_rope_table, position_zero_is_not_turned) {
    const double frequency[2] = {1.0, 0.5};
    float table[4];
    qr_rope_row(table, 0, frequency, 4);
    cr_assert(table[0] == 1.0f && table[1] == 0.0f && table[2] == 1.0f && table[3] == 0.0f);
}

/* The quadrant borders, where the reduced angle cancels most. */
Test(model_cpu_rope_table, small_sines_near_multiples_of_half_pi_keep_their_digits) {
    static const uint32_t near[] = {11, 22, 33, 44, 355, 710, 103993, 104348, 208341, 312689, 833719, 1146408};
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
        const double one = 1.0;
        float table[2];
        qr_rope_row(table, near[i], &one, 2);
        long double s = sinl(near[i]), c = cosl(near[i]);
        cr_assert_leq(fabsl(table[1] - s), fabsl(s) * 0x1p-23L, "sin %u", near[i]);
        cr_assert_leq(fabsl(table[0] - c), fabsl(c) * 0x1p-23L, "cos %u", near[i]);
    }
}

static void check_frequencies(double base, uint32_t rotated, double scale, const float *factors) {
    double f[128];
    qr_rope_frequencies(f, rotated, base, scale, factors);
    for (uint32_t i = 0; i < rotated / 2; i++) {
        long double exact = powl(base, -2.0L * i / rotated) / scale / (factors ? factors[i] : 1.0L);
        cr_assert_leq(fabsl(f[i] - exact), exact * 1e-14L, "base %g, %u of %u", base, i, rotated);
    }
}

Test(model_cpu_rope_table, frequencies_are_powers_of_the_base) {
    static const double bases[] = {1.0, 2.0, 10000.0, 100000.0, 500000.0, 1e6, 1e9, 1.4142135623730951, 3e-0};
    float factors[64];
    for (int i = 0; i < 64; i++) factors[i] = 1.0f + (float)i / 7.0f;
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        check_frequencies(bases[i], 64, 1.0, NULL);
        check_frequencies(bases[i], 128, 4.0, NULL);
        check_frequencies(bases[i], 80, 1.0, factors);
    }
}

Test(model_cpu_rope_table, first_frequency_is_exactly_one) {
    double f[32];
    qr_rope_frequencies(f, 64, 100000.0, 1.0, NULL);
    cr_assert_eq(f[0], 1.0);
}
