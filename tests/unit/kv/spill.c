/* Where a victim's bytes go, and what waits for them. */
#include <criterion/criterion.h>

#include "runtime/kv/kv_internal.h"
#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 10 * RIG_BLOCK, POOL = 16 * RIG_BLOCK };

static quire_token prompt[POOL], other[POOL];

static tiers_rig rig_open_sim(uint32_t host_slots, bool store, uint32_t delay) {
    tiers_rig rig = tiers_rig_make();
    rig.no_store = !store;
    rig.host_slots = host_slots;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 9, .delay_polls_max = delay};
    rig.config.tiers.disk_write = QUIRE_KV_DISK_EVICT;
    rig.store.write_buffers = 16;
    rig_count_up(prompt, POOL, 1);
    rig_count_up(other, POOL, 1000);
    tiers_rig_open(&rig);
    return rig;
}

static quire_kv_tier_stats host_stats(const tiers_rig *rig) { return tiers_rig_stats(rig).tiers[QUIRE_KV_TIER_HOST]; }

Test(kv_spill, blocks_become_free_when_their_copies_are_done) {
    tiers_rig rig = rig_open_sim(16, false, 30);
    quire_seq_id seq;
    tiers_rig_run(&rig, 0, prompt, POOL);
    cr_assert_eq(quire_kv_seq_open(rig.kv, 0, &seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_reserve(rig.kv, seq, PROMPT), QUIRE_NO_BLOCKS);
    cr_assert(quire_kv_busy(rig.kv) && quire_kv_poll_after_us(rig.kv) == 0);
    cr_assert_eq(rig_stats(rig.kv).block_cached, 6); /* as many as are needed, and no more for asking twice */
    cr_assert_eq(quire_kv_seq_reserve(rig.kv, seq, PROMPT), QUIRE_NO_BLOCKS);
    cr_assert_eq(rig_stats(rig.kv).block_cached, 6);
    tiers_rig_settle(&rig);
    cr_assert_not(quire_kv_busy(rig.kv));
    cr_assert_eq(quire_kv_seq_reserve(rig.kv, seq, PROMPT), QUIRE_OK);
    cr_assert(host_stats(&rig).block_count == 10 && host_stats(&rig).stored_blocks_total == 10);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, POOL).stored_tokens, PROMPT);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_spill, more_than_can_ever_be_had_evicts_nothing) {
    tiers_rig rig = rig_open_sim(16, false, 4);
    quire_seq_id a, b;
    tiers_rig_start(&rig, 0, prompt, PROMPT, &a);
    tiers_rig_run(&rig, 0, other, 4 * RIG_BLOCK);
    cr_assert_eq(quire_kv_seq_open(rig.kv, 0, &b), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_reserve(rig.kv, b, 7 * RIG_BLOCK), QUIRE_NO_BLOCKS);
    cr_assert(!quire_kv_busy(rig.kv) && rig_stats(rig.kv).block_cached == 4);
    rig_close(rig.kv, a);
    rig_close(rig.kv, b);
    tiers_rig_close(&rig);
}

