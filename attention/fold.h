/* fold.h - adding the next span to a row's result, and the final division. One source, compiled for each instruction set;
 * the compiler vectorises the loops over value_dim and may not reorder them (the flags are in cmake/QuireRoom.cmake).
 */
#ifndef QR_ATTENTION_FOLD_H
#define QR_ATTENTION_FOLD_H

#include "attention/span.h"

static void fold_part(qr_attn_part *restrict into, const qr_attn_part *restrict next, uint32_t value_dim) {
    float max = qr_canonical_max(next->max, into->max);
    float a = qr_canonical_exp2(into->max - max), b = qr_canonical_exp2(next->max - max);
    into->max = max;
    into->sum = fmaf(next->sum, b, into->sum * a);
    for (uint32_t d = 0; d < value_dim; d++) into->out[d] = fmaf(next->out[d], b, into->out[d] * a);
}

static void finish_part(float *restrict out, const qr_attn_part *restrict part, uint32_t value_dim) {
    float inverse = 1.0f / part->sum;
    for (uint32_t d = 0; d < value_dim; d++) out[d] = part->out[d] * inverse;
}
#endif
