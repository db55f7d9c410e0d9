/* The engine's thread: rounds of "take messages, plan, run, complete, move the tiers on, say so". Nothing here blocks except
 * the backend, an idle inbox, and an outbox that the owner does not empty; the disk is the store's threads' business, and they
 * end a sleep by a poke. After the first round nothing allocates; a debug build asserts it. */
#include "base/arithmetic.h"
#include "base/assertion.h"
#include "base/clock.h"
#include "base/memory.h"
#include "runtime/engine/engine_internal.h"
#include "runtime/engine/job.h"

/* A wait that something should end looks again after this long, whatever happens. */
static const uint64_t look_again_us = 50000;
/* A device cannot wake anybody when its copies are done: one block takes about so long. */
static const uint64_t copy_us = 50;

/* ---- what goes out ---- */

void qr_engine_sink(void *context, const quire_event *event) {
    quire_engine *engine = context;
    if (event->kind == QUIRE_EVENT_STARTED) atomic_fetch_sub(&engine->queued, 1);
    bool pushed = qr_mailbox_try_push(engine->outbox, event);
    /* Room was there before the round; only at the end, when nobody polls, may events be lost. */
    QR_ASSERT(pushed || atomic_load(&engine->stopping));
    engine->events_sent++;
}

static void give_back(quire_engine *engine, qr_message_kind kind, void *object) {
    qr_engine_message message = {kind, object};
    bool pushed = qr_mailbox_try_push(engine->returned, &message);
    QR_ASSERT(pushed); /* the owner lets no more out than it holds */
}

static void give_back_ended(quire_engine *engine) {
    for (qr_job *job; (job = qr_scheduler_take_ended(engine->scheduler));) {
        if (!job->started) atomic_fetch_sub(&engine->queued, 1);
        give_back(engine, QR_MESSAGE_JOB, job);
    }
}

void qr_engine_publish(quire_engine *engine) {
    quire_engine_stats *stats = &engine->stats;
    const qr_engine_parts *parts = &engine->parts;
    qr_scheduler_get_stats(engine->scheduler, stats);
    quire_kv_get_stats(parts->kv, &stats->kv);
    quire_kv_get_tiers_stats(parts->kv, &stats->tiers);
    stats->forgets_total = engine->forgets_done;
    stats->flushes_total = engine->flushes_begun;
    stats->flush_left = quire_kv_flush_left(parts->kv);
    stats->erasing = quire_kv_erasing(parts->kv);
    stats->kv_bytes_per_token = parts->kv_bytes_per_token;
    stats->weight_bytes = parts->weight_bytes;
    stats->work_bytes = parts->work_bytes;
    stats->total_bytes = parts->total_bytes;
    stats->saturated_total = parts->saturated ? parts->saturated(parts->backend) : 0;
    qr_snapshot_write(engine->snapshot, stats);
}

/* ---- what comes in ---- */

/* Forgetting everything may overtake forgets of one namespace, and is more than they ask. */
static void forget_is_done(quire_engine *engine, uint64_t number) {
    if (number > engine->forgets_done) engine->forgets_done = number;
}

static void forget(quire_engine *engine, const qr_forget *what) {
    (void)quire_kv_forget_key(engine->parts.kv, what->key, what->key_bytes, true);
    qr_scheduler_forget(engine->scheduler, what->key, what->key_bytes, what->number);
    forget_is_done(engine, what->number);
}

static void take_message(quire_engine *engine, const qr_engine_message *message) {
    if (message->kind == QR_MESSAGE_FORGET) {
        forget(engine, message->object);
        give_back(engine, QR_MESSAGE_FORGET, message->object);
        return;
    }
    qr_job *job = message->object;
    job->forgotten = job->forgets_before < engine->forgot_all;
    /* The owner counts what is queued, so the scheduler always has room. */
    quire_status status = qr_scheduler_add(engine->scheduler, job, job->submitted_us);
    QR_ASSERT(status == QUIRE_OK);
    /* A wish that came before the job was live was looked for in vain. */
    if (atomic_load(&job->cancel_wanted) || atomic_load(&job->stop_wanted)) atomic_store(&engine->attention, true);
}

static bool has_room(const quire_engine *engine) { return qr_mailbox_space(engine->outbox) >= engine->events_max; }

static bool take_messages(quire_engine *engine) {
    qr_engine_message message;
    bool any = false;
    while (has_room(engine) && qr_mailbox_try_pop(engine->inbox, &message)) {
        take_message(engine, &message);
        any = true;
    }
    uint64_t number = atomic_exchange(&engine->forget_all, 0);
    if (number) {
        quire_kv_forget_all(engine->parts.kv, true);
        qr_scheduler_forget(engine->scheduler, NULL, 0, number);
        engine->forgot_all = number;
        forget_is_done(engine, number);
        any = true; /* an idle engine must still say so */
    }
    return any;
}

static void obey(quire_engine *engine) {
    if (!atomic_exchange(&engine->attention, false)) return;
    if (qr_scheduler_obey(engine->scheduler, qr_clock_us())) atomic_store(&engine->attention, true);
}

