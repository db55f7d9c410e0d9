/* span_avx512.c - attention over one span with 512-bit vectors: one vector holds 16 keys, or 16 elements of a value.
 *
 * Compiled with AVX-512 flags; nothing here may run before cpu_features has said yes. Registers: a score tile is R rows x B
 * key groups, a value tile R rows x C vectors of the output, each at most 24 accumulators of the 32 registers. The tiles
 * are one always-inlined body each, made for the row counts of a table.
 */
#include <immintrin.h>

#include "attention/cpu/unroll.h"
#include "attention/fold.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m512 widen(const quire_kv_type type, const uint8_t *at) {
    if (type == QUIRE_KV_F32) return _mm512_loadu_ps(at);
    __m256i half = _mm256_loadu_si256((const __m256i *)at);
    if (type == QUIRE_KV_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* qr_canonical_exp2, lane by lane. */
INLINE __m512 exp2_lanes(__m512 x) {
    __mmask16 live = _mm512_cmp_ps_mask(x, _mm512_set1_ps(QR_EXP2_MIN), _CMP_NLT_UQ);
    __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), f = _mm512_sub_ps(x, n);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(QR_EXP2_C6), f, _mm512_set1_ps(QR_EXP2_C5));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(QR_EXP2_C4));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(QR_EXP2_C3));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(QR_EXP2_C2));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(QR_EXP2_C1));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(live, p, n);
}

/* ---- scores ---- */

/* R rows x B key groups: R * B independent chains over key_dim. */
INLINE void score_tile(const int R, const int B, const quire_kv_type type, const qr_span *s, uint32_t row, uint32_t group) {
    const float *q = s->q + row * QR_SPAN_STRIDE;
    float *out = s->weights + row * QR_SPAN_STRIDE + group * QR_SPAN_GROUP;
    const uint8_t *key[4], *fetch[4];
    const size_t fetch_step = s->value_stride * QR_SPAN_GROUP * 2 / s->key_dim; /* for two elements of the keys */
    __m512 sum[24];
    QR_UNROLL(4)
    for (int b = 0; b < B; b++) {
        key[b] = s->key[group + (uint32_t)b];
        fetch[b] = row == 0 ? s->value[group + (uint32_t)b] : key[b];
    }
    QR_UNROLL(24)
    for (int i = 0; i < R * B; i++) sum[i] = _mm512_setzero_ps();
    for (uint32_t d = 0; d < s->key_dim; d += 2) {
        QR_UNROLL(4)
        for (int b = 0; b < B; b++) {
            _mm_prefetch(fetch[b], _MM_HINT_T0);
            fetch[b] += fetch_step;
        }
        QR_UNROLL(2)
        for (int e = 0; e < 2; e++) {
            __m512 k[4];
            QR_UNROLL(4)
            for (int b = 0; b < B; b++) {
                k[b] = widen(type, key[b]);
                key[b] += s->key_stride;
            }
            QR_UNROLL(12)
            for (int r = 0; r < R; r++) {
                __m512 x = _mm512_set1_ps(q[r * QR_SPAN_STRIDE + (int)d + e]);
                QR_UNROLL(4)
                for (int b = 0; b < B; b++) sum[r * B + b] = _mm512_fmadd_ps(x, k[b], sum[r * B + b]);
            }
        }
    }
    QR_UNROLL(12)
    for (int r = 0; r < R; r++) {
        QR_UNROLL(4)
        for (int b = 0; b < B; b++) _mm512_store_ps(out + r * QR_SPAN_STRIDE + b * QR_SPAN_GROUP, sum[r * B + b]);
    }
}

INLINE void score_rows(const int R, const int B, const quire_kv_type type, const qr_span *s, uint32_t row, uint32_t begin,
                       uint32_t end) {
    uint32_t group = begin;
    for (; group + (uint32_t)B <= end; group += (uint32_t)B) score_tile(R, B, type, s, row, group);
    for (; group < end; group++) score_tile(R, 1, type, s, row, group);
}

/* Rows of the next tile when `left` remain: sizes that exist, chosen so that no single row is left over. */
static uint32_t tile_rows(uint32_t left) {
    static const uint8_t rows[13] = {0, 1, 2, 3, 4, 3, 6, 4, 8, 6, 6, 8, 12};
    return rows[left < 12 ? left : 12];
}

INLINE void score_span(const quire_kv_type type, const qr_span *s, uint32_t begin, uint32_t end) {
    for (uint32_t row = 0, n; row < s->row_count; row += n) {
        n = tile_rows(s->row_count - row);
        switch (n) {
        case 12: score_rows(12, 2, type, s, row, begin, end); break;
        case 8: score_rows(8, 3, type, s, row, begin, end); break;
        case 6: score_rows(6, 4, type, s, row, begin, end); break;
        case 4: score_rows(4, 4, type, s, row, begin, end); break;
        case 3: score_rows(3, 4, type, s, row, begin, end); break;
        case 2: score_rows(2, 4, type, s, row, begin, end); break;
        default: score_rows(1, 4, type, s, row, begin, end); break;
        }
    }
}

