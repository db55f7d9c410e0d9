/* forward.c - the llama forward pass as a sequence of fork-joins over one set of activations.
 *
 *     x = embedding[token]
 *     per layer:  h = norm(x) -> q, k, v -> rope -> K, V stored -> attention -> output product, x += y
 *                 h = norm(x) -> gate, up -> silu(gate) * up -> down product, x += y
 *     logits = head * norm(x), for the rows that ask
 *
 * Two kinds of work: products, cut by output panels, and row operations, cut by rows. Neither cut changes a bit, because
 * every output element is computed by one thread in one order (docs/NUMERICS.md). Small steps run row operations on the
 * calling thread: waking another costs more than it saves.
 *
 * Thread: one at a time. Invariants: nothing is allocated after create; every row of a step is written before it is
 * read, so buffers are never cleared.
 */
#include "runtime/model/forward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "runtime/model/model.h"
#include "runtime/model/model_cpu_path.h"

enum {
    BUFFER_ALIGNMENT = 128,   /* two cache lines: the adjacent-line prefetcher pairs them */
    ROWS_PER_PIECE = 8,       /* one row is too fine a piece for a prefill chunk */
    INLINE_ELEMENTS = 8192,   /* row operations up to this size stay on the calling thread: about 2 us */
    WIDE_PANELS = 1024,       /* from here a product is worth more pieces than threads */
    PIECES_PER_THREAD = 8,    /* for wide products and many rows: evens out a disturbed core */
    READ_BOUND_ROWS = 8,      /* up to here a product waits for weight bytes, not for arithmetic */
    NEXT_MATRIX_BYTES = 8192, /* of the next product, fetched by each piece before the join */
};

/* Activations of one step, all [rows_max][...]. */
typedef struct buffers {
    float *x, *h, *y;    /* [embedding] */
    float *wide;         /* q, k, v side by side; later gate and up */
    float *q;            /* [heads][key_dim], turned and scaled */
    float *attended;     /* [heads][value_dim] */
    float *active;       /* [feed_forward] */
    float *rope;         /* [rope_dims / 2][2] */
    void *codes;         /* quantised input of the next product */
    uint8_t *scratch;    /* [threads][scratch_stride] */
    uint64_t *saturated; /* [threads], a cache line apart */
    size_t scratch_stride;
} buffers;

/* Widths of the rows above, in elements. */
typedef struct widths {
    uint32_t embedding, q, k, v, attended, feed_forward, rope;
} widths;

struct qr_forward {
    const qr_weights *weights;
    uint32_t vocabulary_size, layer_count, kv_head_count;
    qr_forward_config config;
    qr_attn_shape shape;
    widths width;
    qr_cpu_path path;
    qr_compute_pool *pool;
    int thread_count;
    float query_scale; /* log2(e) / sqrt(key_dim): softmax works in powers of two */
    qr_attn_plan *plan;
    qr_region region;
    buffers buffer;
    qr_forward_times times;

    /* Of the step being run. */
    const qr_forward_step *step;
    const qr_layer *layer;
    uint32_t layer_index;
    qr_acts acts;
    bool quantise; /* acts of the row operation at work are read by a quantised product */
    const float *norm;
};

enum { SATURATED_STRIDE = 64 / sizeof(uint64_t) };

/* ---- memory ---- */

typedef struct carver {
    uint8_t *base; /* NULL: only sizes */
    size_t used;
    bool overflow;
} carver;

static void *carve(carver *c, size_t count, size_t size) {
    size_t bytes, at = c->used;
    if (!qr_mul_size(count, size, &bytes) || bytes > SIZE_MAX / 4 ||
        !qr_add_size(c->used, qr_align_up(bytes, BUFFER_ALIGNMENT), &c->used))
        c->overflow = true;
    return c->base ? c->base + at : NULL;
}

static size_t largest(size_t a, size_t b) { return a > b ? a : b; }

