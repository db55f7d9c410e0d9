/* tree_model.h - a prefix tree with lower tiers and beside it a naive one: plain arrays, linear searches, rules as in tree.h.
 *
 * Every operation is done on both and their answers are compared; model_compare then compares everything that can be seen and
 * runs qr_tree_check. Labels have two words of 0 or 1, so a node has at most four children and walks meet often.
 */
#ifndef QR_TESTS_TREE_MODEL_H
#define QR_TESTS_TREE_MODEL_H

#include "base/random.h"
#include "prefix_cache/tree.h"

enum {
    MODEL_ROOTS = 2,
    MODEL_WORDS = 2,
    MODEL_DEPTH = 6,
    MODEL_BLOCKS = 14,
    MODEL_GHOSTS = 8,
    MODEL_STORED = 12,
    MODEL_SLOTS = 7,
    MODEL_NODES = MODEL_BLOCKS + MODEL_GHOSTS + MODEL_STORED,
    MODEL_USERS = 6,
    MODEL_NONE = -1
};

typedef struct model_node {
    qr_node_state state; /* FREE: this place is empty */
    qr_ghost_cause cause;
    int parent; /* a place, or MODEL_NONE below the root */
    uint32_t root, depth, host, record, lock_count, touch_count;
    uint64_t touched; /* LRU: the order of touches and releases */
    quire_token label[MODEL_WORDS];
    qr_node_id id;
} model_node;

typedef struct model_list {
    int items[MODEL_NODES];
    int count;
} model_list;

typedef struct model {
    qr_tree tree;
    void *memory;
    qr_random random;
    quire_kv_policy policy;
    model_node nodes[MODEL_NODES];
    model_list ages;        /* ghosts that are not held, the next to be dropped first */
    model_list unsaved;     /* in the order of the tree's list */
    int users[MODEL_USERS]; /* tips of locked paths, or MODEL_NONE */
    uint64_t clock, now_us;
    uint32_t next_record;
    uint64_t losses, held_max, drops; /* that a run saw what it should */
} model;

model *model_create(quire_kv_policy policy, uint64_t seed);
void model_destroy(model *m);
void model_compare(model *m);

/* One operation each, with random arguments; nothing when there is nothing to do it on. */
void model_insert(model *m);
void model_lock_path(model *m); /* resident nodes and what is stored behind them, as a load does */
void model_unlock_path(model *m);
void model_touch(model *m);
void model_pin(model *m);
void model_demote(model *m);
void model_evict(model *m);
void model_set_host(model *m);
void model_set_record(model *m);
void model_insert_stored(model *m);
void model_insert_ghost(model *m);
void model_lose(model *m);
void model_lose_record(model *m);
void model_host_victim(model *m);
void model_list_unsaved(model *m);
void model_sort_unsaved(model *m);
void model_look(model *m);
void model_forget(model *m);
void model_set_time(model *m);
#endif
