/* canonical.h - the arithmetic that every path must reproduce bit for bit: exp2, maximum and the tree of 16 lanes.
 *
 * Nothing here is fast by itself. It fixes constants and the order of every rounding (docs/NUMERICS.md). Scalar code calls
 * these functions; vector code repeats the same operations lane by lane, and tests compare the two with memcmp. Files of
 * the forward pass that are compiled once per instruction set include this header too: the compiler may vectorise the
 * loops around it, but not reorder it.
 *
 * Rules for every file that includes it: -ffp-contract=off, rounding to nearest even, no flush to zero, and a fused
 * multiply-add only where one is written.
 */
#ifndef QR_ATTENTION_CANONICAL_H
#define QR_ATTENTION_CANONICAL_H

#include <math.h>
#include <string.h>

#include "base/float16.h"

enum { QR_CANONICAL_LANES = 16 };

/* Below this a weight is exactly 0, so no subnormal ever meets a value. */
#define QR_EXP2_MIN -64.0f
/* 2^f on [-1/2, 1/2], minimax for relative error, constant term exactly 1; 2e-9 before rounding. */
#define QR_EXP2_C1 0x1.62e430p-1f
#define QR_EXP2_C2 0x1.ebfbdcp-3f
#define QR_EXP2_C3 0x1.c6aee8p-5f
#define QR_EXP2_C4 0x1.3b2d4cp-7f
#define QR_EXP2_C5 0x1.5f3e54p-10f
#define QR_EXP2_C6 0x1.41fbbcp-13f

/* 2^x for x <= 127 or NaN; exactly 0 below QR_EXP2_MIN, exactly 1 at 0; NaN stays NaN. Adding 1.5 * 2^23 rounds x to
 * the nearest integer n (even on ties) and leaves n in the low bits. There is no branch, so that a loop around it
 * vectorises; what the operations give far below QR_EXP2_MIN is masked away. */
static inline float qr_canonical_exp2(float x) {
    float shifted = x + 0x1.8p23f, f = x - (shifted - 0x1.8p23f);
    float p = fmaf(QR_EXP2_C6, f, QR_EXP2_C5);
    p = fmaf(p, f, QR_EXP2_C4);
    p = fmaf(p, f, QR_EXP2_C3);
    p = fmaf(p, f, QR_EXP2_C2);
    p = fmaf(p, f, QR_EXP2_C1);
    p = fmaf(p, f, 1.0f);
    float power = qr_bits_f32((qr_f32_bits(shifted) << 23) + 0x3f800000u); /* 2^n: the product is exact */
    uint32_t live = (uint32_t)(x < QR_EXP2_MIN) - 1u;                      /* all ones or none */
    return qr_bits_f32(qr_f32_bits(p * power) & live);
}

/* What maxps(value, so_far) gives: a NaN value is passed over, and of equal zeros the earlier one stays. */
static inline float qr_canonical_max(float value, float so_far) { return value > so_far ? value : so_far; }

/* Sum of 16 lanes: the upper half onto the lower, 8, 4, 2, 1. */
static inline float qr_canonical_tree16(const float lanes[QR_CANONICAL_LANES]) {
    float t[QR_CANONICAL_LANES];
    memcpy(t, lanes, sizeof t);
    for (int width = QR_CANONICAL_LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) t[i] = t[i] + t[i + width];
    return t[0];
}

/* The same tree for the maximum; of two lanes, the upper one is the earlier. */
static inline float qr_canonical_max16(const float lanes[QR_CANONICAL_LANES]) {
    float t[QR_CANONICAL_LANES];
    memcpy(t, lanes, sizeof t);
    for (int width = QR_CANONICAL_LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) t[i] = qr_canonical_max(t[i], t[i + width]);
    return t[0];
}
#endif
