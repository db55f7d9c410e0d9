/* Which blocks are written when, and how many at a time. */
#include <criterion/criterion.h>
#include <string.h>

#include "offload/record.h"
#include "runtime/kv/kv_internal.h"
#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 10 * RIG_BLOCK, LONG = 40 * RIG_BLOCK };

static quire_token prompt[PROMPT], longest[LONG];

static tiers_rig rig_make(quire_kv_disk_write policy, uint32_t blocks) {
    tiers_rig rig = tiers_rig_make();
    rig.config.tiers.disk_write = policy;
    rig.config.block_count = blocks;
    rig.config.max_sequence_tokens = LONG;
    rig.store.record_max = 400;
    rig.store.write_buffers = 100;
    rig_count_up(prompt, PROMPT, 1);
    rig_count_up(longest, LONG, 5000);
    return rig;
}

/* Prompts of one block each, which have nothing in common. */
static void run_small(tiers_rig *rig, uint32_t from, uint32_t to) {
    quire_token small[RIG_BLOCK];
    for (; from < to; from++) {
        rig_count_up(small, RIG_BLOCK, 100000 + 100 * (quire_token)from);
        tiers_rig_run(rig, 0, small, RIG_BLOCK);
    }
}

static uint64_t refused(const tiers_rig *rig, quire_kv_refusal refusal) {
    return tiers_rig_stats(rig).refused_blocks_total[refusal];
}

/* ---- written ahead ---- */

/* While a sixteenth of the pool is free, nothing; below that, until half of what is cached could go at once. */
Test(kv_write_policy, while_little_is_free_half_of_what_is_cached_is_kept_written) {
    tiers_rig rig = rig_make(QUIRE_KV_DISK_EVICT, 32);
    tiers_rig_open(&rig);
    run_small(&rig, 0, 30);
    tiers_rig_settle(&rig);
    cr_assert(rig_stats(rig.kv).block_free == 2 && fake_store_record_count(rig.fake) == 0);
    run_small(&rig, 30, 31);
    tiers_rig_round(&rig);
    tiers_rig_round(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), KV_WRITES_PER_POLL, "a few in each round");
    cr_assert_eq(quire_kv_poll_after_us(rig.kv), 0);
    tiers_rig_settle(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 16, "15 of 31 are not");
    cr_assert_eq(quire_kv_poll_after_us(rig.kv), UINT64_MAX);
    run_small(&rig, 31, 32);
    tiers_rig_settle(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 16, "16 of 32 are");
    tiers_rig_close(&rig);
}

/* Half is enough, but not of the next victim's own way down. */
Test(kv_write_policy, the_way_to_the_next_victim_is_written_whole) {
    tiers_rig rig = rig_make(QUIRE_KV_DISK_EVICT, 32);
    qr_record_id record;
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, longest, 24 * RIG_BLOCK);
    run_small(&rig, 0, 7);
    tiers_rig_settle(&rig);
    cr_assert(fake_store_find(rig.fake, longest + 23 * RIG_BLOCK, 24, &record));
    cr_assert_eq(fake_store_record_count(rig.fake), 24);
    tiers_rig_close(&rig);
}

Test(kv_write_policy, nothing_is_written_ahead_while_space_is_short_that_nobody_came_back_to) {
    tiers_rig rig = rig_make(QUIRE_KV_DISK_EVICT, 32);
    tiers_rig_open(&rig);
    fake_store_faults_of(rig.fake)->space_short = true;
    tiers_rig_settle(&rig);
    run_small(&rig, 0, 31);
    tiers_rig_settle(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 0);
    cr_assert_gt(refused(&rig, QUIRE_KV_REFUSED_ONE_TOUCH), 0);
    tiers_rig_close(&rig);
}

/* ---- in idle time ---- */