static size_t codes_bytes(const widths *w, uint32_t rows) {
    size_t bytes = largest(qr_acts_bytes(rows, w->embedding), qr_acts_bytes(rows, w->attended));
    return largest(bytes, qr_acts_bytes(rows, w->feed_forward));
}

static size_t scratch_bytes(const widths *w) {
    size_t bytes = largest(qr_matmul_scratch_bytes(w->embedding), qr_matmul_scratch_bytes(w->attended));
    return qr_align_up(largest(bytes, qr_matmul_scratch_bytes(w->feed_forward)), BUFFER_ALIGNMENT);
}

/* Bytes of all buffers; places them when base is given. 0 on overflow. */
static size_t carve_buffers(const widths *w, uint32_t rows, uint32_t logit_rows, int threads, uint8_t *base, buffers *b) {
    carver c = {base, 0, false};
    size_t normed_rows = rows > logit_rows ? rows : logit_rows;
    b->x = carve(&c, rows, w->embedding * sizeof(float));
    b->h = carve(&c, normed_rows, w->embedding * sizeof(float));
    b->y = carve(&c, rows, w->embedding * sizeof(float));
    b->wide = carve(&c, rows, largest((size_t)w->q + w->k + w->v, 2 * (size_t)w->feed_forward) * sizeof(float));
    b->q = carve(&c, rows, w->q * sizeof(float));
    b->attended = carve(&c, rows, w->attended * sizeof(float));
    b->active = carve(&c, rows, w->feed_forward * sizeof(float));
    b->rope = carve(&c, rows, w->rope * sizeof(float));
    b->codes = carve(&c, 1, codes_bytes(w, (uint32_t)normed_rows));
    b->scratch_stride = scratch_bytes(w);
    b->scratch = carve(&c, (size_t)threads, b->scratch_stride);
    b->saturated = carve(&c, (size_t)threads, SATURATED_STRIDE * sizeof(uint64_t));
    return c.overflow ? 0 : c.used;
}

static widths widths_of(const quire_model *model) {
    const quire_model_info *info = quire_model_get_info(model);
    return (widths){
        .embedding = info->embedding_size,
        .q = info->head_count * info->key_dim,
        .k = info->kv_head_count * info->key_dim,
        .v = info->kv_head_count * info->value_dim,
        .attended = info->head_count * info->value_dim,
        .feed_forward = info->feed_forward_size,
        .rope = qr_model_weights(model)->rope_dims,
    };
}

static qr_attn_shape shape_of(const quire_model *model, const qr_forward_config *config) {
    const quire_model_info *info = quire_model_get_info(model);
    return (qr_attn_shape){
        .head_count = info->head_count,
        .kv_head_count = info->kv_head_count,
        .key_dim = info->key_dim,
        .value_dim = info->value_dim,
        .block_tokens = config->block_tokens,
        .key_type = config->key_type,
        .value_type = config->value_type,
    };
}

static qr_attn_limits limits_of(const qr_forward_config *config, int thread_count) {
    return (qr_attn_limits){
        .rows_max = config->rows_max,
        .sequences_max = config->sequences_max,
        .tokens_max = config->tokens_max,
        .thread_count = thread_count,
    };
}

uint64_t qr_forward_bytes(const quire_model *model, const qr_forward_config *config, int thread_count) {
    const widths width = widths_of(model);
    const qr_attn_shape shape = shape_of(model, config);
    const qr_attn_limits limits = limits_of(config, thread_count);
    buffers unused;
    return carve_buffers(&width, config->rows_max, config->logit_rows_max, thread_count, NULL, &unused) +
           qr_attn_plan_bytes(&shape, &limits) + sizeof(qr_forward);
}

/* ---- life ---- */

