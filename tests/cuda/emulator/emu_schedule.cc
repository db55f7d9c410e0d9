// Ready set, CTA life, deadlock report.
#include "tests/cuda/emulator/emu_schedule.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/cuda/emulator/emu_memory.h"
#include "tests/cuda/emulator/emu_sanitizer.h"

emu_stats emu_counted;
emu_thread *emu_current;
uint3 emu_block_index;
dim3 emu_block_dim, emu_grid_dim;
unsigned char *emu_shared;
size_t emu_shared_bytes;

enum { WORDS = EMU_THREADS_MAX / 64, NOBODY = -1 };
// Dynamic shared memory is aligned like GPU_DYN_SMEM asks for; a guard of that size lies behind it.
static const size_t GUARD_BYTES = 1024;
static const unsigned char GUARD_FILL = 0xa5;

static uint64_t ready[WORDS];
static unsigned thread_count, random_state;
static const std::function<void()> *thread_body;
static char grid_end; // its address orders the end of every thread before the host

unsigned emu_thread_count() { return thread_count; }
void emu_count_read(size_t bytes) { emu_counted.global_bytes_read += bytes; }
emu_copy_queue *emu_copies() { return emu_self()->copies; }

void emu_fail(const char *file, int line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fprintf(stderr, "emulator: error: %s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    if (emu_current)
        fprintf(stderr, " [CTA (%u,%u,%u) thread (%u,%u,%u)]", emu_block_index.x, emu_block_index.y, emu_block_index.z,
                emu_current->index.x, emu_current->index.y, emu_current->index.z);
    fprintf(stderr, "\n");
    _exit(EMU_EXIT_CODE);
}

// ---- ready set ----

static void set_ready(unsigned i, bool on) {
    uint64_t bit = 1ull << i % 64;
    ready[i / 64] = on ? ready[i / 64] | bit : ready[i / 64] & ~bit;
}

static int first_ready() {
    for (int word = 0; word < WORDS; word++)
        if (ready[word]) return word * 64 + __builtin_ctzll(ready[word]);
    return NOBODY;
}

static int last_ready() {
    for (int word = WORDS; word-- > 0;)
        if (ready[word]) return word * 64 + 63 - __builtin_clzll(ready[word]);
    return NOBODY;
}

static int nth_ready(unsigned n) {
    for (int word = 0; word < WORDS; word++) {
        unsigned here = (unsigned)__builtin_popcountll(ready[word]);
        if (n >= here) {
            n -= here;
            continue;
        }
        uint64_t rest = ready[word];
        while (n--) rest &= rest - 1;
        return word * 64 + __builtin_ctzll(rest);
    }
    return NOBODY;
}

static int random_ready() {
    unsigned count = 0;
    for (uint64_t word : ready) count += (unsigned)__builtin_popcountll(word);
    random_state = random_state * 1664525u + 1013904223u;
    return nth_ready((unsigned)((uint64_t)random_state * count >> 32));
}

static int pick() {
    if (emu_opt.order == EMU_FORWARD) return first_ready();
    return emu_opt.order == EMU_REVERSE ? last_ready() : random_ready();
}

// ---- waiting ----

static void leave(emu_fiber_state state, const char *file, int line) {
    emu_fiber *me = emu_self();
    me->state = state, me->file = file, me->line = line;
    if (state != EMU_READY) set_ready(me->thread.linear, false);
    emu_switch_to_scheduler(me);
}

void emu_sleep(const char *file, int line) { leave(EMU_WAITING, file, line); }

void emu_offer_switch(const char *file, int line) {
    if (emu_opt.order == EMU_RANDOM) leave(EMU_READY, file, line);
}

void emu_wake(unsigned linear) {
    emu_fiber_get(linear)->state = EMU_READY;
    set_ready(linear, true);
}

[[noreturn]] static void deadlock() {
    std::map<std::pair<std::string, int>, unsigned> waiting;
    unsigned exited = 0;
    for (unsigned i = 0; i < thread_count; i++) {
        const emu_fiber *fiber = emu_fiber_get(i);
        if (fiber->state == EMU_DONE) exited++;
        else waiting[{fiber->file, fiber->line}]++;
    }
    std::string where;
    for (auto &site : waiting)
        where += std::to_string(site.second) + " wait at " + site.first.first + ":" + std::to_string(site.first.second) + ", ";
    emu_fail("CTA", (int)emu_block_index.x, "deadlock: %s%u have exited", where.c_str(), exited);
}

// ---- one CTA ----

static void thread_main() {
    emu_fiber_entered();
    (*thread_body)();
    emu_fiber *me = emu_self();
    if (me->copies->copy_count) emu_fail("end of kernel", 0, "%u cp.async not waited for", me->copies->copy_count);
    emu_release(&grid_end);
    emu_sync_thread_exits(me);
    leave(EMU_DONE, "end of kernel", 0);
    abort();
}

// 0xFF bytes are NaN in every float format and -1 in every integer, so a read of unwritten memory shows.
static unsigned char *shared_create(size_t bytes) {
    size_t room = (bytes + GUARD_BYTES - 1) / GUARD_BYTES * GUARD_BYTES + GUARD_BYTES;
    unsigned char *memory = (unsigned char *)aligned_alloc(GUARD_BYTES, room);
    std::fill_n(memory, bytes, (unsigned char)0xff);
    std::fill_n(memory + bytes, GUARD_BYTES, GUARD_FILL);
    emu_poison(memory + bytes, room - bytes);
    return memory;
}

static void shared_check(const unsigned char *memory, size_t bytes) {
    emu_unpoison(memory, bytes + GUARD_BYTES);
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (memory[bytes + i] != GUARD_FILL)
            emu_fail("end of kernel", 0, "shared memory written %zu bytes past its %zu bytes, CTA (%u,%u,%u)", i, bytes,
                     emu_block_index.x, emu_block_index.y, emu_block_index.z);
}

// CTAs are not ordered with each other, so under ThreadSanitizer shared memory is freed by a context that comes after this
// CTA and is not the one that starts the next.
static void shared_destroy(unsigned char *memory) {
    if (!__tsan_create_fiber) return free(memory);
    static void *reaper = __tsan_create_fiber(0);
    void *me = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(reaper, EMU_TSAN_NO_ORDER);
    emu_acquire(&grid_end);
    free(memory);
    __tsan_switch_to_fiber(me, EMU_TSAN_NO_ORDER);
}

static void run_threads() {
    for (int next = pick(); next != NOBODY; next = pick()) emu_switch_to_thread(emu_fiber_get((unsigned)next));
    for (unsigned i = 0; i < thread_count; i++)
        if (emu_fiber_get(i)->state != EMU_DONE) deadlock();
}

static void run_cta(size_t shared_bytes) {
    emu_shared_bytes = shared_bytes;
    emu_shared = shared_create(shared_bytes);
    emu_fiber_forget_stacks(thread_count);
    emu_sync_reset(thread_count);
    for (unsigned i = 0; i < thread_count; i++) {
        emu_fiber_prepare(emu_fiber_get(i), i, thread_main);
        set_ready(i, true);
    }
    run_threads();
    shared_check(emu_shared, shared_bytes);
    for (unsigned i = 0; i < thread_count; i++) emu_fiber_retire(emu_fiber_get(i));
    shared_destroy(emu_shared);
    emu_counted.ctas++;
}

static uint3 block_index(size_t i) {
    size_t row = i / emu_grid_dim.x;
    return {(unsigned)(i % emu_grid_dim.x), (unsigned)(row % emu_grid_dim.y), (unsigned)(row / emu_grid_dim.y)};
}

void emu_run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &body) {
    thread_count = block.x * block.y * block.z;
    thread_body = &body;
    emu_block_dim = block, emu_grid_dim = grid;
    random_state = emu_opt.seed * 2654435761u + 1;
    emu_memory_open();
    size_t cta_count = (size_t)grid.x * grid.y * grid.z;
    for (size_t i = 0; i < cta_count; i++) {
        emu_block_index = block_index(emu_opt.order == EMU_REVERSE ? cta_count - 1 - i : i);
        run_cta(shared_bytes);
    }
    emu_acquire(&grid_end);
    emu_memory_close();
}
