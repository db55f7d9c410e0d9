/* What the items cover, and when spans are stored. */
#include <criterion/criterion.h>

#include "tests/unit/attention/scene.h"

enum { COVER_SPANS = 64 };

static qr_attn_plan *plan_of(const scene *s, int threads, uint32_t cells_max) {
    qr_attn_limits limits = {s->row_count, s->sequence_count, COVER_SPANS * QR_ATTN_SPAN_TOKENS, threads};
    qr_attn_batch batch = {
        s->row_count, s->sequence_count, s->row_sequence, s->row_position, s->windows ? s->row_first : NULL, s->table_begin,
        s->ids};
    qr_attn_plan *plan;
    cr_assert_eq(qr_attn_plan_create(&s->shape, &limits, &plan, NULL), QUIRE_OK);
    if (cells_max < plan->cells_max) plan->cells_max = cells_max;
    qr_attn_plan_make(plan, &batch);
    return plan;
}

/* Every row is in one unit, every unit in one fold item, every stored span of a unit in one store item. */
static void check_cover(const scene *s, const qr_attn_plan *plan) {
    static uint8_t row[SCENE_ROWS], fold[SCENE_ROWS], store[SCENE_ROWS][COVER_SPANS];
    memset(row, 0, sizeof row);
    memset(fold, 0, sizeof fold);
    memset(store, 0, sizeof store);
    for (uint32_t i = 0; i < plan->fold_count; i++)
        for (uint32_t u = 0; u < plan->fold[i].unit_count; u++) fold[plan->fold[i].unit + u]++;
    for (uint32_t i = 0; i < plan->store_count; i++)
        for (uint32_t u = 0; u < plan->store[i].unit_count; u++) store[plan->store[i].unit + u][plan->store[i].span]++;
    for (uint32_t u = 0; u < plan->unit_count; u++) {
        const attn_unit *unit = &plan->unit[u];
        for (uint32_t r = 0; r < unit->row_count; r++) row[unit->row + r]++;
        cr_assert_eq(fold[u], 1);
        for (uint32_t span = 0; span < COVER_SPANS; span++)
            cr_assert_eq(store[u][span], span >= unit->span_begin && span < unit->stored_end, "unit %u, span %u", u, span);
    }
    for (uint32_t r = 0; r < s->row_count; r++) cr_assert_eq(row[r], 1);
    cr_assert_leq(plan->cells_used, plan->cells_max);
}

static scene *smollm(uint32_t blocks) {
    return scene_create(scene_shape(9, 3, 64, 64, 16, QUIRE_KV_F16, QUIRE_KV_F16), blocks, 3);
}

Test(attention_plan_make, every_row_and_span_is_covered_once) {
    static const uint32_t cells[] = {0, 1, 5, 40, UINT32_MAX};
    scene *s = smollm(600);
    scene_add(s, 1000, 1001, 0, 0, 0);
    for (uint32_t i = 0; i < 20; i++) scene_add(s, 800 + i * 9, 801 + i * 9, i / 4, 400 + i * 16, 0);
    scene_add(s, 300, 400, 0, 256, 0);
    scene_add(s, 600, 603, 0, 0, 100);
    for (size_t c = 0; c < sizeof cells / sizeof *cells; c++)
        for (int threads = 1; threads <= 64; threads *= 4) {
            qr_attn_plan *plan = plan_of(s, threads, cells[c]);
            check_cover(s, plan);
            qr_attn_plan_destroy(plan);
        }
    scene_destroy(s);
}

Test(attention_plan_make, one_long_sequence_is_spread_over_threads) {
    scene *s = smollm(300);
    scene_add(s, 4000, 4001, 0, 0, 0);
    qr_attn_plan *plan = plan_of(s, 1, UINT32_MAX);
    cr_assert_eq(plan->store_count, 0, "one thread has nobody to share with");
    qr_attn_plan_destroy(plan);
    plan = plan_of(s, 8, UINT32_MAX);
    cr_assert_eq(plan->store_count, 16, "one item per span, for each KV head");
    qr_attn_cost cost;
    qr_attn_plan_cost(plan, &cost);
    cr_assert_eq(cost.item_count, 17 * 3);
    cr_assert_eq(cost.fma_count, 4001u * 9 * 128);
    cr_assert_eq(cost.kv_bytes, 251u * 16 * 256 * 3);
    qr_attn_plan_destroy(plan);
    scene_destroy(s);
}

Test(attention_plan_make, many_sequences_walk_alone) {
    scene *s = smollm(40 * 64);
    for (int i = 0; i < 40; i++) scene_add(s, 1000, 1001, 0, 0, 0);
    qr_attn_plan *plan = plan_of(s, 2, UINT32_MAX);
    cr_assert_eq(plan->store_count, 0);
    cr_assert_eq(plan->fold_count, 40);
    qr_attn_plan_destroy(plan);
    scene_destroy(s);
}

Test(attention_plan_make, shared_spans_are_read_once) {
    scene *s = smollm(1000);
    scene_add(s, 1100, 1101, 0, 0, 0);
    for (int i = 0; i < 39; i++) scene_add(s, 1100, 1101, 0, 1024, 0);
    qr_attn_plan *plan = plan_of(s, 2, UINT32_MAX);
    cr_assert_eq(plan->store_count, 4, "of each shared span one item for all rows");
    for (uint32_t i = 0; i < 4; i++) cr_assert_eq(plan->store[i].unit_count, 40);
    qr_attn_cost cost;
    qr_attn_plan_cost(plan, &cost);
    cr_assert_eq(cost.kv_bytes, (64u + 40 * 5) * 16 * 256 * 3);
    qr_attn_plan_destroy(plan);
    plan = plan_of(s, 2, 0); /* no room: eight rows at a time walk together */
    cr_assert_eq(plan->store_count, 0);
    cr_assert_eq(plan->fold_count, 5);
    qr_attn_plan_destroy(plan);
    scene_destroy(s);
}

Test(attention_plan_make, a_chunk_counts_its_blocks_once) {
    scene *s = smollm(40);
    scene_add(s, 0, 512, 0, 0, 0);
    qr_attn_plan *plan = plan_of(s, 2, UINT32_MAX);
    qr_attn_cost cost;
    qr_attn_plan_cost(plan, &cost);
    cr_assert_eq(cost.kv_bytes, 32u * 16 * 256 * 3);
    cr_assert_eq(cost.fma_count, 512u * 513 / 2 * 9 * 128);
    qr_attn_plan_destroy(plan);
    scene_destroy(s);
}
