/* attention.h - paged attention by spans: plan once per step, run once per layer.
 *
 * Positions are cut into fixed spans of `span_tokens`. A work item is (the physical blocks of one span, all rows of this
 * step that attend to it); a row's result is the left fold of its spans in order, so it does not depend on who shares the
 * step (docs/ARCHITECTURE.md, law 1; the order of every rounding is in docs/NUMERICS.md).
 *
 * This room knows no block manager: it reads a plain view of KV memory and block ids. Rows of different sequences whose
 * tables name the same blocks meet in one work item, so a shared prefix is read once per step.
 *
 * KV layout in a block, per (layer, KV head): K transposed [key_dim][block_tokens], V [block_tokens][value_dim], both in
 * the KV type, at the offsets that the caller's table gives.
 */
#ifndef QR_ATTENTION_H
#define QR_ATTENTION_H

#include "base/compute_pool.h"
#include <quire/types.h>

enum {
    QR_ATTN_SPAN_TOKENS = 256, /* of the CPU backend; a multiple of every block_tokens */
    QR_ATTN_HEAD_DIM_MAX = 256,
};

typedef struct qr_attn_shape {
    uint32_t head_count; /* query heads, a multiple of kv_head_count */
    uint32_t kv_head_count;
    uint32_t key_dim;       /* multiple of 16, at most QR_ATTN_HEAD_DIM_MAX */
    uint32_t value_dim;     /* as key_dim */
    uint32_t block_tokens;  /* 16, 32, 64 or 128 */
    quire_kv_type key_type; /* F32, F16 or BF16 */
    quire_kv_type value_type;
} qr_attn_shape;

/* Where K and V lie. Part (layer, KV head) of block b is at base + b * block_stride + offset[layer * kv_heads + head]. */
typedef struct qr_attn_memory {
    uint8_t *base;
    size_t block_stride;
    const size_t *key_offset;   /* [layer_count * kv_head_count], borrowed */
    const size_t *value_offset; /* the same */
} qr_attn_memory;

/* The rows of one step. Rows of one sequence stand together with rising positions. */
typedef struct qr_attn_batch {
    uint32_t row_count;
    uint32_t sequence_count;
    const uint32_t *row_sequence; /* [row_count] */
    const uint32_t *row_position; /* [row_count]; the row sees positions first .. position, its own included */
    const uint32_t *row_first;    /* [row_count] lowest position it may see, or NULL: all from 0 */
    const uint32_t *table_begin;  /* [sequence_count + 1] into block_ids */
    const quire_block_id *block_ids;
} qr_attn_batch;

/* One instruction set's kernels. All give the same bits. The table is private to attention/cpu; the paths differ only
 * in speed. */
typedef struct qr_attn_path qr_attn_path;
/* name: "scalar", "avx2", "avx512"; NULL when unknown, or not usable on this machine (features). */
struct qr_cpu_features;
const qr_attn_path *qr_attn_path_find(const char *name, const struct qr_cpu_features *features);
const char *qr_attn_path_name(const qr_attn_path *path);

/* True when the CPU kernels handle the shape; else the reason goes to *error. */
QUIRE_MUST_CHECK quire_status qr_attn_shape_check(const qr_attn_shape *shape, quire_error *error);

typedef struct qr_attn_limits {
    uint32_t rows_max;
    uint32_t sequences_max;
    uint32_t tokens_max; /* of one sequence */
    int thread_count;
} qr_attn_limits;

/* All memory that planning and running need, taken at create. */
typedef struct qr_attn_plan qr_attn_plan;
uint64_t qr_attn_plan_bytes(const qr_attn_shape *shape, const qr_attn_limits *limits);
QUIRE_MUST_CHECK quire_status qr_attn_plan_create(const qr_attn_shape *shape, const qr_attn_limits *limits, qr_attn_plan **plan,
                                                  quire_error *error);
void qr_attn_plan_destroy(qr_attn_plan *plan);

/* Once per step, for all layers. Keeps the batch's arrays until the next make. */
void qr_attn_plan_make(qr_attn_plan *plan, const qr_attn_batch *batch);

/* Attention of one layer. q [rows][head_count][key_dim] fp32, already multiplied by log2(e)/sqrt(key_dim);
 * out [rows][head_count][value_dim] fp32. */
void qr_attn_plan_run(qr_attn_plan *plan, const qr_attn_path *path, qr_compute_pool *pool, const qr_attn_memory *memory,
                      uint32_t layer, const float *q, float *out);

/* Stores one token's K [kv_head_count][key_dim] and V [kv_head_count][value_dim] into slot `position % block_tokens` of its
 * block. f16 saturates at +-65504; *saturated counts the values that did (NaN stays NaN). */
void qr_attn_store(const qr_attn_path *path, const qr_attn_shape *shape, const qr_attn_memory *memory, uint32_t layer,
                   quire_block_id block, uint32_t slot, const float *key, const float *value, uint64_t *saturated);

/* What the plan must cost per layer: KV bytes read at least once, fused multiply-adds. */
typedef struct qr_attn_cost {
    uint64_t kv_bytes;
    uint64_t fma_count;
    uint32_t item_count;
} qr_attn_cost;
void qr_attn_plan_cost(const qr_attn_plan *plan, qr_attn_cost *cost);

/* ---- reference (attention/reference.c): double precision, obvious, slow. The oracle of the tests. ----
 * out [head_count][value_dim] for one row; q as above. */
void qr_attn_reference(const qr_attn_shape *shape, const qr_attn_memory *memory, uint32_t layer,
                       const quire_block_id *block_ids, uint32_t first, uint32_t position, const float *q, double *out);
#endif
