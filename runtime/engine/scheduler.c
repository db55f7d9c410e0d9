#include "runtime/engine/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/hash.h"
#include "base/memory.h"
#include "runtime/engine/scheduler_internal.h"

/* ---- memory ---- */

/* Carves one allocation; with base NULL it only counts. */
typedef struct carver {
    char *base;
    uint64_t used;
} carver;

static void *carve(carver *k, uint64_t count, uint64_t size) {
    void *at = k->base ? k->base + k->used : NULL;
    k->used += (count * size + 63) & ~(uint64_t)63;
    return at;
}

static void place_carve(carver *k, const qr_scheduler *s, qr_step_place *place) {
    const qr_backend_limits *limits = &s->config.limits;
    uint64_t sequences = s->config.max_sequences;
    place->step.rows = carve(k, limits->rows_max, sizeof(qr_step_row));
    place->step.sequences = carve(k, sequences, sizeof(qr_step_sequence));
    place->step.samples = carve(k, limits->samples_max, sizeof(qr_step_sample));
    place->step.block_ids = carve(k, sequences * s->table_max, sizeof(quire_block_id));
    place->step.copies = carve(k, sequences * QR_COPIES_PER_CHOICE, sizeof(quire_kv_copy));
    place->entries = carve(k, sequences, sizeof(qr_step_entry));
    place->sample_choices = carve(k, limits->samples_max, sizeof(qr_choice *));
}

static void scheduler_carve(carver *k, qr_scheduler *s) {
    s->running = carve(k, s->config.max_sequences + 1, sizeof(qr_choice *));
    s->free_slots = carve(k, s->config.max_sequences, sizeof(uint32_t));
    s->end_tokens = carve(k, s->config.end_token_count, sizeof(quire_token));
    for (uint32_t i = 0; i < s->config.limits.steps_in_flight; i++) place_carve(k, s, &s->places[i]);
}

static void scheduler_shape(qr_scheduler *s, const qr_scheduler_config *config, uint32_t block_total, uint32_t block_tokens) {
    s->config = *config;
    s->block_total = block_total;
    s->block_tokens = block_tokens;
    s->capacity_tokens = qr_scheduler_capacity(config, block_total, block_tokens);
    s->table_max = (s->capacity_tokens + block_tokens - 1) / block_tokens;
}

uint64_t qr_scheduler_bytes(const qr_scheduler_config *config, uint32_t block_total, uint32_t block_tokens) {
    qr_scheduler s = {0};
    carver k = {NULL, sizeof(qr_scheduler)};
    scheduler_shape(&s, config, block_total, block_tokens);
    scheduler_carve(&k, &s);
    return k.used;
}

/* ---- create and destroy ---- */

uint32_t qr_scheduler_capacity(const qr_scheduler_config *config, uint32_t block_total, uint32_t block_tokens) {
    uint64_t pool = (uint64_t)block_total * block_tokens;
    return pool < config->context_tokens ? (uint32_t)pool : config->context_tokens;
}

static bool config_valid(const qr_scheduler_config *config, uint32_t block_tokens) {
    const qr_backend_limits *limits = &config->limits;
    return config->max_sequences >= 1 && config->context_tokens >= 2 && config->step_us >= 1 && limits->steps_in_flight >= 1 &&
           limits->steps_in_flight <= QR_STEPS_IN_FLIGHT_MAX && limits->sequences_max >= config->max_sequences &&
           limits->samples_max > config->max_sequences && limits->rows_max >= config->max_sequences + block_tokens;
}

static void scheduler_init(qr_scheduler *s) {
    qr_list_init(&s->queue);
    qr_list_init(&s->live);
    qr_list_init(&s->closing);
    qr_list_init(&s->ended);
    for (uint32_t i = 0; i < s->config.end_token_count; i++) s->end_tokens[i] = s->config.end_tokens[i];
    s->config.end_tokens = s->end_tokens;
    while (s->free_slot_count < s->config.max_sequences) {
        s->free_slots[s->free_slot_count] = s->config.max_sequences - 1 - s->free_slot_count;
        s->free_slot_count++;
    }
    s->next_arrival = s->next_step_id = 1;
    s->release_epoch = 1;
    s->next_deadline_us = UINT64_MAX;
    qr_cost_model_init(&s->cost);
}

