/* device_plan.c - from the rows of a step to items, item rows, cells and folds.
 *
 * unit   the rows of one sequence in this step. Units are put in the order of their block tables, so that those that share
 *        leading blocks are neighbours; `joined` says how many leading spans a unit reads together with the one before it.
 *        The sort looks at each block id of a table about once, however long the prefixes are that tables share.
 * shared spans below `shared_end` of a unit: one set of items for all units of a run. The first `front` spans are shared by the
 *        whole run, and its first items may take several of them where cells are few.
 * own    the spans from there on, slice by slice of the unit's rows.
 *
 * A row's partials are cells in span order: cell 0 is its first item's (which may hold several spans), then one per span.
 * A row with one cell is direct: its item writes the result.
 */
#include "attention/cuda/device_plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

enum { SPAN = QR_CUDA_SPAN_TOKENS };
/* Items per walker to aim at: enough that the last ones finish together, few enough that partials stay a small part. */
enum { ITEMS_PER_WALKER = 4 };
enum { COMPARE_STRIDE = 16 }; /* block ids compared at once */

typedef struct plan_unit {
    uint32_t row, row_count;
    uint32_t table; /* place of its block 0 in the batch's block_ids */
    uint32_t block_count;
    uint32_t common;             /* leading blocks that the unit before it has too */
    uint32_t joined, shared_end; /* in spans from 0 */
    uint32_t front;              /* spans that all units of its run share, from 0 */
} plan_unit;

typedef struct plan_row {
    uint32_t first, limit; /* positions it sees */
    uint32_t prefix_end;   /* spans below it are one cell */
    uint32_t cell;
} plan_row;

struct qr_cuda_plan {
    qr_cuda_shape shape;
    qr_cuda_plan_limits limits;
    uint32_t group, span_blocks, spans_max;
    uint32_t slice_rows; /* rows of a slice: as many as fill a wide item */
    uint32_t narrow_walkers, wide_walkers;
    uint32_t shared_first; /* spans that the first items of a run take, where it shares as many */
    const qr_attn_batch *batch;
    uint32_t unit_count;
    plan_unit *unit, *spare; /* [sequences_max], in the order of tables; room to sort them */
    plan_row *row;           /* [rows_max] */
    qr_cuda_item *narrow;    /* [cells_max + rows_max] */
    qr_cuda_item *wide;      /* the same, and more where a row has many heads */
    qr_cuda_item_row *entry; /* [cells_max + rows_max] */
    qr_cuda_fold_row *fold;  /* [rows_max] */
    uint32_t *place;         /* [2 * (tokens_max + 1)], to sort items */
    uint32_t narrow_count, wide_count, entry_count;
    qr_region region; /* all lists */
};

/* ---- memory ---- */

static size_t take(size_t *used, size_t count, size_t size) {
    size_t at = *used;
    *used = qr_align_up(at + count * size, 64);
    return at;
}

static quire_status take_lists(qr_cuda_plan *plan, quire_error *error) {
    const qr_cuda_plan_limits *l = &plan->limits;
    size_t entries = (size_t)l->cells_max + l->rows_max, used = 0;
    size_t wide_max = entries + entries * plan->group / QR_CUDA_WIDE_ROWS + 1;
    size_t unit = take(&used, l->sequences_max, sizeof(plan_unit)), spare = take(&used, l->sequences_max, sizeof(plan_unit));
    size_t row = take(&used, l->rows_max, sizeof(plan_row));
    size_t narrow = take(&used, entries, sizeof(qr_cuda_item)), wide = take(&used, wide_max, sizeof(qr_cuda_item));
    size_t entry = take(&used, entries, sizeof(qr_cuda_item_row)), fold = take(&used, l->rows_max, sizeof(qr_cuda_fold_row));
    size_t place = take(&used, 2 * ((size_t)l->tokens_max + 1), sizeof(uint32_t));
    quire_status status = qr_region_alloc(used, &plan->region, error);
    if (status) return status;
    uint8_t *base = plan->region.base;
    plan->unit = (plan_unit *)(base + unit), plan->spare = (plan_unit *)(base + spare), plan->row = (plan_row *)(base + row);
    plan->narrow = (qr_cuda_item *)(base + narrow), plan->wide = (qr_cuda_item *)(base + wide);
    plan->entry = (qr_cuda_item_row *)(base + entry), plan->fold = (qr_cuda_fold_row *)(base + fold);
    plan->place = (uint32_t *)(base + place);
    return QUIRE_OK;
}

