/*
 * One warp's 16 packed rows against tiles of keys and values: scores, running maximum, weights, output.
 *
 * The warp holds the rows' queries and their state (max, sum, out) over the span at hand in registers. tile() adds one tile
 * of TILE tokens from shared memory; its order of operations per row is all there is to the arithmetic of attention, and it
 * is the same whoever loaded the tile and whatever the other 15 rows are:
 *
 *   score  = q . k over head_dim in steps of 16 (MMA)             8-bit: times the token's K scale
 *   max'   = max(max, scores of the tile)
 *   out    = out * 2^(max - max'), sum alike                      exact when the maximum stays: the factor is 1
 *   p      = 2^(score - max')                                     8-bit: times 2^7 (sum too), to keep p * scale normal in f16
 *   sum   += p, each of 4 lanes its own tokens in order
 *   out   += f16 or bf16(p) . v in steps of 16 tokens (MMA)       8-bit: p times the token's V scale
 *
 * A token that the row does not see has the score -inf and the weight +0, and its value in shared memory is finite: zeros
 * where nobody sees it. So a tile that the row does not see changes no bit of its state.
 *
 * Registers of m16n8k16 (r = lane / 4, t = lane % 4): rows r and r + 8, columns 2t and 2t + 1. For 8-bit types the 16 dims
 * of a chunk stand in another order, the same for queries and keys: a lane's four key bytes are dims 4t .. 4t+3, of which
 * the even ones are one MMA register and the odd ones the other. The same bytes of a transposed value tile are dims 2r and
 * 2r + 1 of two tokens: the even dims of a chunk make one output tile and the odd dims the next.
 */
#pragma once
#include "attention/cuda/cuda_attention.h"
#include "attention/cuda/span_state.cuh"

template <int KV, int DIM> struct span_traits {
    static constexpr bool EIGHT_BIT = KV == QUIRE_KV_INT8 || KV == QUIRE_KV_FP8_E4M3;
    static constexpr bool BF16 = KV == QUIRE_KV_BF16;
    static constexpr int ROW_BYTES = DIM * (EIGHT_BIT ? 1 : 2);
    static constexpr int CHUNKS = ROW_BYTES / 16; // 16-byte chunks of a row
    // Rows lie an odd number of chunks apart in shared memory, so eight neighbouring rows are in eight bank groups.
    static constexpr int STRIDE = (CHUNKS | 1) * 16;
    static constexpr int TILE = EIGHT_BIT ? 32 : 16; // tokens: the same bytes for 16-bit and 8-bit types
    static constexpr int KEY_TILES = TILE / 8;
    static constexpr int STEPS = DIM / 16;                                 // of an MMA over head_dim
    static constexpr bool QUERY_SHARED = DIM > 128;                        // else in registers
    static constexpr int QUERY_BYTES = QUERY_SHARED ? STEPS * 32 * 16 : 0; // of a warp
};

