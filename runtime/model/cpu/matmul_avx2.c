/* matmul_avx2.c - AVX2, FMA and F16C: products and quantising. Two ymm of 8 outputs stand for one line of a panel.
 *
 * maddubs saturates at int16, so sums stay in int16 only as long as they provably fit (docs/NUMERICS.md):
 *     4 bits   8 pairs  of 2*15*127 = 30,480
 *     5 bits   4 pairs  of 2*31*127 = 31,496
 *     6 bits   2 pairs  of 2*63*127 = 32,004
 *     8 bits   1 pair   of 2*128*127 = 32,512, as |w| times sign(q, w), since w + 128 would reach 64,770
 */
#include <immintrin.h>
#include <string.h>

#include "base/float16.h"
#include "runtime/model/cpu/ops_path.h"
#include "runtime/model/cpu/panel.h"

enum { ROWS_MAX = 4, HALF_ROWS = QR_PANEL_ROWS / 2, HALF_LINE = QR_LINE / 2 };

/* Half a panel: outputs 8*half .. 8*half + 7. */
typedef struct half_view {
    const uint8_t *d, *m, *sub, *codes;
    uint32_t groups;
} half_view;

typedef struct row_view {
    const int8_t *q;
    const qr_act_scales *scales;
    uint32_t lane;
} row_view;

/* Integer dots of one group and row; Q6_K has one for each half of the group, the others use the first. */
typedef struct group_dots {
    __m256i sum[2];
} group_dots;

QR_KERNEL __m256i broadcast4(const int8_t *q) {
    int32_t v;
    memcpy(&v, q, 4);
    return _mm256_set1_epi32(v);
}

QR_KERNEL __m256i load_line(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
QR_KERNEL __m256 widen_f16(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }

/* ---- integer dots ---- */

/* Lines c and c + 4 as unsigned bytes. high0 and high1 move along with c. */
QR_KERNEL void unpack_pair(int bits, const uint8_t *lines, int c, __m256i high[2], __m256i *first, __m256i *second) {
    const __m256i low = _mm256_set1_epi8(15), fifth = _mm256_set1_epi8(16), pair = _mm256_set1_epi8(48);
    __m256i line = load_line(lines + c * QR_LINE);
    *first = _mm256_and_si256(line, low);
    *second = _mm256_and_si256(_mm256_srli_epi16(line, 4), low);
    if (bits == 5) {
        *first = _mm256_or_si256(*first, _mm256_and_si256(_mm256_slli_epi16(high[0], 4), fifth));
        *second = _mm256_or_si256(*second, _mm256_and_si256(high[0], fifth));
        high[0] = _mm256_srli_epi16(high[0], 1);
    }
    if (bits == 6) {
        *first = _mm256_or_si256(*first, _mm256_and_si256(_mm256_slli_epi16(high[0], 4), pair));
        *second = _mm256_or_si256(*second, _mm256_and_si256(_mm256_slli_epi16(high[1], 4), pair));
        high[0] = _mm256_srli_epi16(high[0], 2);
        high[1] = _mm256_srli_epi16(high[1], 2);
    }
}

/* Two halves are kept apart in int16 for Q6_K only; otherwise both go into one sum. */
QR_KERNEL void dots_small(const qr_weight_type type, const int R, const uint8_t *lines, const int8_t *q, group_dots *out) {
    const int bits = qr_weight_code_bits(type), widen_every = bits == 4 ? 4 : 2, split = bits == 6;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i high[2] = {ones, ones}, sum16[ROWS_MAX][2];
    if (bits > 4) high[0] = load_line(lines + 4 * QR_LINE);
    if (bits > 5) high[1] = load_line(lines + 5 * QR_LINE);
    QR_UNROLL
    for (int c = 0; c < 4; c++) {
        __m256i first, second;
        unpack_pair(bits, lines, c, high, &first, &second);
        QR_UNROLL
        for (int r = 0; r < R; r++) {
            __m256i a = _mm256_maddubs_epi16(first, broadcast4(q + r * QR_GROUP + c * 4));
            __m256i b = _mm256_maddubs_epi16(second, broadcast4(q + r * QR_GROUP + 16 + c * 4));
            if (!split) a = _mm256_add_epi16(a, b);
            sum16[r][0] = c % widen_every ? _mm256_add_epi16(sum16[r][0], a) : a;
            if (split) sum16[r][1] = c % widen_every ? _mm256_add_epi16(sum16[r][1], b) : b;
            QR_PIN(sum16[r][0]);
            if (split) QR_PIN(sum16[r][1]);
            if (c % widen_every != widen_every - 1) continue;
            out[r].sum[0] = _mm256_add_epi32(out[r].sum[0], _mm256_madd_epi16(sum16[r][0], ones));
            if (split) out[r].sum[1] = _mm256_add_epi32(out[r].sum[1], _mm256_madd_epi16(sum16[r][1], ones));
        }
    }
}

QR_KERNEL void dots_eight(const int R, const uint8_t *lines, const int8_t *q, group_dots *out) {
    const __m256i ones = _mm256_set1_epi16(1);
    QR_UNROLL
    for (int c = 0; c < 8; c++) {
        __m256i w = load_line(lines + c * QR_LINE), magnitude = _mm256_abs_epi8(w);
        QR_UNROLL
        for (int r = 0; r < R; r++) {
            __m256i p = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(broadcast4(q + r * QR_GROUP + c * 4), w));
            out[r].sum[0] = _mm256_add_epi32(out[r].sum[0], _mm256_madd_epi16(p, ones));
            QR_PIN(out[r].sum[0]);
        }
    }
}

