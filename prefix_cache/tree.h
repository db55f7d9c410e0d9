/* tree.h - the prefix tree: which blocks hold which prefixes, for whom, and which one goes next.
 *
 *   root of a namespace --label--> node --label--> node ...       one node per block, edges are whole blocks
 *
 * A resident node has a block of every KV group; a ghost has none and is remembered for its counts and to tell "evicted"
 * from "never stored". Resident nodes form whole prefixes: the parent of a resident node is resident or a root, since
 * only leaves are evicted. Edges never split; a match may end with a tail, the leading words of one more block.
 *
 * The tree never sees the pool: it hands block ids back and its owner frees them. Lookups compare labels (node_store.h).
 *
 * Locks forbid eviction: whoever uses a node locks it and all its ancestors. Pins ask for it: pinned nodes go only when
 * nothing else can, the pin of the lowest priority first, or when their time is over.
 *
 * Thread: one at a time. Nothing is allocated after init. Match is read-only and O(blocks); insert and evict are
 * O(log siblings), for LRU also O(log leaves).
 */
#ifndef QR_PREFIX_CACHE_TREE_H
#define QR_PREFIX_CACHE_TREE_H

#include "prefix_cache/leaves.h"
#include "prefix_cache/node_store.h"
#include "prefix_cache/policy.h"

enum {
    QR_TREE_PINS_MAX = 256,
    QR_TREE_GHOSTS_PER_BLOCK = 4 /* with 4 dlfu hits as with counts that never end; 2 loses a tenth, 1 a quarter */
};

typedef struct qr_tree_config {
    uint32_t root_count;  /* namespaces */
    uint32_t block_count; /* resident nodes at most */
    uint32_t ghost_count; /* nodes kept beyond them */
    uint32_t label_words; /* tokens per block, or 2 for opaque 64-bit keys */
    uint32_t group_count;
    quire_kv_policy policy;
    uint64_t seed; /* of eviction sampling */
} qr_tree_config;

typedef struct qr_pin {
    qr_node_id node; /* the last of the pinned prefix */
    uint32_t priority;
    uint64_t expires_us;
} qr_pin;

typedef struct qr_tree_root {
    uint32_t resident_count;
    uint32_t ghost_count;
    qr_node_id ghosts; /* list over left and right */
} qr_tree_root;

typedef struct qr_tree {
    qr_node_store store;
    qr_policy policy;
    qr_leaves leaves;
    qr_tree_root *roots; /* [root_count] */
    qr_pin *pins;        /* [pin_count] of QR_TREE_PINS_MAX */
    uint32_t pin_count;
    uint32_t block_limit;
    uint32_t resident_count;
    uint32_t ghost_count;
    qr_node_id oldest_ghost, newest_ghost;
} qr_tree;

/* Takes everything from the arena, which may only be counting. The tree must not move afterwards. */
void qr_tree_init(qr_tree *tree, const qr_tree_config *config, qr_arena *arena);
/* Monotonic microseconds; ends pins whose time is over. */
void qr_tree_set_time(qr_tree *tree, uint64_t now_us);

/* ---- looking, without changing anything ---- */

typedef struct qr_tree_match {
    qr_node_id node;      /* last whole block, or the root */
    uint32_t block_count; /* whole blocks */
    qr_node_id tail_node; /* holds the tail, or QR_NODE_NONE */
    uint32_t tail_words;
} qr_tree_match;

/* The longest resident prefix of words[0, word_count) in a namespace. */
void qr_tree_find_prefix(const qr_tree *tree, uint32_t root, const quire_token *words, uint64_t word_count,
                         qr_tree_match *match);
/* The child with this label, resident or ghost, or QR_NODE_NONE. */
qr_node_id qr_tree_find(const qr_tree *tree, qr_node_id parent, const quire_token *label);
/* The same block_count blocks are resident in another namespace. Bounded: looks into at most 32 of them. */
bool qr_tree_found_elsewhere(const qr_tree *tree, uint32_t root, const quire_token *words, uint32_t block_count);

static inline bool qr_tree_is_resident(const qr_tree *tree, qr_node_id id) {
    return tree->store.nodes[id].state == QR_NODE_RESIDENT;
}
static inline bool qr_tree_is_ghost(const qr_tree *tree, qr_node_id id) { return tree->store.nodes[id].state == QR_NODE_GHOST; }
static inline bool qr_tree_has_children(const qr_tree *tree, qr_node_id id) {
    return tree->store.nodes[id].children != QR_NODE_NONE;
}
static inline qr_node_id qr_tree_parent(const qr_tree *tree, qr_node_id id) { return tree->store.nodes[id].parent; }
/* [group_count] ids of a resident node, borrowed. */
static inline const quire_block_id *qr_tree_blocks(const qr_tree *tree, qr_node_id id) {
    return qr_node_blocks(&tree->store, id);
}

/* ---- using ---- */

/* Adds a child that is not resident, locked once and touched. A ghost of it comes back with its counts. blocks
 * [group_count] are copied. QR_NODE_NONE when block_count nodes are resident. */
qr_node_id qr_tree_insert(qr_tree *tree, qr_node_id parent, const quire_token *label, const quire_block_id *blocks);
/* A user of a resident node; the caller locks ancestors too, and unlocks the deepest first. */
void qr_tree_lock(qr_tree *tree, qr_node_id id);
void qr_tree_unlock(qr_tree *tree, qr_node_id id);
/* A request reached this locked node: the policy counts it. */
void qr_tree_touch(qr_tree *tree, qr_node_id id);
/* A prompt or an answer ends here; the policy learns when somebody comes back. Roots are ignored. */
void qr_tree_mark_end(qr_tree *tree, qr_node_id id);

/* Pins a resident node and its ancestors; the same node again replaces its pin. When all pins are taken the lowest
 * priority yields. False when the new one is the lowest. */
bool qr_tree_pin(qr_tree *tree, qr_node_id id, uint32_t priority, uint64_t ttl_us);

/* ---- making room ---- */

/* The leaf to evict next, revoking pins when nothing else is left; QR_NODE_NONE when every node is in use. */
qr_node_id qr_tree_victim(qr_tree *tree);
/* Makes a ghost of an evictable leaf. Its blocks are the caller's from now on; read them first. */
void qr_tree_evict(qr_tree *tree, qr_node_id id);

/* Forgets a namespace entirely, locked nodes and ghosts included. `release` is told each resident node before it goes. */
typedef void qr_tree_release(void *owner, const quire_block_id *blocks);
void qr_tree_forget(qr_tree *tree, uint32_t root, qr_tree_release *release, void *owner);

/* Every invariant. CORRUPT names the node. O(nodes) with an ordinary hash. */
QUIRE_MUST_CHECK quire_status qr_tree_check(const qr_tree *tree, quire_error *error);
#endif
