#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "attention/cuda/device_plan.h"
#include "base/random.h"

/* The host's plan for the GPU: which rows meet in an item. What else a plan must hold is tested with the kernels, in
 * tests/cuda/device_plan_test.cc. */
enum {
    SEQUENCES = 40,
    SPANS = 6,
    BLOCK_TOKENS = 16,
    SPAN_BLOCKS = QR_CUDA_SPAN_TOKENS / BLOCK_TOKENS,
    BLOCKS = SPANS * SPAN_BLOCKS
};

typedef struct forest {
    qr_attn_batch batch;
    uint32_t row_sequence[SEQUENCES], row_position[SEQUENCES], table_begin[SEQUENCES + 1];
    quire_block_id ids[SEQUENCES * BLOCKS];
} forest;

/* Decode rows of sequences that fork from earlier ones at any block. Ids are random, and a released block is nobody's. */
static void grow(forest *f, uint64_t seed) {
    qr_random random = {seed};
    const uint32_t count = 1 + qr_random_below(&random, SEQUENCES);
    for (uint32_t s = 0; s < count; s++) {
        const uint32_t blocks = 1 + qr_random_below(&random, BLOCKS), parent = s ? qr_random_below(&random, s) : 0;
        const uint32_t parent_blocks = s ? f->table_begin[parent + 1] - f->table_begin[parent] : 0;
        const uint32_t shorter = blocks < parent_blocks ? blocks : parent_blocks, fork = qr_random_below(&random, shorter + 1);
        quire_block_id *table = f->ids + f->table_begin[s];
        f->table_begin[s + 1] = f->table_begin[s] + blocks;
        memcpy(table, f->ids + f->table_begin[parent], fork * sizeof *table);
        for (uint32_t b = fork; b < blocks; b++) table[b] = qr_random_below(&random, UINT32_MAX);
        f->row_sequence[s] = s;
        f->row_position[s] = blocks * BLOCK_TOKENS - 1 - qr_random_below(&random, BLOCK_TOKENS);
    }
    f->batch = (qr_attn_batch){.row_count = count,
                               .sequence_count = count,
                               .row_sequence = f->row_sequence,
                               .row_position = f->row_position,
                               .table_begin = f->table_begin,
                               .block_ids = f->ids};
}

static bool agree_to(const forest *f, uint32_t a, uint32_t b, uint32_t blocks) {
    const uint32_t *begin = f->table_begin;
    if (begin[a + 1] - begin[a] < blocks || begin[b + 1] - begin[b] < blocks) return false;
    return memcmp(f->ids + begin[a], f->ids + begin[b], blocks * sizeof *f->ids) == 0;
}

static bool is_whole(const forest *f, uint32_t a, uint32_t b) {
    const uint32_t blocks = f->table_begin[a + 1] - f->table_begin[a];
    return f->table_begin[b + 1] - f->table_begin[b] == blocks && agree_to(f, a, b, blocks);
}

/* set[row][span]: which set of items reads the span for the row; 0 where none begins there. */
typedef uint32_t set_table[SEQUENCES][SPANS];

static void note_sets(const qr_cuda_plan_lists *l, bool wide, uint32_t group, set_table set) {
    for (uint32_t i = 0; i < (wide ? l->wide_count : l->narrow_count); i++) {
        const qr_cuda_item *item = &(wide ? l->wide : l->narrow)[i];
        for (uint32_t p = item->packed_begin; p < item->packed_begin + item->packed_count; p++) {
            const qr_cuda_item_row *entry = &l->rows[item->row + p / group];
            set[entry->row][entry->first / QR_CUDA_SPAN_TOKENS] = item->row + 1;
        }
    }
}

static void check_forest(uint64_t seed, uint32_t head_count) {
    static forest f;
    static set_table set;
    const qr_cuda_shape shape = {head_count, 2, 64, BLOCK_TOKENS, QUIRE_KV_F16};
    const qr_cuda_plan_limits limits = {SEQUENCES, SEQUENCES, SPANS * QR_CUDA_SPAN_TOKENS, SEQUENCES * (SPANS + 1)};
    const qr_cuda_launch launch = {1000, 4, 1000}; /* so wide that no first item takes several spans */
    qr_cuda_plan_lists lists;
    qr_cuda_plan *plan;
    grow(&f, seed);
    memset(set, 0, sizeof set);
    cr_assert_eq(qr_cuda_plan_create(&shape, &limits, &launch, &plan, NULL), QUIRE_OK);
    qr_cuda_plan_make(plan, &f.batch, &lists);
    note_sets(&lists, false, head_count / 2, set), note_sets(&lists, true, head_count / 2, set);
    for (uint32_t a = 0; a < f.batch.row_count; a++)
        for (uint32_t b = 0; b < a; b++)
            for (uint32_t span = 0; span < SPANS; span++) {
                if (!set[a][span] || !set[b][span]) continue;
                const bool alike = is_whole(&f, a, b) || agree_to(&f, a, b, (span + 1) * SPAN_BLOCKS);
                cr_assert_eq(set[a][span] == set[b][span], alike, "seed %lu: rows %u and %u, span %u", (unsigned long)seed, a,
                             b, span);
            }
    qr_cuda_plan_destroy(plan);
}

