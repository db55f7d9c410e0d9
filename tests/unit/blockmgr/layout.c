#include "blockmgr/layout.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static quire_kv_group group_of(uint32_t layers, uint32_t heads, uint32_t key_dim, uint32_t value_dim, quire_kv_type type) {
    return (quire_kv_group){layers, heads, key_dim, value_dim, type, type};
}

/* R40: planned bytes per token, from declared heads and lengths. */
Test(blockmgr_layout, R40_bytes_per_token_of_known_models) {
    quire_kv_group llama3_8b = group_of(32, 8, 128, 128, QUIRE_KV_F16);
    quire_kv_group forty_layers = group_of(40, 8, 128, 128, QUIRE_KV_F16);
    quire_kv_group unequal = group_of(36, 8, 192, 128, QUIRE_KV_F16);
    quire_kv_group thirty_six = group_of(36, 8, 128, 128, QUIRE_KV_F16);
    cr_assert_eq(qr_layout_token_bytes(&llama3_8b), 128 * 1024);
    cr_assert_eq(qr_layout_token_bytes(&llama3_8b) * 8192, UINT64_C(1) << 30);
    cr_assert_eq(qr_layout_token_bytes(&forty_layers), 163840);
    cr_assert_eq(qr_layout_token_bytes(&unequal), 184320);
    cr_assert_eq(qr_layout_token_bytes(&thirty_six) * 32768, (UINT64_C(9) << 30) / 2);
}

Test(blockmgr_layout, scales_are_part_of_a_quantised_token) {
    quire_kv_group group = group_of(2, 3, 64, 64, QUIRE_KV_INT8);
    cr_assert_eq(qr_layout_token_bytes(&group), 2 * 3 * (64 + 64 + 4 + 4));
}

Test(blockmgr_layout, whole_pages_and_no_padding_where_sizes_fit) {
    quire_kv_group llama3_8b = group_of(32, 8, 128, 128, QUIRE_KV_F16), tiny = group_of(1, 1, 1, 1, QUIRE_KV_F32);
    cr_assert_eq(qr_layout_block_bytes(&llama3_8b, 16), 16 * 128 * 1024);
    cr_assert_eq(qr_layout_block_bytes(&tiny, 1), 4096);
}

Test(blockmgr_layout, invalid_or_wrapping_shapes_have_no_size) {
    quire_kv_group good = group_of(1, 1, 8, 8, QUIRE_KV_F16), bad;
    uint32_t *fields[] = {&bad.layer_count, &bad.kv_head_count, &bad.key_dim, &bad.value_dim};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        bad = good;
        *fields[i] = 0;
        cr_assert_eq(qr_layout_block_bytes(&bad, 16), 0);
    }
    bad = good;
    bad.key_type = QUIRE_KV_TYPE_COUNT;
    cr_assert_eq(qr_layout_block_bytes(&bad, 16), 0);
    cr_assert_eq(qr_layout_block_bytes(&good, 0), 0);
    bad = group_of(UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, QUIRE_KV_F32);
    cr_assert_eq(qr_layout_block_bytes(&bad, UINT32_MAX), 0);
    bad = group_of(UINT32_MAX, UINT32_MAX, 1, 1, QUIRE_KV_F32);
    cr_assert_eq(qr_layout_block_bytes(&bad, 16), 0);
}

/* Parts are aligned, in order, inside the block, and overlap nowhere. */
static void check_parts(const quire_kv_group *group, uint32_t block_tokens) {
    qr_layout layout;
    qr_arena arena = {0};
    uint64_t end = 0;
    qr_layout_init(&layout, group, block_tokens, &arena);
    arena = (qr_arena){.base = calloc(1, arena.used_bytes), .size_bytes = arena.used_bytes};
    void *memory = arena.base;
    qr_layout_init(&layout, group, block_tokens, &arena);
    for (uint32_t layer = 0; layer < group->layer_count; layer++)
        for (uint32_t head = 0; head < group->kv_head_count; head++)
            for (int part = 0; part < QR_LAYOUT_PARTS; part++) {
                const qr_layout_part *found = qr_layout_find(&layout, layer, head, (quire_kv_part)part);
                cr_assert(found && found->offset_bytes >= end && found->offset_bytes % QR_LAYOUT_PART_ALIGNMENT == 0);
                end = found->offset_bytes + found->size_bytes;
            }
    cr_assert(end <= layout.block_bytes && layout.block_bytes - end < QR_LAYOUT_BLOCK_ALIGNMENT + QR_LAYOUT_PART_ALIGNMENT);
    cr_assert_null(qr_layout_find(&layout, group->layer_count, 0, QUIRE_KV_KEYS));
    cr_assert_null(qr_layout_find(&layout, 0, group->kv_head_count, QUIRE_KV_KEYS));
    free(memory);
}

Test(blockmgr_layout, parts_are_aligned_and_disjoint) {
    for (int type = 0; type < QUIRE_KV_TYPE_COUNT; type++)
        for (uint32_t dim = 1; dim <= 128; dim += 21) {
            quire_kv_group group = group_of(3, 2, dim, dim + 5, (quire_kv_type)type);
            check_parts(&group, 1);
            check_parts(&group, 16);
        }
}
