/*
 * The span kernel, for decode and prefill alike, and its launcher. Included by one .cu file for each KV type.
 *
 * A fixed grid walks a list of items x KV heads. Narrow: every warp is a walker of its own with its own ring, and takes up
 * to 16 packed rows; nothing in the loop waits for another warp. Wide: a CTA is a walker; its four warps take up to 16
 * packed rows each against the same stages. Both run span_rows::tile() on the same tiles in the same order.
 *
 * At the end of a span the state of the rows is a partial. An item of several spans folds each onto those before it: the
 * running fold waits in shared memory (wide) or in the row's cell (narrow, and where head_dim leaves no room).
 *
 * Shared memory: ring(s) of stages | queries, where they do not fit in registers | running folds (wide)
 */
#pragma once
#include "attention/cuda/launch_internal.h"
#include "attention/cuda/span_load.cuh"

template <int KV, int DIM, bool WIDE> struct span_shared {
    using stage = span_stage<KV, DIM, WIDE>;
    static constexpr bool KEEPS_FOLD = WIDE && DIM <= 128;
    static constexpr int RING = stage::COUNT * stage::BYTES;
    static constexpr int QUERY = span_traits<KV, DIM>::QUERY_BYTES;
    static constexpr int FOLD = KEEPS_FOLD ? (DIM / 8 + 1) * 32 * 16 : 0; // of a warp: (out, then max and sum), 16 bytes a lane
    static constexpr int bytes(int warps) { return (WIDE ? RING : warps * RING) + warps * (QUERY + FOLD); }
};

// A packed row's place in memory.
struct span_target {
    bool live, direct;
    uint64_t cell, row; // in units of head_dim elements
};

template <int KV, int DIM>
__device__ __forceinline__ span_target span_target_of(const qr_cuda_attn_params &p, const qr_cuda_item &item, uint32_t kv_head,
                                                      uint32_t place) {
    const qr_cuda_item_row *entry;
    uint32_t head;
    span_target target = {};
    target.live = span_rows<KV, DIM>::locate(p, item, kv_head, place, &entry, &head);
    if (target.live) {
        target.direct = entry->direct != 0;
        target.cell = (uint64_t)entry->cell * p.head_count + head;
        target.row = (uint64_t)entry->row * p.head_count + head;
    }
    return target;
}

// The state of row r + 8h to its cell.
template <int KV, int DIM>
__device__ __forceinline__ void span_write_cell(const qr_cuda_attn_params &p, const span_rows<KV, DIM> &rows, int h,
                                                uint64_t cell) {
    float *to = p.cell_out + cell * DIM;
#pragma unroll
    for (int d = 0; d < DIM / 8; d += 2) {
        const float(&a)[4] = rows.out[d], (&b)[4] = rows.out[d + 1];
        if (span_rows<KV, DIM>::EIGHT_BIT) { // four dims in a row: even, odd, even, odd
            *(float4 *)(to + rows.dim_of(d, 0)) = make_float4(a[2 * h], b[2 * h], a[2 * h + 1], b[2 * h + 1]);
        } else {
            *(float2 *)(to + rows.dim_of(d, 0)) = make_float2(a[2 * h], a[2 * h + 1]);
            *(float2 *)(to + rows.dim_of(d + 1, 0)) = make_float2(b[2 * h], b[2 * h + 1]);
        }
    }
    if (threadIdx.x % 4 == 0) *(float2 *)(p.cell_state + cell * 2) = make_float2(rows.max[h], rows.sum[h]);
}

