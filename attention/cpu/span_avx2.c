/* span_avx2.c - attention over one span with 256-bit vectors: two of them hold 16 keys, or 16 elements of a value.
 *
 * Compiled with AVX2, FMA and F16C flags; nothing here may run before cpu_features has said yes. The same tiles as in
 * span_avx512.c, cut for sixteen registers: at most 12 accumulators.
 */
#include <immintrin.h>

#include "attention/cpu/unroll.h"
#include "attention/fold.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m256 widen(const quire_kv_type type, const uint8_t *at) {
    if (type == QUIRE_KV_F32) return _mm256_loadu_ps((const float *)(const void *)at);
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)at);
    if (type == QUIRE_KV_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* Bytes of 8 elements. */
INLINE size_t vector_bytes(const quire_kv_type type) { return type == QUIRE_KV_F32 ? 32 : 16; }

/* qr_canonical_exp2, lane by lane. */
INLINE __m256 exp2_lanes(__m256 x) {
    __m256 live = _mm256_cmp_ps(x, _mm256_set1_ps(QR_EXP2_MIN), _CMP_NLT_UQ);
    __m256 shifted = _mm256_add_ps(x, _mm256_set1_ps(0x1.8p23f));
    __m256 f = _mm256_sub_ps(x, _mm256_sub_ps(shifted, _mm256_set1_ps(0x1.8p23f)));
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(QR_EXP2_C6), f, _mm256_set1_ps(QR_EXP2_C5));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(QR_EXP2_C4));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(QR_EXP2_C3));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(QR_EXP2_C2));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(QR_EXP2_C1));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
    __m256i power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(shifted), 23), _mm256_set1_epi32(0x3f800000));
    return _mm256_and_ps(live, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}

/* ---- scores ---- */