quire_status qr_scheduler_create(const qr_scheduler_config *config, quire_kv *kv, uint32_t block_tokens,
                                 qr_scheduler_sink *sink, void *sink_context, qr_scheduler **scheduler) {
    *scheduler = NULL;
    if (!config_valid(config, block_tokens)) return QUIRE_INVALID;
    quire_kv_stats stats;
    quire_kv_get_stats(kv, &stats);
    qr_scheduler *s = qr_alloc_zero(1, qr_scheduler_bytes(config, stats.block_total, block_tokens));
    if (!s) return QUIRE_NO_MEMORY;
    carver k = {(char *)s, sizeof(qr_scheduler)};
    scheduler_shape(s, config, stats.block_total, block_tokens);
    scheduler_carve(&k, s);
    s->kv = kv;
    s->sink = sink;
    s->sink_context = sink_context;
    scheduler_init(s);
    *scheduler = s;
    return QUIRE_OK;
}

static void jobs_destroy(qr_list *list) {
    for (qr_list *node; (node = qr_list_pop_front(list));) qr_job_destroy(QR_LIST_ENTRY(node, qr_job, node));
}

void qr_scheduler_destroy(qr_scheduler *s) {
    if (!s) return;
    for (uint32_t i = 0; i < s->running_count; i++) {
        quire_status status = quire_kv_seq_close(s->kv, s->running[i]->seq);
        QR_ASSERT(status == QUIRE_OK);
    }
    jobs_destroy(&s->live);
    jobs_destroy(&s->closing);
    jobs_destroy(&s->ended);
    free(s);
}

/* ---- requests ---- */

static void job_seed(const qr_scheduler *s, qr_job *job) {
    const quire_sampling *sampling = &job->request.sampling;
    uint64_t seed = sampling->seeded ? sampling->seed : qr_mix64(s->config.seed ^ qr_mix64(job->arrival));
    for (uint32_t i = 0; i < job->request.choice_count; i++) job->choices[i].seed = qr_mix64(seed) ^ qr_mix64(~(uint64_t)i);
}

static uint64_t deadline_us(uint64_t now_us, uint64_t timeout_us) {
    if (timeout_us == 0 || timeout_us >= UINT64_MAX - now_us) return UINT64_MAX;
    return now_us + timeout_us;
}

quire_status qr_scheduler_add(qr_scheduler *s, qr_job *job, uint64_t now_us) {
    if (s->waiting_count >= s->config.max_waiting) return QUIRE_QUEUE_FULL;
    QR_ASSERT(job->request.prompt_count + job->limit <= s->capacity_tokens);
    QR_ASSERT(job->request.choice_count <= s->config.max_sequences);
    job->arrival = s->next_arrival++;
    job->submitted_us = now_us;
    job->deadline_us = deadline_us(now_us, job->request.timeout_us);
    if (job->deadline_us < s->next_deadline_us) s->next_deadline_us = job->deadline_us;
    job_seed(s, job);
    s->live_count++;
    s->waiting_count++;
    s->stats.requests_total++;
    qr_list_push_back(&s->live, &job->node);
    quire_status status = quire_kv_namespace_open(s->kv, job->request.namespace_key, job->request.namespace_bytes, &job->ns);
    job->has_namespace = status == QUIRE_OK;
    if (status == QUIRE_OK) {
        qr_queue_insert(s, &job->choices[0]);
    } else {
        qr_job_end(s, job, QUIRE_FINISH_ERROR, status, now_us);
    }
    return QUIRE_OK;
}

qr_job *qr_scheduler_take_ended(qr_scheduler *s) {
    qr_list *node = qr_list_pop_front(&s->ended);
    return node ? QR_LIST_ENTRY(node, qr_job, node) : NULL;
}

static qr_job *job_find(const qr_scheduler *s, uint64_t id) {
    QR_LIST_EACH (node, &s->live) {
        qr_job *job = QR_LIST_ENTRY(node, qr_job, node);
        if (job->request.id == id) return job;
    }
    return NULL;
}

void qr_scheduler_cancel(qr_scheduler *s, uint64_t request_id, uint64_t now_us) {
    qr_job *job = job_find(s, request_id);
    if (job) qr_job_end(s, job, QUIRE_FINISH_CANCELLED, QUIRE_OK, now_us);
}

static bool job_is_of(const qr_job *job, const void *key, size_t key_bytes) {
    return !key || (job->request.namespace_bytes == key_bytes &&
                    (key_bytes == 0 || memcmp(job->request.namespace_key, key, key_bytes) == 0));
}

void qr_scheduler_forget(qr_scheduler *s, const void *namespace_key, size_t namespace_bytes, uint64_t number) {
    QR_LIST_EACH (node, &s->live) {
        qr_job *job = QR_LIST_ENTRY(node, qr_job, node);
        if (job->forgets_before < number && job_is_of(job, namespace_key, namespace_bytes)) job->forgotten = true;
    }
}

