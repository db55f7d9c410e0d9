/* leaves.h - the evictable leaves: resident nodes without resident children that nobody uses or pins.
 *
 * For LRU a binary heap, because its order never changes while a node is in it: the victim is exact. For dlfu, whose
 * ranks move with the horizon, an unordered array: the victim is the lowest of 32 random leaves, which keeps nearly all
 * of the gain of the lowest of all and costs the same for ten leaves or ten million.
 */
#ifndef QR_PREFIX_CACHE_LEAVES_H
#define QR_PREFIX_CACHE_LEAVES_H

#include "base/random.h"
#include "prefix_cache/policy.h"

enum { QR_LEAVES_SAMPLE = 32 };

typedef struct qr_leaves {
    qr_node_id *ids; /* [capacity]; each node's leaf_slot is its index */
    uint32_t count;
    uint32_t capacity;
    const qr_policy *policy;
    qr_random random;
} qr_leaves;

/* Takes the array from the arena, which may only be counting. Keeps policy. */
void qr_leaves_init(qr_leaves *leaves, uint32_t capacity, const qr_policy *policy, uint64_t seed, qr_arena *arena);
void qr_leaves_insert(qr_leaves *leaves, qr_node *nodes, qr_node_id id);
void qr_leaves_remove(qr_leaves *leaves, qr_node *nodes, qr_node_id id);
/* The next victim, which stays in the set; QR_NODE_NONE when empty. */
qr_node_id qr_leaves_worst(qr_leaves *leaves, const qr_node *nodes);
/* Slots agree with nodes, and the heap is one. */
bool qr_leaves_check(const qr_leaves *leaves, const qr_node *nodes);
#endif