/* Stopped first: what it says is never ahead of what was asked then. */
static bool obey_flush(quire_engine *engine) {
    uint64_t stopped = atomic_load(&engine->flushes_stopped), asked = atomic_load(&engine->flushes_asked);
    if (asked == engine->flushes_begun && stopped == engine->flushes_ended) return false;
    engine->flushes_begun = asked;
    engine->flushes_ended = stopped;
    if (asked > stopped) quire_kv_flush_begin(engine->parts.kv);
    else quire_kv_flush_end(engine->parts.kv);
    return true;
}

static void answer_check(quire_engine *engine) {
    qr_check_call *call = atomic_exchange(&engine->check, NULL);
    if (!call) return;
    quire_error error = {0};
    quire_status status = qr_scheduler_check(engine->scheduler, &error);
    if (status == QUIRE_OK) status = quire_kv_check(engine->parts.kv, &error);
    pthread_mutex_lock(&call->mutex);
    call->status = status;
    call->error = error;
    call->done = true;
    pthread_cond_signal(&call->answered);
    pthread_mutex_unlock(&call->mutex);
}

/* ---- rounds ---- */

static bool complete_oldest(quire_engine *engine) {
    qr_step_result result;
    qr_backend *backend = engine->parts.backend;
    if (!backend->ops->poll(backend, true, &result)) return false;
    qr_scheduler_complete(engine->scheduler, &result, qr_clock_us());
    return true;
}

/* False: nothing to run. */
static bool run_round(quire_engine *engine) {
    qr_backend *backend = engine->parts.backend;
    for (qr_step *step; qr_scheduler_plan(engine->scheduler, qr_clock_us(), &step);) backend->ops->submit(backend, step);
    if (qr_scheduler_steps_in_flight(engine->scheduler) == 0) return false;
    qr_scheduler_poll(engine->scheduler, qr_clock_us()); /* what the plan began goes on during the step */
    return complete_oldest(engine);
}

static void say_so(quire_engine *engine, uint64_t sent_before) {
    give_back_ended(engine);
    qr_engine_publish(engine);
    if (engine->events_sent != sent_before && engine->parts.wake) engine->parts.wake(engine->parts.wake_context);
}

/* The owner's poll rings when it sees `starved`; the look after setting it closes the gap. */
static void wait_for_room(quire_engine *engine) {
    bool flushes = obey_flush(engine);
    if (qr_scheduler_poll(engine->scheduler, qr_clock_us()) || flushes) qr_engine_publish(engine);
    atomic_store(&engine->starved, true);
    if (!has_room(engine)) qr_mailbox_wait(engine->bell, look_again_us);
    atomic_store(&engine->starved, false);
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* With requests left there is something to run, or a tier that will wake us (tests/sim asserts it); should that ever fail, a
 * late look costs less than a client that waits for ever. */
static void wait_for_work(quire_engine *engine) {
    uint64_t deadline_us = qr_scheduler_next_deadline_us(engine->scheduler), now_us = qr_clock_us();
    uint64_t timeout_us = deadline_us == UINT64_MAX ? UINT64_MAX : deadline_us > now_us ? deadline_us - now_us : 0;
    uint64_t poll_us = quire_kv_poll_after_us(engine->parts.kv);
    timeout_us = least(timeout_us, poll_us > copy_us ? poll_us : copy_us);
    if (!qr_scheduler_idle(engine->scheduler)) timeout_us = least(timeout_us, look_again_us);
    qr_mailbox_wait(engine->inbox, timeout_us);
    /* What has come meanwhile is seen before the plan asks whether a load takes too long. */
    if (qr_scheduler_poll(engine->scheduler, qr_clock_us())) qr_engine_publish(engine);
}

/* A poll comes after the last word about idleness and before the sleep, so what may be begun only now is begun. */
static bool move_tiers(quire_engine *engine, bool ran) {
    quire_kv_set_idle(engine->parts.kv, !ran);
    return qr_scheduler_poll(engine->scheduler, qr_clock_us());
}

static void one_round(quire_engine *engine) {
    uint64_t sent = engine->events_sent;
    bool came = take_messages(engine), flushes = obey_flush(engine);
    if (has_room(engine)) obey(engine);
    bool ran = has_room(engine) && run_round(engine);
    bool moved = move_tiers(engine, ran) || flushes;
    bool quiet = !came && !ran && !moved && engine->events_sent == sent && !atomic_load(&engine->attention);
    if (!quiet) {
        say_so(engine, sent);
    } else if (has_room(engine)) {
        wait_for_work(engine);
    }
}

/* Nobody polls any more: events that find no room are lost, jobs are not. */
static void wind_up(quire_engine *engine) {
    while (qr_scheduler_cancel_some(engine->scheduler, qr_clock_us())) continue;
    while (qr_scheduler_steps_in_flight(engine->scheduler) > 0 && complete_oldest(engine)) continue;
    give_back_ended(engine);
    qr_engine_publish(engine);
}

void *qr_engine_thread_main(void *argument) {
    quire_engine *engine = argument;
    qr_arithmetic_set_canonical();
    while (!atomic_load(&engine->stopping)) {
        answer_check(engine);
        qr_alloc_guard_enter();
        if (has_room(engine)) {
            one_round(engine);
        } else {
            wait_for_room(engine);
        }
        uint64_t allocations = qr_alloc_guard_leave();
        QR_ASSERT(allocations == 0);
    }
    wind_up(engine);
    answer_check(engine);
    return NULL;
}