template <int KV, int DIM> struct span_rows {
    using traits = span_traits<KV, DIM>;
    static constexpr bool EIGHT_BIT = traits::EIGHT_BIT;
    static constexpr int TILE = traits::TILE, STRIDE = traits::STRIDE;

    float out[DIM / 8][4], max[2], sum[2];
    float base[2];                  // what weights subtract from a score: set_base()
    int first[2], limit[2];         // of rows r and r + 8
    int seen_first, seen_limit;     // some row of the warp sees these tokens
    int common_first, common_limit; // all of them see these
    uint4 query[traits::QUERY_SHARED ? 1 : traits::STEPS];
    uint4 *query_shared;

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int d = 0; d < DIM / 8; d++)
#pragma unroll
            for (int y = 0; y < 4; y++) out[d][y] = 0.0f;
        max[0] = max[1] = QR_NEGATIVE_INFINITY;
        sum[0] = sum[1] = 0.0f;
        set_base();
    }

    // Row entry and query head of packed row `place` of the item; false past its end.
    static __device__ __forceinline__ bool locate(const qr_cuda_attn_params &p, const qr_cuda_item &item, uint32_t kv_head,
                                                  uint32_t place, const qr_cuda_item_row **entry, uint32_t *head) {
        uint32_t packed = item.packed_begin + place, row = packed / p.group;
        *entry = p.rows + item.row + row;
        *head = kv_head * p.group + (packed - row * p.group);
        return place < item.packed_count;
    }

    __device__ __forceinline__ void load(const qr_cuda_attn_params &p, const qr_cuda_item &item, uint32_t kv_head,
                                         uint32_t row_tile) {
        const int r = (int)threadIdx.x % 32 / 4;
        const uint32_t *q[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const qr_cuda_item_row *entry;
            uint32_t head;
            bool live = locate(p, item, kv_head, row_tile * QR_CUDA_ROW_TILE + (uint32_t)(r + 8 * h), &entry, &head);
            first[h] = live ? max_of(entry->first, item.first) : 0;
            limit[h] = live ? min_of(entry->limit, item.limit) : 0;
            q[h] = live ? (const uint32_t *)p.q + ((uint64_t)entry->row * p.head_count + head) * (DIM / 2) : nullptr;
        }
        load_query(q);
        seen_first = 0x7fffffff, seen_limit = 0, common_first = 0, common_limit = 0x7fffffff;
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (q[h]) {
                seen_first = min_of(seen_first, first[h]), seen_limit = max_of(seen_limit, limit[h]);
                common_first = max_of(common_first, first[h]), common_limit = min_of(common_limit, limit[h]);
            }
#pragma unroll
        for (int x = 4; x < 32; x *= 2) {
            seen_first = min_of(seen_first, __shfl_xor_sync(~0u, seen_first, x));
            seen_limit = max_of(seen_limit, __shfl_xor_sync(~0u, seen_limit, x));
            common_first = max_of(common_first, __shfl_xor_sync(~0u, common_first, x));
            common_limit = min_of(common_limit, __shfl_xor_sync(~0u, common_limit, x));
        }
    }

    // True when some row of this warp sees a token of the tile.
    __device__ __forceinline__ bool sees(int token) const { return token < seen_limit && token + TILE > seen_first; }

    // key, value: the tile's rows in shared memory; scales: its K scales, and its V scales `scale_step` floats on.
    __device__ __forceinline__ void tile(const unsigned char *key, const unsigned char *value, const float *scales,
                                         int scale_step, int token) {
        float s[traits::KEY_TILES][4];
        const bool masked = token < common_first || token + TILE > common_limit;
        score(s, key, scales);
        if (masked) mask(s, token);
        raise_max(s);
        uint32_t p[traits::KEY_TILES / 2][4];
        weigh(p, s, scales + scale_step, masked, token);
        add_values(p, value);
    }

    // After the span's last tile: the sums of a row's four lanes; no negative zero, which a hidden tile would lose.
    __device__ __forceinline__ void close() {
        const float unit = KV == QUIRE_KV_FP8_E4M3 ? GPU_E4M3_UNIT : 1.0f;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
            sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
        }
#pragma unroll
        for (int d = 0; d < DIM / 8; d++)