/* ---- softmax ---- */

INLINE float tree(const bool max, __m512 lanes) {
    __m256 a0 = _mm512_castps512_ps256(lanes), a1 = _mm512_extractf32x8_ps(lanes, 1);
    __m256 a = max ? _mm256_max_ps(a0, a1) : _mm256_add_ps(a0, a1);
    __m128 b0 = _mm256_castps256_ps128(a), b1 = _mm256_extractf128_ps(a, 1);
    __m128 b = max ? _mm_max_ps(b0, b1) : _mm_add_ps(b0, b1), c = _mm_movehl_ps(b, b);
    b = max ? _mm_max_ps(b, c) : _mm_add_ps(b, c);
    c = _mm_shuffle_ps(b, b, 1);
    return _mm_cvtss_f32(max ? _mm_max_ss(b, c) : _mm_add_ss(b, c));
}

/* Scores to weights in place. Lanes of the first and last group that the row does not see become -inf, so weight 0. */
static void softmax_row(float *s, uint32_t first, uint32_t limit, qr_attn_part *part) {
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    uint32_t begin = first / QR_SPAN_GROUP * QR_SPAN_GROUP, end = (limit + QR_SPAN_GROUP - 1) / QR_SPAN_GROUP * QR_SPAN_GROUP;
    _mm512_mask_store_ps(s + begin, (__mmask16)((1u << (first - begin)) - 1), lowest);
    _mm512_mask_store_ps(s + end - QR_SPAN_GROUP, (__mmask16) ~(0xffffu >> (end - limit)), lowest);
    __m512 max = lowest, sum = _mm512_setzero_ps();
    for (uint32_t t = begin; t < end; t += QR_SPAN_GROUP) max = _mm512_max_ps(_mm512_load_ps(s + t), max);
    part->max = tree(true, max);
    max = _mm512_set1_ps(part->max);
    for (uint32_t t = begin; t < end; t += QR_SPAN_GROUP) {
        __m512 p = exp2_lanes(_mm512_sub_ps(_mm512_load_ps(s + t), max));
        sum = _mm512_add_ps(sum, p);
        _mm512_store_ps(s + t, p);
    }
    part->sum = tree(false, sum);
}

/* ---- values ---- */

/* Tokens [begin, end) of one group for R rows x C vectors of the output. In a ragged range a row takes only the tokens
 * that it sees; the mask keeps the others out of its sum. */
INLINE void value_group(const int R, const int C, const quire_kv_type type, const bool ragged, const qr_span *s, uint32_t row,
                        const uint8_t *value, uint32_t begin, uint32_t end, __m512 *sum, const uint8_t *fetch) {
    const float *p = s->weights + row * QR_SPAN_STRIDE;
    for (uint32_t t = begin; t < end; t++, value += s->value_stride) {
        __m512 v[4];
        for (uint32_t i = fetch ? 0 : s->next_lines; i < s->next_lines; i++, fetch += s->next_step)
            _mm_prefetch(fetch, _MM_HINT_T0);
        QR_UNROLL(4)
        for (int c = 0; c < C; c++) v[c] = widen(type, value + c * (type == QUIRE_KV_F32 ? 64 : 32));
        QR_UNROLL(12)
        for (int r = 0; r < R; r++) {
            __m512 w = _mm512_set1_ps(p[r * QR_SPAN_STRIDE + (int)t]);
            const uint32_t *first = s->first + row + r, *limit = s->limit + row + r;
            __mmask16 sees = !ragged || (t >= *first && t < *limit) ? 0xffff : 0;
            QR_UNROLL(4)
            for (int c = 0; c < C; c++)
                sum[r * C + c] =
                    ragged ? _mm512_mask3_fmadd_ps(w, v[c], sum[r * C + c], sees) : _mm512_fmadd_ps(w, v[c], sum[r * C + c]);
        }
    }
}

