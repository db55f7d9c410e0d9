/* matmul_scalar.c - the definition of products and of quantising, written for reading (docs/NUMERICS.md). Every other path
 * must give its bits. Runs on any machine; fmaf is exact with or without hardware for it. */
#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "runtime/model/cpu/ops_path.h"
#include "runtime/model/cpu/panel.h"

/* ---- activations ---- */

/* The largest magnitude of a group, as bits: magnitudes order as integers, with infinity and NaN on top, so the order of the
 * search does not matter. */
static uint32_t group_top(const float *x) {
    uint32_t top = 0;
    for (int i = 0; i < QR_GROUP; i++) {
        uint32_t magnitude = qr_f32_bits(x[i]) & 0x7fffffffu;
        if (magnitude > top) top = magnitude;
    }
    return top;
}

static void put_scales(qr_act_scales *s, uint32_t lane, float scale, int sum, int sum_low) {
    s->scale[lane] = scale;
    s->bias[lane] = scale * (float)sum;
    s->n128[lane] = -128 * sum;
    s->n128_low[lane] = -128 * sum_low;
}

static void quantize_group(int8_t *q, qr_act_scales *s, uint32_t lane, const float *x) {
    uint32_t top = group_top(x);
    if (top < QR_ACT_TINY_BITS || top >= QR_ACT_INFINITY_BITS) {
        memset(q, 0, QR_GROUP);
        put_scales(s, lane, top < QR_ACT_TINY_BITS ? 0.0f : qr_bits_f32(QR_ACT_NAN_BITS), 0, 0);
        return;
    }
    float inverse = QR_ACT_STEPS / qr_bits_f32(top);
    int sum[2] = {0, 0};
    for (int i = 0; i < QR_GROUP; i++) {
        q[i] = (int8_t)rintf(x[i] * inverse);
        sum[i / (QR_GROUP / 2)] += q[i];
    }
    put_scales(s, lane, qr_bits_f32(top) * QR_ACT_RECIPROCAL, sum[0] + sum[1], sum[0]);
}

void qr_quantize_scalar(qr_acts *acts, uint32_t row_begin, uint32_t row_end) {
    for (uint32_t row = row_begin; row < row_end; row++)
        for (uint32_t g = 0; g < acts->k / QR_GROUP; g++) {
            int8_t *q = qr_act_codes(acts, row, g);
            quantize_group(q, qr_act_scales_at(acts, row, g), row % QR_TILE_ROWS, acts->x + row * acts->ldx + g * QR_GROUP);
        }
}

/* ---- products ---- */

/* y after one group: the integer dot is exact, then one or two fused steps. */
static float fold_group(qr_weight_type type, const qr_weight_group *w, const int8_t *q, float scale, float bias, float y) {
    int32_t sum[2] = {0, 0};
    for (int k = 0; k < QR_GROUP; k++) sum[k / (QR_GROUP / 2)] += qr_weight_integer(type, w, k) * q[k];
    if (type == QR_WEIGHT_Q6_K) {
        int32_t scaled = (int8_t)w->sub[0] * sum[0] + (int8_t)w->sub[1] * sum[1];
        return fmaf((float)scaled, qr_f16_to_f32(w->d) * scale, y);
    }
    y = fmaf((float)(sum[0] + sum[1]), qr_weight_scale(type, w, 0) * scale, y);
    return qr_weight_has_minimum(type) ? fmaf(qr_weight_minimum(type, w), bias, y) : y;
}

typedef float tile_sums[QR_TILE_ROWS][QR_PANEL_ROWS];

/* Rows [row, row + rows) of one activation tile by one lane of one panel. */
static void lane_codes(const qr_matrix *w, const uint8_t *panel, uint32_t lane, const qr_acts *acts, uint32_t row,
                       uint32_t rows, tile_sums y) {
    for (uint32_t g = 0; g < w->k / QR_GROUP; g++) {
        qr_weight_group group;
        qr_panel_get_group(w->type, w->k, panel, lane, g, &group);
        const qr_act_scales *s = qr_act_scales_at(acts, row, g);
        for (uint32_t r = 0; r < rows; r++)
            y[r][lane] = fold_group(w->type, &group, qr_act_codes(acts, row + r, g), s->scale[r], s->bias[r], y[r][lane]);
    }
}

static void lane_floats(const qr_matrix *w, const uint8_t *panel, uint32_t lane, const qr_acts *acts, uint32_t row,
                        uint32_t rows, tile_sums y) {
    for (uint32_t k = 0; k < w->k; k++) {
        float weight = qr_weight_read_float(w->type, panel, (size_t)k * QR_PANEL_ROWS + lane);
        for (uint32_t r = 0; r < rows; r++) y[r][lane] = fmaf(weight, acts->x[(row + r) * acts->ldx + k], y[r][lane]);
    }
}

static void panel_tile(const qr_matrix *w, uint32_t p, const qr_acts *acts, uint32_t row, float *y, size_t ldy) {
    tile_sums sums = {{0}};
    uint32_t rows = acts->m - row < QR_TILE_ROWS ? acts->m - row : QR_TILE_ROWS;
    uint32_t first = p * QR_PANEL_ROWS, lanes = w->n - first < QR_PANEL_ROWS ? w->n - first : QR_PANEL_ROWS;
    const uint8_t *panel = w->panels + p * w->panel_bytes;
    for (uint32_t lane = 0; lane < lanes; lane++) {
        if (qr_weight_is_float(w->type)) lane_floats(w, panel, lane, acts, row, rows, sums);
        else lane_codes(w, panel, lane, acts, row, rows, sums);
    }
    for (uint32_t r = 0; r < rows; r++) memcpy(y + (row + r) * ldy + first, sums[r], lanes * sizeof(float));
}

void qr_matmul_scalar(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t panel_begin, uint32_t panel_end,
                      void *scratch) {
    (void)scratch;
    for (uint32_t p = panel_begin; p < panel_end; p++)
        for (uint32_t row = 0; row < acts->m; row += QR_TILE_ROWS) panel_tile(w, p, acts, row, y, ldy);
}
