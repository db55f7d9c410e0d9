/* A namespace is forgotten while its requests run, wait, load or are paused: they go on with the same answers and leave nothing
 * behind; others notice nothing. And what a load that was cut short by such a thing says of itself. */
#include <criterion/criterion.h>
#include <string.h>

#include "world.h"

enum { OURS = 4, JOBS = OURS + 1, PROMPT = 96, LONG = 400, BLOCK = 16 };

static quire_token prompts[JOBS][PROMPT];

/* Four of one namespace, which outgrow the pool together, and before them one of another. */
static void make_requests(quire_request *r) {
    for (uint64_t i = 0; i < JOBS; i++) {
        world_prompt(70 + i, prompts[i], PROMPT);
        r[i] = world_request(i, prompts[i], i == 0 ? 48 : 80, i == 0 ? 20 : 90);
        r[i].ignore_eos = true;
        r[i].namespace_key = i == 0 ? "other" : "salt";
        r[i].namespace_bytes = i == 0 ? 5 : 4;
    }
}

static void forget(world *w, const char *key, uint64_t number) {
    quire_kv_forget_key(w->kv, key, strlen(key), true);
    qr_scheduler_forget(w->scheduler, key, strlen(key), number);
}

static uint32_t cached_of(const world *w, const quire_request *r) {
    quire_namespace_id ns;
    quire_kv_match match;
    if (!quire_kv_namespace_find(w->kv, r->namespace_key, r->namespace_bytes, &ns)) return 0;
    quire_kv_match_prefix(w->kv, ns, r->prompt, r->prompt_count, r->prompt_count, &match);
    return match.token_count + match.stored_tokens;
}

static void assert_alone(world *w, const quire_request *r) {
    world_record solo;
    world_solo(&w->options, r, &solo);
    world_assert_equal(&w->records[r->id], &solo, r->choice_count);
}

/* What was going on when it was forgotten. */
typedef struct moments {
    uint32_t running, waiting, paused;
} moments;

static void forget_at(uint32_t moment, uint32_t flight, moments *seen) {
    world_options o = world_defaults();
    quire_request r[JOBS];
    o.block_count = 26;
    o.max_sequences = 3;
    o.steps_in_flight = flight;
    world *w = world_create(&o, JOBS + 1);
    make_requests(r);
    for (uint32_t i = 0; i < JOBS; i++) cr_assert_eq(world_add(w, &r[i]), QUIRE_OK);
    for (uint32_t i = 0; i < moment && world_step(w); i++) continue;
    quire_engine_stats stats = world_stats(w);
    seen->running += stats.running > 0;
    seen->waiting += stats.waiting > 0;
    seen->paused += stats.paused > 0;
    forget(w, "salt", 1);
    world_drain(w, 20000);
    for (uint32_t i = 0; i < JOBS; i++) assert_alone(w, &r[i]);
    for (uint32_t i = 1; i < JOBS; i++) cr_assert_eq(cached_of(w, &r[i]), 0, "request %u, moment %u", i, moment);
    /* Whoever comes later is cached as ever. */
    quire_request later = r[1];
    later.id = JOBS;
    cr_assert_eq(world_add(w, &later), QUIRE_OK);
    world_drain(w, 2000);
    cr_assert_eq(w->records[JOBS].last.match.token_count, 0);
    cr_assert_geq(cached_of(w, &later), 64);
    world_destroy(w);
}

Test(sim_forgetting, at_every_moment_nothing_is_left_behind) {
    moments seen = {0};
    for (uint32_t flight = 1; flight <= 2; flight++)
        for (uint32_t moment = 0; moment < 320; moment += 5) forget_at(moment, flight, &seen);
    cr_assert(seen.running > 10 && seen.waiting > 10 && seen.paused >= 5, "%u running, %u waiting, %u paused", seen.running,
              seen.waiting, seen.paused);
}

