/* Recomputed blocks against what is stored of them. */
#include <criterion/criterion.h>

#include "runtime/kv/kv_internal.h"
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
    qr_record_id record;
    cr_assert(fake_store_find(rig.fake, prompt + 2 * RIG_BLOCK, 3, &record), "without waiting for its eviction");
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
    cr_assert_not(fake_store_find(rig.fake, prompt + 7 * RIG_BLOCK, 8, &record));
    tiers_rig_close(&rig);
}

Test(kv_verify, every_nth_is_counted) {
    tiers_rig rig = tiers_rig_make();
    rig.config.tiers.verify_every = 3;
    tiers_rig_open(&rig);
    for (int i = 1; i <= 9; i++) cr_assert_eq(quire_kv_verify_next(rig.kv), i % 3 == 0);
    tiers_rig_close(&rig);
}

/* Evicted while its record was being read: it is known to be wrong all the same, and nobody may load it. */
Test(kv_verify, a_record_that_differs_is_dropped_although_its_node_was_evicted) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig_prepare(&rig);
    flip(&rig, 8, 1);
    tiers_rig_load(&rig, 0, prompt, PROMPT, true, &seq);
    tiers_rig_compute(&rig, seq, prompt, 0, PROMPT);
    rig_close(rig.kv, seq);
    fake_store_hold(rig.fake, true);
    tiers_rig_round(&rig);
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 1);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, RIG_BLOCK);
    fake_store_hold(rig.fake, false);
    tiers_rig_settle(&rig);
    quire_kv_tiers_stats stats = tiers_rig_stats(&rig);
    cr_assert(stats.verify_mismatches_total == 1 && stats.verified_blocks_total == 8 && stats.troubles_total == 1);
    quire_kv_match match = rig_match(rig.kv, 0, prompt, PROMPT);
    cr_assert(match.token_count == 7 * RIG_BLOCK && match.stored_tokens == 0 && match.miss == QUIRE_KV_MISS_DAMAGED);
    tiers_rig_close(&rig);
}

/* Written since the bytes were read: it is not what is compared. */
Test(kv_verify, a_newer_record_is_left_alone) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    quire_token small[RIG_BLOCK];
    qr_record_id old, newer;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 5, .delay_polls_max = 2000};
    rig_count_up(small, RIG_BLOCK, 7000);
    rig_prepare(&rig);
    cr_assert(fake_store_find(rig.fake, prompt + 7 * RIG_BLOCK, 8, &old));
    flip(&rig, 8, 1);
    tiers_rig_load(&rig, 0, prompt, PROMPT, true, &seq);
    tiers_rig_compute(&rig, seq, prompt, 0, PROMPT);
    kv_verify_job *job = &rig.kv->tiers.jobs[7];
    for (int i = 0; i < 10000 && job->state != KV_VERIFY_COPYING; i++) tiers_rig_round(&rig);
    cr_assert(job->state == KV_VERIFY_COPYING && job->record == old);
    qr_kv_lose(rig.kv, job->node, QR_GHOST_EVICTED, true, QR_RECORD_NONE);
    tiers_rig_run(&rig, 0, small, RIG_BLOCK); /* has its number now */
    qr_tree_list_unsaved(&rig.kv->tree, job->node);
    qr_node_id node = job->node;
    for (int i = 0; i < 3; i++) tiers_rig_round(&rig);
    uint32_t begun = qr_tree_record(&rig.kv->tree, node);
    cr_assert(job->state == KV_VERIFY_COPYING && begun != QR_COPY_NONE && begun != old);
    for (int i = 0; i < 5000; i++) tiers_rig_round(&rig);
    cr_assert_eq(tiers_rig_stats(&rig).verify_mismatches_total, 1);
    cr_assert_eq(qr_tree_record(&rig.kv->tree, node), begun);
    cr_assert(fake_store_find(rig.fake, small, 1, &newer) && newer == old);
    cr_assert(fake_store_find(rig.fake, prompt + 7 * RIG_BLOCK, 8, &newer) && newer != old);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* More than are compared at once: the others wait for their turn. */
