/* Load or recompute under a virtual clock: what comes back from lower tiers gives the same answers, sooner or not at all, and
 * whatever the store does every request ends. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "world.h"

/* A step costs 1 ms and a row 0.1 ms, so a block of 16 takes about 1.6 ms to compute; one of 360 KiB comes at 220 MB/s as fast.
 */
enum { LONG = 400, BLOCK = 16, RECORD_BYTES = 360 * 1024, FAST = 2000 * 1000 * 1000, SLOW = 20 * 1000 * 1000 };

static world_options tiered(uint64_t bytes_per_second) {
    world_options o = world_defaults();
    o.tiered = true;
    o.store = (fake_store_config){.record_max = 512,
                                  .write_buffers = 8,
                                  .read_buffers = 8,
                                  .read_bytes_per_second = bytes_per_second,
                                  .read_latency_us = 100,
                                  .record_bytes = RECORD_BYTES};
    return o;
}

static void add(world *w, const quire_request *r) { cr_assert_eq(world_add(w, r), QUIRE_OK); }

static void assert_alone(world *w, const quire_request *r) {
    world_record solo;
    w->records[r->id].id = r->id;
    world_solo(&w->options, r, &solo);
    world_assert_equal(&w->records[r->id], &solo, r->choice_count);
}

static void run_equal(world *w, const quire_request *r) {
    add(w, r);
    world_drain(w, 20000);
    assert_alone(w, r);
}

/* Everything cached is written, and then only there. */
static void push_out(world *w) {
    quire_kv_flush_begin(w->kv);
    for (int i = 0; quire_kv_flush_left(w->kv) > 0; i++) {
        cr_assert(i < 10000, "a flush that never ends");
        world_rest(w, 1000);
    }
    while (quire_kv_evict(w->kv, 100000) > 0 || quire_kv_busy(w->kv)) world_rest(w, 100);
    cr_assert_eq(world_kv_stats(w).block_cached, 0);
}

/* A house that has computed this prompt, written it, measured a load of another, and holds nothing on the device. */
static world *house_with(const world_options *o, quire_token *prompt, uint32_t count) {
    quire_token other[200];
    world *w = world_create(o, 64);
    world_prompt(1000, other, 200);
    world_prompt(1, prompt, count);
    quire_request first = world_request(60, other, 200, 2), again = world_request(61, other, 200, 2),
                  wanted = world_request(62, prompt, count, 2);
    run_equal(w, &first);
    push_out(w);
    run_equal(w, &again);
    run_equal(w, &wanted);
    push_out(w);
    return w;
}

static uint64_t rows_of(const world *w) {
    qr_sim_counts counts;
    qr_backend_sim_get_counts(w->backend, &counts);
    return counts.rows;
}

static uint64_t gets_of(const world *w) { return world_tiers(w).tiers[QUIRE_KV_TIER_DISK].loaded_blocks_total; }

Test(sim_tiers, what_was_pushed_out_comes_back_from_the_store) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        for (uint32_t choices = 1; choices <= 3; choices += 2) {
            world_options o = tiered(FAST);
            quire_token prompt[LONG];
            o.steps_in_flight = flight;
            world *w = house_with(&o, prompt, LONG);
            uint64_t rows = rows_of(w);
            quire_request r = world_request(0, prompt, LONG, 8);
            r.choice_count = choices;
            r.progress = true;
            run_equal(w, &r);
            const quire_kv_match *match = &w->records[0].last.match;
            quire_kv_tier_stats disk = world_tiers(w).tiers[QUIRE_KV_TIER_DISK];
            cr_assert(match->disk_tokens >= LONG / 2, "%u tokens loaded of %u stored, miss %s; %.0f bytes/s, %u blocks on disk",
                      match->disk_tokens, match->stored_tokens, quire_kv_miss_name(match->miss), disk.load_bytes_per_second,
                      disk.block_count);
            cr_assert_eq(match->token_count, match->disk_tokens);
            cr_assert_eq(match->block_count * BLOCK, match->token_count);
            cr_assert(rows_of(w) - rows <= LONG - match->token_count + 8 * choices);
            cr_assert_eq(w->records[0].progress, LONG);
            cr_assert_eq(world_stats(w).loading, 0);
            world_destroy(w);
        }
    }
}

