/* matmul_avx512.c - AVX-512 VNNI: products and quantising. One zmm is one line of a panel; R rows share the unpacked weights.
 *
 * dpbusd wants unsigned weights, and codes are; Q8_0 is flipped to w + 128. The accumulator starts at -zero * sum(q), so the
 * integer is the exact dot product of the true weights. (dpbusd does not saturate; dpbusds would.)
 *
 * Kernels are written once and specialised by constant type and row count, through always_inline.
 */
#include <immintrin.h>
#include <string.h>

#include "base/float16.h"
#include "runtime/model/cpu/ops_path.h"
#include "runtime/model/cpu/panel.h"

enum { ROWS_MAX = 8 };

typedef struct panel_view {
    const uint8_t *d, *m, *sub, *codes;
    uint32_t groups;
    size_t group_bytes; /* all planes: how far the read stream moves per group */
} panel_view;

/* Rows of one activation tile, from `lane` on. */
typedef struct row_view {
    const int8_t *q; /* group 0; a group further is QR_TILE_GROUP_BYTES */
    const qr_act_scales *scales;
    uint32_t lane;
    bool first; /* of this panel: the weights still come from memory */
} row_view;

QR_KERNEL __m512i broadcast4(const int8_t *q) {
    int32_t v;
    memcpy(&v, q, 4);
    return _mm512_set1_epi32(v);
}

QR_KERNEL __m512 widen_f16(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }

/* ---- one group of a panel ---- */

QR_KERNEL void unpack_small(int bits, const uint8_t *lines, __m512i b[8]) {
    const __m512i low = _mm512_set1_epi8(15), fifth = _mm512_set1_epi8(16), pair = _mm512_set1_epi8(48);
    __m512i high0 = low, high1 = low;
    if (bits > 4) high0 = _mm512_load_si512(lines + 4 * QR_LINE);
    if (bits > 5) high1 = _mm512_load_si512(lines + 5 * QR_LINE);
    QR_UNROLL
    for (int c = 0; c < 4; c++) {
        __m512i line = _mm512_load_si512(lines + c * QR_LINE);
        b[c] = _mm512_and_si512(line, low);
        b[c + 4] = _mm512_and_si512(_mm512_srli_epi16(line, 4), low);
        if (bits == 5) {
            b[c] = _mm512_or_si512(b[c], _mm512_and_si512(_mm512_slli_epi16(high0, 4), fifth));
            b[c + 4] = _mm512_or_si512(b[c + 4], _mm512_and_si512(high0, fifth));
            high0 = _mm512_srli_epi16(high0, 1);
        }
        if (bits == 6) {
            b[c] = _mm512_or_si512(b[c], _mm512_and_si512(_mm512_slli_epi16(high0, 4), pair));
            b[c + 4] = _mm512_or_si512(b[c + 4], _mm512_and_si512(_mm512_slli_epi16(high1, 4), pair));
            high0 = _mm512_srli_epi16(high0, 2);
            high1 = _mm512_srli_epi16(high1, 2);
        }
    }
}

/* Eight operands of unsigned bytes; Q8_0 as w + 128. */
QR_KERNEL void unpack(qr_weight_type type, const uint8_t *lines, __m512i b[8]) {
    if (qr_weight_code_bits(type) != 8) {
        unpack_small(qr_weight_code_bits(type), lines, b);
        return;
    }
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    QR_UNROLL
    for (int c = 0; c < 8; c++) b[c] = _mm512_xor_si512(_mm512_load_si512(lines + c * QR_LINE), flip);
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

/* ---- one row against one group ---- */

/* -zero * sum(q) from -128 * sum(q): an exact shift. */
QR_KERNEL __m512i start_at(qr_weight_type type, __m512i n128) {
    switch (qr_weight_zero_code(type)) {
    case 8: return _mm512_srai_epi32(n128, 4);
    case 16: return _mm512_srai_epi32(n128, 3);
    case 32: return _mm512_srai_epi32(n128, 2);
    default: return type == QR_WEIGHT_Q8_0 ? n128 : _mm512_setzero_si512();
    }
}

QR_KERNEL __m512i dot_lines(__m512i sum, const __m512i *b, const int8_t *q, int count) {
    QR_UNROLL
    for (int c = 0; c < count; c++) sum = _mm512_dpbusd_epi32(sum, b[c], broadcast4(q + c * 4));
    return sum;
}

/* (float)I, or for Q6_K (float)J = sc0 * I0 + sc1 * I1, exact because J < 2^24. */
QR_KERNEL __m512 group_dot(qr_weight_type type, const __m512i b[8], const int8_t *q, const qr_act_scales *s, uint32_t lane,
                           const __m512 half_scale[2]) {
    __m512i n128 = _mm512_set1_epi32(s->n128[lane]);
    if (type != QR_WEIGHT_Q6_K) return _mm512_cvtepi32_ps(dot_lines(start_at(type, n128), b, q, 8));
    __m512i low = _mm512_set1_epi32(s->n128_low[lane]);
    __m512 first = _mm512_cvtepi32_ps(dot_lines(start_at(type, low), b, q, 4));
    __m512 second = _mm512_cvtepi32_ps(dot_lines(start_at(type, _mm512_sub_epi32(n128, low)), b + 4, q + 16, 4));
    return _mm512_fmadd_ps(second, half_scale[1], _mm512_mul_ps(first, half_scale[0]));
}

/* ---- R rows against one panel ---- */

QR_KERNEL void prefetch_group(qr_weight_type type, const uint8_t *ahead) {
    const int lines = (int)qr_panel_code_bytes(type) / QR_LINE + 1;
    QR_UNROLL
    for (int i = 0; i < lines; i++) _mm_prefetch((const char *)ahead + i * QR_LINE, _MM_HINT_T0);
}

QR_KERNEL void tile(const qr_weight_type type, const int R, const panel_view *p, row_view rows, float *y, size_t ldy,
                    __mmask16 columns) {
    __m512 acc[ROWS_MAX];
    QR_UNROLL
    for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
    const uint8_t *ahead = p->d + QR_WEIGHTS_AHEAD, *codes = p->codes;
    const int8_t *q = rows.q;
    for (uint32_t g = 0; g < p->groups; g++) {
        if (rows.first) prefetch_group(type, ahead);
        ahead += p->group_bytes;
        __m512i b[8];
        unpack(type, codes, b);
        codes += qr_panel_code_bytes(type);
        __m512 d = group_scale(type, p, g), m = group_minimum(type, p, g), half_scale[2] = {d, d};
        if (type == QR_WEIGHT_Q6_K) half_scale[0] = signed_sub_scale(p, g, 0), half_scale[1] = signed_sub_scale(p, g, 1);
        const qr_act_scales *s = rows.scales + g;
        QR_UNROLL
        for (int r = 0; r < R; r++) {
            __m512 dot = group_dot(type, b, q + r * QR_GROUP, s, rows.lane + (uint32_t)r, half_scale);
            acc[r] = _mm512_fmadd_ps(dot, _mm512_mul_ps(d, _mm512_set1_ps(s->scale[rows.lane + (uint32_t)r])), acc[r]);
            if (qr_weight_has_minimum(type))
                acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(s->bias[rows.lane + (uint32_t)r]), acc[r]);
        }
        q += QR_TILE_GROUP_BYTES;
    }
    QR_UNROLL
    for (int r = 0; r < R; r++) _mm512_mask_storeu_ps(y + (size_t)r * ldy, columns, acc[r]);
}

