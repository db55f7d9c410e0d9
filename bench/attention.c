/* attention.c - paged attention of a whole step (SmolLM2-135M: 30 layers, 9 query heads, 3 KV heads of 64, f16 KV).
 *
 * One JSON line per case and path. Every repetition measures in turn: a loop that only reads the same KV bytes, a loop of
 * independent fused multiply-adds, and the step; so that figures of a noisy machine can be compared within a line.
 * Arguments: [threads] [repetitions] [only cases that contain this text] [only this path].
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/attention.h"
#include "base/assertion.h"
#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/memory.h"
#include "base/random.h"

enum {
    LAYERS = 30,
    HEADS = 9,
    KV_HEADS = 3,
    DIM = 64,
    BLOCK_TOKENS = 16,
    PART_BYTES = DIM * BLOCK_TOKENS * 2,
    BLOCKS = 1100,
    ROWS = 512,
    TOKENS = 8192,
    REPEATS_MAX = 64,
    READ_AHEAD = 4096,
    FMA_ROUNDS = 20000,
    FMA_CHAINS = 16,
};

static const qr_attn_shape shape = {HEADS, KV_HEADS, DIM, DIM, BLOCK_TOKENS, QUIRE_KV_F16, QUIRE_KV_F16};

typedef struct bench_rows {
    uint32_t row_count, sequence_count, next_block;
    uint32_t row_sequence[ROWS], row_position[ROWS], table_begin[ROWS + 1];
    quire_block_id ids[ROWS * 32];
} bench_rows;

typedef struct bench_state {
    qr_compute_pool *pool;
    qr_attn_plan *plan;
    qr_attn_memory memory;
    size_t key_offset[LAYERS * KV_HEADS], value_offset[LAYERS * KV_HEADS];
    float *q, *out;
    int threads, repeats;
    const char *only_case, *only_path;
    bench_rows rows;
} bench_state;

/* ---- what it is compared with ---- */

typedef struct read_job {
    const bench_state *state;
    uint64_t sink[QR_COMPUTE_THREADS_MAX * 8];
} read_job;

/* Every block of the tables once, all layers, prefetched: the pace of memory. Shared blocks count for the first table. */
static void read_piece(void *argument, int piece, int thread) {
    read_job *job = argument;
    const bench_rows *rows = &job->state->rows;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (uint32_t i = (uint32_t)piece; i < rows->next_block; i += (uint32_t)job->state->threads) {
        const uint8_t *block = job->state->memory.base + i * job->state->memory.block_stride;
        for (size_t at = 0; at < job->state->memory.block_stride; at += 64) {
            const uint64_t *line = (const uint64_t *)(const void *)(block + at);
            __builtin_prefetch(block + at + READ_AHEAD);
            a += line[0] + line[1], b += line[2] + line[3], c += line[4] + line[5], d += line[6] + line[7];
        }
    }
    job->sink[thread * 8] += a + b + c + d;
}

static double read_seconds(const bench_state *state) {
    static read_job job;
    job.state = state;
    uint64_t start = qr_clock_ns();
    qr_compute_pool_run(state->pool, read_piece, &job, state->threads);
    return (double)(qr_clock_ns() - start) * 1e-9;
}

#ifdef __x86_64__
#include <immintrin.h>
__attribute__((target("avx512f"))) static void fma_512(float *sink) {
    __m512 sum[FMA_CHAINS], x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(*sink);
    for (int i = 0; i < FMA_CHAINS; i++) sum[i] = y;
    for (int n = 0; n < FMA_ROUNDS; n++)
        for (int i = 0; i < FMA_CHAINS; i++) sum[i] = _mm512_fmadd_ps(sum[i], x, y);
    for (int i = 1; i < FMA_CHAINS; i++) sum[0] = _mm512_add_ps(sum[0], sum[i]);
    *sink = _mm512_cvtss_f32(sum[0]);
}

