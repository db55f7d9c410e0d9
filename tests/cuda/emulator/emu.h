/*
 * CUDA C++ kernels on the CPU: the one header that attention/cuda/gpu_prims.h includes when the compiler is not nvcc.
 *
 * The same .cu files are compiled by g++ (with or without sanitizers); each thread of a CTA is a fiber. What it can prove
 * and what not: docs/CUDA_EMULATOR.md.
 */
#pragma once
#include "tests/cuda/emulator/emu_async.h"
#include "tests/cuda/emulator/emu_formats.h"
#include "tests/cuda/emulator/emu_intrinsics.h"
#include "tests/cuda/emulator/emu_runtime.h"
#include "tests/cuda/emulator/emu_types.h"

#define GPU_DYNAMIC_SHARED(name) unsigned char *name = emu_shared
#define GPU_LAUNCH(kernel, grid, block, shared, stream, ...) emu_launch(kernel, grid, block, shared, stream, __VA_ARGS__)
