/* plan.c - what a plan needs and takes: shapes, sizes, one region.
 *
 * Memory is bounded by the limits alone: units and items by rows_max, partials by cells_max, which is the smaller of
 * every row times every span and CELLS below. 512 decode rows over long contexts therefore take no more than a few partials
 * each; what does not fit is folded as it is walked.
 */
#include <stdlib.h>

#include "attention/plan_internal.h"
#include "base/assertion.h"
#include "base/checked.h"
#include "base/error.h"

enum {
    CELLS_MIN = 1024,
    CELLS_PER_ROW = 4,
    CELLS_PER_SPAN = 2, /* two rows of the longest context can always be spread over all threads */
    ALIGNMENT = 64,
};

static bool type_supported(quire_kv_type type) { return type == QUIRE_KV_F32 || type == QUIRE_KV_F16 || type == QUIRE_KV_BF16; }

static bool dim_supported(uint32_t dim) {
    return dim >= QR_SPAN_GROUP && dim <= QR_ATTN_HEAD_DIM_MAX && dim % QR_SPAN_GROUP == 0;
}

quire_status qr_attn_shape_check(const qr_attn_shape *shape, quire_error *error) {
    uint32_t heads = shape->head_count, kv_heads = shape->kv_head_count, block = shape->block_tokens;
    if (kv_heads == 0 || heads == 0 || heads % kv_heads != 0)
        return qr_fail(error, QUIRE_UNSUPPORTED, "head_count", QR_NO_OFFSET, "%u query heads are not a multiple of %u KV heads",
                       heads, kv_heads);
    if (!dim_supported(shape->key_dim) || !dim_supported(shape->value_dim))
        return qr_fail(error, QUIRE_UNSUPPORTED, "key_dim", QR_NO_OFFSET,
                       "key and value dimensions are %u and %u; multiples of 16 up to %d are supported", shape->key_dim,
                       shape->value_dim, QR_ATTN_HEAD_DIM_MAX);
    if (block != 16 && block != 32 && block != 64 && block != 128)
        return qr_fail(error, QUIRE_UNSUPPORTED, "block_tokens", QR_NO_OFFSET,
                       "blocks of %u tokens; 16, 32, 64 and 128 are supported", block);
    if (!type_supported(shape->key_type) || !type_supported(shape->value_type))
        return qr_fail(error, QUIRE_UNSUPPORTED, "kv_type", QR_NO_OFFSET, "KV types %s and %s; f32, f16 and bf16 are supported",
                       quire_kv_type_name(shape->key_type), quire_kv_type_name(shape->value_type));
    return QUIRE_OK;
}

/* ---- memory ---- */

static uint32_t cells_bound(const qr_attn_limits *limits) {
    uint64_t rows = limits->rows_max, spans = qr_div_up(limits->tokens_max, QR_ATTN_SPAN_TOKENS);
    uint64_t bound = CELLS_MIN;
    if (CELLS_PER_ROW * rows > bound) bound = CELLS_PER_ROW * rows;
    if (CELLS_PER_SPAN * spans > bound) bound = CELLS_PER_SPAN * spans;
    return (uint32_t)(rows * spans < bound ? rows * spans : bound);
}

static void plan_set_shape(qr_attn_plan *plan, const qr_attn_shape *shape, const qr_attn_limits *limits) {
    plan->shape = *shape;
    plan->limits = *limits;
    plan->group = shape->head_count / shape->kv_head_count;
    plan->head_slices = (uint32_t)qr_div_up(plan->group, QR_SPAN_ROWS);
    plan->slice_heads = (uint32_t)qr_div_up(plan->group, plan->head_slices);
    plan->slice_count = plan->head_slices * shape->kv_head_count;
    plan->rows_of_unit = QR_SPAN_ROWS / plan->slice_heads;
    plan->span_blocks = QR_ATTN_SPAN_TOKENS / shape->block_tokens;
    plan->cells_max = cells_bound(limits);
    plan->part_bytes = qr_attn_part_bytes(shape->value_dim);
    plan->cell_bytes = plan->part_bytes * shape->head_count;
    plan->scratch_bytes = qr_attn_scratch_bytes(shape->value_dim);
}

/* Takes count * size bytes off the region; with base NULL only counts. */
static bool carve(uint8_t *base, size_t *used, void *pointer, size_t count, size_t size) {
    size_t bytes, end;
    if (!qr_mul_size(count, size, &bytes) || !qr_add_size(*used, bytes, &end) || end > SIZE_MAX - ALIGNMENT) return false;
    if (base) memcpy(pointer, &(void *){base + *used}, sizeof(void *));
    *used = qr_align_up(end, ALIGNMENT);
    return true;
}

