/* Loads: what lies below the pool comes back, whatever happens meanwhile. */
#include <criterion/criterion.h>

#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 10 * RIG_BLOCK, OTHER = 14 * RIG_BLOCK };

static quire_token prompt[OTHER], other[OTHER];

/* The prompt is on disk only. */
static void rig_prepare(tiers_rig *rig) {
    rig_count_up(prompt, OTHER, 1);
    rig_count_up(other, OTHER, 1000);
    tiers_rig_run(rig, 0, prompt, PROMPT);
    tiers_rig_settle(rig);
    quire_kv_evict(rig->kv, 1000);
    cr_assert_eq(rig_match(rig->kv, 0, prompt, PROMPT).token_count, 0);
    cr_assert_eq(rig_match(rig->kv, 0, prompt, PROMPT).stored_tokens, PROMPT);
}

Test(kv_loads, what_was_evicted_to_disk_comes_back_with_its_bytes) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    quire_kv_load load = tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    cr_assert(load.begin_block == 0 && load.end_block == 10 && load.disk_blocks == 10 && load.host_blocks == 0);
    cr_assert_gt(load.estimate_us, 0);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), PROMPT);
    quire_kv_load_state state = tiers_rig_state(&rig, seq);
    cr_assert(!state.failed && state.disk_tokens == PROMPT && state.host_tokens == 0);
    rig_close(rig.kv, seq);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).token_count, PROMPT);
    tiers_rig_close(&rig);
}

Test(kv_loads, a_restart_finds_everything_again) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    tiers_rig_restart(&rig);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, PROMPT);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), PROMPT);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_loads, host_memory_behind_a_device_with_slow_copies) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.no_store = true;
    rig.host_slots = 12;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 5, .delay_polls_max = 6, .reorder = true};
    tiers_rig_open(&rig);
    rig_count_up(prompt, OTHER, 1);
    rig_count_up(other, OTHER, 1000);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_run(&rig, 0, other, OTHER);
    cr_assert_gt(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, 0);
    quire_kv_load load = tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    cr_assert_gt(load.host_blocks, 0);
    uint32_t taken = tiers_rig_finish(&rig, seq, prompt, PROMPT, 0);
    cr_assert_eq(taken, (load.end_block - load.begin_block) * RIG_BLOCK);
    tiers_rig_check_bytes(&rig, seq);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_loads, the_front_is_computed_until_the_two_meet) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.store.read_bytes_per_second = 30000000; /* a payload in about a third of a millisecond */
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    for (uint32_t rate = 5; rate < 40; rate += 11) {
        quire_kv_evict(rig.kv, 1000);
        tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
        uint32_t taken = tiers_rig_finish(&rig, seq, prompt, PROMPT, rate);
        cr_assert(taken > 0 && taken < PROMPT && taken % RIG_BLOCK == 0);
        tiers_rig_check_bytes(&rig, seq);
        rig_close(rig.kv, seq);
        tiers_rig_settle(&rig);
    }
    tiers_rig_close(&rig);
}

