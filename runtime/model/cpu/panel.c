/* panel.c - GGUF rows into panels of 16 output rows, rows out of panels again, and the activations' buffer. */
#include "runtime/model/cpu/panel.h"

#include <string.h>

#include "base/assertion.h"
#include "base/checked.h"

static size_t panel_bytes(qr_weight_type type, uint32_t k) {
    if (!qr_weight_is_float(type)) return qr_panel_planes_of(type, k).end;
    return qr_align_up((size_t)k * QR_PANEL_ROWS * qr_weight_float_bytes(type), QR_LINE);
}

size_t qr_matrix_packed_bytes(qr_weight_type type, uint32_t n, uint32_t k) {
    size_t bytes = 0;
    if (n == 0 || k == 0 || k % qr_weight_block_elements(type) != 0) return 0;
    (void)qr_mul_size(panel_bytes(type, k), (size_t)qr_div_up(n, QR_PANEL_ROWS), &bytes);
    return bytes;
}

void qr_matrix_init(qr_matrix *matrix, qr_weight_type type, uint32_t n, uint32_t k, uint8_t *packed) {
    QR_ASSERT(qr_matrix_packed_bytes(type, n, k) != 0);
    QR_ASSERT((uintptr_t)packed % QR_LINE == 0);
    *matrix = (qr_matrix){.type = type, .n = n, .k = k, .panel_bytes = panel_bytes(type, k), .panels = packed};
}

/* ---- codes of one group and lane ---- */

/* Offset of element k of a row inside lines of [16 rows][4]; nibble lines repeat after 16 elements. */
static size_t line_at(uint32_t lane, int k) { return (size_t)(k / 4) * QR_LINE + lane * 4 + (size_t)(k % 4); }

static void put_codes(int bits, uint8_t *lines, uint32_t lane, const uint8_t *code) {
    uint8_t *high = lines + 4 * QR_LINE;
    for (int k = 0; k < QR_GROUP; k++) {
        size_t within = lane * 4 + (size_t)(k % 4);
        if (bits == 8) {
            lines[line_at(lane, k)] = code[k];
            continue;
        }
        lines[line_at(lane, k % 16)] |= (uint8_t)((code[k] & 15) << (k < 16 ? 0 : 4));
        if (bits == 5) high[within] |= (uint8_t)(code[k] >> 4 << (k / 4));
        if (bits == 6) high[(size_t)(k / 16) * QR_LINE + within] |= (uint8_t)(code[k] >> 4 << (k % 16 / 4 * 2));
    }
}

static void get_codes(int bits, const uint8_t *lines, uint32_t lane, uint8_t *code) {
    const uint8_t *high = lines + 4 * QR_LINE;
    for (int k = 0; k < QR_GROUP; k++) {
        size_t within = lane * 4 + (size_t)(k % 4);
        if (bits == 8) {
            code[k] = lines[line_at(lane, k)];
            continue;
        }
        code[k] = lines[line_at(lane, k % 16)] >> (k < 16 ? 0 : 4) & 15;
        if (bits == 5) code[k] |= (uint8_t)((high[within] >> (k / 4) & 1) << 4);
        if (bits == 6) code[k] |= (uint8_t)((high[(size_t)(k / 16) * QR_LINE + within] >> (k % 16 / 4 * 2) & 3) << 4);
    }
}

/* ---- one group and lane with its scales ---- */

static size_t block_of(qr_weight_type type, uint32_t group) { return qr_weight_is_k(type) ? group / QR_SUPER_GROUPS : group; }

static void put_group(const qr_matrix *w, uint8_t *panel, uint32_t lane, uint32_t group, const qr_weight_group *in) {
    qr_panel_planes planes = qr_panel_planes_of(w->type, w->k);
    size_t at = (block_of(w->type, group) * QR_PANEL_ROWS + lane) * 2;
    memcpy(panel + at, &in->d, 2);
    if (qr_weight_has_minimum(w->type)) memcpy(panel + planes.m + at, &in->m, 2);
    if (qr_weight_is_k(w->type)) {
        uint8_t *sub = panel + planes.sub + (size_t)group * 2 * QR_PANEL_ROWS + lane;
        sub[0] = in->sub[0];
        sub[QR_PANEL_ROWS] = in->sub[1];
    }
    uint8_t *lines = panel + planes.codes + (size_t)group * qr_panel_code_bytes(w->type);
    put_codes(qr_weight_code_bits(w->type), lines, lane, in->code);
}

