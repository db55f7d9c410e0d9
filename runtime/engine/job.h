/* job.h - one request inside the engine: its copied inputs, its choices and where each stands.
 *
 * A job is made by the submitting thread, belongs to the scheduler from add to ended, and is freed by the submitting
 * thread again, so that the engine thread never allocates. A choice is one answer of the job (n of the API): a token
 * history, and while it runs a KV sequence and a backend slot.
 *
 * How far a choice is, always computed <= scheduled <= known + pending:
 *
 *   tokens:  [ prompt ..................... | generated ........ ]
 *            [ computed: KV written        ]^                    ^
 *            [ scheduled: rows handed out        ]               known
 *                                             + pending: draws in flight, whose values are not here yet
 *
 * While scheduled < reserved it prefills: its start reserved room for the whole history (a resumed choice prefills its own
 * generated tokens again). After that it decodes: room for one token, one row, one draw. The last token drawn is never in
 * KV until it is fed.
 */
#ifndef QR_ENGINE_JOB_H
#define QR_ENGINE_JOB_H

#include <stdatomic.h>

#include "base/list.h"
#include "runtime/engine/load_pace.h"
#include "runtime/engine/scheduler.h"

typedef enum qr_choice_state {
    QR_CHOICE_EMBRYO,  /* is forked from choice 0 when the prompt is computed */
    QR_CHOICE_QUEUED,  /* waits for its start, or paused */
    QR_CHOICE_RUNNING, /* has a sequence and a slot */
    QR_CHOICE_ENDED,   /* its CHOICE_DONE is out; steps in flight may still hold rows of it */
} qr_choice_state;

typedef struct qr_choice {
    qr_list queue_node;
    qr_job *job;
    uint32_t index;
    qr_choice_state state;
    bool has_slot, has_sequence;
    bool pause_wanted; /* released as soon as no step in flight holds rows of it */
    bool stop_wanted;  /* stop_choice came before the fork */
    bool loads;        /* blocks of its history come from a lower tier (loading.c) */
    bool load_counts;  /* the request's match tells of this load: it began with its first start */
    bool load_held;    /* it has not begun */
    bool load_abandoned;
    uint32_t slot;
    quire_seq_id seq;
    quire_token *tokens; /* [prompt_count + limit]; an embryo's are empty until the fork */
    uint32_t known, computed, scheduled, pending, in_flight;
    uint32_t reserved;     /* tokens that its sequence has room for; 0 without one */
    uint64_t step_id;      /* the latest step with rows of it */
    uint32_t passed;       /* how often a younger entry was started before it */
    uint64_t wait_arrival; /* the prefilling choice whose prefix it waits for; 0: none */
    uint32_t wait_index;   /* the same */
    uint32_t wait_tokens;  /* prefix tokens that will be shared then */
    uint32_t front_tokens; /* while it loads: it prefills up to here */
    uint32_t load_limit;   /* its load goes no further */
    uint32_t load_tokens;  /* the end of what is loaded */
    bool load_stands;      /* its front stands at what is on its way */
    qr_load_pace load_pace;
    uint64_t load_begun_us;
    uint64_t load_look_us; /* it goes on by itself then, whatever arrives; UINT64_MAX: it does not stand */
    uint64_t seed;         /* of this choice */
} qr_choice;

struct qr_job {
    qr_list node;       /* in the scheduler's live, closing or ended list */
    qr_list owner_node; /* the submitting thread's */
    /* Wishes of the submitting thread, obeyed by qr_scheduler_obey. */
    _Atomic bool cancel_wanted;
    _Atomic uint64_t stop_wanted; /* one bit per choice */
    quire_request request;        /* pointers lead into the job's own memory */
    uint64_t arrival;             /* rising with age; unique, never 0 */
    uint64_t forgets_before;      /* calls of quire_engine_forget before it was submitted */
    uint64_t submitted_us, started_us, first_row_us /* or the begin of its load */, deadline_us;
    quire_namespace_id ns;
    bool has_namespace;
    bool forgotten; /* its namespace was, under it: no sequence of it enters the cache any more */
    bool started;
    bool forked;  /* every choice stands on its own; true from the start when there is one */
    bool done;    /* DONE is out */
    bool cut;     /* a choice ended by length */
    bool counted; /* scratch of the statistics */
    quire_kv_match match;
    uint32_t limit;     /* tokens of a choice at most: max_tokens or what the context leaves */
    uint32_t scored;    /* prompt_logprobs: prompt tokens 1 .. scored have theirs */
    uint32_t live;      /* choices not ENDED */
    uint32_t in_flight; /* entries of steps in flight */
    uint32_t completion_tokens, preemptions;
    uint64_t first_token_us, last_token_us;
    qr_choice choices[]; /* [request.choice_count] */
};

static inline uint32_t qr_choice_generated(const qr_choice *c) { return c->known - c->job->request.prompt_count; }
/* Rows that are left to schedule. */
static inline uint32_t qr_choice_remaining(const qr_choice *c) { return c->known + c->pending - c->scheduled; }
/* Rows that could be scheduled now. */
static inline uint32_t qr_choice_ready(const qr_choice *c) {
    if (!c->loads) return qr_choice_remaining(c);
    uint32_t end = c->front_tokens < c->known ? c->front_tokens : c->known;
    return end > c->scheduled ? end - c->scheduled : 0;
}
/* Slots that it needs to start: a job that is not forked yet takes those of all its choices. */
static inline uint32_t qr_choice_slots(const qr_choice *c) { return c->job->forked ? 1 : c->job->request.choice_count; }
/* Urgency first, then age, then index: the one order of queue, planning and pausing. */
static inline bool qr_choice_before(const qr_choice *a, const qr_choice *b) {
    if (a->job->request.priority != b->job->request.priority) return a->job->request.priority < b->job->request.priority;
    if (a->job->arrival != b->job->arrival) return a->job->arrival < b->job->arrival;
    return a->index < b->index;
}
#endif