Test(kv_verify, all_of_a_long_prompt_is_compared) {
    static quire_token words[30 * RIG_BLOCK];
    for (int sim = 0; sim < 2; sim++) {
        tiers_rig rig = tiers_rig_make();
        quire_seq_id seq;
        rig.config.tiers.verify_every = 1;
        rig.config.block_count = 30;
        rig.device_sim = sim;
        rig.device.delay_polls_max = 3;
        rig_count_up(words, 30 * RIG_BLOCK, 1);
        tiers_rig_open(&rig);
        tiers_rig_run(&rig, 0, words, 30 * RIG_BLOCK);
        tiers_rig_settle(&rig);
        quire_kv_evict(rig.kv, 1000);
        tiers_rig_settle(&rig);
        tiers_rig_load(&rig, 0, words, 30 * RIG_BLOCK, true, &seq);
        tiers_rig_compute(&rig, seq, words, 0, 30 * RIG_BLOCK);
        rig_close(rig.kv, seq);
        tiers_rig_settle(&rig);
        cr_assert(tiers_rig_stats(&rig).verified_blocks_total == 30 && tiers_rig_stats(&rig).verify_mismatches_total == 0);
        tiers_rig_close(&rig);
    }
}

/* What the load would have brought, and no more: neither the block that was begun before it, nor those behind its limit. */
Test(kv_verify, only_blocks_of_the_load_are_compared) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    quire_token near[RIG_BLOCK];
    quire_kv_load load;
    quire_kv_match match;
    rig_prepare(&rig);
    for (uint32_t i = 0; i < RIG_BLOCK; i++) near[i] = i < 5 ? prompt[i] : 7;
    tiers_rig_run(&rig, 0, near, RIG_BLOCK);
    cr_assert_eq(quire_kv_seq_open(rig.kv, 0, &seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_attach(rig.kv, seq, prompt, PROMPT, PROMPT, &match), QUIRE_OK);
    cr_assert_eq(match.tail_tokens, 5);
    cr_assert_eq(quire_kv_seq_reserve(rig.kv, seq, PROMPT), QUIRE_OK);
    cr_assert_eq(quire_kv_load_plan(rig.kv, seq, prompt, PROMPT, 6 * RIG_BLOCK, &load), QUIRE_OK);
    cr_assert(load.begin_block == 1 && load.end_block == 6 && load.disk_blocks == 5);
    cr_assert_eq(quire_kv_load_begin(rig.kv, seq, prompt, &load, true), QUIRE_OK);
    tiers_rig_compute(&rig, seq, prompt, 5, PROMPT);
    rig_close(rig.kv, seq);
    tiers_rig_settle(&rig);
    cr_assert(tiers_rig_stats(&rig).verified_blocks_total == 5 && tiers_rig_stats(&rig).verify_mismatches_total == 0);
    tiers_rig_close(&rig);
}

static quire_status refuse_copy(qr_device *device, int stream, void *to, const void *from, size_t size_bytes) {
    (void)device, (void)stream, (void)to, (void)from, (void)size_bytes;
    return QUIRE_IO;
}