__attribute__((target("avx2,fma"))) static void fma_256(float *sink) {
    enum { CHAINS = FMA_CHAINS - 4 }; /* of 16 registers */
    __m256 sum[CHAINS], x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(*sink);
    for (int i = 0; i < CHAINS; i++) sum[i] = y;
    for (int n = 0; n < FMA_ROUNDS * 2 * FMA_CHAINS / CHAINS; n++)
        for (int i = 0; i < CHAINS; i++) sum[i] = _mm256_fmadd_ps(sum[i], x, y);
    for (int i = 1; i < CHAINS; i++) sum[0] = _mm256_add_ps(sum[0], sum[i]);
    *sink = _mm256_cvtss_f32(sum[0]);
}

static void fma_piece(void *argument, int piece, int thread) {
    float value = 1.0f;
    if (strcmp(argument, "avx512") == 0) fma_512(&value);
    else fma_256(&value);
    QR_ASSERT(value > 0); /* so that the loop is not dropped */
}
#endif

/* Fused multiply-adds per second of the path's vectors on all threads; 0 where there is nothing to compare with. */
static double fma_peak(const bench_state *state, const char *path) {
#ifdef __x86_64__
    char name[16];
    if (strcmp(path, "scalar") == 0) return 0;
    snprintf(name, sizeof name, "%s", path);
    uint64_t start = qr_clock_ns();
    qr_compute_pool_run(state->pool, fma_piece, name, state->threads);
    double seconds = (double)(qr_clock_ns() - start) * 1e-9;
    return (double)state->threads * FMA_ROUNDS * FMA_CHAINS * 16 / seconds;
#else
    return 0;
#endif
}

/* ---- cases ---- */

/* A sequence of `end` tokens with rows begin .. end-1; its first share_blocks blocks are those of sequence 0. */
static void add_sequence(bench_rows *rows, uint32_t begin, uint32_t end, uint32_t share_blocks) {
    uint32_t at = rows->table_begin[rows->sequence_count], blocks = (end - 1) / BLOCK_TOKENS + 1;
    for (uint32_t b = 0; b < blocks; b++) rows->ids[at + b] = b < share_blocks ? rows->ids[b] : rows->next_block++;
    QR_ASSERT(rows->next_block <= BLOCKS);
    for (uint32_t p = begin; p < end; p++) {
        rows->row_sequence[rows->row_count] = rows->sequence_count;
        rows->row_position[rows->row_count++] = p;
    }
    rows->table_begin[++rows->sequence_count] = at + blocks;
}

/* Blocks in use are scattered over memory as in a pool that has run for a while. */
static void scatter_blocks(bench_rows *rows) {
    quire_block_id to[BLOCKS];
    qr_random random = {7};
    for (uint32_t i = 0; i < rows->next_block; i++) {
        uint32_t j = qr_random_below(&random, i + 1);
        to[i] = i;
        if (j != i) to[i] = to[j], to[j] = i;
    }
    for (uint32_t i = 0; i < rows->table_begin[rows->sequence_count]; i++) rows->ids[i] = to[rows->ids[i]];
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int count) {
    qsort(x, (size_t)count, sizeof *x, compare_doubles);
    return x[count / 2];
}

static double step_seconds(const bench_state *state, const qr_attn_path *path) {
    uint64_t start = qr_clock_ns();
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        qr_attn_plan_run(state->plan, path, state->pool, &state->memory, layer, state->q, state->out);
    return (double)(qr_clock_ns() - start) * 1e-9;
}

