#include "runtime/engine/sizing.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/memory.h"
#include "runtime/engine/engine_internal.h"

enum {
    DEFAULT_BLOCK_TOKENS = 16,
    DEFAULT_MAX_SEQUENCES = 64,
    DEFAULT_MAX_WAITING = 1024,
    DEFAULT_STEP_US = 50000,
    MAX_SEQUENCES_LIMIT = 4096,
    MAX_WAITING_LIMIT = 1 << 20,
    PREFILL_ROWS_MAX = 512, /* of one step: past it a product is no faster per row */
    SCORE_ROWS_MAX = 64,    /* prompt scores of one step: each takes a row of logits */
    IDLE_NAMESPACES = 1024, /* remembered beyond those of live requests */
};

/* A thread's stack that is really touched. */
static const uint64_t stack_bytes = 256 * 1024;
static const double mib = 1024.0 * 1024.0;

static quire_status refuse(quire_error *error, const char *field, const char *rule) {
    return qr_fail(error, QUIRE_INVALID, field, QR_NO_OFFSET, "%s %s", field, rule);
}

void qr_sizing_name_field(quire_error *error) {
    static const char *const names[][2] = {{"host_bytes", "host_cache"},
                                           {"disk_path", "disk_cache"},
                                           {"disk_max_bytes", "disk_cache_max"},
                                           {"disk_floor_bytes", "disk_cache_floor"},
                                           {"disk_day_budget_bytes", "disk_write_budget"}};
    for (size_t i = 0; error && i < sizeof names / sizeof *names; i++) {
        if (strcmp(error->source, names[i][0]) == 0) snprintf(error->source, sizeof error->source, "%s", names[i][1]);
    }
}

/* ---- defaults ---- */

static quire_status resolve_plain(const quire_model_info *info, quire_engine_config *c, quire_error *error) {
    if (c->block_tokens == 0) c->block_tokens = DEFAULT_BLOCK_TOKENS;
    if (c->context_tokens == 0) c->context_tokens = info->context_length;
    if (c->max_sequences == 0) c->max_sequences = DEFAULT_MAX_SEQUENCES;
    if (c->max_waiting == 0) c->max_waiting = DEFAULT_MAX_WAITING;
    if (c->step_us == 0) c->step_us = DEFAULT_STEP_US;
    if (c->thread_count == 0) c->thread_count = (int)qr_cpu_count();
    bool block_ok = c->block_tokens == 16 || c->block_tokens == 32 || c->block_tokens == 64 || c->block_tokens == 128;
    if (!block_ok) return refuse(error, "block_tokens", "must be 16, 32, 64 or 128");
    if (c->context_tokens < 2) return refuse(error, "context", "must be at least 2 tokens");
    if (c->context_tokens > info->context_length) {
        return qr_fail(error, QUIRE_INVALID, "context", QR_NO_OFFSET, "context %u is more than the model's %u",
                       c->context_tokens, info->context_length);
    }
    if (c->max_sequences > MAX_SEQUENCES_LIMIT) return refuse(error, "max_sequences", "must be at most 4096");
    if (c->max_waiting > MAX_WAITING_LIMIT) return refuse(error, "max_waiting", "must be at most 1048576");
    if (c->thread_count < 1 || c->thread_count > QR_COMPUTE_THREADS_MAX) {
        return refuse(error, "threads", "must be within 1 and 256");
    }
    if (c->key_type > QUIRE_KV_BF16 || c->value_type > QUIRE_KV_BF16) {
        return refuse(error, "kv_type", "must be f32, f16 or bf16 on the CPU");
    }
    if (c->kv_block_count && c->kv_memory_bytes) return refuse(error, "kv_blocks", "and kv_memory cannot both be given");
    return QUIRE_OK;
}

/* ---- layout ---- */

/* A disk remembers more than memory does: what its records belong to must have a place. */
static uint32_t namespaces_of(const quire_engine_config *c, bool disk) {
    uint32_t count = c->max_waiting + c->max_sequences + IDLE_NAMESPACES;
    return disk && count < QUIRE_KV_DISK_NAMESPACES ? QUIRE_KV_DISK_NAMESPACES : count;
}

