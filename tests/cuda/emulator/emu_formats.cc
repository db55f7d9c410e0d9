// Number formats by their definitions; the f16 table exists because MMA converts some hundred million halves per test.
#include "tests/cuda/emulator/emu_formats.h"

#include <array>
#include <cmath>
#include <cstring>

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float half_by_definition(unsigned half) {
    unsigned exponent = half >> 10 & 31, mantissa = half & 1023;
    float value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                  : exponent     ? ldexpf((float)(1024 + mantissa), (int)exponent - 25)
                                 : ldexpf((float)mantissa, -24);
    return half & 0x8000 ? -value : value;
}

static std::array<float, 65536> half_table() {
    std::array<float, 65536> table;
    for (unsigned half = 0; half < table.size(); half++) table[half] = half_by_definition(half);
    return table;
}

float emu_f16_to_f32(uint16_t half) {
    static const std::array<float, 65536> table = half_table();
    return table[half];
}

uint16_t emu_f32_to_f16(float value) {
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return 0x7fff;
    if (bits >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // 65520 and more round to infinity
    if (bits < 0x38800000)                                    // below 2^-14: a multiple of 2^-24
        return (uint16_t)(sign | (uint32_t)nearbyintf(float_of(bits) * 0x1p24f));
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | ((bits - 0x38000000) >> 13));
}

float emu_bf16_to_f32(uint16_t bits) { return float_of((uint32_t)bits << 16); }

uint16_t emu_f32_to_bf16(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float emu_e4m3_to_f32(uint8_t bits) {
    int exponent = bits >> 3 & 15, mantissa = bits & 7;
    float value = exponent == 15 && mantissa == 7 ? NAN
                  : exponent                      ? ldexpf((float)(8 + mantissa), exponent - 10)
                                                  : ldexpf((float)mantissa, -9);
    return bits & 0x80 ? -value : value;
}

uint8_t emu_f32_to_e4m3(float value) {
    unsigned sign = std::signbit(value) ? 0x80 : 0;
    if (value != value) return 0x7f;
    float size = fabsf(value);
    if (size >= 448.f) return (uint8_t)(sign | 0x7e);
    if (size < 0x1p-6f) return (uint8_t)(sign | (unsigned)nearbyintf(size * 512.f));
    int exponent = ilogbf(size);
    int mantissa = (int)nearbyintf(ldexpf(size, 3 - exponent)); // 8..16; 16 carries into the exponent
    return (uint8_t)(sign | (unsigned)(((exponent + 7) << 3) + (mantissa - 8)));
}