static void bench_path(const bench_state *state, const char *name, const qr_attn_path *path) {
    const bench_rows *rows = &state->rows;
    qr_attn_batch batch = {
        rows->row_count, rows->sequence_count, rows->row_sequence, rows->row_position, NULL, rows->table_begin, rows->ids};
    double step[REPEATS_MAX], read[REPEATS_MAX], peak[REPEATS_MAX];
    qr_attn_cost cost;
    uint64_t start = qr_clock_ns();
    qr_attn_plan_make(state->plan, &batch);
    double plan_us = (double)(qr_clock_ns() - start) * 1e-3;
    qr_attn_plan_cost(state->plan, &cost);
    for (int i = -1; i < state->repeats; i++) { /* the first round warms up */
        int at = i < 0 ? 0 : i;
        read[at] = read_seconds(state);
        peak[at] = fma_peak(state, qr_attn_path_name(path));
        step[at] = step_seconds(state, path);
    }
    double bytes = (double)cost.kv_bytes * LAYERS, fma = (double)cost.fma_count * LAYERS;
    double middle = median(step, state->repeats), read_middle = median(read, state->repeats);
    printf("{\"bench\":\"attention\",\"case\":\"%s\",\"path\":\"%s\",\"threads\":%d,\"min_ms\":%.3f,\"median_ms\":%.3f,"
           "\"kv_bytes\":%.0f,\"gb_per_s\":%.1f,\"read_gb_per_s\":%.1f,\"best_gb_per_s\":%.1f,\"best_read_gb_per_s\":%.1f,"
           "\"gfma_per_s\":%.1f,\"peak_gfma_per_s\":%.1f,\"items\":%u,\"plan_us\":%.1f}\n",
           name, qr_attn_path_name(path), state->threads, step[0] * 1e3, middle * 1e3, bytes, bytes / middle * 1e-9,
           bytes / read_middle * 1e-9, bytes / step[0] * 1e-9, bytes / read[0] * 1e-9, fma / middle * 1e-9,
           median(peak, state->repeats) * 1e-9, cost.item_count, plan_us);
    fflush(stdout);
}

static void bench_case(bench_state *state, const char *name) {
    static const char *const paths[] = {"avx2", "avx512"};
    qr_cpu_features features;
    qr_cpu_features_detect(&features);
    if (state->only_case && !strstr(name, state->only_case)) return;
    scatter_blocks(&state->rows);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const qr_attn_path *path = qr_attn_path_find(paths[i], &features);
        if (path && (!state->only_path || strcmp(paths[i], state->only_path) == 0)) bench_path(state, name, path);
    }
}

static void run_cases(bench_state *state) {
    static const uint32_t contexts[] = {512, 2048, 4096, 7600}, depths[] = {0, 2048, 4096};
    bench_rows *rows = &state->rows;
    char name[64];
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
        memset(rows, 0, sizeof *rows);
        add_sequence(rows, contexts[i] - 1, contexts[i], 0);
        snprintf(name, sizeof name, "decode 1 x %u", contexts[i]);
        bench_case(state, name);
    }
    memset(rows, 0, sizeof *rows);
    for (int i = 0; i < 16; i++) add_sequence(rows, 271, 272, 0);
    bench_case(state, "decode 16 x 272");
    memset(rows, 0, sizeof *rows);
    for (int i = 0; i < 16; i++) add_sequence(rows, 2303, 2304, i > 0 ? 2048 / BLOCK_TOKENS : 0);
    bench_case(state, "decode 16 sharing 2048");
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        memset(rows, 0, sizeof *rows);
        add_sequence(rows, depths[i], depths[i] + ROWS, 0);
        snprintf(name, sizeof name, "prefill 512 at %u", depths[i]);
        bench_case(state, name);
    }
}

