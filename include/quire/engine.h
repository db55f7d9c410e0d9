/* engine.h - continuous batching over one model and one KV manager.
 *
 * The engine runs its own thread. Requests go in and events come out through bounded mailboxes; text never enters: the
 * engine speaks token ids.
 *
 * Threads: submit, cancel, stop_choice and poll are for one thread, the owner (a server's loop). get_stats may be called
 * by any thread. wake is called on the engine's thread, at most once per step.
 */
#ifndef QUIRE_ENGINE_H
#define QUIRE_ENGINE_H

#include <quire/kv.h>
#include <quire/model.h>
#include <quire/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_engine quire_engine;

typedef struct quire_engine_config {
    uint32_t context_tokens;  /* prompt + completion at most; 0 = the model's */
    uint32_t block_tokens;    /* 16, 32, 64, 128 */
    uint64_t kv_memory_bytes; /* or kv_block_count; both 0 = the default rule (docs/HTTP_API.md, flags) */
    uint32_t kv_block_count;
    quire_kv_type key_type, value_type;
    uint32_t max_sequences; /* running at once, each choice of a request counts; 0 = 64 */
    uint32_t max_waiting;   /* queued requests; one more is QUEUE_FULL; 0 = 1,024 */
    uint32_t step_us;       /* time budget of one step; 0 = 50,000 */
    int thread_count;       /* compute threads; 0 = all cores */
    const char *cpu_path;   /* NULL = best */
    quire_kv_policy policy;
    bool cache_disabled;
    /* Tiers below the pool; see quire_kv_tiers. */
    const char *disk_cache_path; /* NULL = none */
    uint64_t disk_cache_max_bytes, disk_cache_floor_bytes, disk_cache_day_budget_bytes;
    quire_kv_disk_write disk_write;
    uint32_t verify_every;       /* 0 = off, 1 = always, N = every Nth load is recomputed and compared */
    uint64_t seed;               /* for unseeded requests; 0 = from the system */
    void (*wake)(void *context); /* events are waiting */
    void *wake_context;
    bool (*cancelled)(void *context); /* create asks while it reads the disk cache: true ends it with CANCELLED; may be NULL */
    void *cancelled_context;
} quire_engine_config;

typedef struct quire_logit_bias {
    quire_token token;
    float bias;
} quire_logit_bias;

/* Order: penalties, logit_bias, min_tokens mask, temperature, top_k, top_p, min_p, draw (docs/HTTP_API.md). */
typedef struct quire_sampling {
    float temperature; /* 0 = greedy */
    float top_p, min_p;
    int32_t top_k;                             /* <= 0 or >= vocabulary: all */
    float presence_penalty, frequency_penalty; /* count generated tokens only */
    float repetition_penalty;                  /* prompt and generated tokens; 1 = off */
    bool seeded;
    uint64_t seed;
    const quire_logit_bias *bias; /* [bias_count] */
    uint32_t bias_count;
} quire_sampling;

enum { QUIRE_STOP_TOKENS_MAX = 64, QUIRE_CHOICES_MAX = 64, QUIRE_BIAS_MAX = 1024 };

/* Everything is borrowed until submit returns. */
typedef struct quire_request {
    uint64_t id; /* the caller's, unique among live requests */
    const quire_token *prompt;
    uint32_t prompt_count; /* >= 1 */
    const void *namespace_key;
    size_t namespace_bytes;
    uint32_t choice_count; /* n, 1 .. QUIRE_CHOICES_MAX */
    uint32_t max_tokens;   /* 0 = score the prompt only */
    uint32_t min_tokens;
    bool ignore_eos;
    const quire_token *stop_tokens; /* besides the model's end tokens */
    uint32_t stop_token_count;
    int32_t top_logprobs; /* -1 = no logprobs; 0 .. QUIRE_TOP_LOGPROBS_MAX */
    bool prompt_logprobs; /* score prompt tokens 1.. too (echo); no cache is used past the first */
    bool logits_digest;
    bool progress;       /* send QUIRE_EVENT_PROGRESS during prefill */
    int32_t priority;    /* lower is more urgent */
    uint64_t timeout_us; /* whole request, from submit; 0 = none */
    quire_sampling sampling;
} quire_request;

typedef enum quire_finish {
    QUIRE_FINISH_NONE,
    QUIRE_FINISH_STOP,   /* an end token or stop token */
    QUIRE_FINISH_LENGTH, /* max_tokens or context */
    QUIRE_FINISH_TIMEOUT,
    QUIRE_FINISH_CANCELLED, /* cancel, stop_choice or shutdown */
    QUIRE_FINISH_ERROR      /* see error */
} quire_finish;

typedef enum quire_event_kind {
    QUIRE_EVENT_STARTED,      /* admitted: match is set */
    QUIRE_EVENT_PROGRESS,     /* processed_tokens of the prompt */
    QUIRE_EVENT_PROMPT_TOKEN, /* prompt_logprobs: logprob of prompt token `position` (0 has none and is not sent) */
    QUIRE_EVENT_TOKEN,        /* one generated token of one choice; the end token too (is_end) */
    QUIRE_EVENT_CHOICE_DONE,  /* finish of one choice */
    QUIRE_EVENT_DONE          /* exactly once per request, last; usage and times are set */
} quire_event_kind;

