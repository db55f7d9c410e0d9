/* A flush: what it writes, in which order, how much at most, and when it may say that it is done. */
#include <criterion/criterion.h>

#include "runtime/kv/kv_internal.h"
#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 10 * RIG_BLOCK, OTHER = 4 * RIG_BLOCK };

static quire_token prompt[PROMPT], other[OTHER];

static tiers_rig rig_open(void) {
    tiers_rig rig = tiers_rig_make();
    rig.config.tiers.disk_write = QUIRE_KV_DISK_EVICT;
    rig_count_up(prompt, PROMPT, 1);
    rig_count_up(other, OTHER, 1000);
    tiers_rig_open(&rig);
    return rig;
}

static void flush(tiers_rig *rig) {
    quire_kv_flush_begin(rig->kv);
    for (int rounds = 0; quire_kv_flush_left(rig->kv) > 0; rounds++) {
        cr_assert_lt(rounds, 1000, "a flush that does not end");
        tiers_rig_round(rig);
    }
}

/* How many blocks of these tokens have a published record, from the first on. */
static uint32_t on_disk(const tiers_rig *rig, const quire_token *tokens, uint32_t blocks) {
    qr_record_id record;
    uint32_t count = 0;
    while (count < blocks && fake_store_find(rig->fake, tokens + count * RIG_BLOCK, count + 1, &record)) count++;
    return count;
}

static uint64_t no_space(const tiers_rig *rig) { return tiers_rig_stats(rig).refused_blocks_total[QUIRE_KV_REFUSED_NO_SPACE]; }

/* ---- how much ---- */

Test(kv_flush, writes_no_more_than_lasts) {
    tiers_rig rig = rig_open();
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    fake_store_faults_of(rig.fake)->lasting_max = 6;
    flush(&rig);
    cr_assert(fake_store_record_count(rig.fake) == 6 && on_disk(&rig, prompt, 10) == 6);
    cr_assert(no_space(&rig) == 4 && tiers_rig_stats(&rig).flush_refused == 4 && !tiers_rig_stats(&rig).flush_failed);
    tiers_rig_close(&rig);
}

/* They would be thrown out first. */
Test(kv_flush, leaves_room_for_what_is_cached_and_there_already) {
    tiers_rig rig = rig_open();
    tiers_rig_run(&rig, 0, other, OTHER);
    flush(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    fake_store_faults_of(rig.fake)->lasting_max = 6;
    flush(&rig);
    cr_assert(on_disk(&rig, other, 4) == 4 && on_disk(&rig, prompt, 10) == 2);
    cr_assert(no_space(&rig) == 8 && tiers_rig_stats(&rig).flush_refused == 8);
    fake_store_faults_of(rig.fake)->lasting_max = 3; /* less than there is */
    flush(&rig);
    cr_assert(fake_store_record_count(rig.fake) == 6 && tiers_rig_stats(&rig).flush_refused == 8);
    tiers_rig_close(&rig);
}

/* Only what was carried since it began takes of its room. */
Test(kv_flush, what_is_carried_along_takes_of_its_room) {
    tiers_rig rig = rig_open();
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    fake_store_faults_of(rig.fake)->lasting_max = 6;
    fake_store_faults_of(rig.fake)->carried_total = 100;
    quire_kv_flush_begin(rig.kv);
    fake_store_faults_of(rig.fake)->carried_total = 102;
    tiers_rig_settle(&rig);
    cr_assert(quire_kv_flush_left(rig.kv) == 0 && fake_store_record_count(rig.fake) == 4);
    cr_assert_eq(tiers_rig_stats(&rig).flush_refused, 6);
    tiers_rig_close(&rig);
}

Test(kv_flush, what_is_worth_most_comes_first) {
    tiers_rig rig = rig_open();
    tiers_rig_run(&rig, 0, prompt, OTHER);
    tiers_rig_run(&rig, 0, other, OTHER);
    fake_store_faults_of(rig.fake)->lasting_max = 4;
    flush(&rig);
    cr_assert(on_disk(&rig, other, 4) == 4 && on_disk(&rig, prompt, 4) == 0);
    tiers_rig_close(&rig);
}

/* ---- host memory ---- */

/* All of so many blocks lies in the device, behind which is room for it. */
static tiers_rig rig_open_host(uint32_t blocks, uint32_t write_buffers, uint32_t delay, quire_token *words) {
    tiers_rig rig = tiers_rig_make();
    rig.config.tiers.disk_write = QUIRE_KV_DISK_EVICT;
    rig.config.block_count = blocks;
    rig.config.max_sequence_tokens = blocks * RIG_BLOCK;
    rig.store.record_max = 2 * blocks;
    rig.store.write_buffers = write_buffers;
    rig.host_slots = blocks;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 6, .delay_polls_max = delay};
    rig_count_up(words, blocks * RIG_BLOCK, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, words, blocks * RIG_BLOCK);
    return rig;
}

