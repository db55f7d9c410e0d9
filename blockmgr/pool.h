/* pool.h - the blocks of one KV group: ids, references, states, and the memory behind them.
 *
 * A block is in exactly one state. References are those of block tables; "kept" means that the cache holds the block
 * whether or not a table does.
 *
 *                     no reference     referenced
 *   not kept          FREE             USED
 *   kept              CACHED           SHARED
 *
 *   FREE --alloc--> USED --keep--> SHARED --last unref--> CACHED --unkeep--> FREE
 *                   USED --last unref--> FREE             CACHED --ref-----> SHARED --unkeep--> USED
 *
 * The legal moves are one table (pool.c). An illegal unref, of a block without references or of no block at all, is
 * reported and changes nothing; any other illegal move is a bug of ours and stops the process.
 *
 * Bytes outlive their block. What nobody may read any more is owed: it is overwritten before the block is handed out again,
 * or by qr_pool_wipe_some. A block in use pays when it is free again, unless it is kept first: then its user has overwritten
 * all of it. Only memory that the CPU can reach can be owed.
 *
 * It knows no tokens, hashes or requests, and never decides what to evict.
 * Thread: one at a time. alloc, ref, unref, keep and unkeep are O(1). Nothing is allocated after init.
 */
#ifndef QR_BLOCKMGR_POOL_H
#define QR_BLOCKMGR_POOL_H

#include <quire/types.h>

#include "base/device.h"
#include "blockmgr/arena.h"

typedef enum qr_block_state {
    QR_BLOCK_FREE,
    QR_BLOCK_USED,
    QR_BLOCK_SHARED,
    QR_BLOCK_CACHED,
    QR_BLOCK_STATE_COUNT
} qr_block_state;

typedef enum qr_block_bytes {
    QR_BYTES_NONE,    /* zeros, since it was made or overwritten */
    QR_BYTES_WRITTEN, /* its user's, and what users before him left */
    QR_BYTES_OWED     /* among them what must go */
} qr_block_bytes;

typedef struct qr_pool_block {
    uint32_t reference_count;
    uint16_t state; /* qr_block_state */
    uint16_t bytes; /* qr_block_bytes */
} qr_pool_block;

typedef struct qr_pool {
    qr_pool_block *blocks;    /* [block_count] */
    quire_block_id *free_ids; /* a stack: the block freed last is the warmest one */
    uint32_t block_count;
    uint32_t state_count[QR_BLOCK_STATE_COUNT];
    uint32_t owed_count; /* free blocks */
    uint32_t wipe_hand;  /* where qr_pool_wipe_some goes on */
    qr_device *device;   /* borrowed; NULL without memory */
    unsigned char *memory;
    size_t block_bytes;
} qr_pool;

/* Takes the arrays from the arena, which may only be counting. The pool has no memory yet. */
void qr_pool_init(qr_pool *pool, uint32_t block_count, qr_arena *arena);
/* Takes block_count * block_bytes from the device, kept until deinit. Errors: NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_pool_alloc_memory(qr_pool *pool, qr_device *device, size_t block_bytes, quire_error *error);
void qr_pool_deinit(qr_pool *pool);

/* A block with one reference, or QUIRE_BLOCK_NONE. Its bytes are whatever they were, or zeros when they were owed. */
quire_block_id qr_pool_alloc(qr_pool *pool);
/* One more reference to a block that is referenced or kept. */
void qr_pool_ref(qr_pool *pool, quire_block_id id);
/* NOT_FOUND for a block that has no reference; nothing changes then. *freed (may be NULL): it went to FREE. */
QUIRE_MUST_CHECK quire_status qr_pool_unref(qr_pool *pool, quire_block_id id, bool *freed);
/* The cache takes hold of a referenced block that is written in full, or lets go of a kept one; unkeep says whether the block
 * is free now. */
void qr_pool_keep(qr_pool *pool, quire_block_id id);
bool qr_pool_unkeep(qr_pool *pool, quire_block_id id);

/* A writer owns a block alone: one reference and not kept. */
bool qr_pool_is_private(const qr_pool *pool, quire_block_id id);
qr_block_state qr_pool_state(const qr_pool *pool, quire_block_id id);
uint32_t qr_pool_references(const qr_pool *pool, quire_block_id id);

/* NULL without memory. */
void *qr_pool_address(const qr_pool *pool, quire_block_id id);
/* Copies a whole block, or overwrites one with zeros. Host-visible memory only; nothing without memory. */
void qr_pool_copy(qr_pool *pool, quire_block_id to, quire_block_id from);
void qr_pool_wipe(qr_pool *pool, quire_block_id id);
/* Somebody else copied a whole block: what is owed for one is owed for both. */
void qr_pool_copied(qr_pool *pool, quire_block_id to, quire_block_id from);

/* All bytes in blocks that are not kept are owed from now on. O(block_count). */
void qr_pool_owe(qr_pool *pool);
/* Overwrites free blocks that are owed until at least so many bytes are overwritten, or none is left; returns how many were. */
size_t qr_pool_wipe_some(qr_pool *pool, size_t wanted_bytes);

/* Every invariant: states against references, the free stack, the counts, what is owed. Changes nothing. CORRUPT with the
 * block. */
QUIRE_MUST_CHECK quire_status qr_pool_check(const qr_pool *pool, quire_error *error);
#endif