Test(sim_tiers, a_store_that_is_slower_than_computing_is_left_alone) {
    world_options o = tiered(SLOW);
    quire_token prompt[LONG];
    world *w = house_with(&o, prompt, LONG);
    uint64_t gets = gets_of(w);
    quire_request r = world_request(0, prompt, LONG, 8);
    run_equal(w, &r);
    cr_assert_eq(w->records[0].last.match.miss, QUIRE_KV_MISS_SLOWER);
    cr_assert_eq(w->records[0].last.match.token_count, 0);
    cr_assert_eq(gets_of(w), gets);
    cr_assert_geq(world_tiers(w).refused_blocks_total[QUIRE_KV_REFUSED_SLOWER], LONG / BLOCK - 1);
    world_destroy(w);
}

Test(sim_tiers, who_needs_the_same_prefix_joins_one_load) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        world_options o = tiered(FAST);
        quire_token prompt[LONG], tails[6][LONG];
        o.steps_in_flight = flight;
        world *w = house_with(&o, prompt, LONG);
        uint64_t gets = gets_of(w);
        quire_request r[6];
        for (uint64_t i = 0; i < 6; i++) {
            memcpy(tails[i], prompt, sizeof prompt);
            world_prompt(500 + i, tails[i] + LONG - 30, 30);
            r[i] = world_request(i, tails[i], LONG, 8);
            add(w, &r[i]);
        }
        world_drain(w, 1000);
        for (int i = 0; i < 6; i++) {
            assert_alone(w, &r[i]);
            cr_assert_geq(w->records[i].last.match.token_count, LONG / 2);
        }
        cr_assert_leq(gets_of(w) - gets, LONG / BLOCK, "each block came once");
        world_destroy(w);
    }
}

/* Held for ever: the load is given up at twice its estimate at the latest, and others never noticed. */
Test(sim_tiers, a_store_that_says_nothing_is_given_up) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        world_options o = tiered(FAST);
        quire_token prompt[LONG], chat[20];
        o.steps_in_flight = flight;
        world *w = house_with(&o, prompt, LONG);
        world_prompt(77, chat, 20);
        quire_request talking = world_request(0, chat, 20, 300), r = world_request(1, prompt, LONG, 8);
        talking.ignore_eos = true;
        add(w, &talking);
        while (w->records[0].choices[0].count < 5) cr_assert(world_step(w));
        fake_store_hold(w->store, true);
        add(w, &r);
        uint64_t begin_us = world_now(w);
        while (w->records[1].choices[0].count == 0) {
            uint32_t said = w->records[0].choices[0].count;
            cr_assert(world_step(w));
            cr_assert(w->records[0].choices[0].count > said, "a load held a decode back");
        }
        cr_assert_eq(w->records[1].last.match.token_count, 0);
        uint64_t taken_us = world_now(w) - begin_us;
        cr_assert_lt(taken_us, 2 * (LONG * 100 + LONG / 10 * 1000), "%llu us", (unsigned long long)taken_us);
        fake_store_hold(w->store, false);
        world_drain(w, 2000);
        assert_alone(w, &talking);
        assert_alone(w, &r);
        cr_assert_eq(w->records[1].last.match.miss, QUIRE_KV_MISS_ABANDONED);
        world_destroy(w);
    }
}

Test(sim_tiers, records_that_do_not_prove_themselves_are_computed) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        for (uint32_t percent = 20; percent <= 100; percent += 40) {
            world_options o = tiered(FAST);
            quire_token prompt[LONG];
            o.steps_in_flight = flight;
            o.store.seed = percent;
            world *w = house_with(&o, prompt, LONG);
            fake_store_faults_of(w->store)->get_damage_percent = percent;
            fake_store_faults_of(w->store)->get_fail_percent = percent / 4;
            quire_request r = world_request(0, prompt, LONG, 8);
            run_equal(w, &r);
            cr_assert_eq(w->records[0].last.match.miss, QUIRE_KV_MISS_DAMAGED);
            world_destroy(w);
        }
    }
}