void qr_panel_get_group(qr_weight_type type, uint32_t k, const uint8_t *panel, uint32_t lane, uint32_t group,
                        qr_weight_group *out) {
    qr_panel_planes planes = qr_panel_planes_of(type, k);
    size_t at = (block_of(type, group) * QR_PANEL_ROWS + lane) * 2;
    *out = (qr_weight_group){0};
    memcpy(&out->d, panel + at, 2);
    if (qr_weight_has_minimum(type)) memcpy(&out->m, panel + planes.m + at, 2);
    if (qr_weight_is_k(type)) {
        const uint8_t *sub = panel + planes.sub + (size_t)group * 2 * QR_PANEL_ROWS + lane;
        out->sub[0] = sub[0];
        out->sub[1] = sub[QR_PANEL_ROWS];
    }
    get_codes(qr_weight_code_bits(type), panel + planes.codes + (size_t)group * qr_panel_code_bytes(type), lane, out->code);
}

/* ---- rows ---- */

static void pack_float_row(const qr_matrix *w, uint8_t *panel, uint32_t lane, const uint8_t *source) {
    size_t width = qr_weight_float_bytes(w->type);
    for (size_t k = 0; k < w->k; k++) memcpy(panel + (k * QR_PANEL_ROWS + lane) * width, source + k * width, width);
}

static void pack_row(const qr_matrix *w, uint8_t *panel, uint32_t lane, const uint8_t *source) {
    if (qr_weight_is_float(w->type)) {
        pack_float_row(w, panel, lane, source);
        return;
    }
    for (uint32_t group = 0; group < w->k / QR_GROUP; group++) {
        qr_weight_group g;
        qr_weight_read_group(w->type, source, group, &g);
        put_group(w, panel, lane, group, &g);
    }
}

void qr_matrix_pack(const qr_matrix *matrix, uint8_t *packed, uint32_t row_begin, uint32_t row_count, const void *source) {
    QR_ASSERT(row_begin <= matrix->n && row_count <= matrix->n - row_begin);
    size_t row_bytes = (size_t)(matrix->k / qr_weight_block_elements(matrix->type)) * qr_weight_block_bytes(matrix->type);
    for (uint32_t i = 0; i < row_count; i++) {
        uint32_t row = row_begin + i;
        uint8_t *panel = packed + (size_t)(row / QR_PANEL_ROWS) * matrix->panel_bytes;
        pack_row(matrix, panel, row % QR_PANEL_ROWS, (const uint8_t *)source + i * row_bytes);
    }
}

void qr_matrix_row(const qr_matrix *matrix, uint32_t row, float *out) {
    QR_ASSERT(row < matrix->n);
    const uint8_t *panel = matrix->panels + (size_t)(row / QR_PANEL_ROWS) * matrix->panel_bytes;
    uint32_t lane = row % QR_PANEL_ROWS;
    if (qr_weight_is_float(matrix->type)) {
        for (size_t k = 0; k < matrix->k; k++) out[k] = qr_weight_read_float(matrix->type, panel, k * QR_PANEL_ROWS + lane);
        return;
    }
    for (uint32_t group = 0; group < matrix->k / QR_GROUP; group++) {
        qr_weight_group g;
        qr_panel_get_group(matrix->type, matrix->k, panel, lane, group, &g);
        qr_weight_group_values(matrix->type, &g, out + (size_t)group * QR_GROUP);
    }
}

/* ---- activations ---- */

static size_t acts_code_bytes(uint32_t m, uint32_t k) {
    return (size_t)qr_div_up(m, QR_TILE_ROWS) * (k / QR_GROUP) * QR_TILE_GROUP_BYTES;
}

size_t qr_acts_bytes(uint32_t m_max, uint32_t k) {
    return acts_code_bytes(m_max, k) + (size_t)qr_div_up(m_max, QR_TILE_ROWS) * (k / QR_GROUP) * sizeof(qr_act_scales);
}

void qr_acts_init(qr_acts *acts, uint32_t m, uint32_t k, const float *x, size_t ldx, void *memory) {
    QR_ASSERT((uintptr_t)memory % QR_LINE == 0);
    *acts = (qr_acts){.m = m, .k = k, .x = x, .ldx = ldx, .q = memory};
    acts->scales = (uint8_t *)memory + acts_code_bytes(m, k);
}

/* An unpacked panel (8-bit codes and fp32 scales): what a path may prepare once and use for many rows. */
size_t qr_matmul_scratch_bytes(uint32_t k) {
    size_t codes = (size_t)k * QR_PANEL_ROWS, scales = qr_div_up(k, QR_GROUP) * QR_PANEL_ROWS * 4 * sizeof(float);
    return qr_align_up(codes + scales, QR_LINE);
}
