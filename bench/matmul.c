/* matmul.c - weight products of a whole model step, beside a read loop over the same bytes in the same minute.
 *
 *   bench_matmul [layer type, default Q4_1] [threads, default all] [path, default each]
 *
 * Shapes are SmolLM2-135M's: 30 layers of 576 with 1536 hidden, and a Q8_0 head of 49152 rows. One JSON line per path and
 * number of rows m. Every repetition runs the read loop, the layers and the head in turn; times are minima and medians.
 * Past 16 rows the head computes one row, as in a prefill. Only products: no attention, no sampling.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compute_pool.h"
#include "base/cpu_features.h"
#include "base/float16.h"
#include "base/memory.h"
#include "base/random.h"
#include "runtime/model/cpu/matmul.h"

enum { LAYERS = 30, EMBEDDING = 576, QKV = 960, HIDDEN = 1536, VOCABULARY = 49152, PRODUCTS = 4, ROWS_MAX = 512 };
enum { REPETITIONS = 15, REPETITIONS_SLOW = 3, SLOW_ROWS = 64, HEAD_ROWS_MAX = 16 };

static const uint32_t SHAPES[PRODUCTS][2] = {
    {QKV, EMBEDDING}, {EMBEDDING, EMBEDDING}, {2 * HIDDEN, EMBEDDING}, {EMBEDDING, HIDDEN}};

typedef struct stack {
    qr_region region;
    size_t layer_bytes, bytes;
    qr_matrix layers[LAYERS][PRODUCTS], head;
    qr_compute_pool *pool;
    uint8_t *scratch;
    size_t scratch_bytes;
    float *x, *y;
    void *acts_memory[3];
    qr_acts narrow, wide, head_acts;
} stack;

static void *must(void *p) {
    if (p) return p;
    fputs("out of memory\n", stderr);
    exit(1);
}

/* ---- weights ---- */

static void set_half(uint8_t *at, double value) {
    uint16_t h = qr_f32_to_f16((float)value);
    memcpy(at, &h, 2);
}

/* Random codes with ordinary scales. */
static uint8_t *random_rows(qr_weight_type type, uint32_t n, uint32_t k, qr_random *r) {
    size_t bytes = qr_weight_block_bytes(type), blocks = (size_t)n * (k / qr_weight_block_elements(type));
    uint8_t *raw = must(malloc(blocks * bytes));
    for (size_t i = 0; i < blocks * bytes; i++) raw[i] = (uint8_t)qr_random_u64(r);
    for (size_t b = 0; b < blocks; b++) {
        uint8_t *block = raw + b * bytes;
        if (type == QR_WEIGHT_F32) memcpy(block, &(float){(float)qr_random_unit(r)}, 4);
        else if (type == QR_WEIGHT_BF16) block[1] &= 0x3f;
        else set_half(block + (type == QR_WEIGHT_Q6_K ? 208 : 0), 0.01 * qr_random_unit(r));
        if (bytes > 4 && type != QR_WEIGHT_Q6_K && type != QR_WEIGHT_Q8_0) set_half(block + 2, -0.05 * qr_random_unit(r));
    }
    return raw;
}

static uint8_t *make_matrix(qr_matrix *m, qr_weight_type type, uint32_t n, uint32_t k, uint8_t *at, qr_random *r) {
    uint8_t *raw = random_rows(type, n, k, r);
    qr_matrix_init(m, type, n, k, at);
    qr_matrix_pack(m, at, 0, n, raw);
    free(raw);
    return at + qr_matrix_packed_bytes(type, n, k);
}

static void make_stack(stack *s, qr_weight_type type) {
    size_t layer = 0;
    for (int i = 0; i < PRODUCTS; i++) layer += qr_matrix_packed_bytes(type, SHAPES[i][0], SHAPES[i][1]);
    s->layer_bytes = LAYERS * layer;
    s->bytes = s->layer_bytes + qr_matrix_packed_bytes(QR_WEIGHT_Q8_0, VOCABULARY, EMBEDDING);
    if (qr_region_alloc(s->bytes + QR_MATRIX_READ_AHEAD, &s->region, NULL) != QUIRE_OK) must(NULL);
    uint8_t *at = s->region.base;
    qr_random r = {1};
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < PRODUCTS; i++) at = make_matrix(&s->layers[l][i], type, SHAPES[i][0], SHAPES[i][1], at, &r);
    make_matrix(&s->head, QR_WEIGHT_Q8_0, VOCABULARY, EMBEDDING, at, &r);
}

