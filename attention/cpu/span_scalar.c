/* span_scalar.c - the definition of attention over one span, written for reading. Every other path gives these bits. */
#include "attention/fold.h"
#include "base/assertion.h"

static float widen(quire_kv_type type, const uint8_t *at) {
    uint16_t half;
    float single;
    switch (type) {
    case QUIRE_KV_F32: memcpy(&single, at, sizeof single); return single;
    case QUIRE_KV_F16: memcpy(&half, at, sizeof half); return qr_f16_to_f32(half);
    default: memcpy(&half, at, sizeof half); return qr_bf16_to_f32(half);
    }
}

static float key_at(const qr_span *s, uint32_t t, uint32_t d) {
    const uint8_t *group = s->key[t / QR_SPAN_GROUP];
    return widen(s->key_type, group + d * s->key_stride + t % QR_SPAN_GROUP * quire_kv_type_bytes(s->key_type));
}

static float value_at(const qr_span *s, uint32_t t, uint32_t d) {
    const uint8_t *group = s->value[t / QR_SPAN_GROUP];
    return widen(s->value_type, group + t % QR_SPAN_GROUP * s->value_stride + d * quire_kv_type_bytes(s->value_type));
}

static float scores(const qr_span *s, uint32_t r, float *p) {
    float lane[QR_CANONICAL_LANES];
    for (int j = 0; j < QR_CANONICAL_LANES; j++) lane[j] = -INFINITY;
    for (uint32_t t = s->first[r]; t < s->limit[r]; t++) {
        p[t] = 0.0f;
        for (uint32_t d = 0; d < s->key_dim; d++) p[t] = fmaf(s->q[r * QR_SPAN_STRIDE + d], key_at(s, t, d), p[t]);
        lane[t % QR_CANONICAL_LANES] = qr_canonical_max(p[t], lane[t % QR_CANONICAL_LANES]);
    }
    return qr_canonical_max16(lane);
}

static float weights(const qr_span *s, uint32_t r, float max, float *p) {
    float lane[QR_CANONICAL_LANES] = {0};
    for (uint32_t t = s->first[r]; t < s->limit[r]; t++) {
        p[t] = qr_canonical_exp2(p[t] - max);
        lane[t % QR_CANONICAL_LANES] += p[t];
    }
    return qr_canonical_tree16(lane);
}

static void span_scalar(const qr_span *s) {
    for (uint32_t r = 0; r < s->row_count; r++) {
        qr_attn_part *part = s->part[r];
        float *p = s->weights + r * QR_SPAN_STRIDE;
        part->max = scores(s, r, p);
        part->sum = weights(s, r, part->max, p);
        for (uint32_t d = 0; d < s->value_dim; d++) {
            float o = 0.0f;
            for (uint32_t t = s->first[r]; t < s->limit[r]; t++) o = fmaf(p[t], value_at(s, t, d), o);
            part->out[d] = o;
        }
    }
}

/* Largest finite f16; what lies beyond saturates there. NaN compares false and passes. */
#define F16_MAX 65504.0f

static uint64_t narrow_f16(uint16_t *out, const float *x, uint32_t count) {
    uint64_t saturated = 0;
    for (uint32_t i = 0; i < count; i++) {
        saturated += fabsf(x[i]) > F16_MAX;
        out[i] = qr_f32_to_f16(x[i] > F16_MAX ? F16_MAX : x[i] < -F16_MAX ? -F16_MAX : x[i]);
    }
    return saturated;
}

static uint64_t narrow_scalar(void *out, const float *x, uint32_t count, quire_kv_type type) {
    uint16_t *half = out;
    switch (type) {
    case QUIRE_KV_F32: memcpy(out, x, count * sizeof *x); return 0;
    case QUIRE_KV_F16: return narrow_f16(out, x, count);
    default:
        for (uint32_t i = 0; i < count; i++) half[i] = qr_f32_to_bf16(x[i]);
        return 0;
    }
}

const qr_attn_path qr_attn_path_scalar = {"scalar", span_scalar, fold_part, finish_part, narrow_scalar};
