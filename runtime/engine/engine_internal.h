/* engine_internal.h - the engine's two sides: the owner's calls (engine.c) and the thread (engine_thread.c). Tests start
 * one on a simulated backend through it.
 *
 *   owner                                            engine thread
 *   submit, forget   -- inbox (engine_message) ----> scheduler, KV manager, backend
 *   cancel, stop     -- flags in the job, a poke -->
 *   poll             <-- outbox (quire_event) ------
 *                    <-- returned (engine_message) - what the owner allocated comes back to be freed
 *   get_stats        <-- snapshot ------------------
 *   flush, stop      -- counted calls, a poke ----->   and wake-ups of the store's threads: a poke
 *   check            <-> one slot, both wait
 *
 * The thread works only while the outbox has room for all that one round can say; else it waits for the owner to poll. The
 * owner never waits, except in check and destroy.
 */
#ifndef QR_ENGINE_ENGINE_INTERNAL_H
#define QR_ENGINE_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/compute_pool.h"
#include "base/list.h"
#include "base/mailbox.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/snapshot.h"

/* Everything an engine runs on; it owns them from start on, a failed start included. */
typedef struct qr_engine_parts {
    quire_kv *kv;
    uint32_t block_tokens;
    qr_backend *backend;
    qr_compute_pool *pool; /* may be NULL */
    qr_scheduler_config scheduler;
    void (*wake)(void *context);
    void *wake_context;
    uint64_t kv_bytes_per_token, weight_bytes, work_bytes, total_bytes; /* for the statistics */
    uint64_t (*saturated)(const qr_backend *backend);                   /* may be NULL */
    const char *cpu_path;
    uint64_t numerics_fingerprint;
    qr_mailbox *inbox; /* of qr_engine_inbox_create, when something wakes the engine by it; else NULL */
} qr_engine_parts;

/* The inbox of an engine to be: what lies below it is made first and wakes it by a poke. */
QUIRE_MUST_CHECK quire_status qr_engine_inbox_create(const qr_scheduler_config *config, qr_mailbox **inbox);
/* quire_kv_tiers.wake of an engine; the context is its inbox. */
void qr_engine_wake_inbox(void *inbox);

/* Errors: NO_MEMORY, INVALID, IO (no thread). */
QUIRE_MUST_CHECK quire_status qr_engine_start(const qr_engine_parts *parts, quire_engine **engine, quire_error *error);
/* Of an engine that was never started. */
void qr_engine_parts_destroy(qr_engine_parts *parts);
/* Bytes of mailboxes and scheduler, for the memory plan. */
uint64_t qr_engine_bytes(const qr_scheduler_config *config, uint32_t block_total, uint32_t block_tokens);

typedef enum qr_message_kind { QR_MESSAGE_JOB, QR_MESSAGE_FORGET } qr_message_kind;

/* A namespace to forget; its own allocation. */
typedef struct qr_forget {
    uint64_t number; /* of the call, from 1 */
    size_t key_bytes;
    char key[];
} qr_forget;

typedef struct qr_engine_message {
    qr_message_kind kind;
    void *object; /* qr_job or qr_forget */
} qr_engine_message;

enum { QR_FORGETS_MAX = 64 };

typedef struct qr_check_call {
    pthread_mutex_t mutex;
    pthread_cond_t answered;
    bool done;
    quire_status status;
    quire_error error;
} qr_check_call;

struct quire_engine {
    qr_engine_parts parts;
    qr_scheduler *scheduler;
    qr_mailbox *inbox, *outbox, *returned;
    qr_mailbox *bell;      /* never holds a message: rung when the outbox has room again */
    qr_snapshot *snapshot; /* of quire_engine_stats */
    pthread_t thread;
    bool thread_runs;
    uint32_t block_total, capacity_tokens, events_max;
    uint32_t jobs_max; /* that `returned` has room for, forgets besides */

    /* Owner. */
    qr_list jobs; /* not given back yet, newest first */
    uint32_t job_count, forget_count;
    uint64_t forgets_asked; /* calls so far */

    /* Shared. */
    _Atomic uint32_t queued;                         /* submitted and not started */
    _Atomic bool attention;                          /* some job has a wish */
    _Atomic bool draining;                           /* submit refuses */
    _Atomic bool stopping;                           /* the thread ends; nobody polls any more */
    _Atomic bool starved;                            /* the thread waits for room in the outbox */
    _Atomic uint64_t forget_all;                     /* everything cached is to be forgotten: the number of the call; 0 = no */
    _Atomic uint64_t flushes_asked, flushes_stopped; /* calls so far; of them, those that are to give up. stopped <= asked */
    _Atomic(qr_check_call *) check;

    /* Thread. */
    uint64_t forgets_done; /* the highest number carried out */
    uint64_t forgot_all;   /* the number of the latest that forgot everything: it may overtake requests in the inbox */
    uint64_t flushes_begun, flushes_ended;
    uint64_t events_sent;
    quire_engine_stats stats; /* scratch of publish */
};

void qr_engine_sink(void *engine, const quire_event *event); /* the scheduler's */
void *qr_engine_thread_main(void *engine);
void qr_engine_publish(quire_engine *engine);
#endif
