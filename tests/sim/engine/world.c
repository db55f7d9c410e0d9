#include "world.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "runtime/kv/kv_parts.h"

static const quire_token end_tokens[1] = {WORLD_END_TOKEN};

world_options world_defaults(void) {
    return (world_options){.block_tokens = 16,
                           .block_count = 256,
                           .context_tokens = 512,
                           .max_sequences = 8,
                           .max_waiting = 64,
                           .steps_in_flight = 1,
                           .step_us = 20000};
}

/* ---- events ---- */

static void record_token(world_record *r, const quire_event *e) {
    world_choice *c = &r->choices[e->choice];
    cr_assert(!c->done && c->count < WORLD_ANSWER_MAX);
    cr_assert_eq(e->position, c->count);
    c->digests[c->count] = e->logits_digest;
    c->tokens[c->count++] = e->token;
}

static void record_event(void *context, const quire_event *e) {
    world *w = context;
    cr_assert(e->request_id < w->record_count);
    world_record *r = &w->records[e->request_id];
    cr_assert_eq(r->done, 0, "request %llu: event %d after DONE", (unsigned long long)e->request_id, (int)e->kind);
    switch (e->kind) {
    case QUIRE_EVENT_STARTED:
        r->started++;
        r->started_us = world_now(w);
        r->match = e->match;
        break;
    case QUIRE_EVENT_PROGRESS: r->progress = e->processed_tokens; break;
    case QUIRE_EVENT_PROMPT_TOKEN:
        cr_assert_eq(e->position, ++r->prompt_scores);
        r->scores_hash =
            qr_mix64(r->scores_hash ^ (uint64_t)(int64_t)(e->logprob * 100) ^ ((uint64_t)(uint32_t)e->token << 32));
        break;
    case QUIRE_EVENT_TOKEN:
        if (r->first_token_us == 0) r->first_token_us = world_now(w);
        record_token(r, e);
        break;
    case QUIRE_EVENT_CHOICE_DONE:
        cr_assert_not(r->choices[e->choice].done);
        r->choices[e->choice].done = true;
        r->choices[e->choice].finish = e->finish;
        r->choices_done++;
        break;
    case QUIRE_EVENT_DONE:
        r->done++;
        r->done_us = world_now(w);
        r->last = *e;
        break;
    }
}

/* ---- the house ---- */

static qr_backend_limits limits_of(const world_options *o) {
    uint32_t rows = o->rows_max ? o->rows_max : 256;
    return (qr_backend_limits){.rows_max = rows + o->max_sequences,
                               .samples_max = o->max_sequences + 32,
                               .sequences_max = o->max_sequences,
                               .steps_in_flight = o->steps_in_flight,
                               .vocabulary_size = WORLD_VOCABULARY};
}

static const quire_kv_group group = {1, 1, 16, 16, QUIRE_KV_F16, QUIRE_KV_F16};

static qr_kv_parts parts_of(world *w) {
    const world_options *o = &w->options;
    /* With steps in flight the pool must not be written before its step comes: then it is out of the CPU's reach, and copies
     * between blocks are listed for the steps. */
    qr_kv_parts parts = {.host_tier = o->host_blocks > 0 && o->steps_in_flight == 1};
    if (o->host_blocks || o->steps_in_flight > 1) cr_assert_eq(qr_device_sim_create(&o->device, &parts.device), QUIRE_OK);
    if (o->store.record_max) {
        fake_store_config store = o->store;
        store.block_tokens = o->block_tokens;
        store.payload_bytes = quire_kv_block_bytes(&group, o->block_tokens);
        w->store = fake_store_create(&store);
        *fake_store_faults_of(w->store) = o->faults;
        parts.store = fake_store_open(w->store);
    }
    return parts;
}

static quire_kv *kv_of(world *w) {
    const world_options *o = &w->options;
    quire_kv_config config = {.block_tokens = o->block_tokens,
                              .group_count = 1,
                              .groups = {group},
                              .block_count = o->block_count,
                              .max_sequences = o->max_sequences,
                              .max_sequence_tokens = o->context_tokens,
                              .storage = o->tiered ? QUIRE_KV_STORAGE_HOST : QUIRE_KV_STORAGE_NONE,
                              .cache_disabled = o->cache_disabled};
    quire_kv *kv = NULL;
    quire_error error;
    qr_kv_parts parts = {0};
    if (o->tiered) {
        config.tiers = (quire_kv_tiers){.host_bytes = o->host_blocks * quire_kv_block_bytes(&group, o->block_tokens),
                                        .disk_write = o->write,
                                        .verify_every = o->verify_every};
        parts = parts_of(w);
    }
    cr_assert_eq(qr_kv_create_from(&config, &parts, &kv, &error), QUIRE_OK, "%s", error.text);
    return kv;
}

