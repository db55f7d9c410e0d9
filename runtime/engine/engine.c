#include <quire/engine.h>

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "runtime/engine/engine_internal.h"
#include "runtime/engine/job.h"

/* ---- sizes ---- */

static uint32_t jobs_max(const qr_scheduler_config *config) {
    /* Queued, running or paused, and as many again whose DONE the owner has not fetched yet. */
    return 2 * (config->max_waiting + config->max_sequences);
}

static size_t power_of_two_at_least(size_t value) {
    size_t power = 1;
    while (power < value) power *= 2;
    return power;
}

/* One round at its worst, and room for a dozen ordinary steps that the owner has not fetched yet. */
static size_t outbox_capacity(const qr_scheduler_config *config) {
    return power_of_two_at_least((size_t)qr_scheduler_events_max_of(config) + 16 * (size_t)config->max_sequences + 256);
}

static size_t messages_max(const qr_scheduler_config *config) { return (size_t)jobs_max(config) + QR_FORGETS_MAX; }

uint64_t qr_engine_bytes(const qr_scheduler_config *config, uint32_t block_total, uint32_t block_tokens) {
    uint64_t messages = power_of_two_at_least(messages_max(config)) * sizeof(qr_engine_message) * 2;
    uint64_t events = outbox_capacity(config) * sizeof(quire_event);
    uint64_t scheduler = qr_scheduler_bytes(config, block_total, block_tokens);
    return sizeof(quire_engine) + sizeof(quire_engine_stats) + messages + events + scheduler;
}

/* ---- start and destroy ---- */

quire_status qr_engine_inbox_create(const qr_scheduler_config *config, qr_mailbox **inbox) {
    return qr_mailbox_create(sizeof(qr_engine_message), messages_max(config), inbox);
}

void qr_engine_wake_inbox(void *inbox) { qr_mailbox_poke(inbox); }

static void jobs_free(quire_engine *engine) {
    qr_engine_message message;
    while (engine->returned && qr_mailbox_try_pop(engine->returned, &message)) {
        if (message.kind == QR_MESSAGE_FORGET) {
            free(message.object);
            engine->forget_count--;
            continue;
        }
        qr_job *job = message.object;
        qr_list_remove(&job->owner_node);
        qr_job_destroy(job);
        engine->job_count--;
    }
}

static void messages_free(quire_engine *engine) {
    qr_engine_message message;
    while (engine->inbox && qr_mailbox_try_pop(engine->inbox, &message)) {
        if (message.kind == QR_MESSAGE_FORGET) free(message.object);
        else qr_job_destroy(message.object);
    }
}

/* The inbox goes last: the store's threads poke it until the KV manager has closed the store. */
void qr_engine_parts_destroy(qr_engine_parts *parts) {
    if (parts->backend) parts->backend->ops->destroy(parts->backend);
    qr_compute_pool_destroy(parts->pool);
    quire_kv_destroy(parts->kv);
    qr_mailbox_destroy(parts->inbox);
}

void quire_engine_destroy(quire_engine *engine) {
    if (!engine) return;
    if (engine->thread_runs) {
        atomic_store(&engine->stopping, true);
        qr_mailbox_poke(engine->inbox);
        qr_mailbox_poke(engine->bell);
        pthread_join(engine->thread, NULL);
    }
    jobs_free(engine);
    messages_free(engine);
    qr_scheduler_destroy(engine->scheduler);
    qr_mailbox_destroy(engine->outbox);
    qr_mailbox_destroy(engine->returned);
    qr_mailbox_destroy(engine->bell);
    qr_snapshot_destroy(engine->snapshot);
    qr_engine_parts_destroy(&engine->parts);
    free(engine);
}