/* One list of everything that a plan owns: counts for base NULL, else sets the pointers. */
static bool plan_carve(qr_attn_plan *plan, uint8_t *base, size_t *used) {
    size_t rows = plan->limits.rows_max, cells = plan->cells_max;
    attn_order *order = &plan->order;
    *used = 0;
    return carve(base, used, &plan->unit, rows, sizeof *plan->unit) &&
           carve(base, used, &plan->fold, rows, sizeof *plan->fold) &&
           carve(base, used, &plan->store, cells, sizeof *plan->store) &&
           carve(base, used, &order->moved, rows, sizeof *order->moved) &&
           carve(base, used, &order->member, rows, sizeof *order->member) &&
           carve(base, used, &order->leader, rows, sizeof *order->leader) &&
           carve(base, used, &order->size, rows, sizeof *order->size) &&
           carve(base, used, &order->depth, rows, sizeof *order->depth) &&
           carve(base, used, &order->slot, qr_attn_order_slots(plan->limits.rows_max), sizeof *order->slot) &&
           carve(base, used, &plan->scratch, (size_t)plan->limits.thread_count, plan->scratch_bytes) &&
           carve(base, used, &plan->cell, cells, plan->cell_bytes);
}

static bool limits_valid(const qr_attn_limits *limits) {
    return limits->rows_max >= 1 && limits->rows_max < 1u << 24 && limits->sequences_max >= 1 && limits->tokens_max >= 1 &&
           limits->thread_count >= 1 && limits->thread_count <= QR_COMPUTE_THREADS_MAX;
}

uint64_t qr_attn_plan_bytes(const qr_attn_shape *shape, const qr_attn_limits *limits) {
    qr_attn_plan plan = {0};
    size_t used;
    if (qr_attn_shape_check(shape, NULL) != QUIRE_OK || !limits_valid(limits)) return 0;
    plan_set_shape(&plan, shape, limits);
    return plan_carve(&plan, NULL, &used) ? sizeof plan + used : 0;
}

quire_status qr_attn_plan_create(const qr_attn_shape *shape, const qr_attn_limits *limits, qr_attn_plan **plan,
                                 quire_error *error) {
    size_t used;
    *plan = NULL;
    quire_status status = qr_attn_shape_check(shape, error);
    if (status != QUIRE_OK) return status;
    if (!limits_valid(limits))
        return qr_fail(error, QUIRE_INVALID, "limits", QR_NO_OFFSET, "rows %u, sequences %u, tokens %u, threads %d",
                       limits->rows_max, limits->sequences_max, limits->tokens_max, limits->thread_count);
    qr_attn_plan *p = qr_alloc_zero(1, sizeof *p);
    if (!p) return qr_fail(error, QUIRE_NO_MEMORY, "attention plan", QR_NO_OFFSET, "%zu bytes", sizeof *p);
    plan_set_shape(p, shape, limits);
    if (!plan_carve(p, NULL, &used))
        status = qr_fail(error, QUIRE_TOO_LARGE, "attention plan", QR_NO_OFFSET, "its size overflows");
    if (status == QUIRE_OK) status = qr_region_alloc(used, &p->region, error);
    if (status != QUIRE_OK) {
        free(p);
        return status;
    }
    QR_ASSERT(plan_carve(p, p->region.base, &used));
    *plan = p;
    return QUIRE_OK;
}

void qr_attn_plan_destroy(qr_attn_plan *plan) {
    if (!plan) return;
    qr_region_free(&plan->region);
    free(plan);
}

/* ---- cost ---- */

static uint64_t unit_fma(const qr_attn_plan *plan, const attn_unit *unit) {
    uint64_t keys = 0;
    for (uint32_t r = unit->row; r < unit->row + unit->row_count; r++)
        keys += plan->batch.row_position[r] + 1 - qr_attn_row_first(&plan->batch, r);
    return keys * plan->shape.head_count * (plan->shape.key_dim + plan->shape.value_dim);
}

/* Blocks that this unit reads and the one before it does not: of the same chunk, that one may end within a shared span. */
static uint64_t unit_own_blocks(const qr_attn_plan *plan, const attn_unit *unit) {
    uint64_t blocks = 0;
    for (uint32_t span = unit->span_begin; span < unit->span_end; span++) {
        blocks += qr_attn_unit_blocks(plan, unit, span);
        if (qr_attn_unit_joined(unit, span)) blocks -= qr_attn_unit_blocks(plan, unit - 1, span);
    }
    return blocks;
}

void qr_attn_plan_cost(const qr_attn_plan *plan, qr_attn_cost *cost) {
    const qr_attn_shape *shape = &plan->shape;
    uint64_t key = shape->key_dim * quire_kv_type_bytes(shape->key_type);
    uint64_t value = shape->value_dim * quire_kv_type_bytes(shape->value_type);
    *cost = (qr_attn_cost){.item_count = (plan->store_count + plan->fold_count) * plan->slice_count};
    for (uint32_t i = 0; i < plan->unit_count; i++) {
        cost->fma_count += unit_fma(plan, &plan->unit[i]);
        cost->kv_bytes += unit_own_blocks(plan, &plan->unit[i]) * shape->block_tokens * (key + value) * shape->kv_head_count;
    }
}
