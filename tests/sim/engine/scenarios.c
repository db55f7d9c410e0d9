/* Single situations that requirements name: fully cached prompts, failures, pools that are too small, forks, priorities,
 * prefixes that are being computed, the end of the context. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "world.h"

enum { LONG = 400 };

static void drain_equal(world *w, const quire_request *requests, uint32_t count) {
    world_drain(w, 20000);
    for (uint32_t i = 0; i < count; i++) {
        world_record solo;
        w->records[requests[i].id].id = requests[i].id;
        world_solo(&w->options, &requests[i], &solo);
        world_assert_equal(&w->records[requests[i].id], &solo, requests[i].choice_count);
    }
}

/* R01 */
Test(sim_scenarios, replaying_a_prompt_recomputes_at_least_the_last_token) {
    world_options o = world_defaults();
    const uint32_t counts[] = {1, 15, 16, 17, 31, 32, 33};
    world *w = world_create(&o, 64);
    quire_token prompt[64];
    uint64_t id = 0;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        world_prompt(50 + k, prompt, counts[k]);
        for (int turn = 0; turn < 3; turn++, id++) {
            quire_request r = world_request(id, prompt, counts[k], 8);
            cr_assert_eq(world_add(w, &r), QUIRE_OK);
            drain_equal(w, &r, 1);
            uint32_t cached = w->records[id].last.match.token_count;
            cr_assert(turn == 0 ? cached < 16 : cached == counts[k] - 1, "prompt of %u: %u cached", counts[k], cached);
        }
    }
    /* One more token than 32 cached ones: both blocks hit. */
    world_prompt(50 + 5, prompt, 32);
    prompt[32] = 4;
    quire_request r = world_request(id, prompt, 33, 8);
    cr_assert_eq(world_add(w, &r), QUIRE_OK);
    drain_equal(w, &r, 1);
    cr_assert(w->records[id].match.block_count == 2 && w->records[id].match.token_count == 32);
    world_destroy(w);
}

/* R04: cancelled after the first chunk; a failed step leaves nothing to match. */
Test(sim_scenarios, a_cancelled_prefill_leaves_at_most_what_was_written) {
    world_options o = world_defaults();
    o.rows_max = 120; /* with 8 sequences: chunks of 128 */
    o.step_us = 1000000;
    world *w = world_create(&o, 3);
    quire_token prompt[LONG];
    world_prompt(1, prompt, LONG);
    quire_request first = world_request(0, prompt, LONG, 4), again = world_request(1, prompt, LONG, 4);
    cr_assert_eq(world_add(w, &first), QUIRE_OK);
    cr_assert(world_step(w));
    qr_scheduler_cancel(w->scheduler, 0, world_now(w));
    world_drain(w, 10);
    cr_assert_eq(w->records[0].last.finish, QUIRE_FINISH_CANCELLED);
    cr_assert_eq(world_add(w, &again), QUIRE_OK);
    drain_equal(w, &again, 1);
    cr_assert(w->records[1].match.token_count <= 128 && w->records[1].match.token_count >= 112, "%u",
              w->records[1].match.token_count);
    world_destroy(w);
}

Test(sim_scenarios, a_failed_step_ends_its_requests_and_leaves_nothing_to_match) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        world_options o = world_defaults();
        o.steps_in_flight = flight;
        world *w = world_create(&o, 3);
        quire_token prompt[100], other[20];
        world_prompt(1, prompt, 100);
        world_prompt(2, other, 20);
        quire_request victim = world_request(0, prompt, 100, 4), again = world_request(1, prompt, 100, 4);
        qr_backend_sim_fail_next(w->backend, 1);
        cr_assert_eq(world_add(w, &victim), QUIRE_OK);
        world_drain(w, 100);
        cr_assert(w->records[0].last.finish == QUIRE_FINISH_ERROR && w->records[0].last.error == QUIRE_IO);
        cr_assert_eq(world_kv_stats(w).node_count, 0);
        cr_assert_eq(world_add(w, &again), QUIRE_OK);
        drain_equal(w, &again, 1);
        cr_assert_eq(w->records[1].match.token_count, 0);
        world_destroy(w);
    }
}