Test(kv_verify, what_the_device_does_not_hand_out_is_not_compared) {
    static qr_device_ops refusing;
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.device_sim = true;
    rig_prepare(&rig);
    tiers_rig_load(&rig, 0, prompt, PROMPT, true, &seq);
    tiers_rig_compute(&rig, seq, prompt, 0, PROMPT);
    refusing = *rig.kv->device->ops;
    refusing.copy_async = refuse_copy;
    rig.kv->device->ops = &refusing;
    tiers_rig_settle(&rig);
    cr_assert(tiers_rig_stats(&rig).verified_blocks_total == 0 && tiers_rig_stats(&rig).verify_mismatches_total == 0);
    cr_assert_eq(fake_store_record_count(rig.fake), 8);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* A slot that is still being filled holds nothing to compare with. */
Test(kv_verify, a_slot_is_compared_when_it_is_filled) {
    for (uint64_t seed = 1; seed < 10; seed++) {
        tiers_rig rig = tiers_rig_make();
        quire_seq_id seq;
        rig.no_store = true;
        rig.host_slots = 16;
        rig.device_sim = true;
        rig.device = (qr_device_sim_config){.seed = seed, .delay_polls_max = 50, .reorder = true};
        rig.config.tiers.verify_every = 1;
        rig_count_up(prompt, PROMPT, 1);
        tiers_rig_open(&rig);
        tiers_rig_run(&rig, 0, prompt, PROMPT);
        quire_kv_evict(rig.kv, 8);
        tiers_rig_load(&rig, 0, prompt, PROMPT, true, &seq);
        tiers_rig_compute(&rig, seq, prompt, 0, PROMPT);
        rig_close(rig.kv, seq);
        tiers_rig_settle(&rig);
        cr_assert(tiers_rig_stats(&rig).verified_blocks_total == 8 && tiers_rig_stats(&rig).verify_mismatches_total == 0);
        tiers_rig_close(&rig);
    }
}

/* A comparison may be all that a poll did; the blocks that it held are to be had again. */
Test(kv_verify, a_poll_says_that_it_compared) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.no_store = true;
    rig.host_slots = 16;
    rig_prepare(&rig);
    tiers_rig_load(&rig, 0, prompt, PROMPT, true, &seq);
    tiers_rig_compute(&rig, seq, prompt, 0, PROMPT);
    cr_assert(tiers_rig_round(&rig) && tiers_rig_stats(&rig).verified_blocks_total == 8);
    cr_assert_not(tiers_rig_round(&rig));
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* What it has borrowed of the store it gives back, and what the device still copies is waited for. */
Test(kv_verify, a_manager_may_go_while_it_compares) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 5, .delay_polls_max = 300};
    rig_prepare(&rig);
    tiers_rig_load(&rig, 0, prompt, PROMPT, true, &seq);
    tiers_rig_compute(&rig, seq, prompt, 0, PROMPT);
    for (int i = 0; i < 5; i++) tiers_rig_round(&rig);
    cr_assert(rig.kv->tiers.gathers.count == 1 && fake_store_held_buffers(rig.fake) > 1);
    quire_kv_destroy(rig.kv);
    cr_assert_eq(fake_store_held_buffers(rig.fake), 0);
    fake_store_destroy(rig.fake);
}

/* Comparing needs a copy like any other. */
Test(kv_verify, waits_while_all_copies_are_under_way) {
    enum { BLOCKS = KV_TRANSFERS + 20 };
    static quire_token words[BLOCKS * RIG_BLOCK];
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.no_store = true;
    rig.host_slots = rig.config.block_count = 2 * BLOCKS;
    rig.config.max_sequence_tokens = BLOCKS * RIG_BLOCK;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 5, .delay_polls_max = 2000};
    rig_count_up(words, BLOCKS * RIG_BLOCK, 9000);
    rig.config.tiers.verify_every = 1;
    rig_count_up(prompt, PROMPT, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    quire_kv_evict(rig.kv, 8);
    for (int i = 0; i < 4000 && quire_kv_busy(rig.kv); i++) tiers_rig_round(&rig);
    tiers_rig_run(&rig, 0, words, BLOCKS * RIG_BLOCK);
    tiers_rig_load(&rig, 0, prompt, PROMPT, true, &seq);
    tiers_rig_compute(&rig, seq, prompt, 0, PROMPT);
    cr_assert_eq(quire_kv_evict(rig.kv, BLOCKS), KV_TRANSFERS);
    tiers_rig_round(&rig);
    cr_assert(rig.kv->tiers.gathers.count == KV_TRANSFERS && tiers_rig_stats(&rig).verified_blocks_total == 0);
    for (int i = 0; i < 20000 && tiers_rig_stats(&rig).verified_blocks_total < 8; i++) tiers_rig_round(&rig);
    cr_assert(tiers_rig_stats(&rig).verified_blocks_total == 8 && tiers_rig_stats(&rig).verify_mismatches_total == 0);
    rig_close(rig.kv, seq);
    for (int i = 0; i < 4000 && quire_kv_busy(rig.kv); i++) tiers_rig_round(&rig);
    tiers_rig_close(&rig);
}

