/* matmul_cases.h - random packed matrices and activation rows for the tests of runtime/model/cpu: every format, and rows that
 * have broken such code before. */
#ifndef QR_TESTS_MATMUL_CASES_H
#define QR_TESTS_MATMUL_CASES_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu_features.h"
#include "base/float16.h"
#include "base/memory.h"
#include "base/random.h"
#include "runtime/model/cpu/matmul.h"

static inline float case_unit(qr_random *r) { return (float)(2.0 * qr_random_unit(r) - 1.0); }

/* Sets the f16 scales of a block to ordinary values; codes and sub scales stay whatever the bytes were. */
static inline void case_set_scales(qr_weight_type type, uint8_t *block, qr_random *r) {
    uint16_t d = qr_f32_to_f16(case_unit(r) * 0.02f), m = qr_f32_to_f16(case_unit(r) * 0.1f);
    memcpy(block + (type == QR_WEIGHT_Q6_K ? 208 : 0), &d, 2);
    bool minimum = type == QR_WEIGHT_Q4_1 || type == QR_WEIGHT_Q5_1 || type == QR_WEIGHT_Q4_K || type == QR_WEIGHT_Q5_K;
    if (minimum) memcpy(block + 2, &m, 2);
}

/* Weight rows in GGUF storage; fill < 0 means random bytes, else every byte that is not a scale has that value. Gives memory
 * for free(). */
static inline uint8_t *case_weights(qr_weight_type type, uint32_t n, uint32_t k, int fill, qr_random *r) {
    size_t blocks = (size_t)n * (k / qr_weight_block_elements(type)), bytes = qr_weight_block_bytes(type);
    uint8_t *raw = malloc(blocks * bytes);
    for (size_t b = 0; b < blocks; b++) {
        uint8_t *block = raw + b * bytes;
        for (size_t i = 0; i < bytes; i++) block[i] = fill < 0 ? (uint8_t)qr_random_u64(r) : (uint8_t)fill;
        float x = case_unit(r);
        uint16_t half = type == QR_WEIGHT_F16 ? qr_f32_to_f16(x) : qr_f32_to_bf16(x);
        if (type == QR_WEIGHT_F32) memcpy(block, &x, 4);
        else if (qr_weight_is_float(type)) memcpy(block, &half, 2);
        else case_set_scales(type, block, r);
    }
    return raw;
}

typedef struct case_matrix {
    qr_matrix matrix;
    uint8_t *raw, *packed; /* free() */
} case_matrix;

static inline case_matrix case_matrix_make(qr_weight_type type, uint32_t n, uint32_t k, int fill, qr_random *r) {
    case_matrix c = {.raw = case_weights(type, n, k, fill, r)};
    c.packed = qr_alloc_zero(qr_matrix_packed_bytes(type, n, k) + QR_MATRIX_READ_AHEAD, 1);
    qr_matrix_init(&c.matrix, type, n, k, c.packed);
    qr_matrix_pack(&c.matrix, c.packed, 0, n, c.raw);
    return c;
}

static inline void case_matrix_free(case_matrix *c) {
    free(c->raw);
    free(c->packed);
}

/* Kinds of activation rows. */
typedef enum case_rows {
    CASE_ORDINARY,
    CASE_ONES,      /* every q is 127: the largest sums */
    CASE_ALTERNATE, /* 127, -127 */
    CASE_MIXED,     /* groups of zeros, tiny, subnormal and huge values among ordinary ones */
    CASE_BROKEN,    /* a NaN in the first row and an infinity in the last */
    CASE_ROWS_COUNT
} case_rows;

static inline float case_mixed_value(float v, uint32_t group) {
    static const float factor[] = {1.0f, 0.0f, 1e-22f, 1e-40f, 1e30f, 1e-19f, 3e37f};
    return v * factor[group % 7];
}

/* Gives x [m][k] for free(). */
static inline float *case_x(uint32_t m, uint32_t k, case_rows kind, qr_random *r) {
    float *x = malloc(sizeof *x * m * k);
    for (uint32_t row = 0; row < m; row++)
        for (uint32_t i = 0; i < k; i++) {
            float v = case_unit(r) * expf(4.0f * case_unit(r));
            if (kind == CASE_ONES) v = 1.0f;
            if (kind == CASE_ALTERNATE) v = i % 2 ? 1.0f : -1.0f;
            if (kind == CASE_MIXED) v = case_mixed_value(v, i / 32 + row);
            x[(size_t)row * k + i] = v;
        }
    if (kind == CASE_BROKEN) x[k / 2] = NAN, x[(size_t)m * k - 1] = -INFINITY;
    return x;
}

/* Runs one path over all panels: y [m][ldy], ldy >= n. Memory of the activations is filled with junk first. */
static inline void case_product(const qr_ops_path *path, const qr_matrix *w, uint32_t m, const float *x, float *y, size_t ldy) {
    size_t bytes = qr_acts_bytes(m, w->k), scratch_bytes = qr_matmul_scratch_bytes(w->k);
    uint8_t *memory = qr_alloc_zero(bytes + 64, 1), *scratch = qr_alloc_zero(scratch_bytes, 1);
    memset(memory, 0x5a, bytes);
    qr_acts acts;
    qr_acts_init(&acts, m, w->k, x, w->k, memory);
    if (!qr_weight_is_float(w->type)) path->quantize(&acts, 0, m);
    path->matmul(w, &acts, y, ldy, 0, (w->n + 15) / 16, scratch);
    free(memory);
    free(scratch);
}

/* Values whose bits differ; a NaN equals any NaN, since its payload is not defined. */
static inline size_t case_differences(const float *a, const float *b, size_t n) {
    size_t bad = 0;
    for (size_t i = 0; i < n; i++) bad += qr_f32_bits(a[i]) != qr_f32_bits(b[i]) && !(isnan(a[i]) && isnan(b[i]));
    return bad;
}

/* Paths of this machine, scalar first. */
enum { CASE_PATHS_MAX = 4 };
static inline int case_paths(const qr_ops_path *out[CASE_PATHS_MAX]) {
    static const char *const names[] = {"scalar", "avx2", "avx512vnni"};
    qr_cpu_features features;
    qr_cpu_features_detect(&features);
    int count = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((out[count] = qr_ops_path_find(names[i], &features))) count++;
    return count;
}
#endif