// Folds the state of row r + 8h onto the one in its cell.
template <int KV, int DIM>
__device__ __forceinline__ void span_fold_cell(const qr_cuda_attn_params &p, span_rows<KV, DIM> &rows, int h, uint64_t cell) {
    const float *from = p.cell_out + cell * DIM;
    const float2 state = *(const float2 *)(p.cell_state + cell * 2);
    const span_weights w = span_fold_weights(state.x, rows.max[h]);
    rows.max[h] = w.max, rows.sum[h] = span_fold_value(w, state.y, rows.sum[h]);
#pragma unroll
    for (int d = 0; d < DIM / 8; d += 2) {
        float(&a)[4] = rows.out[d], (&b)[4] = rows.out[d + 1];
        if (span_rows<KV, DIM>::EIGHT_BIT) {
            float4 e = *(const float4 *)(from + rows.dim_of(d, 0));
            a[2 * h] = span_fold_value(w, e.x, a[2 * h]), b[2 * h] = span_fold_value(w, e.y, b[2 * h]);
            a[2 * h + 1] = span_fold_value(w, e.z, a[2 * h + 1]), b[2 * h + 1] = span_fold_value(w, e.w, b[2 * h + 1]);
        } else {
            float2 e = *(const float2 *)(from + rows.dim_of(d, 0)), f = *(const float2 *)(from + rows.dim_of(d + 1, 0));
            a[2 * h] = span_fold_value(w, e.x, a[2 * h]), a[2 * h + 1] = span_fold_value(w, e.y, a[2 * h + 1]);
            b[2 * h] = span_fold_value(w, f.x, b[2 * h]), b[2 * h + 1] = span_fold_value(w, f.y, b[2 * h + 1]);
        }
    }
}

// The final result of row r + 8h.
template <int KV, int DIM>
__device__ __forceinline__ void span_write_out(const qr_cuda_attn_params &p, const span_rows<KV, DIM> &rows, int h,
                                               uint64_t row) {
    uint32_t *to = (uint32_t *)p.out + row * (DIM / 2);
    const float inverse = span_inverse(rows.sum[h]);
    auto pair = [&](float x, float y) {
        return KV == QUIRE_KV_BF16 ? f32x2_to_bf16x2(x * inverse, y * inverse) : f32x2_to_f16x2(x * inverse, y * inverse);
    };
#pragma unroll
    for (int d = 0; d < DIM / 8; d += 2) {
        const float(&a)[4] = rows.out[d], (&b)[4] = rows.out[d + 1];
        if (span_rows<KV, DIM>::EIGHT_BIT) {
            uint32_t *at = to + rows.dim_of(d, 0) / 2;
            at[0] = pair(a[2 * h], b[2 * h]), at[1] = pair(a[2 * h + 1], b[2 * h + 1]);
        } else {
            to[rows.dim_of(d, 0) / 2] = pair(a[2 * h], a[2 * h + 1]);
            to[rows.dim_of(d + 1, 0) / 2] = pair(b[2 * h], b[2 * h + 1]);
        }
    }
}

// A lane's own place in shared memory for the running fold: no other lane touches it.
template <int KV, int DIM> __device__ __forceinline__ void span_keep_fold(float4 *fold, const span_rows<KV, DIM> &rows) {
#pragma unroll
    for (int d = 0; d < DIM / 8; d++)
        fold[d * 32] = make_float4(rows.out[d][0], rows.out[d][1], rows.out[d][2], rows.out[d][3]);
    fold[DIM / 8 * 32] = make_float4(rows.max[0], rows.max[1], rows.sum[0], rows.sum[1]);
}

template <int KV, int DIM> __device__ __forceinline__ void span_take_fold(const float4 *fold, span_rows<KV, DIM> &rows) {
    const float4 state = fold[DIM / 8 * 32];
    const span_weights w[2] = {span_fold_weights(state.x, rows.max[0]), span_fold_weights(state.y, rows.max[1])};
    rows.max[0] = w[0].max, rows.sum[0] = span_fold_value(w[0], state.z, rows.sum[0]);
    rows.max[1] = w[1].max, rows.sum[1] = span_fold_value(w[1], state.w, rows.sum[1]);
#pragma unroll
    for (int d = 0; d < DIM / 8; d++) {
        const float4 e = fold[d * 32];
        float(&o)[4] = rows.out[d];
        o[0] = span_fold_value(w[0], e.x, o[0]), o[1] = span_fold_value(w[0], e.y, o[1]);
        o[2] = span_fold_value(w[1], e.z, o[2]), o[3] = span_fold_value(w[1], e.w, o[3]);
    }
}

