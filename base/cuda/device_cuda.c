/* device_cuda.c - the device seam over the CUDA runtime.
 *
 * Plain C: the runtime's C interface, no kernels. Copies are cudaMemcpyAsync with the direction left to the addresses, so
 * that one call serves both ways and the pool itself; between pinned memory and the GPU they are DMA and never hold the
 * caller up. (With host memory that is not registered they would still be right, but the driver may wait inside the call.)
 *
 * An event of the seam is a number, sequence * QR_DEVICE_STREAMS_MAX + stream. Each stream has a ring of CUDA events, oldest
 * first; polling takes the complete ones from its head. When the ring is full, the newest CUDA event is recorded again and so
 * stands for the earlier number too: that completes later than it had to, never too early, and nothing is allocated.
 *
 * CUDA errors stick: after the first one no call tells the truth any more. So the first is kept, later work is refused, and no
 * further event completes; status() says why.
 */
#include "base/cuda/device_cuda.h"

#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "base/assertion.h"
#include "base/error.h"
#include "base/memory.h"

enum {
    EVENTS_PER_STREAM = 64, /* more than a step has transfers in flight; beyond it events merge */
    OLDEST_COMPUTE_MAJOR = 8,
};

typedef struct cuda_slot {
    cudaEvent_t event;
    uint64_t sequence; /* the newest that it stands for */
} cuda_slot;

typedef struct cuda_lane {
    cudaStream_t stream;
    cuda_slot slots[EVENTS_PER_STREAM]; /* recorded: [first, first + count), in a circle, oldest first */
    uint32_t first, count;
    uint64_t given, complete; /* sequences */
} cuda_lane;

typedef struct cuda_device {
    qr_device device;
    int ordinal;
    uint32_t memory_count, registered_count;
    cudaError_t failure; /* the first, which is the one that means something */
    const char *failed_call;
    cuda_lane lanes[QR_DEVICE_STREAMS_MAX];
} cuda_device;

static cuda_device *cuda_of(qr_device *device) { return (cuda_device *)(void *)device; }

static cuda_lane *cuda_lane_of(qr_device *device, int stream) {
    QR_ASSERT(device != NULL && stream >= 0 && stream < QR_DEVICE_STREAMS_MAX);
    return &cuda_of(device)->lanes[stream];
}

static quire_status cuda_fail(quire_error *error, quire_status status, const char *call, cudaError_t code) {
    return qr_fail(error, status, "cuda", QR_NO_OFFSET, "%s: %s", call, cudaGetErrorString(code));
}

/* Keeps the first failure. Returns the status of the call. */
static quire_status cuda_lose(cuda_device *cuda, const char *call, cudaError_t code) {
    if (cuda->failure == cudaSuccess) {
        cuda->failure = code;
        cuda->failed_call = call;
    }
    return QUIRE_IO;
}

/* What a thread allocates goes to its current GPU, and a new thread begins with GPU 0. */
static quire_status cuda_enter(cuda_device *cuda, quire_error *error) {
    cudaError_t code = cudaSetDevice(cuda->ordinal);
    return code == cudaSuccess ? QUIRE_OK : cuda_fail(error, QUIRE_IO, "cudaSetDevice", code);
}

static quire_status cuda_alloc(qr_device *device, size_t size_bytes, void **memory, quire_error *error) {
    *memory = NULL;
    quire_status status = cuda_enter(cuda_of(device), error);
    if (status != QUIRE_OK) return status;
    cudaError_t code = cudaMalloc(memory, size_bytes);
    if (code != cudaSuccess) {
        *memory = NULL;
        (void)cudaGetLastError(); /* running out of memory is no reason to distrust the device */
        return cuda_fail(error, code == cudaErrorMemoryAllocation ? QUIRE_NO_MEMORY : QUIRE_IO, "cudaMalloc", code);
    }
    cuda_of(device)->memory_count++;
    return QUIRE_OK;
}

static void cuda_free(qr_device *device, void *memory) {
    if (!memory) return;
    cuda_device *cuda = cuda_of(device);
    QR_ASSERT(cuda->memory_count > 0);
    cuda->memory_count--;
    cudaError_t code = cudaFree(memory);
    if (code != cudaSuccess) (void)cuda_lose(cuda, "cudaFree", code);
}

