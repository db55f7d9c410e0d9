/*
 * The arithmetic that a row's partial results share wherever they meet: fold of two spans and final division.
 *
 * A partial is (max, sum, out[head_dim]): out = sum over tokens of 2^(score - max) * value, sum alike without the value. A
 * row that saw no token has (-inf, 0, 0), the neutral element: folding it in, on either side, changes no bit. Files that
 * include this are compiled without contraction; a fused multiply-add is written.
 */
#pragma once
#include "attention/cuda/gpu_prims.h"

#define QR_NEGATIVE_INFINITY (-__builtin_inff())

// Factors of the earlier and of the later partial, and their common maximum.
struct span_weights {
    float max, earlier, later;
};

GPU_PRIM span_weights span_fold_weights(float earlier_max, float later_max) {
    float max = fmaxf(earlier_max, later_max);
    float from = max == QR_NEGATIVE_INFINITY ? 0.0f : max; // -inf - -inf would be NaN
    return {max, exp2_fast(earlier_max - from), exp2_fast(later_max - from)};
}

GPU_PRIM float span_fold_value(const span_weights &w, float earlier, float later) {
    return fmaf(later, w.later, earlier * w.earlier);
}

GPU_PRIM float span_inverse(float sum) { return sum > 0.0f ? rcp_fast(sum) : 0.0f; }