/* R20: one bad row ends one request. */
Test(sim_scenarios, bad_logits_end_one_request_only) {
    world_options o = world_defaults();
    world *w = world_create(&o, 3);
    quire_token prompt[3][30];
    quire_request r[3];
    for (uint64_t i = 0; i < 3; i++) {
        world_prompt(i, prompt[i], 30);
        r[i] = world_request(i, prompt[i], 30, 12);
        r[i].ignore_eos = true;
        cr_assert_eq(world_add(w, &r[i]), QUIRE_OK);
    }
    while (w->records[2].choices[0].count < 3) cr_assert(world_step(w));
    qr_backend_sim_spoil_next(w->backend, 1);
    drain_equal(w, r, 3);
    uint32_t failed = 0;
    for (int i = 0; i < 3; i++)
        failed += w->records[i].last.finish == QUIRE_FINISH_ERROR && w->records[i].last.error == QUIRE_BAD_LOGITS;
    cr_assert_eq(failed, 1);
    world_destroy(w);
}

/* R05: queued on a cached prefix that is evicted before it runs. */
Test(sim_scenarios, a_prefix_evicted_while_queued_is_computed_again) {
    world_options o = world_defaults();
    o.max_sequences = 1;
    world *w = world_create(&o, 3);
    quire_token prompt[80], other[40];
    world_prompt(1, prompt, 80);
    world_prompt(2, other, 40);
    quire_request a = world_request(0, prompt, 80, 4), b = world_request(1, other, 40, 30), c = world_request(2, prompt, 80, 4);
    cr_assert_eq(world_add(w, &a), QUIRE_OK);
    world_drain(w, 1000);
    cr_assert_eq(world_add(w, &b), QUIRE_OK);
    cr_assert(world_step(w));
    cr_assert_eq(world_add(w, &c), QUIRE_OK);
    cr_assert(world_step(w));
    quire_kv_evict(w->kv, 1000);
    drain_equal(w, &c, 1);
    cr_assert(w->records[2].match.token_count < 79);
    world_destroy(w);
}

/* R07: a thousand mixed endings. */
Test(sim_scenarios, mixed_endings_return_every_block) {
    world_options o = world_defaults();
    o.block_count = 48;
    o.unchecked = true;
    world *w = world_create(&o, 1000);
    qr_random r = {9};
    quire_token prompt[60];
    for (uint64_t id = 0; id < 1000; id++) {
        world_prompt(id % 40, prompt, 60);
        quire_request q = world_request(id, prompt, 1 + qr_random_below(&r, 59), qr_random_below(&r, 20));
        q.choice_count = 1 + qr_random_below(&r, 3);
        while (world_add(w, &q) != QUIRE_OK) cr_assert(world_step(w));
        if (id % 3 == 0)
            qr_scheduler_cancel(w->scheduler, id - qr_random_below(&r, id < 10 ? (uint32_t)id + 1 : 10), world_now(w));
        if (id % 50 == 0) qr_backend_sim_fail_next(w->backend, 1);
        world_step(w);
    }
    world_drain(w, 20000);
    world_destroy(w);
}

