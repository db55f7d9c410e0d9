// Barriers, gathering of warp collectives, fences: who waits for whom, and what ThreadSanitizer is told about it.
//
// Runs inside the CTA's threads, so nothing here may allocate or clear memory in bulk: ThreadSanitizer sees malloc and
// memset wherever they are called from.
#include <algorithm>

#include "tests/cuda/emulator/emu_collectives.h"
#include "tests/cuda/emulator/emu_sanitizer.h"
#include "tests/cuda/emulator/emu_schedule.h"

struct barrier {
    unsigned arrived, count, generation;
    bool whole_cta;
    const char *file;
    int line;
    uint64_t sleeping[EMU_THREADS_MAX / 64];
    char order[2]; // addresses for ThreadSanitizer, by generation: a fast thread may already be at the next round
};

enum { COLLECTIVES_MAX = 4, ORDERS = 8 };
struct warp {
    emu_collective op[COLLECTIVES_MAX]; // sub-warp masks may be under way side by side
    uint32_t exited;
    unsigned generation;
    char order[ORDERS];
};

static barrier barriers[16];
static warp warps[EMU_THREADS_MAX / 32];

void emu_sync_reset(unsigned thread_count) {
    std::fill(barriers, barriers + 16, barrier());
    std::fill(warps, warps + (thread_count + 31) / 32, warp());
}

// ---- barriers ----

static void barrier_join(barrier &b, unsigned id, bool whole_cta, unsigned count, const char *file, int line) {
    if (!b.arrived) {
        b.count = count, b.whole_cta = whole_cta, b.file = file, b.line = line;
        return;
    }
    bool elsewhere = whole_cta && (b.file != file || b.line != line);
    if (b.count != count || b.whole_cta != whole_cta || elsewhere)
        emu_fail(file, line, "barrier %u divergence: others wait at %s:%d (count %u here, %u there)", id, b.file, b.line, count,
                 b.count);
}

static void barrier_open(barrier &b) {
    for (unsigned word = 0; word < EMU_THREADS_MAX / 64; word++)
        for (uint64_t &rest = b.sleeping[word]; rest; rest &= rest - 1) emu_wake(word * 64 + (unsigned)__builtin_ctzll(rest));
    b.arrived = 0;
    b.generation++;
}

void emu_barrier(unsigned id, unsigned count, const char *file, int line) {
    if (id > 15) emu_fail(file, line, "barrier %u: there are 16", id);
    if (count % 32) emu_fail(file, line, "barrier of %u threads: not a multiple of 32", count);
    barrier &b = barriers[id];
    barrier_join(b, id, !count, count ? count : emu_thread_count(), file, line);
    emu_counted.barriers++;
    const char *order = &b.order[b.generation & 1];
    emu_release(order);
    unsigned me = emu_current->linear;
    if (++b.arrived < b.count) {
        b.sleeping[me / 64] |= 1ull << me % 64;
        emu_sleep(file, line);
    } else {
        barrier_open(b);
        emu_offer_switch(file, line);
    }
    emu_acquire(order);
}

// ---- collectives ----

static emu_collective *collective_find(warp &w, uint32_t mask, uint32_t bit, const char *file, int line) {
    emu_collective *found = nullptr;
    for (emu_collective &op : w.op) {
        if (op.mask == mask && !(op.arrived & bit)) found = &op;
        else if (op.mask & mask)
            emu_fail(file, line, "warp divergence: mask %08x overlaps mask %08x waiting at %s:%d", mask, op.mask, op.file,
                     op.line);
    }
    return found;
}

static emu_collective *collective_start(warp &w, uint32_t mask, void (*combine)(emu_collective &), const char *file, int line) {
    for (emu_collective &op : w.op) {
        if (op.mask) continue;
        op.mask = mask, op.arrived = 0, op.combine = combine;
        op.file = file, op.line = line, op.generation = w.generation++;
        return &op;
    }
    emu_fail(file, line, "more than %d collectives under way in a warp", COLLECTIVES_MAX);
}

static void check_mask(const warp &w, uint32_t mask, uint32_t bit, const char *file, int line) {
    if (!(mask & bit)) emu_fail(file, line, "lane %u is not in the mask %08x that it passes", emu_current->lane, mask);
    if (mask & w.exited) emu_fail(file, line, "mask %08x names lanes that have exited (%08x)", mask, w.exited);
}

static emu_collective *collective_join(warp &w, uint32_t mask, void (*combine)(emu_collective &), const char *file, int line) {
    uint32_t bit = 1u << emu_current->lane;
    check_mask(w, mask, bit, file, line);
    emu_collective *op = collective_find(w, mask, bit, file, line);
    if (!op) op = collective_start(w, mask, combine, file, line);
    if (op->combine != combine || op->file != file || op->line != line)
        emu_fail(file, line, "warp divergence: lanes %08x wait at %s:%d", op->arrived, op->file, op->line);
    op->arrived |= bit;
    return op;
}

static void collective_finish(emu_collective *op) {
    op->combine(*op);
    uint32_t others = op->mask & ~(1u << emu_current->lane);
    op->mask = 0;
    for (; others; others &= others - 1) emu_wake(emu_current->warp * 32 + (unsigned)__builtin_ctz(others));
}

void emu_gather(uint32_t mask, void (*combine)(emu_collective &), void *argument, bool orders_memory, const char *file,
                int line) {
    warp &w = warps[emu_current->warp];
    emu_collective *op = collective_join(w, mask, combine, file, line);
    emu_counted.collectives++;
    op->argument[emu_current->lane] = argument;
    const char *order = &w.order[op->generation % ORDERS];
    if (orders_memory) emu_release(order);
    if (op->arrived != mask) {
        emu_sleep(file, line);
    } else {
        collective_finish(op);
        emu_offer_switch(file, line);
    }
    if (orders_memory) emu_acquire(order);
}

void emu_sync_thread_exits(const emu_fiber *fiber) {
    warp &w = warps[fiber->thread.warp];
    w.exited |= 1u << fiber->thread.lane;
    for (const emu_collective &op : w.op)
        if (op.mask >> fiber->thread.lane & 1)
            emu_fail(op.file, op.line, "lane %u exited; lanes %08x wait for it here", fiber->thread.lane, op.arrived);
}

// ---- fences ----

void emu_fence() {
    emu_fiber *me = emu_self();
    me->fenced = true;
    if (me->last_atomic) emu_acquire(me->last_atomic);
}

void emu_atomic_begin(const void *address) {
    if (emu_self()->fenced) emu_release(address);
}

void emu_atomic_end(const void *address) { emu_self()->last_atomic = address; }
