/* Load or compute: what the choice counts. A store of a middling speed is slower than computing when there is nothing else to
 * do, and faster than waiting for one's turn. */
#include <criterion/criterion.h>

#include "world.h"

/* A step costs 1 ms and a row 0.1 ms: 25 blocks are computed in about 45 ms, and come at 100 MB/s in 92. */
enum {
    PROMPT = 400,
    AHEAD = 1800,
    BLOCK = 16,
    RECORD_BYTES = 360 * 1024,
    MIDDLING = 100 * 1000 * 1000,
    FAST = 2000 * 1000 * 1000
};

static quire_token prompt[PROMPT], ahead[AHEAD];

static void push_out(world *w) {
    quire_kv_flush_begin(w->kv);
    while (quire_kv_flush_left(w->kv) > 0) world_rest(w, 1000);
    while (quire_kv_evict(w->kv, 100000) > 0 || quire_kv_busy(w->kv)) world_rest(w, 100);
}

static world *house(uint32_t flight, uint64_t bytes_per_second) {
    world_options o = world_defaults();
    o.context_tokens = 2048;
    o.block_count = 400;
    o.steps_in_flight = flight;
    o.tiered = true;
    o.store = (fake_store_config){.record_max = 512,
                                  .write_buffers = 8,
                                  .read_buffers = 8,
                                  .read_bytes_per_second = bytes_per_second,
                                  .read_latency_us = 100,
                                  .record_bytes = RECORD_BYTES};
    world *w = world_create(&o, 16);
    world_prompt(1, prompt, PROMPT);
    world_prompt(2, ahead, AHEAD);
    for (uint64_t id = 14; id < 16; id++) { /* computed and written; loaded, so that the store's speed is known */
        quire_request r = world_request(id, prompt, PROMPT, 2);
        cr_assert_eq(world_add(w, &r), QUIRE_OK);
        world_drain(w, 2000);
        push_out(w);
    }
    return w;
}

static const quire_kv_match *match_of(const world *w, uint64_t id) { return &w->records[id].last.match; }

static void assert_alone(world *w, const quire_request *r) {
    world_record solo;
    world_solo(&w->options, r, &solo);
    world_assert_equal(&w->records[r->id], &solo, r->choice_count);
}

Test(sim_load_choice, whoever_has_nothing_to_wait_for_computes) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        world *w = house(flight, MIDDLING);
        quire_request r = world_request(0, prompt, PROMPT, 4);
        uint64_t refused = world_tiers(w).refused_blocks_total[QUIRE_KV_REFUSED_SLOWER];
        cr_assert_eq(world_add(w, &r), QUIRE_OK);
        world_drain(w, 2000);
        cr_assert(match_of(w, 0)->miss == QUIRE_KV_MISS_SLOWER && match_of(w, 0)->disk_tokens == 0);
        uint64_t now_refused = world_tiers(w).refused_blocks_total[QUIRE_KV_REFUSED_SLOWER];
        cr_assert_eq(now_refused - refused, (PROMPT - 1) / BLOCK, "all of its blocks were");
        world_destroy(w);
    }
}

/* A long prefill goes before it: meanwhile the store has long been done. */
Test(sim_load_choice, whoever_has_to_wait_loads) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        world *w = house(flight, MIDDLING);
        quire_request first = world_request(0, ahead, AHEAD, 4), r = world_request(1, prompt, PROMPT, 4);
        cr_assert_eq(world_add(w, &first), QUIRE_OK);
        cr_assert(world_step(w));
        cr_assert_eq(world_add(w, &r), QUIRE_OK);
        world_drain(w, 2000);
        assert_alone(w, &r);
        cr_assert_geq(match_of(w, 1)->disk_tokens, 4 * BLOCK);
        world_destroy(w);
    }
}

/* It is the more urgent one: the other's rows come after its own. */
Test(sim_load_choice, who_goes_after_it_does_not_count) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        world *w = house(flight, MIDDLING);
        quire_request other = world_request(0, ahead, AHEAD, 4), r = world_request(1, prompt, PROMPT, 4);
        other.priority = 5;
        cr_assert_eq(world_add(w, &other), QUIRE_OK);
        cr_assert(world_step(w));
        cr_assert_eq(world_add(w, &r), QUIRE_OK);
        world_drain(w, 2000);
        assert_alone(w, &r);
        cr_assert(match_of(w, 1)->miss == QUIRE_KV_MISS_SLOWER && match_of(w, 1)->disk_tokens == 0, "%s, %u tokens",
                  quire_kv_miss_name(match_of(w, 1)->miss), match_of(w, 1)->disk_tokens);
        world_destroy(w);
    }
}

/* ---- a disk that does not keep its word ---- */

/* From now on a block takes so long. */
static void slow_down(world *w, uint64_t block_us) {
    fake_store_set_speed(w->store, (uint64_t)RECORD_BYTES * 1000000 / block_us, 0);
}

static uint32_t loaded_of(world *w, uint32_t count) {
    quire_request r = world_request(0, prompt, count, 4);
    cr_assert_eq(world_add(w, &r), QUIRE_OK);
    world_drain(w, 2000);
    assert_alone(w, &r);
    return match_of(w, 0)->disk_tokens;
}

/* Three blocks are computed in a few milliseconds, but no load is given up within ten: two have come by then. */
Test(sim_load_choice, a_late_disk_is_given_ten_milliseconds) {
    world *w = house(1, FAST);
    slow_down(w, 4500);
    cr_assert_eq(loaded_of(w, 3 * BLOCK + 1), 2 * BLOCK);
    cr_assert_eq(match_of(w, 0)->miss, QUIRE_KV_MISS_ABANDONED);
    cr_assert_eq(world_tiers(w).refused_blocks_total[QUIRE_KV_REFUSED_ABANDONED], 1);
    world_destroy(w);
}

/* Many blocks are worth more: the first comes after fifteen. */
Test(sim_load_choice, a_long_load_is_given_longer) {
    world *w = house(1, FAST);
    slow_down(w, 15000);
    cr_assert_geq(loaded_of(w, PROMPT), BLOCK);
    world_destroy(w);
}
