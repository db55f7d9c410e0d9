// The runtime API: devices, memory, streams, events. One stream's work is a queue of functions; an event is a place in one.
#include "tests/cuda/emulator/emu_runtime.h"

#include <time.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <set>

#include "tests/cuda/emulator/emu_core.h"
#include "tests/cuda/emulator/emu_memory.h"
#include "tests/cuda/emulator/emu_schedule.h"

struct CUstream_st {
    std::deque<std::function<void()>> work;
};
struct CUevent_st {
    cudaStream_t stream;
    unsigned long recorded, completed; // records asked for and records that have run
    double ms;
};

// Limits of an H100 or H200, where the numbers matter to launches.
enum {
    SHARED_DEFAULT = 48 << 10,
    SHARED_MAX = 227 << 10,
    SHARED_OF_PROCESSOR = 228 << 10,
    SHARED_RESERVED = 1 << 10, // by the driver, of each CTA
    THREADS_OF_PROCESSOR = 2048,
    GRID_YZ_MAX = 65535,
    PROCESSORS = 132
};
static const size_t DEVICE_BYTES = (size_t)8 << 30;

static CUstream_st null_stream;
static std::set<cudaStream_t> streams = {&null_stream};
static std::map<const void *, int> shared_limits;
static cudaError_t last_error;

static cudaError_t error(cudaError_t e) {
    if (e != cudaSuccess) last_error = e;
    return e;
}

// ---- streams ----

static cudaStream_t real(cudaStream_t stream) { return stream ? stream : &null_stream; }

static void step(cudaStream_t stream) {
    if (stream->work.empty()) emu_fail("stream", 0, "two streams wait for each other");
    std::function<void()> next = std::move(stream->work.front());
    stream->work.pop_front();
    next();
}

static void drain(cudaStream_t stream) {
    while (!stream->work.empty()) step(stream);
}

static cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
    stream = real(stream);
    if (!streams.count(stream)) return error(cudaErrorInvalidResourceHandle);
    stream->work.push_back(std::move(work));
    if (!emu_opt.lazy_streams) drain(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    streams.insert(*stream = new CUstream_st);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) { return cudaStreamCreate(stream); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (stream == nullptr || !streams.count(stream)) return error(cudaErrorInvalidResourceHandle);
    drain(stream);
    streams.erase(stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (!streams.count(real(stream))) return error(cudaErrorInvalidResourceHandle);
    drain(real(stream));
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    stream = real(stream);
    if (!streams.count(stream)) return error(cudaErrorInvalidResourceHandle);
    if (stream->work.empty()) return cudaSuccess;
    step(stream);
    return cudaErrorNotReady;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    return enqueue(stream, [=] { function(data); });
}

cudaError_t cudaDeviceSynchronize(void) {
    for (cudaStream_t stream : streams) drain(stream);
    return cudaSuccess;
}

// ---- events ----

static double now_ms() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static bool pending(cudaEvent_t event) { return event->completed < event->recorded; }

static void complete(cudaEvent_t event, unsigned long record) {
    if (record > event->completed) event->completed = record;
    event->ms = now_ms();
}

// Runs the event's stream until a given record has run.
static void wait_for(cudaEvent_t event, unsigned long record) {
    while (event->completed < record) step(event->stream);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = new CUevent_st{nullptr, 0, 0, 0};
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { return cudaEventCreate(event); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    wait_for(event, event->recorded); // the driver keeps it alive until its record has run
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    unsigned long record = ++event->recorded;
    event->stream = real(stream);
    return enqueue(stream, [=] { complete(event, record); });
}

// Each query lets the event's stream do one piece of work, so polling ends and sees every state in between.
cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (!pending(event)) return cudaSuccess;
    step(event->stream);
    return cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    wait_for(event, event->recorded);
    return cudaSuccess;
}

// Waits for the newest record of this moment, not for later ones.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    unsigned long record = event->recorded;
    return pending(event) ? enqueue(stream, [=] { wait_for(event, record); }) : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    if (pending(start) || pending(end)) return error(cudaErrorNotReady);
    *ms = (float)(end->ms - start->ms);
    return cudaSuccess;
}

// ---- memory ----

