/*
 * Arguments and combine functions of the warp collectives, one pair each: emu_gather(mask, emu_combine_x, &argument, ...).
 * Register layouts are the PTX manual's; prims_test.cu states them a second time.
 */
#pragma once
#include "tests/cuda/emulator/emu_core.h"

struct emu_shuffle {
    uint32_t value, result;
    int source_lane;
};
struct emu_vote {
    bool predicate;
    uint32_t result; // the ballot
};
struct emu_ldmatrix {
    uint4 row;           // the 16 bytes this lane's address names
    const void *address; // for bank conflicts
    uint32_t result[4];
    int matrix_count; // 1, 2 or 4
    bool transposed;
};
struct emu_movmatrix {
    uint32_t value, result;
};
struct emu_mma { // m16n8k16, f32 accumulators
    uint32_t a[4], b[2];
    float c[4];
    bool bf16;
};

void emu_combine_sync(emu_collective &);
void emu_combine_shuffle(emu_collective &);
void emu_combine_vote(emu_collective &);
void emu_combine_ldmatrix(emu_collective &);
void emu_combine_movmatrix(emu_collective &);
void emu_combine_mma(emu_collective &);