/* -zero * sum(q) from -128 * sum(q): an exact shift. */
QR_KERNEL __m256i start_at(qr_weight_type type, __m256i n128) {
    switch (qr_weight_zero_code(type)) {
    case 8: return _mm256_srai_epi32(n128, 4);
    case 16: return _mm256_srai_epi32(n128, 3);
    case 32: return _mm256_srai_epi32(n128, 2);
    default: return _mm256_setzero_si256();
    }
}

QR_KERNEL void start_dots(const qr_weight_type type, const qr_act_scales *s, uint32_t lane, group_dots *out) {
    __m256i n128 = _mm256_set1_epi32(s->n128[lane]);
    out->sum[0] = start_at(type, n128);
    if (type != QR_WEIGHT_Q6_K) return;
    __m256i low = _mm256_set1_epi32(s->n128_low[lane]);
    out->sum[0] = start_at(type, low);
    out->sum[1] = start_at(type, _mm256_sub_epi32(n128, low));
}

/* ---- scales ---- */

QR_KERNEL size_t scales_at(qr_weight_type type, uint32_t g) {
    return (size_t)(qr_weight_is_k(type) ? g / QR_SUPER_GROUPS : g) * QR_PANEL_ROWS * 2;
}

QR_KERNEL __m128i sub_bytes(const half_view *p, uint32_t g, int which) {
    return _mm_loadl_epi64((const __m128i *)(p->sub + (size_t)g * 2 * QR_PANEL_ROWS + which * QR_PANEL_ROWS));
}

QR_KERNEL __m256 group_scale(qr_weight_type type, const half_view *p, uint32_t g) {
    __m256 d = widen_f16(p->d + scales_at(type, g));
    if (type != QR_WEIGHT_Q4_K && type != QR_WEIGHT_Q5_K) return d;
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(sub_bytes(p, g, 0))));
}

QR_KERNEL __m256 group_minimum(qr_weight_type type, const half_view *p, uint32_t g) {
    if (!qr_weight_has_minimum(type)) return _mm256_setzero_ps();
    __m256 m = widen_f16(p->m + scales_at(type, g));
    if (!qr_weight_is_k(type)) return m;
    m = _mm256_mul_ps(m, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(sub_bytes(p, g, 1))));
    return _mm256_xor_ps(m, _mm256_set1_ps(-0.0f));
}

/* (float)I, or for Q6_K (float)J = sc0 * I0 + sc1 * I1, exact because J < 2^24. */
QR_KERNEL __m256 dot_value(qr_weight_type type, const half_view *p, uint32_t g, const group_dots *dots) {
    __m256 first = _mm256_cvtepi32_ps(dots->sum[0]);
    if (type != QR_WEIGHT_Q6_K) return first;
    __m256 s0 = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(sub_bytes(p, g, 0)));
    __m256 s1 = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(sub_bytes(p, g, 1)));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots->sum[1]), s1, _mm256_mul_ps(first, s0));
}

/* ---- R rows against half a panel ---- */