static void make_rows(stack *s) {
    s->x = must(qr_alloc_zero((size_t)ROWS_MAX * HIDDEN, sizeof(float)));
    s->y = must(qr_alloc_zero((size_t)HEAD_ROWS_MAX * VOCABULARY + (size_t)ROWS_MAX * 2 * HIDDEN, sizeof(float)));
    qr_random r = {2};
    for (int i = 0; i < ROWS_MAX * HIDDEN; i++) s->x[i] = (float)(2.0 * qr_random_unit(&r) - 1.0);
    s->acts_memory[0] = must(qr_alloc_zero(qr_acts_bytes(ROWS_MAX, EMBEDDING), 1));
    s->acts_memory[1] = must(qr_alloc_zero(qr_acts_bytes(ROWS_MAX, HIDDEN), 1));
    s->acts_memory[2] = must(qr_alloc_zero(qr_acts_bytes(HEAD_ROWS_MAX, EMBEDDING), 1));
    s->scratch_bytes = qr_matmul_scratch_bytes(HIDDEN);
    s->scratch = must(qr_alloc_zero(s->scratch_bytes * (size_t)qr_compute_pool_threads(s->pool), 1));
}

/* ---- products ---- */

typedef struct product_job {
    const stack *s;
    const qr_ops_path *path;
    const qr_matrix *w;
    const qr_acts *acts;
    uint32_t pieces;
} product_job;

static void product_piece(void *argument, int piece, int thread) {
    const product_job *j = argument;
    uint32_t panels = (j->w->n + 15) / 16, begin = panels * (uint32_t)piece / j->pieces;
    uint32_t end = panels * ((uint32_t)piece + 1) / j->pieces;
    j->path->matmul(j->w, j->acts, j->s->y, j->w->n, begin, end, j->s->scratch + (size_t)thread * j->s->scratch_bytes);
}

/* Large products are cut finer, so that a delayed thread costs less. */
static void product(const stack *s, const qr_ops_path *path, const qr_matrix *w, const qr_acts *acts) {
    uint32_t threads = (uint32_t)qr_compute_pool_threads(s->pool), fine = w->n >= 16384 || acts->m >= SLOW_ROWS ? 4 : 1;
    product_job j = {s, path, w, acts, threads * fine};
    qr_compute_pool_run(s->pool, product_piece, &j, (int)j.pieces);
}

static double run_layers(const stack *s, const qr_ops_path *path) {
    uint64_t begin = qr_clock_ns();
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < PRODUCTS; i++) product(s, path, &s->layers[l][i], i == PRODUCTS - 1 ? &s->wide : &s->narrow);
    return (double)(qr_clock_ns() - begin) * 1e-9;
}

static double run_head(const stack *s, const qr_ops_path *path) {
    uint64_t begin = qr_clock_ns();
    product(s, path, &s->head, &s->head_acts);
    return (double)(qr_clock_ns() - begin) * 1e-9;
}

/* ---- read loop: the floor ---- */

typedef struct read_job {
    const uint8_t *base;
    size_t share;
    uint64_t *sums;
} read_job;

static void read_piece(void *argument, int piece, int thread) {
    const read_job *j = argument;
    typedef uint64_t lane4 __attribute__((vector_size(32), may_alias));
    const lane4 *p = (const lane4 *)(const void *)(j->base + (size_t)piece * j->share);
    lane4 sum[4] = {{0}, {0}, {0}, {0}};
    for (size_t i = 0; i < j->share / sizeof *p; i += 4) {
        __builtin_prefetch((const uint8_t *)(p + i) + 4096);
        __builtin_prefetch((const uint8_t *)(p + i) + 4096 + 64);
        for (int k = 0; k < 4; k++) sum[k] += p[i + (size_t)k];
    }
    sum[0] += sum[1] + sum[2] + sum[3];
    j->sums[thread * 8] += sum[0][0] ^ sum[0][1] ^ sum[0][2] ^ sum[0][3];
}

static double run_read(const stack *s, uint64_t *sums) {
    int threads = qr_compute_pool_threads(s->pool);
    read_job j = {s->region.base, s->bytes / (size_t)threads / 4096 * 4096, sums};
    uint64_t begin = qr_clock_ns();
    qr_compute_pool_run(s->pool, read_piece, &j, threads);
    return (double)(qr_clock_ns() - begin) * 1e-9;
}