/* R08, exactly: 64 blocks of 16 tokens and a context of 4,096. */
Test(sim_scenarios, requests_larger_than_the_pool) {
    world_options o = world_defaults();
    o.block_count = 64;
    o.context_tokens = 4096;
    world *w = world_create(&o, 12);
    static quire_token big[2000], middle[900], stream[4][100], small[10];
    quire_error error;
    world_prompt(1, big, 2000);
    world_prompt(2, middle, 900);
    world_prompt(9, small, 10);
    quire_request r = world_request(0, big, 2000, 10);
    cr_assert_eq(qr_scheduler_validate(&w->config, 64, 16, &r, &error), QUIRE_TOO_LARGE);
    cr_assert(strstr(error.text, "2000") && strstr(error.text, "1024"), "both numbers: %s", error.text);
    cr_assert_eq(world_add(w, &r), QUIRE_TOO_LARGE);
    /* 900 + 500 > 1,024: ends by length where the pool ends. A small one behind it ends in bounded time. */
    quire_request m = world_request(1, middle, 900, 500), s = world_request(2, small, 10, 8);
    m.ignore_eos = true;
    cr_assert_eq(world_add(w, &m), QUIRE_OK);
    cr_assert(world_step(w));
    cr_assert_eq(world_add(w, &s), QUIRE_OK);
    drain_equal(w, &s, 1);
    cr_assert_eq(w->records[1].choices[0].finish, QUIRE_FINISH_LENGTH);
    cr_assert_eq(w->records[1].choices[0].count, 124);
    cr_assert(w->records[2].done_us < w->records[1].done_us, "nobody waits for the long one");
    /* Four streams of up to 400 tokens do not fit together; each is what it is alone. */
    quire_request four[5];
    for (uint64_t i = 0; i < 4; i++) {
        world_prompt(20 + i, stream[i], 100);
        four[i] = world_request(3 + i, stream[i], 100, 300);
        four[i].ignore_eos = true;
        cr_assert_eq(world_add(w, &four[i]), QUIRE_OK);
    }
    for (int i = 0; i < 50; i++) cr_assert(world_step(w));
    four[4] = world_request(7, small, 10, 8);
    cr_assert_eq(world_add(w, &four[4]), QUIRE_OK);
    uint64_t added_step = w->steps;
    while (!w->records[7].done) cr_assert(world_step(w));
    cr_assert(w->steps - added_step < 60, "a small one got through after %llu steps",
              (unsigned long long)(w->steps - added_step));
    drain_equal(w, four, 5);
    cr_assert(world_stats(w).preemptions_total > 0);
    for (int i = 3; i < 7; i++) cr_assert_eq(w->records[i].choices[0].count, 300);
    world_destroy(w);
}

/* R17: context 256. */
Test(sim_scenarios, the_end_of_the_context) {
    world_options o = world_defaults();
    o.context_tokens = 256;
    world *w = world_create(&o, 2);
    static quire_token prompt[10000];
    world_prompt(1, prompt, 10000);
    const uint32_t refused[] = {256, 257, 10000};
    for (int i = 0; i < 3; i++) {
        quire_error error;
        quire_request r = world_request(0, prompt, refused[i], 10);
        char number[16];
        snprintf(number, sizeof number, "%u", refused[i]);
        cr_assert_eq(qr_scheduler_validate(&w->config, 256, 16, &r, &error), QUIRE_TOO_LARGE);
        cr_assert(strstr(error.text, "256") && strstr(error.text, number), "%s", error.text);
    }
    quire_request one = world_request(0, prompt, 255, 10), two = world_request(1, prompt, 254, 10);
    one.ignore_eos = two.ignore_eos = true;
    cr_assert_eq(world_add(w, &one), QUIRE_OK);
    cr_assert_eq(world_add(w, &two), QUIRE_OK);
    world_drain(w, 100);
    cr_assert(w->records[0].choices[0].count == 1 && w->records[0].choices[0].finish == QUIRE_FINISH_LENGTH);
    cr_assert(w->records[1].choices[0].count == 2 && w->records[1].choices[0].finish == QUIRE_FINISH_LENGTH);
    cr_assert_eq(w->records[0].last.prompt_tokens, 255);
    world_destroy(w);
}

