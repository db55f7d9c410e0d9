#include "runtime/engine/backend_sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/random.h"

enum { SIM_STEPS_MAX = 2, SIM_END_TOKENS_MAX = 64 };

typedef struct sim_place {
    const qr_step *step;
    uint64_t due_us, duration_us;
    qr_sample_result *results; /* [samples_max] */
} sim_place;

typedef struct sim_backend {
    qr_backend base;
    qr_sim_config config;
    quire_token end_tokens[SIM_END_TOKENS_MAX];
    uint64_t *words; /* [block_count][block_tokens] the fake KV, or NULL where it is the owner's */
    char *memory;    /* of block 0 */
    size_t block_stride;
    quire_token *sampled; /* [sequences_max] what the slot drew last */
    uint64_t *row_hash;   /* [rows_max] of the running step: what the row read */
    sim_place places[SIM_STEPS_MAX];
    uint32_t first, in_flight;
    uint64_t now_us;
    qr_random faults;
    uint32_t fail_next, spoil_next;
    qr_sim_counts counts;
} sim_backend;

static sim_backend *sim_of(qr_backend *backend) { return (sim_backend *)(void *)backend; }
static const sim_backend *sim_of_const(const qr_backend *backend) { return (const sim_backend *)(const void *)backend; }

/* ---- the fake KV ---- */

static uint64_t *block_words(const sim_backend *sim, quire_block_id block) {
    QR_ASSERT(block < sim->config.block_count);
    return (uint64_t *)(void *)(sim->memory + block * sim->block_stride);
}

static uint64_t *word_at(sim_backend *sim, const qr_step *step, const qr_step_sequence *sequence, uint32_t position) {
    uint32_t index = position / sim->config.block_tokens;
    QR_ASSERT(index < sequence->table_count);
    quire_block_id block = step->block_ids[sequence->table_begin + index];
    return &block_words(sim, block)[position % sim->config.block_tokens];
}

static quire_token row_token(const sim_backend *sim, const qr_step *step, uint32_t row) {
    const qr_step_row *r = &step->rows[row];
    return r->token != QR_TOKEN_SAMPLED ? r->token : sim->sampled[step->sequences[r->sequence].slot];
}

/* The word of a token hangs on the word before it, as real K and V hang on what the layers below read. */
static void write_row(sim_backend *sim, const qr_step *step, uint32_t row) {
    const qr_step_row *r = &step->rows[row];
    const qr_step_sequence *sequence = &step->sequences[r->sequence];
    uint64_t before = r->position == 0 ? 0 : *word_at(sim, step, sequence, r->position - 1);
    uint64_t token = (uint32_t)row_token(sim, step, row);
    *word_at(sim, step, sequence, r->position) = qr_mix64(before ^ qr_mix64(token << 32 | r->position));
}

static uint64_t read_row(sim_backend *sim, const qr_step *step, uint32_t row) {
    const qr_step_row *r = &step->rows[row];
    const qr_step_sequence *sequence = &step->sequences[r->sequence];
    uint64_t sum = 0;
    for (uint32_t p = 0; p <= r->position; p++) sum += qr_mix64(*word_at(sim, step, sequence, p) + p);
    return qr_mix64(sum);
}

static void copy_blocks(sim_backend *sim, const qr_step *step) {
    size_t count = sim->config.block_tokens;
    for (uint32_t i = 0; i < step->copy_count; i++) {
        memcpy(block_words(sim, step->copies[i].to), block_words(sim, step->copies[i].from), count * sizeof(uint64_t));
    }
    sim->counts.copies += step->copy_count;
}

static void spoil_step(sim_backend *sim, const qr_step *step) {
    for (uint32_t i = 0; i < step->row_count; i++) {
        const qr_step_row *r = &step->rows[i];
        *word_at(sim, step, &step->sequences[r->sequence], r->position) = qr_random_u64(&sim->faults);
    }
}

/* ---- drawing ---- */

static bool is_masked(const sim_backend *sim, const qr_step_sample *sample, quire_token token) {
    if (!sample->mask_end) return false;
    for (uint32_t i = 0; i < sim->config.end_token_count; i++) {
        if (sim->end_tokens[i] == token) return true;
    }
    for (uint32_t i = 0; i < sample->stop_token_count; i++) {
        if (sample->stop_tokens[i] == token) return true;
    }
    return false;
}