QR_KERNEL void tile(const qr_weight_type type, const int R, const half_view *p, row_view rows, float *y, size_t ldy,
                    __m256i columns) {
    __m256 acc[ROWS_MAX];
    QR_UNROLL
    for (int r = 0; r < R; r++) acc[r] = _mm256_setzero_ps();
    const uint8_t *codes = p->codes;
    const int8_t *q = rows.q;
    for (uint32_t g = 0; g < p->groups; g++) {
        const qr_act_scales *s = rows.scales + g;
        group_dots dots[ROWS_MAX];
        QR_UNROLL
        for (int r = 0; r < R; r++) start_dots(type, s, rows.lane + (uint32_t)r, &dots[r]);
        if (type == QR_WEIGHT_Q8_0) dots_eight(R, codes, q, dots);
        else dots_small(type, R, codes, q, dots);
        __m256 d = group_scale(type, p, g), m = group_minimum(type, p, g);
        QR_UNROLL
        for (int r = 0; r < R; r++) {
            uint32_t lane = rows.lane + (uint32_t)r;
            __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(s->scale[lane]));
            acc[r] = _mm256_fmadd_ps(dot_value(type, p, g, &dots[r]), scale, acc[r]);
            if (qr_weight_has_minimum(type)) acc[r] = _mm256_fmadd_ps(m, _mm256_set1_ps(s->bias[lane]), acc[r]);
        }
        codes += qr_panel_code_bytes(type);
        q += QR_TILE_GROUP_BYTES;
    }
    QR_UNROLL
    for (int r = 0; r < R; r++) _mm256_maskstore_ps(y + (size_t)r * ldy, columns, acc[r]);
}

/* ---- all rows against one panel ---- */

static half_view view_half(const qr_matrix *w, uint32_t panel, uint32_t half) {
    qr_panel_planes planes = qr_panel_planes_of(w->type, w->k);
    const uint8_t *base = w->panels + panel * w->panel_bytes;
    return (half_view){.d = base + half * HALF_ROWS * 2,
                       .m = base + planes.m + half * HALF_ROWS * 2,
                       .sub = base + planes.sub + half * HALF_ROWS,
                       .codes = base + planes.codes + half * HALF_LINE,
                       .groups = w->k / QR_GROUP};
}

QR_KERNEL void half_rows(const qr_weight_type type, const half_view *p, const qr_acts *acts, float *y, size_t ldy,
                         __m256i columns) {
    for (uint32_t row = 0, step; row < acts->m; row += step, y += step * ldy) {
        uint32_t left = acts->m - row;
        row_view rows = {qr_act_codes(acts, row, 0), qr_act_scales_at(acts, row, 0), row % QR_TILE_ROWS};
        step = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        if (step == 4) tile(type, 4, p, rows, y, ldy, columns);
        else if (step == 2) tile(type, 2, p, rows, y, ldy, columns);
        else tile(type, 1, p, rows, y, ldy, columns);
    }
}

/* The next panel is fetched while this one, small enough for the first cache, is worked on. */
static void prefetch_next(const qr_matrix *w, uint32_t panel) {
    const uint8_t *next = w->panels + (panel + 1) * w->panel_bytes;
    size_t bytes = w->panel_bytes < QR_MATRIX_READ_AHEAD ? w->panel_bytes : QR_MATRIX_READ_AHEAD;
    for (size_t i = 0; i < bytes; i += QR_LINE) _mm_prefetch((const char *)next + i, _MM_HINT_T0);
}

/* Ones in the lanes that exist: columns past n are neither read nor written. */
static __m256i half_columns(const qr_matrix *w, uint32_t panel, uint32_t half) {
    uint32_t first = panel * QR_PANEL_ROWS + half * HALF_ROWS, left = w->n <= first ? 0 : w->n - first;
    int count = (int)(left < HALF_ROWS ? left : HALF_ROWS);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

typedef void panel_function(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t panel);

#define CODE_PANEL(type)                                                                                      \
    static void panel_##type(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t panel) { \
        prefetch_next(w, panel);                                                                              \
        for (uint32_t half = 0; half < 2; half++) {                                                           \
            half_view p = view_half(w, panel, half);                                                          \
            float *out = y + (size_t)panel * QR_PANEL_ROWS + half * HALF_ROWS;                                \
            half_rows(QR_WEIGHT_##type, &p, acts, out, ldy, half_columns(w, panel, half));                    \
        }                                                                                                     \
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

QR_KERNEL __m256 load_floats(qr_weight_type type, const uint8_t *panel, size_t k, uint32_t half) {
    size_t at = k * QR_PANEL_ROWS + half * HALF_ROWS;
    if (type == QR_WEIGHT_F32) return _mm256_loadu_ps((const float *)(const void *)panel + at);
    if (type == QR_WEIGHT_F16) return widen_f16(panel + 2 * at);
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(panel + 2 * at))), 16));
}

