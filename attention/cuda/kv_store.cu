/*
 * kv_store - the step's K and V into their blocks, its Q for the span kernel: RoPE, rounding or quantising.
 *
 * A warp takes one head of one row; lane i holds the adjacent pairs i, i + 32, ... of its elements, so RoPE needs no
 * exchange. Rows do not meet, and each (row, head) is written by one warp.
 *
 *   rope       (a, b) -> (a cos - b sin, a sin + b cos), each product and sum rounded as written (docs/NUMERICS.md)
 *   16 bits    nearest even; f16 saturates at +-65504 and is counted
 *   int8       scale = largest magnitude / 127, code = nearest even of x * (127 / largest), within +-127
 *   fp8_e4m3   the same with 448, and the nearest e4m3
 */
#include "attention/cuda/cuda_attention.h"
#include "attention/cuda/gpu_prims.h"

template <int KV> struct store_format {
    static constexpr bool EIGHT_BIT = KV == QUIRE_KV_INT8 || KV == QUIRE_KV_FP8_E4M3;
    static constexpr bool BF16 = KV == QUIRE_KV_BF16;
    static constexpr float LARGEST = KV == QUIRE_KV_INT8 ? 127.0f : 448.0f;
};

// Lane i's pairs of one head: at most 4 (head_dim 256).
struct store_head {
    float2 pair[4];
};

GPU_PRIM store_head store_load(const float *from, uint32_t pairs) {
    store_head h;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t at = threadIdx.x % 32 + 32 * (uint32_t)i;
        h.pair[i] = at < pairs ? *(const float2 *)(from + 2 * at) : make_float2(0.0f, 0.0f);
    }
    return h;
}

GPU_PRIM void store_rotate(store_head &h, const float *rope, uint32_t rope_pairs, float scale) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t at = threadIdx.x % 32 + 32 * (uint32_t)i;
        const float a = h.pair[i].x, b = h.pair[i].y;
        if (at < rope_pairs) {
            const float2 t = *(const float2 *)(rope + 2 * at);
            h.pair[i] = make_float2(a * t.x - b * t.y, a * t.y + b * t.x);
        }
        h.pair[i].x *= scale, h.pair[i].y *= scale;
    }
}

GPU_PRIM float store_largest(const store_head &h) {
    float m = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) m = fmaxf(m, fmaxf(fabsf(h.pair[i].x), fabsf(h.pair[i].y)));
#pragma unroll
    for (int x = 16; x; x /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, x));
    return m;
}

// Nearest integer, even on ties, for |x| < 2^22: adding 1.5 * 2^23 leaves it in the low bits.
GPU_PRIM uint32_t store_nearest(float x) { return __float_as_uint(x + 12582912.0f) - 0x4b400000u; }

GPU_PRIM uint32_t store_int8(float x) { return store_nearest(fminf(fmaxf(x, -127.0f), 127.0f)) & 0xffu; }

// Below 2^-6 e4m3 is a multiple of 2^-9; above, the top three mantissa bits of the f32, rounded to nearest even.
GPU_PRIM uint32_t store_e4m3(float x) {
    const float magnitude = fminf(fabsf(x), 448.0f);
    const uint32_t bits = __float_as_uint(magnitude), sign = __float_as_uint(x) >> 24 & 0x80u;
    const uint32_t rounded = (bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20;
    return sign | (magnitude < 0.015625f ? store_nearest(magnitude * 512.0f) : rounded - (120u << 3));
}

template <int KV> GPU_PRIM uint32_t store_code(float x) { return KV == QUIRE_KV_INT8 ? store_int8(x) : store_e4m3(x); }

GPU_PRIM float store_clamp(float x, uint32_t *beyond) {
    if (fabsf(x) > 65504.0f) (*beyond)++;
    return x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x; // NaN stays NaN
}

// Two bytes of codes or four of halves for each pair; for 8-bit types lane 0 writes the scale.
template <int KV>
GPU_PRIM void store_write(unsigned char *to, float *scale, store_head &h, uint32_t pairs, uint32_t *saturated) {
    using format = store_format<KV>;
    float largest = 0.0f, factor = 0.0f;
    if constexpr (format::EIGHT_BIT) {
        largest = store_largest(h);
        factor = largest >= 0x1p-100f ? format::LARGEST * rcp_fast(largest) : 0.0f;
        if (threadIdx.x % 32 == 0) *scale = largest >= 0x1p-100f ? largest * (1.0f / format::LARGEST) : 0.0f;
    }
    uint32_t beyond = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t at = threadIdx.x % 32 + 32 * (uint32_t)i;
        const float a = h.pair[i].x, b = h.pair[i].y;
        if (at < pairs) {
            if constexpr (format::EIGHT_BIT)
                ((uint16_t *)to)[at] = (uint16_t)(store_code<KV>(a * factor) | store_code<KV>(b * factor) << 8);
            else if constexpr (format::BF16) ((uint32_t *)to)[at] = f32x2_to_bf16x2(a, b);
            else ((uint32_t *)to)[at] = f32x2_to_f16x2(store_clamp(a, &beyond), store_clamp(b, &beyond));
        }
    }
    if (beyond) atomicAdd(saturated, beyond);
}

