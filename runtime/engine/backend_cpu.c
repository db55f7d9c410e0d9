#include "runtime/engine/backend_cpu.h"

#include <stdlib.h>

#include "base/assertion.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "runtime/engine/sampler.h"
#include "runtime/model/forward.h"

typedef struct cpu_backend {
    qr_backend base;
    quire_kv *kv;
    qr_compute_pool *pool;
    qr_forward *forward;
    const quire_token *end_tokens; /* the tokenizer's */
    uint32_t end_token_count;
    qr_sampler **samplers; /* [thread_count] */
    int thread_count;
    size_t *key_offset, *value_offset; /* [layers * kv_heads] inside a block */
    /* The step as the forward pass wants it. */
    quire_token *tokens;     /* [rows_max] */
    uint32_t *row_sequence;  /* [rows_max] */
    uint32_t *row_position;  /* [rows_max] */
    uint32_t *table_begin;   /* [sequences_max + 1] */
    uint32_t *logit_rows;    /* [samples_max] */
    uint32_t *sample_logits; /* [samples_max] which of logit_rows a sample reads */
    float *logits;           /* [samples_max][vocabulary_size] */
    qr_sample_result *results;
    const qr_step *step; /* submitted and not yet run */
    uint64_t polled_us;  /* the KV manager, last */
    bool tiers_moved;    /* in this step */
} cpu_backend;

/* Less than a disk needs for the buffers that it has been given. */
enum { POLL_EVERY_US = 1000 };

static cpu_backend *cpu_of(qr_backend *backend) { return (cpu_backend *)(void *)backend; }
static const cpu_backend *cpu_of_const(const qr_backend *backend) { return (const cpu_backend *)(const void *)backend; }

/* ---- one step ---- */

static void fill_rows(cpu_backend *cpu, const qr_step *step) {
    for (uint32_t i = 0; i < step->row_count; i++) {
        QR_ASSERT(step->rows[i].token != QR_TOKEN_SAMPLED); /* one step in flight: every token is known */
        cpu->tokens[i] = step->rows[i].token;
        cpu->row_sequence[i] = step->rows[i].sequence;
        cpu->row_position[i] = step->rows[i].position;
    }
    for (uint32_t i = 0; i < step->sequence_count; i++) cpu->table_begin[i] = step->sequences[i].table_begin;
    cpu->table_begin[step->sequence_count] = step->block_id_count;
}

/* Several samples of one row (choices of one prompt) share its logits. */
static uint32_t fill_logit_rows(cpu_backend *cpu, const qr_step *step) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < step->sample_count; i++) {
        uint32_t row = step->samples[i].row;
        if (count == 0 || cpu->logit_rows[count - 1] != row) cpu->logit_rows[count++] = row;
        cpu->sample_logits[i] = count - 1;
    }
    return count;
}

static void move_tiers(void *context) {
    cpu_backend *cpu = context;
    uint64_t now_us = qr_clock_us();
    if (now_us - cpu->polled_us < POLL_EVERY_US) return;
    cpu->polled_us = now_us;
    quire_kv_set_time(cpu->kv, now_us);
    if (quire_kv_poll(cpu->kv)) cpu->tiers_moved = true;
}

static void run_forward(cpu_backend *cpu, const qr_step *step) {
    size_t stride;
    qr_forward_step forward = {
        .batch = {.row_count = step->row_count,
                  .sequence_count = step->sequence_count,
                  .row_sequence = cpu->row_sequence,
                  .row_position = cpu->row_position,
                  .table_begin = cpu->table_begin,
                  .block_ids = step->block_ids},
        .tokens = cpu->tokens,
        .logit_rows = cpu->logit_rows,
        .logits = cpu->logits,
        .between_layers = move_tiers,
        .between_context = cpu,
    };
    forward.memory.base = quire_kv_pool_base(cpu->kv, 0, &stride);
    forward.memory.block_stride = stride;
    forward.memory.key_offset = cpu->key_offset;
    forward.memory.value_offset = cpu->value_offset;
    fill_rows(cpu, step);
    forward.logit_count = fill_logit_rows(cpu, step);
    qr_forward_run(cpu->forward, &forward);
}