/* The other one's is not touched, though it waits; nor who came after a forget that is only carried out now. */
Test(sim_forgetting, others_keep_what_they_have) {
    world_options o = world_defaults();
    quire_request r[JOBS];
    o.max_sequences = 2;
    world *w = world_create(&o, JOBS);
    make_requests(r);
    for (uint32_t i = JOBS; i-- > 0;) cr_assert_eq(world_add(w, &r[i]), QUIRE_OK);
    for (int i = 0; i < 3; i++) cr_assert(world_step(w));
    cr_assert_eq(w->records[0].started, 0);
    qr_scheduler_forget(w->scheduler, "other", 5, 0);
    forget(w, "salt", 1);
    world_drain(w, 2000);
    cr_assert_geq(cached_of(w, &r[0]), 32);
    for (uint32_t i = 1; i < JOBS; i++) cr_assert_eq(cached_of(w, &r[i]), 0);
    world_destroy(w);
}

/* ---- loads ---- */

static quire_token words[LONG];

/* The prompt lies in a fast store only, and how fast that is was measured. */
static world *house_with_store(void) {
    world_options o = world_defaults();
    o.tiered = true;
    o.store = (fake_store_config){.record_max = 512,
                                  .write_buffers = 8,
                                  .read_buffers = 8,
                                  .read_bytes_per_second = 2000000000,
                                  .read_latency_us = 100,
                                  .record_bytes = 360 * 1024};
    world *w = world_create(&o, 4);
    world_prompt(5, words, LONG);
    for (uint64_t id = 2; id < 4; id++) {
        quire_request r = world_request(id, words, LONG, 2);
        cr_assert_eq(world_add(w, &r), QUIRE_OK);
        world_drain(w, 2000);
        quire_kv_flush_begin(w->kv);
        while (quire_kv_flush_left(w->kv) > 0) world_rest(w, 1000);
        while (quire_kv_evict(w->kv, 100000) > 0 || quire_kv_busy(w->kv)) world_rest(w, 100);
    }
    return w;
}

static void start_to_load(world *w, const quire_request *r) {
    fake_store_hold(w->store, true);
    cr_assert_eq(world_add(w, r), QUIRE_OK);
    cr_assert(world_step(w));
    cr_assert_eq(world_stats(w).loading, 1);
}

static void end_load(world *w, const quire_request *r, quire_kv_miss why) {
    fake_store_hold(w->store, false);
    world_drain(w, 2000);
    assert_alone(w, r);
    cr_assert_eq(w->records[r->id].last.match.miss, why, "%s", quire_kv_miss_name(w->records[r->id].last.match.miss));
}

/* Nobody damaged anything: it was taken away. */
Test(sim_forgetting, a_load_that_is_forgotten_says_that_it_was_evicted) {
    world *w = house_with_store();
    quire_request r = world_request(0, words, LONG, 8);
    start_to_load(w, &r);
    quire_kv_forget_all(w->kv, true);
    qr_scheduler_forget(w->scheduler, NULL, 0, 1);
    end_load(w, &r, QUIRE_KV_MISS_EVICTED);
    cr_assert_eq(w->records[0].last.match.token_count, 0);
    world_rest(w, 100000);
    cr_assert_eq(fake_store_record_count(w->store), 0);
    world_destroy(w);
}

/* The cause is that of the load, and its blocks count as far as they came. */
Test(sim_forgetting, a_load_that_loses_a_record_says_why_it_ended) {
    for (int damaged = 0; damaged < 2; damaged++) {
        world *w = house_with_store();
        quire_request r = world_request(0, words, LONG, 8);
        qr_record_id record;
        start_to_load(w, &r);
        cr_assert(fake_store_find(w->store, words + 20 * BLOCK, 21, &record));
        if (damaged) fake_store_damage(w->store, record);
        else fake_store_lose(w->store, record);
        end_load(w, &r, damaged ? QUIRE_KV_MISS_DAMAGED : QUIRE_KV_MISS_EVICTED);
        cr_assert(w->records[0].last.match.token_count <= 20 * BLOCK);
        world_destroy(w);
    }
}
