/* What moves for loads: what is asked for and when, what arrives, and why it does not. */
#include <criterion/criterion.h>

#include "runtime/kv/kv_internal.h"
#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 10 * RIG_BLOCK, OTHER = 14 * RIG_BLOCK, BLOCK_US = 1000 };

static quire_token prompt[PROMPT], other[OTHER];

/* The prompt is on disk only, and another one too. */
static void rig_prepare(tiers_rig *rig) {
    rig->config.block_count = 48;
    rig_count_up(prompt, PROMPT, 1);
    rig_count_up(other, OTHER, 1000);
    tiers_rig_open(rig);
    tiers_rig_run(rig, 0, prompt, PROMPT);
    tiers_rig_run(rig, 0, other, OTHER);
    tiers_rig_settle(rig);
    quire_kv_evict(rig->kv, 1000);
    tiers_rig_settle(rig);
}

/* The tier is known to need BLOCK_US for a block, whatever becomes of that with time. */
static qr_rate *set_pace(const tiers_rig *rig, quire_kv_tier tier) {
    qr_rate *rate = &rig->kv->tiers.rates[tier];
    rate->prior = rate->bytes_per_second = (double)rig->kv->tiers.rate_bytes * 1e6 / BLOCK_US;
    rate->measured_us = rig->now_us;
    return rate;
}

static void lose(tiers_rig *rig, uint32_t depth) {
    qr_record_id record;
    cr_assert(fake_store_find(rig->fake, prompt + (depth - 1) * RIG_BLOCK, depth, &record));
    fake_store_lose(rig->fake, record);
}

static void damage(tiers_rig *rig, uint32_t depth) {
    qr_record_id record;
    cr_assert(fake_store_find(rig->fake, prompt + (depth - 1) * RIG_BLOCK, depth, &record));
    fake_store_damage(rig->fake, record);
}

static uint64_t loaded(const tiers_rig *rig) { return tiers_rig_stats(rig).tiers[QUIRE_KV_TIER_DISK].loaded_blocks_total; }

/* ---- asking ---- */

/* A disk is asked for as much as it gives in 20 ms: what was never measured and what is slow for a few, a fast one for many. */
Test(kv_load_moves, a_slow_disk_is_asked_for_few_blocks_at_once) {
    const double blocks_per_20_ms[] = {0, 1, 6, 9, 1000};
    const uint32_t asked[] = {4, 4, 6, 9, 10};
    for (int i = 0; i < 5; i++) {
        tiers_rig rig = tiers_rig_make();
        quire_seq_id seq;
        rig.store.read_buffers = 40;
        rig_prepare(&rig);
        qr_rate *rate = &rig.kv->tiers.rates[QUIRE_KV_TIER_DISK];
        rate->bytes_per_second = blocks_per_20_ms[i] * (double)rig.kv->tiers.rate_bytes * 50;
        fake_store_hold(rig.fake, true);
        tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
        for (int round = 0; round < 5; round++) tiers_rig_round(&rig);
        cr_assert_eq(rig.kv->tiers.read_count, asked[i], "%u at %.0f", rig.kv->tiers.read_count, blocks_per_20_ms[i]);
        fake_store_hold(rig.fake, false);
        rig_close(rig.kv, seq);
        tiers_rig_close(&rig);
    }
}

