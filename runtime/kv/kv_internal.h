/* kv_internal.h - the state of a KV manager, shared by the files of this folder.
 *
 * kv_config.c   what a configuration costs and whether it is one
 * kv.c          create, destroy, time, blocks taken and given back
 * namespaces.c  keys and their tree roots
 * match.c       the longest cached prefix, and why not one more token
 * sequence.c    sequences: tokens, tables, locks
 * kv_cache.c    pins, eviction on request, forgetting
 * kv_check.c    statistics and invariants
 * erasing.c     what an erasure must find gone from memory
 * tiers.h       what lies below the pool
 *
 * How the parts hold together (kv_check.c proves it):
 * - A node of the tree keeps one block in every group's pool. A sequence that goes through a node locks it once and its
 *   tables hold one reference to each of the node's blocks; so a block is CACHED exactly when its node is unlocked and no
 *   copy of it is under way (tiers.h); cached blocks can always be evicted, leaves first.
 * - The first node_count blocks of a sequence are nodes, a path from the root of its namespace to `tip`.
 * - Groups hold the same positions, so all pools are always equally full.
 */
#ifndef QR_KV_INTERNAL_H
#define QR_KV_INTERNAL_H

#include <quire/kv.h>

#include "base/memory.h"
#include "blockmgr/block_table.h"
#include "blockmgr/layout.h"
#include "blockmgr/pool.h"
#include "prefix_cache/tree.h"
#include "runtime/kv/namespaces.h"
#include "runtime/kv/tiers.h"

#define KV_INDEX_NONE UINT32_MAX

typedef struct kv_sequence {
    uint32_t generation; /* of the id that is live, or that will be next */
    bool live;
    bool forgotten; /* its namespace was forgotten under it: its blocks never enter the tree again */
    bool wipe;      /* overwrite its blocks when they become free */
    quire_namespace_id ns;
    uint32_t token_count; /* committed */
    uint32_t token_high;  /* were ever in its row, and are overwritten when it is closed */
    uint32_t node_count;  /* leading blocks that are nodes of the tree */
    qr_node_id tip;       /* the last of them, or the root */
    uint32_t next_free;
} kv_sequence;

typedef struct kv_counters {
    uint64_t lookups, lookup_tokens, hit_tokens, inserted_blocks, evicted_blocks, deduplicated_blocks, copied_blocks;
} kv_counters;

struct quire_kv {
    quire_kv_config config; /* max_namespaces filled in */
    qr_region region;       /* this object and all bookkeeping */
    uint64_t bookkeeping_bytes;
    uint64_t pool_bytes;
    qr_device *device;
    qr_pool pools[QUIRE_KV_GROUPS_MAX];
    qr_layout layouts[QUIRE_KV_GROUPS_MAX];
    qr_block_tables tables[QUIRE_KV_GROUPS_MAX];
    qr_tree tree;
    qr_namespaces namespaces;
    kv_sequence *sequences;  /* [max_sequences] */
    quire_token *tokens;     /* [max_sequences][token_capacity] */
    uint32_t token_capacity; /* tokens of one sequence at most: what it may and what the pool can hold */
    uint32_t free_sequence;
    uint32_t sequence_count;
    quire_kv_copy *copies; /* [copy_capacity], waiting for quire_kv_take_copies */
    uint32_t copy_capacity;
    uint32_t copy_count;
    uint32_t *check_scratch; /* [block_count] */
    kv_counters counters;
    kv_tiers tiers;
};

/* ---- kv_config.c ---- */

/* INVALID names the field. */
QUIRE_MUST_CHECK quire_status qr_kv_config_check(const quire_kv_config *config, quire_error *error);
/* Lays the object out in the arena, which may only be counting. Returns the object, or NULL while counting. */
quire_kv *qr_kv_lay_out(const quire_kv_config *config, const kv_tier_sizes *sizes, qr_arena *arena);
/* Bytes of the pools of all groups, 0 without storage; false when they wrap. */
bool qr_kv_pool_bytes(const quire_kv_config *config, uint64_t *bytes);

/* ---- kv.c ---- */

/* So many blocks of every group are free now, after evicting if need be. False, and nothing evicted, when there are not so
 * many; false also when some of them are still being copied: then later (quire_kv_busy). */
bool qr_kv_make_room(quire_kv *kv, uint32_t count);
/* Takes one free block of every group. There must be one. */
void qr_kv_take_blocks(quire_kv *kv, quire_block_id blocks[QUIRE_KV_GROUPS_MAX]);
/* Evicts the worst unused node. False when there is none, or its way down is not free now. */
bool qr_kv_evict_one(quire_kv *kv);
/* Copies a block of every group, or lists the copies for an engine without host storage. */
void qr_kv_copy_blocks(quire_kv *kv, const quire_block_id *from, const quire_block_id *to);
/* Listed copies into blocks that nobody holds any more: a start that found no room is tried again and again. */
void qr_kv_forget_copies(quire_kv *kv);
/* Room in the list for one more copy of every group; always with host storage. */
bool qr_kv_can_copy(const quire_kv *kv);

/* A namespace that was forgotten goes, key and all, when nobody uses it any more. */
void qr_kv_namespace_let_go(quire_kv *kv, quire_namespace_id id);

/* ---- match.c ---- */
void qr_kv_match(const quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count, uint32_t limit,
                 quire_kv_match *match, qr_tree_match *found);

/* ---- sequence.c ---- */
void qr_kv_sequences_init(quire_kv *kv);
/* NULL for an id that is not live. */
kv_sequence *qr_kv_sequence_find(const quire_kv *kv, quire_seq_id seq);
/* [token_capacity] */
quire_token *qr_kv_sequence_tokens(const quire_kv *kv, const kv_sequence *sequence);
/* Into its row, from a place on. */
void qr_kv_sequence_put_tokens(quire_kv *kv, kv_sequence *sequence, uint32_t from, const quire_token *tokens, uint32_t count);
/* Tokens that the table has room for, as far as this sequence may write. */
uint32_t qr_kv_sequence_room(const quire_kv *kv, const kv_sequence *sequence);
/* The next block of the sequence is complete: it becomes a node, or the sequence goes on with the one that is there. */
void qr_kv_sequence_enter_block(quire_kv *kv, kv_sequence *sequence);
/* What a live sequence keeps after its namespace was forgotten: its blocks, as its own. */
void qr_kv_sequence_forget(kv_sequence *sequence, bool wipe);
/* Blocks that hold `tokens` tokens. */
uint32_t qr_kv_blocks_for(const quire_kv *kv, uint32_t tokens);

static inline bool qr_kv_namespace_valid(const quire_kv *kv, quire_namespace_id ns) {
    return qr_namespaces_in_use(&kv->namespaces, ns);
}
#endif