/* R16 and R23: exactly as many tokens as asked; none is an answer too. */
Test(sim_scenarios, max_tokens_is_exact) {
    world_options o = world_defaults();
    const uint32_t limits[] = {0, 1, 5, 20};
    for (uint32_t flight = 1; flight <= 2; flight++) {
        o.steps_in_flight = flight;
        world *w = world_create(&o, 4);
        quire_token prompt[20];
        world_prompt(3, prompt, 20);
        for (uint64_t i = 0; i < 4; i++) {
            quire_request r = world_request(i, prompt, 20, limits[i]);
            r.ignore_eos = true;
            r.prompt_logprobs = i == 0;
            cr_assert_eq(world_add(w, &r), QUIRE_OK);
        }
        world_drain(w, 200);
        for (int i = 0; i < 4; i++) {
            cr_assert_eq(w->records[i].last.completion_tokens, limits[i]);
            cr_assert_eq(w->records[i].choices[0].finish, QUIRE_FINISH_LENGTH);
        }
        cr_assert_eq(w->records[0].prompt_scores, 19);
        world_destroy(w);
    }
}

/* R15: an end or stop token ends the answer, is reported, and may be the first. */
Test(sim_scenarios, stop_tokens_and_min_tokens) {
    world_options o = world_defaults();
    world *w = world_create(&o, 3);
    quire_token prompt[20], stop[1];
    world_prompt(3, prompt, 20);
    quire_request plain = world_request(0, prompt, 20, 10);
    plain.ignore_eos = true;
    cr_assert_eq(world_add(w, &plain), QUIRE_OK);
    world_drain(w, 100);
    stop[0] = w->records[0].choices[0].tokens[0];
    quire_request stopped = plain, later = plain;
    stopped.id = 1;
    later.id = 2;
    stopped.sampling.seed = later.sampling.seed = plain.sampling.seed;
    stopped.stop_tokens = later.stop_tokens = stop;
    stopped.stop_token_count = later.stop_token_count = 1;
    later.min_tokens = 6;
    cr_assert_eq(world_add(w, &stopped), QUIRE_OK);
    cr_assert_eq(world_add(w, &later), QUIRE_OK);
    world_drain(w, 100);
    cr_assert(w->records[1].choices[0].finish == QUIRE_FINISH_STOP && w->records[1].choices[0].count == 1);
    cr_assert(w->records[2].choices[0].count >= 6);
    for (int i = 0; i < 6; i++) cr_assert_neq(w->records[2].choices[0].tokens[i], stop[0]);
    world_destroy(w);
}

/* R22: n choices, one prefill; usage counts the prompt once. */
Test(sim_scenarios, choices_share_one_prefill) {
    world_options o = world_defaults();
    world *w = world_create(&o, 2);
    quire_token prompt[100];
    world_prompt(3, prompt, 100);
    quire_request r = world_request(0, prompt, 100, 20);
    r.ignore_eos = true;
    r.choice_count = 4;
    cr_assert_eq(world_add(w, &r), QUIRE_OK);
    drain_equal(w, &r, 1);
    qr_sim_counts counts;
    qr_backend_sim_get_counts(w->backend, &counts);
    cr_assert_eq(counts.rows, 100 + 4 * 19);
    cr_assert(w->records[0].last.prompt_tokens == 100 && w->records[0].last.completion_tokens == 80);
    cr_assert(memcmp(w->records[0].choices[0].tokens, w->records[0].choices[1].tokens, 80) != 0);
    world_destroy(w);
}

Test(sim_scenarios, two_unseeded_requests_differ) {
    world_options o = world_defaults();
    world *w = world_create(&o, 2);
    quire_token prompt[10];
    world_prompt(3, prompt, 10);
    for (uint64_t i = 0; i < 2; i++) {
        quire_request r = world_request(i, prompt, 10, 20);
        r.ignore_eos = true;
        r.sampling.seeded = false;
        cr_assert_eq(world_add(w, &r), QUIRE_OK);
    }
    world_drain(w, 200);
    cr_assert(memcmp(w->records[0].choices[0].tokens, w->records[1].choices[0].tokens, 80) != 0);
    world_destroy(w);
}