Test(attention_device_plan, rows_meet_wherever_their_tables_agree_and_nowhere_else) {
    for (uint64_t seed = 1; seed <= 400; seed++) check_forest(seed, seed % 2 ? 2 : 16);
}

/* With fewer and fewer cells, until nothing is shared: each row reads each of its positions once, and from its own blocks. */
static void check_reading(uint64_t seed, uint32_t cells_max) {
    static forest f;
    const qr_cuda_shape shape = {2, 2, 64, BLOCK_TOKENS, QUIRE_KV_F16};
    const qr_cuda_launch launch = {1000, 4, 1000};
    uint32_t read[SEQUENCES] = {0};
    qr_cuda_plan_lists l;
    qr_cuda_plan *plan;
    grow(&f, seed);
    const qr_cuda_plan_limits limits = {SEQUENCES, SEQUENCES, SPANS * QR_CUDA_SPAN_TOKENS, cells_max};
    cr_assert_eq(qr_cuda_plan_create(&shape, &limits, &launch, &plan, NULL), QUIRE_OK);
    qr_cuda_plan_make(plan, &f.batch, &l);
    cr_assert_leq(l.cell_count, cells_max);
    for (int wide = 0; wide < 2; wide++)
        for (uint32_t i = 0; i < (wide ? l.wide_count : l.narrow_count); i++) {
            const qr_cuda_item *item = &(wide ? l.wide : l.narrow)[i];
            for (uint32_t p = item->packed_begin; p < item->packed_begin + item->packed_count; p++) {
                const qr_cuda_item_row *e = &l.rows[item->row + p];
                read[e->row] += (uint32_t)(e->limit - e->first);
                for (uint32_t b = (uint32_t)e->first / BLOCK_TOKENS; b <= (uint32_t)(e->limit - 1) / BLOCK_TOKENS; b++)
                    cr_assert_eq(f.ids[item->table + b], f.ids[f.table_begin[e->row] + b], "seed %lu: row %u, block %u",
                                 (unsigned long)seed, e->row, b);
            }
        }
    for (uint32_t row = 0; row < f.batch.row_count; row++) cr_assert_eq(read[row], f.row_position[row] + 1);
    qr_cuda_plan_destroy(plan);
}

Test(attention_device_plan, rows_read_their_own_blocks_however_few_the_cells_are) {
    for (uint64_t seed = 1; seed <= 200; seed++)
        for (uint32_t cells = SEQUENCES * (SPANS + 1); cells >= SEQUENCES; cells -= 13) check_reading(seed, cells);
}

/* Blocks that a window has left are none: two sequences without a block have not the same one. */
Test(attention_device_plan, rows_do_not_meet_in_blocks_that_are_none) {
    const qr_cuda_shape shape = {2, 2, 64, BLOCK_TOKENS, QUIRE_KV_F16};
    const qr_cuda_plan_limits limits = {3, 3, 1024, 64};
    const qr_cuda_launch launch = {1000, 4, 1000};
    quire_block_id ids[3 * 32];
    const uint32_t sequence[] = {0, 1, 2}, position[] = {511, 511, 511}, first[] = {256, 256, 256}, begin[] = {0, 32, 64, 96};
    for (uint32_t i = 0; i < 96; i++) ids[i] = i % 32 < 16 ? QUIRE_BLOCK_NONE : i % 32;
    const qr_attn_batch batch = {3, 3, sequence, position, first, begin, ids};
    qr_cuda_plan_lists lists;
    qr_cuda_plan *plan;
    cr_assert_eq(qr_cuda_plan_create(&shape, &limits, &launch, &plan, NULL), QUIRE_OK);
    qr_cuda_plan_make(plan, &batch, &lists);
    cr_assert_eq(lists.narrow_count, 3);
    cr_assert_eq(lists.row_count, 3);
    qr_cuda_plan_destroy(plan);
}

/* 64 rows of 1,100 tokens, of which 1,024 lie in the same blocks: with a cell for each span and row there are four sets of
 * items over the prefix, with fewer the first one takes more of it, and only where not even that fits each row reads all for
 * itself. */
