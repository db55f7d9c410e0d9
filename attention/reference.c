/* reference.c - attention in double precision straight from its formula: no spans, no order, no speed. The oracle of the
 * tests; it shares nothing with the kernels but the layout of KV memory. Two passes over the keys, so that it needs no
 * memory for the weights. */
#include <math.h>
#include <string.h>

#include "attention/attention.h"
#include "base/float16.h"

typedef struct sight {
    const qr_attn_shape *shape;
    const qr_attn_memory *memory;
    const quire_block_id *block_ids;
    size_t part;
} sight;

static double element(quire_kv_type type, const uint8_t *at, size_t index) {
    float single;
    uint16_t half;
    if (type == QUIRE_KV_F32) {
        memcpy(&single, at + 4 * index, 4);
        return (double)single;
    }
    memcpy(&half, at + 2 * index, 2);
    return (double)(type == QUIRE_KV_F16 ? qr_f16_to_f32(half) : qr_bf16_to_f32(half));
}

static const uint8_t *block_at(const sight *s, uint32_t position) {
    return s->memory->base + s->block_ids[position / s->shape->block_tokens] * s->memory->block_stride;
}

static double score(const sight *s, uint32_t position, const float *q) {
    uint32_t tokens = s->shape->block_tokens, slot = position % tokens;
    const uint8_t *key = block_at(s, position) + s->memory->key_offset[s->part];
    double sum = 0;
    for (uint32_t d = 0; d < s->shape->key_dim; d++) sum += (double)q[d] * element(s->shape->key_type, key, d * tokens + slot);
    return sum;
}

static void add_value(const sight *s, uint32_t position, double weight, double *out) {
    uint32_t dim = s->shape->value_dim, slot = position % s->shape->block_tokens;
    const uint8_t *value = block_at(s, position) + s->memory->value_offset[s->part];
    for (uint32_t d = 0; d < dim; d++) out[d] += weight * element(s->shape->value_type, value, slot * dim + d);
}

static void reference_head(const sight *s, uint32_t first, uint32_t position, const float *q, double *out) {
    double top = -INFINITY, sum = 0;
    for (uint32_t t = first; t <= position; t++) top = fmax(top, score(s, t, q));
    for (uint32_t d = 0; d < s->shape->value_dim; d++) out[d] = 0;
    for (uint32_t t = first; t <= position; t++) {
        double weight = exp2(score(s, t, q) - top);
        sum += weight;
        add_value(s, t, weight, out);
    }
    for (uint32_t d = 0; d < s->shape->value_dim; d++) out[d] /= sum;
}

void qr_attn_reference(const qr_attn_shape *shape, const qr_attn_memory *memory, uint32_t layer,
                       const quire_block_id *block_ids, uint32_t first, uint32_t position, const float *q, double *out) {
    uint32_t group = shape->head_count / shape->kv_head_count;
    for (uint32_t h = 0; h < shape->head_count; h++) {
        sight s = {shape, memory, block_ids, (size_t)layer * shape->kv_head_count + h / group};
        reference_head(&s, first, position, q + (size_t)h * shape->key_dim, out + (size_t)h * shape->value_dim);
    }
}
