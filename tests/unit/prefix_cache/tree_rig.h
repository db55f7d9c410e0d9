/* tree_rig.h - a small prefix tree on the heap, labels of four tokens. */
#ifndef QR_TESTS_TREE_RIG_H
#define QR_TESTS_TREE_RIG_H

#include "prefix_cache/tree.h"

enum { RIG_LABEL = 4, RIG_ROOTS = 3 };

typedef struct tree_rig {
    qr_tree tree;
    void *memory;
    uint32_t next_block;
} tree_rig;

tree_rig *tree_rig_create(quire_kv_policy policy, uint32_t blocks, uint32_t ghosts);
/* The same with lower tiers. */
tree_rig *tree_rig_create_tiers(quire_kv_policy policy, uint32_t blocks, uint32_t ghosts, uint32_t stored, uint32_t slots);
/* Checks every invariant and frees. */
void tree_rig_destroy(tree_rig *rig);
void tree_rig_check(const tree_rig *rig);
/* Inserts the blocks of words[0, count) that are missing, touches all and lets go; evicts when full. Returns the last. */
qr_node_id tree_rig_run(tree_rig *rig, uint32_t root, const quire_token *words, uint32_t count);
/* The same, but the path stays locked. */
qr_node_id tree_rig_lock_path(tree_rig *rig, uint32_t root, const quire_token *words, uint32_t count);
void tree_rig_unlock_path(tree_rig *rig, qr_node_id tip);
void tree_rig_demote(tree_rig *rig, qr_node_id id, uint32_t host, uint32_t record); /* copies, QR_COPY_NONE: as they are */
/* A chain of stored nodes with records first, first + 1 ... Returns the last. */
qr_node_id tree_rig_store(tree_rig *rig, uint32_t root, const quire_token *words, uint32_t count, uint32_t first_record);
void tree_rig_lock_up(tree_rig *rig, qr_node_id tip); /* a node and all above it */
uint32_t tree_rig_match(const tree_rig *rig, uint32_t root, const quire_token *words, uint32_t count); /* whole blocks */
#endif