/* Six loads of 32 blocks, behind a device that is slower than the disk: there is room to copy all that arrives. */
Test(kv_load_moves, no_more_is_read_than_can_be_copied) {
    enum { LOADS = 6, BLOCKS = 32 };
    static quire_token words[LOADS][BLOCKS * RIG_BLOCK];
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seqs[LOADS];
    uint32_t most = 0;
    rig.config.block_count = LOADS * BLOCKS;
    rig.store.record_max = 2 * LOADS * BLOCKS;
    rig.store.read_buffers = rig.store.write_buffers = LOADS * BLOCKS;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 8, .delay_polls_max = 100};
    tiers_rig_open(&rig);
    for (int i = 0; i < LOADS; i++) {
        rig_count_up(words[i], BLOCKS * RIG_BLOCK, 1 + 1000 * i);
        tiers_rig_run(&rig, 0, words[i], BLOCKS * RIG_BLOCK);
    }
    tiers_rig_settle(&rig);
    quire_kv_evict(rig.kv, 1000);
    tiers_rig_settle(&rig);
    rig.kv->tiers.rates[QUIRE_KV_TIER_DISK].bytes_per_second = 1e12;
    for (int i = 0; i < LOADS; i++) tiers_rig_load(&rig, 0, words[i], BLOCKS * RIG_BLOCK, false, &seqs[i]);
    for (int round = 0; round < 10; round++) {
        tiers_rig_round(&rig);
        uint32_t moving = rig.kv->tiers.read_count + rig.kv->tiers.scatters.count;
        if (moving > most) most = moving;
    }
    cr_assert_eq(most, KV_TRANSFERS);
    for (int i = 0; i < LOADS; i++) {
        cr_assert_eq(tiers_rig_finish(&rig, seqs[i], words[i], BLOCKS * RIG_BLOCK, 0), BLOCKS * RIG_BLOCK);
        rig_close(rig.kv, seqs[i]);
    }
    tiers_rig_close(&rig);
}

/* Copies from host memory that are done at once take the owner's time: some in each poll, and the next poll soon. */
Test(kv_load_moves, host_memory_is_copied_in_portions) {
    enum { BLOCKS = KV_HOST_LOADS_PER_POLL + 8 };
    static quire_token words[BLOCKS * RIG_BLOCK];
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.no_store = true;
    rig.host_slots = rig.config.block_count = BLOCKS;
    rig.config.max_sequence_tokens = BLOCKS * RIG_BLOCK;
    rig_count_up(words, BLOCKS * RIG_BLOCK, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, words, BLOCKS * RIG_BLOCK);
    quire_kv_evict(rig.kv, BLOCKS);
    tiers_rig_load(&rig, 0, words, BLOCKS * RIG_BLOCK, false, &seq);
    tiers_rig_round(&rig);
    cr_assert_eq(tiers_rig_state(&rig, seq).loaded_tokens, KV_HOST_LOADS_PER_POLL * RIG_BLOCK);
    cr_assert_eq(quire_kv_poll_after_us(rig.kv), 0);
    tiers_rig_round(&rig);
    cr_assert_eq(quire_kv_load_take(rig.kv, seq), BLOCKS * RIG_BLOCK);
    tiers_rig_round(&rig);
    cr_assert_eq(quire_kv_poll_after_us(rig.kv), UINT64_MAX);
    tiers_rig_check_bytes(&rig, seq);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_load_moves, a_store_without_a_buffer_is_asked_again) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig_prepare(&rig);
    fake_store_faults_of(rig.fake)->get_refuse_percent = 100;
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    for (int i = 0; i < 5; i++) tiers_rig_round(&rig);
    cr_assert(rig.kv->tiers.read_count == 0 && rig.kv->tiers.rates[QUIRE_KV_TIER_DISK].under_way == 0);
    cr_assert(tiers_rig_state(&rig, seq).active && tiers_rig_state(&rig, seq).front_tokens == PROMPT);
    fake_store_faults_of(rig.fake)->get_refuse_percent = 0;
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), PROMPT);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* What is being computed is asked for only when that was said of another place, or not at all. */
Test(kv_load_moves, a_take_ends_what_was_said_of_computing) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig_prepare(&rig);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    quire_kv_load_computing(rig.kv, seq, 6 * RIG_BLOCK);
    for (int i = 0; i < 5; i++) tiers_rig_round(&rig);
    cr_assert_eq(tiers_rig_state(&rig, seq).loaded_tokens, 4 * RIG_BLOCK);
    cr_assert_eq(quire_kv_load_take(rig.kv, seq), 0);
    for (int i = 0; i < 5; i++) tiers_rig_round(&rig);
    cr_assert_eq(quire_kv_load_take(rig.kv, seq), PROMPT);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* Somebody else is computing the front: what is resident by now is not read. */
