/* scheduler.h - which rows run in the next step: a pure function of its state, its inbox and the time it is told.
 *
 * Owns the requests and drives the KV manager; never reads a clock, starts a thread or waits. The engine thread and the
 * simulator run this same code.
 *
 * Rules: decodes first, then as much prefill as the step's time budget allows (a measured cost model turns time into
 * rows). A newcomer never hurts a runner: what can never fit is refused by add; what does not fit now waits; admission
 * never preempts. When runners outgrow the pool the youngest of the least urgent is paused and resumes later with the same
 * bits. Waiting requests are taken by priority, then by age with a bounded preference for those whose prefix is cached or
 * is in use now; a request whose prefix is being computed by another waits for it instead of computing it again.
 *
 * Thread: one.
 */
#ifndef QR_ENGINE_SCHEDULER_H
#define QR_ENGINE_SCHEDULER_H

#include "runtime/engine/backend.h"

typedef struct qr_scheduler qr_scheduler;

enum { QR_OBEYED_PER_CALL = 8 }; /* bounds the events of one call */

typedef struct qr_scheduler_config {
    uint32_t context_tokens;
    uint32_t max_sequences;
    uint32_t max_waiting;
    uint32_t step_us;
    uint64_t seed;                 /* for unseeded requests */
    const quire_token *end_tokens; /* [end_token_count], kept (copied) */
    uint32_t end_token_count;
    qr_backend_limits limits;
} qr_scheduler_config;

/* Events leave through this; the sink copies. It must always have room for what add, obey, or one round of plans and one
 * completion can give: see qr_scheduler_events_max. */
typedef void qr_scheduler_sink(void *context, const quire_event *event);

/* Bytes that create takes. */
uint64_t qr_scheduler_bytes(const qr_scheduler_config *config, uint32_t block_total, uint32_t block_tokens);
/* Keeps kv, whose blocks hold block_tokens tokens. Errors: INVALID (limits that do not fit together), NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_scheduler_create(const qr_scheduler_config *config, quire_kv *kv, uint32_t block_tokens,
                                                  qr_scheduler_sink *sink, void *sink_context, qr_scheduler **scheduler);
/* Frees the jobs that it still has, without events; no step is in flight in the backend any more. */
void qr_scheduler_destroy(qr_scheduler *scheduler);

/* Checks a request against this configuration without any state: INVALID, TOO_LARGE. Any thread. */
QUIRE_MUST_CHECK quire_status qr_scheduler_validate(const qr_scheduler_config *config, uint32_t block_total,
                                                    uint32_t block_tokens, const quire_request *request, quire_error *error);

/* Tokens that one sequence can ever hold: the context, or the whole pool where that is smaller. */
uint32_t qr_scheduler_capacity(const qr_scheduler_config *config, uint32_t block_total, uint32_t block_tokens);

/* A request's own memory: prompt, generated tokens and sampling copied, taken by the submitting thread so that the engine
 * thread allocates nothing. The request was validated; its answer is cut at capacity_tokens. NULL when out of memory. */
typedef struct qr_job qr_job;
qr_job *qr_job_create(const quire_request *request, uint32_t capacity_tokens);
void qr_job_destroy(qr_job *job);

/* Takes the job; QUEUE_FULL gives it back (the caller still owns it). Jobs that ended go to the `ended` list: the owner
 * frees them on its own thread. */
QUIRE_MUST_CHECK quire_status qr_scheduler_add(qr_scheduler *scheduler, qr_job *job, uint64_t now_us);
qr_job *qr_scheduler_take_ended(qr_scheduler *scheduler);
void qr_scheduler_cancel(qr_scheduler *scheduler, uint64_t request_id, uint64_t now_us);
/* What jobs submitted before this forget (job.h, forgets_before < number) compute from now on is not cached, whatever state
 * they are in. The KV manager knows only the sequences that are open now; key NULL: all jobs. */
void qr_scheduler_forget(qr_scheduler *scheduler, const void *namespace_key, size_t namespace_bytes, uint64_t number);
void qr_scheduler_stop_choice(qr_scheduler *scheduler, uint64_t request_id, uint32_t choice, uint64_t now_us);
/* Cancels the jobs and ends the choices whose owner asked for it by their flags (job.h), at most QR_OBEYED_PER_CALL jobs.
 * True: there may be more. */
bool qr_scheduler_obey(qr_scheduler *scheduler, uint64_t now_us);
/* Cancels up to QR_OBEYED_PER_CALL jobs. True: there are more. */
bool qr_scheduler_cancel_some(qr_scheduler *scheduler, uint64_t now_us);

/* Moves the lower tiers on: once a round, and while nothing runs. True: something changed, so a plan may find more to do. */
bool qr_scheduler_poll(qr_scheduler *scheduler, uint64_t now_us);
/* Fills the next step. False: nothing can run now (idle, waiting for a lower tier, or all steps in flight). */
bool qr_scheduler_plan(qr_scheduler *scheduler, uint64_t now_us, qr_step **step);
/* Takes a step's result in order of submission. */
void qr_scheduler_complete(qr_scheduler *scheduler, const qr_step_result *result, uint64_t now_us);
/* The next instant at which something happens by itself (a timeout, a load that is given up), or UINT64_MAX. */
uint64_t qr_scheduler_next_deadline_us(const qr_scheduler *scheduler);
uint32_t qr_scheduler_steps_in_flight(const qr_scheduler *scheduler);
bool qr_scheduler_idle(const qr_scheduler *scheduler); /* no request of any state, no step in flight */
uint32_t qr_scheduler_events_max(const qr_scheduler *scheduler);
uint32_t qr_scheduler_events_max_of(const qr_scheduler_config *config);

/* Fills the scheduler's part: running, loading, waiting, paused, counters. */
void qr_scheduler_get_stats(const qr_scheduler *scheduler, quire_engine_stats *stats);
/* Verifies every invariant; CORRUPT names the first violation. O(requests and their tokens). */
QUIRE_MUST_CHECK quire_status qr_scheduler_check(const qr_scheduler *scheduler, quire_error *error);
#endif