/* A block of k for the rows of one panel. Partial sums rest in y between blocks, which changes no bit. */
typedef struct float_block {
    const uint8_t *panel;
    const float *x;
    float *y;
    size_t ldx, ldy;
    uint32_t k_begin, k_end;
    __m256i columns[2];
} float_block;

QR_KERNEL void float_tile(const qr_weight_type type, const int R, const float_block *b, uint32_t row) {
    const float *x = b->x + row * b->ldx;
    float *y = b->y + row * b->ldy;
    __m256 acc[ROWS_MAX][2];
    QR_UNROLL
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) {
            acc[r][h] = _mm256_setzero_ps();
            if (b->k_begin) acc[r][h] = _mm256_maskload_ps(y + (size_t)r * b->ldy + h * HALF_ROWS, b->columns[h]);
        }
    for (size_t k = b->k_begin; k < b->k_end; k++) {
        __m256 w0 = load_floats(type, b->panel, k, 0), w1 = load_floats(type, b->panel, k, 1);
        QR_UNROLL
        for (int r = 0; r < R; r++) {
            __m256 v = _mm256_set1_ps(x[(size_t)r * b->ldx + k]);
            acc[r][0] = _mm256_fmadd_ps(w0, v, acc[r][0]);
            acc[r][1] = _mm256_fmadd_ps(w1, v, acc[r][1]);
        }
    }
    QR_UNROLL
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) _mm256_maskstore_ps(y + (size_t)r * b->ldy + h * HALF_ROWS, b->columns[h], acc[r][h]);
}

QR_KERNEL void float_rows(const qr_weight_type type, const float_block *b, uint32_t rows) {
    for (uint32_t row = 0, step; row < rows; row += step) {
        uint32_t left = rows - row;
        step = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        if (step == 4) float_tile(type, 4, b, row);
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
                     .columns = {half_columns(w, panel, 0), half_columns(w, panel, 1)}};
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

void qr_matmul_avx2(const qr_matrix *w, const qr_acts *acts, float *y, size_t ldy, uint32_t panel_begin, uint32_t panel_end,
                    void *scratch) {
    (void)scratch;
    for (uint32_t p = panel_begin; p < panel_end; p++) PANEL_FUNCTIONS[w->type](w, acts, y, ldy, p);
}

/* ---- activations ---- */

QR_KERNEL __m128i fold_max(__m256i v) {
    __m128i t = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_max_epi32(t, _mm_shuffle_epi32(t, 0xb1));
}

/* Sums of the two halves of a group, in lanes 0 and 4. */
QR_KERNEL __m256i half_sums(__m256i bytes) {
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
    return _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
}

static uint32_t group_top(const float *x) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < QR_GROUP; i += 8)
        top = _mm256_max_epi32(top, _mm256_and_si256(magnitude, _mm256_castps_si256(_mm256_loadu_ps(x + i))));
    return (uint32_t)_mm_cvtsi128_si32(fold_max(top));
}

static void quantize_group(int8_t *q, qr_act_scales *s, uint32_t lane, const float *x) {
    uint32_t top = group_top(x);
    if (top < QR_ACT_TINY_BITS || top >= QR_ACT_INFINITY_BITS) {
        memset(q, 0, QR_GROUP);
        s->scale[lane] = s->bias[lane] = top < QR_ACT_TINY_BITS ? 0.0f : qr_bits_f32(QR_ACT_NAN_BITS);
        s->n128[lane] = s->n128_low[lane] = 0;
        return;
    }
    __m256 inverse = _mm256_set1_ps(QR_ACT_STEPS / qr_bits_f32(top));
    __m256i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)q, bytes);
    __m256i sums = half_sums(bytes);
    int low = _mm256_extract_epi32(sums, 0), sum = low + _mm256_extract_epi32(sums, 4);
    s->scale[lane] = qr_bits_f32(top) * QR_ACT_RECIPROCAL;
    s->bias[lane] = s->scale[lane] * (float)sum;
    s->n128[lane] = -128 * sum;
    s->n128_low[lane] = -128 * low;
}

void qr_quantize_avx2(qr_acts *acts, uint32_t row_begin, uint32_t row_end) {
    for (uint32_t row = row_begin; row < row_end; row++) {
        const float *x = acts->x + row * acts->ldx;
        int8_t *q = qr_act_codes(acts, row, 0);
        qr_act_scales *s = qr_act_scales_at(acts, row, 0);
        for (uint32_t g = 0; g < acts->k / QR_GROUP; g++)
            quantize_group(q + (size_t)g * QR_TILE_GROUP_BYTES, s + g, row % QR_TILE_ROWS, x + g * QR_GROUP);
    }
}
