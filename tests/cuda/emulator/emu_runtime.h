/*
 * Launching: from a kernel's C++ function and arguments to work on an emulated stream.
 *
 * The arguments are also packed as for the device, because the PTX interpreter reads them from there.
 */
#pragma once
#include <cstring>
#include <functional>
#include <vector>

#include "tests/cuda/emulator/emu_types.h"
#include "tests/cuda/emulator/include/cuda_runtime_api.h"

typedef std::vector<unsigned char> emu_parameters;

struct emu_kernel_launch {
    const void *function;
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
};
cudaError_t emu_enqueue(const emu_kernel_launch &launch, std::function<void()> body, const emu_parameters &parameters);
cudaError_t emu_occupancy(int *ctas, int threads, size_t shared_bytes);
cudaError_t emu_set_attribute(const void *function, cudaFuncAttribute attribute, int value);

// Set by the PTX interpreter where it is linked and EMU_PTX names a file: what runs instead of the C++ function.
typedef std::function<void()> (*emu_ptx_loader)(const void *function, const emu_parameters &parameters);
extern emu_ptx_loader emu_ptx_body;

template <class T> void emu_pack(emu_parameters &to, const T &value) {
    to.resize((to.size() + alignof(T) - 1) / alignof(T) * alignof(T) + sizeof value);
    memcpy(to.data() + to.size() - sizeof value, &value, sizeof value);
}

template <class... P, class... A>
cudaError_t emu_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, A... arguments) {
    emu_parameters packed;
    (emu_pack<P>(packed, static_cast<P>(arguments)), ...);
    emu_kernel_launch launch = {(const void *)kernel, grid, block, shared_bytes, stream};
    return emu_enqueue(
        launch, [=] { kernel(static_cast<P>(arguments)...); }, packed);
}

template <class T> static inline cudaError_t cudaMalloc(T **memory, size_t bytes) { return cudaMalloc((void **)memory, bytes); }
template <class T> static inline cudaError_t cudaMallocHost(T **memory, size_t bytes) {
    return cudaMallocHost((void **)memory, bytes);
}
template <class F> static inline cudaError_t cudaFuncSetAttribute(F *function, cudaFuncAttribute attribute, int value) {
    return emu_set_attribute((const void *)function, attribute, value);
}
template <class F>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *ctas, F *, int threads, size_t shared_bytes) {
    return emu_occupancy(ctas, threads, shared_bytes);
}
