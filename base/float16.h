/* float16.h - f16 and bf16 conversions, defined bit for bit (docs/NUMERICS.md): exact widening; narrowing rounds to
 * nearest even; a signalling NaN becomes quiet. These are what vcvtph2ps and vcvtps2ph do. */
#ifndef QR_BASE_FLOAT16_H
#define QR_BASE_FLOAT16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t qr_f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static inline float qr_bits_f32(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static inline float qr_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 1023u;
    if (exponent == 0) return qr_bits_f32(qr_f32_bits((float)mantissa * 0x1p-24f) | sign);
    if (exponent == 31) return qr_bits_f32(sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u));
    return qr_bits_f32(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

static inline uint16_t qr_f32_to_f16(float x) {
    uint32_t u = qr_f32_bits(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* half subnormal: the fp adder rounds at 2^-24 */
        float v = qr_bits_f32(magnitude) + 0.5f;
        return (uint16_t)(sign | (qr_f32_bits(v) - 0x3f000000u));
    }
    uint32_t r = magnitude - 0x38000000u;
    return (uint16_t)(sign | ((r + 0xfffu + ((r >> 13) & 1u)) >> 13));
}

static inline float qr_bf16_to_f32(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    return qr_bits_f32((u & 0x7fffffffu) > 0x7f800000u ? u | 0x400000u : u);
}

static inline uint16_t qr_f32_to_bf16(float x) {
    uint32_t u = qr_f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
#endif
