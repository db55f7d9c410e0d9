// Stacks and context switches. x86-64 switches in fifteen instructions, other machines with ucontext.
#include "tests/cuda/emulator/emu_fiber.h"

#include <sys/mman.h>

#include <cstdlib>

#include "tests/cuda/emulator/emu_sanitizer.h"

static emu_fiber *fibers[EMU_THREADS_MAX];
static unsigned char *stacks; // EMU_THREADS_MAX of them side by side
static emu_fiber scheduler;
static const void *scheduler_stack; // as AddressSanitizer reports it
static size_t scheduler_stack_bytes;

#if defined(__x86_64__)
extern "C" void emu_swap_stacks(void **save, void *to);
asm(".text\n.globl emu_swap_stacks\n.type emu_swap_stacks,@function\nemu_swap_stacks:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size emu_swap_stacks,.-emu_swap_stacks\n");
#endif

static unsigned char *map_stacks(void *at, size_t count) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0);
    void *map = mmap(at, count * EMU_STACK_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (map == MAP_FAILED) emu_fail(__FILE__, __LINE__, "no memory for the stacks of %zu threads", count);
    return (unsigned char *)map;
}

static void guard_stack(unsigned char *stack) {
    size_t below = (sizeof(emu_copy_queue) + 4095) / 4096 * 4096;
    mprotect(stack + below, 4096, PROT_NONE);
}

emu_fiber *emu_fiber_get(unsigned linear) {
    if (!stacks) stacks = map_stacks(nullptr, EMU_THREADS_MAX);
    if (!fibers[linear]) {
        emu_fiber *fiber = fibers[linear] = new emu_fiber();
        fiber->stack = stacks + (size_t)linear * EMU_STACK_BYTES;
        fiber->copies = (emu_copy_queue *)fiber->stack;
        guard_stack(fiber->stack);
    }
    return fibers[linear];
}

void emu_fiber_forget_stacks(unsigned thread_count) {
    if (__tsan_create_fiber) map_stacks(stacks, thread_count);
}

static void set_entry(emu_fiber *fiber, void (*body)()) {
#if defined(__x86_64__)
    void **top = (void **)(fiber->stack + EMU_STACK_BYTES);
    *--top = nullptr; // return address of body: the stack is 8 modulo 16 at its entry, as the ABI wants
    *--top = (void *)body;
    for (int saved = 0; saved < 6; saved++) *--top = nullptr;
    fiber->stack_pointer = top;
#else
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = EMU_STACK_BYTES;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, body, 0);
#endif
}

void emu_fiber_prepare(emu_fiber *fiber, unsigned linear, void (*body)()) {
    fiber->thread.index = {linear % emu_block_dim.x, linear / emu_block_dim.x % emu_block_dim.y,
                           linear / emu_block_dim.x / emu_block_dim.y};
    fiber->thread.linear = linear, fiber->thread.warp = linear / 32, fiber->thread.lane = linear % 32;
    fiber->state = EMU_READY;
    fiber->copies->copy_count = fiber->copies->group_count = 0;
    fiber->last_atomic = nullptr;
    fiber->fenced = false;
    fiber->tsan = __tsan_create_fiber ? __tsan_create_fiber(0) : nullptr;
    set_entry(fiber, body);
}

void emu_fiber_retire(emu_fiber *fiber) {
    if (fiber->tsan) __tsan_destroy_fiber(fiber->tsan);
}

static void announce_switch(emu_fiber *from, emu_fiber *to) {
    bool back = to == &scheduler;
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(from->state == EMU_DONE ? nullptr : &from->asan_fake_stack,
                                       back ? scheduler_stack : to->stack,
                                       back ? scheduler_stack_bytes : (size_t)EMU_STACK_BYTES);
    if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(to->tsan, EMU_TSAN_NO_ORDER);
}

static void switch_fiber(emu_fiber *from, emu_fiber *to) {
    emu_counted.switches++;
    announce_switch(from, to);
#if defined(__x86_64__)
    emu_swap_stacks(&from->stack_pointer, to->stack_pointer);
#else
    swapcontext(&from->context, &to->context);
#endif
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(from->asan_fake_stack, nullptr, nullptr);
}

void emu_fiber_entered() {
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
}

void emu_switch_to_thread(emu_fiber *fiber) {
    if (__tsan_get_current_fiber) scheduler.tsan = __tsan_get_current_fiber();
    emu_current = &fiber->thread;
    switch_fiber(&scheduler, fiber);
    emu_current = nullptr;
}

void emu_switch_to_scheduler(emu_fiber *fiber) {
    switch_fiber(fiber, &scheduler);
    emu_current = &fiber->thread;
}
