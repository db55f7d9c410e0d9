#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/kv/kv_rig.h"

Test(kv_cache, a_pin_outlasts_what_is_newer_until_its_time_is_over) {
    quire_kv_config config = rig_config();
    config.block_count = 4;
    quire_kv *kv = rig_create(&config);
    quire_token pinned[32], other[32];
    rig_count_up(pinned, 32, 1);
    rig_run(kv, 0, pinned, 32, 32);
    cr_assert_eq(quire_kv_pin(kv, 0, pinned, 32, 1, 1000), 32);
    for (quire_token i = 0; i < 5; i++) {
        rig_count_up(other, 32, 100 * (i + 1));
        rig_run(kv, 0, other, 32, 32);
    }
    cr_assert_eq(rig_match(kv, 0, pinned, 32).token_count, 32);
    quire_kv_set_time(kv, 1000);
    rig_count_up(other, 32, 900);
    rig_run(kv, 0, other, 32, 32);
    cr_assert_eq(rig_match(kv, 0, pinned, 32).token_count, 0);
    rig_destroy(kv);
}

Test(kv_cache, under_pressure_the_lowest_priority_yields_first) {
    quire_kv_config config = rig_config();
    config.block_count = 4;
    quire_kv *kv = rig_create(&config);
    quire_token low[32], high[32];
    quire_seq_id seq;
    rig_count_up(low, 32, 1);
    rig_count_up(high, 32, 100);
    rig_run(kv, 0, high, 32, 32);
    rig_run(kv, 0, low, 32, 32);
    cr_assert_eq(quire_kv_pin(kv, 0, high, 32, 7, UINT64_MAX), 32);
    cr_assert_eq(quire_kv_pin(kv, 0, low, 40, 3, UINT64_MAX), 32);
    cr_assert_eq(quire_kv_seq_open(kv, 0, &seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_reserve(kv, seq, 17), QUIRE_OK);
    cr_assert_eq(rig_match(kv, 0, low, 32).token_count, 0);
    cr_assert_eq(rig_match(kv, 0, high, 32).token_count, 32);
    cr_assert_eq(quire_kv_seq_reserve(kv, seq, 64), QUIRE_OK, "pins never refuse memory");
    rig_destroy(kv);
}

Test(kv_cache, nothing_to_pin_is_said) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[15];
    rig_count_up(tokens, 15, 1);
    cr_assert_eq(quire_kv_pin(kv, 0, tokens, 15, 1, 1000), 0);
    cr_assert_eq(quire_kv_pin(kv, 77, tokens, 15, 1, 1000), 0);
    rig_destroy(kv);
}

Test(kv_cache, forgetting_frees_what_is_idle_and_hides_what_is_used) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token used[32], idle[32];
    quire_seq_id seq;
    rig_count_up(used, 32, 1);
    rig_count_up(idle, 32, 100);
    rig_start(kv, 0, used, 32, 32, &seq);
    rig_run(kv, 0, idle, 32, 32);
    cr_assert_eq(quire_kv_forget_namespace(kv, 0, false), 2);
    cr_assert_eq(rig_match(kv, 0, used, 32).token_count, 0);
    quire_kv_match match = rig_match(kv, 0, idle, 32);
    cr_assert(match.token_count == 0 && match.miss == QUIRE_KV_MISS_NEVER_STORED, "not even that it was there");
    cr_assert_eq(rig_stats(kv).block_used, 2);
    quire_kv_stats stats = rig_stats(kv);
    rig_close(kv, seq);
    cr_assert_eq(rig_stats(kv).block_free, stats.block_total, "used blocks are forgotten when their user ends");
    rig_destroy(kv);
}

Test(kv_cache, a_forgotten_sequence_goes_on_and_stays_out_of_the_tree) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[64];
    quire_seq_id seq, child;
    rig_count_up(tokens, 64, 1);
    rig_start(kv, 0, tokens, 40, 40, &seq);
    quire_kv_forget_all(kv, false);
    cr_assert_eq(quire_kv_seq_reserve(kv, seq, 64), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_commit(kv, seq, tokens + 40, 24), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_fork(kv, seq, &child), QUIRE_OK);
    cr_assert_eq(rig_match(kv, 0, tokens, 64).token_count, 0);
    rig_run(kv, 0, tokens, 64, 63);
    cr_assert_eq(rig_match(kv, 0, tokens, 64).token_count, 64, "the same tokens computed anew are cached again");
    rig_close(kv, seq);
    rig_close(kv, child);
    cr_assert_eq(rig_stats(kv).block_used, 0);
    rig_destroy(kv);
}