static quire_kv_config kv_config(const quire_model *model, const quire_engine_config *c) {
    quire_kv_config kv = {.block_tokens = c->block_tokens,
                          .block_count = c->kv_block_count,
                          .max_sequences = c->max_sequences,
                          .max_sequence_tokens = c->context_tokens,
                          .max_namespaces = namespaces_of(c, c->disk_cache_path != NULL),
                          .policy = c->policy,
                          .storage = QUIRE_KV_STORAGE_HOST,
                          .cache_disabled = c->cache_disabled,
                          .tiers = {.disk_path = c->disk_cache_path,
                                    .disk_max_bytes = c->disk_cache_max_bytes,
                                    .disk_floor_bytes = c->disk_cache_floor_bytes,
                                    .disk_day_budget_bytes = c->disk_cache_day_budget_bytes,
                                    .disk_write = c->disk_write,
                                    .verify_every = c->verify_every,
                                    .cancelled = c->cancelled,
                                    .cancelled_context = c->cancelled_context}};
    quire_model_kv_groups(model, c->key_type, c->value_type, &kv);
    return kv;
}

void qr_sizing_layout(const quire_model *model, const quire_engine_config *c, qr_engine_layout *layout) {
    const quire_model_info *info = quire_model_get_info(model);
    qr_backend_limits limits = {.rows_max = PREFILL_ROWS_MAX + c->max_sequences,
                                .samples_max = SCORE_ROWS_MAX + c->max_sequences,
                                .sequences_max = c->max_sequences,
                                .steps_in_flight = 1,
                                .vocabulary_size = info->vocabulary_size};
    memset(layout, 0, sizeof *layout);
    layout->thread_count = c->thread_count;
    layout->kv = kv_config(model, c);
    layout->scheduler = (qr_scheduler_config){.context_tokens = c->context_tokens,
                                              .max_sequences = c->max_sequences,
                                              .max_waiting = c->max_waiting,
                                              .step_us = c->step_us,
                                              .seed = c->seed,
                                              .limits = limits};
    const qr_tokenizer *tokenizer = qr_model_tokenizer(model);
    if (tokenizer) {
        layout->scheduler.end_token_count = qr_tokenizer_end_tokens(tokenizer, &layout->scheduler.end_tokens);
    }
    layout->backend = (qr_backend_cpu_config){.limits = limits,
                                              .tokens_max = c->context_tokens,
                                              .block_tokens = c->block_tokens,
                                              .key_type = c->key_type,
                                              .value_type = c->value_type,
                                              .cpu_path = c->cpu_path};
}

static quire_status check_disk(const quire_model *model, const quire_engine_config *c, quire_error *error) {
    quire_kv_config kv = kv_config(model, c);
    quire_kv_disk_plan plan;
    if (!c->disk_cache_path) return QUIRE_OK;
    kv.block_count = 1;
    quire_kv_plan_disk(&kv, &plan);
    if (plan.block_max > 0) return QUIRE_OK;
    return qr_fail(error, QUIRE_INVALID, "disk_cache_max", QR_NO_OFFSET,
                   "disk_cache_max is %.1f MiB and must be at least %.1f MiB: a block of %u tokens takes %.1f KiB on disk",
                   (double)c->disk_cache_max_bytes / mib, (double)plan.cap_min_bytes / mib, c->block_tokens,
                   (double)plan.record_bytes / 1024.0);
}

/* ---- memory ---- */

/* Everything besides weights and KV. Depends on the block count only a little (block tables are as long as a context). */
static uint64_t work_bytes(const quire_model *model, const quire_engine_config *c) {
    qr_engine_layout layout;
    qr_sizing_layout(model, c, &layout);
    uint64_t stacks = ((uint64_t)c->thread_count + 1) * stack_bytes;
    return qr_backend_cpu_bytes(model, &layout.backend, c->thread_count) +
           qr_engine_bytes(&layout.scheduler, c->kv_block_count ? c->kv_block_count : UINT32_MAX, c->block_tokens) + stacks;
}

static uint64_t kv_bytes_of(quire_kv_config kv, uint32_t block_count) {
    kv.block_count = block_count;
    return quire_kv_memory_bytes(&kv);
}

/* The pool alone, with its bookkeeping. */
static quire_kv_config without_tiers(quire_kv_config kv, const quire_engine_config *c) {
    kv.tiers = (quire_kv_tiers){0};
    kv.max_namespaces = namespaces_of(c, false);
    return kv;
}

/* What the lower tiers add, in host memory. */
static uint64_t tiers_bytes_of(const quire_kv_config *kv, const quire_engine_config *c, uint32_t block_count) {
    uint64_t with = kv_bytes_of(*kv, block_count), alone = kv_bytes_of(without_tiers(*kv, c), block_count);
    return with > alone ? with - alone : 0;
}

