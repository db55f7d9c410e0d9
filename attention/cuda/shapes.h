/* shapes.h - the one list of shapes that the CUDA kernels support; code, tests and docs/CUDA.md read it.
 *
 * Adding a head dimension is a line here: kernels, dispatch and tests follow. A head dimension is a multiple of 16, so that
 * a row of an 8-bit type is whole 16-byte chunks.
 */
#ifndef QR_ATTENTION_CUDA_SHAPES_H
#define QR_ATTENTION_CUDA_SHAPES_H

#include <quire/types.h>

/* X(head_dim). A seeded fault is compiled for the one that shows it: compile time. Everything else holds them all. */
#ifdef QR_CUDA_ONLY_HEAD_DIM
#define QR_CUDA_HEAD_DIMS(X) X(QR_CUDA_ONLY_HEAD_DIM)
#else
#define QR_CUDA_HEAD_DIMS(X) X(64) X(80) X(96) X(128) X(256)
#endif

/* X(KV type, file stem): one source file of kernels each. */
#define QR_CUDA_KV_TYPES(X) X(QUIRE_KV_F16, f16) X(QUIRE_KV_BF16, bf16) X(QUIRE_KV_INT8, int8) X(QUIRE_KV_FP8_E4M3, fp8)

/* X(block_tokens): powers of two that divide a span. */
#define QR_CUDA_BLOCK_TOKENS(X) X(16) X(32) X(64) X(128)

enum {
    QR_CUDA_SPAN_TOKENS = 256, /* as on the CPU; a multiple of every block_tokens */
    QR_CUDA_ROW_TILE = 16,     /* rows of an MMA */
    QR_CUDA_WIDE_TILES = 4,    /* row tiles that share one read of K and V in a wide item */
    QR_CUDA_WIDE_ROWS = QR_CUDA_ROW_TILE * QR_CUDA_WIDE_TILES,
    QR_CUDA_CTA_THREADS = 128,
};
#endif
