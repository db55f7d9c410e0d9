/*
 * The words of CUDA C++ for a plain C++ compiler: keywords that mean nothing on the CPU, and the small vector types.
 *
 * Static __shared__ is left undefined on purpose: it would be one object for all CTAs, so ThreadSanitizer would see CTAs
 * racing where a device has none. Kernels carve dynamic shared memory (GPU_DYN_SMEM).
 */
#pragma once
#include <cstddef>
#include <cstdint>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

#define EMU_VECTORS(T, name)                                                  \
    struct alignas(2 * sizeof(T)) name##2 {                                   \
        T x, y;                                                               \
    };                                                                        \
    struct name##3 {                                                          \
        T x, y, z;                                                            \
    };                                                                        \
    struct alignas(4 * sizeof(T)) name##4 {                                   \
        T x, y, z, w;                                                         \
    };                                                                        \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTORS(int, int)
EMU_VECTORS(unsigned, uint)
EMU_VECTORS(float, float)
#undef EMU_VECTORS

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