Test(attention_device_plan, few_cells_make_shared_items_longer_before_sharing_ends) {
    enum { ROWS = 64, TABLE = 69, PREFIX = 64 };
    static const struct {
        uint32_t cells_max, first_limit, wide_count, cell_count;
    } cases[] = {
        {4096, 256, 16, ROWS * 5}, {ROWS * 5 - 1, 512, 12, ROWS * 4}, {ROWS * 4 - 1, 1024, 4, ROWS * 2}, {ROWS, 0, 0, ROWS}};
    const qr_cuda_shape shape = {32, 8, 128, BLOCK_TOKENS, QUIRE_KV_F16};
    const qr_cuda_launch launch = {264, 4, 264};
    static quire_block_id ids[ROWS * TABLE];
    uint32_t sequence[ROWS], position[ROWS], begin[ROWS + 1];
    for (uint32_t s = 0; s < ROWS; s++) {
        sequence[s] = s, position[s] = 1099, begin[s] = s * TABLE;
        for (uint32_t b = 0; b < TABLE; b++) ids[s * TABLE + b] = b < PREFIX ? b : 1000 + s * TABLE + b;
    }
    begin[ROWS] = ROWS * TABLE;
    const qr_attn_batch batch = {ROWS, ROWS, sequence, position, NULL, begin, ids};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const qr_cuda_plan_limits limits = {ROWS, ROWS, 1100, cases[i].cells_max};
        qr_cuda_plan_lists l;
        qr_cuda_plan *plan;
        cr_assert_eq(qr_cuda_plan_create(&shape, &limits, &launch, &plan, NULL), QUIRE_OK);
        qr_cuda_plan_make(plan, &batch, &l);
        cr_assert_eq(l.wide_count, cases[i].wide_count, "case %zu: %u wide", i, l.wide_count);
        cr_assert_eq(l.cell_count, cases[i].cell_count, "case %zu: %u cells", i, l.cell_count);
        if (l.wide_count) cr_assert_eq(l.wide[0].limit, (int32_t)cases[i].first_limit, "case %zu", i);
        qr_cuda_plan_destroy(plan);
    }
}

/* Decode beside prefill chunks of all lengths, so that the lists hold items of many lengths. */
Test(attention_device_plan, items_are_longest_first_and_each_is_there_once) {
    enum { ROWS = 200 };
    const qr_cuda_shape shape = {8, 2, 64, BLOCK_TOKENS, QUIRE_KV_F16};
    const qr_cuda_plan_limits limits = {ROWS, ROWS, 2048, 4096};
    const qr_cuda_launch launch = {2, 4, 2};
    static quire_block_id ids[ROWS * 128];
    uint32_t sequence[ROWS], position[ROWS], begin[ROWS + 1], rows = 0, sequences = 0;
    qr_random random = {5};
    for (uint32_t i = 0; i < ROWS * 128; i++) ids[i] = i;
    while (rows < ROWS) {
        uint32_t at = qr_random_below(&random, 2000),
                 chunk = qr_random_below(&random, 2) ? 1 : 1 + qr_random_below(&random, 40);
        begin[sequences] = sequences * 128;
        for (uint32_t i = 0; i < chunk && rows < ROWS; i++) sequence[rows] = sequences, position[rows++] = at + i;
        sequences++;
    }
    begin[sequences] = sequences * 128;
    const qr_attn_batch batch = {rows, sequences, sequence, position, NULL, begin, ids};
    qr_cuda_plan_lists l;
    qr_cuda_plan *plan;
    cr_assert_eq(qr_cuda_plan_create(&shape, &limits, &launch, &plan, NULL), QUIRE_OK);
    qr_cuda_plan_make(plan, &batch, &l);
    cr_assert(l.narrow_count > 30 && l.wide_count > 10, "%u %u", l.narrow_count, l.wide_count);
    uint8_t *seen = calloc(l.row_count * 4, 1); /* packed rows of all entries: a group of 4 heads each */
    for (int wide = 0; wide < 2; wide++)
        for (uint32_t i = 0; i < (wide ? l.wide_count : l.narrow_count); i++) {
            const qr_cuda_item *item = &(wide ? l.wide : l.narrow)[i];
            if (i) cr_assert_geq(item[-1].limit - item[-1].first, item->limit - item->first);
            for (uint32_t p = 0; p < item->packed_count; p++) seen[item->row * 4 + item->packed_begin + p]++;
        }
    for (uint32_t p = 0; p < l.row_count * 4; p++) cr_assert_eq(seen[p], 1);
    free(seen);
    qr_cuda_plan_destroy(plan);
}
