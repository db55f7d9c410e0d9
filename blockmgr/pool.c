#include "blockmgr/pool.h"

#include <string.h>

#include "base/assertion.h"
#include "base/checked.h"
#include "base/error.h"

typedef enum pool_event {
    POOL_ALLOC,
    POOL_REF,
    POOL_UNREF,
    POOL_UNREF_LAST,
    POOL_KEEP,
    POOL_UNKEEP,
    POOL_EVENT_COUNT
} pool_event;

enum { POOL_ILLEGAL = QR_BLOCK_STATE_COUNT };

/* The life of a block: the state after each event, by the state before it. */
/* clang-format off */
static const unsigned char pool_moves[POOL_EVENT_COUNT][QR_BLOCK_STATE_COUNT] = {
    /*                     FREE           USED             SHARED           CACHED */
    [POOL_ALLOC]      = {QR_BLOCK_USED, POOL_ILLEGAL,    POOL_ILLEGAL,    POOL_ILLEGAL},
    [POOL_REF]        = {POOL_ILLEGAL,  QR_BLOCK_USED,   QR_BLOCK_SHARED, QR_BLOCK_SHARED},
    [POOL_UNREF]      = {POOL_ILLEGAL,  QR_BLOCK_USED,   QR_BLOCK_SHARED, POOL_ILLEGAL},
    [POOL_UNREF_LAST] = {POOL_ILLEGAL,  QR_BLOCK_FREE,   QR_BLOCK_CACHED, POOL_ILLEGAL},
    [POOL_KEEP]       = {POOL_ILLEGAL,  QR_BLOCK_SHARED, POOL_ILLEGAL,    POOL_ILLEGAL},
    [POOL_UNKEEP]     = {POOL_ILLEGAL,  POOL_ILLEGAL,    QR_BLOCK_USED,   QR_BLOCK_FREE},
};
/* clang-format on */

/* The one place where a block changes its state. */
static qr_block_state pool_move(qr_pool *pool, quire_block_id id, pool_event event) {
    qr_pool_block *block = &pool->blocks[id];
    unsigned next = pool_moves[event][block->state];
    QR_ASSERT(next != POOL_ILLEGAL);
    pool->state_count[block->state]--;
    pool->state_count[next]++;
    block->state = (uint16_t)next;
    return (qr_block_state)next;
}

static void pool_push_free(qr_pool *pool, quire_block_id id) {
    pool->free_ids[pool->state_count[QR_BLOCK_FREE] - 1] = id;
    pool->owed_count += pool->blocks[id].bytes == QR_BYTES_OWED;
}

void qr_pool_init(qr_pool *pool, uint32_t block_count, qr_arena *arena) {
    *pool = (qr_pool){.block_count = block_count};
    pool->blocks = qr_arena_take(arena, block_count, sizeof *pool->blocks);
    pool->free_ids = qr_arena_take(arena, block_count, sizeof *pool->free_ids);
    pool->state_count[QR_BLOCK_FREE] = block_count;
    if (!pool->free_ids) return;
    for (uint32_t i = 0; i < block_count; i++) pool->free_ids[i] = block_count - 1 - i;
}

quire_status qr_pool_alloc_memory(qr_pool *pool, qr_device *device, size_t block_bytes, quire_error *error) {
    size_t size_bytes;
    void *memory = NULL;
    if (!qr_mul_size(block_bytes, pool->block_count, &size_bytes))
        return qr_fail(error, QUIRE_NO_MEMORY, "block_count", QR_NO_OFFSET,
                       "%u blocks of %zu bytes are more than memory can be", pool->block_count, block_bytes);
    quire_status status = device->ops->alloc(device, size_bytes, &memory, error);
    if (status != QUIRE_OK) return status;
    pool->device = device;
    pool->memory = memory;
    pool->block_bytes = block_bytes;
    return QUIRE_OK;
}