cudaError_t cudaMalloc(void **memory, size_t bytes) {
    *memory = nullptr;
    if (emu_device_bytes_used() + bytes > DEVICE_BYTES) return error(cudaErrorMemoryAllocation);
    *memory = emu_device_alloc(bytes);
    return error(*memory ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *memory) {
    cudaDeviceSynchronize();
    return error(!memory || emu_device_free(memory) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void **memory, size_t bytes) {
    *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*memory) return error(cudaErrorMemoryAllocation);
    emu_pin(*memory, bytes);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned) { return cudaMallocHost(memory, bytes); }

cudaError_t cudaFreeHost(void *memory) {
    cudaDeviceSynchronize();
    if (memory && !emu_unpin(memory)) return error(cudaErrorInvalidValue);
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned) {
    if (!memory || !bytes) return error(cudaErrorInvalidValue);
    return error(emu_pin(memory, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void *memory) {
    cudaDeviceSynchronize();
    return error(emu_unpin(memory) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    *total_bytes = DEVICE_BYTES;
    *free_bytes = DEVICE_BYTES - emu_device_bytes_used();
    return cudaSuccess;
}

// ---- copies ----

static bool direction_fits(enum cudaMemcpyKind kind, bool to_device, bool from_device) {
    switch (kind) {
    case cudaMemcpyHostToHost: return !to_device && !from_device;
    case cudaMemcpyHostToDevice: return to_device && !from_device;
    case cudaMemcpyDeviceToHost: return !to_device && from_device;
    case cudaMemcpyDeviceToDevice: return to_device && from_device;
    default: return true;
    }
}

// Checked again when it runs: memory may have been given back in between.
static void copy_now(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    if (!direction_fits(kind, emu_space_of(to, bytes) == EMU_DEVICE, emu_space_of(from, bytes) == EMU_DEVICE))
        emu_fail("copy", 0, "%zu bytes from %p to %p: memory was given back before the copy ran", bytes, from, to);
    emu_memory_open();
    memmove(to, from, bytes);
    emu_memory_close();
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (!bytes) return cudaSuccess;
    if (!direction_fits(kind, emu_space_of(to, bytes) == EMU_DEVICE, emu_space_of(from, bytes) == EMU_DEVICE))
        return error(cudaErrorInvalidMemcpyDirection);
    return enqueue(stream, [=] { copy_now(to, from, bytes, kind); });
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    cudaDeviceSynchronize();
    cudaError_t status = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    drain(&null_stream);
    return status;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (width > to_pitch || width > from_pitch) return error(cudaErrorInvalidValue);
    for (size_t row = 0; row < height; row++) {
        cudaError_t status =
            cudaMemcpyAsync((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width, kind, stream);
        if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
}

static void set_now(void *memory, int byte, size_t bytes) {
    if (emu_space_of(memory, bytes) != EMU_DEVICE) emu_fail("memset", 0, "%p is not device memory", memory);
    emu_memory_open();
    memset(memory, byte, bytes);
    emu_memory_close();
}

cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream) {
    return enqueue(stream, [=] { set_now(memory, byte, bytes); });
}

cudaError_t cudaMemset(void *memory, int byte, size_t bytes) { return cudaMemsetAsync(memory, byte, bytes, nullptr); }

// ---- launches ----

cudaError_t emu_set_attribute(const void *function, cudaFuncAttribute attribute, int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value > SHARED_MAX) return error(cudaErrorInvalidValue);
    shared_limits[function] = value;
    return cudaSuccess;
}

// By threads and shared memory; what registers allow only ptxas knows.
cudaError_t emu_occupancy(int *ctas, int threads, size_t shared_bytes) {
    if (threads <= 0 || threads > EMU_THREADS_MAX || shared_bytes > SHARED_MAX) return error(cudaErrorInvalidValue);
    int by_threads = THREADS_OF_PROCESSOR / threads, by_shared = (int)(SHARED_OF_PROCESSOR / (shared_bytes + SHARED_RESERVED));
    *ctas = by_threads < by_shared ? by_threads : by_shared;
    return cudaSuccess;
}

static size_t shared_limit(const void *function) {
    auto found = shared_limits.find(function);
    return found == shared_limits.end() ? (size_t)SHARED_DEFAULT : (size_t)found->second;
}

static bool shape_fits(dim3 grid, dim3 block) {
    size_t threads = (size_t)block.x * block.y * block.z;
    return threads && threads <= EMU_THREADS_MAX && threads % 32 == 0 && grid.x && grid.y && grid.z && grid.y <= GRID_YZ_MAX &&
           grid.z <= GRID_YZ_MAX;
}

cudaError_t emu_enqueue(const emu_kernel_launch &launch, std::function<void()> body, const emu_parameters &parameters) {
    if (!shape_fits(launch.grid, launch.block)) return error(cudaErrorInvalidConfiguration);
    if (launch.shared_bytes > shared_limit(launch.function)) return error(cudaErrorInvalidValue);
    if (emu_ptx_body) body = emu_ptx_body(launch.function, parameters);
    return enqueue(launch.stream, [=] { emu_run_grid(launch.grid, launch.block, launch.shared_bytes, body); });
}

// ---- the device ----

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return error(device ? cudaErrorInvalidDevice : cudaSuccess); }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    if (device) return error(cudaErrorInvalidDevice);
    *p = cudaDeviceProp();
    strcpy(p->name, "emulator");
    p->totalGlobalMem = DEVICE_BYTES, p->sharedMemPerBlockOptin = SHARED_MAX;
    p->major = emu_opt.compute_capability / 10, p->minor = emu_opt.compute_capability % 10;
    p->multiProcessorCount = PROCESSORS, p->l2CacheSize = 50 << 20, p->asyncEngineCount = 2;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    if (device) return error(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = EMU_THREADS_MAX; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = PROCESSORS; return cudaSuccess;
    case cudaDevAttrL2CacheSize: *value = 50 << 20; return cudaSuccess;
    case cudaDevAttrAsyncEngineCount: *value = 2; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *value = emu_opt.compute_capability / 10; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = emu_opt.compute_capability % 10; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = SHARED_MAX; return cudaSuccess;
    }
    return error(cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

// ---- errors ----

cudaError_t cudaGetLastError(void) {
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

const char *cudaGetErrorName(cudaError_t e) {
    switch (e) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidMemcpyDirection: return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorHostMemoryAlreadyRegistered: return "cudaErrorHostMemoryAlreadyRegistered";
    case cudaErrorHostMemoryNotRegistered: return "cudaErrorHostMemoryNotRegistered";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    }
    return "unknown error";
}

const char *cudaGetErrorString(cudaError_t e) { return cudaGetErrorName(e); }