/* What the penalties would see: prompt, generated tokens, and the one that this row was fed while it was unknown. */
static uint64_t history_hash(const sim_backend *sim, const qr_step *step, const qr_step_sample *sample) {
    uint64_t hash = sample->prompt_count;
    for (uint32_t i = 0; i < sample->prompt_count; i++) hash = qr_mix64(hash ^ (uint32_t)sample->prompt[i]);
    for (uint32_t i = 0; i < sample->generated_count; i++) hash = qr_mix64(hash ^ (uint32_t)sample->generated[i]);
    if (step->rows[sample->row].token == QR_TOKEN_SAMPLED) {
        hash = qr_mix64(hash ^ (uint32_t)row_token(sim, step, sample->row));
    }
    return hash;
}

static void fill_top(const sim_backend *sim, uint64_t hash, const qr_step_sample *sample, qr_sample_result *result) {
    result->top_count = sample->top_logprobs > 0 ? (uint32_t)sample->top_logprobs : 0;
    for (uint32_t i = 0; i < result->top_count; i++) {
        uint64_t h = qr_mix64(hash + i);
        result->top[i] = (quire_token_logprob){(quire_token)(h % sim->config.limits.vocabulary_size), -(float)i};
    }
}

static void draw(sim_backend *sim, const qr_step *step, const qr_step_sample *sample, uint64_t hash, qr_sample_result *result) {
    uint64_t random = sample->sampling->temperature > 0 ? qr_mix64(sample->seed ^ qr_mix64(sample->draw_index)) : 0;
    uint64_t h = qr_mix64(hash ^ random ^ history_hash(sim, step, sample));
    uint32_t vocabulary = sim->config.limits.vocabulary_size;
    quire_token token = (quire_token)(h % vocabulary);
    for (uint32_t tries = 0; is_masked(sim, sample, token) && tries < vocabulary; tries++) {
        token = (quire_token)(((uint32_t)token + 1) % vocabulary);
    }
    bool spoil = sim->config.bad_logits_rate > 0 && qr_random_unit(&sim->faults) < sim->config.bad_logits_rate;
    if (sim->spoil_next > 0) {
        sim->spoil_next--;
        spoil = true;
    }
    result->status = spoil ? QUIRE_BAD_LOGITS : QUIRE_OK;
    result->token = token;
    result->digest = sample->digest ? hash : 0;
    sim->counts.draws++;
}

static void run_sample(sim_backend *sim, const qr_step *step, uint32_t index, qr_sample_result *result) {
    const qr_step_sample *sample = &step->samples[index];
    uint64_t hash = sim->row_hash[sample->row];
    memset(result, 0, sizeof *result);
    if (sample->kind == QR_SAMPLE_DRAW) {
        draw(sim, step, sample, hash, result);
    } else {
        result->token = sample->target;
        sim->counts.scores++;
    }
    result->logprob = -(float)(qr_mix64(hash ^ (uint32_t)result->token) % 1000) / 100;
    fill_top(sim, hash, sample, result);
}

/* ---- steps ---- */

static bool step_fails(sim_backend *sim) {
    if (sim->fail_next > 0) {
        sim->fail_next--;
        return true;
    }
    return sim->config.fail_rate > 0 && qr_random_unit(&sim->faults) < sim->config.fail_rate;
}

/* Writes come before reads, layer by layer, as in a real step: rows of one prompt see each other. */
static void run_step(sim_backend *sim, const qr_step *step, qr_sample_result *results) {
    copy_blocks(sim, step);
    for (uint32_t i = 0; i < step->row_count; i++) write_row(sim, step, i);
    for (uint32_t i = 0; i < step->sample_count; i++) {
        uint32_t row = step->samples[i].row;
        if (i == 0 || step->samples[i - 1].row != row) sim->row_hash[row] = read_row(sim, step, row);
        run_sample(sim, step, i, &results[i]);
    }
    for (uint32_t i = 0; i < step->sample_count; i++) {
        const qr_step_row *r = &step->rows[step->samples[i].row];
        if (step->samples[i].kind == QR_SAMPLE_DRAW) sim->sampled[step->sequences[r->sequence].slot] = results[i].token;
    }
}

static uint64_t step_cost_us(const sim_backend *sim, const qr_step *step) {
    double cost = sim->config.step_us + sim->config.row_us * step->row_count;
    for (uint32_t i = 0; i < step->row_count; i++) cost += sim->config.position_us * (step->rows[i].position + 1);
    return cost < 1 ? 1 : (uint64_t)cost;
}