world *world_create(const world_options *options, uint32_t record_count) {
    world *w = calloc(1, sizeof *w);
    cr_assert(w);
    w->options = *options;
    w->records = calloc(record_count, sizeof *w->records);
    w->record_count = record_count;
    w->kv = kv_of(w);
    qr_sim_config sim = {.limits = limits_of(options),
                         .block_count = options->block_count,
                         .block_tokens = options->block_tokens,
                         .end_tokens = end_tokens,
                         .end_token_count = 1,
                         .step_us = 1000,
                         .row_us = 100,
                         .position_us = 0.1,
                         .fail_rate = options->fail_rate,
                         .bad_logits_rate = options->bad_logits_rate,
                         .fault_seed = options->fault_seed};
    if (options->tiered) sim.memory = quire_kv_pool_base(w->kv, 0, &sim.block_stride);
    cr_assert_eq(qr_backend_sim_create(&sim, &w->backend), QUIRE_OK);
    w->config = (qr_scheduler_config){.context_tokens = options->context_tokens,
                                      .max_sequences = options->max_sequences,
                                      .max_waiting = options->max_waiting,
                                      .step_us = options->step_us,
                                      .seed = 1,
                                      .end_tokens = end_tokens,
                                      .end_token_count = 1,
                                      .limits = sim.limits};
    cr_assert_eq(qr_scheduler_create(&w->config, w->kv, options->block_tokens, record_event, w, &w->scheduler), QUIRE_OK);
    return w;
}

static void take_ended(world *w) {
    for (qr_job *job; (job = qr_scheduler_take_ended(w->scheduler)); w->jobs_freed++) qr_job_destroy(job);
}

static void check(const world *w) {
    quire_error error;
    cr_assert_eq(qr_scheduler_check(w->scheduler, &error), QUIRE_OK, "step %llu: %s", (unsigned long long)w->steps, error.text);
    cr_assert_eq(quire_kv_check(w->kv, &error), QUIRE_OK, "step %llu: %s", (unsigned long long)w->steps, error.text);
}

void world_destroy(world *w) {
    take_ended(w);
    for (int polls = 0; quire_kv_busy(w->kv); polls++) {
        cr_assert(polls < 100000, "copies that never end");
        world_rest(w, 100);
    }
    check(w);
    quire_engine_stats stats = world_stats(w);
    quire_kv_stats kv = world_kv_stats(w);
    cr_assert(stats.idle && stats.running == 0 && stats.waiting == 0 && stats.paused == 0);
    cr_assert_eq(w->jobs_freed, stats.requests_total);
    cr_assert_eq(stats.requests_total, stats.requests_stop + stats.requests_length + stats.requests_cancelled +
                                           stats.requests_failed + stats.requests_timeout);
    cr_assert(kv.block_used == 0 && kv.sequence_count == 0, "%u blocks, %u sequences in use", kv.block_used, kv.sequence_count);
    qr_scheduler_destroy(w->scheduler);
    quire_kv_destroy(w->kv);
    if (w->store) fake_store_destroy(w->store);
    w->backend->ops->destroy(w->backend);
    free(w->records);
    free(w);
}

uint64_t world_now(const world *w) { return qr_backend_sim_now_us(w->backend); }

quire_status world_add(world *w, const quire_request *request) {
    quire_kv_stats kv = world_kv_stats(w);
    quire_status status = qr_scheduler_validate(&w->config, kv.block_total, w->options.block_tokens, request, NULL);
    if (status != QUIRE_OK) return status;
    qr_job *job = qr_job_create(request, qr_scheduler_capacity(&w->config, kv.block_total, w->options.block_tokens));
    cr_assert(job);
    w->records[request->id].added_us = world_now(w);
    status = qr_scheduler_add(w->scheduler, job, world_now(w));
    if (status != QUIRE_OK) qr_job_destroy(job);
    return status;
}

/* Nothing can run: to the next deadline, or to what the tiers have under way. False: nothing is due, ever. */
static bool wait_for_tiers(world *w) {
    uint64_t now_us = world_now(w), due_us = qr_scheduler_next_deadline_us(w->scheduler);
    uint64_t store_us = w->store ? fake_store_next_us(w->store) : UINT64_MAX, poll_us = quire_kv_poll_after_us(w->kv);
    if (store_us < due_us) due_us = store_us;
    if (poll_us < UINT64_MAX && now_us + poll_us < due_us) due_us = now_us + poll_us;
    if (due_us == UINT64_MAX) return false;
    if (w->alarm_us > now_us && w->alarm_us < due_us) due_us = w->alarm_us;
    qr_backend_sim_advance(w->backend, due_us > now_us ? due_us - now_us : 1);
    w->waits++;
    return true;
}

