/* fake_engine.c - see fake_engine.h. */
#include "tests/unit/server/fake_engine.h"

#include "base/assertion.h"
#include "base/error.h"
#include "base/hash.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAKE_REQUESTS_MAX = 512, FAKE_EVENTS_MAX = 1 << 16 };

typedef struct fake_request {
    bool live, started, cancelled;
    quire_request request; /* prompt is a copy */
    uint32_t position[QUIRE_CHOICES_MAX];
    bool choice_over[QUIRE_CHOICES_MAX];
    bool choice_stopping[QUIRE_CHOICES_MAX]; /* one more token comes, as from the real engine */
    uint32_t prefill_done;
    uint64_t steps;
} fake_request;

struct quire_engine {
    pthread_t thread;
    pthread_mutex_t lock;
    bool stop;
    fake_script script;
    void (*wake)(void *);
    void *wake_context;
    fake_request requests[FAKE_REQUESTS_MAX];
    quire_event *events;
    size_t event_count;
    fake_counts counts;
    uint64_t finished;
    uint64_t flushes_begun, forgets_done; /* what was asked for is carried out at the next step */
    uint32_t flush_left, erasing;
};

static void emit(quire_engine *e, const quire_event *event) {
    QR_ASSERT(e->event_count < FAKE_EVENTS_MAX);
    e->events[e->event_count++] = *event;
}

static void end_request(quire_engine *e, fake_request *r, quire_finish finish, quire_status error) {
    uint32_t total = 0;
    for (uint32_t i = 0; i < r->request.choice_count; i++) total += r->position[i];
    emit(e, &(quire_event){.kind = QUIRE_EVENT_DONE,
                           .request_id = r->request.id,
                           .finish = finish,
                           .error = error,
                           .match = e->script.match ? *e->script.match : (quire_kv_match){.miss = QUIRE_KV_MISS_NEVER_STORED},
                           .prompt_tokens = r->request.prompt_count,
                           .completion_tokens = total,
                           .queued_us = 10,
                           .prefill_us = 1000,
                           .decode_us = 2000});
    free((void *)(uintptr_t)r->request.prompt);
    r->live = false;
    e->counts.live--;
    e->finished++;
}

static void end_choice(quire_engine *e, fake_request *r, uint32_t choice, quire_finish finish) {
    r->choice_over[choice] = true;
    emit(e, &(quire_event){.kind = QUIRE_EVENT_CHOICE_DONE, .request_id = r->request.id, .choice = choice, .finish = finish});
}

static void fill_scores(const fake_request *r, quire_event *event) {
    event->logprob = -0.5f;
    if (r->request.top_logprobs <= 0) return;
    event->top_count = (uint32_t)r->request.top_logprobs;
    for (uint32_t i = 0; i < event->top_count; i++)
        event->top[i] = (quire_token_logprob){i == 0 ? event->token : (quire_token)(i + 64), -0.5f - (float)i};
}

static void step_choice(quire_engine *e, fake_request *r, uint32_t choice) {
    if (r->position[choice] == r->request.max_tokens) return end_choice(e, r, choice, QUIRE_FINISH_LENGTH);
    uint32_t at = r->position[choice]++;
    quire_event event = {.kind = QUIRE_EVENT_TOKEN, .request_id = r->request.id, .choice = choice, .position = at};
    event.is_end = at >= e->script.count;
    event.token = event.is_end ? e->script.end : e->script.tokens[at];
    for (uint32_t i = 0; i < r->request.stop_token_count; i++) event.is_end |= r->request.stop_tokens[i] == event.token;
    event.logits_digest = qr_mix64(at);
    fill_scores(r, &event);
    emit(e, &event);
    if (r->choice_stopping[choice]) end_choice(e, r, choice, QUIRE_FINISH_CANCELLED);
    else if (event.is_end) end_choice(e, r, choice, QUIRE_FINISH_STOP);
    else if (r->position[choice] == r->request.max_tokens) end_choice(e, r, choice, QUIRE_FINISH_LENGTH);
}

static void start_request(quire_engine *e, fake_request *r) {
    r->started = true;
    e->counts.started++;
    emit(e, &(quire_event){.kind = QUIRE_EVENT_STARTED, .request_id = r->request.id});
    if (!r->request.prompt_logprobs) return;
    for (uint32_t i = 1; i < r->request.prompt_count; i++) {
        quire_event event = {
            .kind = QUIRE_EVENT_PROMPT_TOKEN, .request_id = r->request.id, .position = i, .token = r->request.prompt[i]};
        fill_scores(r, &event);
        emit(e, &event);
    }
}

