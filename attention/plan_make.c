/* plan_make.c - from the rows of a step to units and items. Linear in rows, spans and shared block ids; allocates nothing.
 */
#include "attention/plan_internal.h"
#include "base/assertion.h"
#include "base/checked.h"

enum {
    /* Time of a call on one span, in rows: reading K and V is taken to cost as much as this many rows. An estimate, not
     * measured: it only shares out the work among threads, bits do not depend on it. */
    READ_ROWS = 12,
    /* A fold item longer than 1 / this of a thread's share is cut into store items. */
    SHARE_PIECES = 8,
    /* Units of a store item are cut after this many calls, so that one hot span cannot keep one thread. */
    STORE_CALLS = 8,
};

/* ---- units ---- */

static uint32_t run_length(const qr_attn_batch *batch, uint32_t row) {
    uint32_t end = row + 1;
    while (end < batch->row_count && batch->row_sequence[end] == batch->row_sequence[row]) {
        QR_ASSERT(batch->row_position[end] > batch->row_position[end - 1]);
        end++;
    }
    return end - row;
}

static attn_unit make_unit(const qr_attn_plan *plan, uint32_t row, uint32_t row_count) {
    const qr_attn_batch *batch = &plan->batch;
    uint32_t sequence = batch->row_sequence[row], last = batch->row_position[row + row_count - 1], first = UINT32_MAX;
    const uint32_t *table = batch->table_begin + sequence;
    QR_ASSERT(sequence < batch->sequence_count && last < plan->limits.tokens_max);
    for (uint32_t r = row; r < row + row_count; r++) {
        uint32_t from = qr_attn_row_first(batch, r);
        QR_ASSERT(from <= batch->row_position[r]);
        if (from < first) first = from;
    }
    attn_unit unit = {.row = row, .row_count = row_count, .ids = batch->block_ids + table[0]};
    unit.block_count = last / plan->shape.block_tokens + 1;
    QR_ASSERT(unit.block_count <= table[1] - table[0]);
    unit.span_begin = unit.stored_end = first / QR_ATTN_SPAN_TOKENS;
    unit.span_end = last / QR_ATTN_SPAN_TOKENS + 1;
    return unit;
}

/* A run that is one unit may share blocks with others. One of several units (a prefill chunk) has company enough. */
static void make_units(qr_attn_plan *plan, bool chunks) {
    const qr_attn_batch *batch = &plan->batch;
    for (uint32_t row = 0, count; row < batch->row_count; row += count) {
        count = run_length(batch, row);
        if ((count > plan->rows_of_unit) != chunks) continue;
        for (uint32_t at = 0, n; at < count; at += n) {
            attn_unit *unit = &plan->unit[plan->unit_count++];
            n = count - at < plan->rows_of_unit ? count - at : plan->rows_of_unit;
            *unit = make_unit(plan, row + at, n);
            if (at > 0) unit->same = unit[-1].span_end;
        }
    }
}

/* ---- which spans to store ---- */

/* Stores the unit's spans up to `end` if there is room for their partials. */
static void unit_store(qr_attn_plan *plan, attn_unit *unit, uint32_t end) {
    if (end <= unit->stored_end) return;
    uint64_t cells = (uint64_t)(end - unit->stored_end) * unit->row_count;
    if (cells > plan->cells_max - plan->cells_used) return;
    plan->cells_used += (uint32_t)cells;
    unit->stored_end = end;
}

/* Shared spans are read once for all units. */
static void store_shared(qr_attn_plan *plan) {
    for (uint32_t i = 0; i < plan->shared_count; i++) {
        attn_unit *unit = &plan->unit[i];
        uint32_t end = unit->same;
        if (i + 1 < plan->shared_count && unit[1].same > end) end = unit[1].same;
        unit_store(plan, unit, end < unit->span_end ? end : unit->span_end);
    }
}

static uint64_t call_cost(const qr_attn_plan *plan, const attn_unit *unit) {
    return READ_ROWS + unit->row_count * plan->slice_heads;
}