/* The most blocks whose pool and bookkeeping take at most `bytes`; 0: not one. */
static uint32_t blocks_in(const quire_kv_config *kv, uint64_t bytes) {
    uint32_t low = 0, high = UINT32_MAX / 2;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        uint64_t need = kv_bytes_of(*kv, middle);
        if (need > 0 && need <= bytes) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* Bytes for the KV pool and its bookkeeping. Lower tiers grow with what they hold, not with the pool, so one size of them
 * stands for all; the memory that a user gives the pool is the pool's. */
static uint64_t kv_budget(const quire_model_info *info, const quire_engine_config *c, uint64_t memory_bytes, uint64_t rest) {
    if (c->kv_memory_bytes) return c->kv_memory_bytes;
    if (memory_bytes != UINT64_MAX) return memory_bytes > rest ? memory_bytes - rest : 0;
    uint64_t available = qr_memory_available_bytes();
    bool loaded = info->fingerprint != 0; /* then what is available no longer has the weights in it */
    if (!loaded) available = available > info->weight_bytes ? available - info->weight_bytes : 0;
    return available / 2;
}

static quire_status resolve_blocks(const quire_model *model, quire_engine_config *c, uint64_t memory_bytes,
                                   quire_error *error) {
    const quire_model_info *info = quire_model_get_info(model);
    if (c->kv_block_count) return QUIRE_OK;
    uint64_t work = work_bytes(model, c);
    quire_kv_config with_tiers = kv_config(model, c), kv = without_tiers(with_tiers, c);
    uint32_t needed = (uint32_t)qr_div_up(c->context_tokens, c->block_tokens);
    uint64_t tiers = tiers_bytes_of(&with_tiers, c, needed);
    uint64_t budget = kv_budget(info, c, memory_bytes, info->weight_bytes + work + tiers);
    uint32_t blocks = blocks_in(&kv, budget);
    if (blocks < needed) {
        return qr_fail(
            error, QUIRE_TOO_LARGE, "kv_memory", QR_NO_OFFSET,
            "a context of %u tokens takes %u blocks (%.1f MiB) and %.1f MiB hold %u; weights take %.1f MiB, work space "
            "%.1f MiB, lower tiers %.1f MiB",
            c->context_tokens, needed, (double)kv_bytes_of(kv, needed) / mib, (double)budget / mib, blocks,
            (double)info->weight_bytes / mib, (double)work / mib, (double)tiers / mib);
    }
    c->kv_block_count = blocks;
    c->kv_memory_bytes = 0;
    return QUIRE_OK;
}

static void fill_sizing(const quire_model *model, const quire_engine_config *c, qr_sizing *s) {
    quire_kv_config with_tiers = kv_config(model, c), kv = without_tiers(with_tiers, c);
    memset(s, 0, sizeof *s);
    s->weight_bytes = quire_model_get_info(model)->weight_bytes;
    s->kv_token_bytes = quire_kv_token_bytes(&kv);
    for (uint32_t g = 0; g < kv.group_count; g++) s->kv_block_bytes += quire_kv_block_bytes(&kv.groups[g], kv.block_tokens);
    s->kv_pool_bytes = s->kv_block_bytes * kv.block_count;
    uint64_t kv_bytes = quire_kv_memory_bytes(&kv);
    s->kv_bookkeeping_bytes = kv_bytes > s->kv_pool_bytes ? kv_bytes - s->kv_pool_bytes : 0;
    s->tiers_bytes = tiers_bytes_of(&with_tiers, c, kv.block_count);
    s->work_bytes = work_bytes(model, c);
    s->total_bytes = s->weight_bytes + s->kv_pool_bytes + s->kv_bookkeeping_bytes + s->tiers_bytes + s->work_bytes;
    s->block_tokens = c->block_tokens;
    s->block_count = c->kv_block_count;
    s->context_tokens = c->context_tokens;
    s->max_sequences = c->max_sequences;
    s->pool_tokens = (uint64_t)s->block_count * s->block_tokens;
    s->blocks_per_context = (uint32_t)qr_div_up(s->context_tokens, s->block_tokens);
    s->sessions = s->block_count / s->blocks_per_context;
}

quire_status qr_sizing_resolve(const quire_model *model, const quire_engine_config *config, uint64_t memory_bytes,
                               quire_engine_config *resolved, qr_sizing *sizing, quire_error *error) {
    quire_engine_config c = *config;
    quire_status status = resolve_plain(quire_model_get_info(model), &c, error);
    if (status == QUIRE_OK) status = check_disk(model, &c, error);
    if (status == QUIRE_OK) status = resolve_blocks(model, &c, memory_bytes, error);
    if (status != QUIRE_OK) return status;
    fill_sizing(model, &c, sizing);
    *resolved = c;
    return QUIRE_OK;
}
