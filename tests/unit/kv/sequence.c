#include <criterion/criterion.h>

#include "tests/unit/kv/kv_rig.h"

static float *value_at(quire_kv *kv, quire_seq_id seq, uint32_t position) {
    size_t stride;
    uint32_t count;
    char *base = quire_kv_pool_base(kv, 0, &stride);
    const quire_block_id *table = quire_kv_seq_table(kv, seq, 0, &count);
    return (float *)(void *)(base + table[position / RIG_BLOCK] * stride + quire_kv_part_offset(kv, 0, 0, 0, QUIRE_KV_VALUES)) +
           position % RIG_BLOCK;
}

Test(kv_sequence, a_fork_shares_a_part_filled_block_until_one_writes) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[40];
    quire_seq_id parent, child;
    quire_kv_seq_info info;
    uint32_t count;
    rig_count_up(tokens, 40, 1);
    rig_start(kv, 0, tokens, 40, 39, &parent);
    *value_at(kv, parent, 39) = 39;
    cr_assert_eq(quire_kv_seq_fork(kv, parent, &child), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_get(kv, parent, &info), QUIRE_OK);
    cr_assert_eq(info.reserved_tokens, 40, "what is shared may not be written");
    cr_assert_eq(quire_kv_seq_commit(kv, parent, tokens, 1), QUIRE_INVALID);
    cr_assert_eq(quire_kv_seq_reserve(kv, child, 41), QUIRE_OK);
    cr_assert_neq(value_at(kv, parent, 39), value_at(kv, child, 39));
    cr_assert_eq(*value_at(kv, child, 39), 39, "the copy has its bytes");
    cr_assert_eq(quire_kv_seq_get(kv, parent, &info), QUIRE_OK);
    cr_assert_eq(info.reserved_tokens, 48, "alone again, the parent writes in place");
    cr_assert_eq(quire_kv_seq_table(kv, child, 0, &count)[0], quire_kv_seq_table(kv, parent, 0, &count)[0]);
    cr_assert_eq(rig_stats(kv).copied_blocks_total, 1);
    rig_destroy(kv);
}

Test(kv_sequence, an_equal_block_is_stored_once) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[32];
    quire_seq_id a, b;
    uint32_t count;
    rig_count_up(tokens, 32, 1);
    cr_assert_eq(quire_kv_seq_open(kv, 0, &b), QUIRE_OK); /* computes the same without having attached */
    cr_assert_eq(quire_kv_seq_reserve(kv, b, 32), QUIRE_OK);
    rig_start(kv, 0, tokens, 32, 0, &a);
    cr_assert_eq(rig_stats(kv).block_used, 4);
    cr_assert_eq(quire_kv_seq_commit(kv, b, tokens, 32), QUIRE_OK);
    quire_kv_stats stats = rig_stats(kv);
    cr_assert(stats.block_used == 2 && stats.deduplicated_blocks_total == 2);
    cr_assert_arr_eq(quire_kv_seq_table(kv, a, 0, &count), quire_kv_seq_table(kv, b, 0, &count), 2 * sizeof(quire_block_id));
    rig_destroy(kv);
}

Test(kv_sequence, a_tail_is_copied_into_a_fresh_block) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[32], other[32];
    quire_seq_id a, b;
    quire_kv_match match;
    rig_count_up(tokens, 32, 1);
    rig_count_up(other, 32, 1);
    other[25] = -1;
    rig_start(kv, 0, tokens, 32, 0, &a);
    for (uint32_t i = 0; i < 32; i++) *value_at(kv, a, i) = (float)i;
    match = rig_start(kv, 0, other, 32, 31, &b);
    cr_assert(match.block_count == 1 && match.tail_tokens == 9 && match.miss == QUIRE_KV_MISS_DIVERGED);
    cr_assert_eq(value_at(kv, a, 3), value_at(kv, b, 3));
    cr_assert_neq(value_at(kv, a, 20), value_at(kv, b, 20));
    for (uint32_t i = 0; i < 25; i++) cr_assert_eq(*value_at(kv, b, i), (float)i);
    rig_destroy(kv);
}

