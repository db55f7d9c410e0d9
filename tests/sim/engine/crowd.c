/* Thousands of random requests in random company: every one gets exactly one DONE, its answer equals its solo run, nobody
 * waits for ever, and nothing is left behind. QUIRE_SEED is added to every seed; each crowd says what it runs with. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

enum { PROMPT_MAX = 160, FAMILIES = 6 };

typedef struct crowd {
    const char *name;
    world_options options;
    uint32_t requests;
    uint32_t prompt_max, answer_max, choices_max;
    uint32_t cancel_percent, timeout_percent, stop_choice_percent;
    uint32_t arrivals; /* at most this many between two steps */
    uint64_t seed;
} crowd;

typedef struct member {
    quire_token prompt[PROMPT_MAX];
    quire_token stop[1];
    quire_request request;
    char salt[2];
    bool added, solo_done;
} member;

/* Prompts come in families with a common beginning, so that prefixes are shared at every length. */
static void make_member(const crowd *c, qr_random *r, uint64_t id, member *m) {
    uint32_t count = 1 + qr_random_below(r, c->prompt_max), shared = qr_random_below(r, count + 1);
    world_prompt(id + 1000, m->prompt, count);
    quire_token family[PROMPT_MAX];
    world_prompt(qr_random_below(r, FAMILIES), family, count);
    memcpy(m->prompt, family, shared * sizeof(quire_token));
    m->request = world_request(id, m->prompt, count, qr_random_below(r, c->answer_max + 1));
    m->request.choice_count = 1 + qr_random_below(r, c->choices_max);
    m->request.priority = (int32_t)qr_random_below(r, 3);
    m->request.min_tokens = qr_random_below(r, 4) == 0 ? qr_random_below(r, 10) : 0;
    m->request.ignore_eos = qr_random_below(r, 4) == 0;
    m->request.progress = qr_random_below(r, 4) == 0;
    m->request.prompt_logprobs = qr_random_below(r, 10) == 0;
    if (m->request.prompt_logprobs) m->request.top_logprobs = 2;
    m->stop[0] = 5;
    if (qr_random_below(r, 4) == 0) m->request.stop_tokens = m->stop, m->request.stop_token_count = 1;
    m->salt[0] = (char)('a' + qr_random_below(r, 3));
    m->request.namespace_key = m->salt;
    m->request.namespace_bytes = m->salt[0] == 'a' ? 0 : 1;
    if (qr_random_below(r, 100) < c->timeout_percent) m->request.timeout_us = 1 + qr_random_below(r, 2000000);
    if (qr_random_below(r, 2)) m->request.sampling.temperature = 0;
}

static void disturb(const crowd *c, world *w, qr_random *r, uint32_t added) {
    if (added == 0) return;
    if (qr_random_below(r, 100) < c->cancel_percent) {
        qr_scheduler_cancel(w->scheduler, added - 1 - qr_random_below(r, added < 30 ? added : 30), world_now(w));
    }
    if (qr_random_below(r, 100) < c->stop_choice_percent) {
        uint64_t id = added - 1 - qr_random_below(r, added < 10 ? added : 10);
        qr_scheduler_stop_choice(w->scheduler, id, qr_random_below(r, c->choices_max), world_now(w));
    }
}

static void check_member(const crowd *c, const world *w, const member *m, uint64_t id) {
    world_record *r = &w->records[id];
    r->id = id;
    cr_assert_eq(r->done, 1, "%s: request %llu has %u DONE", c->name, (unsigned long long)id, r->done);
    cr_assert_eq(r->choices_done, m->request.choice_count);
    cr_assert(r->started <= 1);
    cr_assert(r->match.token_count < m->request.prompt_count);
    if (r->started) cr_assert(r->last.match.token_count < m->request.prompt_count);
    uint32_t tokens = 0;
    bool answered = false; /* at least one choice to its own end */
    for (uint32_t i = 0; i < m->request.choice_count; i++) {
        tokens += r->choices[i].count;
        answered = answered || r->choices[i].finish == QUIRE_FINISH_STOP || r->choices[i].finish == QUIRE_FINISH_LENGTH;
    }
    cr_assert_eq(r->last.completion_tokens, tokens);
    if (answered && m->request.prompt_logprobs) {
        cr_assert_eq(r->last.match.token_count, 0, "nothing cached past the first scored token");
        cr_assert_eq(r->prompt_scores, m->request.prompt_count - 1);
    }
    world_record solo;
    world_solo(&c->options, &m->request, &solo);
    world_assert_equal(r, &solo, m->request.choice_count);
    if (answered) cr_assert_eq(r->scores_hash, solo.scores_hash);
}

