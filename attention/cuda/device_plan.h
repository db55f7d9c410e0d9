/* device_plan.h - the work lists of one step for the CUDA kernels, made on the host.
 *
 * Rows whose block tables name the same blocks over a span meet in one item, so a shared prefix is read once for up to 64
 * packed rows (row, query head of the group) instead of once for each sequence. What no other sequence shares is cut into
 * items of one span, except that a row's first item may take several spans and fold them as it goes: fewer partials where
 * there is work enough for the whole device. Which spans meet where never changes a bit of a result.
 *
 * Nothing here is device memory. The lists are for the caller to upload; their memory is taken at create and may be
 * registered as pinned. One plan serves one thread.
 */
#ifndef QR_ATTENTION_CUDA_DEVICE_PLAN_H
#define QR_ATTENTION_CUDA_DEVICE_PLAN_H

#include "attention/attention.h"
#include "attention/cuda/cuda_attention.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qr_cuda_plan_limits {
    uint32_t rows_max;
    uint32_t sequences_max;
    uint32_t tokens_max; /* of one sequence */
    /* At least rows_max; more lets long rows be split over the device. A shared prefix takes a cell for each row and span: with
     * fewer its first items take several spans, and where not even that fits nothing is shared in that step. */
    uint32_t cells_max;
} qr_cuda_plan_limits;

/* The lists of the last make; borrowed until the next. */
typedef struct qr_cuda_plan_lists {
    const qr_cuda_item *narrow, *wide; /* longest first */
    const qr_cuda_item_row *rows;
    const qr_cuda_fold_row *fold_rows;
    uint32_t narrow_count, wide_count, row_count, fold_count, cell_count;
} qr_cuda_plan_lists;

typedef struct qr_cuda_plan qr_cuda_plan;

/* Where the memory for uploads is, for pinning. */
typedef struct qr_cuda_plan_memory {
    void *base;
    size_t size_bytes;
} qr_cuda_plan_memory;

/* The shape has passed qr_cuda_shape_check. QUIRE_INVALID when cells_max is below rows_max or a limit is 0. */
QUIRE_MUST_CHECK quire_status qr_cuda_plan_create(const qr_cuda_shape *shape, const qr_cuda_plan_limits *limits,
                                                  const qr_cuda_launch *launch, qr_cuda_plan **plan, quire_error *error);
void qr_cuda_plan_destroy(qr_cuda_plan *plan);
qr_cuda_plan_memory qr_cuda_plan_memory_of(const qr_cuda_plan *plan);

/* Once per step, for all layers. Rows of one sequence stand together with rising positions, as for qr_attn_plan_make. Takes
 * time in proportion to the items and to the block ids that tables have in common; how much: docs/PERF.md. */
void qr_cuda_plan_make(qr_cuda_plan *plan, const qr_attn_batch *batch, qr_cuda_plan_lists *lists);

#ifdef __cplusplus
}
#endif
#endif
