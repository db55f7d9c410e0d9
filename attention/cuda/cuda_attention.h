/* cuda_attention.h - the C interface of the CUDA attention kernels: span kernel, fold, KV store.
 *
 * The host makes work lists once per step (device_plan.h), uploads them, and calls these launchers once per layer. Everything
 * a params struct points at is device memory. Launchers only enqueue: they allocate nothing and wait for nothing. Each
 * returns 0 or a cudaError_t.
 *
 *   store  K, V, Q of the step's rows: RoPE, quantise, write K and V to their blocks, Q for the span kernel
 *   span   items x KV heads: each row's partial result over a span, or over several from its first one on, folded
 *   fold   rows with more than one partial: left fold in span order, final division
 *
 * Law 1: a row's bits depend on its own query and its own K and V only. Narrow and wide items run the same instructions
 * per row in the same order; a row's range is cut into the same spans in every step; a span that a row does not see leaves
 * its bits alone.
 *
 * Memory of a block, per layer and KV head: K [block_tokens][head_dim], V [block_tokens][head_dim], row-major; 8-bit types
 * have scales fp32 [block_tokens] for K and for V beside them. Parts are at 16-byte boundaries.
 */
#ifndef QR_ATTENTION_CUDA_H
#define QR_ATTENTION_CUDA_H

#include <stddef.h>

#include "attention/cuda/shapes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Offsets inside a block of one (layer, KV head), in bytes; scales are unused by 16-bit types. */
typedef struct qr_cuda_part {
    uint32_t key, value, key_scale, value_scale;
} qr_cuda_part;

/* Rows that read the same blocks. Positions are absolute. */
typedef struct qr_cuda_item {
    uint32_t table;        /* place of the sequence's block 0 in block_ids */
    int32_t first, limit;  /* some row sees first .. limit-1; one span, or several */
    uint32_t row;          /* its first entry in rows */
    uint32_t packed_begin; /* packed row i is query head i % group of row entry i / group */
    uint32_t packed_count; /* 1 .. QR_CUDA_ROW_TILE, or QR_CUDA_WIDE_ROWS in a wide item */
} qr_cuda_item;

/* A row of the step inside an item. */
typedef struct qr_cuda_item_row {
    uint32_t row;
    int32_t first, limit; /* what it sees; may reach past the item's range on both sides */
    uint32_t cell;        /* where its partial goes; an item of several spans keeps the running fold there */
    uint32_t direct;      /* 1: it is the row's only partial, and the result goes to out instead */
} qr_cuda_item_row;

/* A row whose partials are cells cell .. cell+count-1, in span order. */
typedef struct qr_cuda_fold_row {
    uint32_t row, cell, count;
} qr_cuda_fold_row;

typedef struct qr_cuda_shape {
    uint32_t head_count, kv_head_count; /* query heads are a multiple of KV heads */
    uint32_t head_dim;
    uint32_t block_tokens;
    quire_kv_type kv_type;
} qr_cuda_shape;

/* QUIRE_OK, or QUIRE_UNSUPPORTED with the reason. */
QUIRE_MUST_CHECK quire_status qr_cuda_shape_check(const qr_cuda_shape *shape, quire_error *error);

/* What the kernels of one layer read and write. q and out are [rows][head_count][head_dim], bf16 when the KV type is, else
 * f16; q is already multiplied by log2(e)/sqrt(head_dim). A cell is the partials of all query heads of one row:
 * out [cell][head_count][head_dim] and (max, sum) [cell][head_count][2], fp32. */
typedef struct qr_cuda_attn_params {
    const uint8_t *pool;
    uint64_t block_stride;
    const qr_cuda_part *parts; /* [kv_head_count], of this layer */
    const uint32_t *block_ids;
    const qr_cuda_item *items;
    const qr_cuda_item_row *rows;
    const qr_cuda_fold_row *fold_rows;
    const void *q;
    void *out;
    float *cell_out, *cell_state;
    uint32_t item_count, fold_count;
    uint32_t head_count, kv_head_count, group, block_shift;
} qr_cuda_attn_params;

/* How many CTAs and warps to run; from qr_cuda_launch_query, once. */
typedef struct qr_cuda_launch {
    uint32_t narrow_ctas, narrow_warps; /* warps of one CTA; each walks the list of its own */
    uint32_t wide_ctas;
} qr_cuda_launch;

int qr_cuda_launch_query(const qr_cuda_shape *shape, qr_cuda_launch *launch);

/* One list of narrow or of wide items. */
int qr_cuda_span_run(const qr_cuda_shape *shape, const qr_cuda_launch *launch, const qr_cuda_attn_params *params, bool wide,
                     void *stream);
int qr_cuda_fold_run(const qr_cuda_shape *shape, const qr_cuda_attn_params *params, void *stream);

/* Rows of one layer to store. Inputs are fp32: q [rows][head_count][head_dim], k and v [rows][kv_head_count][head_dim].
 * rope [rows][rope_dims/2][2] (cos, sin), adjacent pairs, as on the CPU. */
typedef struct qr_cuda_store_params {
    uint8_t *pool;
    uint64_t block_stride;
    const qr_cuda_part *parts;
    const uint32_t *row_block; /* [rows] block that holds the row's position */
    const uint32_t *row_slot;  /* [rows] position % block_tokens */
    const float *q, *k, *v, *rope;
    void *q_out;         /* q rotated, times query_scale, f16 or bf16 */
    uint32_t *saturated; /* f16 values of K and V past +-65504, added to */
    float query_scale;
    uint32_t row_count, rope_dims;
    uint32_t head_count, kv_head_count, head_dim;
} qr_cuda_store_params;

int qr_cuda_store_run(quire_kv_type kv_type, const qr_cuda_store_params *params, void *stream);

#ifdef __cplusplus
}
#endif
#endif
