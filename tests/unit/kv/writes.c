/* When records are written, and when they are not. */
#include <criterion/criterion.h>
#include <string.h>

#include "offload/record.h"
#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 10 * RIG_BLOCK };

static quire_token prompt[PROMPT], other[PROMPT];

static tiers_rig rig_open_with(quire_kv_disk_write policy) {
    tiers_rig rig = tiers_rig_make();
    rig.config.tiers.disk_write = policy;
    rig_count_up(prompt, PROMPT, 1);
    rig_count_up(other, PROMPT, 1000);
    tiers_rig_open(&rig);
    return rig;
}

static uint64_t refused(const tiers_rig *rig, quire_kv_refusal refusal) {
    return tiers_rig_stats(rig).refused_blocks_total[refusal];
}

Test(kv_writes, complete_blocks_are_written_a_few_in_each_round) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_COMPLETE);
    qr_record_id record;
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_round(&rig);
    cr_assert_eq(quire_kv_poll_after_us(rig.kv), 0);
    tiers_rig_round(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 4);
    for (uint32_t depth = 1; depth <= 4; depth++) /* parents first */
        cr_assert(fake_store_find(rig.fake, prompt + (depth - 1) * RIG_BLOCK, depth, &record));
    tiers_rig_settle(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 10);
    cr_assert_eq(quire_kv_poll_after_us(rig.kv), UINT64_MAX);
    tiers_rig_close(&rig);
}

Test(kv_writes, a_full_disk_is_not_asked_again_and_again) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_COMPLETE);
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_NO_SPACE;
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_settle(&rig);
    cr_assert_eq(refused(&rig, QUIRE_KV_REFUSED_NO_SPACE), 10);
    tiers_rig_settle(&rig);
    cr_assert_eq(refused(&rig, QUIRE_KV_REFUSED_NO_SPACE), 10);
    /* There is space again: what is evicted is written, its beginning first, and so is what is new. */
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_NONE;
    quire_kv_evict(rig.kv, 10);
    tiers_rig_round(&rig);
    quire_kv_evict(rig.kv, 10);
    tiers_rig_run(&rig, 0, other, RIG_BLOCK);
    tiers_rig_settle(&rig);
    cr_assert_gt(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, 0);
    cr_assert(fake_store_find(rig.fake, other, 1, &(qr_record_id){0}));
    tiers_rig_close(&rig);
}

Test(kv_writes, while_space_is_short_only_what_was_used_twice_is_written) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_COMPLETE);
    fake_store_faults_of(rig.fake)->space_short = true;
    tiers_rig_round(&rig);
    tiers_rig_run(&rig, 0, prompt, 3 * RIG_BLOCK);
    tiers_rig_settle(&rig);
    cr_assert(fake_store_record_count(rig.fake) == 0 && refused(&rig, QUIRE_KV_REFUSED_ONE_TOUCH) == 3);
    tiers_rig_run(&rig, 0, prompt, 2 * RIG_BLOCK);
    quire_kv_evict(rig.kv, 3);
    tiers_rig_settle(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 2);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, 3 * RIG_BLOCK).stored_tokens, 2 * RIG_BLOCK);
    tiers_rig_close(&rig);
}

Test(kv_writes, a_failed_write_leaves_the_block_where_it_is) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_COMPLETE);
    fake_store_faults_of(rig.fake)->put_fail_percent = 100;
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_settle(&rig);
    cr_assert(fake_store_record_count(rig.fake) == 0 && rig_match(rig.kv, 0, prompt, PROMPT).token_count == PROMPT);
    uint64_t errors = tiers_rig_stats(&rig).tiers[QUIRE_KV_TIER_DISK].error_total;
    tiers_rig_settle(&rig);
    cr_assert_eq(tiers_rig_stats(&rig).tiers[QUIRE_KV_TIER_DISK].error_total, errors); /* no storm */
    fake_store_faults_of(rig.fake)->put_fail_percent = 0;
    quire_kv_flush_begin(rig.kv);
    tiers_rig_settle(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 10);
    tiers_rig_close(&rig);
}

Test(kv_writes, a_block_evicted_while_its_write_fails_is_gone_with_what_hangs_on_it) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_COMPLETE);
    fake_store_hold(rig.fake, true);
    fake_store_faults_of(rig.fake)->put_fail_percent = 100;
    tiers_rig_run(&rig, 0, prompt, 4 * RIG_BLOCK);
    tiers_rig_round(&rig);
    quire_kv_evict(rig.kv, 4);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, 0); /* being written is not there yet */
    fake_store_hold(rig.fake, false);
    tiers_rig_settle(&rig);
    quire_kv_match match = rig_match(rig.kv, 0, prompt, PROMPT);
    cr_assert(match.stored_tokens == 0 && match.miss == QUIRE_KV_MISS_EVICTED);
    tiers_rig_close(&rig);
}