static uint64_t seed_offset(void) {
    const char *given = getenv("QUIRE_SEED");
    return given ? strtoull(given, NULL, 10) : 0;
}

static void print_tiers(const world *w) {
    quire_kv_tiers_stats t = world_tiers(w);
    for (int i = QUIRE_KV_TIER_HOST; i < QUIRE_KV_TIER_COUNT; i++) {
        if (!t.tiers[i].present) continue;
        fprintf(stderr, "  %s: %llu blocks stored, %llu loaded, %llu evicted, %llu damaged, %llu errors\n",
                quire_kv_tier_name((quire_kv_tier)i), (unsigned long long)t.tiers[i].stored_blocks_total,
                (unsigned long long)t.tiers[i].loaded_blocks_total, (unsigned long long)t.tiers[i].evicted_blocks_total,
                (unsigned long long)t.tiers[i].damaged_total, (unsigned long long)t.tiers[i].error_total);
    }
    fprintf(stderr, "  refused as slower %llu, abandoned %llu, verified %llu, waits %llu\n",
            (unsigned long long)t.refused_blocks_total[QUIRE_KV_REFUSED_SLOWER],
            (unsigned long long)t.refused_blocks_total[QUIRE_KV_REFUSED_ABANDONED], (unsigned long long)t.verified_blocks_total,
            (unsigned long long)w->waits);
}

static void run_crowd(const crowd *c) {
    qr_random r = {c->seed + seed_offset()};
    fprintf(stderr, "%s: QUIRE_SEED=%llu and %llu\n", c->name, (unsigned long long)seed_offset(), (unsigned long long)c->seed);
    member *members = calloc(c->requests, sizeof *members);
    world *w = world_create(&c->options, c->requests);
    for (uint32_t i = 0; i < c->requests; i++) make_member(c, &r, i, &members[i]);
    uint32_t added = 0;
    while (added < c->requests) {
        uint32_t burst = qr_random_below(&r, c->arrivals + 1);
        for (uint32_t i = 0; i < burst && added < c->requests; i++) {
            quire_status status = world_add(w, &members[added].request);
            if (status == QUIRE_QUEUE_FULL) break;
            cr_assert_eq(status, QUIRE_OK);
            added++;
        }
        disturb(c, w, &r, added);
        if (!world_step(w)) qr_backend_sim_advance(w->backend, 1000);
    }
    world_drain(w, 400000);
    for (uint32_t i = 0; i < c->requests; i++) check_member(c, w, &members[i], i);
    quire_engine_stats stats = world_stats(w);
    fprintf(stderr, "%s: %llu steps, %llu pauses, %llu of %llu prompt tokens cached\n", c->name, (unsigned long long)w->steps,
            (unsigned long long)stats.preemptions_total, (unsigned long long)stats.cached_tokens_total,
            (unsigned long long)stats.prompt_tokens_total);
    if (c->options.tiered) print_tiers(w);
    world_destroy(w);
    free(members);
}

static crowd plain_crowd(const char *name) {
    crowd c = {.name = name,
               .options = world_defaults(),
               .requests = 600,
               .prompt_max = 150,
               .answer_max = 60,
               .choices_max = 1,
               .arrivals = 2,
               .seed = 1};
    return c;
}

Test(sim_crowd, roomy_pool) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        crowd c = plain_crowd("roomy");
        c.options.steps_in_flight = flight;
        run_crowd(&c);
    }
}

Test(sim_crowd, tiny_pool_pauses_and_resumes) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        crowd c = plain_crowd("tiny");
        c.options.block_count = 20;
        c.options.steps_in_flight = flight;
        c.seed = 2;
        run_crowd(&c);
    }
}

/* Short prompts and long answers: runners outgrow the pool all the time. */
Test(sim_crowd, outgrown_pool) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        crowd c = plain_crowd("outgrown");
        c.options.block_count = 32;
        c.options.steps_in_flight = flight;
        c.requests = 300;
        c.prompt_max = 30;
        c.answer_max = 300;
        c.choices_max = 2;
        c.cancel_percent = 3;
        c.seed = 4;
        run_crowd(&c);
    }
}

/* Prompts take many steps, so that jobs of several choices are paused before they fork. */
Test(sim_crowd, pauses_before_the_fork) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        crowd c = plain_crowd("unforked");
        c.options.block_tokens = 4;
        c.options.block_count = 80;
        c.options.step_us = 1200;
        c.options.steps_in_flight = flight;
        c.requests = 300;
        c.prompt_max = 120;
        c.answer_max = 200;
        c.choices_max = 3;
        c.stop_choice_percent = 3;
        c.seed = 5;
        run_crowd(&c);
    }
}