Test(kv_load_moves, what_is_resident_by_now_is_not_read) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq, twin;
    rig.store.read_buffers = 2;
    rig_prepare(&rig);
    fake_store_hold(rig.fake, true);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig);
    cr_assert_eq(rig.kv->tiers.read_count, 2);
    tiers_rig_start(&rig, 0, prompt, 6 * RIG_BLOCK, &twin);
    fake_store_hold(rig.fake, false);
    for (int i = 0; i < 10; i++) tiers_rig_round(&rig);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), PROMPT);
    cr_assert(loaded(&rig) == 4 && tiers_rig_state(&rig, seq).disk_tokens == 4 * RIG_BLOCK);
    rig_close(rig.kv, seq);
    rig_close(rig.kv, twin);
    tiers_rig_close(&rig);
}

/* ---- arriving ---- */

/* How fast the disk is: what does not prove itself took its time all the same, what could not be read says nothing. */
Test(kv_load_moves, damage_is_learnt_from_and_failure_is_not) {
    for (int fails = 0; fails < 2; fails++) {
        tiers_rig rig = tiers_rig_make();
        quire_seq_id seq;
        rig.store.read_bytes_per_second = 10000000;
        rig_prepare(&rig);
        if (fails) fake_store_faults_of(rig.fake)->get_fail_percent = 100;
        else fake_store_faults_of(rig.fake)->get_damage_percent = 100;
        tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
        cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), 0);
        tiers_rig_settle(&rig);
        const qr_rate *rate = &rig.kv->tiers.rates[QUIRE_KV_TIER_DISK];
        cr_assert(rate->under_way == 0 && (rate->bytes_per_second > 0) == !fails);
        cr_assert_eq(tiers_rig_state(&rig, seq).cause, QUIRE_KV_MISS_DAMAGED);
        cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, 0, "it is not tried again and again");
        rig_close(rig.kv, seq);
        tiers_rig_close(&rig);
    }
}

/* The record went under the load: nobody is to blame. One that does not prove itself is, whichever was noticed first. */
Test(kv_load_moves, the_cause_of_a_failure_is_damage_if_there_was_any) {
    for (int damaged_first = 0; damaged_first < 2; damaged_first++) {
        tiers_rig rig = tiers_rig_make();
        quire_seq_id seq;
        rig.store.read_buffers = 2;
        rig_prepare(&rig);
        tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
        if (damaged_first) damage(&rig, 9);
        else lose(&rig, 9);
        tiers_rig_round(&rig);
        tiers_rig_round(&rig);
        quire_kv_load_state state = tiers_rig_state(&rig, seq);
        cr_assert(state.active && state.failed);
        cr_assert_eq(state.cause, damaged_first ? QUIRE_KV_MISS_DAMAGED : QUIRE_KV_MISS_EVICTED);
        if (damaged_first) lose(&rig, 2);
        else damage(&rig, 2);
        cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), RIG_BLOCK);
        cr_assert_eq(tiers_rig_state(&rig, seq).cause, QUIRE_KV_MISS_DAMAGED);
        rig_close(rig.kv, seq);
        tiers_rig_close(&rig);
    }
}

/* Found by the read of one load, it ends every load that would come to it, and each knows why. */
Test(kv_load_moves, damage_ends_the_loads_of_others_too) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id a, b;
    rig.store.read_buffers = 1;
    rig_prepare(&rig);
    damage(&rig, 10);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &a);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &b);
    tiers_rig_round(&rig);
    cr_assert(tiers_rig_state(&rig, a).coming_tokens == RIG_BLOCK && tiers_rig_state(&rig, b).coming_tokens == 0);
    tiers_rig_round(&rig);
    quire_kv_load_state state = tiers_rig_state(&rig, b);
    cr_assert(state.active && state.failed && state.cause == QUIRE_KV_MISS_DAMAGED);
    cr_assert_eq(tiers_rig_finish(&rig, b, prompt, PROMPT, 0), 9 * RIG_BLOCK);
    cr_assert_eq(tiers_rig_finish(&rig, a, prompt, PROMPT, 0), 9 * RIG_BLOCK);
    rig_close(rig.kv, a);
    rig_close(rig.kv, b);
    tiers_rig_close(&rig);
}

static const qr_store_ops *real_ops;
static quire_status get_status;

static bool poll_with_status(qr_store *store, uint64_t now_us, qr_store_event *event) {
    if (!real_ops->poll(store, now_us, event)) return false;
    if (event->kind != QR_STORE_GET_DONE || event->status != QUIRE_OK) return true;
    real_ops->release(store, event->payload);
    event->payload = NULL;
    event->tokens = NULL;
    event->status = get_status;
    return true;
}