/* While it waited for its turn its record went, and another block has the number. */
Test(kv_verify, a_record_that_changed_hands_before_its_turn_is_not_compared) {
    static quire_token words[12 * RIG_BLOCK];
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    quire_token small[RIG_BLOCK];
    qr_record_id old, newer;
    rig.config.tiers.verify_every = 1;
    rig.config.block_count = 32;
    rig_count_up(words, 12 * RIG_BLOCK, 1);
    rig_count_up(small, RIG_BLOCK, 7000);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, words, 12 * RIG_BLOCK);
    tiers_rig_settle(&rig);
    quire_kv_evict(rig.kv, 100);
    tiers_rig_load(&rig, 0, words, 12 * RIG_BLOCK, true, &seq);
    tiers_rig_compute(&rig, seq, words, 0, 12 * RIG_BLOCK);
    cr_assert_eq(rig.kv->tiers.waiting_count, 12);
    cr_assert(fake_store_find(rig.fake, words + 11 * RIG_BLOCK, 12, &old));
    qr_node_id last = rig.kv->tiers.waiting[11].node;
    qr_kv_lose(rig.kv, last, QR_GHOST_EVICTED, true, QR_RECORD_NONE);
    fake_store_faults_of(rig.fake)->get_refuse_percent = 100; /* nothing is asked for yet */
    tiers_rig_run(&rig, 0, small, RIG_BLOCK);
    tiers_rig_settle(&rig);
    qr_tree_list_unsaved(&rig.kv->tree, last);
    tiers_rig_settle(&rig);
    cr_assert(rig.kv->tiers.read_count == 0 && rig.kv->tiers.rates[QUIRE_KV_TIER_DISK].under_way == 0);
    cr_assert(fake_store_find(rig.fake, small, 1, &newer) && newer == old);
    fake_store_faults_of(rig.fake)->get_refuse_percent = 0;
    tiers_rig_settle(&rig);
    cr_assert(tiers_rig_stats(&rig).verified_blocks_total == 11 && tiers_rig_stats(&rig).verify_mismatches_total == 0);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* A queue of thousands is long enough: what does not fit is used all the same, and not compared. */
Test(kv_verify, what_does_not_fit_into_the_queue_is_not_compared) {
    enum { BLOCKS = KV_VERIFY_WAITING + 100, TOKENS = BLOCKS * RIG_BLOCK };
    static quire_token words[TOKENS];
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    quire_kv_match match;
    quire_kv_load load;
    rig.config.group_count = 1;
    rig.config.block_count = BLOCKS;
    rig.config.max_sequences = 1;
    rig.config.max_sequence_tokens = TOKENS;
    rig.config.tiers.verify_every = 1;
    rig.store.record_max = BLOCKS;
    rig.store.write_buffers = 64;
    rig_count_up(words, TOKENS, 1);
    tiers_rig_open(&rig);
    rig_run(rig.kv, 0, words, TOKENS, TOKENS);
    quire_kv_flush_begin(rig.kv);
    while (quire_kv_flush_left(rig.kv) > 0) quire_kv_poll(rig.kv);
    cr_assert_eq(quire_kv_evict(rig.kv, BLOCKS), BLOCKS);
    cr_assert_eq(quire_kv_seq_open(rig.kv, 0, &seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_attach(rig.kv, seq, words, TOKENS, TOKENS, &match), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_reserve(rig.kv, seq, TOKENS), QUIRE_OK);
    cr_assert_eq(quire_kv_load_plan(rig.kv, seq, words, TOKENS, TOKENS, &load), QUIRE_OK);
    cr_assert_eq(quire_kv_load_begin(rig.kv, seq, words, &load, true), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_commit(rig.kv, seq, words, TOKENS), QUIRE_OK);
    cr_assert_eq(rig.kv->tiers.waiting_count, KV_VERIFY_WAITING);
    rig_close(rig.kv, seq);
    for (int i = 0; i < 4 * KV_VERIFY_WAITING && tiers_rig_stats(&rig).verified_blocks_total < KV_VERIFY_WAITING; i++)
        quire_kv_poll(rig.kv);
    tiers_rig_settle(&rig);
    cr_assert_eq(tiers_rig_stats(&rig).verified_blocks_total, KV_VERIFY_WAITING);
    cr_assert_eq(tiers_rig_stats(&rig).verify_mismatches_total, 0);
    tiers_rig_close(&rig);
}