typedef struct quire_token_logprob {
    quire_token token;
    float logprob; /* finite: the floor is -1e30 */
} quire_token_logprob;

typedef struct quire_event {
    quire_event_kind kind;
    uint64_t request_id;
    uint32_t choice;
    quire_token token;
    bool is_end; /* an end or stop token: its text is not shown */
    uint32_t position;
    float logprob;
    uint32_t top_count;
    quire_token_logprob top[QUIRE_TOP_LOGPROBS_MAX]; /* best first; ties by lower id */
    uint64_t logits_digest;
    quire_finish finish;  /* CHOICE_DONE, DONE (then ERROR, CANCELLED, TIMEOUT or NONE for the request) */
    quire_status error;   /* with QUIRE_FINISH_ERROR */
    quire_kv_match match; /* STARTED, DONE; token_count = cached tokens of the request */
    uint32_t processed_tokens;
    /* DONE: */
    uint32_t prompt_tokens, completion_tokens, preemptions;
    uint64_t queued_us, prefill_us, decode_us; /* waiting, first row to first token, first to last token */
} quire_event;

/* Takes all memory now. Keeps the model. Errors: INVALID, NO_MEMORY (with the numbers), TOO_LARGE (not one context fits), IO
 * (no thread can be started); with a disk folder also those of quire_kv_create: IO, BUSY, UNSUPPORTED, CANCELLED. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_engine_create(const quire_engine_config *config, quire_model *model,
                                                            quire_engine **engine, quire_error *error);
/* Ends what is live without an event: none can be polled once this has begun, and what was not polled before is gone. Whoever
 * wants every DONE drains and cancels, polls until each has come, and destroys then. wake may be called until this returns, and
 * not after. */
QUIRE_API void quire_engine_destroy(quire_engine *engine);

/* Errors, all at once and without effect: INVALID (field named), TOO_LARGE (numbers named: can never fit), QUEUE_FULL,
 * SHUTTING_DOWN, NO_MEMORY. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_engine_submit(quire_engine *engine, const quire_request *request,
                                                            quire_error *error);
/* From now on submit answers SHUTTING_DOWN; what is live goes on. */
QUIRE_API void quire_engine_drain(quire_engine *engine);
/* Ends a request at any stage; unknown ids are fine. Its DONE still comes. */
QUIRE_API void quire_engine_cancel(quire_engine *engine, uint64_t request_id);
/* Ends one choice: the owner found a stop string. Surplus tokens of it may still arrive and are to be dropped. */
QUIRE_API void quire_engine_stop_choice(quire_engine *engine, uint64_t request_id, uint32_t choice);
/* Takes up to max events. Never blocks. */
QUIRE_API size_t quire_engine_poll(quire_engine *engine, quire_event *events, size_t max);

/* Forgets cached KV of one namespace (or all, key NULL); done at the next step. Requests submitted before and not over yet,
 * also waiting and paused ones, go on and leave nothing in the cache: their text was given before this was said. */
QUIRE_API void quire_engine_forget(quire_engine *engine, const void *namespace_key, size_t namespace_bytes);

/* Begins to write everything cached that is not on disk yet, hottest first; stats.flush_left falls to 0, and stats.tiers then
 * says what could not be written (flush_refused, flush_failed). stop_flush gives up what is left. */
QUIRE_API void quire_engine_flush(quire_engine *engine);
QUIRE_API void quire_engine_stop_flush(quire_engine *engine);

typedef struct quire_engine_stats {
    quire_kv_stats kv;
    quire_kv_tiers_stats tiers;
    uint64_t flushes_total;       /* flushes begun: with flush_left 0, all of them are done */
    uint64_t forgets_total;       /* forgets carried out, in the order of the calls: with erasing 0, all of them are done */
    uint32_t flush_left, erasing; /* blocks still to be written by a flush; what is still to be erased (quire_kv_erasing) */
    uint32_t loading;             /* running requests that wait for blocks of a lower tier */
    uint32_t running, waiting, paused; /* requests; paused = preempted */
    uint32_t context_tokens, block_tokens, max_sequences;
    uint64_t kv_bytes_per_token, weight_bytes, work_bytes; /* work: activations, plan, logits, mailboxes */
    uint64_t total_bytes; /* all that was taken: weights, work, pool, bookkeeping, and what the lower tiers need in memory */
    uint64_t requests_total, requests_stop, requests_length, requests_cancelled, requests_failed, requests_timeout;
    uint64_t prompt_tokens_total, cached_tokens_total, generated_tokens_total, preemptions_total, steps_total;
    uint64_t saturated_total;
    double step_seconds_total;
    double prefill_tokens_per_second, decode_tokens_per_second; /* measured, recent; 0 before the first */
    bool idle;
} quire_engine_stats;
QUIRE_API void quire_engine_get_stats(quire_engine *engine, quire_engine_stats *stats);
/* Asks the engine thread to run every check (KV manager, scheduler); waits for the answer. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_engine_check(quire_engine *engine, quire_error *error);
/* Name of the CPU path in use. */
QUIRE_API const char *quire_engine_cpu_path(const quire_engine *engine);
/* Identifies what the bits of an answer depend on: model, backend, numerics version. */
QUIRE_API uint64_t quire_engine_numerics_fingerprint(const quire_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