Test(kv_spill, a_tail_is_left_out_while_blocks_are_leaving) {
    tiers_rig rig = rig_open_sim(16, false, 1000);
    quire_kv_match match;
    quire_seq_id seq;
    tiers_rig_run(&rig, 0, prompt, POOL);
    cr_assert_eq(quire_kv_seq_open(rig.kv, 0, &seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_attach(rig.kv, seq, prompt, 3 * RIG_BLOCK + 5, 3 * RIG_BLOCK + 5, &match), QUIRE_OK);
    cr_assert(match.token_count == 3 * RIG_BLOCK && match.tail_tokens == 0 && quire_kv_busy(rig.kv));
    rig_close(rig.kv, seq);
    for (int i = 0; i < 2000; i++) tiers_rig_round(&rig);
    tiers_rig_close(&rig);
}

Test(kv_spill, a_copy_on_write_waits_for_a_block) {
    tiers_rig rig = rig_open_sim(16, false, 30);
    quire_seq_id seq, fork;
    tiers_rig_run(&rig, 0, other, PROMPT);
    tiers_rig_start(&rig, 0, prompt, 5 * RIG_BLOCK + 3, &seq);
    cr_assert_eq(quire_kv_seq_fork(rig.kv, seq, &fork), QUIRE_OK);
    quire_status status = QUIRE_NO_BLOCKS;
    for (int i = 0; i < 200 && status != QUIRE_OK; i++) {
        status = quire_kv_seq_reserve(rig.kv, fork, 5 * RIG_BLOCK + 4);
        cr_assert(status == QUIRE_OK || (status == QUIRE_NO_BLOCKS && quire_kv_busy(rig.kv)));
        tiers_rig_round(&rig);
    }
    cr_assert_eq(status, QUIRE_OK);
    tiers_rig_compute(&rig, fork, prompt, 5 * RIG_BLOCK + 3, 5 * RIG_BLOCK + 4);
    tiers_rig_check_bytes(&rig, fork);
    tiers_rig_check_bytes(&rig, seq);
    rig_close(rig.kv, seq);
    rig_close(rig.kv, fork);
    tiers_rig_close(&rig);
}

Test(kv_spill, what_host_memory_has_no_room_for_goes_to_disk) {
    tiers_rig rig = rig_open_sim(4, true, 3);
    quire_seq_id seq;
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    for (uint32_t i = 0; i < 10; i++) {
        quire_kv_evict(rig.kv, 1);
        tiers_rig_settle(&rig);
    }
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, PROMPT);
    cr_assert(host_stats(&rig).block_count == 4 && host_stats(&rig).evicted_blocks_total == 6);
    quire_kv_load load = tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    cr_assert(load.host_blocks == 4 && load.disk_blocks == 6);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), PROMPT);
    quire_kv_load_state state = tiers_rig_state(&rig, seq);
    cr_assert(state.host_tokens == 4 * RIG_BLOCK && state.disk_tokens == 6 * RIG_BLOCK);
    /* Host memory is for what the pool does not have; a record stays. */
    cr_assert(host_stats(&rig).block_count == 0 && fake_store_record_count(rig.fake) >= 6);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_spill, without_a_disk_the_worst_of_host_memory_is_lost) {
    tiers_rig rig = rig_open_sim(4, false, 3);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    for (uint32_t i = 0; i < 10; i++) {
        quire_kv_evict(rig.kv, 1);
        tiers_rig_settle(&rig);
    }
    quire_kv_match match = rig_match(rig.kv, 0, prompt, PROMPT);
    cr_assert(match.stored_tokens == 4 * RIG_BLOCK && match.miss == QUIRE_KV_MISS_EVICTED);
    tiers_rig_close(&rig);
}

Test(kv_spill, host_memory_of_a_device_whose_copies_are_done_at_once) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.no_store = true;
    rig.host_slots = 16;
    rig_count_up(prompt, POOL, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, POOL);
    quire_kv_evict(rig.kv, 16);
    cr_assert(rig_stats(rig.kv).block_free == 16 && !quire_kv_busy(rig.kv));
    tiers_rig_load(&rig, 0, prompt, POOL, false, &seq);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, POOL, 0), POOL);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_spill, a_lost_device_loses_blocks_and_nothing_else) {
    tiers_rig rig = tiers_rig_make();
    rig.host_slots = 16;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 9, .delay_polls_max = 2, .copies_max = 8};
    rig_count_up(prompt, POOL, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    for (int i = 0; i < 50; i++) tiers_rig_round(&rig);
    quire_kv_evict(rig.kv, 16);
    for (int i = 0; i < 50; i++) tiers_rig_round(&rig);
    quire_kv_flush_begin(rig.kv);
    cr_assert_eq(quire_kv_flush_left(rig.kv), 0);
    quire_kv_destroy(rig.kv);
    fake_store_destroy(rig.fake);
}

static quire_status refuse_copy(qr_device *device, int stream, void *to, const void *from, size_t size_bytes) {
    (void)device, (void)stream, (void)to, (void)from, (void)size_bytes;
    return QUIRE_IO;
}

/* Two blocks are there, the first one also on disk, when the device begins to refuse every copy. */
static tiers_rig rig_open_refusing(uint32_t host_slots) {
    static qr_device_ops refusing;
    tiers_rig rig = tiers_rig_make();
    rig.config.tiers.disk_write = QUIRE_KV_DISK_EVICT;
    rig.host_slots = host_slots;
    rig_count_up(prompt, POOL, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, RIG_BLOCK);
    quire_kv_flush_begin(rig.kv);
    tiers_rig_settle(&rig);
    tiers_rig_run(&rig, 0, prompt, 2 * RIG_BLOCK);
    refusing = *rig.kv->device->ops;
    refusing.copy_async = refuse_copy;
    rig.kv->device->ops = &refusing;
    return rig;
}

