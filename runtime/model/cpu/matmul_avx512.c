/* matmul_avx512.c - AVX-512 VNNI: products and quantising. One zmm is one line of a panel. A tile is R rows by P panels: rows
 * share the unpacked weights and panels the broadcast activations. 8 by 1 or 4 by 2 fill the registers.
 *
 * dpbusd wants unsigned weights, and codes are; Q8_0 is flipped to w + 128. The accumulator starts at -zero * sum(q), so the
 * integer is the exact dot product of the true weights. (dpbusd does not saturate; dpbusds would.)
 *
 * Kernels are written once and specialised by constant type, P and R, through always_inline.
 */
#include <immintrin.h>
#include <string.h>

#include "base/float16.h"
#include "runtime/model/cpu/ops_path.h"
#include "runtime/model/cpu/panel.h"

enum {
    ROWS_MAX = 8,
    PANELS_MAX = 2,
    PAIR_ROWS = 16, /* from here two panels at a time: fewer rows wait for memory, and one stream overlaps best with them */
};

typedef struct panel_view {
    const uint8_t *d, *m, *sub, *codes;
    uint32_t groups;
    size_t bytes;       /* of the panel */
    size_t group_bytes; /* all planes: how far the read stream moves per group */
    __mmask16 columns;  /* those below n */
} panel_view;

/* Rows of one activation tile, from `lane` on. */
typedef struct row_view {
    const int8_t *q; /* group 0; a group further is QR_TILE_GROUP_BYTES */
    const qr_act_scales *scales;
    uint32_t lane;
    bool first; /* of these panels: the weights still come from memory */
} row_view;

QR_KERNEL __m512i broadcast4(const int8_t *q) {
    int32_t v;
    memcpy(&v, q, 4);
    return _mm512_set1_epi32(v);
}

QR_KERNEL __m512 widen_f16(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }

/* ---- one group of a panel ---- */

/* High bits of a group's codes; they move along with the lines. */
typedef struct high_bits {
    __m512i line[2];
} high_bits;

QR_KERNEL high_bits load_high(qr_weight_type type, const uint8_t *lines) {
    high_bits high = {{_mm512_setzero_si512(), _mm512_setzero_si512()}};
    const int bits = qr_weight_code_bits(type);
    if (bits == 5 || bits == 6) high.line[0] = _mm512_load_si512(lines + 4 * QR_LINE);
    if (bits == 6) high.line[1] = _mm512_load_si512(lines + 5 * QR_LINE);
    return high;
}

/* Step c of 4: the operands for elements 4c.. and 16+4c.. of the group, as unsigned bytes; Q8_0 as w + 128. */
QR_KERNEL void unpack(qr_weight_type type, const uint8_t *lines, int c, high_bits *high, __m512i out[2]) {
    const __m512i low = _mm512_set1_epi8(15), fifth = _mm512_set1_epi8(16), pair = _mm512_set1_epi8(48);
    const int bits = qr_weight_code_bits(type);
    __m512i line = _mm512_load_si512(lines + c * QR_LINE);
    if (bits == 8) {
        const __m512i flip = _mm512_set1_epi8((char)0x80);
        out[0] = _mm512_xor_si512(line, flip);
        out[1] = _mm512_xor_si512(_mm512_load_si512(lines + (c + 4) * QR_LINE), flip);
        return;
    }
    out[0] = _mm512_and_si512(line, low);
    out[1] = _mm512_and_si512(_mm512_srli_epi16(line, 4), low);
    if (bits == 5) {
        out[0] = _mm512_or_si512(out[0], _mm512_and_si512(_mm512_slli_epi16(high->line[0], 4), fifth));
        out[1] = _mm512_or_si512(out[1], _mm512_and_si512(high->line[0], fifth));
        high->line[0] = _mm512_srli_epi16(high->line[0], 1);
    }
    for (int half = 0; half < 2 && bits == 6; half++) {
        out[half] = _mm512_or_si512(out[half], _mm512_and_si512(_mm512_slli_epi16(high->line[half], 4), pair));
        high->line[half] = _mm512_srli_epi16(high->line[half], 2);
    }
}

/* Where a group's scales lie: blocks of K formats span eight groups. */
QR_KERNEL size_t scales_at(qr_weight_type type, uint32_t g) {
    return (size_t)(qr_weight_is_k(type) ? g / QR_SUPER_GROUPS : g) * QR_PANEL_ROWS * 2;
}