Test(kv_writes, at_eviction_a_victim_and_all_that_comes_before_it) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_EVICT);
    tiers_rig_run(&rig, 0, prompt, 6 * RIG_BLOCK);
    tiers_rig_settle(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 0);
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 1);
    tiers_rig_settle(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 6);
    quire_kv_match match = rig_match(rig.kv, 0, prompt, 6 * RIG_BLOCK);
    cr_assert(match.token_count == 5 * RIG_BLOCK && match.stored_tokens == RIG_BLOCK && match.miss == QUIRE_KV_MISS_NONE);
    tiers_rig_close(&rig);
}

Test(kv_writes, at_eviction_without_a_buffer_the_block_is_lost_and_counted) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_EVICT);
    rig.now_us = UINT64_C(3600) * 1000000; /* nothing waited for an hour */
    tiers_rig_round(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    fake_store_hold(rig.fake, true);
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 0); /* eight buffers, ten blocks: it waits a moment */
    cr_assert(quire_kv_busy(rig.kv) && quire_kv_poll_after_us(rig.kv) == 100000);
    cr_assert_eq(refused(&rig, QUIRE_KV_REFUSED_BUSY), 0);
    for (int i = 0; i < 99; i++) tiers_rig_round(&rig);
    cr_assert(quire_kv_busy(rig.kv) && quire_kv_poll_after_us(rig.kv) == 1000);
    cr_assert(tiers_rig_round(&rig) && !quire_kv_busy(rig.kv));
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 1); /* and then no more for a while */
    cr_assert_eq(refused(&rig, QUIRE_KV_REFUSED_BUSY), 1);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).miss, QUIRE_KV_MISS_EVICTED);
    fake_store_hold(rig.fake, false);
    tiers_rig_settle(&rig);
    tiers_rig_close(&rig);
}

Test(kv_writes, before_memory_is_needed_writing_begins) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_EVICT);
    quire_token longest[16 * RIG_BLOCK];
    rig_count_up(longest, 16 * RIG_BLOCK, 5);
    tiers_rig_run(&rig, 0, longest, 16 * RIG_BLOCK);
    tiers_rig_settle(&rig);
    cr_assert_gt(fake_store_record_count(rig.fake), 0);
    tiers_rig_close(&rig);
}

Test(kv_writes, in_idle_time_what_somebody_came_back_to) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_EVICT);
    tiers_rig_run(&rig, 0, other, 3 * RIG_BLOCK);
    tiers_rig_run(&rig, 0, prompt, 4 * RIG_BLOCK);
    tiers_rig_run(&rig, 0, prompt, 4 * RIG_BLOCK);
    quire_kv_set_idle(rig.kv, true);
    tiers_rig_settle(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 4);
    cr_assert_eq(quire_kv_poll_after_us(rig.kv), UINT64_MAX);
    tiers_rig_close(&rig);
}

Test(kv_writes, switched_off_nothing_is_written_and_what_is_there_is_read) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_COMPLETE);
    quire_seq_id seq;
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_settle(&rig);
    rig.config.tiers.disk_write = QUIRE_KV_DISK_OFF;
    tiers_rig_restart(&rig);
    tiers_rig_run(&rig, 0, other, 3 * RIG_BLOCK);
    tiers_rig_settle(&rig);
    quire_kv_flush_begin(rig.kv);
    tiers_rig_settle(&rig);
    cr_assert(fake_store_record_count(rig.fake) == 10 && quire_kv_flush_left(rig.kv) == 0);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), PROMPT);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_writes, a_key_that_no_record_can_hold_is_refused) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_COMPLETE);
    static unsigned char key[QR_RECORD_KEY_MAX + 1];
    quire_namespace_id ns;
    memset(key, 7, sizeof key);
    cr_assert_eq(quire_kv_namespace_open(rig.kv, key, sizeof key, &ns), QUIRE_OK);
    tiers_rig_run(&rig, ns, prompt, 2 * RIG_BLOCK);
    tiers_rig_settle(&rig);
    cr_assert(refused(&rig, QUIRE_KV_REFUSED_KEY) == 2 && fake_store_record_count(rig.fake) == 0);
    tiers_rig_close(&rig);
}