/* Each block is looked at once in an idle time, so many in each poll; the next one looks again. */
Test(kv_write_policy, each_idle_time_looks_at_everything_once) {
    tiers_rig rig = rig_make(QUIRE_KV_DISK_EVICT, 200);
    quire_token small[RIG_BLOCK];
    tiers_rig_open(&rig);
    run_small(&rig, 0, 100);
    tiers_rig_settle(&rig);
    quire_kv_set_idle(rig.kv, true);
    tiers_rig_round(&rig);
    cr_assert_eq(quire_kv_poll_after_us(rig.kv), 0, "only %d of a hundred in one poll", KV_LOOKS_PER_POLL);
    tiers_rig_round(&rig);
    cr_assert_eq(quire_kv_poll_after_us(rig.kv), UINT64_MAX);
    quire_kv_set_idle(rig.kv, true); /* it still is */
    tiers_rig_round(&rig);
    cr_assert_eq(quire_kv_poll_after_us(rig.kv), UINT64_MAX);
    quire_kv_set_idle(rig.kv, false);
    for (int i = 98; i < 100; i++) {
        rig_count_up(small, RIG_BLOCK, 100000 + 100 * i);
        tiers_rig_run(&rig, 0, small, RIG_BLOCK);
    }
    cr_assert_eq(fake_store_record_count(rig.fake), 0);
    quire_kv_set_idle(rig.kv, true);
    tiers_rig_settle(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 2);
    tiers_rig_close(&rig);
}

/* Four in a poll; more when nobody computes; one while somebody waits for reads. */
Test(kv_write_policy, the_more_others_wait_the_fewer_are_written) {
    for (int idle = 0; idle < 2; idle++) {
        tiers_rig rig = rig_make(QUIRE_KV_DISK_COMPLETE, 64);
        quire_seq_id seq;
        tiers_rig_open(&rig);
        tiers_rig_run(&rig, 0, prompt, PROMPT);
        tiers_rig_settle(&rig);
        quire_kv_evict(rig.kv, 100);
        quire_kv_set_idle(rig.kv, idle);
        run_small(&rig, 0, 40);
        fake_store_hold(rig.fake, true);
        tiers_rig_round(&rig);
        cr_assert_eq(tiers_rig_stats(&rig).tiers[QUIRE_KV_TIER_DISK].stores_queued,
                     idle ? KV_WRITES_PER_IDLE_POLL : KV_WRITES_PER_POLL);
        tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
        uint32_t before = tiers_rig_stats(&rig).tiers[QUIRE_KV_TIER_DISK].stores_queued;
        tiers_rig_round(&rig);
        cr_assert_eq(tiers_rig_stats(&rig).tiers[QUIRE_KV_TIER_DISK].stores_queued, before + 1);
        fake_store_hold(rig.fake, false);
        rig_close(rig.kv, seq);
        tiers_rig_close(&rig);
    }
}

Test(kv_write_policy, a_poll_looks_at_so_many_that_are_not_written) {
    tiers_rig rig = rig_make(QUIRE_KV_DISK_COMPLETE, 200);
    tiers_rig_open(&rig);
    fake_store_faults_of(rig.fake)->space_short = true;
    tiers_rig_settle(&rig);
    run_small(&rig, 0, 100);
    tiers_rig_round(&rig);
    cr_assert_eq(refused(&rig, QUIRE_KV_REFUSED_ONE_TOUCH), KV_LOOKS_PER_POLL);
    cr_assert_eq(quire_kv_poll_after_us(rig.kv), 0);
    tiers_rig_settle(&rig);
    cr_assert(refused(&rig, QUIRE_KV_REFUSED_ONE_TOUCH) == 100 && fake_store_record_count(rig.fake) == 0);
    tiers_rig_close(&rig);
}

Test(kv_write_policy, switched_off_nothing_is_written_for_any_reason) {
    tiers_rig rig = rig_make(QUIRE_KV_DISK_OFF, 32);
    tiers_rig_open(&rig);
    run_small(&rig, 0, 31);
    run_small(&rig, 0, 31); /* and nobody could say that it was not wanted */
    tiers_rig_settle(&rig);
    quire_kv_set_idle(rig.kv, true);
    tiers_rig_settle(&rig);
    quire_kv_evict(rig.kv, 5);
    tiers_rig_settle(&rig);
    quire_kv_flush_begin(rig.kv);
    tiers_rig_settle(&rig);
    cr_assert(fake_store_record_count(rig.fake) == 0 && quire_kv_flush_left(rig.kv) == 0);
    tiers_rig_close(&rig);
}

/* ---- at eviction ---- */