Test(kv_loads, nothing_is_asked_for_that_is_being_computed) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    quire_kv_load_computing(rig.kv, seq, 6 * RIG_BLOCK + 1);
    for (int i = 0; i < 10; i++) tiers_rig_round(&rig);
    quire_kv_load_state state = tiers_rig_state(&rig, seq);
    cr_assert(state.active && state.front_tokens == 7 * RIG_BLOCK && state.loaded_tokens == 3 * RIG_BLOCK);
    tiers_rig_compute(&rig, seq, prompt, 0, 6 * RIG_BLOCK + 1);
    cr_assert_eq(quire_kv_load_take(rig.kv, seq), 0);
    tiers_rig_compute(&rig, seq, prompt, 6 * RIG_BLOCK + 1, 7 * RIG_BLOCK);
    cr_assert_eq(quire_kv_load_take(rig.kv, seq), 3 * RIG_BLOCK);
    cr_assert_not(tiers_rig_state(&rig, seq).active);
    tiers_rig_check_bytes(&rig, seq);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_loads, a_plan_needs_room_and_finds_what_is_there) {
    tiers_rig rig = tiers_rig_make();
    quire_kv_load load;
    quire_kv_match match;
    quire_seq_id seq;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    cr_assert_eq(quire_kv_seq_open(rig.kv, 0, &seq), QUIRE_OK);
    cr_assert_eq(quire_kv_load_plan(rig.kv, seq, prompt, PROMPT, PROMPT, &load), QUIRE_INVALID);
    cr_assert_eq(quire_kv_seq_attach(rig.kv, seq, prompt, PROMPT, PROMPT - 1, &match), QUIRE_OK);
    cr_assert(match.token_count == 0 && match.stored_tokens == PROMPT - RIG_BLOCK && match.miss == QUIRE_KV_MISS_LIMIT);
    cr_assert_eq(quire_kv_seq_reserve(rig.kv, seq, PROMPT), QUIRE_OK);
    cr_assert_eq(quire_kv_load_plan(rig.kv, seq, prompt, PROMPT, PROMPT - 1, &load), QUIRE_OK);
    cr_assert(load.begin_block == 0 && load.end_block == 9);
    cr_assert_eq(quire_kv_load_plan(rig.kv, seq, other, PROMPT, PROMPT, &load), QUIRE_OK);
    cr_assert(load.begin_block == load.end_block && load.estimate_us == 0);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_loads, a_load_begins_behind_a_copied_tail) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    quire_token near[PROMPT];
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    for (uint32_t i = 0; i < PROMPT; i++) near[i] = i < 5 ? prompt[i] : 7;
    tiers_rig_run(&rig, 0, near, RIG_BLOCK);
    quire_kv_load load = tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    cr_assert(load.begin_block == 1 && load.end_block == 10);
    for (int i = 0; i < 10; i++) tiers_rig_round(&rig);
    cr_assert_eq(quire_kv_load_take(rig.kv, seq), 0);
    tiers_rig_compute(&rig, seq, prompt, 5, RIG_BLOCK);
    cr_assert_eq(quire_kv_load_take(rig.kv, seq), 9 * RIG_BLOCK);
    tiers_rig_check_bytes(&rig, seq);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_loads, behind_a_damaged_record_everything_is_computed) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    qr_record_id record;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    cr_assert(fake_store_find(rig.fake, prompt + 4 * RIG_BLOCK, 5, &record));
    fake_store_damage(rig.fake, record);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), 4 * RIG_BLOCK);
    quire_kv_load_state state = tiers_rig_state(&rig, seq);
    cr_assert(state.failed && state.front_tokens == PROMPT && state.disk_tokens == 4 * RIG_BLOCK);
    quire_kv_match match = rig_match(rig.kv, 0, prompt, PROMPT);
    cr_assert(match.token_count == 4 * RIG_BLOCK && match.stored_tokens == 0 && match.miss == QUIRE_KV_MISS_DAMAGED);
    cr_assert_eq(tiers_rig_stats(&rig).tiers[QUIRE_KV_TIER_DISK].damaged_total, 1);
    tiers_rig_compute(&rig, seq, prompt, 4 * RIG_BLOCK, PROMPT);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_loads, a_record_of_other_tokens_or_another_key_is_damage) {
    for (int other_key = 0; other_key < 2; other_key++) {
        tiers_rig rig = tiers_rig_make();
        quire_seq_id seq;
        qr_record_id record;
        tiers_rig_open(&rig);
        rig_prepare(&rig);
        cr_assert(fake_store_find(rig.fake, prompt + 2 * RIG_BLOCK, 3, &record));
        if (other_key) fake_store_set_key(rig.fake, record, "x", 1);
        else fake_store_tokens(rig.fake, record)[7]++;
        tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
        cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), 2 * RIG_BLOCK);
        cr_assert(tiers_rig_state(&rig, seq).failed);
        cr_assert_eq(tiers_rig_stats(&rig).tiers[QUIRE_KV_TIER_DISK].damaged_total, 1);
        rig_close(rig.kv, seq);
        tiers_rig_close(&rig);
    }
}