static quire_status cuda_host_register(qr_device *device, void *memory, size_t size_bytes, quire_error *error) {
    quire_status status = cuda_enter(cuda_of(device), error);
    if (status != QUIRE_OK) return status;
    cudaError_t code = cudaHostRegister(memory, size_bytes, cudaHostRegisterPortable);
    if (code != cudaSuccess) {
        (void)cudaGetLastError();
        return cuda_fail(error, code == cudaErrorMemoryAllocation ? QUIRE_NO_MEMORY : QUIRE_IO, "cudaHostRegister", code);
    }
    cuda_of(device)->registered_count++;
    return QUIRE_OK;
}

static void cuda_host_unregister(qr_device *device, void *memory) {
    if (!memory) return;
    cuda_device *cuda = cuda_of(device);
    QR_ASSERT(cuda->registered_count > 0);
    cuda->registered_count--;
    cudaError_t code = cudaHostUnregister(memory);
    if (code != cudaSuccess) (void)cuda_lose(cuda, "cudaHostUnregister", code);
}

static quire_status cuda_copy_async(qr_device *device, int stream, void *to, const void *from, size_t size_bytes) {
    cuda_lane *lane = cuda_lane_of(device, stream);
    if (cuda_of(device)->failure != cudaSuccess) return QUIRE_IO;
    cudaError_t code = cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, lane->stream);
    return code == cudaSuccess ? QUIRE_OK : cuda_lose(cuda_of(device), "cudaMemcpyAsync", code);
}

/* The slot to record next: a free one, or the newest once more. */
static cuda_slot *lane_next_slot(cuda_lane *lane) {
    if (lane->count < EVENTS_PER_STREAM) lane->count++;
    return &lane->slots[(lane->first + lane->count - 1) % EVENTS_PER_STREAM];
}

static void cuda_reap(cuda_device *cuda, cuda_lane *lane) {
    while (lane->count > 0) {
        const cuda_slot *oldest = &lane->slots[lane->first];
        cudaError_t code = cudaEventQuery(oldest->event);
        if (code == cudaErrorNotReady) {
            (void)cudaGetLastError(); /* the runtime remembers even this as an error */
            return;
        }
        if (code != cudaSuccess) {
            (void)cuda_lose(cuda, "cudaEventQuery", code);
            return;
        }
        lane->complete = oldest->sequence;
        lane->first = (lane->first + 1) % EVENTS_PER_STREAM;
        lane->count--;
    }
}

static qr_device_event cuda_event(qr_device *device, int stream) {
    cuda_lane *lane = cuda_lane_of(device, stream);
    cuda_device *cuda = cuda_of(device);
    if (lane->count == EVENTS_PER_STREAM && cuda->failure == cudaSuccess) cuda_reap(cuda, lane);
    uint64_t sequence = ++lane->given;
    if (cuda->failure == cudaSuccess) {
        cuda_slot *slot = lane_next_slot(lane);
        slot->sequence = sequence;
        cudaError_t code = cudaEventRecord(slot->event, lane->stream);
        if (code != cudaSuccess) (void)cuda_lose(cuda, "cudaEventRecord", code);
    }
    return (qr_device_event){sequence * QR_DEVICE_STREAMS_MAX + (unsigned)stream};
}

static bool cuda_poll(qr_device *device, qr_device_event event) {
    cuda_device *cuda = cuda_of(device);
    cuda_lane *lane = &cuda->lanes[event.value % QR_DEVICE_STREAMS_MAX];
    uint64_t sequence = event.value / QR_DEVICE_STREAMS_MAX;
    QR_ASSERT(sequence <= lane->given);
    if (lane->complete >= sequence) return true;
    if (cuda->failure == cudaSuccess) cuda_reap(cuda, lane);
    return lane->complete >= sequence;
}

/* The CUDA event that stands for a sequence; NULL when it is known to be complete. */
static cudaEvent_t lane_find(const cuda_lane *lane, uint64_t sequence) {
    for (uint32_t i = 0; i < lane->count; i++) {
        const cuda_slot *slot = &lane->slots[(lane->first + i) % EVENTS_PER_STREAM];
        if (slot->sequence >= sequence) return slot->event;
    }
    return NULL;
}