/* It cannot be read now, or it is said to be gone before its loss is: the load is over, and the record is nobody's to drop. */
Test(kv_load_moves, what_cannot_be_read_now_stays) {
    const struct {
        quire_status status;
        quire_kv_miss cause;
    } rows[] = {{QUIRE_BUSY, QUIRE_KV_MISS_ABANDONED}, {QUIRE_NOT_FOUND, QUIRE_KV_MISS_EVICTED}};
    for (int i = 0; i < 2; i++) {
        static qr_store_ops told;
        tiers_rig rig = tiers_rig_make();
        quire_seq_id seq;
        rig_prepare(&rig);
        real_ops = rig.kv->tiers.store->ops;
        get_status = rows[i].status;
        told = *real_ops;
        told.poll = poll_with_status;
        rig.kv->tiers.store->ops = &told;
        tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
        cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), 0);
        quire_kv_load_state state = tiers_rig_state(&rig, seq);
        cr_assert(state.failed && state.cause == rows[i].cause && state.front_tokens == PROMPT);
        rig.kv->tiers.store->ops = real_ops;
        rig_close(rig.kv, seq);
        cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, PROMPT);
        cr_assert_eq(tiers_rig_stats(&rig).tiers[QUIRE_KV_TIER_DISK].damaged_total, 0);
        tiers_rig_close(&rig);
    }
}

/* Known at once, not when the read comes back. */
Test(kv_load_moves, a_loss_ends_a_load_before_its_read_does) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig_prepare(&rig);
    fake_store_hold(rig.fake, true);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig);
    cr_assert_eq(tiers_rig_state(&rig, seq).coming_tokens, 4 * RIG_BLOCK);
    lose(&rig, 9);
    cr_assert(tiers_rig_round(&rig));
    quire_kv_load_state state = tiers_rig_state(&rig, seq);
    cr_assert(state.failed && state.coming_tokens <= 4 * RIG_BLOCK && rig.kv->tiers.loads[seq.index].end == 8);
    fake_store_hold(rig.fake, false);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), 8 * RIG_BLOCK);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* It was read before its record went, and has proved itself. */
Test(kv_load_moves, what_has_arrived_survives_the_loss_of_its_record) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig_prepare(&rig);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    quire_kv_load_computing(rig.kv, seq, RIG_BLOCK);
    for (int i = 0; i < 10; i++) tiers_rig_round(&rig);
    cr_assert_eq(tiers_rig_state(&rig, seq).loaded_tokens, 9 * RIG_BLOCK);
    lose(&rig, 5);
    tiers_rig_round(&rig);
    cr_assert_not(tiers_rig_state(&rig, seq).failed);
    tiers_rig_compute(&rig, seq, prompt, 0, RIG_BLOCK);
    cr_assert_eq(quire_kv_load_take(rig.kv, seq), 9 * RIG_BLOCK);
    tiers_rig_check_bytes(&rig, seq);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* Its record was dropped while the disk read it; the disk was as fast all the same. */
Test(kv_load_moves, a_read_that_came_too_late_is_learnt_from) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.store.read_bytes_per_second = 10000000;
    rig_prepare(&rig);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig);
    fake_store_faults_of(rig.fake)->late_events = true;
    qr_kv_lose(rig.kv, *kv_load_node(&rig.kv->tiers, seq.index, 0), QR_GHOST_EVICTED, true, QR_RECORD_NONE);
    tiers_rig_settle(&rig);
    const qr_rate *rate = &rig.kv->tiers.rates[QUIRE_KV_TIER_DISK];
    cr_assert(rate->under_way == 0 && rate->bytes_per_second > 5e6 && loaded(&rig) == 0);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* ---- giving up ---- */

