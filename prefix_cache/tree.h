/* tree.h - the prefix tree: which blocks hold which prefixes, for whom, and which one goes next.
 *
 *   root of a namespace --label--> node --label--> node ...       one node per block, edges are whole blocks
 *
 * One tree over all tiers. A resident node has a block of every KV group; a stored one only a copy in a lower tier (a slot of
 * host memory, a record on disk, or both: opaque numbers here); a ghost has nothing and is remembered for its counts and to
 * tell "evicted" from "never stored". Resident nodes form whole prefixes, and below them stored ones do: the parent of a
 * resident node is resident or a root, that of a stored node resident, stored or a root, since leaves go first. A node that
 * loses its last copy takes the stored nodes below it along. Edges never split; a match may end with a tail, the leading words
 * of one more block, in a resident node.
 *
 * The tree never sees the pool: it hands block ids back and its owner frees them. Lookups compare labels (node_store.h).
 *
 * Locks forbid eviction: whoever uses a node locks it and all its ancestors. Pins ask for it: pinned nodes go only when
 * nothing else can, the pin of the lowest priority first, or when their time is over. A lock keeps a node, and a resident
 * node's blocks; not what a tier has of it, for a tier may lose that at any time. So a stored node that is lost while it is
 * locked becomes a ghost that is held: it cannot be dropped before its last unlock, and until then it takes the place of a
 * stored node (stored_count + held_count <= stored_limit).
 *
 * Thread: one at a time. Nothing is allocated after init. Match is read-only and O(blocks); insert, evict
 * and demote are O(log siblings), for LRU also O(log leaves); lose and forget are linear in what lies below.
 */
#ifndef QR_PREFIX_CACHE_TREE_H
#define QR_PREFIX_CACHE_TREE_H

#include "prefix_cache/leaves.h"
#include "prefix_cache/node_store.h"
#include "prefix_cache/policy.h"

enum {
    QR_NODE_UNSAVED = 1,
    QR_TREE_PINS_MAX = 256,
    QR_TREE_GHOSTS_PER_BLOCK = 4 /* with 4 dlfu hits as with counts that never end; 2 loses a tenth, 1 a quarter */
};

typedef struct qr_tree_config {
    uint32_t root_count;   /* namespaces */
    uint32_t block_count;  /* resident nodes at most */
    uint32_t ghost_count;  /* nodes kept beyond them */
    uint32_t stored_count; /* nodes that are only stored, at most; 0: there are no lower tiers */
    uint32_t host_count;   /* slots of the host tier */
    uint32_t label_words;  /* tokens per block, or 2 for opaque 64-bit keys */
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
    uint32_t stored_count;
    qr_node_id ghosts; /* list over left and right */
} qr_tree_root;

typedef struct qr_tree {
    qr_node_store store;
    qr_policy policy;
    qr_leaves leaves;
    qr_leaves host_leaves; /* unlocked stored nodes whose host slot takes nothing along: they have a record too, or nothing is
                              stored below them */
    qr_tree_root *roots;   /* [root_count] */
    qr_pin *pins;          /* [pin_count] of QR_TREE_PINS_MAX */
    uint32_t pin_count;
    uint32_t block_limit;
    uint32_t resident_count;
    uint32_t ghost_count;
    uint32_t stored_count, stored_limit;
    uint32_t held_count; /* of the ghosts: locked ones */
    qr_node_id oldest_ghost, newest_ghost;
    qr_node_id first_unsaved, last_unsaved; /* resident nodes that wait for a record */
    uint32_t unsaved_count;
} qr_tree;

/* Takes everything from the arena, which may only be counting and fails for more than QR_NODES_MAX nodes. The tree must not
 * move afterwards. */
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
/* The child with this label in whatever state, or QR_NODE_NONE. */
qr_node_id qr_tree_find(const qr_tree *tree, qr_node_id parent, const quire_token *label);
/* The same block_count blocks are resident or stored in another namespace. Bounded: looks into at most 32 of them. */
bool qr_tree_found_elsewhere(const qr_tree *tree, uint32_t root, const quire_token *words, uint32_t block_count);

