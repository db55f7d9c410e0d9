/* plan_run.c - one layer: store items, then fold items, over the compute pool.
 *
 * Threads take pieces as they come. Which thread takes what, and when, changes no bit: a store item writes its own partials
 * and a fold item its own rows. Nothing is allocated.
 */
#include "attention/plan_internal.h"
#include "base/assertion.h"
#include "base/checked.h"

typedef struct attn_job {
    qr_attn_plan *plan;
    const qr_attn_path *path;
    const qr_attn_memory *memory;
    uint32_t layer;
    int threads, pieces; /* pieces of the store items */
    const float *q;
    float *out;
} attn_job;

/* Query heads that read one KV head, or as many of them as fit in a call. */
typedef struct attn_slice {
    uint32_t kv_head, head, head_count;
} attn_slice;

/* One thread's memory; parts are addressed by query row. */
typedef struct attn_scratch {
    float *q, *weights;
    uint8_t *run, *now; /* [QR_SPAN_ROWS] parts: folded so far, of the span at hand */
} attn_scratch;

enum { CACHE_LINE = 64 };
enum { ROWS_BYTES = QR_SPAN_ROWS * QR_SPAN_STRIDE * (int)sizeof(float) };

size_t qr_attn_scratch_bytes(uint32_t value_dim) { return 2 * ROWS_BYTES + 2 * QR_SPAN_ROWS * qr_attn_part_bytes(value_dim); }

static attn_scratch scratch_of(const qr_attn_plan *plan, int thread) {
    uint8_t *base = plan->scratch + (size_t)thread * plan->scratch_bytes, *parts = base + 2 * ROWS_BYTES;
    return (attn_scratch){(float *)(void *)base, (float *)(void *)(base + ROWS_BYTES), parts,
                          parts + QR_SPAN_ROWS * plan->part_bytes};
}

static qr_attn_part *part_at(const qr_attn_plan *plan, uint8_t *parts, size_t index) {
    return (qr_attn_part *)(void *)(parts + index * plan->part_bytes);
}

static qr_attn_part *cell_part(const qr_attn_plan *plan, const attn_unit *unit, uint32_t span, uint32_t row, uint32_t head) {
    size_t cell = unit->cell + (size_t)(span - unit->span_begin) * unit->row_count + (row - unit->row);
    return part_at(plan, plan->cell, cell * plan->shape.head_count + head);
}

static attn_slice slice_of(const qr_attn_plan *plan, uint32_t index) {
    attn_slice slice = {.kv_head = index / plan->head_slices};
    uint32_t skip = index % plan->head_slices * plan->slice_heads, left = plan->group - skip;
    slice.head = slice.kv_head * plan->group + skip;
    slice.head_count = left < plan->slice_heads ? left : plan->slice_heads;
    return slice;
}

/* ---- one call of a kernel ---- */

/* Tokens of the span that the row sees; false when there are none. */
static bool row_sees(const qr_attn_batch *batch, uint32_t row, uint32_t span, uint32_t *first, uint32_t *limit) {
    uint32_t begin = span * QR_ATTN_SPAN_TOKENS, from = qr_attn_row_first(batch, row), end = batch->row_position[row] + 1;
    if (end <= begin || from >= begin + QR_ATTN_SPAN_TOKENS) return false;
    *first = from > begin ? from - begin : 0;
    *limit = end - begin < QR_ATTN_SPAN_TOKENS ? end - begin : QR_ATTN_SPAN_TOKENS;
    return true;
}

/* Adds a unit's rows that see the span; part [row_count * head_count] says where their results go. */
static void call_add(const attn_job *job, attn_slice slice, const attn_unit *unit, uint32_t span, qr_attn_part *const *part,
                     qr_span *call) {
    const qr_attn_plan *plan = job->plan;
    uint32_t dim = plan->shape.key_dim, first, limit;
    for (uint32_t row = unit->row; row < unit->row + unit->row_count; row++, part += slice.head_count) {
        if (!row_sees(&plan->batch, row, span, &first, &limit)) continue;
        const float *q = job->q + ((size_t)row * plan->shape.head_count + slice.head) * dim;
        for (uint32_t h = 0; h < slice.head_count; h++) {
            uint32_t n = call->row_count++;
            call->first[n] = first;
            call->limit[n] = limit;
            call->part[n] = part[h];
            memcpy(call->q + n * QR_SPAN_STRIDE, q + (size_t)h * dim, dim * sizeof(float));
        }
    }
}