/* Units whose walk would keep one thread while the others are done are spread over all. */
static void store_long(qr_attn_plan *plan) {
    uint64_t total = 0;
    if (plan->limits.thread_count == 1) return;
    for (uint32_t i = 0; i < plan->unit_count; i++)
        total += (plan->unit[i].span_end - plan->unit[i].span_begin) * call_cost(plan, &plan->unit[i]);
    uint64_t share = total * plan->slice_count / ((uint64_t)plan->limits.thread_count * SHARE_PIECES);
    for (uint32_t i = 0; i < plan->unit_count; i++) {
        attn_unit *unit = &plan->unit[i];
        uint32_t spans = unit->span_end - unit->stored_end;
        if (spans > 1 && spans * call_cost(plan, unit) > share) unit_store(plan, unit, unit->span_end);
    }
}

static void number_cells(qr_attn_plan *plan) {
    uint32_t cell = 0;
    for (uint32_t i = 0; i < plan->unit_count; i++) {
        plan->unit[i].cell = cell;
        cell += (plan->unit[i].stored_end - plan->unit[i].span_begin) * plan->unit[i].row_count;
    }
    QR_ASSERT(cell == plan->cells_used);
}

/* ---- items ---- */

static bool stored_here(const attn_unit *unit, uint32_t span) { return span >= unit->span_begin && span < unit->stored_end; }

/* Neighbours that read the same blocks in the span: in one item, or in several when they are many. */
static void make_store_items(qr_attn_plan *plan, uint32_t first, uint32_t span) {
    uint32_t rows_max = plan->rows_of_unit * STORE_CALLS, rows = 0;
    attn_item *item = NULL;
    for (uint32_t i = first; i < plan->unit_count; i++) {
        const attn_unit *unit = &plan->unit[i];
        if (!stored_here(unit, span) || (i > first && !qr_attn_unit_joined(unit, span))) break;
        if (!item || rows + unit->row_count > rows_max) {
            item = &plan->store[plan->store_count++];
            *item = (attn_item){.unit = i, .span = span};
            rows = 0;
        }
        item->unit_count++;
        rows += unit->row_count;
    }
}

static void make_stores(qr_attn_plan *plan) {
    for (uint32_t i = 0; i < plan->unit_count; i++) {
        const attn_unit *unit = &plan->unit[i];
        for (uint32_t span = unit->span_begin; span < unit->stored_end; span++) {
            bool led = i > 0 && qr_attn_unit_joined(unit, span) && stored_here(unit - 1, span);
            if (!led) make_store_items(plan, i, span);
        }
    }
}

/* Neighbours walk together while they share blocks that are not stored. */
static void make_folds(qr_attn_plan *plan, uint32_t begin, uint32_t end) {
    uint32_t rows = 0;
    for (uint32_t i = begin; i < end; i++) {
        const attn_unit *unit = &plan->unit[i];
        bool together = i > begin && rows + unit->row_count <= plan->rows_of_unit && unit->same > unit->stored_end;
        if (!together) {
            plan->fold[plan->fold_count++] = (attn_item){.unit = i};
            rows = 0;
        }
        plan->fold[plan->fold_count - 1].unit_count++;
        rows += unit->row_count;
    }
}

void qr_attn_plan_make(qr_attn_plan *plan, const qr_attn_batch *batch) {
    QR_ASSERT(batch->row_count <= plan->limits.rows_max && batch->sequence_count <= plan->limits.sequences_max);
    plan->batch = *batch;
    plan->unit_count = plan->cells_used = plan->store_count = plan->fold_count = 0;
    make_units(plan, false);
    plan->shared_count = plan->unit_count;
    qr_attn_order_units(plan, plan->unit, plan->shared_count);
    make_units(plan, true);
    store_shared(plan);
    store_long(plan);
    number_cells(plan);
    make_stores(plan);
    make_folds(plan, plan->shared_count, plan->unit_count); /* chunks are the longest: first */
    make_folds(plan, 0, plan->shared_count);
}