Test(kv_loads, a_record_lost_before_it_was_read_ends_the_load_there) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    qr_record_id record;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    fake_store_hold(rig.fake, true);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig);
    cr_assert_gt(tiers_rig_state(&rig, seq).coming_tokens, 0);
    cr_assert(fake_store_find(rig.fake, prompt + 6 * RIG_BLOCK, 7, &record));
    fake_store_lose(rig.fake, record);
    tiers_rig_round(&rig);
    fake_store_hold(rig.fake, false);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), 6 * RIG_BLOCK);
    cr_assert(tiers_rig_state(&rig, seq).failed);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).miss, QUIRE_KV_MISS_EVICTED);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_loads, what_arrived_before_a_load_is_abandoned_is_taken) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.store.read_buffers = 4;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig); /* asks for four */
    tiers_rig_round(&rig); /* they arrive, four more are asked for */
    fake_store_hold(rig.fake, true);
    quire_kv_load_state state = tiers_rig_state(&rig, seq);
    cr_assert(state.loaded_tokens == 4 * RIG_BLOCK && state.coming_tokens == 4 * RIG_BLOCK);
    quire_kv_load_abandon(rig.kv, seq);
    state = tiers_rig_state(&rig, seq);
    cr_assert(state.active && state.coming_tokens == 0 && state.front_tokens == 6 * RIG_BLOCK);
    tiers_rig_compute(&rig, seq, prompt, 0, 6 * RIG_BLOCK);
    cr_assert_eq(quire_kv_load_take(rig.kv, seq), 4 * RIG_BLOCK);
    cr_assert_not(tiers_rig_state(&rig, seq).active);
    fake_store_hold(rig.fake, false);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_loads, a_load_that_was_given_up_for_slowness_teaches_it) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    quire_kv_load load;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    uint64_t before_us = tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq).estimate_us;
    fake_store_hold(rig.fake, true);
    for (int i = 0; i < 50; i++) tiers_rig_round(&rig);
    quire_kv_load_abandon(rig.kv, seq);
    fake_store_hold(rig.fake, false);
    cr_assert_eq(quire_kv_load_plan(rig.kv, seq, prompt, PROMPT, PROMPT, &load), QUIRE_OK);
    cr_assert_gt(load.estimate_us, 10 * before_us, "%llu, %llu before", (unsigned long long)load.estimate_us,
                 (unsigned long long)before_us);
    tiers_rig_settle(&rig);
    rig.now_us += UINT64_C(3600) * 1000000; /* and time lets it be tried again */
    tiers_rig_round(&rig);
    cr_assert_eq(quire_kv_load_plan(rig.kv, seq, prompt, PROMPT, PROMPT, &load), QUIRE_OK);
    cr_assert_lt(load.estimate_us, 2 * before_us);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

typedef void ending(tiers_rig *rig, quire_seq_id seq);
static void end_by_close(tiers_rig *rig, quire_seq_id seq) { rig_close(rig->kv, seq); }
static void end_by_truncation(tiers_rig *rig, quire_seq_id seq) {
    cr_assert_eq(quire_kv_seq_truncate(rig->kv, seq, 0), QUIRE_OK);
}
static void end_by_forgetting(tiers_rig *rig, quire_seq_id seq) {
    (void)seq;
    quire_kv_forget_all(rig->kv, true);
}
static void end_by_destroying(tiers_rig *rig, quire_seq_id seq) {
    (void)seq;
    tiers_rig_restart(rig);
}