/* Points the call at the blocks of the unit, as far as its rows see them. Ids of other blocks may be stale. */
static void call_set_blocks(const attn_job *job, attn_slice slice, const attn_unit *unit, uint32_t span, qr_span *call) {
    const qr_attn_shape *shape = &job->plan->shape;
    const qr_attn_memory *memory = job->memory;
    size_t part = (size_t)job->layer * shape->kv_head_count + slice.kv_head;
    size_t key_bytes = quire_kv_type_bytes(shape->key_type);
    qr_row_range range = qr_span_row_range(call, 0, call->row_count);
    for (uint32_t t = range.first / QR_SPAN_GROUP * QR_SPAN_GROUP; t < range.limit; t += QR_SPAN_GROUP) {
        quire_block_id id = unit->ids[span * job->plan->span_blocks + t / shape->block_tokens];
        const uint8_t *block = memory->base + id * memory->block_stride;
        uint32_t slot = t % shape->block_tokens;
        call->key[t / QR_SPAN_GROUP] = block + memory->key_offset[part] + slot * key_bytes;
        call->value[t / QR_SPAN_GROUP] = block + memory->value_offset[part] + slot * call->value_stride;
    }
}

/* What a thread will read after a call. */
typedef struct attn_next {
    const attn_unit *unit; /* NULL: nothing */
    attn_slice slice;
    uint32_t span;
} attn_next;

/* Names K of the next span to be fetched meanwhile, where no earlier claim stands. */
static void call_fetch(const attn_job *job, const attn_next *next, qr_span *call) {
    const qr_attn_shape *shape = &job->plan->shape;
    const qr_attn_memory *memory = job->memory;
    if (!next->unit) return;
    size_t offset = memory->key_offset[(size_t)job->layer * shape->kv_head_count + next->slice.kv_head];
    uint32_t group_blocks = shape->block_tokens / QR_SPAN_GROUP;
    uint32_t groups = qr_attn_unit_blocks(job->plan, next->unit, next->span) * group_blocks;
    const quire_block_id *ids = next->unit->ids + next->span * job->plan->span_blocks;
    for (uint32_t g = 0; g < groups; g++) {
        size_t at = ids[g / group_blocks] * memory->block_stride + offset;
        at += g % group_blocks * QR_SPAN_GROUP * quire_kv_type_bytes(shape->key_type);
        if (!call->next_key[g]) call->next_key[g] = memory->base + at;
    }
}

static qr_span call_empty(const qr_attn_plan *plan, const attn_scratch *scratch) {
    const qr_attn_shape *shape = &plan->shape;
    size_t key_stride = shape->block_tokens * quire_kv_type_bytes(shape->key_type);
    size_t next_step = key_stride > CACHE_LINE ? key_stride : CACHE_LINE;
    return (qr_span){
        .key_stride = key_stride,
        .next_step = next_step,
        .next_lines = (uint32_t)qr_div_up(shape->key_dim * key_stride, QR_SPAN_GROUP * next_step),
        .value_stride = shape->value_dim * quire_kv_type_bytes(shape->value_type),
        .key_dim = shape->key_dim,
        .value_dim = shape->value_dim,
        .key_type = shape->key_type,
        .value_type = shape->value_type,
        .q = scratch->q,
        .weights = scratch->weights,
    };
}

/* ---- store items ---- */

static void store_call(const attn_job *job, const attn_scratch *scratch, attn_slice slice, const attn_unit *unit,
                       uint32_t unit_count, uint32_t span, const attn_next *next) {
    qr_span call = call_empty(job->plan, scratch);
    qr_attn_part *part[QR_SPAN_ROWS];
    for (uint32_t i = 0; i < unit_count; i++) {
        for (uint32_t r = 0; r < unit[i].row_count; r++)
            for (uint32_t h = 0; h < slice.head_count; h++)
                part[r * slice.head_count + h] = cell_part(job->plan, &unit[i], span, unit[i].row + r, slice.head + h);
        call_add(job, slice, &unit[i], span, part, &call);
    }
    call_set_blocks(job, slice, &unit[unit_count - 1], span, &call);
    call_fetch(job, next, &call);
    job->path->span(&call);
}