static bool step_ends_early(quire_engine *e, fake_request *r) {
    if (r->cancelled) return end_request(e, r, QUIRE_FINISH_CANCELLED, QUIRE_OK), true;
    if (r->request.timeout_us && r->steps * 200 > r->request.timeout_us)
        return end_request(e, r, QUIRE_FINISH_TIMEOUT, QUIRE_OK), true;
    return false;
}

static void step_request(quire_engine *e, fake_request *r) {
    r->steps++;
    if (step_ends_early(e, r) || e->script.hold) return;
    if (!r->started) start_request(e, r);
    if (r->prefill_done < e->script.prefill_steps) {
        r->prefill_done++;
        if (r->request.progress)
            emit(e, &(quire_event){
                        .kind = QUIRE_EVENT_PROGRESS, .request_id = r->request.id, .processed_tokens = r->prefill_done});
        return;
    }
    if (e->script.fail_first || (e->script.fail_at && r->position[0] >= e->script.fail_at))
        return end_request(e, r, QUIRE_FINISH_ERROR, QUIRE_BAD_LOGITS);
    bool open = false;
    for (uint32_t i = 0; i < r->request.choice_count; i++) {
        if (!r->choice_over[i]) step_choice(e, r, i);
        open |= !r->choice_over[i];
    }
    if (!open) end_request(e, r, QUIRE_FINISH_NONE, QUIRE_OK);
}

static void step_tiers(quire_engine *e) {
    uint32_t forgets = e->counts.forgotten_all + e->counts.forgotten_one;
    if (e->flush_left) e->flush_left--;
    if (e->erasing) e->erasing--;
    if (e->flushes_begun < e->counts.flushes) e->flush_left = e->script.flush_steps;
    if (e->forgets_done < forgets) e->erasing = e->script.erase_steps;
    e->flushes_begun = e->counts.flushes;
    e->forgets_done = forgets;
}

static void *run(void *argument) {
    quire_engine *e = argument;
    for (;;) {
        pthread_mutex_lock(&e->lock);
        bool stop = e->stop, news;
        e->counts.steps++;
        step_tiers(e);
        for (int i = 0; !stop && i < FAKE_REQUESTS_MAX; i++)
            if (e->requests[i].live) step_request(e, &e->requests[i]);
        news = e->event_count > 0;
        void (*wake)(void *) = e->wake;
        void *context = e->wake_context;
        uint32_t pause_us = e->script.step_us ? e->script.step_us : 200;
        pthread_mutex_unlock(&e->lock);
        if (stop) return NULL;
        if (news && wake) wake(context);
        usleep(pause_us);
    }
}

quire_engine *fake_engine_create(const fake_script *script, void (*wake)(void *), void *context) {
    quire_engine *e = calloc(1, sizeof *e);
    QR_ASSERT(e);
    e->events = calloc(FAKE_EVENTS_MAX, sizeof *e->events);
    QR_ASSERT(e->events);
    e->script = *script;
    e->wake = wake;
    e->wake_context = context;
    pthread_mutex_init(&e->lock, NULL);
    QR_ASSERT(pthread_create(&e->thread, NULL, run, e) == 0);
    return e;
}

void fake_engine_set_wake(quire_engine *e, void (*wake)(void *), void *context) {
    pthread_mutex_lock(&e->lock);
    e->wake = wake;
    e->wake_context = context;
    pthread_mutex_unlock(&e->lock);
}

void fake_engine_release(quire_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->script.hold = false;
    pthread_mutex_unlock(&e->lock);
}

fake_counts fake_engine_counts(quire_engine *e) {
    pthread_mutex_lock(&e->lock);
    fake_counts counts = e->counts;
    pthread_mutex_unlock(&e->lock);
    return counts;
}

/* ---- quire/engine.h ---- */

void quire_engine_destroy(quire_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    for (int i = 0; i < FAKE_REQUESTS_MAX; i++)
        if (e->requests[i].live) free((void *)(uintptr_t)e->requests[i].request.prompt);
    pthread_mutex_destroy(&e->lock);
    free(e->events);
    free(e);
}