Test(sim_tiers, verifying_recomputes_and_finds_what_differs) {
    for (int bad = 0; bad < 2; bad++) {
        world_options o = tiered(FAST);
        quire_token prompt[LONG];
        o.verify_every = 1;
        world *w = house_with(&o, prompt, LONG);
        qr_record_id record;
        cr_assert(fake_store_find(w->store, prompt + 3 * BLOCK, 4, &record));
        if (bad) ((uint64_t *)fake_store_payload(w->store, record))[5] ^= 1;
        uint64_t mismatches = world_tiers(w).verify_mismatches_total, verified = world_tiers(w).verified_blocks_total;
        quire_request r = world_request(0, prompt, LONG, 8);
        run_equal(w, &r);
        world_rest(w, 100000);
        cr_assert_eq(w->records[0].last.match.miss, QUIRE_KV_MISS_VERIFYING);
        cr_assert_eq(w->records[0].last.match.token_count, 0);
        cr_assert_gt(world_tiers(w).verified_blocks_total, verified);
        cr_assert_eq(world_tiers(w).verify_mismatches_total - mismatches, (uint64_t)bad);
        world_destroy(w);
    }
}

/* Cancelled, timed out or stopped at every moment of a load, with others that wait for it. */
Test(sim_tiers, endings_at_every_moment_of_a_load) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        world_options o = tiered(FAST / 8);
        quire_token prompt[LONG];
        o.steps_in_flight = flight;
        o.store.reorder = true;
        world *w = house_with(&o, prompt, LONG);
        for (uint32_t moment = 0; moment < 40; moment++) {
            quire_request r = world_request(moment % 2, prompt, LONG, 4),
                          waiter = world_request(2 + moment % 2, prompt, LONG, 4);
            memset(&w->records[r.id], 0, sizeof *w->records);
            memset(&w->records[waiter.id], 0, sizeof *w->records);
            if (moment % 3 == 0) r.timeout_us = 1 + 400 * moment;
            r.choice_count = 1 + moment % 2;
            add(w, &r);
            world_step(w);
            add(w, &waiter);
            for (uint32_t i = 0; i < moment && !qr_scheduler_idle(w->scheduler); i++) world_step(w);
            if (moment % 3 == 1) qr_scheduler_cancel(w->scheduler, r.id, world_now(w));
            if (moment % 3 == 2) qr_scheduler_stop_choice(w->scheduler, r.id, 0, world_now(w));
            world_drain(w, 2000);
            assert_alone(w, &waiter);
            push_out(w);
        }
        cr_assert_eq(fake_store_held_buffers(w->store), 0);
        world_destroy(w);
    }
}

/* A scored prompt uses nothing cached; a resumed choice may load its own history. */
Test(sim_tiers, scored_prompts_compute_every_row) {
    world_options o = tiered(FAST);
    quire_token prompt[LONG];
    world *w = house_with(&o, prompt, LONG);
    quire_request r = world_request(0, prompt, LONG, 4);
    r.prompt_logprobs = true;
    r.top_logprobs = 1;
    run_equal(w, &r);
    cr_assert_eq(w->records[0].prompt_scores, LONG - 1);
    cr_assert_eq(w->records[0].last.match.token_count, 0);
    world_destroy(w);
}

Test(sim_tiers, a_host_tier_gives_back_what_the_pool_lost) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        world_options o = tiered(FAST);
        quire_token prompt[6][LONG];
        uint64_t id = 0, host = 0;
        o.steps_in_flight = flight;
        o.block_count = 60;
        o.store.record_max = 0;
        o.host_blocks = 200;
        o.device = (qr_device_sim_config){.seed = flight, .delay_polls_max = 6, .reorder = true};
        world *w = world_create(&o, 64);
        for (int turn = 0; turn < 4; turn++)
            for (uint64_t i = 0; i < 6; i++, id++) {
                world_prompt(i + 1, prompt[i], LONG);
                quire_request r = world_request(id, prompt[i], LONG, 4);
                run_equal(w, &r);
                host += w->records[id].last.match.host_tokens;
            }
        cr_assert_gt(host, 3 * 6 * LONG / 2);
        world_destroy(w);
    }
}