static void store_item(const attn_job *job, const attn_scratch *scratch, attn_slice slice, const attn_item *item,
                       const attn_next *next) {
    const attn_unit *unit = &job->plan->unit[item->unit];
    for (uint32_t i = 0, n; i < item->unit_count; i += n) {
        uint32_t rows = 0;
        for (n = 0; i + n < item->unit_count; n++) {
            if (rows + unit[i + n].row_count > job->plan->rows_of_unit) break;
            rows += unit[i + n].row_count;
        }
        store_call(job, scratch, slice, unit + i, n, item->span, next);
    }
}

static attn_slice store_slice(const qr_attn_plan *plan, uint64_t index) {
    return slice_of(plan, (uint32_t)(index % plan->slice_count));
}

static attn_next store_next(const qr_attn_plan *plan, uint64_t index) {
    if (index >= (uint64_t)plan->store_count * plan->slice_count) return (attn_next){0};
    const attn_item *item = &plan->store[index / plan->slice_count];
    return (attn_next){&plan->unit[item->unit + item->unit_count - 1], store_slice(plan, index), item->span};
}

/* Pieces are runs of items, so that a thread goes on with neighbours. After its piece it most often takes the one after
 * the next. */
static void store_piece(void *argument, int piece, int thread) {
    const attn_job *job = argument;
    const qr_attn_plan *plan = job->plan;
    uint64_t count = (uint64_t)plan->store_count * plan->slice_count, pieces = (uint64_t)job->pieces;
    uint64_t begin = count * (uint64_t)piece / pieces, end = count * ((uint64_t)piece + 1) / pieces;
    attn_scratch scratch = scratch_of(plan, thread);
    for (uint64_t i = begin; i < end; i++) {
        attn_next next = store_next(plan, i + 1 < end ? i + 1 : count * ((uint64_t)piece + 2) / pieces);
        store_item(job, &scratch, store_slice(plan, i), &plan->store[i / plan->slice_count], &next);
    }
}

/* ---- fold items ---- */

/* The rows of a fold item, [units][rows][heads of the slice]. */
typedef struct attn_walk {
    attn_slice slice;
    attn_scratch scratch;
    attn_next next;                  /* the walk after this one */
    qr_attn_part *run[QR_SPAN_ROWS]; /* NULL: no span so far */
} attn_walk;

/* Partials of stored spans, folded in the place of the first. */
static void fold_stored(const attn_job *job, attn_walk *walk, const attn_unit *unit, uint32_t at) {
    const qr_attn_plan *plan = job->plan;
    uint32_t first, limit;
    for (uint32_t r = unit->row; r < unit->row + unit->row_count; r++)
        for (uint32_t h = 0; h < walk->slice.head_count; h++, at++)
            for (uint32_t span = unit->span_begin; span < unit->stored_end; span++) {
                if (!row_sees(&plan->batch, r, span, &first, &limit)) continue;
                qr_attn_part *part = cell_part(plan, unit, span, r, walk->slice.head + h);
                if (walk->run[at]) job->path->fold(walk->run[at], part, plan->shape.value_dim);
                else walk->run[at] = part;
            }
}

/* One span for neighbouring units that share its blocks; `at` is the first unit's first query row in the item. */
static void walk_call(const attn_job *job, attn_walk *walk, const attn_unit *unit, uint32_t unit_count, uint32_t span,
                      uint32_t at) {
    const qr_attn_plan *plan = job->plan;
    qr_span call = call_empty(plan, &walk->scratch);
    qr_attn_part *part[QR_SPAN_ROWS];
    for (uint32_t i = 0, row = at; i < unit_count; i++) {
        uint32_t rows = unit[i].row_count * walk->slice.head_count;
        for (uint32_t r = row; r < row + rows; r++)
            part[r] = part_at(plan, walk->run[r] ? walk->scratch.now : walk->scratch.run, r);
        call_add(job, walk->slice, &unit[i], span, part + row, &call);
        row += rows;
    }
    call_set_blocks(job, walk->slice, &unit[unit_count - 1], span, &call);
    call_fetch(job, &(attn_next){&unit[unit_count - 1], walk->slice, span + 1}, &call);
    call_fetch(job, &walk->next, &call);
    job->path->span(&call);
    for (uint32_t n = 0, r = at; n < call.row_count; r++) {
        if (call.part[n] != part[r]) continue; /* row r does not see the span */
        if (walk->run[r]) job->path->fold(walk->run[r], part[r], plan->shape.value_dim);
        else walk->run[r] = part[r];
        n++;
    }
}