#pragma unroll
            for (int y = 0; y < 4; y++) out[d][y] = out[d][y] * unit + 0.0f;
    }

    // Dim of out[d][y].
    static __device__ __forceinline__ int dim_of(int d, int y) {
        const int t = (int)threadIdx.x % 4;
        return EIGHT_BIT ? d / 2 * 16 + 4 * t + 2 * (y & 1) + (d & 1) : d * 8 + 2 * t + (y & 1);
    }

  private:
    static __device__ __forceinline__ int min_of(int a, int b) { return a < b ? a : b; }
    static __device__ __forceinline__ int max_of(int a, int b) { return a > b ? a : b; }

    static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        if (traits::BF16) mma_bf16(c, a, b0, b1);
        else mma_f16(c, a, b0, b1);
    }
    static __device__ __forceinline__ uint32_t even(uint32_t x) {
        return KV == QUIRE_KV_INT8 ? int8_even_to_f16x2(x) : e4m3_even_to_f16x2(x);
    }
    static __device__ __forceinline__ uint32_t odd(uint32_t x) {
        return KV == QUIRE_KV_INT8 ? int8_odd_to_f16x2(x) : e4m3_odd_to_f16x2(x);
    }

    // Rows past the item's end are zeros.
    __device__ __forceinline__ void load_query(const uint32_t *const (&q)[2]) {
        const int t = (int)threadIdx.x % 4;
#pragma unroll
        for (int k = 0; k < traits::STEPS; k++) {
            uint32_t low[2] = {0, 0}, high[2] = {0, 0};
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (q[h]) {
                    uint32_t a = q[h][k * 8 + (EIGHT_BIT ? 2 * t : t)], b = q[h][k * 8 + (EIGHT_BIT ? 2 * t + 1 : 4 + t)];
                    low[h] = EIGHT_BIT ? (a & 0xffffu) | b << 16 : a;
                    high[h] = EIGHT_BIT ? a >> 16 | (b & 0xffff0000u) : b;
                }
            uint4 fragment = make_uint4(low[0], low[1], high[0], high[1]);
            if constexpr (traits::QUERY_SHARED) query_shared[k * 32 + threadIdx.x % 32] = fragment;
            else query[k] = fragment;
        }
    }

    __device__ __forceinline__ void query_fragment(uint32_t (&a)[4], int k) const {
        uint4 f;
        if constexpr (traits::QUERY_SHARED) f = query_shared[k * 32 + threadIdx.x % 32];
        else f = query[k];
        a[0] = f.x, a[1] = f.y, a[2] = f.z, a[3] = f.w;
    }

    __device__ __forceinline__ void score(float (&s)[traits::KEY_TILES][4], const unsigned char *key,
                                          const float *scales) const {
        const int lane = (int)threadIdx.x % 32, t = lane % 4;
#pragma unroll
        for (int x = 0; x < traits::KEY_TILES; x++) s[x][0] = s[x][1] = s[x][2] = s[x][3] = 0.0f;
        const unsigned char *row =
            key + (EIGHT_BIT ? lane * STRIDE : ((lane & 7) + (lane >> 4) * 8) * STRIDE + (lane >> 3 & 1) * 16);
#pragma unroll
        for (int k = 0; k < traits::STEPS; k++) {
            uint32_t a[4], b[4];
            query_fragment(a, k);
            ldmatrix_x4<false>(b, row + k * (EIGHT_BIT ? 16 : 32));
            if constexpr (EIGHT_BIT) {
#pragma unroll
                for (int x = 0; x < traits::KEY_TILES; x++) mma(s[x], a, even(b[x]), odd(b[x]));
            } else {
                mma(s[0], a, b[0], b[1]);
                mma(s[1], a, b[2], b[3]);
            }
        }
        if constexpr (EIGHT_BIT) {
            const float unit = KV == QUIRE_KV_FP8_E4M3 ? GPU_E4M3_UNIT : 1.0f;
#pragma unroll
            for (int x = 0; x < traits::KEY_TILES; x++) {
                float2 scale = *(const float2 *)(scales + 8 * x + 2 * t);
                scale.x *= unit, scale.y *= unit;
                s[x][0] *= scale.x, s[x][1] *= scale.y, s[x][2] *= scale.x, s[x][3] *= scale.y;
            }
        }
    }

    __device__ __forceinline__ void mask(float (&s)[traits::KEY_TILES][4], int token) const {
        const int at = token + (int)threadIdx.x % 4 * 2;
#pragma unroll
        for (int x = 0; x < traits::KEY_TILES; x++)
#pragma unroll
            for (int y = 0; y < 4; y++) {
                int k = at + 8 * x + (y & 1);
                if (k < first[y >> 1] || k >= limit[y >> 1]) s[x][y] = QR_NEGATIVE_INFINITY;
            }
    }

    // The maximum, and nothing before a row has seen a token: -inf - -inf would be NaN.
    __device__ __forceinline__ void set_base() {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            base[h] = max[h] == QR_NEGATIVE_INFINITY ? 0.0f : max[h];
            if (EIGHT_BIT) base[h] -= 7.0f;
        }
    }

    // The lanes of a row exchange their maxima only where one of them is new.
    __device__ __forceinline__ void raise_max(const float (&s)[traits::KEY_TILES][4]) {
        float m[2] = {max[0], max[1]};
#pragma unroll
        for (int x = 0; x < traits::KEY_TILES; x++)
#pragma unroll
            for (int y = 0; y < 4; y++) m[y >> 1] = fmaxf(m[y >> 1], s[x][y]);
        if (!__any_sync(~0u, m[0] > max[0] || m[1] > max[1])) return; // else every factor is 1
        float factor[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            m[h] = fmaxf(m[h], __shfl_xor_sync(~0u, m[h], 1));
            m[h] = fmaxf(m[h], __shfl_xor_sync(~0u, m[h], 2));
            factor[h] = m[h] == QR_NEGATIVE_INFINITY ? 1.0f : exp2_fast(max[h] - m[h]);
            max[h] = m[h], sum[h] *= factor[h];
        }
        set_base();
#pragma unroll
        for (int d = 0; d < DIM / 8; d++)
#pragma unroll
            for (int y = 0; y < 4; y++) out[d][y] *= factor[y >> 1];
    }

    __device__ __forceinline__ void weigh(uint32_t (&p)[traits::KEY_TILES / 2][4], const float (&s)[traits::KEY_TILES][4],
                                          const float *scales, bool masked, int token) {
        float2 scale[traits::KEY_TILES];
        if constexpr (EIGHT_BIT) read_scales(scale, scales, masked, token);
#pragma unroll
        for (int x = 0; x < traits::KEY_TILES; x++) {
            float e[4];
#pragma unroll
            for (int y = 0; y < 4; y++) {
                e[y] = exp2_fast(s[x][y] - base[y >> 1]);
                sum[y >> 1] += e[y];
                if (EIGHT_BIT) e[y] *= y & 1 ? scale[x].y : scale[x].x;
            }
            p[x / 2][x % 2 * 2] = traits::BF16 ? f32x2_to_bf16x2(e[0], e[1]) : f32x2_to_f16x2(e[0], e[1]);
            p[x / 2][x % 2 * 2 + 1] = traits::BF16 ? f32x2_to_bf16x2(e[2], e[3]) : f32x2_to_f16x2(e[2], e[3]);
        }
    }

    // V scales of this lane's tokens. Of those that nobody sees they may be NaN.
    __device__ __forceinline__ void read_scales(float2 (&scale)[traits::KEY_TILES], const float *scales, bool masked,
                                                int token) const {
        const int t = (int)threadIdx.x % 4;
#pragma unroll
        for (int x = 0; x < traits::KEY_TILES; x++) scale[x] = *(const float2 *)(scales + 8 * x + 2 * t);
        if (!masked) return;
#pragma unroll
        for (int x = 0; x < traits::KEY_TILES; x++) {
            const int k = token + 8 * x + 2 * t;
            if (k < seen_first || k >= seen_limit) scale[x].x = 0.0f;
            if (k + 1 < seen_first || k + 1 >= seen_limit) scale[x].y = 0.0f;
        }
    }

    __device__ __forceinline__ void add_values(const uint32_t (&p)[traits::KEY_TILES / 2][4], const unsigned char *value) {
        const int lane = (int)threadIdx.x % 32;
        const unsigned char *row = value + (EIGHT_BIT ? lane * STRIDE : (lane & 15) * STRIDE + (lane >> 4) * 16);
        if constexpr (EIGHT_BIT) {
#pragma unroll
            for (int c = 0; c < traits::CHUNKS; c++) {
                uint32_t v[4];
                // No load moves past it: with more of them ahead, long heads would spill from sm_100 on.
                if (DIM > 128 && c % 4 == 0) __syncwarp();
                ldmatrix_x4<true>(v, row + c * 16);
                mma(out[2 * c], p[0], even(v[0]), even(v[1]));
                mma(out[2 * c + 1], p[0], odd(v[0]), odd(v[1]));
                mma(out[2 * c], p[1], even(v[2]), even(v[3]));
                mma(out[2 * c + 1], p[1], odd(v[2]), odd(v[3]));
            }
        } else {
#pragma unroll
            for (int c = 0; c < traits::CHUNKS; c += 2) {
                uint32_t v[4];
                ldmatrix_x4<true>(v, row + c * 16);
                mma(out[c], p[0], v[0], v[1]);
                mma(out[c + 1], p[0], v[2], v[3]);
            }
        }
    }
};
