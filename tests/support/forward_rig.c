/* forward_rig.c - see forward_rig.h. */
#include "tests/support/forward_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

static void must(quire_status status, const quire_error *error) {
    if (!status) return;
    (void)fprintf(stderr, "forward_rig: %s\n", error->text);
    abort();
}

static void *take(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) abort();
    return memory;
}

static void set_defaults(rig_options *o) {
    if (!o->rows_max) o->rows_max = 512;
    if (!o->sequences_max) o->sequences_max = 1;
    if (!o->tokens_max) o->tokens_max = 512;
    if (!o->block_tokens) o->block_tokens = 16;
    if (!o->logit_rows_max) o->logit_rows_max = o->rows_max;
    if (!o->threads) o->threads = 1;
}

/* Block layout: per layer and KV head its K then its V, each on a 128-byte boundary. */
static void lay_out(forward_rig *rig, const quire_model_info *info) {
    const rig_options *o = &rig->options;
    size_t parts = (size_t)info->layer_count * info->kv_head_count, at = 0;
    size_t key = qr_align_up((size_t)info->key_dim * o->block_tokens * quire_kv_type_bytes(o->key_type), 128);
    size_t value = qr_align_up((size_t)info->value_dim * o->block_tokens * quire_kv_type_bytes(o->value_type), 128);
    rig->offsets = take(2 * parts, sizeof *rig->offsets);
    for (size_t i = 0; i < parts; i++, at += key + value) {
        rig->offsets[i] = at;
        rig->offsets[parts + i] = at + key;
    }
    rig->memory.block_stride = qr_align_up(at, 4096);
    rig->memory.key_offset = rig->offsets;
    rig->memory.value_offset = rig->offsets + parts;
}

static void take_step_arrays(forward_rig *rig) {
    const rig_options *o = &rig->options;
    rig->row_sequence = take(o->rows_max, sizeof *rig->row_sequence);
    rig->row_position = take(o->rows_max, sizeof *rig->row_position);
    rig->logit_rows = take(o->rows_max, sizeof *rig->logit_rows);
    rig->tokens = take(o->rows_max, sizeof *rig->tokens);
    rig->table_begin = take(o->sequences_max + 1, sizeof *rig->table_begin);
    rig->block_ids = take(rig->block_count, sizeof *rig->block_ids);
}

void forward_rig_open(forward_rig *rig, const quire_model *model, const rig_options *options) {
    const quire_model_info *info = quire_model_get_info(model);
    quire_error error;
    memset(rig, 0, sizeof *rig);
    rig->options = *options;
    set_defaults(&rig->options);
    const rig_options *o = &rig->options;
    rig->vocabulary_size = info->vocabulary_size;
    lay_out(rig, info);
    rig->blocks_per_sequence = (o->tokens_max + o->block_tokens - 1) / o->block_tokens;
    rig->block_count = rig->blocks_per_sequence * o->sequences_max;
    rig->kv_bytes = rig->memory.block_stride * rig->block_count;
    rig->memory.base = aligned_alloc(4096, rig->kv_bytes);
    if (!rig->memory.base) abort();
    take_step_arrays(rig);
    forward_rig_forget(rig);
    const qr_forward_config config = {
        .rows_max = o->rows_max,
        .sequences_max = o->sequences_max,
        .logit_rows_max = o->logit_rows_max,
        .tokens_max = o->tokens_max,
        .block_tokens = o->block_tokens,
        .key_type = o->key_type,
        .value_type = o->value_type,
        .cpu_path = o->cpu_path,
    };
    must(qr_compute_pool_create(o->threads, QR_COMPUTE_SPIN_NS, &rig->pool, &error), &error);
    must(qr_forward_create(model, &config, rig->pool, &rig->forward, &error), &error);
}

void forward_rig_close(forward_rig *rig) {
    qr_forward_destroy(rig->forward);
    qr_compute_pool_destroy(rig->pool);
    free(rig->memory.base);
    free(rig->offsets);
    free(rig->row_sequence);
    free(rig->row_position);
    free(rig->logit_rows);
    free(rig->tokens);
    free(rig->table_begin);
    free(rig->block_ids);
    memset(rig, 0, sizeof *rig);
}

void forward_rig_forget(forward_rig *rig) { memset(rig->memory.base, 0xff, rig->kv_bytes); } /* NaN in every float type */

/* Scatters: 65537 is prime and above any block count here, so this is a permutation unless the count divides it. */
static quire_block_id block_of(const forward_rig *rig, uint32_t sequence, uint32_t index) {
    uint64_t flat = (uint64_t)sequence * rig->blocks_per_sequence + index;
    return (quire_block_id)((flat * 65537 + 11) % rig->block_count);
}

void forward_rig_step(forward_rig *rig, const rig_chunk *chunks, uint32_t count, float *logits) {
    uint32_t rows = 0, blocks = 0, wanted = 0;
    if (count > rig->options.sequences_max) abort();
    for (uint32_t c = 0; c < count; c++) {
        const rig_chunk *chunk = &chunks[c];
        uint32_t needed = (chunk->position + chunk->count + rig->options.block_tokens - 1) / rig->options.block_tokens;
        rig->table_begin[c] = blocks;
        for (uint32_t b = 0; b < needed; b++) rig->block_ids[blocks++] = block_of(rig, chunk->sequence, b);
        for (uint32_t i = 0; i < chunk->count; i++, rows++) {
            if (rows >= rig->options.rows_max) abort();
            rig->row_sequence[rows] = c;
            rig->row_position[rows] = chunk->position + i;
            rig->tokens[rows] = chunk->tokens[i];
            if (chunk->position + i >= chunk->logits_from) rig->logit_rows[wanted++] = rows;
        }
    }
    rig->table_begin[count] = blocks;
    const qr_forward_step step = {
        .batch = {.row_count = rows,
                  .sequence_count = count,
                  .row_sequence = rig->row_sequence,
                  .row_position = rig->row_position,
                  .table_begin = rig->table_begin,
                  .block_ids = rig->block_ids},
        .tokens = rig->tokens,
        .memory = rig->memory,
        .logit_rows = rig->logit_rows,
        .logit_count = wanted,
        .logits = logits,
    };
    qr_forward_run(rig->forward, &step);
}

void forward_rig_prompt(forward_rig *rig, const quire_token *tokens, uint32_t count, uint32_t chunk, uint32_t logits_from,
                        float *logits) {
    for (uint32_t at = 0; at < count; at += chunk) {
        uint32_t length = count - at < chunk ? count - at : chunk, skipped = at > logits_from ? at - logits_from : 0;
        const rig_chunk part = {0, at, length, tokens + at, logits_from};
        forward_rig_step(rig, &part, 1, logits + (size_t)skipped * rig->vocabulary_size);
    }
}