/* ---- all rows against one panel ---- */

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
                        .group_bytes = w->panel_bytes / groups};
}

/* Tiles of 16 rows hold any step of 8, 4, 2 and 1 taken from their start. */
QR_KERNEL void panel_rows(const qr_weight_type type, const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy,
                          uint32_t panel) {
    panel_view p = view_panel(w, panel);
    __mmask16 columns = columns_of(w, panel);
    for (uint32_t row = 0, step; row < acts->m; row += step) {
        uint32_t left = acts->m - row;
        row_view rows = {qr_act_codes(acts, row, 0), qr_act_scales_at(acts, row, 0), row % QR_TILE_ROWS, row == 0};
        float *out = y + row * ldy + (size_t)panel * QR_PANEL_ROWS;
        step = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        if (step == 8) tile(type, 8, &p, rows, out, ldy, columns);
        else if (step == 4) tile(type, 4, &p, rows, out, ldy, columns);
        else if (step == 2) tile(type, 2, &p, rows, out, ldy, columns);
        else tile(type, 1, &p, rows, out, ldy, columns);
    }
}

typedef void panel_function(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t panel);

#define CODE_PANEL(type)                                                                                      \
    static void panel_##type(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t panel) { \
        panel_rows(QR_WEIGHT_##type, w, acts, y, ldy, panel);                                                 \
    }
CODE_PANEL(Q8_0)
CODE_PANEL(Q4_0)
CODE_PANEL(Q4_1)
CODE_PANEL(Q5_0)
CODE_PANEL(Q5_1)
CODE_PANEL(Q4_K)
CODE_PANEL(Q5_K)
CODE_PANEL(Q6_K)

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

#define FLOAT_PANEL(type)                                                                                     \
    static void panel_##type(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t panel) { \
        float_panel(QR_WEIGHT_##type, w, acts, y, ldy, panel);                                                \
    }
FLOAT_PANEL(F32)
FLOAT_PANEL(F16)
FLOAT_PANEL(BF16)

static panel_function *const PANEL_FUNCTIONS[QR_WEIGHT_TYPE_COUNT] = {
    [QR_WEIGHT_F32] = panel_F32,   [QR_WEIGHT_F16] = panel_F16,   [QR_WEIGHT_BF16] = panel_BF16, [QR_WEIGHT_Q8_0] = panel_Q8_0,
    [QR_WEIGHT_Q4_0] = panel_Q4_0, [QR_WEIGHT_Q4_1] = panel_Q4_1, [QR_WEIGHT_Q5_0] = panel_Q5_0, [QR_WEIGHT_Q5_1] = panel_Q5_1,
    [QR_WEIGHT_Q4_K] = panel_Q4_K, [QR_WEIGHT_Q5_K] = panel_Q5_K, [QR_WEIGHT_Q6_K] = panel_Q6_K,
};

void qr_matmul_avx512(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t panel_begin, uint32_t panel_end,
                      void *scratch) {
    (void)scratch;
    for (uint32_t p = panel_begin; p < panel_end; p++) PANEL_FUNCTIONS[w->type](w, acts, y, ldy, p);
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