static inline bool qr_tree_is_resident(const qr_tree *tree, qr_node_id id) {
    return tree->store.nodes[id].state == QR_NODE_RESIDENT;
}
static inline bool qr_tree_is_ghost(const qr_tree *tree, qr_node_id id) { return tree->store.nodes[id].state == QR_NODE_GHOST; }
/* Why a ghost has no bytes. */
static inline qr_ghost_cause qr_tree_cause(const qr_tree *tree, qr_node_id id) {
    return (qr_ghost_cause)tree->store.nodes[id].cause;
}
/* Resident ones. */
static inline bool qr_tree_has_children(const qr_tree *tree, qr_node_id id) {
    return tree->store.nodes[id].children != QR_NODE_NONE;
}
static inline qr_node_id qr_tree_parent(const qr_tree *tree, qr_node_id id) { return tree->store.nodes[id].parent; }
/* [group_count] ids of a resident node, borrowed. */
static inline const quire_block_id *qr_tree_blocks(const qr_tree *tree, qr_node_id id) {
    return qr_node_blocks(&tree->store, id);
}

/* ---- using ---- */

/* Adds a child that is not resident, locked once (more) and touched. A ghost of it comes back with its counts, a stored one
 * also keeps its copies; without a record it is listed as unsaved. The parent is a root or resident. blocks [group_count]
 * are copied. QR_NODE_NONE when block_count nodes are resident. */
qr_node_id qr_tree_insert(qr_tree *tree, qr_node_id parent, const quire_token *label, const quire_block_id *blocks);
/* A user of a resident or stored node; the caller locks ancestors too, and unlocks the deepest first. A locked stored node may
 * meanwhile become resident, or a ghost: unlock it all the same. While it is locked its host slot is no victim. */
void qr_tree_lock(qr_tree *tree, qr_node_id id);
void qr_tree_unlock(qr_tree *tree, qr_node_id id);
/* A request reached this locked node: the policy counts it. */
void qr_tree_touch(qr_tree *tree, qr_node_id id);
/* Somebody came back to this node after its first touch; as long as its counts last, which is while it has a node. dlfu
 * forgets a touch after two dozen horizons. */
bool qr_tree_seen_twice(const qr_tree *tree, qr_node_id id);
/* A prompt or an answer ends here; the policy learns when somebody comes back. Roots are ignored. */
void qr_tree_mark_end(qr_tree *tree, qr_node_id id);

/* Pins a resident node and its ancestors; the same node again replaces its pin. When all pins are taken the lowest
 * priority yields. False when the new one is the lowest. */
bool qr_tree_pin(qr_tree *tree, qr_node_id id, uint32_t priority, uint64_t ttl_us);

/* ---- making room ---- */

/* The leaf to evict next, revoking pins when nothing else is left; QR_NODE_NONE when every node is in use. */
qr_node_id qr_tree_victim(qr_tree *tree);
/* Makes a ghost of an evictable leaf. Its blocks are the caller's from now on; read them first. Nothing may be stored of it
 * or below it any more: demote it, or lose it first. */
void qr_tree_evict(qr_tree *tree, qr_node_id id);

/* ---- lower tiers ----
 *
 * A tier has a record only of what it has the parent's record of, too. The tree does not know that rule, but it is why losing a
 * record takes along those of all nodes below, resident ones included. */

/* The copies of a resident or stored node; QR_COPY_NONE. */
static inline uint32_t qr_tree_host(const qr_tree *tree, qr_node_id id) {
    return tree->store.copies ? tree->store.copies[id].host : QR_COPY_NONE;
}
static inline uint32_t qr_tree_record(const qr_tree *tree, qr_node_id id) {
    return tree->store.copies ? tree->store.copies[id].record : QR_COPY_NONE;
}
static inline bool qr_tree_is_stored(const qr_tree *tree, qr_node_id id) {
    return tree->store.nodes[id].state == QR_NODE_STORED;
}
static inline bool qr_tree_has_stored_children(const qr_tree *tree, qr_node_id id) {
    return tree->store.copies && tree->store.copies[id].stored_children != QR_NODE_NONE;
}

/* Follows stored nodes down from `from` (a root, resident or stored node); how many, and the last in *node. */
uint32_t qr_tree_find_stored(const qr_tree *tree, qr_node_id from, const quire_token *words, uint64_t blocks, qr_node_id *node);

/* Notes or clears a copy of a resident or stored node. A resident node with a record is no longer unsaved; one whose record is
 * cleared is, but not listed. A stored node must keep one copy: use lose for the last. */