/* 32 clients behind one system prompt: it is computed once, whoever comes while it is being computed. */
Test(sim_scenarios, a_shared_prefix_is_computed_once) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        world_options o = world_defaults();
        o.steps_in_flight = flight;
        o.max_sequences = 32;
        o.step_us = 5000;
        world *w = world_create(&o, 32);
        static quire_token prompts[32][330];
        quire_request r[32];
        for (uint64_t i = 0; i < 32; i++) {
            world_prompt(100 + i, prompts[i], 330);
            world_prompt(7, prompts[i], 320);
            r[i] = world_request(i, prompts[i], 330, 6);
            cr_assert_eq(world_add(w, &r[i]), QUIRE_OK);
            if (i % 4 == 0) world_step(w);
        }
        drain_equal(w, r, 32);
        qr_sim_counts counts;
        qr_backend_sim_get_counts(w->backend, &counts);
        cr_assert(counts.rows <= 330 + 31 * 10 + 32 * 6, "%llu rows", (unsigned long long)counts.rows);
        for (int i = 1; i < 32; i++) cr_assert_eq(w->records[i].match.token_count, 320);
        world_destroy(w);
    }
}

/* The one it waits for is cancelled: it goes on by itself. */
Test(sim_scenarios, waiting_for_a_cancelled_prefix_ends) {
    world_options o = world_defaults();
    o.step_us = 3000;
    world *w = world_create(&o, 2);
    quire_token prompt[300];
    world_prompt(7, prompt, 300);
    quire_request a = world_request(0, prompt, 300, 4), b = world_request(1, prompt, 300, 4);
    cr_assert_eq(world_add(w, &a), QUIRE_OK);
    cr_assert_eq(world_add(w, &b), QUIRE_OK);
    cr_assert(world_step(w) && world_step(w));
    cr_assert(w->records[1].started == 0, "it waits");
    qr_scheduler_cancel(w->scheduler, 0, world_now(w));
    drain_equal(w, &b, 1);
    cr_assert(w->records[1].match.token_count > 0, "what was computed before counts");
    world_destroy(w);
}

/* The least urgent of the youngest pauses, and the most urgent is served first. */
Test(sim_scenarios, priorities_decide_who_pauses_and_who_starts) {
    world_options o = world_defaults();
    o.block_count = 24;
    world *w = world_create(&o, 6);
    static quire_token prompts[6][96];
    quire_request r[6];
    const int32_t priorities[6] = {0, 5, 0, 0, 9, -1};
    for (uint64_t i = 0; i < 6; i++) {
        world_prompt(30 + i, prompts[i], 96);
        r[i] = world_request(i, prompts[i], i < 3 ? 80 : 96, 100);
        r[i].ignore_eos = true;
        r[i].priority = priorities[i];
    }
    for (int i = 0; i < 3; i++) cr_assert_eq(world_add(w, &r[i]), QUIRE_OK);
    for (int i = 0; i < 8; i++) cr_assert(world_step(w));
    for (int i = 3; i < 6; i++) cr_assert_eq(world_add(w, &r[i]), QUIRE_OK);
    drain_equal(w, r, 6);
    cr_assert_eq(w->records[0].last.preemptions, 0, "the oldest of the urgent never pauses");
    cr_assert(w->records[1].last.preemptions > 0, "the least urgent does");
    cr_assert(w->records[5].started_us < w->records[3].started_us && w->records[3].started_us < w->records[4].started_us);
    world_destroy(w);
}

/* Cached prefixes go first, but not for ever: the one without any is passed a bounded number of times. */
Test(sim_scenarios, nobody_is_passed_for_ever) {
    world_options o = world_defaults();
    o.max_sequences = 1;
    world *w = world_create(&o, 64);
    quire_token hot[64], cold[64];
    world_prompt(1, hot, 64);
    world_prompt(2, cold, 64);
    quire_request first = world_request(0, hot, 64, 4), outsider = world_request(1, cold, 64, 4);
    cr_assert_eq(world_add(w, &first), QUIRE_OK);
    world_drain(w, 100);
    quire_request busy = world_request(2, hot, 64, 10);
    busy.ignore_eos = true;
    cr_assert_eq(world_add(w, &busy), QUIRE_OK);
    cr_assert(world_step(w));
    cr_assert_eq(world_add(w, &outsider), QUIRE_OK);
    uint32_t passed = 0;
    for (uint64_t id = 3; id < 63; id++) {
        quire_request q = world_request(id, hot, 64, 3);
        q.ignore_eos = true;
        cr_assert_eq(world_add(w, &q), QUIRE_OK);
        for (int i = 0; i < 4; i++) world_step(w);
    }
    world_drain(w, 10000);
    for (uint64_t id = 3; id < 63; id++) passed += w->records[id].started_us < w->records[1].started_us;
    cr_assert(passed >= 1 && passed <= 8, "%u passed it", passed);
    world_destroy(w);
}