/* R rows x B key groups: R * B * 2 independent chains over key_dim. */
INLINE void score_tile(const int R, const int B, const quire_kv_type type, const qr_span *s, uint32_t row, uint32_t group) {
    const float *q = s->q + row * QR_SPAN_STRIDE;
    float *out = s->weights + row * QR_SPAN_STRIDE + group * QR_SPAN_GROUP;
    const uint8_t *key[4], *fetch[4];
    const size_t fetch_step = s->value_stride * QR_SPAN_GROUP * 2 / s->key_dim; /* for two elements of the keys */
    __m256 sum[12];
    QR_UNROLL(4)
    for (int b = 0; b < B; b++) {
        key[b] = s->key[group + (uint32_t)b];
        fetch[b] = row == 0 ? s->value[group + (uint32_t)b] : key[b];
    }
    QR_UNROLL(12)
    for (int i = 0; i < R * B * 2; i++) sum[i] = _mm256_setzero_ps();
    for (uint32_t d = 0; d < s->key_dim; d += 2) {
        QR_UNROLL(4)
        for (int b = 0; b < B; b++) {
            _mm_prefetch(fetch[b], _MM_HINT_T0);
            fetch[b] += fetch_step;
        }
        QR_UNROLL(2)
        for (int e = 0; e < 2; e++) {
            __m256 k[8];
            QR_UNROLL(4)
            for (int b = 0; b < B; b++) {
                k[b * 2] = widen(type, key[b]);
                k[b * 2 + 1] = widen(type, key[b] + vector_bytes(type));
                key[b] += s->key_stride;
            }
            QR_UNROLL(6)
            for (int r = 0; r < R; r++) {
                __m256 x = _mm256_set1_ps(q[r * QR_SPAN_STRIDE + (int)d + e]);
                QR_UNROLL(8)
                for (int b = 0; b < B * 2; b++) sum[r * B * 2 + b] = _mm256_fmadd_ps(x, k[b], sum[r * B * 2 + b]);
            }
        }
    }
    QR_UNROLL(6)
    for (int r = 0; r < R; r++) {
        QR_UNROLL(8)
        for (int b = 0; b < B * 2; b++) _mm256_store_ps(out + r * QR_SPAN_STRIDE + b * 8, sum[r * B * 2 + b]);
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
    static const uint8_t rows[9] = {0, 1, 2, 3, 2, 3, 6, 3, 6};
    return left < 9 ? rows[left] : 6;
}

INLINE void score_span(const quire_kv_type type, const qr_span *s, uint32_t begin, uint32_t end) {
    for (uint32_t row = 0, n; row < s->row_count; row += n) {
        n = tile_rows(s->row_count - row);
        switch (n) {
        case 6: score_rows(6, 1, type, s, row, begin, end); break;
        case 3: score_rows(3, 2, type, s, row, begin, end); break;
        case 2: score_rows(2, 2, type, s, row, begin, end); break;
        default: score_rows(1, 4, type, s, row, begin, end); break;
        }
    }
}

/* ---- softmax ---- */

INLINE float tree(const bool max, __m256 low, __m256 high) {
    __m256 a = max ? _mm256_max_ps(low, high) : _mm256_add_ps(low, high);
    __m128 b0 = _mm256_castps256_ps128(a), b1 = _mm256_extractf128_ps(a, 1);
    __m128 b = max ? _mm_max_ps(b0, b1) : _mm_add_ps(b0, b1), c = _mm_movehl_ps(b, b);
    b = max ? _mm_max_ps(b, c) : _mm_add_ps(b, c);
    c = _mm_shuffle_ps(b, b, 1);
    return _mm_cvtss_f32(max ? _mm_max_ss(b, c) : _mm_add_ss(b, c));
}

/* Scores to weights in place. Lanes of the first and last group that the row does not see become -inf, so weight 0. */
static void softmax_row(float *s, uint32_t first, uint32_t limit, qr_attn_part *part) {
    uint32_t begin = first / QR_SPAN_GROUP * QR_SPAN_GROUP, end = (limit + QR_SPAN_GROUP - 1) / QR_SPAN_GROUP * QR_SPAN_GROUP;
    for (uint32_t t = begin; t < first; t++) s[t] = -INFINITY;
    for (uint32_t t = limit; t < end; t++) s[t] = -INFINITY;
    __m256 max0 = _mm256_set1_ps(-INFINITY), max1 = max0, sum0 = _mm256_setzero_ps(), sum1 = sum0;
    for (uint32_t t = begin; t < end; t += QR_SPAN_GROUP) {
        max0 = _mm256_max_ps(_mm256_load_ps(s + t), max0);
        max1 = _mm256_max_ps(_mm256_load_ps(s + t + 8), max1);
    }
    part->max = tree(true, max0, max1);
    max0 = _mm256_set1_ps(part->max);
    for (uint32_t t = begin; t < end; t += QR_SPAN_GROUP) {
        __m256 p0 = exp2_lanes(_mm256_sub_ps(_mm256_load_ps(s + t), max0));
        __m256 p1 = exp2_lanes(_mm256_sub_ps(_mm256_load_ps(s + t + 8), max0));
        _mm256_store_ps(s + t, p0);
        _mm256_store_ps(s + t + 8, p1);
        sum0 = _mm256_add_ps(sum0, p0);
        sum1 = _mm256_add_ps(sum1, p1);
    }
    part->sum = tree(false, sum0, sum1);
}

/* ---- values ---- */

/* Tokens [begin, end) of one group for R rows x C vectors of the output. In a ragged range a row takes only the tokens
 * that it sees; the blend keeps the others out of its sum. */
INLINE void value_group(const int R, const int C, const quire_kv_type type, const bool ragged, const qr_span *s, uint32_t row,
                        const uint8_t *value, uint32_t begin, uint32_t end, __m256 *sum, const uint8_t *fetch) {
    const float *p = s->weights + row * QR_SPAN_STRIDE;
    for (uint32_t t = begin; t < end; t++, value += s->value_stride) {
        __m256 v[8];
        for (uint32_t i = fetch ? 0 : s->next_lines; i < s->next_lines; i++, fetch += s->next_step)
            _mm_prefetch(fetch, _MM_HINT_T0);
        QR_UNROLL(8)
        for (int c = 0; c < C; c++) v[c] = widen(type, value + (size_t)c * vector_bytes(type));
        QR_UNROLL(6)
        for (int r = 0; r < R; r++) {
            __m256 w = _mm256_set1_ps(p[r * QR_SPAN_STRIDE + (int)t]);
            const uint32_t *first = s->first + row + r, *limit = s->limit + row + r;
            __m256 sees = _mm256_castsi256_ps(_mm256_set1_epi32(!ragged || (t >= *first && t < *limit) ? -1 : 0));
            QR_UNROLL(8)
            for (int c = 0; c < C; c++) {
                __m256 next = _mm256_fmadd_ps(w, v[c], sum[r * C + c]);
                sum[r * C + c] = ragged ? _mm256_blendv_ps(sum[r * C + c], next, sees) : next;
            }
        }
    }
}

/* R rows x C vectors of the output, from element d: all tokens that some of the rows see, in order. */
INLINE void value_tile(const int R, const int C, const quire_kv_type type, const qr_span *s, uint32_t row, uint32_t d) {
    qr_row_range range = qr_span_row_range(s, row, (uint32_t)R);
    size_t at = d / 8 * vector_bytes(type);
    __m256 sum[12];
    QR_UNROLL(12)
    for (int i = 0; i < R * C; i++) sum[i] = _mm256_setzero_ps();
    for (uint32_t t = range.first, stop; t < range.limit; t = stop) {
        const uint8_t *value = s->value[t / QR_SPAN_GROUP] + t % QR_SPAN_GROUP * s->value_stride + at;
        stop = qr_span_group_end(t, range.limit);
        const uint8_t *fetch = row == 0 && d == 0 ? s->next_key[t / QR_SPAN_GROUP] : NULL;
        if (t >= range.common_first && stop <= range.common_limit)
            value_group(R, C, type, false, s, row, value, t, stop, sum, fetch);
        else value_group(R, C, type, true, s, row, value, t, stop, sum, fetch);
    }
    QR_UNROLL(6)
    for (int r = 0; r < R; r++) {
        QR_UNROLL(8)
        for (int c = 0; c < C; c++) _mm256_store_ps(s->part[row + (uint32_t)r]->out + d + c * 8, sum[r * C + c]);
    }
}

INLINE void value_rows(const int R, const int C, const quire_kv_type type, const qr_span *s, uint32_t row) {
    uint32_t d = 0;
    for (; d + (uint32_t)C * 8 <= s->value_dim; d += (uint32_t)C * 8) value_tile(R, C, type, s, row, d);
    for (; d < s->value_dim; d += 16) value_tile(R, 2, type, s, row, d);
}

INLINE void value_span(const quire_kv_type type, const qr_span *s) {
    for (uint32_t row = 0, n; row < s->row_count; row += n) {
        n = tile_rows(s->row_count - row);
        switch (n) {
        case 6: value_rows(6, 2, type, s, row); break;
        case 3: value_rows(3, 4, type, s, row); break;
        case 2: value_rows(2, 4, type, s, row); break;
        default: value_rows(1, 8, type, s, row); break;
        }
    }
}

static void span_avx2(const qr_span *s) {
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
    const __m256 high = _mm256_set1_ps(65504.0f), low = _mm256_set1_ps(-65504.0f), sign = _mm256_set1_ps(-0.0f);
    uint64_t saturated = 0;
    for (uint32_t i = 0; i < count; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        int beyond = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_andnot_ps(sign, v), high, _CMP_GT_OQ));
        saturated += (uint64_t)__builtin_popcount((unsigned)beyond);
        v = _mm256_max_ps(low, _mm256_min_ps(high, v));
        _mm_storeu_si128((__m128i *)(void *)(out + i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    return saturated;
}

/* Nearest even on the bits; a NaN is made quiet instead. */
static void narrow_bf16(uint16_t *out, const float *x, uint32_t count) {
    for (uint32_t i = 0; i < count; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i), nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
        __m256i u = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
        __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
        __m256i r = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan)), 16);
        __m128i half = _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
        _mm_storeu_si128((__m128i *)(void *)(out + i), half);
    }
}

static uint64_t narrow_avx2(void *out, const float *x, uint32_t count, quire_kv_type type) {
    if (type == QUIRE_KV_F16) return narrow_f16(out, x, count);
    if (type == QUIRE_KV_BF16) narrow_bf16(out, x, count);
    if (type == QUIRE_KV_F32) memcpy(out, x, count * sizeof *x);
    return 0;
}

const qr_attn_path qr_attn_path_avx2 = {"avx2", span_avx2, fold_part, finish_part, narrow_avx2};