static quire_status cuda_wait(qr_device *device, int stream, qr_device_event event) {
    const cuda_lane *lane = cuda_lane_of(device, stream);
    cuda_device *cuda = cuda_of(device);
    const cuda_lane *other = &cuda->lanes[event.value % QR_DEVICE_STREAMS_MAX];
    uint64_t sequence = event.value / QR_DEVICE_STREAMS_MAX;
    if (cuda->failure != cudaSuccess) return QUIRE_IO;
    if (other->complete >= sequence) return QUIRE_OK;
    cudaEvent_t found = lane_find(other, sequence);
    QR_ASSERT(found != NULL);
    cudaError_t code = cudaStreamWaitEvent(lane->stream, found, 0);
    return code == cudaSuccess ? QUIRE_OK : cuda_lose(cuda, "cudaStreamWaitEvent", code);
}

static quire_status cuda_status(qr_device *device, quire_error *error) {
    const cuda_device *cuda = cuda_of(device);
    if (cuda->failure == cudaSuccess) return QUIRE_OK;
    return cuda_fail(error, QUIRE_IO, cuda->failed_call, cuda->failure);
}

/* Waits for what the stream still does, so that its memory may be freed afterwards. Errors do not matter any more. */
static void lane_deinit(cuda_lane *lane) {
    if (lane->stream) {
        (void)cudaStreamSynchronize(lane->stream);
        (void)cudaStreamDestroy(lane->stream);
    }
    for (int i = 0; i < EVENTS_PER_STREAM; i++)
        if (lane->slots[i].event) (void)cudaEventDestroy(lane->slots[i].event);
}

/* Streams that do not wait for the default stream; events without time stamps, which cost nothing to record. */
static cudaError_t lane_init(cuda_lane *lane) {
    cudaError_t code = cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking);
    for (int i = 0; i < EVENTS_PER_STREAM && code == cudaSuccess; i++)
        code = cudaEventCreateWithFlags(&lane->slots[i].event, cudaEventDisableTiming);
    return code;
}

static void cuda_release(cuda_device *cuda) {
    (void)cudaSetDevice(cuda->ordinal);
    for (int s = 0; s < QR_DEVICE_STREAMS_MAX; s++) lane_deinit(&cuda->lanes[s]);
    free(cuda);
}

static void cuda_destroy(qr_device *device) {
    QR_ASSERT(cuda_of(device)->memory_count == 0 && cuda_of(device)->registered_count == 0);
    cuda_release(cuda_of(device));
}

static quire_status cuda_attribute(int ordinal, enum cudaDeviceAttr attribute, uint32_t *value, quire_error *error) {
    int read = 0;
    cudaError_t code = cudaDeviceGetAttribute(&read, attribute, ordinal);
    *value = (uint32_t)read;
    return code == cudaSuccess ? QUIRE_OK : cuda_fail(error, QUIRE_IO, "cudaDeviceGetAttribute", code);
}

/* Is there such a GPU, and new enough for the kernels? */
static quire_status cuda_check(uint32_t ordinal, quire_error *error) {
    int count = 0;
    uint32_t major = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess)
        return qr_fail(error, QUIRE_UNSUPPORTED, "cuda", QR_NO_OFFSET,
                       "no GPU, no NVIDIA driver or an old one: cudaGetDeviceCount: %s", cudaGetErrorString(code));
    if (ordinal >= (uint32_t)count)
        return qr_fail(error, QUIRE_UNSUPPORTED, "cuda", QR_NO_OFFSET, "GPU %u asked for, there are %d", ordinal, count);
    quire_status status = cuda_attribute((int)ordinal, cudaDevAttrComputeCapabilityMajor, &major, error);
    if (status != QUIRE_OK) return status;
    if (major < OLDEST_COMPUTE_MAJOR)
        return qr_fail(error, QUIRE_UNSUPPORTED, "cuda", QR_NO_OFFSET, "GPU %u has compute capability %u.x, %d.0 is needed",
                       ordinal, major, OLDEST_COMPUTE_MAJOR);
    return QUIRE_OK;
}