/* R rows x C vectors of the output, from element d: all tokens that some of the rows see, in order. */
INLINE void value_tile(const int R, const int C, const quire_kv_type type, const qr_span *s, uint32_t row, uint32_t d) {
    qr_row_range range = qr_span_row_range(s, row, (uint32_t)R);
    size_t at = d * (type == QUIRE_KV_F32 ? 4u : 2u);
    __m512 sum[24];
    QR_UNROLL(24)
    for (int i = 0; i < R * C; i++) sum[i] = _mm512_setzero_ps();
    for (uint32_t t = range.first, stop; t < range.limit; t = stop) {
        const uint8_t *value = s->value[t / QR_SPAN_GROUP] + t % QR_SPAN_GROUP * s->value_stride + at;
        stop = qr_span_group_end(t, range.limit);
        const uint8_t *fetch = row == 0 && d == 0 ? s->next_key[t / QR_SPAN_GROUP] : NULL;
        if (t >= range.common_first && stop <= range.common_limit)
            value_group(R, C, type, false, s, row, value, t, stop, sum, fetch);
        else value_group(R, C, type, true, s, row, value, t, stop, sum, fetch);
    }
    QR_UNROLL(12)
    for (int r = 0; r < R; r++) {
        QR_UNROLL(4)
        for (int c = 0; c < C; c++) _mm512_store_ps(s->part[row + (uint32_t)r]->out + d + c * 16, sum[r * C + c]);
    }
}

INLINE void value_rows(const int R, const int C, const quire_kv_type type, const qr_span *s, uint32_t row) {
    uint32_t d = 0;
    for (; d + (uint32_t)C * 16 <= s->value_dim; d += (uint32_t)C * 16) value_tile(R, C, type, s, row, d);
    for (; d < s->value_dim; d += 16) value_tile(R, 1, type, s, row, d);
}

INLINE void value_span(const quire_kv_type type, const qr_span *s) {
    for (uint32_t row = 0, n; row < s->row_count; row += n) {
        n = tile_rows(s->row_count - row);
        switch (n) {
        case 12: value_rows(12, 2, type, s, row); break;
        case 8: value_rows(8, 2, type, s, row); break;
        case 6: value_rows(6, 4, type, s, row); break;
        case 4: value_rows(4, 4, type, s, row); break;
        case 3: value_rows(3, 4, type, s, row); break;
        case 2: value_rows(2, 4, type, s, row); break;
        default: value_rows(1, 4, type, s, row); break;
        }
    }
}

static void span_avx512(const qr_span *s) {
    qr_row_range range = qr_span_row_range(s, 0, s->row_count);
    uint32_t begin = range.first / QR_SPAN_GROUP, end = (range.limit + QR_SPAN_GROUP - 1) / QR_SPAN_GROUP;
    switch (s->key_type) {
    case QUIRE_KV_F32: score_span(QUIRE_KV_F32, s, begin, end); break;
    case QUIRE_KV_F16: score_span(QUIRE_KV_F16, s, begin, end); break;
    default: score_span(QUIRE_KV_BF16, s, begin, end); break;
    }
    for (uint32_t r = 0; r < s->row_count; r++)
        softmax_row(s->weights + r * QR_SPAN_STRIDE, s->first[r], s->limit[r], s->part[r]);
    switch (s->value_type) {
    case QUIRE_KV_F32: value_span(QUIRE_KV_F32, s); break;
    case QUIRE_KV_F16: value_span(QUIRE_KV_F16, s); break;
    default: value_span(QUIRE_KV_BF16, s); break;
    }
}

/* ---- storing ---- */

/* Beyond the largest finite f16 values saturate; NaN is the second operand of min and max, so it stays. */
static uint64_t narrow_f16(uint16_t *out, const float *x, uint32_t count) {
    const __m512 high = _mm512_set1_ps(65504.0f), low = _mm512_set1_ps(-65504.0f);
    uint64_t saturated = 0;
    for (uint32_t i = 0; i < count; i += 16) {
        __m512 v = _mm512_loadu_ps(x + i);
        saturated += (uint64_t)__builtin_popcount(_mm512_cmp_ps_mask(_mm512_abs_ps(v), high, _CMP_GT_OQ));
        v = _mm512_max_ps(low, _mm512_min_ps(high, v));
        _mm256_storeu_si256((__m256i *)(out + i), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    return saturated;
}

/* Nearest even on the bits; a NaN is made quiet instead. */
static void narrow_bf16(uint16_t *out, const float *x, uint32_t count) {
    for (uint32_t i = 0; i < count; i += 16) {
        __m512 v = _mm512_loadu_ps(x + i);
        __m512i u = _mm512_castps_si512(v), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
        __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        rounded = _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000));
        _mm256_storeu_si256((__m256i *)(out + i), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
    }
}

static uint64_t narrow_avx512(void *out, const float *x, uint32_t count, quire_kv_type type) {
    if (type == QUIRE_KV_F16) return narrow_f16(out, x, count);
    if (type == QUIRE_KV_BF16) narrow_bf16(out, x, count);
    if (type == QUIRE_KV_F32) memcpy(out, x, count * sizeof *x);
    return 0;
}

const qr_attn_path qr_attn_path_avx512 = {"avx512", span_avx512, fold_part, finish_part, narrow_avx512};