Test(kv_spill, a_victim_whose_copy_is_refused_at_once_is_lost) {
    tiers_rig rig = rig_open_refusing(0);
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 1);
    tiers_rig_round(&rig);
    quire_kv_match match = rig_match(rig.kv, 0, prompt, 2 * RIG_BLOCK);
    cr_assert(match.token_count == RIG_BLOCK && match.stored_tokens == 0 && match.miss == QUIRE_KV_MISS_EVICTED);
    cr_assert_eq(tiers_rig_stats(&rig).refused_blocks_total[QUIRE_KV_REFUSED_BROKEN], 1);
    tiers_rig_close(&rig);
}

Test(kv_spill, a_refused_copy_to_host_memory_costs_the_slot_and_no_record) {
    tiers_rig rig = rig_open_refusing(4);
    cr_assert_eq(quire_kv_evict(rig.kv, 2), 2);
    tiers_rig_round(&rig);
    cr_assert(host_stats(&rig).block_count == 0 && fake_store_record_count(rig.fake) == 1);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, 2 * RIG_BLOCK).stored_tokens, RIG_BLOCK);
    tiers_rig_close(&rig);
}

static bool all_zero(const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i]) return false;
    return true;
}

/* Those in a slot, and those that are still on their way there. */
Test(kv_spill, what_is_forgotten_while_it_moves_is_overwritten_too) {
    for (uint32_t delay = 0; delay < 60; delay += 29) {
        tiers_rig rig = rig_open_sim(16, false, delay);
        tiers_rig_run(&rig, 0, prompt, PROMPT);
        quire_kv_evict(rig.kv, 6);
        if (delay == 0) tiers_rig_settle(&rig);
        quire_kv_forget_all(rig.kv, true);
        tiers_rig_settle(&rig);
        for (uint32_t slot = 0; slot < rig.kv->tiers.sizes.slot_count; slot++)
            cr_assert(all_zero(qr_host_arena_address(&rig.kv->tiers.host, slot), (size_t)rig.kv->tiers.payload_bytes));
        tiers_rig_close(&rig);
    }
}

static void expect_stored(const tiers_rig *rig, const quire_token *tokens, uint32_t blocks) {
    uint32_t stored = rig_match(rig->kv, 0, tokens, POOL).stored_tokens;
    cr_assert_eq(stored, blocks * RIG_BLOCK, "%u tokens", stored);
}

/* A slot that is still being filled is none to be given up: it holds what was evicted a moment ago. */
Test(kv_spill, a_slot_in_use_is_no_victim) {
    tiers_rig rig = rig_open_sim(4, false, 200);
    tiers_rig_run(&rig, 0, prompt, 4 * RIG_BLOCK);
    tiers_rig_run(&rig, 0, other, 4 * RIG_BLOCK);
    cr_assert_eq(quire_kv_evict(rig.kv, 4), 4);
    cr_assert_eq(rig.kv->tiers.gathers.count, 4);
    cr_assert_eq(quire_kv_evict(rig.kv, 4), 4);
    expect_stored(&rig, prompt, 4);
    expect_stored(&rig, other, 0);
    cr_assert_eq(host_stats(&rig).evicted_blocks_total, 0);
    tiers_rig_settle(&rig);
    tiers_rig_close(&rig);
}

/* Nothing of host memory is given up for a victim that cannot be copied now. */
Test(kv_spill, while_all_copies_are_under_way_nothing_is_lost_in_vain) {
    enum { BLOCKS = KV_TRANSFERS + 40 };
    static quire_token words[BLOCKS * RIG_BLOCK];
    tiers_rig rig = tiers_rig_make();
    rig.no_store = true;
    rig.config.block_count = BLOCKS;
    rig.config.max_sequence_tokens = BLOCKS * RIG_BLOCK;
    rig.host_slots = KV_TRANSFERS + 1;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 9, .delay_polls_max = 3000};
    rig_count_up(words, BLOCKS * RIG_BLOCK, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, words, BLOCKS * RIG_BLOCK);
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 1);
    for (int i = 0; i < 5000 && quire_kv_busy(rig.kv); i++) tiers_rig_round(&rig);
    cr_assert_eq(quire_kv_evict(rig.kv, BLOCKS), KV_TRANSFERS);
    for (int i = 0; i < 3; i++) cr_assert_eq(quire_kv_evict(rig.kv, 1), 0);
    quire_kv_match match;
    quire_kv_match_prefix(rig.kv, 0, words, BLOCKS * RIG_BLOCK, BLOCKS * RIG_BLOCK, &match);
    cr_assert(match.stored_tokens == (KV_TRANSFERS + 1) * RIG_BLOCK && host_stats(&rig).evicted_blocks_total == 0);
    for (int i = 0; i < 5000 && quire_kv_busy(rig.kv); i++) tiers_rig_round(&rig);
    tiers_rig_close(&rig);
}