GPU_PRIM void store_query(void *to, const store_head &h, uint32_t pairs, bool bf16) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t at = threadIdx.x % 32 + 32 * (uint32_t)i;
        const float a = h.pair[i].x, b = h.pair[i].y;
        if (at < pairs) ((uint32_t *)to)[at] = bf16 ? f32x2_to_bf16x2(a, b) : f32x2_to_f16x2(a, b);
    }
}

template <int KV>
__global__ void __launch_bounds__(QR_CUDA_CTA_THREADS) qr_store_kernel(const __grid_constant__ qr_cuda_store_params p) {
    const uint32_t heads = p.head_count + 2 * p.kv_head_count, pairs = p.head_dim / 2, warps = gridDim.x * (blockDim.x / 32);
    for (uint32_t work = (blockIdx.x * blockDim.x + threadIdx.x) / 32; work < p.row_count * heads; work += warps) {
        const uint32_t row = work / heads, head = work - row * heads;
        const float *rope = p.rope + (uint64_t)row * p.rope_dims;
        if (head < p.head_count) {
            const uint64_t at = (uint64_t)row * p.head_count + head;
            store_head h = store_load(p.q + at * p.head_dim, pairs);
            store_rotate(h, rope, p.rope_dims / 2, p.query_scale);
            store_query((uint32_t *)p.q_out + at * pairs, h, pairs, store_format<KV>::BF16);
        } else {
            const bool is_key = head < p.head_count + p.kv_head_count;
            const uint32_t kv_head = head - p.head_count - (is_key ? 0 : p.kv_head_count), slot = p.row_slot[row];
            const float *from = (is_key ? p.k : p.v) + ((uint64_t)row * p.kv_head_count + kv_head) * p.head_dim;
            const qr_cuda_part part = p.parts[kv_head];
            unsigned char *block = p.pool + p.row_block[row] * p.block_stride;
            store_head h = store_load(from, pairs);
            if (is_key) store_rotate(h, rope, p.rope_dims / 2, 1.0f);
            const uint32_t row_bytes = p.head_dim * (store_format<KV>::EIGHT_BIT ? 1 : 2);
            store_write<KV>(block + (is_key ? part.key : part.value) + slot * row_bytes,
                            (float *)(block + (is_key ? part.key_scale : part.value_scale)) + slot, h, pairs, p.saturated);
        }
    }
}

extern "C" int qr_cuda_store_run(quire_kv_type kv_type, const qr_cuda_store_params *p, void *stream) {
    const uint32_t warps = QR_CUDA_CTA_THREADS / 32, work = p->row_count * (p->head_count + 2 * p->kv_head_count);
    if (work == 0) return 0;
    const dim3 grid((work + warps - 1) / warps), block(QR_CUDA_CTA_THREADS);
    switch (kv_type) {
#define STORE(KV, stem) \
    case KV: return (int)GPU_LAUNCH(qr_store_kernel<KV>, grid, block, 0, (cudaStream_t)stream, *p);
        QR_CUDA_KV_TYPES(STORE)
#undef STORE
    default: return (int)cudaErrorInvalidValue;
    }
}