quire_status qr_cuda_plan_create(const qr_cuda_shape *shape, const qr_cuda_plan_limits *limits, const qr_cuda_launch *launch,
                                 qr_cuda_plan **out, quire_error *error) {
    *out = NULL;
    if (!limits->rows_max || !limits->sequences_max || !limits->tokens_max || limits->cells_max < limits->rows_max)
        return qr_fail(error, QUIRE_INVALID, "cuda plan", QR_NO_OFFSET,
                       "limits must be at least 1, and cells_max at least rows_max");
    qr_cuda_plan *plan = qr_alloc_zero(1, sizeof *plan);
    if (!plan) return qr_fail(error, QUIRE_NO_MEMORY, "cuda plan", QR_NO_OFFSET, "no memory for the plan");
    plan->shape = *shape, plan->limits = *limits;
    plan->group = shape->head_count / shape->kv_head_count;
    plan->span_blocks = SPAN / shape->block_tokens;
    plan->spans_max = (limits->tokens_max + SPAN - 1) / SPAN;
    plan->slice_rows = plan->group < QR_CUDA_WIDE_ROWS ? QR_CUDA_WIDE_ROWS / plan->group : 1;
    plan->narrow_walkers = launch->narrow_ctas * launch->narrow_warps, plan->wide_walkers = launch->wide_ctas;
    quire_status status = take_lists(plan, error);
    if (status) qr_cuda_plan_destroy(plan);
    else *out = plan;
    return status;
}

void qr_cuda_plan_destroy(qr_cuda_plan *plan) {
    if (!plan) return;
    qr_region_free(&plan->region);
    free(plan);
}

qr_cuda_plan_memory qr_cuda_plan_memory_of(const qr_cuda_plan *plan) {
    return (qr_cuda_plan_memory){plan->region.base, plan->region.size_bytes};
}

/* ---- units ---- */

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

static void read_rows(qr_cuda_plan *plan) {
    const qr_attn_batch *b = plan->batch;
    QR_ASSERT(b->row_count <= plan->limits.rows_max);
    plan->unit_count = 0;
    for (uint32_t r = 0; r < b->row_count; r++) {
        uint32_t sequence = b->row_sequence[r];
        plan->row[r] = (plan_row){.first = b->row_first ? b->row_first[r] : 0, .limit = b->row_position[r] + 1};
        QR_ASSERT(plan->row[r].first < plan->row[r].limit && plan->row[r].limit <= plan->limits.tokens_max);
        if (r == 0 || sequence != b->row_sequence[r - 1]) {
            QR_ASSERT(plan->unit_count < plan->limits.sequences_max);
            plan->unit[plan->unit_count++] = (plan_unit){.row = r, .table = b->table_begin[sequence]};
        }
        plan_unit *unit = &plan->unit[plan->unit_count - 1];
        unit->row_count++;
        unit->block_count = (b->row_position[r] + plan->shape.block_tokens) / plan->shape.block_tokens;
    }
}

/* Whether some of the next blocks differ, or are none and so nobody's. */
static bool stride_differs(const quire_block_id *x, const quire_block_id *y) {
    uint32_t apart = 0;
    for (uint32_t i = 0; i < COMPARE_STRIDE; i++) apart |= (x[i] ^ y[i]) | (x[i] == QUIRE_BLOCK_NONE);
    return apart != 0;
}

/* Leading blocks that two units read alike, of which `known` are known. */
static uint32_t common_blocks(const qr_cuda_plan *plan, const plan_unit *a, const plan_unit *b, uint32_t known) {
    const quire_block_id *x = plan->batch->block_ids + a->table, *y = plan->batch->block_ids + b->table;
    uint32_t count = a->block_count < b->block_count ? a->block_count : b->block_count, i = known;
    while (i + COMPARE_STRIDE <= count && !stride_differs(x + i, y + i)) i += COMPARE_STRIDE;
    while (i < count && x[i] == y[i] && x[i] != QUIRE_BLOCK_NONE) i++;
    return i;
}

/* Of two units with `common` leading blocks in common: a table that ends comes first, then the lower id, then a. */
static bool comes_first(const qr_cuda_plan *plan, const plan_unit *a, const plan_unit *b, uint32_t common) {
    if (common == a->block_count || common == b->block_count) return a->block_count <= b->block_count;
    return plan->batch->block_ids[a->table + common] <= plan->batch->block_ids[b->table + common];
}

/* Units of a run that is being merged, and what its next one has in common with the last one that was put out. */
typedef struct unit_run {
    const plan_unit *next, *end;
    uint32_t common;
} unit_run;

