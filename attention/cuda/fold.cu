/*
 * fold - rows with several partials: left fold in the order of spans, then the division.
 *
 * A warp takes one query head of one row at a time; a lane holds the same dims of every partial, so nothing is exchanged.
 * The arithmetic is span_state.cuh, as in the span kernel: folding here or there gives the same bits.
 */
#include "attention/cuda/launch_internal.h"
#include "attention/cuda/span_state.cuh"

template <int DIM, bool BF16>
__global__ void __launch_bounds__(QR_CUDA_CTA_THREADS) qr_fold_kernel(const __grid_constant__ qr_cuda_attn_params p) {
    constexpr int PAIRS = DIM / 2, EACH = (PAIRS + 31) / 32;
    const uint32_t lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32);
    for (uint32_t work = (blockIdx.x * blockDim.x + threadIdx.x) / 32; work < p.fold_count * p.head_count; work += warps) {
        const uint32_t index = work / p.head_count, head = work - index * p.head_count;
        const qr_cuda_fold_row row = p.fold_rows[index];
        float max = QR_NEGATIVE_INFINITY, sum = 0.0f;
        float2 out[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) out[i] = make_float2(0.0f, 0.0f);
        for (uint32_t cell = row.cell; cell < row.cell + row.count; cell++) {
            const uint64_t place = (uint64_t)cell * p.head_count + head;
            const float2 state = *(const float2 *)(p.cell_state + place * 2);
            const span_weights w = span_fold_weights(max, state.x);
            max = w.max, sum = span_fold_value(w, sum, state.y);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const uint32_t pair = lane + 32 * (uint32_t)i;
                if (PAIRS % 32 == 0 || pair < PAIRS) {
                    const float2 o = *(const float2 *)(p.cell_out + place * DIM + 2 * pair);
                    out[i].x = span_fold_value(w, out[i].x, o.x), out[i].y = span_fold_value(w, out[i].y, o.y);
                }
            }
        }
        const float inverse = span_inverse(sum);
        uint32_t *to = (uint32_t *)p.out + ((uint64_t)row.row * p.head_count + head) * PAIRS;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const uint32_t pair = lane + 32 * (uint32_t)i;
            const float x = out[i].x * inverse, y = out[i].y * inverse;
            if (PAIRS % 32 == 0 || pair < PAIRS) to[pair] = BF16 ? f32x2_to_bf16x2(x, y) : f32x2_to_f16x2(x, y);
        }
    }
}

extern "C" int qr_fold_launch(const qr_cuda_attn_params *p, uint32_t head_dim, bool bf16, void *stream) {
    if (p->fold_count == 0) return 0;
    const uint32_t warps = QR_CUDA_CTA_THREADS / 32, ctas = (p->fold_count * p->head_count + warps - 1) / warps;
    const dim3 grid(ctas), block(QR_CUDA_CTA_THREADS);
    switch (head_dim) {
#define FOLD(DIM)                                                                                             \
    case DIM:                                                                                                 \
        return (int)(bf16 ? GPU_LAUNCH((qr_fold_kernel<DIM, true>), grid, block, 0, (cudaStream_t)stream, *p) \
                          : GPU_LAUNCH((qr_fold_kernel<DIM, false>), grid, block, 0, (cudaStream_t)stream, *p));
        QR_CUDA_HEAD_DIMS(FOLD)
#undef FOLD
    }
    return (int)cudaErrorInvalidValue;
}