Test(kv_writes, a_flush_counts_down_and_a_restart_finds_all_of_it) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_EVICT);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_run(&rig, 0, other, 4 * RIG_BLOCK);
    quire_kv_flush_begin(rig.kv);
    uint32_t left = quire_kv_flush_left(rig.kv);
    cr_assert_eq(left, 15); /* and the seal */
    for (int rounds = 0; left > 0; rounds++) {
        cr_assert_lt(rounds, 100);
        tiers_rig_round(&rig);
        cr_assert_leq(quire_kv_flush_left(rig.kv), left);
        left = quire_kv_flush_left(rig.kv);
    }
    fake_store_kill(rig.fake);
    tiers_rig_restart(&rig);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, PROMPT);
    cr_assert_eq(rig_match(rig.kv, 0, other, 4 * RIG_BLOCK).stored_tokens, 4 * RIG_BLOCK);
    tiers_rig_close(&rig);
}

Test(kv_writes, a_flush_into_nothing_ends_too) {
    static const qr_store_refusal refusals[] = {QR_STORE_NO_SPACE, QR_STORE_BUDGET, QR_STORE_BROKEN, QR_STORE_READ_ONLY};
    for (int i = 0; i < 4; i++) {
        tiers_rig rig = rig_open_with(QUIRE_KV_DISK_EVICT);
        tiers_rig_run(&rig, 0, prompt, PROMPT);
        fake_store_faults_of(rig.fake)->refuse = refusals[i];
        quire_kv_flush_begin(rig.kv);
        tiers_rig_settle(&rig);
        cr_assert_eq(quire_kv_flush_left(rig.kv), 0);
        uint64_t sum = 0;
        for (int r = 0; r < QUIRE_KV_REFUSED_COUNT; r++) sum += refused(&rig, (quire_kv_refusal)r);
        cr_assert_eq(sum, 10);
        tiers_rig_close(&rig);
    }
}

Test(kv_writes, a_flush_reaches_what_only_host_memory_has) {
    tiers_rig rig = tiers_rig_make();
    rig.config.tiers.disk_write = QUIRE_KV_DISK_EVICT;
    rig.host_slots = 12;
    rig.device_sim = true;
    rig.device.delay_polls_max = 3;
    rig_count_up(prompt, PROMPT, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    quire_kv_evict(rig.kv, 5);
    tiers_rig_settle(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 0);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, 5 * RIG_BLOCK);
    quire_kv_flush_begin(rig.kv);
    tiers_rig_settle(&rig);
    cr_assert(quire_kv_flush_left(rig.kv) == 0 && fake_store_record_count(rig.fake) == 10);
    tiers_rig_restart(&rig);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, PROMPT);
    tiers_rig_close(&rig);
}

Test(kv_writes, forgetting_takes_records_along_and_erases_them) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_COMPLETE);
    quire_namespace_id ns;
    cr_assert_eq(quire_kv_namespace_open(rig.kv, "who", 3, &ns), QUIRE_OK);
    tiers_rig_run(&rig, ns, prompt, PROMPT);
    tiers_rig_run(&rig, 0, other, 2 * RIG_BLOCK);
    tiers_rig_settle(&rig);
    quire_kv_forget_namespace(rig.kv, ns, true);
    cr_assert(fake_store_record_count(rig.fake) == 2 && fake_store_erased(rig.fake) == 10);
    cr_assert_eq(quire_kv_erasing(rig.kv), 0);
    quire_kv_forget_all(rig.kv, false);
    cr_assert(fake_store_record_count(rig.fake) == 0 && fake_store_erased(rig.fake) == 10);
    cr_assert_eq(rig_match(rig.kv, ns, prompt, PROMPT).stored_tokens, 0);
    tiers_rig_close(&rig);
}

/* The store has noted that a child is gone when the loss of its parent drops it, and says so when the number is another's. */
Test(kv_writes, news_of_a_dropped_record_is_not_taken_for_its_successor) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_EVICT);
    qr_record_id record;
    tiers_rig_run(&rig, 0, prompt, 8 * RIG_BLOCK);
    quire_kv_flush_begin(rig.kv);
    tiers_rig_settle(&rig);
    quire_kv_evict(rig.kv, 8);
    fake_store_faults_of(rig.fake)->late_events = true;
    for (uint32_t depth = 1; depth <= 8; depth++) {
        cr_assert(fake_store_find(rig.fake, prompt + (depth - 1) * RIG_BLOCK, depth, &record));
        fake_store_lose(rig.fake, record);
    }
    tiers_rig_round(&rig); /* tells of the first, and of some others */
    tiers_rig_run(&rig, 0, other, 8 * RIG_BLOCK);
    quire_kv_evict(rig.kv, 8); /* has the numbers now, before all is told */
    tiers_rig_settle(&rig);
    cr_assert_geq(fake_store_record_count(rig.fake), 8);
    cr_assert_eq(rig_match(rig.kv, 0, other, 8 * RIG_BLOCK).miss, QUIRE_KV_MISS_NONE);
    tiers_rig_close(&rig);
}

