/* cuda_attention.c - which kernels serve which shape: a table by KV type, and the checks before it. */
#include "attention/cuda/cuda_attention.h"

#include <cuda_runtime_api.h>

#include "attention/cuda/launch_internal.h"
#include "base/assertion.h"
#include "base/error.h"

typedef struct kernel_set {
    int (*query)(uint32_t head_dim, const qr_cuda_launch_device *device, qr_cuda_launch *launch);
    int (*launch)(uint32_t head_dim, const qr_cuda_launch *launch, const qr_cuda_attn_params *params, bool wide, void *stream);
} kernel_set;

static const kernel_set kernel_sets[QUIRE_KV_TYPE_COUNT] = {
#define KERNEL_SET(kv, stem) [kv] = {qr_span_query_##stem, qr_span_launch_##stem},
    QR_CUDA_KV_TYPES(KERNEL_SET)
#undef KERNEL_SET
};

static bool head_dim_known(uint32_t head_dim) {
#define KNOWN(dim) \
    if (head_dim == dim) return true;
    QR_CUDA_HEAD_DIMS(KNOWN)
#undef KNOWN
    return false;
}

static bool block_tokens_known(uint32_t block_tokens) {
#define KNOWN(tokens) \
    if (block_tokens == tokens) return true;
    QR_CUDA_BLOCK_TOKENS(KNOWN)
#undef KNOWN
    return false;
}

quire_status qr_cuda_shape_check(const qr_cuda_shape *shape, quire_error *error) {
    if ((unsigned)shape->kv_type >= QUIRE_KV_TYPE_COUNT || !kernel_sets[shape->kv_type].launch)
        return qr_fail(error, QUIRE_UNSUPPORTED, "kv_type", QR_NO_OFFSET, "CUDA attention has no kernels for this KV type");
    if (!head_dim_known(shape->head_dim))
        return qr_fail(error, QUIRE_UNSUPPORTED, "head_dim", QR_NO_OFFSET, "CUDA attention has no kernels for head_dim %u",
                       (unsigned)shape->head_dim);
    if (!block_tokens_known(shape->block_tokens))
        return qr_fail(error, QUIRE_UNSUPPORTED, "block_tokens", QR_NO_OFFSET,
                       "CUDA attention wants blocks of 16, 32, 64 or 128, not %u", (unsigned)shape->block_tokens);
    if (!shape->kv_head_count || !shape->head_count || shape->head_count % shape->kv_head_count)
        return qr_fail(error, QUIRE_UNSUPPORTED, "head_count", QR_NO_OFFSET, "%u query heads are no multiple of %u KV heads",
                       (unsigned)shape->head_count, (unsigned)shape->kv_head_count);
    return QUIRE_OK;
}

int qr_cuda_launch_query(const qr_cuda_shape *shape, qr_cuda_launch *launch) {
    QR_ASSERT(kernel_sets[shape->kv_type].query);
    qr_cuda_launch_device device = {0};
    int index = 0;
    cudaError_t e = cudaGetDevice(&index);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&device.multiprocessor_count, cudaDevAttrMultiProcessorCount, index);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&device.shared_bytes_max, cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
    return e == cudaSuccess ? kernel_sets[shape->kv_type].query(shape->head_dim, &device, launch) : (int)e;
}

int qr_cuda_span_run(const qr_cuda_shape *shape, const qr_cuda_launch *launch, const qr_cuda_attn_params *params, bool wide,
                     void *stream) {
    QR_ASSERT(kernel_sets[shape->kv_type].launch);
    return kernel_sets[shape->kv_type].launch(shape->head_dim, launch, params, wide, stream);
}

int qr_cuda_fold_run(const qr_cuda_shape *shape, const qr_cuda_attn_params *params, void *stream) {
    return qr_fold_launch(params, shape->head_dim, shape->kv_type == QUIRE_KV_BF16, stream);
}