void qr_pool_deinit(qr_pool *pool) {
    if (pool->memory) pool->device->ops->free(pool->device, pool->memory);
    *pool = (qr_pool){0};
}

quire_block_id qr_pool_alloc(qr_pool *pool) {
    uint32_t count = pool->state_count[QR_BLOCK_FREE];
    if (count == 0) return QUIRE_BLOCK_NONE;
    quire_block_id id = pool->free_ids[count - 1];
    if (pool->blocks[id].bytes == QR_BYTES_OWED) qr_pool_wipe(pool, id);
    pool_move(pool, id, POOL_ALLOC);
    pool->blocks[id].reference_count = 1;
    pool->blocks[id].bytes = QR_BYTES_WRITTEN;
    return id;
}

void qr_pool_ref(qr_pool *pool, quire_block_id id) {
    QR_ASSERT(id < pool->block_count);
    pool_move(pool, id, POOL_REF);
    pool->blocks[id].reference_count++;
}

quire_status qr_pool_unref(qr_pool *pool, quire_block_id id, bool *freed) {
    if (freed) *freed = false;
    if (id >= pool->block_count || pool->blocks[id].reference_count == 0) return QUIRE_NOT_FOUND;
    pool_event event = pool->blocks[id].reference_count == 1 ? POOL_UNREF_LAST : POOL_UNREF;
    qr_block_state next = pool_move(pool, id, event);
    pool->blocks[id].reference_count--;
    if (next != QR_BLOCK_FREE) return QUIRE_OK;
    pool_push_free(pool, id);
    if (freed) *freed = true;
    return QUIRE_OK;
}

void qr_pool_keep(qr_pool *pool, quire_block_id id) {
    QR_ASSERT(id < pool->block_count);
    pool_move(pool, id, POOL_KEEP);
    pool->blocks[id].bytes = QR_BYTES_WRITTEN;
}

bool qr_pool_unkeep(qr_pool *pool, quire_block_id id) {
    QR_ASSERT(id < pool->block_count);
    if (pool_move(pool, id, POOL_UNKEEP) != QR_BLOCK_FREE) return false;
    pool_push_free(pool, id);
    return true;
}

bool qr_pool_is_private(const qr_pool *pool, quire_block_id id) {
    QR_ASSERT(id < pool->block_count);
    return pool->blocks[id].state == QR_BLOCK_USED && pool->blocks[id].reference_count == 1;
}

qr_block_state qr_pool_state(const qr_pool *pool, quire_block_id id) {
    QR_ASSERT(id < pool->block_count);
    return (qr_block_state)pool->blocks[id].state;
}

uint32_t qr_pool_references(const qr_pool *pool, quire_block_id id) {
    QR_ASSERT(id < pool->block_count);
    return pool->blocks[id].reference_count;
}

void *qr_pool_address(const qr_pool *pool, quire_block_id id) {
    QR_ASSERT(id < pool->block_count);
    return pool->memory ? pool->memory + (size_t)id * pool->block_bytes : NULL;
}

static bool pool_is_reachable(const qr_pool *pool) { return pool->memory && pool->device->ops->memory_is_host; }

void qr_pool_copied(qr_pool *pool, quire_block_id to, quire_block_id from) {
    if (pool->blocks[from].bytes == QR_BYTES_OWED) pool->blocks[to].bytes = QR_BYTES_OWED;
}

void qr_pool_copy(qr_pool *pool, quire_block_id to, quire_block_id from) {
    if (!pool_is_reachable(pool)) return;
    memcpy(qr_pool_address(pool, to), qr_pool_address(pool, from), pool->block_bytes);
    qr_pool_copied(pool, to, from);
}

/* ---- what is owed ---- */

/* A block in use may be written again at once, so only a free one has nothing from now on. */
void qr_pool_wipe(qr_pool *pool, quire_block_id id) {
    qr_pool_block *block = &pool->blocks[id];
    if (!pool_is_reachable(pool)) return;
    memset(qr_pool_address(pool, id), 0, pool->block_bytes);
    bool free = block->state == QR_BLOCK_FREE;
    if (free && block->bytes == QR_BYTES_OWED) pool->owed_count--;
    block->bytes = free ? QR_BYTES_NONE : QR_BYTES_WRITTEN;
}

