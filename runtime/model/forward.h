/* forward.h - one forward pass over rows of any sequences.
 *
 * Owns the activations, the attention plan and scratch, all taken at create: running allocates nothing. Rows are what
 * the step gives: decode rows, prefill chunks and draft rows alike. K and V go through KV memory (rounded as stored)
 * before any row reads them, its own token's too.
 *
 * Thread: one at a time; it is worker 0 of the compute pool.
 */
#ifndef QR_MODEL_FORWARD_H
#define QR_MODEL_FORWARD_H

#include "attention/attention.h"
#include "base/compute_pool.h"
#include <quire/model.h>

typedef struct qr_forward qr_forward;

typedef struct qr_forward_config {
    uint32_t rows_max;       /* rows of one step */
    uint32_t sequences_max;  /* sequences of one step */
    uint32_t logit_rows_max; /* rows that may ask for logits in one step */
    uint32_t tokens_max;     /* positions */
    uint32_t block_tokens;
    quire_kv_type key_type, value_type;
    const char *cpu_path; /* NULL = the model's */
} qr_forward_config;

/* Bytes that create takes, for the memory plan. */
uint64_t qr_forward_bytes(const quire_model *model, const qr_forward_config *config, int thread_count);
/* Keeps model and pool. */
QUIRE_MUST_CHECK quire_status qr_forward_create(const quire_model *model, const qr_forward_config *config,
                                                qr_compute_pool *pool, qr_forward **forward, quire_error *error);
void qr_forward_destroy(qr_forward *forward);
const char *qr_forward_cpu_path(const qr_forward *forward);

typedef struct qr_forward_step {
    qr_attn_batch batch;        /* rows, positions, tables */
    const quire_token *tokens;  /* [row_count] */
    qr_attn_memory memory;      /* KV memory; the blocks that rows write are private to their sequences */
    const uint32_t *logit_rows; /* [logit_count] rising */
    uint32_t logit_count;
    float *logits; /* out [logit_count][vocabulary_size] */
    /* Called by the calling thread between two layers, when no other works: for what cannot wait for the end of a long step.
     * May be NULL. */
    void (*between_layers)(void *context);
    void *between_context;
} qr_forward_step;

typedef struct qr_forward_times { /* seconds, added up since create */
    double product, attention, head, other;
} qr_forward_times;

void qr_forward_run(qr_forward *forward, const qr_forward_step *step);
void qr_forward_get_times(const qr_forward *forward, qr_forward_times *times);
uint64_t qr_forward_saturated(const qr_forward *forward); /* f16 values that saturated on their way into KV */
#endif