void qr_tree_set_host(qr_tree *tree, qr_node_id id, uint32_t slot);
void qr_tree_set_record(qr_tree *tree, qr_node_id id, uint32_t record);

/* Evicts a resident leaf that has a copy, or is about to have one: its blocks are the caller's, the node is stored. False
 * when stored_limit nodes are: then lose and evict it. What is stored below it stays. */
bool qr_tree_demote(qr_tree *tree, qr_node_id id);
/* Adds a stored node with this record (an index that came back) below a root, a resident or a stored node. A ghost of it comes
 * back with its counts. QR_NODE_NONE when the limit is reached or the child exists and is no ghost. */
qr_node_id qr_tree_insert_stored(qr_tree *tree, qr_node_id parent, const quire_token *label, uint32_t record);
/* Remembers labels [depth][label_words] that never were here as ghosts, so that a lookup can say why it misses. What is known
 * already stays as it is. Only free nodes are used: no other ghost is forgotten for it. */
void qr_tree_insert_ghost(qr_tree *tree, uint32_t root, const quire_token *labels, uint32_t depth, qr_ghost_cause cause);

/* A node has lost what it had below the device: a stored one becomes a ghost, a resident one is unsaved again (but not listed:
 * list_unsaved says when). Nodes below it lose theirs the same way, deepest first. `release` is told the copies of each
 * before they go, the node's own included: of every stored node that becomes a ghost, even when it has none yet, and of
 * resident ones that have any. It must not change the tree. */
typedef void qr_tree_release_copies(void *owner, qr_node_id id, uint32_t host, uint32_t record);
void qr_tree_lose(qr_tree *tree, qr_node_id id, qr_ghost_cause cause, qr_tree_release_copies *release, void *owner);
/* The same for records only: slots stay, and a stored node that has one stays stored unless what it hangs on goes. `release` is
 * told QR_COPY_NONE for a slot that stays. */
void qr_tree_lose_record(qr_tree *tree, qr_node_id id, qr_ghost_cause cause, qr_tree_release_copies *release, void *owner);

/* Resident nodes that wait for a record, in the order of their listing; insert lists them by itself when there are lower tiers.
 * So parents come before children, unless a parent lost its record and was listed again: begin with qr_tree_topmost_unsaved
 * where that may be. */
static inline qr_node_id qr_tree_first_unsaved(const qr_tree *tree) { return tree->first_unsaved; }
static inline qr_node_id qr_tree_next_unsaved(const qr_tree *tree, qr_node_id id) { return tree->store.nodes[id].next; }
static inline bool qr_tree_is_unsaved(const qr_tree *tree, qr_node_id id) { /* listed */
    return qr_tree_is_resident(tree, id) && (tree->store.nodes[id].cause & QR_NODE_UNSAVED);
}
/* Lists a resident node without a record as the last, or takes it out; nothing when it is or was not listed. */
void qr_tree_list_unsaved(qr_tree *tree, qr_node_id id);
void qr_tree_unlist_unsaved(qr_tree *tree, qr_node_id id);
/* The first node on the way down to this one that has no record, listed or not: it must be written before the others. */
qr_node_id qr_tree_topmost_unsaved(const qr_tree *tree, qr_node_id id);
/* Sorts the list for a flush: what is worth most comes first, parents always before children. O(n log n), no memory. */
void qr_tree_sort_unsaved(qr_tree *tree);

/* The stored node whose host slot is worth least, among unlocked ones whose slot takes no other node along: clear it (set_host)
 * when the node has a record, else lose it. QR_NODE_NONE when there is none; slots of resident nodes are the owner's to
 * clear. */
qr_node_id qr_tree_host_victim(qr_tree *tree);

/* Forgets a namespace entirely, locked nodes and ghosts included. `release` is told each resident node before it goes. */
typedef void qr_tree_release(void *owner, const quire_block_id *blocks);
/* `copies` (may be NULL) is told the copies of each stored node and of each resident one that has any. */
void qr_tree_forget(qr_tree *tree, uint32_t root, qr_tree_release *release, qr_tree_release_copies *copies, void *owner);

/* Every invariant. CORRUPT names the node. O(nodes log siblings) with an ordinary hash. */
QUIRE_MUST_CHECK quire_status qr_tree_check(const qr_tree *tree, quire_error *error);
#endif
