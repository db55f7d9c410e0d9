#include "base/float16.h"

#include <criterion/criterion.h>
#include <math.h>

Test(base_float16, every_half_widens_to_its_value_and_narrows_back) {
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t exponent = h >> 10 & 31, mantissa = h & 1023;
        float wide = qr_f16_to_f32((uint16_t)h);
        if (exponent == 31 && mantissa) {
            cr_assert(isnan(wide));
            cr_assert_eq(qr_f32_to_f16(wide), h | 0x200);
            continue;
        }
        double value = exponent == 31 ? INFINITY : exponent ? ldexp(1024 + mantissa, (int)exponent - 25) : ldexp(mantissa, -24);
        cr_assert_eq((double)wide, h & 0x8000 ? -value : value);
        cr_assert_eq(qr_f32_to_f16(wide), h);
    }
}

Test(base_float16, narrowing_rounds_to_nearest_even_between_any_two_halves) {
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float low = qr_f16_to_f32((uint16_t)h), high = qr_f16_to_f32((uint16_t)(h + 1)), middle = low + (high - low) / 2;
        cr_assert_eq(qr_f32_to_f16(middle), h + (h & 1));
        cr_assert_eq(qr_f32_to_f16(nextafterf(middle, 0)), h);
        cr_assert_eq(qr_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
    }
    cr_assert_eq(qr_f32_to_f16(65519.996f), 0x7bff);
    cr_assert_eq(qr_f32_to_f16(65520.0f), 0x7c00);
}

Test(base_float16, bf16_keeps_the_upper_half_rounded_to_even) {
    for (uint32_t h = 0; h < 65536; h++) {
        float wide = qr_bf16_to_f32((uint16_t)h);
        if (isnan(wide)) continue;
        cr_assert_eq(qr_f32_to_bf16(wide), h);
    }
    cr_assert_eq(qr_f32_to_bf16(qr_bits_f32(0x3f808000)), 0x3f80);
    cr_assert_eq(qr_f32_to_bf16(qr_bits_f32(0x3f818000)), 0x3f82);
    cr_assert_eq(qr_f32_to_bf16(qr_bits_f32(0x7f7fffff)), 0x7f80);
    cr_assert(isnan(qr_bf16_to_f32(qr_f32_to_bf16(qr_bits_f32(0x7f800001)))));
}
