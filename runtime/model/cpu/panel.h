/* panel.h - how packed weights and quantised activations lie in memory. Private to runtime/model/cpu.
 *
 * A panel holds 16 output rows side by side. Panels follow one another; inside one, planes:
 *
 *     d      [blocks][16] f16     blocks = k/32, or k/256 for K formats
 *     m      [blocks][16] f16     formats with a minimum
 *     sub    [k/32][2][16] u8     K formats: scale and minimum; Q6_K: int8 scales of the two halves
 *     (pad to 64)
 *     codes  [k/32][code bytes]
 *
 *     8 bits: [8][16][4]          line c: elements 4c .. 4c+3 of 16 rows
 *     4 bits: [4][16][4]          line c: low nibble element 4c+j, high nibble element 16+4c+j
 *     5 bits: 4 bits, then [16][4]:     bit c of the byte is the fifth bit of element 4c+j, c = 0..7
 *     6 bits: 4 bits, then [2][16][4]:  bits 2c, 2c+1 belong to element 16*half + 4c+j, c = 0..3
 *
 *     floats: [k][16] in their own width, the panel padded to 64
 *
 * A 64-byte line of codes, unpacked, is one operand of a four-way dot product, and eight are one AMX B tile. The elements of a
 * low nibble are the first half of the group, which is what Q6_K's two scales ask for.
 *
 * Activations: tiles of 16 rows, per group 512 bytes q [16][32] (one AMX A tile) and one qr_act_scales. Rows past m are
 * never read for a result and may hold anything.
 */
#ifndef QR_MODEL_CPU_PANEL_H
#define QR_MODEL_CPU_PANEL_H

#include "runtime/model/cpu/weight_format.h"

enum {
    QR_PANEL_ROWS = 16,
    QR_TILE_ROWS = 16,
    QR_TILE_GROUP_BYTES = QR_TILE_ROWS * QR_GROUP,
    QR_LINE = 64,
};

/* Per row of a tile and group. Sums are of the int8 values; -128 times them is exact and is what the Q8_0 product on VNNI
 * starts from; other zero codes are powers of two, one shift away. */
typedef struct qr_act_scales {
    float scale[QR_TILE_ROWS];      /* a */
    float bias[QR_TILE_ROWS];       /* a * (float)sum */
    int32_t n128[QR_TILE_ROWS];     /* -128 * sum */
    int32_t n128_low[QR_TILE_ROWS]; /* -128 * sum of the first 16 */
} qr_act_scales;

/* A group's bounds: an amplitude below 2^-64 is zero, so that later products stay away from subnormals; infinity or NaN makes
 * the row NaN (docs/NUMERICS.md). */
#define QR_ACT_TINY_BITS 0x1f800000u
#define QR_ACT_INFINITY_BITS 0x7f800000u
#define QR_ACT_NAN_BITS 0x7fc00000u
#define QR_ACT_STEPS 127.0f
#define QR_ACT_RECIPROCAL 0x1.020408p-7f /* 1/127 rounded */

/* Where the planes of a panel begin, in bytes. */
typedef struct qr_panel_planes {
    size_t m, sub, codes, end;
} qr_panel_planes;

static inline uint32_t qr_panel_code_bytes(qr_weight_type type) {
    switch (qr_weight_code_bits(type)) {
    case 8: return 8 * QR_LINE;
    case 6: return 6 * QR_LINE;
    case 5: return 5 * QR_LINE;
    default: return 4 * QR_LINE;
    }
}

static inline uint32_t qr_panel_blocks(qr_weight_type type, uint32_t k) {
    return k / (qr_weight_is_k(type) ? QR_GROUP * QR_SUPER_GROUPS : QR_GROUP);
}

/* Quantised types only. */
static inline qr_panel_planes qr_panel_planes_of(qr_weight_type type, uint32_t k) {
    size_t groups = k / QR_GROUP, plane = (size_t)qr_panel_blocks(type, k) * QR_PANEL_ROWS * 2;
    qr_panel_planes p = {.m = plane};
    p.sub = qr_weight_has_minimum(type) ? 2 * plane : plane;
    size_t scales = p.sub + (qr_weight_is_k(type) ? groups * QR_PANEL_ROWS * 2 : 0);
    p.codes = (scales + QR_LINE - 1) / QR_LINE * QR_LINE;
    p.end = p.codes + groups * qr_panel_code_bytes(type);
    return p;
}

/* Group `group` of row `lane` out of a panel (the slow way: scalar products, embedding rows). */
void qr_panel_get_group(qr_weight_type type, uint32_t k, const uint8_t *panel, uint32_t lane, uint32_t group,
                        qr_weight_group *out);

static inline size_t qr_act_cell(const qr_acts *acts, uint32_t row, uint32_t group) {
    return (size_t)(row / QR_TILE_ROWS) * (acts->k / QR_GROUP) + group;
}

static inline int8_t *qr_act_codes(const qr_acts *acts, uint32_t row, uint32_t group) {
    return acts->q + qr_act_cell(acts, row, group) * QR_TILE_GROUP_BYTES + row % QR_TILE_ROWS * QR_GROUP;
}

static inline qr_act_scales *qr_act_scales_at(const qr_acts *acts, uint32_t row, uint32_t group) {
    return (qr_act_scales *)acts->scales + qr_act_cell(acts, row, group);
}
#endif