/* More than there are buffers, and more than one poll may write: the owner's thread has other things to do. */
Test(kv_flush, reaches_all_that_only_host_memory_has) {
    static quire_token words[80 * RIG_BLOCK];
    for (uint32_t buffers = 8; buffers <= 100; buffers += 92) {
        tiers_rig rig = rig_open_host(80, buffers, 0, words);
        quire_kv_evict(rig.kv, 80);
        tiers_rig_settle(&rig);
        cr_assert_eq(tiers_rig_stats(&rig).tiers[QUIRE_KV_TIER_HOST].block_count, 80);
        quire_kv_flush_begin(rig.kv);
        cr_assert_eq(quire_kv_flush_left(rig.kv), 81);
        for (uint32_t rounds = 0, before = 0; quire_kv_flush_left(rig.kv) > 0; rounds++) {
            tiers_rig_round(&rig);
            if (buffers == 100 && rounds == 0) cr_assert_eq(quire_kv_poll_after_us(rig.kv), 0, "there is more to do");
            uint32_t begun = fake_store_record_count(rig.fake) + fake_store_held_buffers(rig.fake);
            cr_assert(begun - before <= KV_WRITES_PER_FLUSH_POLL && rounds < 200);
            before = begun;
        }
        cr_assert(on_disk(&rig, words, 80) == 80 && tiers_rig_stats(&rig).flush_refused == 0);
        tiers_rig_close(&rig);
    }
}

Test(kv_flush, of_host_memory_no_more_than_lasts_either) {
    static quire_token words[16 * RIG_BLOCK];
    tiers_rig rig = rig_open_host(16, 8, 0, words);
    quire_kv_evict(rig.kv, 10);
    tiers_rig_settle(&rig);
    fake_store_faults_of(rig.fake)->lasting_max = 9; /* 6 are resident */
    flush(&rig);
    cr_assert(on_disk(&rig, words, 16) == 9 && no_space(&rig) == 7 && tiers_rig_stats(&rig).flush_refused == 7);
    tiers_rig_close(&rig);
}