void qr_pool_owe(qr_pool *pool) {
    if (!pool_is_reachable(pool)) return;
    for (uint32_t i = 0; i < pool->block_count; i++) {
        qr_pool_block *block = &pool->blocks[i];
        bool kept = block->state == QR_BLOCK_SHARED || block->state == QR_BLOCK_CACHED;
        if (kept || block->bytes != QR_BYTES_WRITTEN) continue;
        block->bytes = QR_BYTES_OWED;
        pool->owed_count += block->state == QR_BLOCK_FREE;
    }
}

size_t qr_pool_wipe_some(qr_pool *pool, size_t wanted_bytes) {
    size_t wiped_bytes = 0;
    while (pool->owed_count > 0 && wiped_bytes < wanted_bytes) {
        quire_block_id id = pool->wipe_hand;
        pool->wipe_hand = id + 1 < pool->block_count ? id + 1 : 0;
        if (pool->blocks[id].state != QR_BLOCK_FREE || pool->blocks[id].bytes != QR_BYTES_OWED) continue;
        qr_pool_wipe(pool, id);
        wiped_bytes += pool->block_bytes;
    }
    return wiped_bytes;
}

/* ---- proof ---- */

static quire_status pool_corrupt(quire_error *error, uint64_t block, const char *what) {
    return qr_fail(error, QUIRE_CORRUPT, "pool", QR_NO_OFFSET, "block %llu: %s", (unsigned long long)block, what);
}

static bool pool_block_consistent(const qr_pool_block *block) {
    bool referenced = block->state == QR_BLOCK_USED || block->state == QR_BLOCK_SHARED;
    bool kept = block->state == QR_BLOCK_SHARED || block->state == QR_BLOCK_CACHED;
    return block->state < QR_BLOCK_STATE_COUNT && referenced == (block->reference_count > 0) &&
           !(kept && block->bytes == QR_BYTES_OWED);
}

quire_status qr_pool_check(const qr_pool *pool, quire_error *error) {
    uint32_t counts[QR_BLOCK_STATE_COUNT] = {0}, owed_count = 0;
    for (uint32_t i = 0; i < pool->block_count; i++) {
        if (!pool_block_consistent(&pool->blocks[i])) return pool_corrupt(error, i, "state, references and bytes disagree");
        counts[pool->blocks[i].state]++;
        owed_count += pool->blocks[i].state == QR_BLOCK_FREE && pool->blocks[i].bytes == QR_BYTES_OWED;
    }
    if (memcmp(counts, pool->state_count, sizeof counts) != 0)
        return pool_corrupt(error, pool->block_count, "state counts are wrong");
    if (owed_count != pool->owed_count)
        return pool_corrupt(error, pool->block_count, "the count of free blocks that are owed is wrong");
    /* As many FREE blocks as entries, each entry FREE: the stack is a permutation of them unless one is there twice, and
     * then another is missing and can never be found; a sum tells. */
    uint64_t stacked = 0, free_sum = 0;
    for (uint32_t i = 0; i < counts[QR_BLOCK_FREE]; i++) {
        quire_block_id id = pool->free_ids[i];
        if (id >= pool->block_count || pool->blocks[id].state != QR_BLOCK_FREE)
            return pool_corrupt(error, id, "in the free stack but not free");
        stacked += (uint64_t)id * id + id;
    }
    for (uint32_t i = 0; i < pool->block_count; i++)
        if (pool->blocks[i].state == QR_BLOCK_FREE) free_sum += (uint64_t)i * i + i;
    return stacked == free_sum ? QUIRE_OK : pool_corrupt(error, pool->block_count, "the free stack misses a block");
}