/* A long way down is written in parts, which the next call goes on with. */
Test(kv_write_policy, one_eviction_begins_so_many_writes) {
    tiers_rig rig = rig_make(QUIRE_KV_DISK_EVICT, 64);
    tiers_rig_open(&rig);
    rig.now_us = UINT64_C(3600) * 1000000;
    tiers_rig_round(&rig);
    tiers_rig_run(&rig, 0, longest, LONG);
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 0);
    cr_assert_eq(tiers_rig_stats(&rig).tiers[QUIRE_KV_TIER_DISK].stores_queued, KV_WRITES_AT_EVICTION);
    cr_assert(quire_kv_busy(rig.kv));
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 1);
    cr_assert_not(quire_kv_busy(rig.kv));
    tiers_rig_settle(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 40);
    tiers_rig_close(&rig);
}

/* Law 4: what is slower to load than to compute is worth no wait; until somebody loads again. */
Test(kv_write_policy, no_eviction_waits_for_a_disk_that_is_not_worth_a_load) {
    tiers_rig rig = rig_make(QUIRE_KV_DISK_EVICT, 64);
    quire_seq_id seq;
    tiers_rig_open(&rig);
    rig.now_us = UINT64_C(3600) * 1000000;
    tiers_rig_run(&rig, 0, prompt, RIG_BLOCK);
    quire_kv_evict(rig.kv, 1);
    tiers_rig_settle(&rig);
    tiers_rig_run(&rig, 0, longest, 20 * RIG_BLOCK);
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_BUSY;
    cr_assert(quire_kv_evict(rig.kv, 1) == 0 && quire_kv_busy(rig.kv));
    quire_kv_count_refusal(rig.kv, QUIRE_KV_REFUSED_SLOWER, 1);
    cr_assert(quire_kv_evict(rig.kv, 1) == 1 && !quire_kv_busy(rig.kv), "the wait under way ends too");
    cr_assert(quire_kv_evict(rig.kv, 1) == 1 && refused(&rig, QUIRE_KV_REFUSED_BUSY) == 2);
    tiers_rig_load(&rig, 0, prompt, RIG_BLOCK, false, &seq);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, RIG_BLOCK, 0), RIG_BLOCK);
    rig_close(rig.kv, seq);
    cr_assert(quire_kv_evict(rig.kv, 1) == 0 && quire_kv_busy(rig.kv));
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_NONE;
    tiers_rig_close(&rig);
}

/* ---- refusals ---- */