static void put_next(unit_run *run, plan_unit *to) {
    *to = *run->next++;
    to->common = run->common;
    run->common = run->next < run->end ? run->next->common : 0;
}

/* Merges two sorted runs. The one that has more in common with the last unit put out comes next: only where both have the same
 * is anything compared, from there on, and what is found equal is not looked at again (LCP merge sort: Ng and Kakehi, 2008). */
static void merge_runs(const qr_cuda_plan *plan, unit_run a, unit_run b, plan_unit *to) {
    while (a.next < a.end && b.next < b.end) {
        if (a.common != b.common) {
            put_next(a.common > b.common ? &a : &b, to++);
            continue;
        }
        uint32_t common = common_blocks(plan, a.next, b.next, a.common);
        bool first = comes_first(plan, a.next, b.next, common);
        put_next(first ? &a : &b, to++);
        *(first ? &b.common : &a.common) = common;
    }
    while (a.next < a.end) put_next(&a, to++);
    while (b.next < b.end) put_next(&b, to++);
}

/* Units in the order of their tables, equal ones as they came. */
static void sort_units(qr_cuda_plan *plan) {
    for (uint32_t width = 1; width < plan->unit_count; width *= 2) {
        const plan_unit *from = plan->unit, *end = from + plan->unit_count;
        for (uint32_t at = 0; at < plan->unit_count; at += 2 * width) {
            const plan_unit *middle = from + at + width < end ? from + at + width : end;
            const plan_unit *last = from + at + 2 * width < end ? from + at + 2 * width : end;
            merge_runs(plan, (unit_run){from + at, middle, 0}, (unit_run){middle, last, 0}, plan->spare + at);
        }
        plan_unit *sorted = plan->spare;
        plan->spare = plan->unit, plan->unit = sorted;
    }
}

/* Spans that neighbours read together: whole ones, and the last one too where both tables end with it. */
static void join_units(qr_cuda_plan *plan) {
    for (uint32_t i = 0; i < plan->unit_count; i++) plan->unit[i].joined = plan->unit[i].shared_end = 0;
    for (uint32_t i = 1; i < plan->unit_count; i++) {
        plan_unit *a = &plan->unit[i - 1], *b = &plan->unit[i];
        uint32_t common = b->common;
        bool whole = common == a->block_count && common == b->block_count;
        b->joined = whole ? (common + plan->span_blocks - 1) / plan->span_blocks : common / plan->span_blocks;
        if (b->joined > a->shared_end) a->shared_end = b->joined;
        b->shared_end = b->joined;
    }
    for (uint32_t begin = 0, end; begin < plan->unit_count; begin = end) {
        uint32_t front = plan->unit[begin].shared_end;
        for (end = begin + 1; end < plan->unit_count && plan->unit[end].joined; end++)
            if (plan->unit[end].joined < front) front = plan->unit[end].joined;
        for (uint32_t i = begin; i < end; i++) plan->unit[i].front = front;
    }
}

/* ---- cells ---- */

static uint32_t first_span(const plan_row *row) { return row->first / SPAN; }
static uint32_t last_span(const plan_row *row) { return (row->limit - 1) / SPAN; }

static uint32_t cell_index(const plan_row *row, uint32_t span) {
    if (span < row->prefix_end) return 0;
    return first_span(row) >= row->prefix_end ? span - first_span(row) : span - row->prefix_end + 1;
}
static uint32_t cell_count(const plan_row *row) { return cell_index(row, last_span(row)) + 1; }

/* First row past the slice that begins at row. */
static uint32_t slice_end(const qr_cuda_plan *plan, const plan_unit *unit, uint32_t row) {
    uint32_t end = row + plan->slice_rows, unit_end = unit->row + unit->row_count;
    return end < unit_end ? end : unit_end;
}

static uint32_t slice_first_span(const qr_cuda_plan *plan, uint32_t row, uint32_t end) {
    uint32_t span = first_span(&plan->row[row]);
    for (; row < end; row++)
        if (first_span(&plan->row[row]) < span) span = first_span(&plan->row[row]);
    return span;
}

static bool is_narrow(const qr_cuda_plan *plan, uint32_t rows) { return rows * plan->group <= QR_CUDA_ROW_TILE; }

/* Spans that the first item of a slice takes, so that every walker has a few items; and that of a run. */
typedef struct prefix_spans {
    uint32_t narrow, wide, shared;
} prefix_spans;

