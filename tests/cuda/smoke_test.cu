#include "tests/cuda/emulator/emu.h"
__global__ void smoke(const float *a, float *b, int n) {
    GPU_DYNAMIC_SHARED(shared);
    float *s = (float *)shared;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? a[i] : 0;
    __syncthreads();
    if (i < n) b[i] = s[blockDim.x - 1 - threadIdx.x];
}
int main() {
    float *a, *b, h[64];
    cudaMalloc(&a, 256), cudaMalloc(&b, 256);
    for (int i = 0; i < 64; i++) h[i] = i;
    cudaMemcpy(a, h, 256, cudaMemcpyHostToDevice);
    if (GPU_LAUNCH(smoke, dim3(2), dim3(32), 128, nullptr, (const float *)a, b, 64)) return 2;
    cudaMemcpy(h, b, 256, cudaMemcpyDeviceToHost);
    cudaFree(a), cudaFree(b);
    return h[0] != 31 || h[63] != 32;
}
