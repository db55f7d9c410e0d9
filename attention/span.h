/* span.h - what one instruction set offers to attention: one span for up to 24 query rows, and the fold of spans.
 *
 * Private to attention/. The order of every rounding, for a query row that sees the tokens first .. limit-1 of the span
 * (docs/NUMERICS.md, Attention):
 *
 *   s[t] = +0; s[t] = fma(q[d], k[t][d], s[t])                       d = 0 .. key_dim-1
 *   lane j of 16:  max over t = j, j+16, ... in order; m = the tree of the 16 lanes
 *   p[t] = exp2(s[t] - m)
 *   lane j of 16:  sum of p[t] over t = j, j+16, ... in order; l = the tree of the 16 lanes
 *   o[d] = +0; o[d] = fma(p[t], v[t][d], o[d])                       t = first .. limit-1
 *   fold: M = max(m2, m), a = exp2(m - M), b = exp2(m2 - M), l = fma(l2, b, l * a), o[d] = fma(o2[d], b, o[d] * a)
 *   result: o[d] * (1 / l)
 *
 * Vector lanes are keys (scores) or elements of the value (output), never the axis that is added over, so a row's bits do
 * not know how many rows share the call. A token outside first .. limit-1 is never added in, not even with weight 0: what
 * lies in its slot may be NaN.
 */
#ifndef QR_ATTENTION_SPAN_H
#define QR_ATTENTION_SPAN_H

#include "attention/attention.h"
#include "attention/canonical.h"

enum {
    QR_SPAN_GROUP = QR_CANONICAL_LANES, /* tokens of one vector */
    QR_SPAN_GROUPS = QR_ATTN_SPAN_TOKENS / QR_SPAN_GROUP,
    QR_SPAN_ROWS = 24, /* query rows of one call: two register tiles of 12 */
    /* Floats from row to row of q and of the weights. Constant, so that 12 rows need no 12 pointers; no multiple of
     * 1 KiB, so that they do not fall into the same cache sets. */
    QR_SPAN_STRIDE = QR_ATTN_SPAN_TOKENS + QR_SPAN_GROUP,
};

/* The result of a row over one or more spans. */
typedef struct qr_attn_part {
    float max, sum;
    float unused[14]; /* out is 64-byte aligned */
    float out[];      /* [value_dim] */
} qr_attn_part;

static inline size_t qr_attn_part_bytes(uint32_t value_dim) { return sizeof(qr_attn_part) + value_dim * sizeof(float); }

typedef struct qr_span {
    /* The span's K and V by groups of 16 tokens: element d of the keys is at key + d * key_stride, token t of the values
     * at value + t * value_stride. Only groups with a token that some row sees are set; others are NULL. */
    const uint8_t *key[QR_SPAN_GROUPS], *value[QR_SPAN_GROUPS];
    size_t key_stride, value_stride;
    /* K that this thread most likely reads next, by groups; NULL where nothing is known. It is fetched while the values of
     * this span are added, and the values while the scores are made, a few lines at a time: so memory and arithmetic work
     * at once. Lines of a group are next_step apart and next_lines for each of 16 tokens. */
    const uint8_t *next_key[QR_SPAN_GROUPS];
    size_t next_step;
    uint32_t next_lines;
    uint32_t key_dim, value_dim;
    quire_kv_type key_type, value_type;
    uint32_t row_count;                                /* 1 .. QR_SPAN_ROWS */
    uint32_t first[QR_SPAN_ROWS], limit[QR_SPAN_ROWS]; /* 0 <= first < limit <= QR_ATTN_SPAN_TOKENS */
    float *q;                                          /* [row_count][QR_SPAN_STRIDE], 64-byte aligned */
    float *weights;                                    /* scratch, the same shape */
    qr_attn_part *part[QR_SPAN_ROWS];                  /* results */
} qr_span;

struct qr_attn_path {
    const char *name;
    void (*span)(const qr_span *span);
    void (*fold)(qr_attn_part *into, const qr_attn_part *next, uint32_t value_dim);
    void (*finish)(float *out, const qr_attn_part *part, uint32_t value_dim);
    /* x[0, count) to the KV type, count a multiple of 16; says how many f16 values saturated. */
    uint64_t (*narrow)(void *out, const float *x, uint32_t count, quire_kv_type type);
};

extern const qr_attn_path qr_attn_path_scalar, qr_attn_path_avx2, qr_attn_path_avx512;

/* Tokens that some of the rows see (first .. limit-1), and those that all of them see (common, may be empty). */
typedef struct qr_row_range {
    uint32_t first, limit, common_first, common_limit;
} qr_row_range;

static inline qr_row_range qr_span_row_range(const qr_span *span, uint32_t row, uint32_t count) {
    uint32_t first = span->first[row], limit = span->limit[row];
    qr_row_range range = {first, limit, first, limit};
    for (uint32_t r = row + 1; r < row + count; r++) {
        first = span->first[r], limit = span->limit[r];
        if (first < range.first) range.first = first;
        if (limit > range.limit) range.limit = limit;
        if (first > range.common_first) range.common_first = first;
        if (limit < range.common_limit) range.common_limit = limit;
    }
    return range;
}

/* End of the group of 16 that token t lies in, but not past limit. */
static inline uint32_t qr_span_group_end(uint32_t t, uint32_t limit) {
    uint32_t end = (t / QR_SPAN_GROUP + 1) * QR_SPAN_GROUP;
    return end < limit ? end : limit;
}
#endif