/* A slot that is still being filled is written when it is. */
Test(kv_flush, waits_for_copies_to_host_memory) {
    static quire_token words[16 * RIG_BLOCK];
    tiers_rig rig = rig_open_host(16, 8, 40, words);
    quire_seq_id seq;
    quire_kv_evict(rig.kv, 10);
    cr_assert_gt(rig.kv->tiers.gathers.count, 5);
    flush(&rig);
    cr_assert_eq(on_disk(&rig, words, 16), 16);
    tiers_rig_settle(&rig);
    tiers_rig_restart(&rig);
    tiers_rig_load(&rig, 0, words, 16 * RIG_BLOCK, false, &seq);
    cr_assert_eq(tiers_rig_finish(&rig, seq, words, 16 * RIG_BLOCK, 0), 16 * RIG_BLOCK);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* ---- the end ---- */

/* What the device still copies when the last write is begun is on disk when the flush says so. */
Test(kv_flush, is_over_when_all_of_it_would_survive_a_kill) {
    static quire_token words[16 * RIG_BLOCK];
    tiers_rig rig = rig_open_host(16, 16, 200, words);
    rig.host_slots = 0;
    flush(&rig);
    fake_store_kill(rig.fake);
    tiers_rig_restart(&rig);
    cr_assert_eq(rig_match(rig.kv, 0, words, 16 * RIG_BLOCK).stored_tokens, 16 * RIG_BLOCK);
    tiers_rig_close(&rig);
}

/* The first seal is on its way when its flush is given up for another: it says nothing about what was written since. */
Test(kv_flush, the_seal_of_an_earlier_one_does_not_end_it) {
    tiers_rig rig = rig_open();
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    fake_store_faults_of(rig.fake)->seals_kept = 2;
    quire_kv_flush_begin(rig.kv);
    tiers_rig_settle(&rig);
    cr_assert_eq(quire_kv_flush_left(rig.kv), 1);
    quire_kv_flush_end(rig.kv);
    cr_assert_eq(quire_kv_flush_left(rig.kv), 0);
    tiers_rig_run(&rig, 0, other, OTHER);
    quire_kv_flush_begin(rig.kv);
    tiers_rig_settle(&rig);
    fake_store_faults_of(rig.fake)->seals_kept = 1;
    tiers_rig_settle(&rig);
    cr_assert(quire_kv_flush_left(rig.kv) == 1 && tiers_rig_stats(&rig).flush_failed);
    fake_store_faults_of(rig.fake)->seals_kept = 0;
    tiers_rig_settle(&rig);
    cr_assert(quire_kv_flush_left(rig.kv) == 0 && !tiers_rig_stats(&rig).flush_failed);
    tiers_rig_close(&rig);
}

/* Nor does it while the next one still writes. */
Test(kv_flush, an_earlier_seal_comes_while_the_next_one_writes) {
    tiers_rig rig = rig_open();
    tiers_rig_run(&rig, 0, other, OTHER);
    fake_store_faults_of(rig.fake)->seals_kept = 1;
    quire_kv_flush_begin(rig.kv);
    tiers_rig_settle(&rig);
    quire_kv_flush_end(rig.kv);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_BUSY;
    quire_kv_flush_begin(rig.kv);
    tiers_rig_round(&rig);
    fake_store_faults_of(rig.fake)->seals_kept = 0;
    tiers_rig_settle(&rig);
    cr_assert_eq(quire_kv_flush_left(rig.kv), 11);
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_NONE;
    tiers_rig_settle(&rig);
    cr_assert(quire_kv_flush_left(rig.kv) == 0 && on_disk(&rig, prompt, 10) == 10);
    tiers_rig_close(&rig);
}

Test(kv_flush, a_seal_that_failed_is_a_flush_that_failed) {
    tiers_rig rig = rig_open();
    tiers_rig_run(&rig, 0, other, OTHER);
    fake_store_faults_of(rig.fake)->seal_status = QUIRE_IO;
    flush(&rig);
    cr_assert(tiers_rig_stats(&rig).flush_failed && tiers_rig_stats(&rig).flush_refused == 0);
    fake_store_faults_of(rig.fake)->seal_status = QUIRE_OK;
    flush(&rig);
    cr_assert_not(tiers_rig_stats(&rig).flush_failed);
    tiers_rig_close(&rig);
}

/* The figures are the latest flush's from its begin on. */
Test(kv_flush, begins_with_clean_figures) {
    tiers_rig rig = rig_open();
    tiers_rig_run(&rig, 0, other, OTHER);
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_NO_SPACE;
    flush(&rig);
    cr_assert(tiers_rig_stats(&rig).flush_refused == 4 && !tiers_rig_stats(&rig).flush_failed);
    quire_kv_flush_begin(rig.kv);
    cr_assert(tiers_rig_stats(&rig).flush_refused == 0 && tiers_rig_stats(&rig).flush_failed);
    quire_kv_flush_end(rig.kv);
    tiers_rig_settle(&rig);
    cr_assert(tiers_rig_stats(&rig).flush_refused == 0 && tiers_rig_stats(&rig).flush_failed, "it has not ended by itself");
    tiers_rig_close(&rig);
}

/* ---- what happens meanwhile ---- */

Test(kv_flush, ends_although_what_it_was_to_write_is_evicted) {
    tiers_rig rig = rig_open();
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    quire_kv_flush_begin(rig.kv);
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_NO_SPACE;
    cr_assert_eq(quire_kv_evict(rig.kv, 7), 7);
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_NONE;
    cr_assert_eq(quire_kv_flush_left(rig.kv), 4);
    tiers_rig_settle(&rig);
    cr_assert(quire_kv_flush_left(rig.kv) == 0 && on_disk(&rig, prompt, 10) == 3);
    cr_assert_eq(tiers_rig_stats(&rig).flush_refused, 0, "what is not cached any more was not left out");
    tiers_rig_close(&rig);
}

/* They come behind what it began with, and are the next one's. */
Test(kv_flush, what_is_computed_meanwhile_was_not_left_out) {
    tiers_rig rig = rig_open();
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    fake_store_faults_of(rig.fake)->seals_kept = 1;
    quire_kv_flush_begin(rig.kv);
    tiers_rig_settle(&rig);
    tiers_rig_run(&rig, 0, other, OTHER);
    fake_store_faults_of(rig.fake)->seals_kept = 0;
    tiers_rig_settle(&rig);
    cr_assert(quire_kv_flush_left(rig.kv) == 0 && tiers_rig_stats(&rig).flush_refused == 0);
    cr_assert_eq(on_disk(&rig, other, 4), 0);
    tiers_rig_close(&rig);
}

Test(kv_flush, what_is_computed_while_it_writes_is_not_written_by_it) {
    tiers_rig rig = rig_open();
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_BUSY;
    quire_kv_flush_begin(rig.kv);
    tiers_rig_round(&rig);
    tiers_rig_run(&rig, 0, other, OTHER);
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_NONE;
    cr_assert_eq(quire_kv_flush_left(rig.kv), 11);
    while (quire_kv_flush_left(rig.kv) > 0) tiers_rig_round(&rig);
    cr_assert(on_disk(&rig, prompt, 10) == 10 && on_disk(&rig, other, 4) == 0);
    cr_assert_eq(tiers_rig_stats(&rig).flush_refused, 0);
    tiers_rig_close(&rig);
}

/* What an earlier flush wrote may go to make room; what this one wrote must not: then it has reached its end. */
Test(kv_flush, ends_when_what_it_wrote_itself_is_lost) {
    for (int own = 0; own < 2; own++) {
        tiers_rig rig = rig_open();
        qr_record_id record;
        tiers_rig_run(&rig, 0, other, OTHER);
        if (!own) flush(&rig);
        tiers_rig_run(&rig, 0, prompt, PROMPT);
        quire_kv_flush_begin(rig.kv);
        fake_store_faults_of(rig.fake)->refuse = QR_STORE_BUSY;
        if (own) fake_store_faults_of(rig.fake)->refuse = QR_STORE_NONE;
        tiers_rig_round(&rig); /* eight buffers */
        fake_store_faults_of(rig.fake)->refuse = QR_STORE_BUSY;
        tiers_rig_settle(&rig);
        cr_assert_eq(fake_store_record_count(rig.fake), own ? 8 : 4);
        cr_assert(fake_store_find(rig.fake, own ? prompt + 7 * RIG_BLOCK : other + 3 * RIG_BLOCK, own ? 8 : 4, &record));
        fake_store_lose(rig.fake, record);
        fake_store_faults_of(rig.fake)->refuse = QR_STORE_NONE;
        tiers_rig_settle(&rig);
        cr_assert_eq(quire_kv_flush_left(rig.kv), 0);
        cr_assert_eq(on_disk(&rig, prompt, 10), own ? 7 : 10);
        cr_assert_eq(tiers_rig_stats(&rig).flush_refused, own ? 14 - 7 : 1);
        tiers_rig_close(&rig);
    }
}
