/* host_arena.h - the host tier's memory: one reservation, registered with the device, cut into slots of one payload each.
 *
 * Hands out slots and addresses; what a slot holds and which copy is under way is its owner's business. Thread: the device's.
 */
#ifndef QR_OFFLOAD_HOST_ARENA_H
#define QR_OFFLOAD_HOST_ARENA_H

#include "base/device.h"
#include "base/memory.h"

typedef uint32_t qr_host_slot;
#define QR_HOST_SLOT_NONE UINT32_MAX

typedef struct qr_host_arena {
    qr_region region;
    qr_device *device; /* borrowed */
    size_t slot_bytes;
    uint32_t slot_count;
    uint32_t free_count;
    qr_host_slot *free_slots; /* stack; in the region's own allocation */
} qr_host_arena;

/* Slots that fit into a budget. */
uint32_t qr_host_arena_slots(uint64_t budget_bytes, size_t slot_bytes);
/* The budget holds a slot at least, and can be had now. INVALID, NO_MEMORY: with the numbers. */
QUIRE_MUST_CHECK quire_status qr_host_arena_check(uint64_t budget_bytes, size_t slot_bytes, quire_error *error);
/* Takes and registers everything now. Errors: NO_MEMORY with the numbers (budget, what is available, what a cgroup leaves). */
QUIRE_MUST_CHECK quire_status qr_host_arena_init(qr_host_arena *arena, qr_device *device, uint64_t budget_bytes,
                                                 size_t slot_bytes, quire_error *error);
void qr_host_arena_deinit(qr_host_arena *arena);        /* no copy is under way; zeroed ones are fine */
qr_host_slot qr_host_arena_alloc(qr_host_arena *arena); /* QR_HOST_SLOT_NONE: full */
void qr_host_arena_free(qr_host_arena *arena, qr_host_slot slot);
void *qr_host_arena_address(const qr_host_arena *arena, qr_host_slot slot);
#endif