static quire_status submit_locked(quire_engine *e, const quire_request *request, quire_error *error) {
    if (e->script.queue_max && e->counts.live >= e->script.queue_max) return QUIRE_QUEUE_FULL;
    if (e->script.pool_tokens && request->prompt_count > e->script.pool_tokens)
        return qr_fail(error, QUIRE_TOO_LARGE, "prompt", QR_NO_OFFSET, "%u tokens, the pool has %u", request->prompt_count,
                       e->script.pool_tokens);
    for (int i = 0; i < FAKE_REQUESTS_MAX; i++) {
        fake_request *r = &e->requests[i];
        if (r->live) continue;
        quire_token *prompt = malloc(request->prompt_count * sizeof *prompt);
        memcpy(prompt, request->prompt, request->prompt_count * sizeof *prompt);
        *r = (fake_request){.live = true, .request = *request};
        r->request.prompt = prompt;
        e->counts.live++;
        e->counts.submitted++;
        e->counts.last = *request;
        size_t key = request->namespace_bytes < 64 ? request->namespace_bytes : 64;
        if (key) memcpy(e->counts.last_key, request->namespace_key, key);
        memcpy(e->counts.last_prompt, prompt, (request->prompt_count < 256 ? request->prompt_count : 256) * sizeof *prompt);
        return QUIRE_OK;
    }
    return QUIRE_QUEUE_FULL;
}

quire_status quire_engine_submit(quire_engine *e, const quire_request *request, quire_error *error) {
    pthread_mutex_lock(&e->lock);
    quire_status status = submit_locked(e, request, error);
    pthread_mutex_unlock(&e->lock);
    return status;
}

static fake_request *find(quire_engine *e, uint64_t id) {
    for (int i = 0; i < FAKE_REQUESTS_MAX; i++)
        if (e->requests[i].live && e->requests[i].request.id == id) return &e->requests[i];
    return NULL;
}

void quire_engine_cancel(quire_engine *e, uint64_t id) {
    pthread_mutex_lock(&e->lock);
    fake_request *r = find(e, id);
    if (r && !r->cancelled) e->counts.cancelled++;
    if (r) r->cancelled = true;
    pthread_mutex_unlock(&e->lock);
}

void quire_engine_stop_choice(quire_engine *e, uint64_t id, uint32_t choice) {
    pthread_mutex_lock(&e->lock);
    fake_request *r = find(e, id);
    if (r && !r->choice_over[choice]) {
        e->counts.stopped_choices++;
        r->choice_stopping[choice] = true;
    }
    pthread_mutex_unlock(&e->lock);
}

size_t quire_engine_poll(quire_engine *e, quire_event *events, size_t max) {
    pthread_mutex_lock(&e->lock);
    size_t count = e->event_count < max ? e->event_count : max;
    memcpy(events, e->events, count * sizeof *events);
    memmove(e->events, e->events + count, (e->event_count - count) * sizeof *events);
    e->event_count -= count;
    pthread_mutex_unlock(&e->lock);
    return count;
}

void quire_engine_forget(quire_engine *e, const void *key, size_t bytes) {
    pthread_mutex_lock(&e->lock);
    if (key) e->counts.forgotten_one++;
    else e->counts.forgotten_all++;
    pthread_mutex_unlock(&e->lock);
}

void quire_engine_flush(quire_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->counts.flushes++;
    pthread_mutex_unlock(&e->lock);
}

void quire_engine_stop_flush(quire_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->counts.stopped_flushes++;
    e->flush_left = 0;
    pthread_mutex_unlock(&e->lock);
}

void quire_engine_get_stats(quire_engine *e, quire_engine_stats *stats) {
    pthread_mutex_lock(&e->lock);
    uint32_t context = e->script.context_tokens ? e->script.context_tokens : 512;
    *stats = (quire_engine_stats){.context_tokens = context, .block_tokens = 16, .max_sequences = 4};
    stats->kv.block_total = 1000;
    stats->kv.block_free = 1000;
    if (e->script.tiers) stats->tiers = *e->script.tiers;
    stats->flushes_total = e->flushes_begun;
    stats->forgets_total = e->forgets_done;
    stats->flush_left = e->flush_left;
    stats->erasing = e->erasing;
    stats->running = e->counts.live;
    stats->requests_total = e->counts.submitted;
    stats->idle = e->counts.live == 0;
    pthread_mutex_unlock(&e->lock);
}

const char *quire_engine_cpu_path(const quire_engine *e) { return "fake"; }

uint64_t quire_engine_numerics_fingerprint(const quire_engine *e) { return 0x1234; }