QR_KERNEL __m512 sub_scale(const panel_view *p, uint32_t g, int which) {
    const uint8_t *s = p->sub + (size_t)g * 2 * QR_PANEL_ROWS + which * QR_PANEL_ROWS;
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)s)));
}

QR_KERNEL __m512 signed_sub_scale(const panel_view *p, uint32_t g, int which) {
    const uint8_t *s = p->sub + (size_t)g * 2 * QR_PANEL_ROWS + which * QR_PANEL_ROWS;
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)s)));
}

QR_KERNEL __m512 group_scale(qr_weight_type type, const panel_view *p, uint32_t g) {
    __m512 d = widen_f16(p->d + scales_at(type, g));
    if (type == QR_WEIGHT_Q4_K || type == QR_WEIGHT_Q5_K) d = _mm512_mul_ps(d, sub_scale(p, g, 0));
    return d;
}

QR_KERNEL __m512 group_minimum(qr_weight_type type, const panel_view *p, uint32_t g) {
    if (!qr_weight_has_minimum(type)) return _mm512_setzero_ps();
    __m512 m = widen_f16(p->m + scales_at(type, g));
    if (!qr_weight_is_k(type)) return m;
    return _mm512_xor_ps(_mm512_mul_ps(m, sub_scale(p, g, 1)), _mm512_set1_ps(-0.0f));
}

/* ---- one group of R rows by P panels ---- */

/* Integer dots; Q6_K has one for each half of the group, the others use the first. */
typedef __m512i tile_dots[PANELS_MAX][ROWS_MAX][2];

/* -zero * sum(q) from -128 * sum(q): an exact shift. */
QR_KERNEL __m512i start_at(qr_weight_type type, __m512i n128) {
    switch (qr_weight_zero_code(type)) {
    case 8: return _mm512_srai_epi32(n128, 4);
    case 16: return _mm512_srai_epi32(n128, 3);
    case 32: return _mm512_srai_epi32(n128, 2);
    default: return type == QR_WEIGHT_Q8_0 ? n128 : _mm512_setzero_si512();
    }
}

QR_KERNEL void start_dots(const qr_weight_type type, const int P, const int R, const qr_act_scales *s, uint32_t lane,
                          tile_dots dots) {
    QR_UNROLL
    for (int r = 0; r < R; r++) {
        __m512i n128 = _mm512_set1_epi32(s->n128[lane + (uint32_t)r]), first = start_at(type, n128), second = first;
        if (type == QR_WEIGHT_Q6_K) {
            __m512i low = _mm512_set1_epi32(s->n128_low[lane + (uint32_t)r]);
            first = start_at(type, low);
            second = start_at(type, _mm512_sub_epi32(n128, low));
        }
        for (int p = 0; p < P; p++) dots[p][r][0] = first, dots[p][r][1] = second;
    }
}

QR_KERNEL void add_dots(const qr_weight_type type, const int P, const int R, const uint8_t *const lines[PANELS_MAX],
                        const int8_t *q, tile_dots dots) {
    const int second = type == QR_WEIGHT_Q6_K ? 1 : 0;
    high_bits high[PANELS_MAX];
    for (int p = 0; p < P; p++) high[p] = load_high(type, lines[p]);
    QR_UNROLL
    for (int c = 0; c < 4; c++) {
        __m512i w[PANELS_MAX][2];
        for (int p = 0; p < P; p++) unpack(type, lines[p], c, &high[p], w[p]);
        QR_UNROLL
        for (int r = 0; r < R; r++) {
            __m512i a = broadcast4(q + r * QR_GROUP + c * 4), b = broadcast4(q + r * QR_GROUP + 16 + c * 4);
            QR_UNROLL
            for (int p = 0; p < P; p++) {
                dots[p][r][0] = _mm512_dpbusd_epi32(dots[p][r][0], w[p][0], a);
                dots[p][r][second] = _mm512_dpbusd_epi32(dots[p][r][second], w[p][1], b);
                QR_PIN(dots[p][r][0]);
                if (second) QR_PIN(dots[p][r][1]);
            }
        }
    }
}

/* (float)I, or for Q6_K (float)J = sc0 * I0 + sc1 * I1, exact because J < 2^24. */
QR_KERNEL __m512 dot_value(qr_weight_type type, const panel_view *p, uint32_t g, const __m512i dot[2]) {
    __m512 first = _mm512_cvtepi32_ps(dot[0]);
    if (type != QR_WEIGHT_Q6_K) return first;
    first = _mm512_mul_ps(first, signed_sub_scale(p, g, 0));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[1]), signed_sub_scale(p, g, 1), first);
}

