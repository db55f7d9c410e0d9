/* device_cuda.h - the device seam over one NVIDIA GPU.
 *
 * Memory is the GPU's, copies are DMA between it and pinned host memory, streams and events are the runtime's own. The
 * header names no CUDA type, so that a room above may hold a device without the toolkit.
 *
 * Thread: one device belongs to one thread, which need not be the one that created it.
 */
#ifndef QR_BASE_CUDA_DEVICE_CUDA_H
#define QR_BASE_CUDA_DEVICE_CUDA_H

#include "base/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The stream that kernels run on. The others carry copies that may overtake it. */
enum { QR_DEVICE_CUDA_COMPUTE_STREAM = 0 };

typedef struct qr_device_cuda_info {
    char name[64];
    uint32_t compute_major, compute_minor; /* compute capability */
    uint32_t processor_count;              /* streaming multiprocessors */
    uint32_t copy_engine_count;            /* 2 and more: copies both ways at once */
    uint32_t l2_bytes;
    uint64_t memory_bytes, free_bytes; /* free as of the call */
} qr_device_cuda_info;

/* Takes GPU `ordinal` of those that the driver shows (CUDA_VISIBLE_DEVICES applies) and creates its context. Gives the
 * device. UNSUPPORTED: no driver, no GPU of that number, or one that is older than compute capability 8.0; NO_MEMORY; IO:
 * the driver refused. *error may be NULL. */
QUIRE_MUST_CHECK quire_status qr_device_cuda_create(uint32_t ordinal, qr_device **device, quire_error *error);

QUIRE_MUST_CHECK quire_status qr_device_cuda_info_get(qr_device *device, qr_device_cuda_info *info, quire_error *error);

/* The cudaStream_t behind a stream of the seam, for launching kernels between copies. Borrowed. Makes the GPU the calling
 * thread's current one, which launches need. */
void *qr_device_cuda_stream(qr_device *device, int stream);

#ifdef __cplusplus
}
#endif
#endif