static prefix_spans choose_prefix(const qr_cuda_plan *plan) {
    uint64_t narrow = 0, wide = 0;
    for (uint32_t u = 0; u < plan->unit_count; u++) {
        const plan_unit *unit = &plan->unit[u];
        for (uint32_t row = unit->row, end; row < unit->row + unit->row_count; row = end) {
            end = slice_end(plan, unit, row);
            uint64_t spans = last_span(&plan->row[end - 1]) + 1 - slice_first_span(plan, row, end);
            *(is_narrow(plan, end - row) ? &narrow : &wide) += spans * plan->shape.kv_head_count;
        }
    }
    uint64_t n = narrow / ((uint64_t)plan->narrow_walkers * ITEMS_PER_WALKER);
    uint64_t w = wide / ((uint64_t)plan->wide_walkers * ITEMS_PER_WALKER);
    return (prefix_spans){n < 1 ? 1 : (uint32_t)n, w < 1 ? 1 : (uint32_t)w, 1};
}

/* Numbers the cells; returns how many. */
static uint64_t number_cells(qr_cuda_plan *plan, prefix_spans prefix) {
    for (uint32_t u = 0; u < plan->unit_count; u++) {
        const plan_unit *unit = &plan->unit[u];
        for (uint32_t row = unit->row, end; row < unit->row + unit->row_count; row = end) {
            end = slice_end(plan, unit, row);
            uint32_t begin = slice_first_span(plan, row, end);
            uint32_t prefix_end = begin + (is_narrow(plan, end - row) ? prefix.narrow : prefix.wide);
            if (begin < unit->shared_end) prefix_end = min_u32(prefix.shared, unit->front);
            for (uint32_t r = row; r < end; r++) plan->row[r].prefix_end = prefix_end;
        }
    }
    plan->shared_first = prefix.shared;
    uint64_t cells = 0;
    for (uint32_t r = 0; r < plan->batch->row_count; r++) {
        plan->row[r].cell = (uint32_t)cells;
        cells += cell_count(&plan->row[r]);
    }
    return cells;
}

/* Where the cells do not suffice, first items grow, and at last nothing is shared: then each row has one cell. */
static uint32_t fit_cells(qr_cuda_plan *plan) {
    prefix_spans prefix = choose_prefix(plan);
    for (;;) {
        uint64_t cells = number_cells(plan, prefix);
        if (cells <= plan->limits.cells_max) return (uint32_t)cells;
        if (prefix.narrow >= plan->spans_max && prefix.wide >= plan->spans_max && prefix.shared >= plan->spans_max)
            for (uint32_t u = 0; u < plan->unit_count; u++) plan->unit[u].joined = plan->unit[u].shared_end = 0;
        prefix.narrow *= 2, prefix.wide *= 2, prefix.shared *= 2;
    }
}

/* ---- items ---- */

/* The range of spans that a set of items covers, and its entries so far. */
typedef struct item_set {
    uint32_t span_begin, span_end, entry;
    uint32_t first, limit;
} item_set;

static item_set begin_set(const qr_cuda_plan *plan, uint32_t span_begin, uint32_t span_end) {
    return (item_set){.span_begin = span_begin, .span_end = span_end, .entry = plan->entry_count, .first = UINT32_MAX};
}

static void add_rows(qr_cuda_plan *plan, item_set *set, uint32_t row, uint32_t end) {
    for (uint32_t r = row; r < end; r++) {
        const plan_row *p = &plan->row[r];
        uint32_t first = max_u32(p->first, set->span_begin * SPAN), limit = min_u32(p->limit, set->span_end * SPAN);
        if (first >= limit) continue;
        set->first = min_u32(set->first, first), set->limit = max_u32(set->limit, limit);
        QR_ASSERT(plan->entry_count < plan->limits.cells_max + plan->limits.rows_max);
        plan->entry[plan->entry_count++] = (qr_cuda_item_row){.row = r,
                                                              .first = (int32_t)first,
                                                              .limit = (int32_t)limit,
                                                              .cell = p->cell + cell_index(p, set->span_begin),
                                                              .direct = cell_count(p) == 1};
    }
}

/* The packed rows of the set's entries, 64 at a time; a rest of up to 16 is narrow. */
static void end_set(qr_cuda_plan *plan, const item_set *set, uint32_t table) {
    uint32_t packed = (plan->entry_count - set->entry) * plan->group;
    for (uint32_t at = 0, count; at < packed; at += count) {
        count = min_u32(packed - at, QR_CUDA_WIDE_ROWS);
        qr_cuda_item *item = count <= QR_CUDA_ROW_TILE ? &plan->narrow[plan->narrow_count++] : &plan->wide[plan->wide_count++];
        *item = (qr_cuda_item){.table = table,
                               .first = (int32_t)set->first,
                               .limit = (int32_t)set->limit,
                               .row = set->entry,
                               .packed_begin = at,
                               .packed_count = count};
    }
}