/* Planning alone at its worst: 512 rows of 100,000 tokens, of which all but the last `own` are shared. */
static void bench_plan(uint32_t own) {
    enum { TOKENS_EACH = 100000, BLOCKS_EACH = TOKENS_EACH / BLOCK_TOKENS };
    static uint32_t sequence[ROWS], position[ROWS], table[ROWS + 1];
    quire_block_id *ids = qr_alloc_zero((size_t)ROWS * BLOCKS_EACH, sizeof *ids);
    qr_attn_limits limits = {ROWS, ROWS, TOKENS_EACH, 2};
    qr_attn_plan *plan;
    QR_ASSERT(ids && qr_attn_plan_create(&shape, &limits, &plan, NULL) == QUIRE_OK);
    for (uint32_t r = 0; r < ROWS; r++) {
        sequence[r] = r, position[r] = TOKENS_EACH - 1, table[r + 1] = (r + 1) * BLOCKS_EACH;
        for (uint32_t b = 0; b < BLOCKS_EACH; b++)
            ids[table[r] + b] = (b + 1) * BLOCK_TOKENS + own > TOKENS_EACH ? table[r] + b : b;
    }
    qr_attn_batch batch = {ROWS, ROWS, sequence, position, NULL, table, ids};
    double us[REPEATS_MAX];
    for (int i = 0; i < 9; i++) {
        uint64_t start = qr_clock_ns();
        qr_attn_plan_make(plan, &batch);
        us[i] = (double)(qr_clock_ns() - start) * 1e-3;
    }
    printf(
        "{\"bench\":\"attention_plan\",\"rows\":%d,\"tokens\":%d,\"own_tokens\":%u,\"median_us\":%.0f,\"plan_bytes\":%llu}\n",
        ROWS, TOKENS_EACH, own, median(us, 9), (unsigned long long)qr_attn_plan_bytes(&shape, &limits));
    qr_attn_plan_destroy(plan);
    free(ids);
}

/* Blocks: for each layer and head K, then V. Any finite f16 will do. */
static void make_memory(bench_state *state) {
    qr_region region;
    size_t stride = (size_t)LAYERS * KV_HEADS * 2 * PART_BYTES;
    QR_ASSERT(qr_region_alloc(BLOCKS * stride + 2 * READ_AHEAD, &region, NULL) == QUIRE_OK);
    uint16_t *half = region.base;
    for (size_t i = 0; i < BLOCKS * stride / 2; i++) half[i] = (uint16_t)(0x3000 + (i * 2654435761u >> 20 & 0x8bff));
    for (size_t i = 0; i < (size_t)LAYERS * KV_HEADS; i++) {
        state->key_offset[i] = i * 2 * PART_BYTES;
        state->value_offset[i] = (i * 2 + 1) * PART_BYTES;
    }
    state->memory = (qr_attn_memory){region.base, stride, state->key_offset, state->value_offset};
}

int main(int argc, char **argv) {
    static bench_state state;
    state.threads = argc > 1 ? atoi(argv[1]) : (int)qr_cpu_count();
    state.repeats = argc > 2 ? atoi(argv[2]) : 15;
    state.only_case = argc > 3 ? argv[3] : NULL;
    state.only_path = argc > 4 ? argv[4] : NULL;
    QR_ASSERT(state.repeats >= 1 && state.repeats <= REPEATS_MAX);
    qr_attn_limits limits = {ROWS, ROWS, TOKENS, state.threads};
    QR_ASSERT(qr_compute_pool_create(state.threads, QR_COMPUTE_SPIN_NS, &state.pool, NULL) == QUIRE_OK);
    QR_ASSERT(qr_attn_plan_create(&shape, &limits, &state.plan, NULL) == QUIRE_OK);
    make_memory(&state);
    state.q = qr_alloc_zero(ROWS * HEADS * DIM, sizeof(float));
    state.out = qr_alloc_zero(ROWS * HEADS * DIM, sizeof(float));
    QR_ASSERT(state.q && state.out);
    for (int i = 0; i < ROWS * HEADS * DIM; i++) state.q[i] = ((float)(i % 97) - 48.0f) * 0.01f;
    run_cases(&state);
    if (!state.only_case || strstr("plan", state.only_case)) {
        bench_plan(100000);
        bench_plan(1000);
    }
    qr_compute_pool_destroy(state.pool);
    qr_attn_plan_destroy(state.plan);
    return 0;
}
