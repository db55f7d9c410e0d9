/* weight_format.h - what GGUF weight blocks hold, reduced to one shape: groups of 32 codes with their scales.
 *
 * Every quantised format is, per group of 32 elements along k,
 *
 *     value = scale * (code - zero) + minimum
 *
 * with unsigned codes of 4, 5 or 6 bits (8 signed bits for Q8_0). K formats hold eight groups in a block of 256 and
 * multiply the block's f16 scale by small integers; Q6_K has two of them, one for each half of the group. Nothing here
 * knows how packed panels lie in memory (panel.h) or what a product is (matmul.h).
 *
 * Formats: ggml-org/ggml, ggml-common.h and ggml-quants.c.
 */
#ifndef QR_MODEL_CPU_WEIGHT_FORMAT_H
#define QR_MODEL_CPU_WEIGHT_FORMAT_H

#include "runtime/model/cpu/matmul.h"

enum {
    QR_GROUP = 32,         /* elements that share a scale; activations are quantised in the same groups */
    QR_SUPER_GROUPS = 8,   /* groups in a block of a K format */
    QR_CODE_BITS_FLOAT = 0 /* of a format without codes */
};

/* One group as it is stored. f16 fields are bit patterns. */
typedef struct qr_weight_group {
    uint8_t code[QR_GROUP]; /* Q8_0: the int8's bits */
    uint16_t d, m;          /* scale and minimum of the block; m is 0 where the format has none */
    uint8_t sub[2];         /* Q4_K, Q5_K: integer scale, integer minimum; Q6_K: int8 scales of the two halves */
} qr_weight_group;

/* Facts of a format. Inline, so that kernels specialised by type fold them away. */
static inline int qr_weight_code_bits(qr_weight_type type) {
    switch (type) {
    case QR_WEIGHT_Q8_0: return 8;
    case QR_WEIGHT_Q6_K: return 6;
    case QR_WEIGHT_Q5_0:
    case QR_WEIGHT_Q5_1:
    case QR_WEIGHT_Q5_K: return 5;
    case QR_WEIGHT_Q4_0:
    case QR_WEIGHT_Q4_1:
    case QR_WEIGHT_Q4_K: return 4;
    default: return QR_CODE_BITS_FLOAT;
    }
}

/* The code that stands for 0: the weight is code - zero. */
static inline int qr_weight_zero_code(qr_weight_type type) {
    switch (type) {
    case QR_WEIGHT_Q4_0: return 8;
    case QR_WEIGHT_Q5_0: return 16;
    case QR_WEIGHT_Q6_K: return 32;
    default: return 0;
    }
}

static inline bool qr_weight_has_minimum(qr_weight_type type) {
    return type == QR_WEIGHT_Q4_1 || type == QR_WEIGHT_Q5_1 || type == QR_WEIGHT_Q4_K || type == QR_WEIGHT_Q5_K;
}

static inline bool qr_weight_is_k(qr_weight_type type) {
    return type == QR_WEIGHT_Q4_K || type == QR_WEIGHT_Q5_K || type == QR_WEIGHT_Q6_K;
}

/* Reads group `group` of a row of blocks. Quantised types only. */
void qr_weight_read_group(qr_weight_type type, const uint8_t *row, uint32_t group, qr_weight_group *out);
/* Code k of a group as the integer weight. */
int qr_weight_integer(qr_weight_type type, const qr_weight_group *group, int k);
/* fp32 scale and minimum of half `half` (0 or 1) of the group; both exact (docs/NUMERICS.md). */
float qr_weight_scale(qr_weight_type type, const qr_weight_group *group, int half);
float qr_weight_minimum(qr_weight_type type, const qr_weight_group *group);
/* The 32 values, each rounded once. */
void qr_weight_group_values(qr_weight_type type, const qr_weight_group *group, float *out);
/* Element `index` of a row of floats. */
float qr_weight_read_float(qr_weight_type type, const uint8_t *row, size_t index);
/* Bytes of one element of a float format. */
uint32_t qr_weight_float_bytes(qr_weight_type type);
#endif