/* Whatever is under way when it ends: with a slow store, and with a slow device. */
static void check_ending(ending *end, uint32_t rounds, bool device_sim) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq, next;
    rig.device_sim = device_sim;
    rig.device = (qr_device_sim_config){.seed = 1 + rounds, .delay_polls_max = 40};
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    tiers_rig_settle(&rig);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    for (uint32_t i = 0; i < rounds; i++) tiers_rig_round(&rig);
    end(&rig, seq);
    tiers_rig_round(&rig);
    if (end == end_by_destroying || end == end_by_close) {
        tiers_rig_start(&rig, 0, other, OTHER, &next); /* needs every block that is free, and has the row of the load */
        tiers_rig_settle(&rig);
        tiers_rig_check_bytes(&rig, next);
        rig_close(rig.kv, next);
    } else {
        rig_close(rig.kv, seq);
    }
    tiers_rig_close(&rig);
}

Test(kv_loads, may_end_at_any_moment) {
    ending *const endings[] = {end_by_close, end_by_truncation, end_by_forgetting, end_by_destroying};
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t rounds = 0; rounds < 6; rounds++)
            for (int sim = 0; sim < 2; sim++) check_ending(endings[i], rounds, sim);
}

Test(kv_loads, what_was_asked_for_an_earlier_sequence_is_not_taken_for_the_next) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.config.block_count = 32;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    tiers_rig_run(&rig, 0, other, PROMPT);
    tiers_rig_settle(&rig);
    quire_kv_evict(rig.kv, 1000);
    fake_store_hold(rig.fake, true);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig);
    fake_store_hold(rig.fake, false);
    rig_close(rig.kv, seq);
    tiers_rig_load(&rig, 0, other, PROMPT, false, &seq);
    cr_assert_eq(seq.index, 0);
    cr_assert_eq(tiers_rig_finish(&rig, seq, other, PROMPT, 0), PROMPT);
    tiers_rig_check_bytes(&rig, seq);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_loads, two_share_the_store) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id a, b;
    rig.config.block_count = 32;
    rig.store.read_buffers = 8;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    tiers_rig_run(&rig, 0, other, OTHER);
    tiers_rig_settle(&rig);
    quire_kv_evict(rig.kv, 1000);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &a);
    tiers_rig_load(&rig, 0, other, OTHER, false, &b);
    for (int i = 0; i < 3; i++) tiers_rig_round(&rig);
    cr_assert(tiers_rig_state(&rig, a).loaded_tokens > 0 && tiers_rig_state(&rig, b).loaded_tokens > 0);
    tiers_rig_finish(&rig, a, prompt, PROMPT, 0);
    tiers_rig_finish(&rig, b, other, OTHER, 0);
    rig_close(rig.kv, a);
    rig_close(rig.kv, b);
    tiers_rig_close(&rig);
}

Test(kv_loads, what_somebody_else_computed_meanwhile_is_taken_without_reading) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq, twin;
    rig.config.block_count = 32;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    fake_store_hold(rig.fake, true);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig);
    tiers_rig_start(&rig, 0, prompt, PROMPT, &twin);
    cr_assert_eq(quire_kv_load_take(rig.kv, seq), PROMPT);
    cr_assert_eq(tiers_rig_state(&rig, seq).disk_tokens, 0);
    tiers_rig_check_bytes(&rig, seq);
    fake_store_hold(rig.fake, false);
    rig_close(rig.kv, seq);
    rig_close(rig.kv, twin);
    tiers_rig_close(&rig);
}

