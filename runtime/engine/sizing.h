/* sizing.h - how much memory a configuration takes: one code for `serve`, the engine and `quire plan`.
 *
 * Pure arithmetic in 64 bits over the model's header and the rooms' own size functions. */
#ifndef QR_ENGINE_SIZING_H
#define QR_ENGINE_SIZING_H

#include "runtime/engine/backend_cpu.h"
#include "runtime/engine/scheduler.h"

typedef struct qr_sizing {
    uint64_t weight_bytes;
    uint64_t kv_token_bytes; /* payload of one token in all layers */
    uint64_t kv_block_bytes; /* one block in all groups, padding and all */
    uint64_t kv_pool_bytes;
    uint64_t kv_bookkeeping_bytes;
    uint64_t tiers_bytes; /* lower tiers: host memory, index and buffers of the disk, nodes of what is only stored */
    uint64_t work_bytes;  /* activations, attention plan, logits, sampler, mailboxes, stacks */
    uint64_t total_bytes;
    uint32_t block_tokens, block_count, context_tokens, max_sequences;
    uint64_t pool_tokens; /* block_count * block_tokens */
    uint32_t blocks_per_context;
    uint64_t sessions; /* contexts of context_tokens that the pool holds at once */
} qr_sizing;

/* What the parts of an engine are made from: all numbers above come from these, and quire_engine_create uses them. */
typedef struct qr_engine_layout {
    quire_kv_config kv;
    qr_scheduler_config scheduler;
    qr_backend_cpu_config backend;
    int thread_count;
} qr_engine_layout;

/* Where a field of the KV manager's is wrong, the error says so by the name that the engine's users know. */
void qr_sizing_name_field(quire_error *error);

/* Of a resolved config. */
void qr_sizing_layout(const quire_model *model, const quire_engine_config *resolved, qr_engine_layout *layout);

/* Resolves every default of the config against the model and memory_bytes (weights + KV + lower tiers + work space; UINT64_MAX
 * = the default rule: half of what is available after weights), and sizes it. `resolved` may be the same object as config. An
 * explicit kv_block_count is taken as it is, also when one context does not fit: requests are then limited by the pool. Errors:
 * TOO_LARGE (not one full context fits: the numbers), INVALID (the field). */
QUIRE_MUST_CHECK quire_status qr_sizing_resolve(const quire_model *model, const quire_engine_config *config,
                                                uint64_t memory_bytes, quire_engine_config *resolved, qr_sizing *sizing,
                                                quire_error *error);
#endif
