/* Recomputed blocks against what is stored of them. */
#include <criterion/criterion.h>

#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 8 * RIG_BLOCK };

static quire_token prompt[PROMPT];

static void rig_prepare(tiers_rig *rig) {
    rig->config.tiers.verify_every = 1;
    rig_count_up(prompt, PROMPT, 1);
    tiers_rig_open(rig);
    tiers_rig_run(rig, 0, prompt, PROMPT);
    tiers_rig_settle(rig);
    quire_kv_evict(rig->kv, 1000);
    tiers_rig_settle(rig);
    cr_assert_eq(rig_match(rig->kv, 0, prompt, PROMPT).stored_tokens, PROMPT);
}

static void rig_verify(tiers_rig *rig) {
    quire_seq_id seq;
    cr_assert(quire_kv_verify_next(rig->kv));
    tiers_rig_load(rig, 0, prompt, PROMPT, true, &seq);
    cr_assert_not(tiers_rig_state(rig, seq).active);
    tiers_rig_compute(rig, seq, prompt, 0, PROMPT);
    rig_close(rig->kv, seq);
    tiers_rig_settle(rig);
}

static void flip(tiers_rig *rig, uint32_t depth, size_t offset) {
    qr_record_id record;
    cr_assert(fake_store_find(rig->fake, prompt + (depth - 1) * RIG_BLOCK, depth, &record));
    ((unsigned char *)fake_store_payload(rig->fake, record))[offset] ^= 4;
}

Test(kv_verify, equal_blocks_are_counted_and_kept) {
    for (int sim = 0; sim < 2; sim++) {
        tiers_rig rig = tiers_rig_make();
        rig.device_sim = sim;
        rig.device.delay_polls_max = 3;
        rig_prepare(&rig);
        rig_verify(&rig);
        quire_kv_tiers_stats stats = tiers_rig_stats(&rig);
        cr_assert(stats.verified_blocks_total == 8 && stats.verify_mismatches_total == 0);
        cr_assert_eq(fake_store_record_count(rig.fake), 8);
        tiers_rig_close(&rig);
    }
}

Test(kv_verify, a_record_that_differs_is_dropped_and_written_again) {
    tiers_rig rig = tiers_rig_make();
    rig_prepare(&rig);
    flip(&rig, 3, 2);
    rig_verify(&rig);
    cr_assert_eq(tiers_rig_stats(&rig).verify_mismatches_total, 1);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).token_count, PROMPT);
    quire_kv_evict(rig.kv, 1000);
    tiers_rig_settle(&rig);
    rig_verify(&rig);
    cr_assert_eq(tiers_rig_stats(&rig).verify_mismatches_total, 1);
    tiers_rig_close(&rig);
}

Test(kv_verify, padding_is_not_compared) {
    tiers_rig rig = tiers_rig_make();
    rig_prepare(&rig);
    flip(&rig, 3, 4095); /* the first group's block is mostly padding */
    rig_verify(&rig);
    cr_assert_eq(tiers_rig_stats(&rig).verify_mismatches_total, 0);
    tiers_rig_close(&rig);
}

Test(kv_verify, the_second_group_is_compared_too) {
    tiers_rig rig = tiers_rig_make();
    rig_prepare(&rig);
    flip(&rig, 8, quire_kv_block_bytes(&rig.config.groups[0], RIG_BLOCK) + 1);
    rig_verify(&rig);
    cr_assert_eq(tiers_rig_stats(&rig).verify_mismatches_total, 1);
    tiers_rig_close(&rig);
}

Test(kv_verify, host_memory_is_compared_as_well) {
    tiers_rig rig = tiers_rig_make();
    rig.no_store = true;
    rig.host_slots = 16;
    rig.device_sim = true;
    rig.device.delay_polls_max = 3;
    rig_prepare(&rig);
    rig_verify(&rig);
    quire_kv_tiers_stats stats = tiers_rig_stats(&rig);
    cr_assert(stats.verified_blocks_total == 8 && stats.verify_mismatches_total == 0);
    cr_assert_eq(stats.tiers[QUIRE_KV_TIER_HOST].block_count, 0);
    tiers_rig_close(&rig);
}

Test(kv_verify, a_damaged_record_is_dropped_without_a_comparison) {
    tiers_rig rig = tiers_rig_make();
    qr_record_id record;
    rig_prepare(&rig);
    cr_assert(fake_store_find(rig.fake, prompt + 7 * RIG_BLOCK, 8, &record));
    fake_store_damage(rig.fake, record);
    rig_verify(&rig);
    quire_kv_tiers_stats stats = tiers_rig_stats(&rig);
    cr_assert(stats.verified_blocks_total == 7 && stats.verify_mismatches_total == 0);
    cr_assert_eq(stats.tiers[QUIRE_KV_TIER_DISK].damaged_total, 1);
    tiers_rig_close(&rig);
}

Test(kv_verify, every_nth_is_counted) {
    tiers_rig rig = tiers_rig_make();
    rig.config.tiers.verify_every = 3;
    tiers_rig_open(&rig);
    for (int i = 1; i <= 9; i++) cr_assert_eq(quire_kv_verify_next(rig.kv), i % 3 == 0);
    tiers_rig_close(&rig);
}