static bool pool_is_zero(quire_kv *kv, const quire_kv_config *config) {
    size_t stride;
    const char *base = quire_kv_pool_base(kv, 0, &stride);
    for (size_t i = 0; i < stride * config->block_count; i++)
        if (base[i]) return false;
    return true;
}

Test(kv_cache, wiping_overwrites_idle_blocks_now_and_used_ones_when_their_users_end) {
    quire_kv_config config = rig_config();
    config.block_count = 8;
    quire_kv *kv = rig_create(&config);
    quire_token used[40], idle[32];
    quire_seq_id seq, child;
    size_t stride;
    rig_count_up(used, 40, 1);
    rig_count_up(idle, 32, 100);
    rig_run(kv, 0, idle, 32, 32);
    rig_start(kv, 0, used, 40, 40, &seq);
    cr_assert_eq(quire_kv_seq_fork(kv, seq, &child), QUIRE_OK);
    char *base = quire_kv_pool_base(kv, 0, &stride);
    for (quire_block_id id = 0; id < 5; id++) memset(base + id * stride, 0x55, stride);
    cr_assert_eq(quire_kv_forget_all(kv, true), 2);
    cr_assert(!pool_is_zero(kv, &config));
    rig_close(kv, seq);
    cr_assert(!pool_is_zero(kv, &config));
    rig_close(kv, child);
    cr_assert(pool_is_zero(kv, &config));
    rig_destroy(kv);
}

Test(kv_cache, a_disabled_cache_keeps_and_matches_nothing) {
    quire_kv_config config = rig_config();
    config.cache_disabled = true;
    quire_kv *kv = rig_create(&config);
    quire_token tokens[64];
    rig_count_up(tokens, 64, 1);
    for (int i = 0; i < 2; i++) {
        quire_kv_match match = rig_run(kv, 0, tokens, 64, 63);
        cr_assert(match.token_count == 0 && match.miss == QUIRE_KV_MISS_DISABLED);
    }
    cr_assert_eq(rig_stats(kv).block_free, 64);
    rig_destroy(kv);
}

Test(kv_cache, check_finds_a_block_that_two_owners_count_differently) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[32];
    quire_seq_id seq;
    uint32_t count;
    quire_error error;
    rig_count_up(tokens, 32, 1);
    rig_start(kv, 0, tokens, 32, 32, &seq);
    quire_block_id *table = (quire_block_id *)(uintptr_t)quire_kv_seq_table(kv, seq, 0, &count), saved = table[1];
    table[1] = table[0];
    cr_assert_eq(quire_kv_check(kv, &error), QUIRE_CORRUPT);
    table[1] = saved;
    rig_destroy(kv);
}

Test(kv_cache, a_sequence_without_a_token_yet_is_forgotten_too) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[32];
    quire_seq_id open, resumed;
    rig_count_up(tokens, 32, 1);
    cr_assert_eq(quire_kv_seq_open(kv, 0, &open), QUIRE_OK);
    quire_kv_forget_all(kv, true);
    cr_assert_eq(quire_kv_seq_open(kv, 0, &resumed), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_forget(kv, resumed, true), QUIRE_OK);
    quire_seq_id both[] = {open, resumed};
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(quire_kv_seq_reserve(kv, both[i], 32), QUIRE_OK);
        cr_assert_eq(quire_kv_seq_forget(kv, both[i], true), QUIRE_INVALID);
        cr_assert_eq(quire_kv_seq_commit(kv, both[i], tokens, 32), QUIRE_OK);
        rig_close(kv, both[i]);
        cr_assert_eq(rig_match(kv, 0, tokens, 32).token_count, 0);
    }
    rig_destroy(kv);
}
