/* backend.h - what runs a step: the CPU, a simulator under a virtual clock, later CUDA.
 *
 * The scheduler fills a step, submits it and polls its result. A backend may hold up to `steps_in_flight` steps; a row of
 * a later step may name "the token sampled by an earlier step for this slot", so that a device never waits for the host.
 * Sampling and logprobs belong to the backend: logits need not come to the host.
 *
 * Nothing here assumes one request per step, KV on the host, or a step that is over when submit returns.
 * Thread: the engine's.
 */
#ifndef QR_ENGINE_BACKEND_H
#define QR_ENGINE_BACKEND_H

#include <quire/engine.h>
#include <quire/kv.h>

/* A row's token when it is not known yet: what the previous step in flight samples for the row's slot. */
#define QR_TOKEN_SAMPLED (-1)

/* A sequence of the step. Slots are the backend's per-sequence state (penalty counts); they are small ints that the
 * scheduler hands out, 0 .. max_sequences-1. */
typedef struct qr_step_sequence {
    uint32_t slot;
    uint32_t table_begin, table_count; /* into qr_step.block_ids, group 0 (one group per model today) */
} qr_step_sequence;

typedef struct qr_step_row {
    uint32_t sequence; /* index into qr_step.sequences; rows of one sequence stand together, positions rising */
    uint32_t position;
    quire_token token; /* or QR_TOKEN_SAMPLED */
} qr_step_row;

typedef enum qr_sample_kind {
    QR_SAMPLE_DRAW,  /* sample a token */
    QR_SAMPLE_SCORE, /* logprob of `target` only (prompt logprobs) */
} qr_sample_kind;

typedef struct qr_step_sample {
    qr_sample_kind kind;
    uint32_t row; /* rising */
    quire_token target;
    uint64_t draw_index; /* index of the token in its choice: the draw depends on (seed, choice, index) only */
    uint64_t seed;       /* already mixed with the choice */
    bool mask_end;       /* min_tokens or ignore_eos: end tokens cannot be drawn */
    bool digest;
    int32_t top_logprobs;           /* -1: none */
    const quire_sampling *sampling; /* borrowed until the step's result */
    const quire_token *stop_tokens; /* masked together with the end tokens */
    uint32_t stop_token_count;
    /* Tokens for penalties, borrowed until the step's result; a token named QR_TOKEN_SAMPLED by this row counts too. */
    const quire_token *prompt;
    uint32_t prompt_count;
    const quire_token *generated;
    uint32_t generated_count;
} qr_step_sample;

typedef struct qr_step {
    uint64_t id; /* rising */
    uint32_t row_count, sequence_count, sample_count, block_id_count, copy_count;
    qr_step_row *rows;
    qr_step_sequence *sequences;
    qr_step_sample *samples;
    quire_block_id *block_ids;
    quire_kv_copy *copies; /* before any row runs */
} qr_step;

typedef struct qr_sample_result {
    quire_status status; /* OK or BAD_LOGITS */
    quire_token token;   /* drawn, or the target */
    float logprob;
    uint32_t top_count;
    quire_token_logprob top[QUIRE_TOP_LOGPROBS_MAX];
    uint64_t digest;
} qr_sample_result;

typedef struct qr_step_result {
    uint64_t id;
    quire_status status; /* not OK: no row of the step may be committed */
    uint32_t sample_count;
    qr_sample_result *samples; /* [sample_count], the backend's, valid until the next submit of the same in-flight place */
    uint64_t duration_us;
    bool tiers_moved; /* the KV manager was polled meanwhile, and something changed */
} qr_step_result;

typedef struct qr_backend qr_backend;

typedef struct qr_backend_limits {
    uint32_t rows_max;    /* rows of one step */
    uint32_t samples_max; /* samples of one step */
    uint32_t sequences_max;
    uint32_t steps_in_flight; /* 1 or 2 */
    uint32_t vocabulary_size;
} qr_backend_limits;

typedef struct qr_backend_ops {
    const char *name;
    /* Begins a step; its arrays stay valid until its result was polled. */
    void (*submit)(qr_backend *backend, const qr_step *step);
    /* The oldest step's result if it is over, else false. `wait`: sleep until it is. A synchronous backend computes here. */
    bool (*poll)(qr_backend *backend, bool wait, qr_step_result *result);
    void (*destroy)(qr_backend *backend);
} qr_backend_ops;

struct qr_backend {
    const qr_backend_ops *ops;
    qr_backend_limits limits;
};
#endif