static quire_status take_memory(qr_forward *f, quire_error *error) {
    const qr_attn_limits limits = limits_of(&f->config, f->thread_count);
    const uint32_t rows = f->config.rows_max, logit_rows = f->config.logit_rows_max;
    size_t bytes = carve_buffers(&f->width, rows, logit_rows, f->thread_count, NULL, &f->buffer);
    if (!bytes) return qr_fail(error, QUIRE_NO_MEMORY, "activations", QR_NO_OFFSET, "%u rows overflow the address space", rows);
    quire_status status = qr_region_alloc(bytes, &f->region, error);
    if (status) return status;
    (void)carve_buffers(&f->width, rows, logit_rows, f->thread_count, f->region.base, &f->buffer);
    return qr_attn_plan_create(&f->shape, &limits, &f->plan, error);
}

static quire_status check_config(const qr_forward_config *c, const qr_attn_shape *shape, quire_error *error) {
    if (!c->rows_max || !c->sequences_max || !c->tokens_max || !c->logit_rows_max)
        return qr_fail(error, QUIRE_INVALID, "forward", QR_NO_OFFSET, "a limit of the step is zero");
    return qr_attn_shape_check(shape, error);
}

quire_status qr_forward_create(const quire_model *model, const qr_forward_config *config, qr_compute_pool *pool,
                               qr_forward **forward, quire_error *error) {
    const quire_model_info *info = quire_model_get_info(model);
    *forward = NULL;
    QR_ASSERT(qr_model_weights(model)->embedding.n == info->vocabulary_size); /* not a header-only model */
    qr_forward *f = calloc(1, sizeof *f);
    if (!f) return qr_fail(error, QUIRE_NO_MEMORY, "forward", QR_NO_OFFSET, "no memory for the forward pass");
    f->weights = qr_model_weights(model);
    f->vocabulary_size = info->vocabulary_size;
    f->layer_count = info->layer_count;
    f->kv_head_count = info->kv_head_count;
    f->config = *config;
    f->shape = shape_of(model, config);
    f->width = widths_of(model);
    f->pool = pool;
    f->thread_count = qr_compute_pool_threads(pool);
    f->query_scale = (float)(1.4426950408889634 / sqrt((double)info->key_dim)); /* sqrt is exactly rounded everywhere */
    quire_status status = check_config(config, &f->shape, error);
    if (!status) status = qr_cpu_path_find(config->cpu_path ? config->cpu_path : qr_model_cpu_path(model), &f->path, error);
    if (!status) status = take_memory(f, error);
    if (status) qr_forward_destroy(f);
    else *forward = f;
    return status;
}

void qr_forward_destroy(qr_forward *f) {
    if (!f) return;
    if (f->plan) qr_attn_plan_destroy(f->plan);
    qr_region_free(&f->region);
    free(f);
}

const char *qr_forward_cpu_path(const qr_forward *f) { return f->path.name; }
void qr_forward_get_times(const qr_forward *f, qr_forward_times *times) { *times = f->times; }

uint64_t qr_forward_saturated(const qr_forward *f) {
    uint64_t count = 0;
    for (int i = 0; i < f->thread_count; i++) count += f->buffer.saturated[i * SATURATED_STRIDE];
    return count;
}

static void add_time(double *total, uint64_t begin_ns) { *total += (double)(qr_clock_ns() - begin_ns) * 1e-9; }

/* ---- row operations ---- */

typedef void row_operation(qr_forward *f, uint32_t row, int thread);

typedef struct row_job {
    qr_forward *forward;
    row_operation *operation;
    uint32_t rows, rows_per_piece;
} row_job;

static void row_piece(void *argument, int piece, int thread) {
    const row_job *job = argument;
    uint32_t row = (uint32_t)piece * job->rows_per_piece, end = row + job->rows_per_piece;
    for (; row < end && row < job->rows; row++) job->operation(job->forward, row, thread);
}

/* width: elements that the operation touches per row, to judge whether threads are worth waking. */
static void run_rows(qr_forward *f, row_operation *operation, uint32_t rows, uint32_t width) {
    uint64_t begin = qr_clock_ns();
    uint32_t threads = (uint32_t)f->thread_count, share = (rows + threads - 1) / threads;
    row_job job = {f, operation, rows, share < ROWS_PER_PIECE ? share : ROWS_PER_PIECE};
    if (rows <= 1 || (uint64_t)rows * width <= INLINE_ELEMENTS)
        for (uint32_t row = 0; row < rows; row++) operation(f, row, 0);
    else qr_compute_pool_run(f->pool, row_piece, &job, (int)((rows + job.rows_per_piece - 1) / job.rows_per_piece));
    add_time(&f->times.other, begin);
}

