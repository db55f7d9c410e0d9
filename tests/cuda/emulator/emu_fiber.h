/*
 * The threads of a CTA as fibers: state, stack, switch. Knows nothing about who runs next (emu_schedule).
 */
#pragma once
#include "tests/cuda/emulator/emu_async.h"
#include "tests/cuda/emulator/emu_core.h"
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

enum { EMU_THREADS_MAX = 1024, EMU_STACK_BYTES = 128 << 10 };

enum emu_fiber_state { EMU_READY, EMU_WAITING, EMU_DONE };

struct emu_fiber {
    emu_thread thread; // first: emu_current points at it
    emu_fiber_state state;
    const char *file; // where it waits
    int line;
#if defined(__x86_64__)
    void *stack_pointer;
#else
    ucontext_t context;
#endif
    unsigned char *stack;
    void *tsan, *asan_fake_stack;
    const void *last_atomic; // what a later fence acquires
    bool fenced;             // an atomic from now on releases
    emu_copy_queue *copies;  // at the low end of the stack, behind a guard page
};

// Fibers are made once and used again for every CTA.
emu_fiber *emu_fiber_get(unsigned linear);
// A new thread of the CTA that runs body on its first switch; body must not return.
void emu_fiber_prepare(emu_fiber *fiber, unsigned linear, void (*body)());
void emu_fiber_retire(emu_fiber *fiber);
// ThreadSanitizer remembers accesses to a stack; the next CTA's threads are others, so the pages are mapped anew.
void emu_fiber_forget_stacks(unsigned thread_count);

static inline emu_fiber *emu_self() { return (emu_fiber *)emu_current; }
// First line of a fiber's body, and the way to and from the scheduler's own context.
void emu_fiber_entered();
void emu_switch_to_thread(emu_fiber *fiber);
void emu_switch_to_scheduler(emu_fiber *fiber);