Test(kv_loads, other_tokens_than_those_of_the_load_end_it) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_compute(&rig, seq, other, 0, 20);
    cr_assert_not(tiers_rig_state(&rig, seq).active);
    tiers_rig_check_bytes(&rig, seq);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_loads, tokens_of_a_block_that_is_being_copied_into_are_refused) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.device_sim = true;
    rig.device.delay_polls_max = 1000;
    rig.device.seed = 3;
    tiers_rig_open(&rig);
    rig_count_up(prompt, OTHER, 1);
    rig_count_up(other, OTHER, 1000);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    for (int i = 0; i < 3000; i++) tiers_rig_round(&rig);
    quire_kv_evict(rig.kv, 1000);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    for (int i = 0; i < 3; i++) tiers_rig_round(&rig);
    cr_assert_gt(tiers_rig_state(&rig, seq).coming_tokens, 0);
    uint32_t front = tiers_rig_state(&rig, seq).front_tokens;
    cr_assert_lt(front, PROMPT);
    cr_assert_eq(quire_kv_seq_commit(rig.kv, seq, prompt, PROMPT), QUIRE_INVALID);
    if (front > 0) tiers_rig_compute(&rig, seq, prompt, 0, front);
    for (int i = 0; i < 3000; i++) tiers_rig_round(&rig);
    cr_assert_gt(quire_kv_load_take(rig.kv, seq), 0);
    rig_close(rig.kv, seq);
    for (int i = 0; i < 3000; i++) tiers_rig_round(&rig);
    tiers_rig_close(&rig);
}

enum { CROWD = 16, CROWD_BLOCKS = 8 };

typedef struct crowd {
    tiers_rig rig;
    quire_seq_id seqs[CROWD];
    uint64_t began_us, estimates_us[CROWD], ended_us[CROWD];
    uint32_t taken[CROWD];
} crowd;

static quire_token crowd_tokens[CROWD][CROWD_BLOCKS * RIG_BLOCK];

/* Sixteen prompts on disk, all asked for at once, over four buffers of a disk that reads a block in two milliseconds. What the
 * disk can do is known from a load before. */
static void crowd_open(crowd *c) {
    uint32_t count = CROWD_BLOCKS * RIG_BLOCK;
    c->rig = tiers_rig_make();
    c->rig.config.block_count = CROWD * CROWD_BLOCKS;
    c->rig.config.max_sequences = CROWD;
    c->rig.store.record_max = 2 * CROWD * CROWD_BLOCKS;
    c->rig.store.read_buffers = 4;
    c->rig.store.record_bytes = 400000;
    c->rig.store.read_bytes_per_second = 200000000;
    tiers_rig_open(&c->rig);
    for (uint32_t i = 0; i < CROWD; i++) {
        rig_count_up(crowd_tokens[i], count, 1 + 1000 * (quire_token)i);
        tiers_rig_run(&c->rig, 0, crowd_tokens[i], count);
    }
    tiers_rig_settle(&c->rig);
    for (int i = 0; i < 2; i++) {
        quire_kv_evict(c->rig.kv, 1000);
        if (i > 0) break;
        tiers_rig_load(&c->rig, 0, crowd_tokens[0], count, false, &c->seqs[0]);
        tiers_rig_finish(&c->rig, c->seqs[0], crowd_tokens[0], count, 0);
        rig_close(c->rig.kv, c->seqs[0]);
        tiers_rig_settle(&c->rig);
    }
}

static void crowd_round(crowd *c) {
    tiers_rig_round(&c->rig);
    for (uint32_t i = 0; i < CROWD; i++) {
        if (c->ended_us[i]) continue;
        c->taken[i] += quire_kv_load_take(c->rig.kv, c->seqs[i]);
        if (!tiers_rig_state(&c->rig, c->seqs[i]).active) c->ended_us[i] = c->rig.now_us - c->began_us;
    }
}

static void crowd_close(crowd *c) {
    for (uint32_t i = 0; i < CROWD; i++) {
        tiers_rig_check_bytes(&c->rig, c->seqs[i]);
        rig_close(c->rig.kv, c->seqs[i]);
    }
    tiers_rig_close(&c->rig);
}