QR_KERNEL void fold_group(const qr_weight_type type, const int R, const panel_view *p, uint32_t g, const qr_act_scales *s,
                          uint32_t lane, const __m512i dots[ROWS_MAX][2], __m512 acc[ROWS_MAX]) {
    __m512 d = group_scale(type, p, g), m = group_minimum(type, p, g);
    QR_UNROLL
    for (int r = 0; r < R; r++) {
        __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(s->scale[lane + (uint32_t)r]));
        acc[r] = _mm512_fmadd_ps(dot_value(type, p, g, dots[r]), scale, acc[r]);
        if (qr_weight_has_minimum(type)) acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(s->bias[lane + (uint32_t)r]), acc[r]);
    }
}

/* ---- a tile over all of k ---- */

/* Each of the P streams runs ahead in its own panel and, near the end, in the panel P further on. */
QR_KERNEL void prefetch_group(qr_weight_type type, int P, const panel_view *p, uint32_t g) {
    const int lines = (int)qr_panel_code_bytes(type) / QR_LINE + 1;
    size_t at = g * p->group_bytes + QR_WEIGHTS_AHEAD;
    if (at >= p->bytes) at += (size_t)(P - 1) * p->bytes;
    QR_UNROLL
    for (int i = 0; i < lines; i++) _mm_prefetch((const char *)p->d + at + i * QR_LINE, _MM_HINT_T0);
}

QR_KERNEL void tile(const qr_weight_type type, const int P, const int R, const panel_view *panels, row_view rows, float *y,
                    size_t ldy) {
    __m512 acc[PANELS_MAX][ROWS_MAX];
    for (int p = 0; p < P; p++)
        for (int r = 0; r < R; r++) acc[p][r] = _mm512_setzero_ps();
    const int8_t *q = rows.q;
    for (uint32_t g = 0; g < panels->groups; g++) {
        const uint8_t *lines[PANELS_MAX];
        QR_UNROLL
        for (int p = 0; p < P; p++) {
            lines[p] = panels[p].codes + (size_t)g * qr_panel_code_bytes(type);
            if (rows.first) prefetch_group(type, P, &panels[p], g);
        }
        tile_dots dots;
        start_dots(type, P, R, rows.scales + g, rows.lane, dots);
        add_dots(type, P, R, lines, q, dots);
        QR_UNROLL
        for (int p = 0; p < P; p++) fold_group(type, R, &panels[p], g, rows.scales + g, rows.lane, dots[p], acc[p]);
        q += QR_TILE_GROUP_BYTES;
    }
    QR_UNROLL
    for (int p = 0; p < P; p++)
        for (int r = 0; r < R; r++)
            _mm512_mask_storeu_ps(y + (size_t)r * ldy + p * QR_PANEL_ROWS, panels[p].columns, acc[p][r]);
}

/* ---- all rows against one or two panels ---- */

static __mmask16 columns_of(const qr_matrix *w, uint32_t panel) {
    uint32_t left = w->n - panel * QR_PANEL_ROWS;
    return left >= QR_PANEL_ROWS ? 0xffff : (__mmask16)((1u << left) - 1u);
}

static panel_view view_panel(const qr_matrix *w, uint32_t panel) {
    qr_panel_planes planes = qr_panel_planes_of(w->type, w->k);
    const uint8_t *base = w->panels + panel * w->panel_bytes;
    uint32_t groups = w->k / QR_GROUP;
    return (panel_view){.d = base,
                        .m = base + planes.m,
                        .sub = base + planes.sub,
                        .codes = base + planes.codes,
                        .groups = groups,
                        .bytes = w->panel_bytes,
                        .group_bytes = w->panel_bytes / groups,
                        .columns = columns_of(w, panel)};
}