static void sample_piece(void *argument, int piece, int thread) {
    cpu_backend *cpu = argument;
    const float *logits = cpu->logits + (size_t)cpu->sample_logits[piece] * cpu->base.limits.vocabulary_size;
    qr_sampler_run(cpu->samplers[thread], logits, &cpu->step->samples[piece], QR_TOKEN_SAMPLED, &cpu->results[piece]);
}

static void cpu_submit(qr_backend *backend, const qr_step *step) {
    cpu_backend *cpu = cpu_of(backend);
    QR_ASSERT(!cpu->step && step->copy_count == 0); /* host storage copies by itself */
    QR_ASSERT(step->row_count <= cpu->base.limits.rows_max && step->sample_count <= cpu->base.limits.samples_max);
    cpu->step = step;
}

static bool cpu_poll(qr_backend *backend, bool wait, qr_step_result *result) {
    cpu_backend *cpu = cpu_of(backend);
    const qr_step *step = cpu->step;
    (void)wait;
    if (!step) return false;
    uint64_t start_us = qr_clock_us();
    cpu->polled_us = start_us;
    cpu->tiers_moved = false;
    run_forward(cpu, step);
    if (step->sample_count > 0) qr_compute_pool_run(cpu->pool, sample_piece, cpu, (int)step->sample_count);
    cpu->step = NULL;
    *result = (qr_step_result){.id = step->id,
                               .status = QUIRE_OK,
                               .sample_count = step->sample_count,
                               .samples = cpu->results,
                               .duration_us = qr_clock_us() - start_us,
                               .tiers_moved = cpu->tiers_moved};
    return true;
}

/* ---- create and destroy ---- */

static void cpu_destroy(qr_backend *backend) {
    cpu_backend *cpu = cpu_of(backend);
    for (int i = 0; cpu->samplers && i < cpu->thread_count; i++) qr_sampler_destroy(cpu->samplers[i]);
    free(cpu->samplers);
    qr_forward_destroy(cpu->forward);
    free(cpu->key_offset);
    free(cpu->value_offset);
    free(cpu->tokens);
    free(cpu->row_sequence);
    free(cpu->row_position);
    free(cpu->table_begin);
    free(cpu->logit_rows);
    free(cpu->sample_logits);
    free(cpu->logits);
    free(cpu->results);
    free(cpu);
}

static const qr_backend_ops cpu_ops = {"cpu", cpu_submit, cpu_poll, cpu_destroy};

static qr_forward_config forward_config(const qr_backend_cpu_config *config) {
    return (qr_forward_config){.rows_max = config->limits.rows_max,
                               .sequences_max = config->limits.sequences_max,
                               .logit_rows_max = config->limits.samples_max,
                               .tokens_max = config->tokens_max,
                               .block_tokens = config->block_tokens,
                               .key_type = config->key_type,
                               .value_type = config->value_type,
                               .cpu_path = config->cpu_path};
}

uint64_t qr_backend_cpu_bytes(const quire_model *model, const qr_backend_cpu_config *config, int thread_count) {
    qr_forward_config forward = forward_config(config);
    const qr_backend_limits *l = &config->limits;
    uint64_t logits = (uint64_t)l->samples_max * l->vocabulary_size * sizeof(float);
    uint64_t rows = (uint64_t)l->rows_max * (sizeof(quire_token) + 2 * sizeof(uint32_t));
    uint64_t samples = (uint64_t)l->samples_max * (sizeof(qr_sample_result) + 2 * sizeof(uint32_t));
    uint64_t samplers = (uint64_t)thread_count * qr_sampler_bytes(l->vocabulary_size);
    return sizeof(cpu_backend) + qr_forward_bytes(model, &forward, thread_count) + logits + rows + samples + samplers;
}