/* The disk, in virtual time, sees to it that nobody is late by more than he was told. */
Test(kv_loads, of_a_crowd_each_is_over_when_it_was_promised_to_be) {
    static crowd c;
    uint32_t count = CROWD_BLOCKS * RIG_BLOCK;
    crowd_open(&c);
    c.began_us = c.rig.now_us;
    for (uint32_t i = 0; i < CROWD; i++)
        c.estimates_us[i] = tiers_rig_load(&c.rig, 0, crowd_tokens[i], count, false, &c.seqs[i]).estimate_us;
    for (int i = 0; i < 2000; i++) crowd_round(&c);
    for (uint32_t i = 0; i < CROWD; i++) {
        cr_assert_eq(c.taken[i], count, "load %u", i);
        cr_assert_lt(c.ended_us[i], c.estimates_us[i] + c.estimates_us[i] / 2 + 5000, "load %u: %llu us, promised %llu", i,
                     (unsigned long long)c.ended_us[i], (unsigned long long)c.estimates_us[i]);
        if (i > 0) cr_assert_geq(c.ended_us[i], c.ended_us[i - 1]);
    }
    /* And no time of the disk was lost: 128 blocks, two milliseconds each. */
    cr_assert_lt(c.ended_us[CROWD - 1], 128 * 2000 * 5 / 4);
    crowd_close(&c);
}

/* Its last blocks are read before those of all who came after, however many they are. */
Test(kv_loads, whose_front_has_met_it_waits_for_its_own_reads_only) {
    static crowd c;
    uint32_t count = CROWD_BLOCKS * RIG_BLOCK;
    crowd_open(&c);
    c.began_us = c.rig.now_us;
    tiers_rig_load(&c.rig, 0, crowd_tokens[0], count, false, &c.seqs[0]);
    tiers_rig_round(&c.rig);
    for (uint32_t i = 1; i < CROWD; i++) tiers_rig_load(&c.rig, 0, crowd_tokens[i], count, false, &c.seqs[i]);
    quire_kv_load_computing(c.rig.kv, c.seqs[0], 3 * RIG_BLOCK);
    tiers_rig_round(&c.rig);
    tiers_rig_compute(&c.rig, c.seqs[0], crowd_tokens[0], 0, 3 * RIG_BLOCK);
    for (int i = 0; i < 2000; i++) crowd_round(&c);
    cr_assert_eq(c.taken[0], 5 * RIG_BLOCK);
    cr_assert_leq(c.ended_us[0], 5 * 2000 + 4000, "%llu us", (unsigned long long)c.ended_us[0]);
    crowd_close(&c);
}

/* Nobody asked for it yet when it goes, so no read says so: the load ends before it all the same. */
Test(kv_loads, a_record_lost_before_it_was_asked_for_ends_the_load_there) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    qr_record_id record;
    rig.store.read_buffers = 2;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    fake_store_hold(rig.fake, true);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig);
    cr_assert(fake_store_find(rig.fake, prompt + 3 * RIG_BLOCK, 4, &record));
    fake_store_lose(rig.fake, record);
    tiers_rig_round(&rig);
    fake_store_hold(rig.fake, false);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), 3 * RIG_BLOCK);
    cr_assert(tiers_rig_state(&rig, seq).failed);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* ---- what may be loaded ---- */

static quire_kv_load plan_of(const tiers_rig *rig, quire_seq_id seq, const quire_token *tokens) {
    quire_kv_load load;
    cr_assert_eq(quire_kv_load_plan(rig->kv, seq, tokens, PROMPT, PROMPT, &load), QUIRE_OK);
    return load;
}