/* Tiles of 16 rows hold any step of 8, 4, 2 and 1 taken from their start. */
QR_KERNEL void panel_rows(const qr_weight_type type, const int P, const panel_view *panels, const qr_acts *acts, float *y,
                          size_t ldy) {
    for (uint32_t row = 0, step; row < acts->m; row += step, y += step * ldy) {
        uint32_t left = acts->m - row;
        row_view rows = {qr_act_codes(acts, row, 0), qr_act_scales_at(acts, row, 0), row % QR_TILE_ROWS, row == 0};
        step = left >= 8 && P == 1 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        if (P == 1 && step == 8) tile(type, P, 8, panels, rows, y, ldy);
        else if (step == 4) tile(type, P, 4, panels, rows, y, ldy);
        else if (step == 2) tile(type, P, 2, panels, rows, y, ldy);
        else tile(type, P, 1, panels, rows, y, ldy);
    }
}

QR_KERNEL void code_panels(const qr_weight_type type, const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy,
                           uint32_t begin, uint32_t end) {
    const uint32_t together = acts->m >= PAIR_ROWS ? PANELS_MAX : 1;
    for (uint32_t p = begin, step; p < end; p += step) {
        float *out = y + (size_t)p * QR_PANEL_ROWS;
        panel_view views[PANELS_MAX] = {view_panel(w, p)};
        step = end - p < together ? 1 : together;
        if (step == 1) {
            panel_rows(type, 1, views, acts, out, ldy);
            continue;
        }
        views[1] = view_panel(w, p + 1);
        panel_rows(type, PANELS_MAX, views, acts, out, ldy);
    }
}

typedef void panels_function(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t begin, uint32_t end);

#define CODE_PANELS(type)                                                                                                    \
    static void panels_##type(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t begin, uint32_t end) { \
        code_panels(QR_WEIGHT_##type, w, acts, y, ldy, begin, end);                                                          \
    }
CODE_PANELS(Q8_0)
CODE_PANELS(Q4_0)
CODE_PANELS(Q4_1)
CODE_PANELS(Q5_0)
CODE_PANELS(Q5_1)
CODE_PANELS(Q4_K)
CODE_PANELS(Q5_K)
CODE_PANELS(Q6_K)

/* ---- float weights: fused multiply-adds in the order of k ---- */

QR_KERNEL __m512 load_floats(qr_weight_type type, const uint8_t *panel, size_t k) {
    if (type == QR_WEIGHT_F32) return _mm512_loadu_ps((const float *)(const void *)panel + k * QR_PANEL_ROWS);
    const uint8_t *p = panel + k * QR_PANEL_ROWS * 2;
    if (type == QR_WEIGHT_F16) return widen_f16(p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}

/* A block of k for the rows of one panel. Partial sums rest in y between blocks, which changes no bit. */
typedef struct float_block {
    const uint8_t *panel;
    const float *x;
    float *y;
    size_t ldx, ldy;
    uint32_t k_begin, k_end;
    __mmask16 columns;
} float_block;

QR_KERNEL void float_tile(const qr_weight_type type, const int R, const float_block *b, uint32_t row) {
    const size_t line = QR_PANEL_ROWS * (type == QR_WEIGHT_F32 ? 4 : 2);
    const float *x = b->x + row * b->ldx;
    float *y = b->y + row * b->ldy;
    __m512 acc[ROWS_MAX];
    QR_UNROLL
    for (int r = 0; r < R; r++) {
        acc[r] = _mm512_setzero_ps();
        if (b->k_begin) acc[r] = _mm512_maskz_loadu_ps(b->columns, y + (size_t)r * b->ldy);
    }
    for (size_t k = b->k_begin; k < b->k_end; k++) {
        if (row == 0) _mm_prefetch((const char *)b->panel + k * line + QR_WEIGHTS_AHEAD, _MM_HINT_T0);
        __m512 w = load_floats(type, b->panel, k);
        QR_UNROLL
        for (int r = 0; r < R; r++) acc[r] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[(size_t)r * b->ldx + k]), acc[r]);
    }
    QR_UNROLL
    for (int r = 0; r < R; r++) _mm512_mask_storeu_ps(y + (size_t)r * b->ldy, b->columns, acc[r]);
}

QR_KERNEL void float_rows(const qr_weight_type type, const float_block *b, uint32_t rows) {
    for (uint32_t row = 0, step; row < rows; row += step) {
        uint32_t left = rows - row;
        step = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        if (step == 8) float_tile(type, 8, b, row);
        else if (step == 4) float_tile(type, 4, b, row);
        else if (step == 2) float_tile(type, 2, b, row);
        else float_tile(type, 1, b, row);
    }
}

