/* Equal block tables are found, against pairwise comparison. */
#include <criterion/criterion.h>

#include "tests/unit/attention/scene.h"

enum { UNITS = 200, SPANS = 6, SPAN_BLOCKS = 16 };

static quire_block_id tables[UNITS][SPANS * SPAN_BLOCKS];

static qr_attn_plan *make_plan(void) {
    qr_attn_shape shape = scene_shape(9, 3, 64, 64, 16, QUIRE_KV_F16, QUIRE_KV_F16);
    qr_attn_limits limits = {UNITS, UNITS, SPANS * QR_ATTN_SPAN_TOKENS, 2};
    qr_attn_plan *plan;
    cr_assert_eq(qr_attn_plan_create(&shape, &limits, &plan, NULL), QUIRE_OK);
    return plan;
}

static uint32_t blocks_in(const attn_unit *u, uint32_t span) {
    uint32_t begin = span * SPAN_BLOCKS;
    return u->block_count <= begin ? 0 : u->block_count - begin < SPAN_BLOCKS ? u->block_count - begin : SPAN_BLOCKS;
}

/* First span in which the two differ. */
static uint32_t common_spans(const attn_unit *a, const attn_unit *b) {
    uint32_t span = 0;
    if (a->span_begin != b->span_begin) return 0;
    for (;; span++) {
        uint32_t count = blocks_in(a, span), at = span * SPAN_BLOCKS;
        if (span < a->span_begin) continue;
        if (count == 0 || count != blocks_in(b, span)) return span;
        if (memcmp(a->ids + at, b->ids + at, count * sizeof *a->ids) != 0) return span;
    }
}

static void check_order(const attn_unit *unit, uint32_t count) {
    bool seen[UNITS] = {false};
    for (uint32_t i = 0; i < count; i++) {
        cr_assert(!seen[unit[i].row]);
        seen[unit[i].row] = true;
        cr_assert_eq(unit[i].same, i > 0 ? common_spans(&unit[i - 1], &unit[i]) : 0, "unit %u", i);
        uint32_t between = UINT32_MAX; /* units with a common prefix have it with all between them */
        for (uint32_t j = i + 1; j < count; j++) {
            if (unit[j].same < between) between = unit[j].same;
            cr_assert_leq(common_spans(&unit[i], &unit[j]), between, "units %u and %u", i, j);
        }
    }
}

Test(attention_plan_order, finds_what_comparison_finds) {
    qr_attn_plan *plan = make_plan();
    for (uint64_t seed = 1; seed <= 60; seed++) {
        qr_random random = {seed};
        uint32_t count = 1 + qr_random_below(&random, UNITS);
        attn_unit unit[UNITS] = {{0}};
        for (uint32_t u = 0; u < count; u++) {
            uint32_t parent = u > 0 ? qr_random_below(&random, u) : 0, blocks = SPANS * SPAN_BLOCKS;
            uint32_t keep = u == 0 ? 0 : qr_random_below(&random, blocks + 1);
            for (uint32_t b = 0; b < blocks; b++)
                tables[u][b] = b < keep ? tables[parent][b] : (uint32_t)qr_random_u64(&random) % (seed % 5 == 0 ? 2 : 1000);
            unit[u].row = u;
            unit[u].ids = tables[u];
            unit[u].block_count = seed % 3 == 0 ? blocks : 1 + qr_random_below(&random, blocks);
            unit[u].span_begin = seed % 4 == 0 ? qr_random_below(&random, (unit[u].block_count + 15) / 16) : 0;
        }
        qr_attn_order_units(plan, unit, count);
        check_order(unit, count);
    }
    qr_attn_plan_destroy(plan);
}

Test(attention_plan_order, keeps_the_order_of_strangers) {
    qr_attn_plan *plan = make_plan();
    attn_unit unit[UNITS] = {{0}};
    for (uint32_t u = 0; u < UNITS; u++) {
        for (uint32_t b = 0; b < SPAN_BLOCKS; b++) tables[u][b] = u * SPAN_BLOCKS + b;
        unit[u] = (attn_unit){.row = u, .ids = tables[u], .block_count = SPAN_BLOCKS};
    }
    qr_attn_order_units(plan, unit, UNITS);
    for (uint32_t u = 0; u < UNITS; u++) cr_assert_eq(unit[u].row, u);
    qr_attn_plan_destroy(plan);
}