/* ---- measuring ---- */

typedef struct series {
    double seconds[REPETITIONS];
    int count;
} series;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void series_sort(series *s) { qsort(s->seconds, (size_t)s->count, sizeof *s->seconds, by_value); }
static double series_median(const series *s) { return s->seconds[s->count / 2]; }

static void print_row(const stack *s, const char *type, const char *path, uint32_t m, const series all, const series layers,
                      const series head, const series read) {
    double gb = (double)s->bytes * 1e-9;
    printf("{\"bench\":\"matmul\",\"type\":\"%s\",\"path\":\"%s\",\"threads\":%d,\"m\":%u,\"head_rows\":%u,\"mb\":%.1f,"
           "\"min_ms\":%.3f,\"median_ms\":%.3f,\"layers_ms\":%.3f,\"head_ms\":%.3f,\"gb_per_s\":%.1f,\"tokens_per_s\":%.0f,"
           "\"read_min_gb_per_s\":%.1f,\"read_median_gb_per_s\":%.1f}\n",
           type, path, qr_compute_pool_threads(s->pool), m, s->head_acts.m, gb * 1e3, all.seconds[0] * 1e3,
           series_median(&all) * 1e3, series_median(&layers) * 1e3, series_median(&head) * 1e3, gb / series_median(&all),
           m / series_median(&all), gb / read.seconds[read.count - 1], gb / series_median(&read));
    fflush(stdout);
}

static void bench_rows(stack *s, const char *type, const qr_ops_path *path, uint32_t m) {
    uint32_t head_rows = m <= HEAD_ROWS_MAX ? m : 1;
    qr_acts_init(&s->narrow, m, EMBEDDING, s->x, HIDDEN, s->acts_memory[0]);
    qr_acts_init(&s->wide, m, HIDDEN, s->x, HIDDEN, s->acts_memory[1]);
    qr_acts_init(&s->head_acts, head_rows, EMBEDDING, s->x, HIDDEN, s->acts_memory[2]);
    path->quantize(&s->narrow, 0, m);
    path->quantize(&s->wide, 0, m);
    path->quantize(&s->head_acts, 0, head_rows);
    uint64_t sums[QR_COMPUTE_THREADS_MAX * 8] = {0};
    series all = {.count = m >= SLOW_ROWS || path->name[0] == 's' ? REPETITIONS_SLOW : REPETITIONS}, layers = all, head = all,
           read = all;
    for (int i = -1; i < all.count; i++) {
        int at = i < 0 ? 0 : i; /* the first is a warm-up */
        read.seconds[at] = run_read(s, sums);
        layers.seconds[at] = run_layers(s, path);
        head.seconds[at] = run_head(s, path);
        all.seconds[at] = layers.seconds[at] + head.seconds[at];
    }
    series_sort(&all), series_sort(&layers), series_sort(&head), series_sort(&read);
    print_row(s, type, path->name, m, all, layers, head, read);
}

static qr_weight_type parse_type(const char *name) {
    for (int t = 0; t < QR_WEIGHT_TYPE_COUNT; t++)
        if (strcmp(qr_weight_type_name((qr_weight_type)t), name) == 0) return (qr_weight_type)t;
    fprintf(stderr, "unknown type %s\n", name);
    exit(2);
}

int main(int argc, char **argv) {
    static const uint32_t rows[] = {1, 2, 4, 8, 16, 64, 512};
    static const char *const paths[] = {"avx512vnni", "avx2", "scalar"};
    const char *type = argc > 1 ? argv[1] : "Q4_1";
    int threads = argc > 2 ? atoi(argv[2]) : (int)qr_cpu_count();
    qr_cpu_features features;
    qr_cpu_features_detect(&features);
    static stack s;
    make_stack(&s, parse_type(type));
    if (qr_compute_pool_create(threads, QR_COMPUTE_SPIN_NS, &s.pool, NULL) != QUIRE_OK) must(NULL);
    make_rows(&s);
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        const qr_ops_path *path = qr_ops_path_find(paths[p], &features);
        if (!path || (argc > 3 && strcmp(argv[3], paths[p]) != 0)) continue;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            if (rows[i] == 1 || p < 2) bench_rows(&s, type, path, rows[i]);
    }
    qr_compute_pool_destroy(s.pool);
    qr_region_free(&s.region);
    return 0;
}
