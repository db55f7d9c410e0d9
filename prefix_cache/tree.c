#include "prefix_cache/tree.h"

#include <string.h>

#include "base/assertion.h"
#include "prefix_cache/ghosts.h"
#include "prefix_cache/pins.h"
#include "prefix_cache/siblings.h"

enum { TREE_ELSEWHERE_MAX = 32 };

void qr_tree_init(qr_tree *tree, const qr_tree_config *config, qr_arena *arena) {
    QR_ASSERT(config->root_count > 0 && config->label_words > 0 && config->group_count > 0);
    *tree = (qr_tree){.block_limit = config->block_count, .oldest_ghost = QR_NODE_NONE, .newest_ghost = QR_NODE_NONE};
    tree->store = (qr_node_store){.root_count = config->root_count,
                                  .node_count = config->block_count + config->ghost_count,
                                  .label_words = config->label_words,
                                  .group_count = config->group_count};
    qr_node_store_init(&tree->store, arena);
    qr_policy_init(&tree->policy, config->policy, arena);
    qr_leaves_init(&tree->leaves, config->block_count, &tree->policy, config->seed, arena);
    tree->pins = qr_arena_take(arena, QR_TREE_PINS_MAX, sizeof *tree->pins);
    tree->roots = qr_arena_take(arena, config->root_count, sizeof *tree->roots);
    if (!tree->roots) return;
    for (uint32_t i = 0; i < config->root_count; i++) tree->roots[i].ghosts = QR_NODE_NONE;
}

void qr_tree_set_time(qr_tree *tree, uint64_t now_us) {
    if (now_us <= tree->policy.now_us) return;
    tree->policy.now_us = now_us;
    qr_pins_expire(tree);
}

/* ---- looking ---- */

qr_node_id qr_tree_find(const qr_tree *tree, qr_node_id parent, const quire_token *label) {
    return qr_node_store_find(&tree->store, parent, label);
}

static qr_node_id tree_find_resident(const qr_tree *tree, qr_node_id parent, const quire_token *label) {
    qr_node_id id = qr_tree_find(tree, parent, label);
    return id != QR_NODE_NONE && qr_tree_is_resident(tree, id) ? id : QR_NODE_NONE;
}

/* Follows whole blocks down from `from`; returns how many, and the last in *node. */
static uint32_t tree_descend(const qr_tree *tree, qr_node_id from, const quire_token *words, uint64_t blocks,
                             qr_node_id *node) {
    uint32_t count = 0;
    *node = from;
    while (count < blocks) {
        qr_node_id child = tree_find_resident(tree, *node, words + (uint64_t)count * tree->store.label_words);
        if (child == QR_NODE_NONE) break;
        *node = child;
        count++;
    }
    return count;
}

void qr_tree_find_prefix(const qr_tree *tree, uint32_t root, const quire_token *words, uint64_t word_count,
                         qr_tree_match *match) {
    uint32_t label_words = tree->store.label_words;
    QR_ASSERT(root < tree->store.root_count);
    *match = (qr_tree_match){.tail_node = QR_NODE_NONE};
    match->block_count = tree_descend(tree, root, words, word_count / label_words, &match->node);
    uint64_t done = (uint64_t)match->block_count * label_words, rest = word_count - done;
    if (rest == 0) return;
    match->tail_node = qr_siblings_nearest(&tree->store, match->node, words + done,
                                           rest < label_words ? (uint32_t)rest : label_words, &match->tail_words);
}

bool qr_tree_found_elsewhere(const qr_tree *tree, uint32_t root, const quire_token *words, uint32_t block_count) {
    qr_node_id id = QR_NODE_NONE, last;
    for (int tries = 0; tries < TREE_ELSEWHERE_MAX; tries++) {
        id = qr_node_store_next(&tree->store, id, words);
        if (id == QR_NODE_NONE) return false;
        if (tree->store.nodes[id].root == root || !qr_tree_is_resident(tree, id)) continue;
        if (tree_descend(tree, id, words + tree->store.label_words, block_count - 1, &last) == block_count - 1) return true;
    }
    return false;
}

/* ---- using ---- */

/* Keeps the set of evictable leaves in step with one node. */
static void tree_update_leaf(qr_tree *tree, qr_node_id id) {
    const qr_node *node = &tree->store.nodes[id];
    bool evictable =
        node->state == QR_NODE_RESIDENT && node->lock_count == 0 && node->pin_count == 0 && node->children == QR_NODE_NONE;
    bool listed = node->leaf_slot != QR_NODE_NONE;
    if (evictable && !listed) qr_leaves_insert(&tree->leaves, tree->store.nodes, id);
    if (!evictable && listed) qr_leaves_remove(&tree->leaves, tree->store.nodes, id);
}

void qr_tree_lock(qr_tree *tree, qr_node_id id) {
    QR_ASSERT(qr_tree_is_resident(tree, id));
    if (tree->store.nodes[id].lock_count++ == 0) tree_update_leaf(tree, id);
}

