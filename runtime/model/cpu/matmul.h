/* matmul.h - products with (quantised) weights: y [m][n] = x [m][k] * W [n][k]^T, the same bits on every path.
 *
 * Weights are repacked at load into panels of 16 output rows, so vector lanes are output rows and no path ever adds
 * across lanes. Activations for quantised weights are int8 in groups of 32 along k with fp32 scales. The order of every
 * rounding is fixed by docs/NUMERICS.md.
 */
#ifndef QR_MODEL_CPU_MATMUL_H
#define QR_MODEL_CPU_MATMUL_H

#include <quire/status.h>
#include <stdbool.h>

typedef enum qr_weight_type {
    QR_WEIGHT_F32,
    QR_WEIGHT_F16,
    QR_WEIGHT_BF16,
    QR_WEIGHT_Q8_0,
    QR_WEIGHT_Q4_0,
    QR_WEIGHT_Q4_1,
    QR_WEIGHT_Q5_0,
    QR_WEIGHT_Q5_1,
    QR_WEIGHT_Q4_K,
    QR_WEIGHT_Q5_K,
    QR_WEIGHT_Q6_K,
    QR_WEIGHT_TYPE_COUNT
} qr_weight_type;

const char *qr_weight_type_name(qr_weight_type type); /* "F32", "Q4_K", ... */
bool qr_weight_is_float(qr_weight_type type);         /* takes fp32 activations */
/* GGUF storage: elements and bytes of one block along k (32 or 256 elements; 1 for floats). */
uint32_t qr_weight_block_elements(qr_weight_type type);
uint32_t qr_weight_block_bytes(qr_weight_type type);

/* A packed matrix. n is padded to 16 with zero rows inside the panels. */
typedef struct qr_matrix {
    qr_weight_type type;
    uint32_t n, k;      /* k: multiple of the type's block (any k for floats) */
    size_t panel_bytes; /* of 16 output rows */
    const uint8_t
        *panels; /* [(n + 15) / 16][panel_bytes], 64-byte aligned, borrowed; QR_MATRIX_READ_AHEAD readable bytes follow */
} qr_matrix;

enum { QR_MATRIX_READ_AHEAD = 16384 };

/* Bytes of a packed matrix; 0 when the shape is invalid or overflows. */
size_t qr_matrix_packed_bytes(qr_weight_type type, uint32_t n, uint32_t k);
/* Describes packed storage; writes nothing. */
void qr_matrix_init(qr_matrix *matrix, qr_weight_type type, uint32_t n, uint32_t k, uint8_t *packed);
/* Repacks GGUF rows [row_begin, row_begin + row_count) given at `source` into `packed` (zeroed before the first call). Rows
 * may come from several tensors of one type: q, k and v are fused this way. row_begin may be any row. */
void qr_matrix_pack(const qr_matrix *matrix, uint8_t *packed, uint32_t row_begin, uint32_t row_count, const void *source);
/* One row as fp32 [k] (embedding lookup): exactly the values the format defines, each rounded once to fp32. */
void qr_matrix_row(const qr_matrix *matrix, uint32_t row, float *out);
/* GGUF storage to fp32, the same values. count is a multiple of the block. */
void qr_weight_dequantize(qr_weight_type type, const void *source, size_t count, float *out);

/* ---- activations ---- */

/* One step's input rows of a product: fp32, and for quantised weights also int8 groups. */
typedef struct qr_acts {
    uint32_t m, k;
    const float *x; /* [m][ldx], borrowed; read by products with float weights */
    size_t ldx;
    int8_t *q;    /* tiles of 16 rows: [tile][k/32][16][32] */
    void *scales; /* planes of the same tiles; layout private to the paths */
} qr_acts;

size_t qr_acts_bytes(uint32_t m_max, uint32_t k);
void qr_acts_init(qr_acts *acts, uint32_t m, uint32_t k, const float *x, size_t ldx, void *memory);

enum { QR_MATMUL_K_MAX = 65536 };
size_t qr_matmul_scratch_bytes(uint32_t k); /* per thread, 64-byte aligned */

/* ---- one instruction set's operations; every path gives the same bits ---- */
typedef struct qr_ops_path {
    const char *name; /* "scalar", "avx2", "avx512vnni" (place kept for "amx") */
    /* Quantises rows [row_begin, row_end). k is a multiple of 32. */
    void (*quantize)(qr_acts *acts, uint32_t row_begin, uint32_t row_end);
    /* Output panels [panel_begin, panel_end) of y [m][ldy]; columns past n are not written. */
    void (*matmul)(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t panel_begin, uint32_t panel_end,
                   void *scratch);
    /* Small operations between products (runtime/model/cpu/ops.inc, one source compiled per instruction set). */
    /* y = x / sqrt(mean(x^2) + eps) * w; n any; y may be x */
    void (*rmsnorm)(float *y, const float *x, const float *w, uint32_t n, float eps);
    void (*add)(float *x, const float *y, uint32_t n);                          /* x += y */
    void (*silu_mul)(float *y, const float *gate, const float *up, uint32_t n); /* silu(gate) * up; y may be either */
    /* Turns pairs (2i, 2i+1) of the first `rotated` elements of each head by table [rotated/2][2] (cos, sin), copies the rest,
     * then multiplies all by scale. x, y [heads][head_dim]; y may be x. */
    void (*rope)(float *y, const float *x, const float *table, uint32_t heads, uint32_t head_dim, uint32_t rotated,
                 float scale);
    float (*max)(const float *x, uint32_t n); /* order-free, +0 above -0; NaN if any is NaN */
} qr_ops_path;

struct qr_cpu_features;
/* NULL when unknown or not usable on this machine. */
const qr_ops_path *qr_ops_path_find(const char *name, const struct qr_cpu_features *features);

/* RoPE table of one position [rotated/2][2] = cos, sin; own routines, no libm, the same bits everywhere.
 * inv_freq [rotated/2] in double. */
void qr_rope_row(float *table, uint32_t position, const double *inv_freq, uint32_t rotated);
/* inv_freq of a model: base^(-2i/rotated) / linear_scale, then divided by factors[i] (Llama 3) where given.
 * 1 <= base < 2^512, linear_scale > 0: the caller has checked what a file says. */
void qr_rope_frequencies(double *inv_freq, uint32_t rotated, double base, double linear_scale, const float *factors);
#endif