Test(kv_load_moves, an_abandoned_load_asks_for_nothing_more) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.store.read_buffers = 4;
    rig_prepare(&rig);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig);
    tiers_rig_round(&rig);
    fake_store_hold(rig.fake, true);
    quire_kv_load_abandon(rig.kv, seq);
    fake_store_hold(rig.fake, false);
    for (int i = 0; i < 10; i++) tiers_rig_round(&rig);
    quire_kv_load_state state = tiers_rig_state(&rig, seq);
    cr_assert(state.active && state.coming_tokens == 0 && state.loaded_tokens == 4 * RIG_BLOCK && !state.failed);
    cr_assert_eq(loaded(&rig), 4);
    /* Nor does it matter any more what becomes of the blocks that it does not want. */
    lose(&rig, 3);
    tiers_rig_round(&rig);
    cr_assert_not(tiers_rig_state(&rig, seq).failed);
    tiers_rig_compute(&rig, seq, prompt, 0, 6 * RIG_BLOCK);
    cr_assert_eq(quire_kv_load_take(rig.kv, seq), 4 * RIG_BLOCK);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_load_moves, an_abandoned_load_of_which_nothing_is_there_is_over) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig_prepare(&rig);
    fake_store_hold(rig.fake, true);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig);
    quire_kv_load_abandon(rig.kv, seq);
    cr_assert_not(tiers_rig_state(&rig, seq).active);
    cr_assert_eq(tiers_rig_state(&rig, seq).front_tokens, PROMPT);
    fake_store_hold(rig.fake, false);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* A front that has computed everything needs no answer of the store. */
Test(kv_load_moves, a_load_that_was_computed_past_is_over) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig_prepare(&rig);
    fake_store_hold(rig.fake, true);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig);
    cr_assert_eq(quire_kv_seq_commit(rig.kv, seq, prompt, 0), QUIRE_OK);
    tiers_rig_compute(&rig, seq, prompt, 0, 9 * RIG_BLOCK + 1);
    cr_assert_not(tiers_rig_state(&rig, seq).active);
    tiers_rig_compute(&rig, seq, prompt, 9 * RIG_BLOCK + 1, PROMPT);
    fake_store_hold(rig.fake, false);
    tiers_rig_settle(&rig);
    tiers_rig_check_bytes(&rig, seq);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* What was being copied when its load failed still writes into the block: nobody else may, until that is over. */
Test(kv_load_moves, a_failed_copy_holds_its_block_until_it_is_over) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 3, .delay_polls_max = 300};
    rig.store.read_buffers = 2;
    rig_prepare(&rig);
    tiers_rig_load(&rig, 0, prompt, 4 * RIG_BLOCK, false, &seq);
    tiers_rig_round(&rig);
    tiers_rig_round(&rig);
    cr_assert_eq(rig.kv->tiers.scatters.count, 2);
    damage(&rig, 1);
    damage(&rig, 2);
    lose(&rig, 1);
    tiers_rig_round(&rig);
    cr_assert(tiers_rig_state(&rig, seq).failed && rig.kv->tiers.scatters.count == 2);
    cr_assert_eq(quire_kv_seq_commit(rig.kv, seq, prompt, 4 * RIG_BLOCK), QUIRE_INVALID);
    uint32_t front = tiers_rig_state(&rig, seq).front_tokens;
    cr_assert_eq(front, 2 * RIG_BLOCK);
    tiers_rig_compute(&rig, seq, prompt, 0, front);
    cr_assert_eq(quire_kv_seq_commit(rig.kv, seq, prompt + front, 1), QUIRE_INVALID);
    tiers_rig_settle(&rig);
    cr_assert_not(tiers_rig_state(&rig, seq).active);
    tiers_rig_compute(&rig, seq, prompt, front, 4 * RIG_BLOCK);
    tiers_rig_check_bytes(&rig, seq);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* ---- how long it takes ---- */

static uint64_t estimate(const tiers_rig *rig, quire_seq_id seq) {
    quire_kv_load load;
    cr_assert_eq(quire_kv_load_plan(rig->kv, seq, prompt, PROMPT, PROMPT, &load), QUIRE_OK);
    return load.estimate_us;
}

static bool about(uint64_t us, uint32_t blocks) {
    return us >= (uint64_t)blocks * BLOCK_US && us < (uint64_t)blocks * BLOCK_US + BLOCK_US / 2;
}

