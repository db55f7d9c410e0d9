/*
 * What kernels' intrinsics and the PTX interpreter call: the running thread, barriers, warp collectives, fences.
 *
 * One OS thread. The CTAs of a grid run one after another; the threads of a CTA are fibers that switch only in the calls of
 * this file. The emulator is one device per process, so its state is global; nothing outside tests links it.
 *
 * Every call carries the source place of its caller (EMU_SITE), because a barrier or collective is legal only when all of
 * its threads arrive at one place.
 */
#pragma once
#include "tests/cuda/emulator/emu_types.h"

#define EMU_SITE const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()
#define EMU_HERE file_, line_

enum emu_order { EMU_FORWARD, EMU_REVERSE, EMU_RANDOM };
enum emu_stream_order { EMU_STREAMS_LAZY, EMU_STREAMS_EAGER, EMU_STREAMS_RANDOM };

// Read from the environment at the first use of the device (emu_options.cc), so that one test binary runs in every mode.
struct emu_options {
    emu_order order = EMU_FORWARD; // EMU_ORDER=forward|reverse|random: which ready thread runs next, which CTA comes next
    unsigned seed = 1;             // EMU_SEED: of the random orders
    bool late_copies = true;       // EMU_COPIES=late|eager: cp.async lands at its wait, or at its issue
    emu_stream_order streams = EMU_STREAMS_LAZY; // EMU_STREAMS=lazy|eager|random: when the work of streams runs
    bool truncate_sums = false;                  // EMU_SUMS=fma|truncate: how MMA adds
    int compute_capability = 90;                 // EMU_CC
};
extern emu_options emu_opt;

struct emu_stats {
    unsigned long long ctas, switches, barriers, collectives, mma, ldmatrix_phases, bank_conflicts, global_bytes_read;
};
extern emu_stats emu_counted;

struct emu_thread {
    uint3 index;
    unsigned linear, warp, lane;
};
extern emu_thread *emu_current; // the running thread; null on the host
extern uint3 emu_block_index;
extern dim3 emu_block_dim, emu_grid_dim;
extern unsigned char *emu_shared; // dynamic shared memory of the running CTA
extern size_t emu_shared_bytes;

// Prints the message with the running thread and ends the process with EMU_EXIT_CODE: after an error of this kind the state
// of a device would be undefined too.
enum { EMU_EXIT_CODE = 97 };
[[noreturn]] void emu_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

// thread_count 0: all threads of the CTA, which must then come from one place (__syncthreads).
void emu_barrier(unsigned id, unsigned thread_count, const char *file, int line);

// A warp collective: gathers the lanes of mask, then runs combine once over their arguments.
struct emu_collective {
    uint32_t mask, arrived;
    void (*combine)(emu_collective &);
    void *argument[32]; // by lane; set where mask has the lane
    const char *file;
    int line;
    unsigned generation;
};
// orders_memory: __syncwarp does, shuffles and MMA do not (as in CUDA).
void emu_gather(uint32_t mask, void (*combine)(emu_collective &), void *argument, bool orders_memory, const char *file,
                int line);

// Fences and atomics for ThreadSanitizer: a fence before an atomic makes it a release, one after it an acquire; an atomic
// alone orders nothing.
void emu_fence();
void emu_atomic_begin(const void *address);
void emu_atomic_end(const void *address);

void emu_count_read(size_t bytes); // of global memory