static quire_status engine_take_memory(quire_engine *engine) {
    const qr_engine_parts *parts = &engine->parts;
    quire_status status =
        qr_scheduler_create(&parts->scheduler, parts->kv, parts->block_tokens, qr_engine_sink, engine, &engine->scheduler);
    if (status != QUIRE_OK) return status;
    engine->events_max = qr_scheduler_events_max(engine->scheduler);
    if (!engine->parts.inbox) status = qr_engine_inbox_create(&parts->scheduler, &engine->parts.inbox);
    engine->inbox = engine->parts.inbox;
    if (status == QUIRE_OK)
        status = qr_mailbox_create(sizeof(qr_engine_message), messages_max(&parts->scheduler), &engine->returned);
    if (status == QUIRE_OK)
        status = qr_mailbox_create(sizeof(quire_event), outbox_capacity(&parts->scheduler), &engine->outbox);
    if (status == QUIRE_OK) status = qr_mailbox_create(1, 1, &engine->bell);
    if (status == QUIRE_OK && !(engine->snapshot = qr_snapshot_create(sizeof(quire_engine_stats)))) status = QUIRE_NO_MEMORY;
    return status;
}

quire_status qr_engine_start(const qr_engine_parts *parts, quire_engine **out, quire_error *error) {
    *out = NULL;
    quire_engine *engine = qr_alloc_zero(1, sizeof *engine);
    if (!engine) {
        qr_engine_parts owned = *parts;
        qr_engine_parts_destroy(&owned);
        return qr_fail(error, QUIRE_NO_MEMORY, "engine", QR_NO_OFFSET, "no memory for the engine");
    }
    quire_kv_stats stats;
    quire_kv_get_stats(parts->kv, &stats);
    engine->parts = *parts;
    engine->block_total = stats.block_total;
    engine->capacity_tokens = qr_scheduler_capacity(&parts->scheduler, stats.block_total, parts->block_tokens);
    engine->jobs_max = jobs_max(&parts->scheduler);
    qr_list_init(&engine->jobs);
    quire_status status = engine_take_memory(engine);
    int failed = 0;
    if (status == QUIRE_OK) {
        qr_engine_publish(engine);
        failed = pthread_create(&engine->thread, NULL, qr_engine_thread_main, engine);
        engine->thread_runs = failed == 0;
    }
    if (engine->thread_runs) {
        *out = engine;
        return QUIRE_OK;
    }
    quire_engine_destroy(engine);
    if (failed) return qr_fail(error, QUIRE_IO, "engine", QR_NO_OFFSET, "cannot start a thread: %s", strerror(failed));
    return qr_fail(error, status, "engine", QR_NO_OFFSET, "the engine could not start: %s", quire_status_message(status));
}

/* ---- requests ---- */

static bool queue_full(const quire_engine *engine) {
    return atomic_load(&engine->queued) >= engine->parts.scheduler.max_waiting || engine->job_count >= engine->jobs_max;
}

quire_status quire_engine_submit(quire_engine *engine, const quire_request *request, quire_error *error) {
    const qr_engine_parts *parts = &engine->parts;
    jobs_free(engine);
    if (atomic_load(&engine->draining)) {
        return qr_fail(error, QUIRE_SHUTTING_DOWN, "engine", QR_NO_OFFSET, "the engine takes no new requests");
    }
    quire_status status = qr_scheduler_validate(&parts->scheduler, engine->block_total, parts->block_tokens, request, error);
    if (status != QUIRE_OK) return status;
    if (queue_full(engine)) {
        return qr_fail(error, QUIRE_QUEUE_FULL, "engine", QR_NO_OFFSET, "%u requests wait already",
                       (unsigned)atomic_load(&engine->queued));
    }
    qr_job *job = qr_job_create(request, engine->capacity_tokens);
    if (!job) return qr_fail(error, QUIRE_NO_MEMORY, "engine", QR_NO_OFFSET, "no memory for the request");
    job->submitted_us = qr_clock_us();
    job->forgets_before = engine->forgets_asked;
    qr_list_push_front(&engine->jobs, &job->owner_node);
    engine->job_count++;
    atomic_fetch_add(&engine->queued, 1);
    qr_engine_message message = {QR_MESSAGE_JOB, job};
    bool pushed = qr_mailbox_try_push(engine->inbox, &message);
    QR_ASSERT(pushed); /* it holds as many as may be out */
    return QUIRE_OK;
}