/* The oldest step's end. The tiers are moved on meanwhile, as a backend does that has long steps. */
static bool finish_step(world *w, qr_step_result *result) {
    enum { POLL_EVERY_US = 1000 };
    if (!w->options.tiered) return w->backend->ops->poll(w->backend, true, result);
    if (qr_scheduler_steps_in_flight(w->scheduler) == 0) return false;
    while (!w->backend->ops->poll(w->backend, false, result)) {
        uint64_t left_us = qr_backend_sim_due_us(w->backend) - world_now(w);
        qr_backend_sim_advance(w->backend, left_us < POLL_EVERY_US ? left_us : POLL_EVERY_US);
        qr_scheduler_poll(w->scheduler, world_now(w));
    }
    return true;
}

static bool run_step(world *w) {
    qr_step *step;
    qr_step_result result;
    qr_scheduler_poll(w->scheduler, world_now(w));
    while (qr_scheduler_plan(w->scheduler, world_now(w), &step)) w->backend->ops->submit(w->backend, step);
    if (!w->options.unchecked) check(w);
    if (!finish_step(w, &result)) {
        take_ended(w);
        return false;
    }
    qr_scheduler_complete(w->scheduler, &result, world_now(w));
    w->steps++;
    if (!w->options.unchecked) check(w);
    take_ended(w);
    return true;
}

bool world_step(world *w) {
    bool ran = run_step(w);
    if (!w->options.tiered) return ran;
    quire_kv_set_idle(w->kv, !ran);
    bool moved = qr_scheduler_poll(w->scheduler, world_now(w));
    return ran || moved || (!qr_scheduler_idle(w->scheduler) && wait_for_tiers(w));
}

void world_rest(world *w, uint64_t us) {
    uint64_t end_us = world_now(w) + us;
    quire_kv_set_idle(w->kv, true);
    while (world_now(w) < end_us) {
        qr_scheduler_poll(w->scheduler, world_now(w));
        qr_backend_sim_advance(w->backend, 20);
    }
}

void world_drain(world *w, uint64_t max_steps) {
    uint64_t limit = w->steps + max_steps;
    while (!qr_scheduler_idle(w->scheduler)) {
        cr_assert(world_step(w) || qr_scheduler_idle(w->scheduler), "requests are left and nothing can run");
        cr_assert(w->steps < limit, "not idle after %llu steps", (unsigned long long)max_steps);
    }
    take_ended(w);
}

quire_engine_stats world_stats(const world *w) {
    quire_engine_stats stats;
    qr_scheduler_get_stats(w->scheduler, &stats);
    return stats;
}

quire_kv_tiers_stats world_tiers(const world *w) {
    quire_kv_tiers_stats stats;
    quire_kv_get_tiers_stats(w->kv, &stats);
    return stats;
}

quire_kv_stats world_kv_stats(const world *w) {
    quire_kv_stats stats;
    quire_kv_get_stats(w->kv, &stats);
    return stats;
}

/* ---- requests ---- */

quire_request world_request(uint64_t id, const quire_token *prompt, uint32_t prompt_count, uint32_t max_tokens) {
    return (quire_request){.id = id,
                           .prompt = prompt,
                           .prompt_count = prompt_count,
                           .choice_count = 1,
                           .max_tokens = max_tokens,
                           .top_logprobs = -1,
                           .logits_digest = true,
                           .sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seeded = true, .seed = id}};
}

void world_prompt(uint64_t seed, quire_token *prompt, uint32_t count) {
    qr_random r = {qr_mix64(seed)};
    for (uint32_t i = 0; i < count; i++) prompt[i] = (quire_token)(4 + qr_random_below(&r, WORLD_VOCABULARY - 4));
}

void world_solo(const world_options *options, const quire_request *request, world_record *record) {
    world_options o = *options;
    o.fail_rate = o.bad_logits_rate = 0;
    o.cache_disabled = true;
    o.unchecked = true;
    o.steps_in_flight = 1;
    o.tiered = false;
    world *w = world_create(&o, (uint32_t)request->id + 1);
    quire_request alone = *request;
    alone.timeout_us = 0;
    cr_assert_eq(world_add(w, &alone), QUIRE_OK);
    world_drain(w, 100000);
    *record = w->records[request->id];
    world_destroy(w);
}

void world_assert_equal(const world_record *record, const world_record *solo, uint32_t choices) {
    for (uint32_t i = 0; i < choices; i++) {
        const world_choice *a = &record->choices[i], *b = &solo->choices[i];
        bool whole = a->finish == QUIRE_FINISH_STOP || a->finish == QUIRE_FINISH_LENGTH;
        cr_assert(whole ? a->count == b->count : a->count <= b->count, "request %llu.%u: %u tokens, alone %u",
                  (unsigned long long)record->id, i, a->count, b->count);
        if (whole) cr_assert_eq(a->finish, b->finish);
        cr_assert_arr_eq(a->tokens, b->tokens, a->count * sizeof(quire_token));
        cr_assert_arr_eq(a->digests, b->digests, a->count * sizeof(uint64_t), "a digest of request %u differs", i);
    }
}