static void sim_submit(qr_backend *backend, const qr_step *step) {
    sim_backend *sim = sim_of(backend);
    QR_ASSERT(sim->in_flight < sim->base.limits.steps_in_flight);
    QR_ASSERT(step->row_count > 0 && step->row_count <= sim->base.limits.rows_max);
    QR_ASSERT(step->sample_count <= sim->base.limits.samples_max);
    uint64_t start_us = sim->now_us;
    if (sim->in_flight > 0) start_us = sim->places[sim->first].due_us > start_us ? sim->places[sim->first].due_us : start_us;
    sim_place *place = &sim->places[(sim->first + sim->in_flight++) % SIM_STEPS_MAX];
    place->step = step;
    place->duration_us = step_cost_us(sim, step);
    place->due_us = start_us + place->duration_us;
}

static bool sim_poll(qr_backend *backend, bool wait, qr_step_result *result) {
    sim_backend *sim = sim_of(backend);
    if (sim->in_flight == 0) return false;
    sim_place *place = &sim->places[sim->first];
    if (sim->now_us < place->due_us) {
        if (!wait) return false;
        sim->now_us = place->due_us;
    }
    const qr_step *step = place->step;
    *result = (qr_step_result){.id = step->id, .samples = place->results, .duration_us = place->duration_us};
    if (step_fails(sim)) {
        spoil_step(sim, step);
        result->status = QUIRE_IO;
        sim->counts.failed_steps++;
    } else {
        run_step(sim, step, place->results);
        result->sample_count = step->sample_count;
    }
    sim->counts.steps++;
    sim->counts.rows += step->row_count;
    sim->first = (sim->first + 1) % SIM_STEPS_MAX;
    sim->in_flight--;
    return true;
}

static void sim_destroy(qr_backend *backend) {
    sim_backend *sim = sim_of(backend);
    free(sim->words);
    free(sim->sampled);
    free(sim->row_hash);
    for (int i = 0; i < SIM_STEPS_MAX; i++) free(sim->places[i].results);
    free(sim);
}

static const qr_backend_ops sim_ops = {"sim", sim_submit, sim_poll, sim_destroy};

quire_status qr_backend_sim_create(const qr_sim_config *config, qr_backend **backend) {
    *backend = NULL;
    const qr_backend_limits *limits = &config->limits;
    if (config->end_token_count > SIM_END_TOKENS_MAX || limits->vocabulary_size < 2) return QUIRE_INVALID;
    if (limits->steps_in_flight < 1 || limits->steps_in_flight > SIM_STEPS_MAX) return QUIRE_INVALID;
    sim_backend *sim = qr_alloc_zero(1, sizeof *sim);
    if (!sim) return QUIRE_NO_MEMORY;
    sim->base = (qr_backend){&sim_ops, *limits};
    sim->config = *config;
    for (uint32_t i = 0; i < config->end_token_count; i++) sim->end_tokens[i] = config->end_tokens[i];
    sim->config.end_tokens = sim->end_tokens;
    sim->faults.state = config->fault_seed;
    size_t block_bytes = config->block_tokens * sizeof(uint64_t);
    if (!config->memory) sim->words = qr_alloc_zero(config->block_count, block_bytes);
    sim->memory = config->memory ? config->memory : (void *)sim->words;
    sim->block_stride = config->memory ? config->block_stride : block_bytes;
    sim->sampled = qr_alloc_zero(limits->sequences_max, sizeof(quire_token));
    sim->row_hash = qr_alloc_zero(limits->rows_max, sizeof(uint64_t));
    bool ok = sim->memory && sim->block_stride >= block_bytes && sim->sampled && sim->row_hash;
    for (int i = 0; i < SIM_STEPS_MAX; i++) {
        sim->places[i].results = qr_alloc_zero(limits->samples_max, sizeof(qr_sample_result));
        ok = ok && sim->places[i].results;
    }
    if (!ok) {
        sim_destroy(&sim->base);
        return QUIRE_NO_MEMORY;
    }
    *backend = &sim->base;
    return QUIRE_OK;
}

uint64_t qr_backend_sim_now_us(const qr_backend *backend) { return sim_of_const(backend)->now_us; }

uint64_t qr_backend_sim_due_us(const qr_backend *backend) {
    const sim_backend *sim = sim_of_const(backend);
    return sim->in_flight > 0 ? sim->places[sim->first].due_us : UINT64_MAX;
}

void qr_backend_sim_advance(qr_backend *backend, uint64_t us) { sim_of(backend)->now_us += us; }

void qr_backend_sim_fail_next(qr_backend *backend, uint32_t count) { sim_of(backend)->fail_next = count; }

void qr_backend_sim_spoil_next(qr_backend *backend, uint32_t count) { sim_of(backend)->spoil_next = count; }

void qr_backend_sim_get_counts(const qr_backend *backend, qr_sim_counts *counts) { *counts = sim_of_const(backend)->counts; }