/* A timeout ends a request wherever it is, with what there is. */
Test(sim_scenarios, timeouts_end_requests_in_every_state) {
    world_options o = world_defaults();
    o.max_sequences = 1;
    world *w = world_create(&o, 3);
    quire_token prompt[100];
    world_prompt(1, prompt, 100);
    quire_request running = world_request(0, prompt, 100, 300), queued = world_request(1, prompt, 100, 5);
    running.ignore_eos = true;
    running.timeout_us = 100000;
    queued.timeout_us = 50000;
    cr_assert_eq(world_add(w, &running), QUIRE_OK);
    cr_assert_eq(world_add(w, &queued), QUIRE_OK);
    cr_assert_eq(qr_scheduler_next_deadline_us(w->scheduler), 50000);
    world_drain(w, 1000);
    cr_assert(w->records[0].last.finish == QUIRE_FINISH_TIMEOUT && w->records[0].choices[0].count > 0);
    cr_assert(w->records[1].last.finish == QUIRE_FINISH_TIMEOUT && w->records[1].started == 0);
    cr_assert(w->records[0].done_us < 110000 && w->records[1].done_us < 60000);
    cr_assert_eq(qr_scheduler_next_deadline_us(w->scheduler), UINT64_MAX);
    world_destroy(w);
}

/* Decodes go on while a long prompt is computed: chunks fit the step's time. */
Test(sim_scenarios, a_long_prompt_does_not_stop_decodes) {
    world_options o = world_defaults();
    o.step_us = 6000; /* the backend takes 1,000 and 100 a row: about 45 rows */
    world *w = world_create(&o, 4);
    static quire_token prompt[LONG];
    quire_token small[10];
    world_prompt(1, prompt, LONG);
    world_prompt(2, small, 10);
    quire_request decoding = world_request(0, small, 10, 200), big = world_request(1, prompt, LONG, 4);
    decoding.ignore_eos = true;
    cr_assert_eq(world_add(w, &decoding), QUIRE_OK);
    for (int i = 0; i < 60; i++) cr_assert(world_step(w));
    cr_assert_eq(world_add(w, &big), QUIRE_OK);
    uint32_t before = w->records[0].choices[0].count;
    while (w->records[1].choices[0].count == 0) {
        uint64_t start = world_now(w);
        cr_assert(world_step(w));
        cr_assert(world_now(w) - start < 9000, "a step took %llu us", (unsigned long long)(world_now(w) - start));
    }
    cr_assert(w->records[0].choices[0].count - before >= LONG / 60);
    world_drain(w, 1000);
    world_destroy(w);
}

/* A short prompt, or a chat whose beginning is cached, does not wait until a long prompt is through; the long one goes on. */
Test(sim_scenarios, short_prefill_goes_before_long) {
    world_options o = world_defaults();
    o.step_us = 6000;
    o.max_sequences = 16;
    world *w = world_create(&o, 12);
    static quire_token prompt[LONG];
    quire_token small[10][20];
    world_prompt(1, prompt, LONG);
    quire_request big = world_request(0, prompt, LONG, 4);
    cr_assert_eq(world_add(w, &big), QUIRE_OK);
    cr_assert(world_step(w));
    for (uint64_t id = 1; id < 11; id++) {
        world_prompt(id + 1, small[id - 1], 20);
        quire_request r = world_request(id, small[id - 1], 20, 2);
        cr_assert_eq(world_add(w, &r), QUIRE_OK);
    }
    for (int i = 0; i < 3; i++) cr_assert(world_step(w));
    cr_assert(w->records[1].first_token_us > 0 && w->records[0].first_token_us == 0, "the first small one is through");
    world_drain(w, 1000);
    for (int i = 1; i < 8; i++) cr_assert(w->records[i].first_token_us < w->records[0].first_token_us);
    world_destroy(w);
}