static quire_seq_id attached(tiers_rig *rig, uint32_t limit) {
    quire_seq_id seq;
    quire_kv_match match;
    cr_assert_eq(quire_kv_seq_open(rig->kv, 0, &seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_attach(rig->kv, seq, prompt, PROMPT, limit, &match), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_reserve(rig->kv, seq, PROMPT), QUIRE_OK);
    return seq;
}

/* They cost nothing, and what is stored behind them is there all the same. */
Test(kv_loads, a_plan_goes_on_behind_what_somebody_else_has_computed_since) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id twin;
    rig.config.block_count = 32;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    quire_seq_id seq = attached(&rig, PROMPT);
    tiers_rig_start(&rig, 0, prompt, 3 * RIG_BLOCK, &twin);
    quire_kv_load load = plan_of(&rig, seq, prompt);
    cr_assert(load.begin_block == 0 && load.end_block == 10 && load.disk_blocks == 7 && load.host_blocks == 0);
    cr_assert_eq(quire_kv_load_begin(rig.kv, seq, prompt, &load, false), QUIRE_OK);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), PROMPT);
    cr_assert_eq(tiers_rig_state(&rig, seq).disk_tokens, 7 * RIG_BLOCK);
    rig_close(rig.kv, seq);
    rig_close(rig.kv, twin);
    tiers_rig_close(&rig);
}

/* Nothing that it computes will be matched, and nothing of what others stored since is its own. */
Test(kv_loads, a_forgotten_sequence_loads_nothing) {
    tiers_rig rig = tiers_rig_make();
    quire_kv_load load = {.end_block = 10};
    rig.config.block_count = 32;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    quire_seq_id seq = attached(&rig, PROMPT);
    quire_kv_forget_all(rig.kv, false);
    rig_prepare(&rig);
    cr_assert_eq(quire_kv_load_begin(rig.kv, seq, prompt, &load, false), QUIRE_INVALID);
    load = plan_of(&rig, seq, prompt);
    cr_assert(load.begin_block == load.end_block && load.disk_blocks == 0);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* What lies behind other tokens holds other bytes. */
Test(kv_loads, a_plan_for_other_tokens_than_the_sequences_own_finds_nothing) {
    tiers_rig rig = tiers_rig_make();
    quire_token changed[PROMPT];
    rig.config.block_count = 32;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    quire_seq_id seq = attached(&rig, PROMPT);
    tiers_rig_compute(&rig, seq, prompt, 0, 2 * RIG_BLOCK);
    for (uint32_t i = 0; i < PROMPT; i++) changed[i] = i == 3 ? -7 : prompt[i];
    quire_kv_load load = plan_of(&rig, seq, changed);
    cr_assert(load.begin_block == 2 && load.end_block == 2);
    load = plan_of(&rig, seq, prompt);
    cr_assert(load.begin_block == 2 && load.end_block == 10 && load.disk_blocks == 8);
    cr_assert_eq(quire_kv_load_begin(rig.kv, seq, changed, &load, false), QUIRE_INVALID);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_loads, a_load_begins_where_the_tokens_end_and_fits_into_its_room) {
    tiers_rig rig = tiers_rig_make();
    rig.config.block_count = 32;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    quire_seq_id seq = attached(&rig, PROMPT);
    quire_kv_load load = plan_of(&rig, seq, prompt), longer = load;
    longer.end_block = 11;
    cr_assert_eq(quire_kv_load_begin(rig.kv, seq, prompt, &longer, false), QUIRE_INVALID);
    tiers_rig_compute(&rig, seq, prompt, 0, RIG_BLOCK);
    cr_assert_eq(quire_kv_load_begin(rig.kv, seq, prompt, &load, false), QUIRE_INVALID, "planned before");
    load = plan_of(&rig, seq, prompt);
    cr_assert_eq(quire_kv_load_begin(rig.kv, seq, prompt, &load, false), QUIRE_OK);
    cr_assert_eq(quire_kv_load_begin(rig.kv, seq, prompt, &load, false), QUIRE_INVALID, "it loads already");
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* Beside a block that was begun, what is counted is what will be read. */
Test(kv_loads, the_block_that_was_begun_is_not_counted) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    quire_token near[RIG_BLOCK];
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    for (uint32_t i = 0; i < RIG_BLOCK; i++) near[i] = i < 5 ? prompt[i] : 7;
    tiers_rig_run(&rig, 0, near, RIG_BLOCK);
    quire_kv_load load = tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    cr_assert(load.begin_block == 1 && load.end_block == 10 && load.disk_blocks == 9);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}