/* The newest: an older one of the same id has ended. */
static qr_job *job_find(const quire_engine *engine, uint64_t request_id) {
    QR_LIST_EACH (node, &engine->jobs) {
        qr_job *job = QR_LIST_ENTRY(node, qr_job, owner_node);
        if (job->request.id == request_id) return job;
    }
    return NULL;
}

static void draw_attention(quire_engine *engine) {
    atomic_store(&engine->attention, true);
    qr_mailbox_poke(engine->inbox);
}

void quire_engine_cancel(quire_engine *engine, uint64_t request_id) {
    jobs_free(engine);
    qr_job *job = job_find(engine, request_id);
    if (!job) return;
    atomic_store(&job->cancel_wanted, true);
    draw_attention(engine);
}

void quire_engine_stop_choice(quire_engine *engine, uint64_t request_id, uint32_t choice) {
    jobs_free(engine);
    qr_job *job = job_find(engine, request_id);
    if (!job || choice >= job->request.choice_count) return;
    atomic_fetch_or(&job->stop_wanted, (uint64_t)1 << choice);
    draw_attention(engine);
}

size_t quire_engine_poll(quire_engine *engine, quire_event *events, size_t max) {
    size_t count = 0;
    while (count < max && qr_mailbox_try_pop(engine->outbox, &events[count])) count++;
    if (count > 0 && atomic_load(&engine->starved)) qr_mailbox_poke(engine->bell);
    jobs_free(engine);
    return count;
}

void quire_engine_drain(quire_engine *engine) { atomic_store(&engine->draining, true); }

/* ---- cache ---- */

static void forget_everything(quire_engine *engine) {
    atomic_store(&engine->forget_all, engine->forgets_asked);
    qr_mailbox_poke(engine->inbox);
}

/* What cannot be said in a message is said by forgetting more: that costs time, never privacy. */
void quire_engine_forget(quire_engine *engine, const void *namespace_key, size_t namespace_bytes) {
    jobs_free(engine);
    engine->forgets_asked++;
    qr_forget *what = NULL;
    bool fits = engine->forget_count < QR_FORGETS_MAX && namespace_bytes <= SIZE_MAX / 2;
    if (namespace_key && fits) what = malloc(sizeof *what + namespace_bytes);
    if (!what) {
        forget_everything(engine);
        return;
    }
    what->number = engine->forgets_asked;
    what->key_bytes = namespace_bytes;
    if (namespace_bytes) memcpy(what->key, namespace_key, namespace_bytes);
    qr_engine_message message = {QR_MESSAGE_FORGET, what};
    engine->forget_count++;
    bool pushed = qr_mailbox_try_push(engine->inbox, &message);
    QR_ASSERT(pushed);
}

void quire_engine_flush(quire_engine *engine) {
    atomic_fetch_add(&engine->flushes_asked, 1);
    qr_mailbox_poke(engine->inbox);
}

void quire_engine_stop_flush(quire_engine *engine) {
    atomic_store(&engine->flushes_stopped, atomic_load(&engine->flushes_asked));
    qr_mailbox_poke(engine->inbox);
}

/* ---- observation ---- */

void quire_engine_get_stats(quire_engine *engine, quire_engine_stats *stats) { qr_snapshot_read(engine->snapshot, stats); }

quire_status quire_engine_check(quire_engine *engine, quire_error *error) {
    qr_check_call call = {.mutex = PTHREAD_MUTEX_INITIALIZER, .answered = PTHREAD_COND_INITIALIZER};
    atomic_store(&engine->check, &call);
    qr_mailbox_poke(engine->inbox);
    qr_mailbox_poke(engine->bell);
    pthread_mutex_lock(&call.mutex);
    while (!call.done) pthread_cond_wait(&call.answered, &call.mutex);
    pthread_mutex_unlock(&call.mutex);
    pthread_cond_destroy(&call.answered);
    pthread_mutex_destroy(&call.mutex);
    if (call.status != QUIRE_OK && error) *error = call.error;
    return call.status;
}

const char *quire_engine_cpu_path(const quire_engine *engine) { return engine->parts.cpu_path; }

uint64_t quire_engine_numerics_fingerprint(const quire_engine *engine) { return engine->parts.numerics_fingerprint; }
