// The runtime API but for streams and events (emu_streams.cc): the device, memory, copies, launches.
#include "tests/cuda/emulator/emu_runtime.h"

#include <cstdlib>
#include <map>

#include "tests/cuda/emulator/emu_core.h"
#include "tests/cuda/emulator/emu_memory.h"
#include "tests/cuda/emulator/emu_schedule.h"
#include "tests/cuda/emulator/emu_streams.h"

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

static std::map<const void *, int> shared_limits;

// ---- memory ----

cudaError_t cudaMalloc(void **memory, size_t bytes) {
    *memory = nullptr;
    if (emu_device_bytes_used() + bytes > DEVICE_BYTES) return emu_error(cudaErrorMemoryAllocation);
    *memory = emu_device_alloc(bytes);
    return emu_error(*memory ? cudaSuccess : cudaErrorMemoryAllocation);
}

// Waits for the whole device, as the real one does.
cudaError_t cudaFree(void *memory) {
    cudaDeviceSynchronize();
    return emu_error(!memory || emu_device_free(memory) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void **memory, size_t bytes) {
    *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*memory) return emu_error(cudaErrorMemoryAllocation);
    emu_pin(*memory, bytes);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned) { return cudaMallocHost(memory, bytes); }

// Waits for nothing, and a copy that still names the memory then ends the process.
cudaError_t cudaFreeHost(void *memory) {
    if (memory && !emu_unpin(memory)) return emu_error(cudaErrorInvalidValue);
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned) {
    if (!memory || !bytes) return emu_error(cudaErrorInvalidValue);
    return emu_error(emu_pin(memory, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void *memory) {
    return emu_error(emu_unpin(memory) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
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

// The two sides of a copy, as they were when it was queued.
struct copy_spaces {
    emu_space to, from;
};

static copy_spaces spaces_of(const void *to, const void *from, size_t bytes) {
    return {emu_space_of(to, bytes), emu_space_of(from, bytes)};
}

// Checked again when it runs: memory may have been given back in between.
static void copy_now(void *to, const void *from, size_t bytes, copy_spaces then) {
    const copy_spaces now = spaces_of(to, from, bytes);
    if (now.to != then.to || now.from != then.from)
        emu_fail("copy", 0, "%zu bytes from %p to %p: memory was given back before the copy ran", bytes, from, to);
    emu_memory_open();
    memmove(to, from, bytes);
    emu_memory_close();
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (!bytes) return cudaSuccess;
    const copy_spaces spaces = spaces_of(to, from, bytes);
    if (!direction_fits(kind, spaces.to == EMU_DEVICE, spaces.from == EMU_DEVICE))
        return emu_error(cudaErrorInvalidMemcpyDirection);
    return emu_stream_push(stream, [=] { copy_now(to, from, bytes, spaces); });
}

// Waits for the default stream and those that it waits for, and for no others.
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    cudaError_t status = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    cudaStreamSynchronize(nullptr);
    return status;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (width > to_pitch || width > from_pitch) return emu_error(cudaErrorInvalidValue);
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
    return emu_stream_push(stream, [=] { set_now(memory, byte, bytes); });
}

cudaError_t cudaMemset(void *memory, int byte, size_t bytes) { return cudaMemsetAsync(memory, byte, bytes, nullptr); }

// ---- launches ----

cudaError_t emu_set_attribute(const void *function, cudaFuncAttribute attribute, int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value > SHARED_MAX) return emu_error(cudaErrorInvalidValue);
    shared_limits[function] = value;
    return cudaSuccess;
}

// By threads and shared memory; what registers allow only ptxas knows.
cudaError_t emu_occupancy(int *ctas, int threads, size_t shared_bytes) {
    if (threads <= 0 || threads > EMU_THREADS_MAX || shared_bytes > SHARED_MAX) return emu_error(cudaErrorInvalidValue);
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

// Like a launch followed by cudaPeekAtLastError: an older error that nobody fetched shows here.
cudaError_t emu_enqueue(const emu_kernel_launch &launch, std::function<void()> body, const emu_parameters &parameters) {
    if (!shape_fits(launch.grid, launch.block)) return emu_error(cudaErrorInvalidConfiguration);
    if (launch.shared_bytes > shared_limit(launch.function)) return emu_error(cudaErrorInvalidValue);
    if (emu_ptx_body) body = emu_ptx_body(launch.function, parameters);
    cudaError_t status =
        emu_stream_push(launch.stream, [=] { emu_run_grid(launch.grid, launch.block, launch.shared_bytes, body); });
    return status == cudaSuccess ? cudaPeekAtLastError() : status;
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

cudaError_t cudaSetDevice(int device) { return emu_error(device ? cudaErrorInvalidDevice : cudaSuccess); }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    if (device) return emu_error(cudaErrorInvalidDevice);
    *p = cudaDeviceProp();
    strcpy(p->name, "emulator");
    p->totalGlobalMem = DEVICE_BYTES, p->sharedMemPerBlockOptin = SHARED_MAX;
    p->major = emu_opt.compute_capability / 10, p->minor = emu_opt.compute_capability % 10;
    p->multiProcessorCount = PROCESSORS, p->l2CacheSize = 50 << 20, p->asyncEngineCount = 2;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    if (device) return emu_error(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = EMU_THREADS_MAX; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = PROCESSORS; return cudaSuccess;
    case cudaDevAttrL2CacheSize: *value = 50 << 20; return cudaSuccess;
    case cudaDevAttrAsyncEngineCount: *value = 2; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *value = emu_opt.compute_capability / 10; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = emu_opt.compute_capability % 10; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = SHARED_MAX; return cudaSuccess;
    }
    return emu_error(cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

// ---- errors ----

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