static quire_seq_id attached(tiers_rig *rig) {
    quire_seq_id seq;
    quire_kv_match match;
    cr_assert_eq(quire_kv_seq_open(rig->kv, 0, &seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_attach(rig->kv, seq, prompt, PROMPT, PROMPT, &match), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_reserve(rig->kv, seq, PROMPT), QUIRE_OK);
    return seq;
}

/* Its own blocks, and all that was promised to others and is still to come: asked for or not. */
Test(kv_load_moves, an_estimate_counts_what_goes_before) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id first;
    rig_prepare(&rig);
    set_pace(&rig, QUIRE_KV_TIER_DISK);
    quire_seq_id seq = attached(&rig);
    cr_assert(about(estimate(&rig, seq), 10), "%llu", (unsigned long long)estimate(&rig, seq));
    fake_store_hold(rig.fake, true);
    tiers_rig_load(&rig, 0, other, OTHER, false, &first);
    cr_assert(about(estimate(&rig, seq), 10 + 14), "%llu", (unsigned long long)estimate(&rig, seq));
    quire_kv_load_computing(rig.kv, first, 9 * RIG_BLOCK);
    tiers_rig_round(&rig);
    cr_assert_eq(rig.kv->tiers.read_count, 5);
    cr_assert(about(estimate(&rig, seq), 10 + 14), "%llu", (unsigned long long)estimate(&rig, seq));
    tiers_rig_compute(&rig, first, other, 0, 7 * RIG_BLOCK); /* never asked for */
    cr_assert(about(estimate(&rig, seq), 10 + 7), "%llu", (unsigned long long)estimate(&rig, seq));
    quire_kv_load_abandon(rig.kv, first);
    set_pace(&rig, QUIRE_KV_TIER_DISK);
    cr_assert(about(estimate(&rig, seq), 10 + 5), "%llu", (unsigned long long)estimate(&rig, seq));
    fake_store_hold(rig.fake, false);
    rig_close(rig.kv, first);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* What it will not ask for any more holds nobody up. */
Test(kv_load_moves, of_an_abandoned_load_only_what_is_coming_goes_before) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id first;
    rig.store.read_buffers = 4;
    rig_prepare(&rig);
    quire_seq_id seq = attached(&rig);
    tiers_rig_load(&rig, 0, other, OTHER, false, &first);
    tiers_rig_round(&rig);
    tiers_rig_round(&rig);
    fake_store_hold(rig.fake, true);
    cr_assert_eq(tiers_rig_state(&rig, first).loaded_tokens, 4 * RIG_BLOCK);
    set_pace(&rig, QUIRE_KV_TIER_DISK);
    cr_assert(about(estimate(&rig, seq), 10 + 10));
    quire_kv_load_abandon(rig.kv, first);
    cr_assert(tiers_rig_state(&rig, first).active && rig.kv->tiers.read_count == 4);
    set_pace(&rig, QUIRE_KV_TIER_DISK);
    cr_assert(about(estimate(&rig, seq), 10 + 4), "%llu", (unsigned long long)estimate(&rig, seq));
    fake_store_hold(rig.fake, false);
    rig_close(rig.kv, first);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* Host memory's own, and beside it the disk's: both work at the same time. */
Test(kv_load_moves, an_estimate_is_that_of_the_slower_tier) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id first, seq;
    rig.host_slots = 48;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 3, .delay_polls_max = 3000};
    rig.config.tiers.disk_write = QUIRE_KV_DISK_EVICT;
    rig_prepare(&rig);
    for (int i = 0; i < 400; i++) tiers_rig_round(&rig);
    tiers_rig_settle(&rig);
    set_pace(&rig, QUIRE_KV_TIER_DISK);
    set_pace(&rig, QUIRE_KV_TIER_HOST);
    seq = attached(&rig);
    cr_assert(about(estimate(&rig, seq), 10), "%llu", (unsigned long long)estimate(&rig, seq));
    tiers_rig_load(&rig, 0, other, OTHER, false, &first);
    cr_assert(about(estimate(&rig, seq), 10 + 14));
    quire_kv_load_computing(rig.kv, first, 9 * RIG_BLOCK);
    tiers_rig_round(&rig);
    cr_assert_eq(rig.kv->tiers.scatters.count, 5);
    set_pace(&rig, QUIRE_KV_TIER_HOST);
    cr_assert(about(estimate(&rig, seq), 10 + 14), "%llu", (unsigned long long)estimate(&rig, seq));
    tiers_rig_compute(&rig, first, other, 0, 7 * RIG_BLOCK);
    cr_assert(about(estimate(&rig, seq), 10 + 7), "%llu", (unsigned long long)estimate(&rig, seq));
    quire_kv_load_state state = tiers_rig_state(&rig, first);
    cr_assert(state.coming_tokens == 5 * RIG_BLOCK && about(state.coming_us, 5));
    quire_kv_load load;
    cr_assert_eq(quire_kv_load_plan(rig.kv, seq, prompt, PROMPT, PROMPT, &load), QUIRE_OK);
    cr_assert_eq(quire_kv_load_begin(rig.kv, seq, prompt, &load, false), QUIRE_OK);
    tiers_rig_round(&rig);
    cr_assert_eq(rig.kv->tiers.scatters.count, 5 + 10);
    set_pace(&rig, QUIRE_KV_TIER_HOST);
    cr_assert(about(tiers_rig_state(&rig, first).coming_us, 15), "both loads' together");
    rig_close(rig.kv, first);
    rig_close(rig.kv, seq);
    for (int i = 0; i < 400; i++) tiers_rig_round(&rig);
    tiers_rig_close(&rig);
}

