/* node_store.h - the nodes of the prefix tree, their labels, and the hash table that finds a child by its label.
 *
 * One node stands for one block at one place in one namespace: its parent says what came before, its label what it
 * holds. A label is `label_words` 32-bit words: the token ids of the block, or one opaque 64-bit key as two words.
 * Nodes 0 .. root_count-1 are the roots of the namespaces; they have no label and live for ever.
 *
 * A hash only says where to look: a find compares parent and label of every candidate. It covers the whole prefix and not
 * the namespace, which is mixed in to choose a chain for all blocks but the first: so the same beginning of a prompt in
 * all namespaces lies in one chain (qr_node_store_next), and what follows is spread.
 *
 * Thread: one at a time. Nothing is allocated after init.
 */
#ifndef QR_PREFIX_CACHE_NODE_STORE_H
#define QR_PREFIX_CACHE_NODE_STORE_H

#include <quire/types.h>

#include "blockmgr/arena.h"

typedef uint32_t qr_node_id;
#define QR_NODE_NONE UINT32_MAX
#define QR_NODES_MAX ((UINT32_C(1) << 31) - 1) /* roots and all */

typedef enum qr_node_state {
    QR_NODE_FREE,     /* in the free list */
    QR_NODE_ROOT,     /* a namespace */
    QR_NODE_RESIDENT, /* a block of every group stands behind it; it may have copies in lower tiers too */
    QR_NODE_STORED,   /* no block, but a copy in a lower tier */
    QR_NODE_GHOST     /* nothing any more: remembered for its counts and to tell why a lookup missed */
} qr_node_state;

/* Why a ghost has no bytes. */
typedef enum qr_ghost_cause {
    QR_GHOST_EVICTED,
    QR_GHOST_DAMAGED, /* a stored copy did not prove itself */
    QR_GHOST_FOREIGN  /* found on disk, written by another model, layout or numerics */
} qr_ghost_cause;

/* Copies of a node's blocks below the device. */
typedef struct qr_node_copies {
    qr_node_id stored_children; /* list of STORED children over left and right */
    uint32_t host;              /* slot of the host tier, or QR_COPY_NONE */
    uint32_t record;            /* of the store, or QR_COPY_NONE */
} qr_node_copies;
#define QR_COPY_NONE UINT32_MAX

typedef struct qr_node {
    qr_node_id parent;
    qr_node_id children;    /* root of the ordered set of resident children (siblings.h) */
    qr_node_id left, right; /* resident: place in the parent's ordered set; stored: list of the parent's stored children;
                               ghost: list of its namespace's ghosts */
    qr_node_id hash_next;
    uint32_t hash;             /* of all labels from the root to here */
    qr_node_id previous, next; /* ghost: order of dropping; resident: list of the unsaved; free: `next` is the free list */
    uint32_t leaf_slot;        /* place among the evictable leaves of its tier, or QR_NODE_NONE */
    uint32_t lock_count;       /* sequences that use it */
    uint16_t pin_count;
    uint8_t state;    /* qr_node_state */
    uint8_t cause;    /* qr_ghost_cause of a ghost; resident: QR_NODE_UNSAVED when it is in that list; stored: 0 */
    qr_node_id root;  /* its namespace */
    uint32_t depth;   /* blocks up to and including this one */
    float weight;     /* policy: decayed count of touches (LRU: 0, 1, or 2 for more) */
    uint64_t touched; /* policy: last touch, in the policy's unit */
} qr_node;
_Static_assert(sizeof(qr_node) == 64, "a node is one cache line");

typedef struct qr_node_store {
    qr_node *nodes;         /* [root_count + node_count] */
    quire_token *labels;    /* [node_count][label_words] */
    quire_block_id *blocks; /* [node_count][group_count] */
    qr_node_copies *copies; /* [root_count + node_count]; NULL unless has_copies */
    qr_node_id *buckets;    /* [bucket_mask + 1] */
    uint32_t bucket_mask;
    uint32_t root_count;
    uint32_t node_count; /* besides the roots */
    uint32_t label_words;
    uint32_t group_count;
    bool has_copies; /* there are lower tiers */
    qr_node_id free_head;
} qr_node_store;

/* Takes the arrays from the arena, which may only be counting. root_count + node_count <= QR_NODES_MAX. */
void qr_node_store_init(qr_node_store *store, qr_arena *arena);

/* A free node, or QR_NODE_NONE; it is not linked anywhere, has no copies, and its label is not set. */
qr_node_id qr_node_store_alloc(qr_node_store *store);
void qr_node_store_free(qr_node_store *store, qr_node_id id);

/* Enters a node whose parent and label are set into the hash table, or takes it out. */
void qr_node_store_link(qr_node_store *store, qr_node_id id);
void qr_node_store_unlink(qr_node_store *store, qr_node_id id);

/* The child of `parent` with this label; QR_NODE_NONE when there is none. */
qr_node_id qr_node_store_find(const qr_node_store *store, qr_node_id parent, const quire_token *label);
/* Walks the nodes of any namespace that begin a prompt with this label: pass QR_NODE_NONE, then the last answer. */
qr_node_id qr_node_store_next(const qr_node_store *store, qr_node_id last, const quire_token *label);

static inline quire_token *qr_node_label(const qr_node_store *store, qr_node_id id) {
    return store->labels + (uint64_t)(id - store->root_count) * store->label_words;
}

static inline quire_block_id *qr_node_blocks(const qr_node_store *store, qr_node_id id) {
    return store->blocks + (uint64_t)(id - store->root_count) * store->group_count;
}

static inline bool qr_node_is_root(const qr_node_store *store, qr_node_id id) { return id < store->root_count; }
#endif
