/* plan_internal.h - the plan's data, private to attention/plan*.c.
 *
 * unit   up to 24 query rows' worth of neighbouring rows of one sequence. A decode row is a unit, and so is each piece of
 *        a prefill chunk. Units of the first kind stand first, ordered so that equal block tables are neighbours.
 * fold   item: neighbouring units that share blocks, for one KV head, walk their spans in order and fold as they go. No
 *        memory but the thread's scratch. Every row is finished by exactly one fold item.
 * store  item: one span, one KV head, all units that read its blocks: one partial result per row and head into memory,
 *        before the fold items run. A unit's stored spans are its leading ones, [span_begin, stored_end); its fold item
 *        folds those from memory and walks the rest.
 *
 * Folding from memory or as one goes is the same, because the order of spans is the same: what to store is a question of
 * speed only. It is worth memory where rows of several sequences share blocks, and where one row is so long that its fold
 * would keep one thread busy while others have nothing to do.
 */
#ifndef QR_ATTENTION_PLAN_INTERNAL_H
#define QR_ATTENTION_PLAN_INTERNAL_H

#include "attention/span.h"
#include "base/memory.h"

typedef struct attn_unit {
    uint32_t row, row_count;
    const quire_block_id *ids; /* block table of its sequence */
    uint32_t block_count;      /* blocks of the table that hold a token that the unit sees */
    uint32_t span_begin, span_end;
    uint32_t stored_end; /* spans [span_begin, stored_end) have partials */
    uint32_t same;       /* below this span the unit before reads the same blocks; both see them from span_begin on */
    uint32_t cell;       /* its first cell of partials */
} attn_unit;

typedef struct attn_item {
    uint32_t unit, unit_count; /* neighbours */
    uint32_t span;             /* store items */
} attn_item;

/* Scratch to find equal blocks. */
typedef struct attn_order {
    attn_unit *moved;                         /* [rows_max] */
    uint32_t *member, *leader, *size, *depth; /* [rows_max] */
    uint32_t *slot;                           /* hash table: [qr_attn_order_slots(rows_max)] */
    uint32_t slot_count;                      /* in use, for the segment at hand */
} attn_order;

struct qr_attn_plan {
    qr_attn_shape shape;
    qr_attn_limits limits;
    uint32_t group;        /* query heads of one KV head */
    uint32_t slice_heads;  /* of them, heads that one item takes, at most QR_SPAN_ROWS */
    uint32_t head_slices;  /* slices of one KV head */
    uint32_t slice_count;  /* of all KV heads; every item is run once for each */
    uint32_t rows_of_unit; /* rows of one unit, of one fold item and of one call of a kernel, at most */
    uint32_t span_blocks;  /* blocks of a span */
    uint32_t cells_max;    /* a cell: the partials of all heads of one row over one span */
    uint32_t cells_used;
    size_t part_bytes, cell_bytes, scratch_bytes;

    qr_attn_batch batch;
    uint32_t unit_count, shared_count; /* units; of them, those that may share blocks with others (they stand first) */
    uint32_t store_count, fold_count;
    attn_unit *unit;  /* [rows_max] */
    attn_item *store; /* [cells_max] */
    attn_item *fold;  /* [rows_max] */
    uint8_t *cell;    /* [cells_max][head_count] parts */
    uint8_t *scratch; /* [thread_count][scratch_bytes] */
    attn_order order;
    qr_region region; /* all of the above */
};

size_t qr_attn_scratch_bytes(uint32_t value_dim); /* plan_run.c: of one thread */

/* plan_order.c: puts units with equal leading blocks side by side and sets their `same`. Keeps the order otherwise. */
void qr_attn_order_units(qr_attn_plan *plan, attn_unit *unit, uint32_t count);

uint32_t qr_attn_order_slots(uint32_t count); /* a power of two, at least 2 * count */

/* Blocks of one span that the unit sees; 0 when the span is beyond its end. */
static inline uint32_t qr_attn_unit_blocks(const qr_attn_plan *plan, const attn_unit *unit, uint32_t span) {
    uint32_t begin = span * plan->span_blocks;
    if (begin >= unit->block_count) return 0;
    return unit->block_count - begin < plan->span_blocks ? unit->block_count - begin : plan->span_blocks;
}

/* True when the unit and the one before it read the very same blocks in this span. */
static inline bool qr_attn_unit_joined(const attn_unit *unit, uint32_t span) {
    return span < unit->same && span >= unit->span_begin;
}

static inline uint32_t qr_attn_row_first(const qr_attn_batch *batch, uint32_t row) {
    return batch->row_first ? batch->row_first[row] : 0;
}
#endif