static bool walks(const attn_unit *unit, uint32_t span) { return span >= unit->stored_end && span < unit->span_end; }

/* One span of a fold item: a call for each group of units that share blocks. */
static void walk_span(const attn_job *job, attn_walk *walk, const attn_item *item, uint32_t span) {
    const attn_unit *unit = &job->plan->unit[item->unit];
    for (uint32_t i = 0, at = 0, n; i < item->unit_count; i += n) {
        uint32_t rows = unit[i].row_count;
        for (n = 1; i + n < item->unit_count && walks(&unit[i + n], span) && walks(&unit[i], span); n++) {
            if (!qr_attn_unit_joined(&unit[i + n], span)) break;
            rows += unit[i + n].row_count;
        }
        if (walks(&unit[i], span)) walk_call(job, walk, unit + i, n, span, at);
        at += rows * walk->slice.head_count;
    }
}

static void fold_finish(const attn_job *job, const attn_walk *walk, const attn_item *item) {
    const qr_attn_shape *shape = &job->plan->shape;
    const attn_unit *unit = &job->plan->unit[item->unit];
    for (uint32_t i = 0, at = 0; i < item->unit_count; i++)
        for (uint32_t row = unit[i].row; row < unit[i].row + unit[i].row_count; row++)
            for (uint32_t h = 0; h < walk->slice.head_count; h++, at++) {
                size_t head = (size_t)row * shape->head_count + walk->slice.head + h;
                job->path->finish(job->out + head * shape->value_dim, walk->run[at], shape->value_dim);
            }
}

/* One KV head after the other: its K and V stay in the cache for all pieces of a chunk. */
static const attn_item *fold_item(const qr_attn_plan *plan, uint32_t index, attn_slice *slice) {
    *slice = slice_of(plan, index / plan->fold_count);
    return &plan->fold[index % plan->fold_count];
}

static attn_next fold_next(const qr_attn_plan *plan, uint32_t index) {
    attn_next next = {0};
    if (index >= plan->fold_count * plan->slice_count) return next;
    const attn_unit *unit = &plan->unit[fold_item(plan, index, &next.slice)->unit];
    if (unit->stored_end < unit->span_end) next.unit = unit;
    next.span = unit->stored_end;
    return next;
}

static void fold_piece(void *argument, int piece, int thread) {
    const attn_job *job = argument;
    const qr_attn_plan *plan = job->plan;
    attn_walk walk = {.scratch = scratch_of(plan, thread)};
    const attn_item *item = fold_item(plan, (uint32_t)piece, &walk.slice);
    const attn_unit *unit = &plan->unit[item->unit];
    uint32_t begin = UINT32_MAX, end = 0;
    walk.next = fold_next(plan, (uint32_t)(piece + job->threads));
    for (uint32_t i = 0, at = 0; i < item->unit_count; i++) {
        fold_stored(job, &walk, &unit[i], at);
        at += unit[i].row_count * walk.slice.head_count;
        if (unit[i].stored_end < begin) begin = unit[i].stored_end;
        if (unit[i].span_end > end) end = unit[i].span_end;
    }
    for (uint32_t span = begin; span < end; span++) walk_span(job, &walk, item, span);
    fold_finish(job, &walk, item);
}

/* Equal runs of items, a multiple of the threads: 24 items in 3 pieces would leave one of two threads idle. */
static int store_pieces(const qr_attn_plan *plan, int threads) {
    uint64_t count = (uint64_t)plan->store_count * plan->slice_count, each = count / (4 * (uint64_t)threads);
    return threads * (each < 1 ? 1 : each > 8 ? 8 : (int)each);
}

void qr_attn_plan_run(qr_attn_plan *plan, const qr_attn_path *path, qr_compute_pool *pool, const qr_attn_memory *memory,
                      uint32_t layer, const float *q, float *out) {
    int threads = qr_compute_pool_threads(pool);
    QR_ASSERT(threads <= plan->limits.thread_count);
    attn_job job = {plan, path, memory, layer, threads, store_pieces(plan, threads), q, out};
    if (plan->store_count > 0) qr_compute_pool_run(pool, store_piece, &job, job.pieces);
    if (plan->fold_count > 0) qr_compute_pool_run(pool, fold_piece, &job, (int)(plan->fold_count * plan->slice_count));
}