void qr_tree_unlock(qr_tree *tree, qr_node_id id) {
    qr_node *node = &tree->store.nodes[id];
    QR_ASSERT(node->state == QR_NODE_RESIDENT && node->lock_count > 0);
    if (--node->lock_count > 0) return;
    qr_policy_release(&tree->policy, node);
    tree_update_leaf(tree, id);
}

void qr_tree_touch(qr_tree *tree, qr_node_id id) {
    QR_ASSERT(tree->store.nodes[id].lock_count > 0);
    qr_policy_touch(&tree->policy, &tree->store.nodes[id]);
}

void qr_tree_mark_end(qr_tree *tree, qr_node_id id) {
    if (!qr_node_is_root(&tree->store, id)) qr_policy_mark_end(&tree->policy, &tree->store.nodes[id]);
}

/* A node for a new child; the oldest ghost makes room when there is none. */
static qr_node_id tree_new_node(qr_tree *tree, qr_node_id parent, const quire_token *label) {
    if (tree->store.free_head == QR_NODE_NONE) qr_ghosts_drop(tree, tree->oldest_ghost);
    qr_node_id id = qr_node_store_alloc(&tree->store);
    const qr_node *above = &tree->store.nodes[parent];
    tree->store.nodes[id] = (qr_node){.parent = parent,
                                      .children = QR_NODE_NONE,
                                      .left = QR_NODE_NONE,
                                      .right = QR_NODE_NONE,
                                      .leaf_slot = QR_NODE_NONE,
                                      .root = above->root,
                                      .depth = above->depth + 1};
    memcpy(qr_node_label(&tree->store, id), label, tree->store.label_words * sizeof *label);
    qr_node_store_link(&tree->store, id);
    return id;
}

qr_node_id qr_tree_insert(qr_tree *tree, qr_node_id parent, const quire_token *label, const quire_block_id *blocks) {
    if (tree->resident_count == tree->block_limit) return QR_NODE_NONE;
    qr_node_id id = qr_tree_find(tree, parent, label);
    if (id == QR_NODE_NONE) id = tree_new_node(tree, parent, label);
    else qr_ghosts_unlink(tree, id);
    qr_node *node = &tree->store.nodes[id];
    memcpy(qr_node_blocks(&tree->store, id), blocks, tree->store.group_count * sizeof *blocks);
    node->state = QR_NODE_RESIDENT;
    node->lock_count = 1;
    qr_siblings_insert(&tree->store, id);
    tree->roots[node->root].resident_count++;
    tree->resident_count++;
    if (!qr_node_is_root(&tree->store, parent)) tree_update_leaf(tree, parent);
    qr_tree_touch(tree, id);
    return id;
}

void qr_tree_add_pin_count(qr_tree *tree, qr_node_id id, int change) {
    qr_node *nodes = tree->store.nodes;
    for (; !qr_node_is_root(&tree->store, id); id = nodes[id].parent) {
        nodes[id].pin_count = (uint16_t)(nodes[id].pin_count + change);
        tree_update_leaf(tree, id);
    }
}

/* ---- making room ---- */

qr_node_id qr_tree_victim(qr_tree *tree) {
    while (tree->leaves.count == 0 && tree->pin_count > 0) qr_pins_revoke_lowest(tree);
    return qr_leaves_worst(&tree->leaves, tree->store.nodes);
}

/* Takes a resident node without children out of its parent's order and the counts. */
static void tree_detach(qr_tree *tree, qr_node_id id) {
    const qr_node *node = &tree->store.nodes[id];
    qr_siblings_remove(&tree->store, id);
    tree->roots[node->root].resident_count--;
    tree->resident_count--;
    if (!qr_node_is_root(&tree->store, node->parent)) tree_update_leaf(tree, node->parent);
}

void qr_tree_evict(qr_tree *tree, qr_node_id id) {
    QR_ASSERT(tree->store.nodes[id].leaf_slot != QR_NODE_NONE);
    qr_leaves_remove(&tree->leaves, tree->store.nodes, id);
    tree_detach(tree, id);
    qr_ghosts_push(tree, id);
}

/* A resident node of the namespace without resident children; any will do. */
static qr_node_id tree_some_leaf(const qr_tree *tree, uint32_t root) {
    qr_node_id id = root;
    while (tree->store.nodes[id].children != QR_NODE_NONE) id = tree->store.nodes[id].children;
    return id;
}

void qr_tree_forget(qr_tree *tree, uint32_t root, qr_tree_release *release, qr_tree_release_copies *copies, void *owner) {
    (void)copies;
    QR_ASSERT(root < tree->store.root_count);
    qr_pins_drop_root(tree, root);
    for (qr_node_id id = tree_some_leaf(tree, root); id != root; id = tree_some_leaf(tree, root)) {
        release(owner, qr_tree_blocks(tree, id));
        tree->store.nodes[id].lock_count = 0;
        if (tree->store.nodes[id].leaf_slot != QR_NODE_NONE) qr_leaves_remove(&tree->leaves, tree->store.nodes, id);
        tree_detach(tree, id);
        qr_node_store_unlink(&tree->store, id);
        qr_node_store_free(&tree->store, id);
    }
    qr_ghosts_drop_root(tree, root);
}
