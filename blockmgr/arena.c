#include "blockmgr/arena.h"

#include "base/checked.h"

/* Bytes for the elements, rounded up so that the next array is aligned too; false when that wraps. */
static bool arena_padded_bytes(uint64_t count, uint64_t size, uint64_t *bytes) {
    if (!qr_mul_u64(count, size, bytes) || !qr_add_u64(*bytes, QR_ARENA_ALIGNMENT - 1, bytes)) return false;
    *bytes &= ~(uint64_t)(QR_ARENA_ALIGNMENT - 1);
    return true;
}

void *qr_arena_take(qr_arena *arena, uint64_t count, uint64_t size) {
    uint64_t bytes, end;
    if (arena->failed || !arena_padded_bytes(count, size, &bytes) || !qr_add_u64(arena->used_bytes, bytes, &end) ||
        (arena->base && end > arena->size_bytes)) {
        arena->failed = true;
        return NULL;
    }
    void *memory = arena->base ? arena->base + arena->used_bytes : NULL;
    arena->used_bytes = end;
    return memory;
}
