/* arena.h - one region for all bookkeeping, laid out by the code that uses it.
 *
 * Every structure takes its arrays from the arena in its init. An arena without a base only counts, so the same code
 * first says how many bytes a configuration needs and then gets them: the planned figure cannot drift from the real one.
 * Nothing is ever given back piece by piece.
 *
 * Thread: any one at a time.
 */
#ifndef QR_BLOCKMGR_ARENA_H
#define QR_BLOCKMGR_ARENA_H

#include <stdbool.h>
#include <stdint.h>

enum { QR_ARENA_ALIGNMENT = 64 };

typedef struct qr_arena {
    unsigned char *base; /* NULL: only count */
    uint64_t size_bytes;
    uint64_t used_bytes;
    bool failed; /* a size wrapped, or did not fit */
} qr_arena;

/* `count` elements of `size` bytes, 64-byte aligned and zero if the region was. NULL while counting and after a failure. */
void *qr_arena_take(qr_arena *arena, uint64_t count, uint64_t size);
#endif
