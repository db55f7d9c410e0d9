/* host_arena.c - see host_arena.h. */
#include "offload/host_arena.h"

#include "base/assertion.h"
#include "base/checked.h"
#include "base/error.h"

enum { ARENA_PAGE = 4096 };

uint32_t qr_host_arena_slots(uint64_t budget_bytes, size_t slot_bytes) {
    uint64_t count = slot_bytes ? budget_bytes / (slot_bytes + sizeof(qr_host_slot)) : 0;
    while (count > 0 && count * slot_bytes + qr_align_up((size_t)(count * sizeof(qr_host_slot)), ARENA_PAGE) > budget_bytes)
        count--;
    return count < QR_HOST_SLOT_NONE ? (uint32_t)count : QR_HOST_SLOT_NONE - 1;
}

/* Slots, and the stack of free ones behind them. */
static uint64_t arena_bytes(uint32_t slot_count, size_t slot_bytes) {
    return (uint64_t)slot_count * (slot_bytes + sizeof(qr_host_slot));
}

quire_status qr_host_arena_check(uint64_t budget_bytes, size_t slot_bytes, quire_error *error) {
    uint32_t count = qr_host_arena_slots(budget_bytes, slot_bytes);
    uint64_t size_bytes = arena_bytes(count, slot_bytes), available = qr_memory_available_bytes();
    if (count == 0)
        return qr_fail(error, QUIRE_INVALID, "host_bytes", QR_NO_OFFSET, "%llu bytes hold no block, which takes %zu",
                       (unsigned long long)budget_bytes, slot_bytes);
    if (size_bytes <= SIZE_MAX && (available == 0 || size_bytes <= available)) return QUIRE_OK;
    return qr_fail(
        error, QUIRE_NO_MEMORY, "host_bytes", QR_NO_OFFSET,
        "a budget of %llu bytes cannot be met: %llu can be had (the least of what the machine has available and what "
        "the cgroup and `ulimit -v` and `-d` leave)",
        (unsigned long long)budget_bytes, (unsigned long long)available);
}

quire_status qr_host_arena_init(qr_host_arena *arena, qr_device *device, uint64_t budget_bytes, size_t slot_bytes,
                                quire_error *error) {
    uint32_t count = qr_host_arena_slots(budget_bytes, slot_bytes);
    *arena = (qr_host_arena){0};
    quire_status status = qr_host_arena_check(budget_bytes, slot_bytes, error);
    if (status != QUIRE_OK) return status;
    uint64_t slots_bytes = (uint64_t)count * slot_bytes;
    status = qr_region_alloc((size_t)arena_bytes(count, slot_bytes), &arena->region, error);
    if (status == QUIRE_OK) status = device->ops->host_register(device, arena->region.base, (size_t)slots_bytes, error);
    if (status != QUIRE_OK) {
        qr_region_free(&arena->region);
        return status;
    }
    arena->device = device;
    arena->slot_bytes = slot_bytes;
    arena->slot_count = arena->free_count = count;
    arena->free_slots = (qr_host_slot *)(void *)((unsigned char *)arena->region.base + slots_bytes);
    for (uint32_t i = 0; i < count; i++) arena->free_slots[i] = count - 1 - i;
    return QUIRE_OK;
}

void qr_host_arena_deinit(qr_host_arena *arena) {
    if (arena->device) arena->device->ops->host_unregister(arena->device, arena->region.base);
    if (arena->device) qr_region_free(&arena->region);
    *arena = (qr_host_arena){0};
}

qr_host_slot qr_host_arena_alloc(qr_host_arena *arena) {
    return arena->free_count > 0 ? arena->free_slots[--arena->free_count] : QR_HOST_SLOT_NONE;
}

void qr_host_arena_free(qr_host_arena *arena, qr_host_slot slot) {
    QR_ASSERT(slot < arena->slot_count && arena->free_count < arena->slot_count);
    arena->free_slots[arena->free_count++] = slot;
}

void *qr_host_arena_address(const qr_host_arena *arena, qr_host_slot slot) {
    QR_ASSERT(slot < arena->slot_count);
    return (unsigned char *)arena->region.base + (size_t)slot * arena->slot_bytes;
}
