/* weights_load.c - tensor bytes into packed panels, on all threads.
 *
 * Work is cut into runs of rows that begin on a panel boundary, so no two threads write one panel. Each run's bytes are
 * hashed while they are in cache, unless the fingerprint is known; it is the hash of the hashes in the order of the list. A
 * change of what is hashed is a new REVISION in fingerprint_sidecar.c.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/error.h"
#include "base/hash.h"
#include "runtime/model/weights_internal.h"

enum {
    ROWS_PER_RUN = 256, /* a multiple of the panel: a few hundred KiB, enough to keep threads apart */
    ROWS_AT_ONCE = 16,  /* widened together */
};

typedef struct run {
    const weight_part *part;
    const qr_gguf_tensor *tensor;
    uint32_t source_row, target_row, count;
    uint64_t hash;
} run;

typedef struct loader {
    qr_weight_store *store;
    run *runs;
    uint32_t run_count;
    bool hashing;
    float *wide; /* [threads][ROWS_AT_ONCE][k_max], exact only */
    size_t wide_stride;
} loader;

static const uint8_t *tensor_rows(const qr_gguf_tensor *t, uint32_t row, uint32_t count, size_t *bytes) {
    size_t row_bytes = (size_t)(t->size_bytes / t->dims[1]);
    *bytes = row_bytes * count;
    return t->data + row_bytes * row;
}

static void widen_rows(const loader *l, const run *r, uint8_t *target, int thread) {
    float *wide = l->wide + (size_t)thread * l->wide_stride;
    for (uint32_t i = 0; i < r->count; i += ROWS_AT_ONCE) {
        uint32_t count = r->count - i < ROWS_AT_ONCE ? r->count - i : ROWS_AT_ONCE;
        size_t bytes;
        const uint8_t *source = tensor_rows(r->tensor, r->source_row + i, count, &bytes);
        qr_weight_dequantize(r->tensor->type, source, (size_t)count * r->part->k, wide);
        qr_matrix_pack(r->part->matrix, target, r->target_row + i, count, wide);
    }
}

static void load_piece(void *argument, int piece, int thread) {
    const loader *l = argument;
    run *r = &l->runs[piece];
    uint8_t *target = (uint8_t *)l->store->region.base + r->part->offset;
    size_t bytes;
    const uint8_t *source = tensor_rows(r->tensor, r->source_row, r->count, &bytes);
    if (l->hashing) r->hash = qr_hash_bytes(source, bytes, r->source_row);
    if (r->part->vector) qr_weight_dequantize(r->tensor->type, source, r->part->k, (float *)(void *)target);
    else if (r->tensor->type != r->part->type) widen_rows(l, r, target, thread);
    else qr_matrix_pack(r->part->matrix, target, r->target_row, r->count, source);
}

/* Counts, and when runs are there also lists them. */
static uint32_t list_runs(const qr_weight_store *s, run *runs) {
    uint32_t count = 0;
    for (uint32_t p = 0; p < s->part_count; p++) {
        const weight_part *part = &s->parts[p];
        uint32_t target = 0;
        for (uint32_t t = 0; t < part->tensor_count; t++) {
            uint32_t rows = (uint32_t)part->tensors[t]->dims[1];
            QR_ASSERT(target % 16 == 0);
            for (uint32_t row = 0; row < rows; row += ROWS_PER_RUN, count++) {
                uint32_t length = rows - row < ROWS_PER_RUN ? rows - row : ROWS_PER_RUN;
                if (runs) runs[count] = (run){part, part->tensors[t], row, target + row, length, 0};
            }
            target += rows;
        }
    }
    return count;
}

/* Matrices and vectors get their addresses. */
static void bind_parts(qr_weight_store *s) {
    uint8_t *base = s->region.base;
    for (uint32_t i = 0; i < s->part_count; i++) {
        const weight_part *part = &s->parts[i];
        if (part->vector) *part->vector = (const float *)(const void *)(base + part->offset);
        else qr_matrix_init(part->matrix, part->type, part->n, part->k, base + part->offset);
    }
    if (s->weights.tied) s->weights.head = s->weights.embedding;
}

static bool take_buffers(loader *l, int thread_count) {
    qr_weight_store *s = l->store;
    uint32_t k_max = 0;
    l->run_count = list_runs(s, NULL);
    l->runs = calloc(l->run_count, sizeof *l->runs);
    if (!s->exact) return l->runs;
    for (uint32_t i = 0; i < s->part_count; i++) k_max = s->parts[i].k > k_max ? s->parts[i].k : k_max;
    l->wide_stride = (size_t)ROWS_AT_ONCE * k_max;
    l->wide = malloc((size_t)thread_count * l->wide_stride * sizeof *l->wide);
    return l->runs && l->wide;
}

static uint64_t fingerprint(const loader *l) {
    size_t header_bytes;
    const uint8_t *header = qr_gguf_header(l->store->gguf, &header_bytes);
    uint64_t hash = qr_hash_bytes(header, header_bytes, l->store->exact);
    for (uint32_t i = 0; i < l->run_count; i++) hash = qr_mix64(hash ^ l->runs[i].hash);
    return hash ? hash : 1; /* 0 means none */
}

quire_status qr_weight_store_load(qr_weight_store *s, qr_compute_pool *pool, quire_error *error) {
    loader l = {.store = s, .hashing = !s->fingerprint};
    quire_status status = qr_region_alloc((size_t)qr_weight_store_bytes(s), &s->region, error);
    if (status) return status;
    if (take_buffers(&l, qr_compute_pool_threads(pool))) {
        list_runs(s, l.runs);
        bind_parts(s);
        qr_compute_pool_run(pool, load_piece, &l, (int)l.run_count);
        if (l.hashing) s->fingerprint = fingerprint(&l);
    } else {
        status = qr_fail(error, QUIRE_NO_MEMORY, qr_gguf_path(s->gguf), QR_NO_OFFSET, "no memory for repacking");
    }
    free(l.runs);
    free(l.wide);
    return status;
}
