/*
 * Every instruction that CUDA C++ cannot say, one small function each: PTX for nvcc, and beside it a call into the
 * emulator for g++. Kernels contain no asm; what is not here is plain CUDA C++.
 *
 * tests/cuda/prims_test.cu states each function a second time from the PTX manual and compares bits, in the emulator, in the
 * PTX interpreter and on a device. Only exp2_fast and rcp_fast differ there: the hardware is within 2 ulp of the emulator.
 */
#pragma once
#include <stdint.h>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define GPU_DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
#define GPU_LAUNCH(kernel, grid, block, shared, stream, ...) \
    (kernel<<<grid, block, shared, stream>>>(__VA_ARGS__), cudaPeekAtLastError())
#define GPU_PRIM static __device__ __forceinline__
#define GPU_SITE
#define GPU_HERE
#else
#include "tests/cuda/emulator/emu.h"
#define GPU_PRIM static inline
#define GPU_SITE , EMU_SITE
#define GPU_HERE , EMU_HERE
#endif

// ---- number formats ----

GPU_PRIM uint32_t f32x2_to_f16x2(float low, float high) {
#ifdef __CUDACC__
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
#else
    return emu_f32_to_f16(low) | (uint32_t)emu_f32_to_f16(high) << 16;
#endif
}

GPU_PRIM uint32_t f32x2_to_bf16x2(float low, float high) {
#ifdef __CUDACC__
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
#else
    return emu_f32_to_bf16(low) | (uint32_t)emu_f32_to_bf16(high) << 16;
#endif
}

// a - b in both halves; exact here, so its rounding never shows.
GPU_PRIM uint32_t f16x2_sub(uint32_t a, uint32_t b) {
#ifdef __CUDACC__
    uint32_t r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
#else
    return f32x2_to_f16x2(emu_f16_to_f32((uint16_t)a) - emu_f16_to_f32((uint16_t)b),
                          emu_f16_to_f32((uint16_t)(a >> 16)) - emu_f16_to_f32((uint16_t)(b >> 16)));
#endif
}

// 2^x within 2 ulp; 2^-inf is 0 and 2^0 is 1 exactly; results below the smallest normal number are 0.
GPU_PRIM float exp2_fast(float x) {
#ifdef __CUDACC__
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    return emu_exp2_ftz(x);
#endif
}

// 1/x within 1 ulp, for normal x.
GPU_PRIM float rcp_fast(float x) {
#ifdef __CUDACC__
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    return 1.0f / x;
#endif
}

// The four int8 of x as halves, exactly: bytes 0 and 2 (even), bytes 1 and 3 (odd). With its sign bit turned a byte is
// b + 128, and as the low byte of the half 0x6400 it is 1152 + b, from which 1152 is taken.
GPU_PRIM uint32_t int8_even_to_f16x2(uint32_t x) {
    return f16x2_sub(__byte_perm(x ^ 0x80808080u, 0x64646464u, 0x4240), 0x64806480u);
}
GPU_PRIM uint32_t int8_odd_to_f16x2(uint32_t x) {
    return f16x2_sub(__byte_perm(x ^ 0x80808080u, 0x64646464u, 0x4341), 0x64806480u);
}

// The four e4m3 of x as halves, exactly, in units of GPU_E4M3_UNIT. From compute capability 8.9 on the hardware converts two
// neighbouring bytes. Before it (and in the emulator) bits move: the sign to the top, the seven bits below it one place
// down, where they are a half's low exponent bits and high mantissa bits; the exponent biases differ by 8, and NaN codes
// become finite.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define GPU_E4M3_UNIT 1.0f
GPU_PRIM uint32_t e4m3x2_to_f16x2(uint32_t low_bytes) {
    uint32_t r;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((uint16_t)low_bytes));
    return r;
}
GPU_PRIM uint32_t e4m3_even_to_f16x2(uint32_t x) { return e4m3x2_to_f16x2(__byte_perm(x, 0, 0x3120)); }
GPU_PRIM uint32_t e4m3_odd_to_f16x2(uint32_t x) { return e4m3x2_to_f16x2(__byte_perm(x, 0, 0x3120) >> 16); }
#else
#define GPU_E4M3_UNIT 256.0f
GPU_PRIM uint32_t e4m3_odd_to_f16x2(uint32_t x) { return (x & 0x80008000u) | ((x >> 1) & 0x3f803f80u); }
GPU_PRIM uint32_t e4m3_even_to_f16x2(uint32_t x) { return ((x << 8) & 0x80008000u) | ((x << 7) & 0x3f803f80u); }
#endif

// ---- asynchronous copies ----

// 16 bytes from global to shared memory, of which the first `valid` are read and the rest become zero.
GPU_PRIM void cp_async16(void *shared, const void *global, int valid GPU_SITE) {
#ifdef __CUDACC__
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global), "r"(valid)
                 : "memory");
#else
    emu_copy_issue(shared, global, 16, (unsigned)valid GPU_HERE);
#endif
}

GPU_PRIM void cp_async_commit() {
#ifdef __CUDACC__
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    emu_copy_commit();
#endif
}

// Until at most the newest N groups of this thread are under way.
template <int N> GPU_PRIM void cp_async_wait() {
#ifdef __CUDACC__
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#else
    emu_copy_wait(N);
#endif
}

// ---- tensor cores ----

// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i%8 of matrix i/8, lane i gets elements 2*(i%4) and
// 2*(i%4)+1 of row i/4 of each. TRANSPOSED: of column i/4 instead.
template <bool TRANSPOSED> GPU_PRIM void ldmatrix_x4(uint32_t (&r)[4], const void *row GPU_SITE) {
#ifdef __CUDACC__
    uint32_t a = (uint32_t)__cvta_generic_to_shared(row);
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(a)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(a)
                     : "memory");
#else
    emu_ldmatrix argument = {*(const uint4 *)row, row, {}, 4, TRANSPOSED};
    emu_gather(~0u, emu_combine_ldmatrix, &argument, false GPU_HERE);
    for (int i = 0; i < 4; i++) r[i] = argument.result[i];
#endif
}

#ifndef __CUDACC__
static inline void emu_mma_16816(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bool bf16, EMU_SITE) {
    emu_mma argument = {{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}, bf16};
    emu_gather(~0u, emu_combine_mma, &argument, false, EMU_HERE);
    for (int i = 0; i < 4; i++) c[i] = argument.c[i];
}
#endif

// c += A (16x16, rows) * B (16x8, columns), fp32 accumulators.
GPU_PRIM void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1 GPU_SITE) {
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    emu_mma_16816(c, a, b0, b1, false GPU_HERE);
#endif
}

GPU_PRIM void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1 GPU_SITE) {
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    emu_mma_16816(c, a, b0, b1, true GPU_HERE);
#endif
}