static void quantise_row(qr_forward *f, uint32_t row) {
    if (f->quantise) f->path.ops->quantize(&f->acts, row, row + 1);
}

static float *row_of(float *rows, uint32_t width, uint32_t row) { return rows + (size_t)width * row; }

static void embed_row(qr_forward *f, uint32_t row, int thread) {
    quire_token token = f->step->tokens[row];
    QR_ASSERT(token >= 0 && (uint32_t)token < f->vocabulary_size);
    qr_matrix_row(&f->weights->embedding, (uint32_t)token, row_of(f->buffer.x, f->width.embedding, row));
    qr_rope_row(row_of(f->buffer.rope, f->width.rope, row), f->step->batch.row_position[row], f->weights->rope_inv_freq,
                f->width.rope);
}

static void norm_row(qr_forward *f, uint32_t row, int thread) {
    uint32_t n = f->width.embedding;
    f->path.ops->rmsnorm(row_of(f->buffer.h, n, row), row_of(f->buffer.x, n, row), f->norm, n, f->weights->norm_eps);
    quantise_row(f, row);
}

static void add_norm_row(qr_forward *f, uint32_t row, int thread) {
    uint32_t n = f->width.embedding;
    f->path.ops->add(row_of(f->buffer.x, n, row), row_of(f->buffer.y, n, row), n);
    norm_row(f, row, thread);
}

/* Row i of h becomes the head's input for logit row i; sources are rows of x and y, so the order does not matter. */
static void final_norm_row(qr_forward *f, uint32_t i, int thread) {
    uint32_t n = f->width.embedding, row = f->step->logit_rows[i];
    float *x = row_of(f->buffer.x, n, row);
    f->path.ops->add(x, row_of(f->buffer.y, n, row), n);
    f->path.ops->rmsnorm(row_of(f->buffer.h, n, i), x, f->norm, n, f->weights->norm_eps);
    quantise_row(f, i);
}

static void rope_store_row(qr_forward *f, uint32_t row, int thread) {
    const qr_attn_batch *batch = &f->step->batch;
    const widths *w = &f->width;
    const qr_ops_path *ops = f->path.ops;
    uint32_t position = batch->row_position[row], block_tokens = f->shape.block_tokens;
    const float *table = row_of(f->buffer.rope, w->rope, row);
    float *q = row_of(f->buffer.wide, w->q + w->k + w->v, row), *k = q + w->q, *v = k + w->k;
    ops->rope(row_of(f->buffer.q, w->q, row), q, table, f->shape.head_count, f->shape.key_dim, w->rope, f->query_scale);
    ops->rope(k, k, table, f->kv_head_count, f->shape.key_dim, w->rope, 1.0f);
    quire_block_id block = batch->block_ids[batch->table_begin[batch->row_sequence[row]] + position / block_tokens];
    qr_attn_store(f->path.attention, &f->shape, &f->step->memory, f->layer_index, block, position % block_tokens, k, v,
                  &f->buffer.saturated[thread * SATURATED_STRIDE]);
}

static void attended_row(qr_forward *f, uint32_t row, int thread) { quantise_row(f, row); }

static void silu_row(qr_forward *f, uint32_t row, int thread) {
    uint32_t n = f->width.feed_forward;
    const float *gate = row_of(f->buffer.wide, 2 * n, row);
    f->path.ops->silu_mul(row_of(f->buffer.active, n, row), gate, gate + n, n);
    quantise_row(f, row);
}

/* ---- products ---- */

typedef struct product_job {
    const qr_forward *forward;
    const qr_matrix *w, *next;
    float *y;
    size_t ldy;
    uint32_t panels, panels_per_piece, next_panels_per_piece;
} product_job;