/* A victim that waits is kept when a buffer comes, and all waits together take a tenth of the time. */
Test(kv_writes, an_eviction_waits_for_a_buffer_and_never_long) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_EVICT);
    rig.now_us = UINT64_C(3600) * 1000000;
    tiers_rig_round(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 0);
    tiers_rig_round(&rig);
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 1);
    cr_assert_not(quire_kv_busy(rig.kv));
    tiers_rig_settle(&rig);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, RIG_BLOCK);
    tiers_rig_run(&rig, 0, other, 6 * RIG_BLOCK);
    fake_store_hold(rig.fake, true);
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_BUSY;
    uint32_t waited = 0;
    for (int i = 0; i < 1000; i++) {
        quire_kv_evict(rig.kv, 16);
        if (i % 100 == 0) tiers_rig_run(&rig, 0, other, RIG_BLOCK);
        waited += quire_kv_busy(rig.kv);
        tiers_rig_round(&rig);
    }
    cr_assert(waited >= 100 && waited <= 210, "%u", waited);
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_NONE;
    fake_store_hold(rig.fake, false);
    tiers_rig_close(&rig);
}

enum { TALKS = 16, TALK = 16 * RIG_BLOCK };

/* Conversations of 16 blocks, four times as many as the pool holds, one after the other; a block of 360 KiB is computed in two
 * milliseconds and written at 200 MB/s. Returns how much of 64 prompts was there, in percent. */
static uint32_t hits_when_evicted(quire_kv_policy policy) {
    tiers_rig rig = tiers_rig_make();
    static quire_token talk[TALK];
    uint64_t hits = 0;
    rig.config.block_count = 64;
    rig.config.policy = policy;
    rig.config.tiers.disk_write = QUIRE_KV_DISK_EVICT;
    rig.store.record_max = 600;
    rig.store.record_bytes = 360 * 1024;
    rig.store.write_bytes_per_second = rig.store.read_bytes_per_second = 200000000;
    tiers_rig_open(&rig);
    for (uint32_t turn = 0; turn < 5 * TALKS; turn++) {
        quire_seq_id seq;
        rig_count_up(talk, TALK, 1 + (quire_token)(turn % TALKS) * 1000);
        tiers_rig_load(&rig, 0, talk, TALK, false, &seq);
        uint32_t found = tiers_rig_finish(&rig, seq, talk, TALK, 0);
        quire_kv_seq_info info;
        cr_assert_eq(quire_kv_seq_get(rig.kv, seq, &info), QUIRE_OK);
        if (turn >= TALKS) hits += info.token_count;
        cr_assert_leq(found, info.token_count);
        for (uint32_t at = info.token_count; at < TALK; at += RIG_BLOCK) {
            tiers_rig_round(&rig);
            tiers_rig_round(&rig);
            tiers_rig_compute(&rig, seq, talk, at, at + RIG_BLOCK);
        }
        rig_close(rig.kv, seq);
    }
    tiers_rig_close(&rig);
    return (uint32_t)(hits * 100 / (4 * TALKS * TALK));
}

Test(kv_writes, conversations_that_are_evicted_as_a_whole_survive) {
    uint32_t lru = hits_when_evicted(QUIRE_KV_LRU), dlfu = hits_when_evicted(QUIRE_KV_DLFU);
    cr_assert(lru >= 95 && dlfu >= 95, "%u %% with lru, %u %% with dlfu", lru, dlfu);
}

Test(kv_writes, a_flush_says_what_it_left_out) {
    tiers_rig rig = rig_open_with(QUIRE_KV_DISK_EVICT);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_NO_SPACE;
    quire_kv_flush_begin(rig.kv);
    tiers_rig_settle(&rig);
    cr_assert(quire_kv_flush_left(rig.kv) == 0 && tiers_rig_stats(&rig).flush_refused == 10);
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_NONE;
    fake_store_faults_of(rig.fake)->put_fail_percent = 100; /* begun, and lost again */
    quire_kv_flush_begin(rig.kv);
    tiers_rig_settle(&rig);
    cr_assert_eq(tiers_rig_stats(&rig).flush_refused, 10);
    fake_store_faults_of(rig.fake)->put_fail_percent = 0;
    quire_kv_flush_begin(rig.kv);
    cr_assert(tiers_rig_stats(&rig).flush_failed, "not before it has ended");
    tiers_rig_settle(&rig);
    cr_assert(tiers_rig_stats(&rig).flush_refused == 0 && !tiers_rig_stats(&rig).flush_failed);
    tiers_rig_close(&rig);
}