/* Making room in host memory writes the way down to what lies there, which takes the last copy that there may be. */
Test(kv_spill, making_room_may_take_the_last_copy) {
    enum { BLOCKS = KV_TRANSFERS + 12, CHAIN = KV_TRANSFERS + 1 };
    static quire_token words[BLOCKS * RIG_BLOCK];
    tiers_rig rig = tiers_rig_make();
    rig.config.block_count = BLOCKS;
    rig.config.max_sequence_tokens = BLOCKS * RIG_BLOCK;
    rig.config.tiers.disk_write = QUIRE_KV_DISK_EVICT;
    rig.host_slots = 1;
    rig.store.record_max = 2 * BLOCKS;
    rig.store.write_buffers = BLOCKS;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 9, .delay_polls_max = 5000};
    rig_count_up(words, CHAIN * RIG_BLOCK, 1);
    rig_count_up(other, POOL, 90000);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, words, CHAIN * RIG_BLOCK);
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 1); /* the last of the chain has the slot */
    for (int i = 0; i < 9000 && quire_kv_busy(rig.kv); i++) tiers_rig_round(&rig);
    fake_store_faults_of(rig.fake)->lasting_max = KV_TRANSFERS - 1;
    quire_kv_flush_begin(rig.kv);
    for (int i = 0; i < 8; i++) tiers_rig_round(&rig);
    cr_assert_eq(rig.kv->tiers.gathers.count, KV_TRANSFERS - 1, "all but one, and but for its parent");
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 0);
    cr_assert_eq(rig.kv->tiers.gathers.count, KV_TRANSFERS);
    for (int i = 0; i < 9000 && quire_kv_busy(rig.kv); i++) tiers_rig_round(&rig);
    tiers_rig_settle(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), CHAIN);
    tiers_rig_close(&rig);
}

/* Erasure is what was asked for then; what is lost later goes the ordinary way. */
Test(kv_spill, what_is_lost_after_a_forget_is_not_erased) {
    tiers_rig rig = tiers_rig_make();
    qr_record_id record;
    rig_count_up(prompt, POOL, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_settle(&rig);
    quire_kv_forget_all(rig.kv, true);
    cr_assert_eq(fake_store_erased(rig.fake), 10);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_settle(&rig);
    cr_assert(fake_store_find(rig.fake, prompt, 1, &record));
    fake_store_lose(rig.fake, record);
    cr_assert(tiers_rig_round(&rig), "somebody may wait for it");
    cr_assert_eq(fake_store_erased(rig.fake), 10);
    tiers_rig_close(&rig);
}

/* Its slot went, and no record is there: it is stored nowhere. */
Test(kv_spill, a_refused_copy_leaves_no_node_that_is_stored_nowhere) {
    tiers_rig rig = rig_open_refusing(4);
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 1);
    tiers_rig_round(&rig);
    cr_assert_eq(rig.kv->tree.stored_count, 0);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, 2 * RIG_BLOCK).miss, QUIRE_KV_MISS_EVICTED);
    tiers_rig_close(&rig);
}

/* What lies in host memory is worth a moment too, though the victim itself is on disk already. */
Test(kv_spill, room_in_host_memory_is_waited_for) {
    tiers_rig rig = rig_open_sim(4, true, 0);
    rig.now_us = UINT64_C(3600) * 1000000;
    tiers_rig_run(&rig, 0, other, 4 * RIG_BLOCK);
    quire_kv_evict(rig.kv, 4);
    tiers_rig_settle(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    fake_store_faults_of(rig.fake)->lasting_max = 10; /* for the prompt, and not for what is only in host memory */
    quire_kv_flush_begin(rig.kv);
    tiers_rig_settle(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 10);
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_BUSY;
    cr_assert(quire_kv_evict(rig.kv, 1) == 0 && quire_kv_busy(rig.kv));
    fake_store_faults_of(rig.fake)->refuse = QR_STORE_NONE;
    cr_assert(quire_kv_evict(rig.kv, 1) == 1);
    tiers_rig_settle(&rig);
    cr_assert(host_stats(&rig).block_count == 4 && fake_store_record_count(rig.fake) == 14);
    tiers_rig_close(&rig);
}