static uint32_t panels_per_piece(const qr_forward *f, const qr_matrix *w, uint32_t rows) {
    uint32_t panels = (w->n + 15) / 16, pieces = (uint32_t)f->thread_count;
    if (panels >= WIDE_PANELS || rows > READ_BOUND_ROWS) pieces *= PIECES_PER_THREAD;
    return (panels + pieces - 1) / pieces;
}

/* The read stream must not run dry at the join: start on this piece's share of the next product. */
static void fetch_next(const product_job *job, int piece) {
    const qr_matrix *next = job->next;
    size_t panel = (size_t)piece * job->next_panels_per_piece;
    if (panel * 16 >= next->n) return;
    const uint8_t *bytes = next->panels + panel * next->panel_bytes; /* QR_MATRIX_READ_AHEAD covers the last panel */
    for (size_t i = 0; i < NEXT_MATRIX_BYTES; i += 64) __builtin_prefetch(bytes + i, 0, 2);
}

static void product_piece(void *argument, int piece, int thread) {
    const product_job *job = argument;
    const buffers *b = &job->forward->buffer;
    uint32_t begin = (uint32_t)piece * job->panels_per_piece, end = begin + job->panels_per_piece;
    job->forward->path.ops->matmul(job->w, &job->forward->acts, job->y, job->ldy, begin, end < job->panels ? end : job->panels,
                                   b->scratch + (size_t)thread * b->scratch_stride);
    if (job->next) fetch_next(job, piece);
}

/* y [acts.m][ldy] = acts * w. next: the matrix that the following product reads, or NULL. */
static void run_product(qr_forward *f, const qr_matrix *w, const qr_matrix *next, float *y, size_t ldy) {
    uint64_t begin = qr_clock_ns();
    product_job job = {.forward = f, .w = w, .y = y, .ldy = ldy, .panels = (w->n + 15) / 16};
    job.panels_per_piece = panels_per_piece(f, w, f->acts.m);
    if (next && f->acts.m <= READ_BOUND_ROWS) {
        job.next = next;
        job.next_panels_per_piece = panels_per_piece(f, next, f->acts.m);
    }
    qr_compute_pool_run(f->pool, product_piece, &job, (int)((job.panels + job.panels_per_piece - 1) / job.panels_per_piece));
    add_time(w == &f->weights->head ? &f->times.head : &f->times.product, begin);
}

/* The fused matrix, or the first of those that stand for it. */
static const qr_matrix *first_of(const qr_matrix *fused, const qr_matrix *single) { return fused->n ? fused : single; }

/* Describes the next products' input; the row operations that follow fill it. */
static void begin_acts(qr_forward *f, uint32_t rows, uint32_t k, const float *x, bool quantise) {
    qr_acts_init(&f->acts, rows, k, x, k, f->buffer.codes);
    f->quantise = quantise;
}

static bool takes_codes(const qr_matrix *w) { return w->n && !qr_weight_is_float(w->type); }

static void project_qkv(qr_forward *f) {
    const qr_layer *l = f->layer;
    const widths *w = &f->width;
    size_t ldy = w->q + w->k + w->v;
    float *y = f->buffer.wide;
    if (l->qkv.n) {
        run_product(f, &l->qkv, &l->output, y, ldy);
        return;
    }
    run_product(f, &l->q, &l->k, y, ldy);
    run_product(f, &l->k, &l->v, y + w->q, ldy);
    run_product(f, &l->v, &l->output, y + w->q + w->k, ldy);
}

static void project_gate_up(qr_forward *f) {
    const qr_layer *l = f->layer;
    size_t n = f->width.feed_forward;
    if (l->gate_up.n) {
        run_product(f, &l->gate_up, &l->down, f->buffer.wide, 2 * n);
        return;
    }
    run_product(f, &l->gate, &l->up, f->buffer.wide, 2 * n);
    run_product(f, &l->up, &l->down, f->buffer.wide + n, 2 * n);
}