static void stop_choice(qr_scheduler *s, qr_job *job, uint32_t choice, uint64_t now_us) {
    if (job->choices[choice].state == QR_CHOICE_ENDED) return;
    if (job->forked) {
        qr_choice_end(s, &job->choices[choice], QUIRE_FINISH_CANCELLED, now_us);
    } else {
        job->choices[choice].stop_wanted = true;
    }
}

void qr_scheduler_stop_choice(qr_scheduler *s, uint64_t request_id, uint32_t choice, uint64_t now_us) {
    qr_job *job = job_find(s, request_id);
    if (job && choice < job->request.choice_count) stop_choice(s, job, choice, now_us);
}

static bool obey_job(qr_scheduler *s, qr_job *job, uint64_t now_us) {
    uint64_t stops = atomic_exchange(&job->stop_wanted, 0);
    if (atomic_load(&job->cancel_wanted)) {
        qr_job_end(s, job, QUIRE_FINISH_CANCELLED, QUIRE_OK, now_us);
        return true;
    }
    for (uint32_t i = 0; stops != 0 && i < job->request.choice_count && !job->done; i++) {
        if (stops >> i & 1) stop_choice(s, job, i, now_us);
    }
    return stops != 0;
}

bool qr_scheduler_obey(qr_scheduler *s, uint64_t now_us) {
    uint32_t left = QR_OBEYED_PER_CALL;
    QR_LIST_EACH_SAFE (node, following, &s->live) {
        if (left == 0) return true;
        if (obey_job(s, QR_LIST_ENTRY(node, qr_job, node), now_us)) left--;
    }
    return false;
}

bool qr_scheduler_cancel_some(qr_scheduler *s, uint64_t now_us) {
    for (uint32_t i = 0; i < QR_OBEYED_PER_CALL && !qr_list_empty(&s->live); i++) {
        qr_job_end(s, QR_LIST_ENTRY(s->live.next, qr_job, node), QUIRE_FINISH_CANCELLED, QUIRE_OK, now_us);
    }
    return !qr_list_empty(&s->live);
}

/* ---- observation ---- */

bool qr_scheduler_poll(qr_scheduler *s, uint64_t now_us) {
    quire_kv_set_time(s->kv, now_us);
    if (!quire_kv_poll(s->kv)) return false;
    s->release_epoch++;
    return true;
}

uint64_t qr_scheduler_next_deadline_us(const qr_scheduler *s) {
    uint64_t load_us = qr_loads_deadline_us(s);
    return load_us < s->next_deadline_us ? load_us : s->next_deadline_us;
}

bool qr_scheduler_idle(const qr_scheduler *s) { return s->live_count == 0 && s->in_flight == 0; }

uint32_t qr_scheduler_steps_in_flight(const qr_scheduler *s) { return s->in_flight; }

/* A round is as many plans as steps in flight and one completion. A plan: STARTED and a progress per slot, the jobs that
 * expire, one that ends by an error. A completion: per running choice a token and a progress, per score one, and where a job
 * ends CHOICE_DONE for all its choices and DONE. */
uint32_t qr_scheduler_events_max_of(const qr_scheduler_config *config) {
    uint32_t job = QUIRE_CHOICES_MAX + 1;
    uint32_t plan = 2 * config->max_sequences + (QR_EXPIRED_PER_PLAN + 2) * job;
    uint32_t completion = config->max_sequences * (2 + job) + config->limits.samples_max;
    return QR_STEPS_IN_FLIGHT_MAX * plan + completion;
}

uint32_t qr_scheduler_events_max(const qr_scheduler *s) { return qr_scheduler_events_max_of(&s->config); }

static bool choice_runs(const qr_choice *c) { return c->state != QR_CHOICE_ENDED; }

static bool choice_loads(const qr_choice *c) { return c->loads; }

/* Jobs that have at least one such choice among the running. */
static uint32_t jobs_with(const qr_scheduler *s, bool (*such)(const qr_choice *c)) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->running_count; i++) {
        qr_job *job = s->running[i]->job;
        if (job->counted || !such(s->running[i])) continue;
        job->counted = true;
        count++;
    }
    for (uint32_t i = 0; i < s->running_count; i++) s->running[i]->job->counted = false;
    return count;
}

void qr_scheduler_get_stats(const qr_scheduler *s, quire_engine_stats *stats) {
    quire_engine_stats out = s->stats;
    out.context_tokens = s->capacity_tokens;
    out.block_tokens = s->block_tokens;
    out.max_sequences = s->config.max_sequences;
    out.running = jobs_with(s, choice_runs);
    out.loading = jobs_with(s, choice_loads);
    out.waiting = s->waiting_count;
    out.paused = s->live_count - out.waiting - out.running;
    out.idle = qr_scheduler_idle(s);
    *stats = out;
}