static bool take_arrays(cpu_backend *cpu, const qr_backend_limits *l, size_t offsets) {
    cpu->key_offset = qr_alloc_zero(offsets, sizeof(size_t));
    cpu->value_offset = qr_alloc_zero(offsets, sizeof(size_t));
    cpu->tokens = qr_alloc_zero(l->rows_max, sizeof(quire_token));
    cpu->row_sequence = qr_alloc_zero(l->rows_max, sizeof(uint32_t));
    cpu->row_position = qr_alloc_zero(l->rows_max, sizeof(uint32_t));
    cpu->table_begin = qr_alloc_zero((size_t)l->sequences_max + 1, sizeof(uint32_t));
    cpu->logit_rows = qr_alloc_zero(l->samples_max, sizeof(uint32_t));
    cpu->sample_logits = qr_alloc_zero(l->samples_max, sizeof(uint32_t));
    cpu->logits = qr_alloc_zero((size_t)l->samples_max * l->vocabulary_size, sizeof(float));
    cpu->results = qr_alloc_zero(l->samples_max, sizeof(qr_sample_result));
    return cpu->key_offset && cpu->value_offset && cpu->tokens && cpu->row_sequence && cpu->row_position && cpu->table_begin &&
           cpu->logit_rows && cpu->sample_logits && cpu->logits && cpu->results;
}

static bool take_samplers(cpu_backend *cpu) {
    cpu->samplers = qr_alloc_zero((size_t)cpu->thread_count, sizeof(void *));
    for (int i = 0; cpu->samplers && i < cpu->thread_count; i++) {
        cpu->samplers[i] = qr_sampler_create(cpu->base.limits.vocabulary_size, cpu->end_tokens, cpu->end_token_count);
        if (!cpu->samplers[i]) return false;
    }
    return cpu->samplers != NULL;
}

static void fill_offsets(cpu_backend *cpu, const quire_model_info *info) {
    for (uint32_t layer = 0; layer < info->layer_count; layer++) {
        for (uint32_t head = 0; head < info->kv_head_count; head++) {
            size_t i = (size_t)layer * info->kv_head_count + head;
            cpu->key_offset[i] = quire_kv_part_offset(cpu->kv, 0, layer, head, QUIRE_KV_KEYS);
            cpu->value_offset[i] = quire_kv_part_offset(cpu->kv, 0, layer, head, QUIRE_KV_VALUES);
        }
    }
}

quire_status qr_backend_cpu_create(const quire_model *model, const qr_backend_cpu_config *config, quire_kv *kv,
                                   qr_compute_pool *pool, qr_backend **backend, quire_error *error) {
    *backend = NULL;
    QR_ASSERT(config->limits.steps_in_flight == 1);
    const quire_model_info *info = quire_model_get_info(model);
    cpu_backend *cpu = qr_alloc_zero(1, sizeof *cpu);
    if (!cpu) return qr_fail(error, QUIRE_NO_MEMORY, "backend", QR_NO_OFFSET, "no memory for the CPU backend");
    cpu->base = (qr_backend){&cpu_ops, config->limits};
    cpu->kv = kv;
    cpu->pool = pool;
    cpu->thread_count = qr_compute_pool_threads(pool);
    cpu->end_token_count = qr_tokenizer_end_tokens(qr_model_tokenizer(model), &cpu->end_tokens);
    qr_forward_config forward = forward_config(config);
    quire_status status = QUIRE_OK;
    if (!take_arrays(cpu, &config->limits, (size_t)info->layer_count * info->kv_head_count) || !take_samplers(cpu)) {
        status = qr_fail(error, QUIRE_NO_MEMORY, "backend", QR_NO_OFFSET, "no memory for logits and samplers of %u rows",
                         config->limits.samples_max);
    }
    if (status == QUIRE_OK) status = qr_forward_create(model, &forward, pool, &cpu->forward, error);
    if (status != QUIRE_OK) {
        cpu_destroy(&cpu->base);
        return status;
    }
    fill_offsets(cpu, info);
    *backend = &cpu->base;
    return QUIRE_OK;
}

const char *qr_backend_cpu_path(const qr_backend *backend) { return qr_forward_cpu_path(cpu_of_const(backend)->forward); }

uint64_t qr_backend_cpu_saturated(const qr_backend *backend) { return qr_forward_saturated(cpu_of_const(backend)->forward); }