static const qr_device_ops cuda_ops = {
    .name = "cuda",
    .memory_is_host = false,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .host_register = cuda_host_register,
    .host_unregister = cuda_host_unregister,
    .copy_async = cuda_copy_async,
    .event = cuda_event,
    .poll = cuda_poll,
    .wait = cuda_wait,
    .status = cuda_status,
    .destroy = cuda_destroy,
};

quire_status qr_device_cuda_create(uint32_t ordinal, qr_device **device, quire_error *error) {
    *device = NULL;
    quire_status status = cuda_check(ordinal, error);
    if (status != QUIRE_OK) return status;
    cuda_device *cuda = qr_alloc_zero(1, sizeof *cuda);
    if (!cuda) return qr_fail(error, QUIRE_NO_MEMORY, "cuda", QR_NO_OFFSET, "no memory for the device");
    cuda->device.ops = &cuda_ops;
    cuda->ordinal = (int)ordinal;
    status = cuda_enter(cuda, error);
    cudaError_t code = cudaSuccess;
    for (int s = 0; s < QR_DEVICE_STREAMS_MAX && status == QUIRE_OK && code == cudaSuccess; s++)
        code = lane_init(&cuda->lanes[s]);
    if (code != cudaSuccess)
        status = cuda_fail(error, code == cudaErrorMemoryAllocation ? QUIRE_NO_MEMORY : QUIRE_IO, "streams and events", code);
    if (status != QUIRE_OK) {
        cuda_release(cuda);
        return status;
    }
    *device = &cuda->device;
    return QUIRE_OK;
}

static quire_status cuda_read_name(int ordinal, char *name, size_t capacity, quire_error *error) {
    struct cudaDeviceProp properties;
    cudaError_t code = cudaGetDeviceProperties(&properties, ordinal);
    if (code != cudaSuccess) return cuda_fail(error, QUIRE_IO, "cudaGetDeviceProperties", code);
    (void)qr_text_sanitize(name, capacity, properties.name, strnlen(properties.name, sizeof properties.name));
    return QUIRE_OK;
}

static quire_status cuda_read_memory(qr_device_cuda_info *info, quire_error *error) {
    size_t free_bytes = 0, total_bytes = 0;
    cudaError_t code = cudaMemGetInfo(&free_bytes, &total_bytes);
    info->memory_bytes = total_bytes;
    info->free_bytes = free_bytes;
    return code == cudaSuccess ? QUIRE_OK : cuda_fail(error, QUIRE_IO, "cudaMemGetInfo", code);
}

quire_status qr_device_cuda_info_get(qr_device *device, qr_device_cuda_info *info, quire_error *error) {
    QR_ASSERT(device->ops == &cuda_ops);
    int ordinal = cuda_of(device)->ordinal;
    qr_device_cuda_info read = {.name = ""};
    const struct {
        enum cudaDeviceAttr attribute;
        uint32_t *value;
    } attributes[] = {
        {cudaDevAttrComputeCapabilityMajor, &read.compute_major},
        {cudaDevAttrComputeCapabilityMinor, &read.compute_minor},
        {cudaDevAttrMultiProcessorCount, &read.processor_count},
        {cudaDevAttrAsyncEngineCount, &read.copy_engine_count},
        {cudaDevAttrL2CacheSize, &read.l2_bytes},
    };
    *info = (qr_device_cuda_info){.name = ""};
    quire_status status = cuda_enter(cuda_of(device), error);
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes && status == QUIRE_OK; i++)
        status = cuda_attribute(ordinal, attributes[i].attribute, attributes[i].value, error);
    if (status == QUIRE_OK) status = cuda_read_name(ordinal, read.name, sizeof read.name, error);
    if (status == QUIRE_OK) status = cuda_read_memory(&read, error);
    if (status == QUIRE_OK) *info = read;
    return status;
}

void *qr_device_cuda_stream(qr_device *device, int stream) {
    QR_ASSERT(device->ops == &cuda_ops);
    cudaError_t code = cudaSetDevice(cuda_of(device)->ordinal);
    if (code != cudaSuccess) (void)cuda_lose(cuda_of(device), "cudaSetDevice", code);
    return cuda_lane_of(device, stream)->stream;
}
