/* softmax_kernel.h - the body of every softmax path. Include it once per instruction set, with SOFTMAX_PATH naming the table
 * that it defines. The compiler may vectorise these loops; with contraction off and the order of all sums written out, that
 * changes no bit. */
#include <math.h>

#include "runtime/engine/softmax.h"
#include "runtime/engine/softmax_paths_internal.h"

/* Weights first, sums after: two plain loops, which compilers vectorise where they unroll a nest. */
static float block_sum(const float *logits, qr_softmax_scale scale) {
    float weights[QR_SOFTMAX_BLOCK], lanes[QR_CANONICAL_LANES] = {0};
    for (uint32_t i = 0; i < QR_SOFTMAX_BLOCK; i++) weights[i] = qr_softmax_weight(logits[i], scale);
    for (uint32_t i = 0; i < QR_SOFTMAX_BLOCK; i++) lanes[i % QR_CANONICAL_LANES] += weights[i];
    return qr_canonical_tree16(lanes);
}

/* The last block, where it is shorter. */
static float rest_sum(const float *logits, uint32_t count, qr_softmax_scale scale) {
    float lanes[QR_CANONICAL_LANES] = {0};
    for (uint32_t i = 0; i < count; i++) lanes[i % QR_CANONICAL_LANES] += qr_softmax_weight(logits[i], scale);
    return qr_canonical_tree16(lanes);
}

static void block_sums(const float *logits, uint32_t count, qr_softmax_scale scale, float *sums) {
    uint32_t begin = 0;
    for (; begin + QR_SOFTMAX_BLOCK <= count; begin += QR_SOFTMAX_BLOCK) *sums++ = block_sum(logits + begin, scale);
    if (begin < count) *sums = rest_sum(logits + begin, count - begin, scale);
}

static float max_logit(const float *logits, uint32_t count) {
    float lanes[4 * QR_CANONICAL_LANES], max = -INFINITY;
    for (uint32_t j = 0; j < 4 * QR_CANONICAL_LANES; j++) lanes[j] = -INFINITY;
    uint32_t i = 0;
    for (; i + 4 * QR_CANONICAL_LANES <= count; i += 4 * QR_CANONICAL_LANES) {
        for (uint32_t j = 0; j < 4 * QR_CANONICAL_LANES; j++) lanes[j] = qr_canonical_max(logits[i + j], lanes[j]);
    }
    for (; i < count; i++) max = qr_canonical_max(logits[i], max);
    for (uint32_t j = 0; j < 4 * QR_CANONICAL_LANES; j++) max = qr_canonical_max(lanes[j], max);
    return max;
}