// The end of a span: folds it onto the spans before it, then keeps the fold for the next one or writes it.
template <int KV, int DIM, bool WIDE>
__device__ __forceinline__ void span_close(const qr_cuda_attn_params &p, const qr_cuda_item &item, uint32_t kv_head,
                                           span_rows<KV, DIM> &rows, float4 *fold, bool is_first, bool is_last) {
    constexpr bool KEEPS_FOLD = span_shared<KV, DIM, WIDE>::KEEPS_FOLD;
    const uint32_t tile = WIDE ? threadIdx.x / 32 : 0, place = tile * QR_CUDA_ROW_TILE + threadIdx.x % 32 / 4;
    rows.close();
    if (KEEPS_FOLD && !is_first) span_take_fold<KV, DIM>(fold, rows);
    if (KEEPS_FOLD && !is_last) {
        span_keep_fold<KV, DIM>(fold, rows);
    } else {
        if (!KEEPS_FOLD && !is_first) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const span_target target = span_target_of<KV, DIM>(p, item, kv_head, place + 8 * (uint32_t)h);
                if (target.live) span_fold_cell<KV, DIM>(p, rows, h, target.cell);
            }
            __syncwarp(); // a cell's state is read by four lanes before one of them replaces it
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const span_target target = span_target_of<KV, DIM>(p, item, kv_head, place + 8 * (uint32_t)h);
            if (target.live && is_last && target.direct) span_write_out<KV, DIM>(p, rows, h, target.row);
            else if (target.live) span_write_cell<KV, DIM>(p, rows, h, target.cell);
        }
    }
    if (!is_last) rows.clear();
}

// Two CTAs per multiprocessor leave all the registers that a thread can have: the compiler is to spill nothing.
constexpr int span_ctas_min(int dim) { return dim <= 128 ? 2 : 1; }

template <int KV, int DIM, bool WIDE>
__global__ void __launch_bounds__(QR_CUDA_CTA_THREADS, span_ctas_min(DIM))
    qr_span_kernel(const __grid_constant__ qr_cuda_attn_params p) {
    using layout = span_shared<KV, DIM, WIDE>;
    using stage = span_stage<KV, DIM, WIDE>;
    using traits = span_traits<KV, DIM>;
    GPU_DYNAMIC_SHARED(shared);
    const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
    const uint32_t walker = WIDE ? blockIdx.x : blockIdx.x * warps + warp;
    unsigned char *ring = shared + (WIDE ? 0 : warp * layout::RING);
    unsigned char *own = shared + (WIDE ? 1 : warps) * layout::RING + warp * (layout::QUERY + layout::FOLD);
    float4 *fold = (float4 *)(own + layout::QUERY) + lane;

    span_rows<KV, DIM> rows;
    rows.query_shared = (uint4 *)own;
    span_loader<KV, DIM, WIDE> loader;
    loader.begin(p, ring, walker);
#pragma unroll
    for (int i = 0; i < stage::COUNT - 1; i++) loader.next(p);

    for (uint32_t place = walker; place < span_work_count(p); place += span_walkers<WIDE>()) {
        const span_work work = span_work_at(p, place);
        const qr_cuda_item &item = p.items[work.item];
        const int limit = item.limit;
        rows.load(p, item, work.kv_head, WIDE ? warp : 0);
        rows.clear();
        bool is_first = true;
        for (int token = item.first & -stage::STEP; token < limit; token += stage::STEP) {
            cp_async_wait<stage::COUNT - 2>();
            if (WIDE) __syncthreads(); // everybody's copies have landed, and the stage before this one is free
            else __syncwarp();
            loader.next(p);
            const unsigned char *at = ring + loader.slot * stage::BYTES;
#pragma unroll
            for (int i = 0; i < stage::STEP; i += traits::TILE)
                if (rows.sees(token + i))
                    rows.tile(at + i * traits::STRIDE, at + stage::VALUE + i * traits::STRIDE,
                              (const float *)(at + stage::SCALES) + i, stage::STEP, token + i);
            const int end = token + stage::STEP;
            if (end % QR_CUDA_SPAN_TOKENS == 0 || end >= limit) {
                span_close<KV, DIM, WIDE>(p, item, work.kv_head, rows, fold, is_first, end >= limit);
                is_first = false;
            }
        }
    }
    cp_async_wait<0>();
}

