/* launch_internal.h - between cuda_attention.c and the .cu files: one pair of functions for each KV type. */
#ifndef QR_ATTENTION_CUDA_LAUNCH_INTERNAL_H
#define QR_ATTENTION_CUDA_LAUNCH_INTERNAL_H

#include "attention/cuda/cuda_attention.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qr_cuda_launch_device {
    int multiprocessor_count, shared_bytes_max; /* of one CTA */
} qr_cuda_launch_device;

#define QR_CUDA_DECLARE(kv, stem)                                                                                            \
    int qr_span_query_##stem(uint32_t head_dim, const qr_cuda_launch_device *device, qr_cuda_launch *launch);                \
    int qr_span_launch_##stem(uint32_t head_dim, const qr_cuda_launch *launch, const qr_cuda_attn_params *params, bool wide, \
                              void *stream);
QR_CUDA_KV_TYPES(QR_CUDA_DECLARE)
#undef QR_CUDA_DECLARE

int qr_fold_launch(const qr_cuda_attn_params *params, uint32_t head_dim, bool bf16, void *stream);

#ifdef __cplusplus
}
#endif
#endif