/* A step fails in which a block was to be copied for a request that had no row in it: that request must not read the copy. */
Test(sim_scenarios, a_failed_copy_ends_its_holder) {
    world_options o = world_defaults();
    o.step_us = 1; /* a block of rows per step */
    world *w = world_create(&o, 4);
    quire_token stored[48], urgent[200], tail[140];
    world_prompt(1, stored, 48);
    world_prompt(2, urgent, 200);
    world_prompt(3, tail, 140);
    memcpy(tail, stored, 40 * sizeof *tail);
    quire_request a = world_request(0, stored, 48, 2), b = world_request(1, urgent, 200, 4), c = world_request(2, tail, 140, 4);
    b.priority = -1;
    cr_assert_eq(world_add(w, &a), QUIRE_OK);
    world_drain(w, 100);
    cr_assert(world_add(w, &b) == QUIRE_OK && world_add(w, &c) == QUIRE_OK);
    qr_backend_sim_fail_next(w->backend, 1);
    world_drain(w, 1000);
    cr_assert(w->records[2].match.tail_tokens == 8, "its beginning was to be copied");
    cr_assert_eq(w->records[1].last.finish, QUIRE_FINISH_ERROR);
    cr_assert_eq(w->records[2].last.finish, QUIRE_FINISH_ERROR);
    c.id = 3;
    cr_assert_eq(world_add(w, &c), QUIRE_OK);
    drain_equal(w, &c, 1);
    world_destroy(w);
}

Test(sim_scenarios, a_choice_stopped_before_the_fork_gives_nothing) {
    for (uint32_t flight = 1; flight <= 2; flight++) {
        world_options o = world_defaults();
        o.step_us = 1;
        o.steps_in_flight = flight;
        world *w = world_create(&o, 1);
        quire_token prompt[60];
        world_prompt(1, prompt, 60);
        quire_request r = world_request(0, prompt, 60, 5);
        r.ignore_eos = true;
        r.choice_count = 3;
        cr_assert_eq(world_add(w, &r), QUIRE_OK);
        cr_assert(world_step(w));
        qr_scheduler_stop_choice(w->scheduler, 0, 0, world_now(w));
        qr_scheduler_stop_choice(w->scheduler, 0, 2, world_now(w));
        world_drain(w, 100);
        const uint32_t counts[3] = {0, 5, 0};
        for (int i = 0; i < 3; i++) cr_assert_eq(w->records[0].choices[i].count, counts[i]);
        cr_assert_eq(w->records[0].choices[0].finish, QUIRE_FINISH_CANCELLED);
        cr_assert_eq(w->records[0].last.finish, QUIRE_FINISH_NONE);
        world_destroy(w);
    }
}

/* R03: another namespace shares nothing, so it does not wait for anything either. */
Test(sim_scenarios, other_namespaces_neither_share_nor_wait) {
    world_options o = world_defaults();
    o.step_us = 3000;
    world *w = world_create(&o, 3);
    quire_token prompt[300];
    world_prompt(7, prompt, 300);
    quire_request r[3];
    for (uint64_t i = 0; i < 3; i++) r[i] = world_request(i, prompt, 300, 4);
    r[1].namespace_key = "salt";
    r[1].namespace_bytes = 4;
    for (int i = 0; i < 3; i++) cr_assert_eq(world_add(w, &r[i]), QUIRE_OK);
    cr_assert(world_step(w));
    cr_assert(w->records[1].started == 1 && w->records[2].started == 0);
    drain_equal(w, r, 3);
    cr_assert(w->records[1].match.token_count == 0 && w->records[2].match.token_count == 288);
    world_destroy(w);
}
