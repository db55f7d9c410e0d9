/*
 * The CUDA intrinsics that kernels may use without inline PTX. Anything not here does not compile in the emulator: add it
 * here first, with a line in prims_test.cu.
 */
#pragma once
#include <cmath>
#include <cstring>
#include <type_traits>

#include "tests/cuda/emulator/emu_collectives.h"
#include "tests/cuda/emulator/emu_core.h"

#define threadIdx (emu_current->index)
#define blockIdx (emu_block_index)
#define blockDim (emu_block_dim)
#define gridDim (emu_grid_dim)
#define warpSize 32

// ---- synchronisation ----

static inline void __syncthreads(EMU_SITE) { emu_barrier(0, 0, EMU_HERE); }
static inline void __syncwarp(uint32_t mask = ~0u, EMU_SITE) { emu_gather(mask, emu_combine_sync, nullptr, true, EMU_HERE); }
static inline void __threadfence() { emu_fence(); }
static inline void __threadfence_block() { emu_fence(); }
static inline void __trap(EMU_SITE) { emu_fail(EMU_HERE, "__trap()"); }

// ---- shuffles and votes ----

template <class T> inline T emu_shuffle_from(uint32_t mask, T value, int source, const char *file, int line) {
    static_assert(sizeof(T) == 4, "shuffles of 32-bit values only");
    emu_shuffle s = {0, 0, source};
    memcpy(&s.value, &value, 4);
    emu_gather(mask, emu_combine_shuffle, &s, false, file, line);
    memcpy(&value, &s.result, 4);
    return value;
}

inline uint32_t emu_ballot(uint32_t mask, bool predicate, const char *file, int line) {
    emu_vote v = {predicate, 0};
    emu_gather(mask, emu_combine_vote, &v, false, file, line);
    return v.result;
}

template <class T> static inline T __shfl_sync(uint32_t mask, T value, int source, int width = 32, EMU_SITE) {
    int base = (int)emu_current->lane & ~(width - 1);
    return emu_shuffle_from(mask, value, base + (source & (width - 1)), EMU_HERE);
}
template <class T> static inline T __shfl_xor_sync(uint32_t mask, T value, int bits, int width = 32, EMU_SITE) {
    int lane = (int)emu_current->lane, source = lane ^ bits;
    return emu_shuffle_from(mask, value, source < (lane & ~(width - 1)) + width ? source : lane, EMU_HERE);
}
template <class T> static inline T __shfl_down_sync(uint32_t mask, T value, unsigned delta, int width = 32, EMU_SITE) {
    int lane = (int)emu_current->lane, source = lane + (int)delta;
    return emu_shuffle_from(mask, value, source < (lane & ~(width - 1)) + width ? source : lane, EMU_HERE);
}
template <class T> static inline T __shfl_up_sync(uint32_t mask, T value, unsigned delta, int width = 32, EMU_SITE) {
    int lane = (int)emu_current->lane, source = lane - (int)delta;
    return emu_shuffle_from(mask, value, source >= (lane & ~(width - 1)) ? source : lane, EMU_HERE);
}
static inline uint32_t __ballot_sync(uint32_t mask, int predicate, EMU_SITE) { return emu_ballot(mask, predicate, EMU_HERE); }
static inline int __any_sync(uint32_t mask, int predicate, EMU_SITE) { return emu_ballot(mask, predicate, EMU_HERE) != 0; }
static inline int __all_sync(uint32_t mask, int predicate, EMU_SITE) { return emu_ballot(mask, predicate, EMU_HERE) == mask; }

// ---- bits ----

// Unlike the instruction prmt, the intrinsic ignores the top bit of each selector (prmt replicates the sign there).
static inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selectors) {
    uint64_t bytes = (uint64_t)high << 32 | low;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) result |= ((uint32_t)(bytes >> 8 * (selectors >> 4 * i & 7)) & 0xff) << 8 * i;
    return result;
}
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline unsigned __float_as_uint(float f) {
    unsigned bits;
    memcpy(&bits, &f, 4);
    return bits;
}
static inline float __uint_as_float(unsigned bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static inline int __float_as_int(float f) { return (int)__float_as_uint(f); }
static inline float __int_as_float(int bits) { return __uint_as_float((unsigned)bits); }

// ---- arithmetic ----

static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __frcp_rn(float a) { return 1.f / a; }
static inline int __float2int_rn(float f) { return (int)nearbyintf(f); }
static inline float __int2float_rn(int i) { return (float)i; }
static inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
// ex2.approx.ftz: what would be subnormal is zero.
static inline float emu_exp2_ftz(float x) {
    float power = exp2f(x);
    return power < 0x1p-126f ? 0.f : power;
}
#define __expf expf // glibc declares functions of these names itself
#define __log2f log2f
#define __sinf sinf
#define __cosf cosf

// ---- memory ----

template <class T> static inline T __ldg(const T *address) {
    emu_count_read(sizeof(T));
    return *address;
}

// Relaxed, as on the device: only fences order (emu_fence).
template <class T, class F> inline T emu_atomic(T *address, F change) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics of 32 or 64 bits only");
    using word = typename std::conditional<sizeof(T) == 4, uint32_t, uint64_t>::type;
    emu_atomic_begin(address);
    word old = __atomic_load_n((word *)address, __ATOMIC_RELAXED), changed;
    T value, next;
    do {
        memcpy(&value, &old, sizeof old);
        next = change(value);
        memcpy(&changed, &next, sizeof next);
    } while (!__atomic_compare_exchange_n((word *)address, &old, changed, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    emu_atomic_end(address);
    return value;
}
template <class T> static inline T atomicAdd(T *address, T value) {
    return emu_atomic(address, [=](T old) { return (T)(old + value); });
}
template <class T> static inline T atomicMax(T *address, T value) {
    return emu_atomic(address, [=](T old) { return old > value ? old : value; });
}
template <class T> static inline T atomicExch(T *address, T value) {
    return emu_atomic(address, [=](T) { return value; });
}
template <class T> static inline T atomicCAS(T *address, T expected, T value) {
    return emu_atomic(address, [=](T old) { return old == expected ? value : old; });
}