Test(sim_crowd, one_token_blocks_and_small_steps) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        crowd c = plain_crowd("one-token blocks");
        c.options.block_tokens = 1;
        c.options.block_count = 250;
        c.options.step_us = 1500;
        c.options.steps_in_flight = flight;
        c.requests = 300;
        c.seed = 3;
        run_crowd(&c);
    }
}

Test(sim_crowd, choices_cancels_timeouts) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        for (uint64_t seed = 10; seed < 14; seed++) {
            crowd c = plain_crowd("everything");
            c.options.steps_in_flight = flight;
            c.options.block_count = seed % 2 ? 24 : 60;
            c.choices_max = WORLD_CHOICES;
            c.cancel_percent = 15;
            c.timeout_percent = 15;
            c.stop_choice_percent = 15;
            c.requests = 400;
            c.seed = seed;
            run_crowd(&c);
        }
    }
}

Test(sim_crowd, failing_steps_and_bad_logits) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        for (uint64_t seed = 20; seed < 24; seed++) {
            crowd c = plain_crowd("faults");
            c.options.steps_in_flight = flight;
            c.options.block_count = seed % 2 ? 24 : 100;
            c.options.fail_rate = 0.02;
            c.options.bad_logits_rate = 0.002;
            c.options.fault_seed = seed;
            c.choices_max = 3;
            c.cancel_percent = 5;
            c.requests = 400;
            c.seed = seed;
            run_crowd(&c);
        }
    }
}

/* ---- lower tiers ---- */

static crowd tiered_crowd(const char *name, uint64_t bytes_per_second) {
    crowd c = plain_crowd(name);
    c.options.tiered = true;
    c.options.block_count = 28;
    c.options.store = (fake_store_config){.record_max = 300,
                                          .write_buffers = 4,
                                          .read_buffers = 4,
                                          .delay_polls_max = 3,
                                          .reorder = true,
                                          .read_bytes_per_second = bytes_per_second,
                                          .read_latency_us = 50,
                                          .record_bytes = 360 * 1024};
    c.choices_max = 2;
    return c;
}

/* From slower than computing to much faster. */
Test(sim_crowd, stores_of_every_speed) {
    const uint64_t speeds[] = {20, 150, 300, 3000};
    for (uint32_t flight = 1; flight <= 2; flight++) {
        for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++) {
            crowd c = tiered_crowd("store", speeds[i] * 1000000);
            c.options.steps_in_flight = flight;
            c.seed = 30 + i;
            run_crowd(&c);
        }
    }
}

Test(sim_crowd, stores_that_fail_lose_and_refuse) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        for (uint64_t seed = 40; seed < 44; seed++) {
            crowd c = tiered_crowd("bad store", 1000000000);
            c.options.steps_in_flight = flight;
            c.options.fail_rate = 0.01;
            c.options.fault_seed = c.options.store.seed = c.seed = seed;
            c.options.store.record_max = seed % 2 ? 300 : 60;
            c.options.faults = (fake_store_faults){.put_fail_percent = 10,
                                                   .get_fail_percent = 10,
                                                   .get_damage_percent = 10,
                                                   .lose_percent = 1,
                                                   .get_refuse_percent = 20};
            c.options.verify_every = seed % 2 ? 3 : 0;
            c.choices_max = 3;
            c.cancel_percent = c.timeout_percent = c.stop_choice_percent = 10;
            run_crowd(&c);
        }
    }
}

Test(sim_crowd, host_tier_and_store) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        for (uint64_t seed = 50; seed < 54; seed++) {
            crowd c = tiered_crowd("host tier", 1000000000);
            c.options.steps_in_flight = flight;
            c.options.host_blocks = seed % 2 ? 12 : 80;
            c.options.device = (qr_device_sim_config){.seed = seed, .delay_polls_max = 8, .reorder = true};
            c.options.write = seed < 52 ? QUIRE_KV_DISK_COMPLETE : QUIRE_KV_DISK_EVICT;
            if (seed == 53) c.options.store.record_max = 0;
            c.cancel_percent = c.timeout_percent = 5;
            c.seed = seed;
            run_crowd(&c);
        }
    }
}

/* Runners outgrow the pool: what was paused loads its own history when it resumes. */
Test(sim_crowd, paused_choices_load) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        crowd c = tiered_crowd("paused", 2000000000);
        c.options.steps_in_flight = flight;
        c.options.host_blocks = flight == 2 ? 40 : 0;
        c.options.device = (qr_device_sim_config){.seed = 1, .delay_polls_max = 8, .reorder = true};
        c.requests = 300;
        c.prompt_max = 60;
        c.answer_max = 250;
        c.seed = 60;
        run_crowd(&c);
    }
}