// ---- launching ----

template <int KV, int DIM, bool WIDE>
static int span_query(const qr_cuda_launch_device *device, uint32_t *ctas, uint32_t *warps) {
    using layout = span_shared<KV, DIM, WIDE>;
    uint32_t count = QR_CUDA_CTA_THREADS / 32;
    while (!WIDE && count > 1 && layout::bytes((int)count) > device->shared_bytes_max) count--;
    int resident = 0, shared = layout::bytes((int)count);
    cudaError_t e = cudaFuncSetAttribute(qr_span_kernel<KV, DIM, WIDE>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (e == cudaSuccess)
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, qr_span_kernel<KV, DIM, WIDE>, (int)count * 32,
                                                          (size_t)shared);
    *ctas = (uint32_t)(resident * device->multiprocessor_count), *warps = count;
    return e == cudaSuccess && resident == 0 ? (int)cudaErrorInvalidConfiguration : (int)e;
}

template <int KV> static int span_query_all(uint32_t head_dim, const qr_cuda_launch_device *device, qr_cuda_launch *launch) {
    uint32_t wide_warps;
    int e;
    switch (head_dim) {
#define QUERY(DIM)                                                                           \
    case DIM:                                                                                \
        e = span_query<KV, DIM, false>(device, &launch->narrow_ctas, &launch->narrow_warps); \
        return e ? e : span_query<KV, DIM, true>(device, &launch->wide_ctas, &wide_warps);
        QR_CUDA_HEAD_DIMS(QUERY)
#undef QUERY
    }
    return (int)cudaErrorInvalidValue;
}

template <int KV, int DIM>
static int span_launch(const qr_cuda_launch *launch, const qr_cuda_attn_params *p, bool wide, cudaStream_t stream) {
    const uint32_t warps = wide ? QR_CUDA_CTA_THREADS / 32 : launch->narrow_warps;
    const uint32_t work = p->item_count * p->kv_head_count, ctas = wide ? work : (work + warps - 1) / warps;
    const uint32_t most = wide ? launch->wide_ctas : launch->narrow_ctas;
    const dim3 grid(ctas < most ? ctas : most), block(warps * 32);
    if (wide)
        return (int)GPU_LAUNCH((qr_span_kernel<KV, DIM, true>), grid, block, (span_shared<KV, DIM, true>::bytes((int)warps)),
                               stream, *p);
    return (int)GPU_LAUNCH((qr_span_kernel<KV, DIM, false>), grid, block, (span_shared<KV, DIM, false>::bytes((int)warps)),
                           stream, *p);
}

template <int KV>
static int span_launch_all(uint32_t head_dim, const qr_cuda_launch *launch, const qr_cuda_attn_params *p, bool wide,
                           void *stream) {
    if (p->item_count == 0) return 0;
    switch (head_dim) {
#define LAUNCH(DIM) \
    case DIM: return span_launch<KV, DIM>(launch, p, wide, (cudaStream_t)stream);
        QR_CUDA_HEAD_DIMS(LAUNCH)
#undef LAUNCH
    }
    return (int)cudaErrorInvalidValue;
}

#define QR_SPAN_KERNELS(KV, stem)                                                                                            \
    extern "C" int qr_span_query_##stem(uint32_t head_dim, const qr_cuda_launch_device *device, qr_cuda_launch *launch) {    \
        return span_query_all<KV>(head_dim, device, launch);                                                                 \
    }                                                                                                                        \
    extern "C" int qr_span_launch_##stem(uint32_t head_dim, const qr_cuda_launch *launch, const qr_cuda_attn_params *params, \
                                         bool wide, void *stream) {                                                          \
        return span_launch_all<KV>(head_dim, launch, params, wide, stream);                                                  \
    }