QR_KERNEL void float_panel(const qr_weight_type type, const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy,
                           uint32_t panel) {
    float_block b = {.panel = w->panels + panel * w->panel_bytes,
                     .x = acts->x,
                     .y = y + (size_t)panel * QR_PANEL_ROWS,
                     .ldx = acts->ldx,
                     .ldy = ldy,
                     .columns = columns_of(w, panel)};
    for (; b.k_begin < w->k; b.k_begin = b.k_end) {
        b.k_end = w->k - b.k_begin < QR_FLOAT_K_BLOCK ? w->k : b.k_begin + QR_FLOAT_K_BLOCK;
        float_rows(type, &b, acts->m);
    }
}

#define FLOAT_PANELS(type)                                                                                                   \
    static void panels_##type(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t begin, uint32_t end) { \
        for (uint32_t p = begin; p < end; p++) float_panel(QR_WEIGHT_##type, w, acts, y, ldy, p);                            \
    }
FLOAT_PANELS(F32)
FLOAT_PANELS(F16)
FLOAT_PANELS(BF16)

static panels_function *const PANELS_FUNCTIONS[QR_WEIGHT_TYPE_COUNT] = {
    [QR_WEIGHT_F32] = panels_F32,   [QR_WEIGHT_F16] = panels_F16,   [QR_WEIGHT_BF16] = panels_BF16,
    [QR_WEIGHT_Q8_0] = panels_Q8_0, [QR_WEIGHT_Q4_0] = panels_Q4_0, [QR_WEIGHT_Q4_1] = panels_Q4_1,
    [QR_WEIGHT_Q5_0] = panels_Q5_0, [QR_WEIGHT_Q5_1] = panels_Q5_1, [QR_WEIGHT_Q4_K] = panels_Q4_K,
    [QR_WEIGHT_Q5_K] = panels_Q5_K, [QR_WEIGHT_Q6_K] = panels_Q6_K,
};

void qr_matmul_avx512(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t panel_begin, uint32_t panel_end,
                      void *scratch) {
    (void)scratch;
    PANELS_FUNCTIONS[w->type](w, acts, y, ldy, panel_begin, panel_end);
}

/* ---- activations ---- */

static void quantize_group(int8_t *q, qr_act_scales *s, uint32_t lane, const float *x) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
    __m512i top2 = _mm512_max_epi32(_mm512_and_si512(magnitude, _mm512_castps_si512(x0)),
                                    _mm512_and_si512(magnitude, _mm512_castps_si512(x1)));
    uint32_t top = (uint32_t)_mm512_reduce_max_epi32(top2);
    if (top < QR_ACT_TINY_BITS || top >= QR_ACT_INFINITY_BITS) {
        memset(q, 0, QR_GROUP);
        s->scale[lane] = s->bias[lane] = top < QR_ACT_TINY_BITS ? 0.0f : qr_bits_f32(QR_ACT_NAN_BITS);
        s->n128[lane] = s->n128_low[lane] = 0;
        return;
    }
    __m512 inverse = _mm512_set1_ps(QR_ACT_STEPS / qr_bits_f32(top));
    __m512i v0 = _mm512_cvtps_epi32(_mm512_mul_ps(x0, inverse)), v1 = _mm512_cvtps_epi32(_mm512_mul_ps(x1, inverse));
    __m256i bytes = _mm256_setr_m128i(_mm512_cvtepi32_epi8(v0), _mm512_cvtepi32_epi8(v1));
    _mm256_storeu_si256((__m256i *)(void *)q, bytes);
    __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), bytes); /* first half: lanes 0-3 */
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
    int low = _mm256_extract_epi32(sums, 0), sum = low + _mm256_extract_epi32(sums, 4);
    s->scale[lane] = qr_bits_f32(top) * QR_ACT_RECIPROCAL;
    s->bias[lane] = s->scale[lane] * (float)sum;
    s->n128[lane] = -128 * sum;
    s->n128_low[lane] = -128 * low;
}

void qr_quantize_avx512(qr_acts *acts, uint32_t row_begin, uint32_t row_end) {
    for (uint32_t row = row_begin; row < row_end; row++) {
        const float *x = acts->x + row * acts->ldx;
        int8_t *q = qr_act_codes(acts, row, 0);
        qr_act_scales *s = qr_act_scales_at(acts, row, 0);
        for (uint32_t g = 0; g < acts->k / QR_GROUP; g++)
            quantize_group(q + (size_t)g * QR_TILE_GROUP_BYTES, s + g, row % QR_TILE_ROWS, x + g * QR_GROUP);
    }
}
