/* softmax.h - weights of logits, e^((logit - max) / temperature), and their sums over blocks of 64, on every instruction set.
 *
 * A weight is the canonical exp2 of attention/canonical.h: exactly 1 at the maximum, exactly 0 far below it, for -inf and for
 * NaN. A block's sum adds 16 lanes (element i in lane i mod 16) by the canonical tree. All paths give the same bits; they are
 * one source compiled once per instruction set.
 *
 * Pure; any thread. */
#ifndef QR_ENGINE_SOFTMAX_H
#define QR_ENGINE_SOFTMAX_H

#include <stdint.h>

#include "attention/canonical.h"

enum { QR_SOFTMAX_BLOCK = 64 };

#define QR_LOG2_E 0x1.715476p+0f

/* max: of all logits, finite. scale: log2(e) / temperature. */
typedef struct qr_softmax_scale {
    float max, scale;
} qr_softmax_scale;

typedef struct qr_softmax_path {
    const char *name;
    /* sums [ceil(count / 64)] */
    void (*block_sums)(const float *logits, uint32_t count, qr_softmax_scale scale, float *sums);
    float (*max)(const float *logits, uint32_t count); /* NaN never counts; -inf when there is nothing else */
} qr_softmax_path;

struct qr_cpu_features;
/* The fastest of this machine. */
const qr_softmax_path *qr_softmax_best(const struct qr_cpu_features *features);
/* "scalar", "avx2", "avx512"; NULL when unknown or not usable here. */
const qr_softmax_path *qr_softmax_find(const char *name, const struct qr_cpu_features *features);

/* One weight, with the bits that the paths give. NaN is masked away; no branch, so that a loop around it vectorises. */
static inline float qr_softmax_weight(float logit, qr_softmax_scale scale) {
    float z = (logit - scale.max) * scale.scale;
    uint32_t live = 0u - (uint32_t)(z == z);
    return qr_bits_f32(qr_f32_bits(qr_canonical_exp2(z)) & live);
}

static inline uint32_t qr_softmax_blocks(uint32_t count) { return (count + QR_SOFTMAX_BLOCK - 1) / QR_SOFTMAX_BLOCK; }
#endif
