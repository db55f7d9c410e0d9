/* scheduler_internal.h - the state that the scheduler's files share. Nothing outside runtime/engine includes it, except
 * tests that look inside.
 *
 *   scheduler.c  create, add, cancel, deadlines, statistics      admission.c  the queue: who starts next
 *   planning.c   which rows join the next step                   completion.c what a step's result means
 *   ending.c     the ways a choice or a job stops or pauses      loading.c    what comes from lower tiers instead
 *   scheduler_check.c every invariant
 *
 * Where a choice is: QUEUED in `queue`; RUNNING (or ENDED with rows in flight) in `running`; an EMBRYO in neither, its
 * slot taken already. Where a job is: `live` until its DONE, `closing` until its last step in flight is over, `ended`
 * until the owner takes it. Both `queue` and `running` are sorted by qr_choice_before.
 */
#ifndef QR_ENGINE_SCHEDULER_INTERNAL_H
#define QR_ENGINE_SCHEDULER_INTERNAL_H

#include "runtime/engine/cost_model.h"
#include "runtime/engine/job.h"

enum {
    QR_STEPS_IN_FLIGHT_MAX = 2,
    QR_EXPIRED_PER_PLAN = 8,  /* jobs that one plan may end by timeout: bounds its events */
    QR_WINDOW = 8,            /* queue entries compared by cached prefix */
    QR_SCAN_MAX = 64,         /* queue entries looked at, those that wait for a prefix included */
    QR_PASSES_MAX = 8,        /* after so many younger ones nobody passes an entry any more */
    QR_SHORT_BLOCKS = 4,      /* a prefill of so many blocks is short */
    QR_SHORT_PARTS = 16,      /* and one that goes so many times into the longest: that is how long it may have to wait */
    QR_COPIES_PER_CHOICE = 4, /* block copies that one choice can cause between two steps, generously */
};

/* The rows of one choice in one step. */
typedef struct qr_step_entry {
    qr_choice *choice;
    uint32_t first, rows;
} qr_step_entry;

/* One step and what its result will mean. */
typedef struct qr_step_place {
    qr_step step;
    qr_step_entry *entries;     /* [sequence_count], parallel to step.sequences */
    qr_choice **sample_choices; /* [sample_count] */
    uint32_t score_count, decode_rows, prefill_rows;
    uint64_t position_sum;
} qr_step_place;

struct qr_scheduler {
    qr_scheduler_config config;
    quire_kv *kv;
    qr_scheduler_sink *sink;
    void *sink_context;
    uint32_t block_tokens, block_total, capacity_tokens, table_max;

    qr_list queue, live, closing, ended;
    qr_choice **running; /* [running_count] */
    uint32_t running_count;
    uint32_t *free_slots; /* stack [free_slot_count] */
    uint32_t free_slot_count;
    uint32_t live_count, waiting_count; /* jobs; waiting: never started */
    uint64_t next_arrival;
    uint64_t next_deadline_us;

    quire_token *end_tokens; /* config.end_tokens points here */

    /* Admission is tried again only after something that could help it: release_epoch counts those. What the tiers have moved
     * on may have given blocks back. */
    uint64_t release_epoch, blocked_epoch;
    bool loads_pay; /* the latest choice between loading and computing */

    qr_step_place places[QR_STEPS_IN_FLIGHT_MAX];
    uint32_t place_first, in_flight;
    uint64_t next_step_id;

    qr_cost_model cost;
    quire_engine_stats stats; /* its counters */
};

/* ---- admission.c ---- */
void qr_queue_insert(qr_scheduler *s, qr_choice *c);
void qr_admission_run(qr_scheduler *s, uint64_t now_us);

/* ---- ending.c ---- */
void qr_running_insert(qr_scheduler *s, qr_choice *c);
void qr_slot_take(qr_scheduler *s, qr_choice *c);
void qr_slot_return(qr_scheduler *s, qr_choice *c);
/* Ends one choice; its job too when it was the last. */
void qr_choice_end(qr_scheduler *s, qr_choice *c, quire_finish finish, uint64_t now_us);
/* Ends all choices that live and then the job. */
void qr_job_end(qr_scheduler *s, qr_job *job, quire_finish finish, quire_status error, uint64_t now_us);
/* Gives sequence and slot back; it goes to the queue. No row of it is in flight. */
void qr_choice_pause(qr_scheduler *s, qr_choice *c);
/* After a step: does what had to wait for it (release, pause, hand the job over). */
void qr_choice_settle(qr_scheduler *s, qr_choice *c);
void qr_scheduler_emit(qr_scheduler *s, quire_event *event);
quire_event qr_choice_event(const qr_choice *c, quire_event_kind kind);

/* ---- loading.c ---- */
/* The choice has its sequence, with room for all of its history: loads what is stored of it up to `limit` tokens, when that is
 * faster than computing it. The match says why not. */
void qr_load_start(qr_scheduler *s, qr_choice *c, uint32_t limit, quire_kv_match *match, uint64_t now_us);
/* Takes what has arrived where a front has met it, and gives up what takes too long. */
void qr_loads_advance(qr_scheduler *s, uint64_t now_us);
/* When the next load is given up if nothing arrives; UINT64_MAX. */
uint64_t qr_loads_deadline_us(const qr_scheduler *s);

/* ---- completion.c ---- */
void qr_choice_emit_progress(qr_scheduler *s, const qr_choice *c);
/* A stop token of the request, or an end token of the model that the request does not ignore. */
bool qr_choice_is_end(const qr_scheduler *s, const qr_choice *c, quire_token token);

/* True while the choice still has prompt (or, resumed, history) to compute. */
static inline bool qr_choice_prefills(const qr_choice *c) {
    return c->state == QR_CHOICE_RUNNING && c->scheduled < c->reserved;
}
#endif