Test(kv_sequence, a_tail_is_left_out_when_no_block_can_be_had) {
    quire_kv_config config = rig_config();
    config.block_count = 2;
    quire_kv *kv = rig_create(&config);
    quire_token tokens[32];
    quire_seq_id a, b;
    quire_kv_match match;
    rig_count_up(tokens, 32, 1);
    rig_start(kv, 0, tokens, 32, 32, &a);
    cr_assert_eq(quire_kv_seq_open(kv, 0, &b), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_attach(kv, b, tokens, 32, 31, &match), QUIRE_OK);
    cr_assert(match.token_count == 16 && match.tail_tokens == 0);
    rig_close(kv, a);
    rig_close(kv, b);
    /* The source is the only block that could be evicted: it is not, for its own copy. */
    cr_assert_eq(quire_kv_seq_open(kv, 0, &b), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_attach(kv, b, tokens, 32, 31, &match), QUIRE_OK);
    cr_assert_eq(match.token_count, 16);
    rig_destroy(kv);
}

Test(kv_sequence, truncating_into_a_cached_block_writes_to_a_copy) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[32], changed[32];
    quire_seq_id seq;
    rig_count_up(tokens, 32, 1);
    rig_count_up(changed, 32, 1);
    for (int i = 20; i < 32; i++) changed[i] = -i;
    rig_start(kv, 0, tokens, 32, 0, &seq);
    cr_assert_eq(quire_kv_seq_truncate(kv, seq, 33), QUIRE_INVALID);
    cr_assert_eq(quire_kv_seq_truncate(kv, seq, 20), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_commit(kv, seq, changed + 20, 1), QUIRE_INVALID, "not before it is reserved");
    cr_assert_eq(quire_kv_seq_reserve(kv, seq, 32), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_commit(kv, seq, changed + 20, 12), QUIRE_OK);
    cr_assert_eq(rig_match(kv, 0, tokens, 32).token_count, 32);
    cr_assert_eq(rig_match(kv, 0, changed, 32).token_count, 32);
    rig_destroy(kv);
}

Test(kv_sequence, ids_are_refused_after_close_and_when_made_up) {
    quire_kv_config config = rig_config();
    config.max_sequences = 1;
    quire_kv *kv = rig_create(&config);
    quire_seq_id seq, again, full;
    uint32_t count;
    cr_assert_eq(quire_kv_seq_open(kv, 0, &seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_open(kv, 0, &full), QUIRE_NO_MEMORY);
    cr_assert_eq(full.generation, 0);
    rig_close(kv, seq);
    cr_assert_eq(quire_kv_seq_open(kv, 0, &again), QUIRE_OK);
    cr_assert(again.index == seq.index && again.generation != seq.generation);
    cr_assert_eq(quire_kv_seq_close(kv, seq), QUIRE_NOT_FOUND);
    cr_assert_null(quire_kv_seq_table(kv, seq, 0, &count));
    cr_assert_eq(quire_kv_seq_open(kv, 3, &full), QUIRE_NOT_FOUND, "no such namespace");
    cr_assert_eq(quire_kv_seq_open(kv, 99, &full), QUIRE_NOT_FOUND);
    rig_destroy(kv);
}

Test(kv_sequence, groups_have_tables_of_their_own) {
    quire_kv_config config = rig_config();
    config.group_count = 2;
    config.groups[1] = (quire_kv_group){3, 2, 64, 64, QUIRE_KV_F16, QUIRE_KV_F16};
    quire_kv *kv = rig_create(&config);
    quire_token tokens[40];
    quire_seq_id seq;
    uint32_t first, second;
    rig_count_up(tokens, 40, 1);
    rig_run(kv, 0, tokens, 40, 39);
    quire_kv_match match = rig_start(kv, 0, tokens, 40, 39, &seq);
    cr_assert_eq(match.token_count, 32);
    cr_assert_not_null(quire_kv_seq_table(kv, seq, 0, &first));
    cr_assert_not_null(quire_kv_seq_table(kv, seq, 1, &second));
    cr_assert(first == 3 && second == 3);
    cr_assert_null(quire_kv_seq_table(kv, seq, 2, &second));
    rig_destroy(kv);
}
