/*
 * cp.async: copies of one thread from global to shared memory, in groups.
 *
 * A copy lands when its group is waited for (the latest legal moment, so a missing wait reads old bytes) or, with
 * EMU_COPIES=eager, when it is issued (so a copy into memory still in use overwrites it). The copy itself is inline: it is
 * compiled with the kernel, so the sanitizers see its two accesses.
 */
#pragma once
#include <cstring>

#include "tests/cuda/emulator/emu_core.h"

#if defined(__SANITIZE_THREAD__)
#define EMU_TSAN_BUILD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EMU_TSAN_BUILD 1
#endif
#endif
#if defined(EMU_TSAN_BUILD)
extern "C" void __tsan_write_range(void *, size_t);
#endif

struct emu_copy {
    void *to;
    const void *from;
    unsigned size, valid; // the first valid of size bytes are read, the rest becomes zero
};

enum { EMU_COPIES_MAX = 512, EMU_GROUPS_MAX = 64 };

// No heap: an allocation inside a thread of the CTA would be an event for ThreadSanitizer.
struct emu_copy_queue {
    emu_copy copy[EMU_COPIES_MAX];
    unsigned copy_count, group_count;
    unsigned group_end[EMU_GROUPS_MAX];
};
emu_copy_queue *emu_copies(); // of the running thread

template <unsigned N> inline void emu_copy_one(const emu_copy &c) {
    struct alignas(N) word {
        unsigned char byte[N];
    } value;
    if (c.valid == N) {
        value = *(const word *)c.from; // one aligned access of N bytes, as on the device
    } else {
        memset(&value, 0, N);
        for (unsigned i = 0; i < c.valid; i++) value.byte[i] = ((const unsigned char *)c.from)[i];
    }
    *(word *)c.to = value;
}

inline void emu_copy_land(const emu_copy &c) {
    if (c.size == 16) emu_copy_one<16>(c);
    else if (c.size == 8) emu_copy_one<8>(c);
    else emu_copy_one<4>(c);
}

inline void emu_copy_issue(void *to, const void *from, unsigned size, unsigned valid, EMU_SITE) {
    if ((uintptr_t)to % size || (uintptr_t)from % size)
        emu_fail(EMU_HERE, "misaligned cp.async of %u bytes from %p to %p", size, from, to);
    if (valid > size) emu_fail(EMU_HERE, "cp.async of %u bytes of which %u are valid", size, valid);
    emu_count_read(valid);
    emu_copy c = {to, from, size, valid};
    if (!emu_opt.late_copies) return emu_copy_land(c);
    emu_copy_queue *q = emu_copies();
    if (q->copy_count == EMU_COPIES_MAX) emu_fail(EMU_HERE, "more than %d cp.async in flight in one thread", EMU_COPIES_MAX);
#if defined(EMU_TSAN_BUILD)
    __tsan_write_range(to, size); // the write may land at any time from here on
#endif
    q->copy[q->copy_count++] = c;
}

inline void emu_copy_commit(EMU_SITE) {
    emu_copy_queue *q = emu_copies();
    if (q->group_count == EMU_GROUPS_MAX) emu_fail(EMU_HERE, "more than %d cp.async groups in flight", EMU_GROUPS_MAX);
    q->group_end[q->group_count++] = q->copy_count;
}

// Lands the oldest copies and forgets the oldest groups.
inline void emu_copy_retire(emu_copy_queue *q, unsigned copies, unsigned groups) {
    for (unsigned i = 0; i < copies; i++) emu_copy_land(q->copy[i]);
    memmove(q->copy, q->copy + copies, (q->copy_count - copies) * sizeof q->copy[0]);
    q->copy_count -= copies;
    for (unsigned g = groups; g < q->group_count; g++) q->group_end[g - groups] = q->group_end[g] - copies;
    q->group_count -= groups;
}

inline void emu_copy_wait(unsigned pending_groups) {
    emu_copy_queue *q = emu_copies();
    unsigned done = q->group_count > pending_groups ? q->group_count - pending_groups : 0;
    emu_copy_retire(q, done ? q->group_end[done - 1] : 0, done);
}

inline void emu_copy_wait_all() {
    emu_copy_queue *q = emu_copies();
    emu_copy_retire(q, q->copy_count, q->group_count);
}
