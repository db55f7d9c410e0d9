/* forward_rig.h - a forward pass with KV memory of its own: what the engine and the KV manager would give it, made plain.
 * Blocks of all sequences are scattered; KV memory begins as NaN, so that reading a slot that nobody wrote shows. Aborts
 * when something cannot be had. */
#ifndef QR_TESTS_FORWARD_RIG_H
#define QR_TESTS_FORWARD_RIG_H

#include "runtime/model/forward.h"

typedef struct rig_options {            /* 0 = the default in brackets */
    uint32_t rows_max;                  /* [512] */
    uint32_t sequences_max;             /* [1] */
    uint32_t tokens_max;                /* [512] of one sequence */
    uint32_t block_tokens;              /* [16] */
    uint32_t logit_rows_max;            /* [rows_max] */
    quire_kv_type key_type, value_type; /* [F32] */
    int threads;                        /* [1] */
    const char *cpu_path;
} rig_options;

typedef struct forward_rig {
    rig_options options;
    uint32_t vocabulary_size;
    qr_compute_pool *pool;
    qr_forward *forward;
    qr_attn_memory memory;
    size_t kv_bytes, *offsets;
    uint32_t blocks_per_sequence, block_count;
    uint32_t *row_sequence, *row_position, *logit_rows, *table_begin;
    quire_token *tokens;
    quire_block_id *block_ids;
} forward_rig;

void forward_rig_open(forward_rig *rig, const quire_model *model, const rig_options *options);
void forward_rig_close(forward_rig *rig);
void forward_rig_forget(forward_rig *rig); /* KV memory becomes NaN again */

/* Consecutive tokens of one sequence. */
typedef struct rig_chunk {
    uint32_t sequence, position, count;
    const quire_token *tokens; /* of positions position .. position + count - 1 */
    uint32_t logits_from;      /* the first position whose logits are wanted */
} rig_chunk;

/* One step; chunks of different sequences. Logits in the order of rows. */
void forward_rig_step(forward_rig *rig, const rig_chunk *chunks, uint32_t count, float *logits);
/* A whole prompt of sequence 0 in chunks of at most `chunk` tokens; logits [from .. count). */
void forward_rig_prompt(forward_rig *rig, const quire_token *tokens, uint32_t count, uint32_t chunk, uint32_t logits_from,
                        float *logits);
#endif