/* What was asked for of one tier does not count as still to come from it, when blocks of the other follow. */
Test(kv_load_moves, an_estimate_knows_which_tier_was_asked) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id first;
    rig.host_slots = 4;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 3, .delay_polls_max = 3000};
    rig.config.tiers.disk_write = QUIRE_KV_DISK_EVICT;
    rig.config.block_count = 48;
    rig_count_up(prompt, PROMPT, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    for (int i = 0; i < 20000 && rig_stats(rig.kv).block_free < 48; i++) {
        quire_kv_evict(rig.kv, 1);
        tiers_rig_round(&rig);
    }
    quire_seq_id seq = attached(&rig);
    quire_kv_load load = tiers_rig_load(&rig, 0, prompt, PROMPT, false, &first);
    cr_assert(load.host_blocks == 4 && load.disk_blocks == 6);
    set_pace(&rig, QUIRE_KV_TIER_HOST);
    rig.kv->tiers.rates[QUIRE_KV_TIER_DISK].prior = 1e15;
    cr_assert(about(estimate(&rig, seq), 4 + 4), "%llu", (unsigned long long)estimate(&rig, seq));
    fake_store_hold(rig.fake, true);
    tiers_rig_round(&rig);
    cr_assert_eq(rig.kv->tiers.scatters.count, 4);
    set_pace(&rig, QUIRE_KV_TIER_HOST);
    cr_assert(about(estimate(&rig, seq), 4 + 4), "%llu", (unsigned long long)estimate(&rig, seq));
    fake_store_hold(rig.fake, false);
    rig_close(rig.kv, first);
    rig_close(rig.kv, seq);
    for (int i = 0; i < 5000 && quire_kv_busy(rig.kv); i++) tiers_rig_round(&rig);
    tiers_rig_close(&rig);
}

Test(kv_load_moves, what_is_coming_takes_as_long_as_all_that_is) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id a, b;
    rig_prepare(&rig);
    fake_store_hold(rig.fake, true);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &a);
    cr_assert_eq(tiers_rig_state(&rig, a).coming_us, 0, "nothing is");
    tiers_rig_load(&rig, 0, other, OTHER, false, &b);
    tiers_rig_round(&rig);
    cr_assert_eq(tiers_rig_state(&rig, a).coming_us, UINT64_MAX, "nobody knows");
    cr_assert_eq(tiers_rig_state(&rig, a).coming_tokens, 4 * RIG_BLOCK);
    set_pace(&rig, QUIRE_KV_TIER_DISK);
    cr_assert(about(tiers_rig_state(&rig, a).coming_us, 8), "%llu, both loads'",
              (unsigned long long)tiers_rig_state(&rig, a).coming_us);
    fake_store_hold(rig.fake, false);
    rig_close(rig.kv, a);
    rig_close(rig.kv, b);
    tiers_rig_close(&rig);
}