/* Spans that runs of units read together; the first ones in one set of items. */
static void plan_shared(qr_cuda_plan *plan) {
    uint32_t end = 0;
    for (uint32_t u = 0; u < plan->unit_count; u++) end = max_u32(end, plan->unit[u].shared_end);
    for (uint32_t span = 0; span < end; span++)
        for (uint32_t u = 0, next; u < plan->unit_count; u = next) {
            uint32_t first_end = min_u32(plan->shared_first, plan->unit[u].front);
            bool taken = span > 0 && span < first_end; /* by the run's first items */
            item_set set = begin_set(plan, span, span == 0 && first_end > 1 ? first_end : span + 1);
            for (next = u; next < plan->unit_count && (next == u || plan->unit[next].joined > span); next++)
                if (plan->unit[next].shared_end > span && !taken)
                    add_rows(plan, &set, plan->unit[next].row, plan->unit[next].row + plan->unit[next].row_count);
            end_set(plan, &set, plan->unit[u].table);
        }
}

static void plan_slice(qr_cuda_plan *plan, const plan_unit *unit, uint32_t row, uint32_t end) {
    uint32_t span = slice_first_span(plan, row, end), span_end = last_span(&plan->row[end - 1]) + 1;
    uint32_t next = plan->row[row].prefix_end;
    if (span < unit->shared_end) span = unit->shared_end, next = span;
    for (; span < span_end; span = next) {
        next = min_u32(max_u32(next, span + 1), span_end);
        item_set set = begin_set(plan, span, next);
        add_rows(plan, &set, row, end);
        end_set(plan, &set, unit->table);
    }
}

static void plan_own(qr_cuda_plan *plan) {
    for (uint32_t u = 0; u < plan->unit_count; u++) {
        const plan_unit *unit = &plan->unit[u];
        for (uint32_t row = unit->row, end; row < unit->row + unit->row_count; row = end) {
            end = slice_end(plan, unit, row);
            plan_slice(plan, unit, row, end);
        }
    }
}

static uint32_t length_of(const qr_cuda_item *item) { return (uint32_t)(item->limit - item->first); }

/* Longest first. Each length has its places in the list; what lies in another's is exchanged with what lies in its own. */
static void sort_items(qr_cuda_plan *plan, qr_cuda_item *item, uint32_t count) {
    uint32_t longest = 0, at = 0;
    for (uint32_t i = 0; i < count; i++) longest = max_u32(longest, length_of(&item[i]));
    uint32_t *next = plan->place, *end = next + longest + 1;
    memset(end, 0, (longest + (size_t)1) * sizeof *end);
    for (uint32_t i = 0; i < count; i++) end[length_of(&item[i])]++;
    for (uint32_t length = longest; length > 0; length--) next[length] = at, at += end[length], end[length] = at;
    for (uint32_t length = longest; length > 0; length--)
        while (next[length] < end[length]) {
            qr_cuda_item *here = &item[next[length]], *there = &item[next[length_of(here)]++], moved = *there;
            *there = *here, *here = moved;
        }
}

static uint32_t plan_folds(qr_cuda_plan *plan) {
    uint32_t count = 0;
    for (uint32_t r = 0; r < plan->batch->row_count; r++)
        if (cell_count(&plan->row[r]) > 1)
            plan->fold[count++] = (qr_cuda_fold_row){.row = r, .cell = plan->row[r].cell, .count = cell_count(&plan->row[r])};
    return count;
}

void qr_cuda_plan_make(qr_cuda_plan *plan, const qr_attn_batch *batch, qr_cuda_plan_lists *lists) {
    plan->batch = batch;
    plan->narrow_count = plan->wide_count = plan->entry_count = 0;
    read_rows(plan);
    sort_units(plan);
    join_units(plan);
    uint32_t cells = fit_cells(plan);
    plan_shared(plan);
    plan_own(plan);
    sort_items(plan, plan->narrow, plan->narrow_count);
    sort_items(plan, plan->wide, plan->wide_count);
    *lists = (qr_cuda_plan_lists){.narrow = plan->narrow,
                                  .wide = plan->wide,
                                  .rows = plan->entry,
                                  .fold_rows = plan->fold,
                                  .narrow_count = plan->narrow_count,
                                  .wide_count = plan->wide_count,
                                  .row_count = plan->entry_count,
                                  .fold_count = plan_folds(plan),
                                  .cell_count = cells};
}