Test(kv_write_policy, each_refusal_is_counted_as_what_it_is) {
    static const struct {
        qr_store_refusal given;
        quire_kv_refusal counted;
    } cases[] = {{QR_STORE_NO_SPACE, QUIRE_KV_REFUSED_NO_SPACE}, {QR_STORE_BUDGET, QUIRE_KV_REFUSED_BUDGET},
                 {QR_STORE_KEY, QUIRE_KV_REFUSED_KEY},           {QR_STORE_PARENT, QUIRE_KV_REFUSED_PARENT},
                 {QR_STORE_BROKEN, QUIRE_KV_REFUSED_BROKEN},     {QR_STORE_READ_ONLY, QUIRE_KV_REFUSED_BROKEN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tiers_rig rig = rig_make(QUIRE_KV_DISK_COMPLETE, 32);
        tiers_rig_open(&rig);
        fake_store_faults_of(rig.fake)->refuse = cases[i].given;
        run_small(&rig, 0, 3);
        tiers_rig_settle(&rig);
        for (int r = 0; r < QUIRE_KV_REFUSED_COUNT; r++)
            cr_assert_eq(refused(&rig, (quire_kv_refusal)r), r == (int)cases[i].counted ? 3 : 0, "case %zu, refusal %d", i, r);
        tiers_rig_close(&rig);
    }
}

Test(kv_write_policy, the_longest_key_that_a_record_can_hold_is_written) {
    static unsigned char key[QR_RECORD_KEY_MAX];
    tiers_rig rig = rig_make(QUIRE_KV_DISK_COMPLETE, 32);
    quire_namespace_id ns;
    tiers_rig_open(&rig);
    memset(key, 7, sizeof key);
    cr_assert_eq(quire_kv_namespace_open(rig.kv, key, sizeof key, &ns), QUIRE_OK);
    tiers_rig_run(&rig, ns, prompt, 2 * RIG_BLOCK);
    tiers_rig_settle(&rig);
    cr_assert(fake_store_record_count(rig.fake) == 2 && refused(&rig, QUIRE_KV_REFUSED_KEY) == 0);
    tiers_rig_restart(&rig);
    cr_assert(quire_kv_namespace_find(rig.kv, key, sizeof key, &ns));
    cr_assert_eq(rig_match(rig.kv, ns, prompt, PROMPT).stored_tokens, 2 * RIG_BLOCK);
    tiers_rig_close(&rig);
}

/* For ten seconds after a record was lost or not written nothing is written twice: what hangs on it waits, all else goes on. */
Test(kv_write_policy, after_a_failure_what_hangs_on_it_waits_and_nothing_else) {
    tiers_rig rig = rig_make(QUIRE_KV_DISK_COMPLETE, 32);
    qr_record_id record;
    tiers_rig_open(&rig);
    fake_store_faults_of(rig.fake)->put_fail_percent = 100;
    tiers_rig_run(&rig, 0, prompt, 2 * RIG_BLOCK);
    tiers_rig_settle(&rig);
    fake_store_faults_of(rig.fake)->put_fail_percent = 0;
    tiers_rig_run(&rig, 0, prompt, 3 * RIG_BLOCK);
    run_small(&rig, 0, 1);
    tiers_rig_settle(&rig);
    cr_assert(fake_store_record_count(rig.fake) == 1 && refused(&rig, QUIRE_KV_REFUSED_PARENT) == 1);
    rig.now_us += KV_CALM_US;
    tiers_rig_run(&rig, 0, prompt, 4 * RIG_BLOCK);
    tiers_rig_settle(&rig);
    cr_assert(fake_store_find(rig.fake, prompt + 3 * RIG_BLOCK, 4, &record));
    cr_assert(fake_store_record_count(rig.fake) == 5 && refused(&rig, QUIRE_KV_REFUSED_PARENT) == 1);
    tiers_rig_close(&rig);
}

/* ---- use ---- */

/* A store makes room by what was used longest ago: it hears of every use, attached or loaded. */
Test(kv_write_policy, records_that_are_used_outlive_those_that_are_not) {
    for (int loads = 0; loads < 2; loads++) {
        tiers_rig rig = rig_make(QUIRE_KV_DISK_COMPLETE, 32);
        quire_seq_id seq;
        rig.store.record_max = 8;
        tiers_rig_open(&rig);
        tiers_rig_run(&rig, 0, prompt, 4 * RIG_BLOCK);
        tiers_rig_settle(&rig);
        run_small(&rig, 0, 4);
        tiers_rig_settle(&rig);
        cr_assert_eq(fake_store_record_count(rig.fake), 8);
        if (loads) quire_kv_evict(rig.kv, 100);
        if (loads) {
            tiers_rig_load(&rig, 0, prompt, 4 * RIG_BLOCK, false, &seq);
            tiers_rig_finish(&rig, seq, prompt, 4 * RIG_BLOCK, 0);
            rig_close(rig.kv, seq);
        } else {
            tiers_rig_run(&rig, 0, prompt, 4 * RIG_BLOCK);
        }
        run_small(&rig, 10, 14);
        tiers_rig_settle(&rig);
        cr_assert_eq(fake_store_record_count(rig.fake), 8);
        for (uint32_t depth = 1; depth <= 4; depth++)
            cr_assert(fake_store_find(rig.fake, prompt + (depth - 1) * RIG_BLOCK, depth, &(qr_record_id){0}));
        tiers_rig_close(&rig);
    }
}

/* Whoever waits for a write hears of it. */
Test(kv_write_policy, a_poll_says_when_a_record_is_published) {
    tiers_rig rig = rig_make(QUIRE_KV_DISK_COMPLETE, 32);
    tiers_rig_open(&rig);
    fake_store_hold(rig.fake, true);
    run_small(&rig, 0, 1);
    tiers_rig_settle(&rig);
    cr_assert_not(tiers_rig_round(&rig));
    fake_store_hold(rig.fake, false);
    cr_assert(tiers_rig_round(&rig));
    cr_assert_not(tiers_rig_round(&rig));
    tiers_rig_close(&rig);
}