/* ---- the pass ---- */

static void begin_attention_norm(qr_forward *f, const qr_layer *l) {
    bool quantise = takes_codes(&l->qkv) || takes_codes(&l->q) || takes_codes(&l->k) || takes_codes(&l->v);
    begin_acts(f, f->step->batch.row_count, f->width.embedding, f->buffer.h, quantise);
    f->norm = l->attention_norm;
}

static void run_attention(qr_forward *f) {
    const uint32_t rows = f->step->batch.row_count;
    const widths *w = &f->width;
    const buffers *b = &f->buffer;
    project_qkv(f);
    run_rows(f, rope_store_row, rows, w->q + w->k + w->v);
    uint64_t begin = qr_clock_ns();
    qr_attn_plan_run(f->plan, f->path.attention, f->pool, &f->step->memory, f->layer_index, b->q, b->attended);
    add_time(&f->times.attention, begin);
    begin_acts(f, rows, w->attended, b->attended, takes_codes(&f->layer->output));
    if (f->quantise) run_rows(f, attended_row, rows, w->attended);
    run_product(f, &f->layer->output, first_of(&f->layer->gate_up, &f->layer->gate), b->y, w->embedding);
}

static void run_feed_forward(qr_forward *f, const qr_matrix *next) {
    const uint32_t rows = f->step->batch.row_count;
    const widths *w = &f->width;
    const buffers *b = &f->buffer;
    const qr_layer *l = f->layer;
    begin_acts(f, rows, w->embedding, b->h, takes_codes(&l->gate_up) || takes_codes(&l->gate) || takes_codes(&l->up));
    f->norm = l->feed_forward_norm;
    run_rows(f, add_norm_row, rows, 2 * w->embedding);
    project_gate_up(f);
    begin_acts(f, rows, w->feed_forward, b->active, takes_codes(&l->down));
    run_rows(f, silu_row, rows, 3 * w->feed_forward);
    run_product(f, &l->down, next, b->y, w->embedding);
}

static void run_layers(qr_forward *f) {
    const uint32_t rows = f->step->batch.row_count, n = f->width.embedding;
    begin_attention_norm(f, &f->weights->layers[0]);
    run_rows(f, norm_row, rows, n);
    for (f->layer_index = 0; f->layer_index < f->layer_count; f->layer_index++) {
        bool last = f->layer_index + 1 == f->layer_count;
        f->layer = &f->weights->layers[f->layer_index];
        const qr_layer *next = f->layer + 1; /* not read when last */
        run_attention(f);
        run_feed_forward(f, last ? &f->weights->head : first_of(&next->qkv, &next->q));
        if (last) break;
        if (f->step->between_layers) f->step->between_layers(f->step->between_context);
        begin_attention_norm(f, next);
        run_rows(f, add_norm_row, rows, 2 * n);
    }
}

static void run_head(qr_forward *f) {
    const qr_forward_step *step = f->step;
    if (!step->logit_count) return;
    begin_acts(f, step->logit_count, f->width.embedding, f->buffer.h, takes_codes(&f->weights->head));
    f->norm = f->weights->output_norm;
    run_rows(f, final_norm_row, step->logit_count, 2 * f->width.embedding);
    run_product(f, &f->weights->head, NULL, step->logits, f->vocabulary_size);
}

void qr_forward_run(qr_forward *f, const qr_forward_step *step) {
    const qr_attn_batch *batch = &step->batch;
    QR_ASSERT(batch->row_count && batch->row_count <= f->config.rows_max);
    QR_ASSERT(batch->sequence_count <= f->config.sequences_max && step->logit_count <= f->config.logit_rows_max);
    f->step = step;
    uint64_t begin = qr_clock_ns();
    qr_attn_plan_make(f->plan, batch);
    add_time(&f->times.attention, begin);
    run_rows(f, embed_row, batch->row_count, 2 * f->width.embedding);
    run_layers(f);
    run_head(f);
    f->step = NULL;
}
