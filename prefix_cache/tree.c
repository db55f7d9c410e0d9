#include "prefix_cache/tree.h"

#include <string.h>

#include "base/assertion.h"
#include "prefix_cache/ghosts.h"
#include "prefix_cache/pins.h"
#include "prefix_cache/siblings.h"
#include "prefix_cache/tree_internal.h"

enum { TREE_ELSEWHERE_MAX = 32 };

void qr_tree_init(qr_tree *tree, const qr_tree_config *config, qr_arena *arena) {
    QR_ASSERT(config->root_count > 0 && config->label_words > 0 && config->group_count > 0);
    uint64_t node_count = (uint64_t)config->block_count + config->ghost_count + config->stored_count;
    *tree = (qr_tree){.block_limit = config->block_count,
                      .stored_limit = config->stored_count,
                      .oldest_ghost = QR_NODE_NONE,
                      .newest_ghost = QR_NODE_NONE,
                      .first_unsaved = QR_NODE_NONE,
                      .last_unsaved = QR_NODE_NONE};
    if (config->root_count + node_count > QR_NODES_MAX) arena->failed = true;
    if (arena->failed) return;
    tree->store = (qr_node_store){.root_count = config->root_count,
                                  .node_count = (uint32_t)node_count,
                                  .label_words = config->label_words,
                                  .group_count = config->group_count,
                                  .has_copies = config->stored_count > 0 || config->host_count > 0};
    qr_node_store_init(&tree->store, arena);
    qr_policy_init(&tree->policy, config->policy, arena);
    qr_leaves_init(&tree->leaves, config->block_count, &tree->policy, config->seed, arena);
    qr_leaves_init(&tree->host_leaves, config->host_count, &tree->policy, config->seed + 1, arena);
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

/* Follows whole blocks down from `from`; returns how many, and the last in *node. */
static uint32_t tree_descend(const qr_tree *tree, qr_node_id from, const quire_token *words, uint64_t blocks,
                             qr_node_id *node) {
    uint32_t count = 0;
    *node = from;
    while (count < blocks) {
        qr_node_id child = qr_tree_find(tree, *node, words + (uint64_t)count * tree->store.label_words);
        if (child == QR_NODE_NONE || !qr_tree_is_resident(tree, child)) break;
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

/* These blocks go on below `id`, first resident and then stored. */
static bool tree_continues(const qr_tree *tree, qr_node_id id, const quire_token *words, uint32_t blocks) {
    uint32_t count = tree_descend(tree, id, words, blocks, &id);
    words += (uint64_t)count * tree->store.label_words;
    return count == blocks || qr_tree_find_stored(tree, id, words, blocks - count, &id) == blocks - count;
}

bool qr_tree_found_elsewhere(const qr_tree *tree, uint32_t root, const quire_token *words, uint32_t block_count) {
    qr_node_id id = QR_NODE_NONE;
    for (int tries = 0; tries < TREE_ELSEWHERE_MAX; tries++) {
        id = qr_node_store_next(&tree->store, id, words);
        if (id == QR_NODE_NONE) return false;
        if (tree->store.nodes[id].root == root || qr_tree_is_ghost(tree, id)) continue;
        if (tree_continues(tree, id, words + tree->store.label_words, block_count - 1)) return true;
    }
    return false;
}

/* ---- using ---- */

/* A stored node's slot takes nothing along: there is a record too, or nothing is stored below. */
static bool tree_slot_can_go(const qr_tree *tree, qr_node_id id) {
    const qr_node_copies *copies = &tree->store.copies[id];
    return copies->host != QR_COPY_NONE && (copies->record != QR_COPY_NONE || copies->stored_children == QR_NODE_NONE);
}

static bool tree_evictable(const qr_tree *tree, const qr_node *node, qr_node_id id) {
    if (node->lock_count > 0 || node->pin_count > 0) return false;
    if (node->state == QR_NODE_RESIDENT) return node->children == QR_NODE_NONE;
    return node->state == QR_NODE_STORED && tree_slot_can_go(tree, id);
}

static qr_leaves *tree_leaves_of(qr_tree *tree, const qr_node *node) {
    return node->state == QR_NODE_STORED ? &tree->host_leaves : &tree->leaves;
}

void qr_tree_update_leaf(qr_tree *tree, qr_node_id id) {
    const qr_node *node = &tree->store.nodes[id];
    bool evictable = tree_evictable(tree, node, id);
    if (evictable == (node->leaf_slot != QR_NODE_NONE)) return;
    if (evictable) qr_leaves_insert(tree_leaves_of(tree, node), tree->store.nodes, id);
    else qr_leaves_remove(tree_leaves_of(tree, node), tree->store.nodes, id);
}

void qr_tree_leave_leaves(qr_tree *tree, qr_node_id id) {
    const qr_node *node = &tree->store.nodes[id];
    if (node->leaf_slot != QR_NODE_NONE) qr_leaves_remove(tree_leaves_of(tree, node), tree->store.nodes, id);
}

void qr_tree_lock(qr_tree *tree, qr_node_id id) {
    QR_ASSERT(qr_tree_is_resident(tree, id) || qr_tree_is_stored(tree, id));
    if (tree->store.nodes[id].lock_count++ == 0) qr_tree_update_leaf(tree, id);
}

void qr_tree_unlock(qr_tree *tree, qr_node_id id) {
    qr_node *node = &tree->store.nodes[id];
    QR_ASSERT(!qr_node_is_root(&tree->store, id) && node->lock_count > 0);
    if (--node->lock_count > 0) return;
    qr_policy_release(&tree->policy, node);
    if (node->state == QR_NODE_GHOST) qr_ghosts_let_go(tree, id);
    else qr_tree_update_leaf(tree, id);
}

void qr_tree_touch(qr_tree *tree, qr_node_id id) {
    QR_ASSERT(tree->store.nodes[id].lock_count > 0);
    qr_policy_touch(&tree->policy, &tree->store.nodes[id]);
}

bool qr_tree_seen_twice(const qr_tree *tree, qr_node_id id) { return qr_policy_seen_twice(&tree->store.nodes[id]); }

void qr_tree_mark_end(qr_tree *tree, qr_node_id id) {
    if (!qr_node_is_root(&tree->store, id)) qr_policy_mark_end(&tree->policy, &tree->store.nodes[id]);
}

/* Inline for insert: a call costs it 2 %. */
static inline qr_node_id tree_new_node(qr_tree *tree, qr_node_id parent, const quire_token *label) {
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

qr_node_id qr_tree_new_node(qr_tree *tree, qr_node_id parent, const quire_token *label) {
    return tree_new_node(tree, parent, label);
}

/* The node of a child that is not resident, out of every list. */
static qr_node_id tree_take_node(qr_tree *tree, qr_node_id parent, const quire_token *label) {
    qr_node_id id = qr_tree_find(tree, parent, label);
    if (id == QR_NODE_NONE) return tree_new_node(tree, parent, label);
    if (qr_tree_is_stored(tree, id)) qr_stored_unlink(tree, id);
    else qr_ghosts_unlink(tree, id);
    return id;
}

qr_node_id qr_tree_insert(qr_tree *tree, qr_node_id parent, const quire_token *label, const quire_block_id *blocks) {
    QR_ASSERT(qr_node_is_root(&tree->store, parent) || qr_tree_is_resident(tree, parent));
    if (tree->resident_count == tree->block_limit) return QR_NODE_NONE;
    qr_node_id id = tree_take_node(tree, parent, label);
    qr_node *node = &tree->store.nodes[id];
    memcpy(qr_node_blocks(&tree->store, id), blocks, tree->store.group_count * sizeof *blocks);
    node->state = QR_NODE_RESIDENT;
    node->cause = 0;
    node->lock_count++;
    qr_siblings_insert(&tree->store, id);
    tree->roots[node->root].resident_count++;
    tree->resident_count++;
    if (!qr_node_is_root(&tree->store, parent)) qr_tree_update_leaf(tree, parent);
    if (tree->store.copies && qr_tree_record(tree, id) == QR_COPY_NONE) qr_tree_list_unsaved(tree, id);
    qr_tree_touch(tree, id);
    return id;
}

void qr_tree_add_pin_count(qr_tree *tree, qr_node_id id, int change) {
    qr_node *nodes = tree->store.nodes;
    for (; !qr_node_is_root(&tree->store, id); id = nodes[id].parent) {
        nodes[id].pin_count = (uint16_t)(nodes[id].pin_count + change);
        qr_tree_update_leaf(tree, id);
    }
}

/* ---- making room ---- */

qr_node_id qr_tree_victim(qr_tree *tree) {
    while (tree->leaves.count == 0 && tree->pin_count > 0) qr_pins_revoke_lowest(tree);
    return qr_leaves_worst(&tree->leaves, tree->store.nodes);
}

void qr_tree_detach(qr_tree *tree, qr_node_id id) {
    const qr_node *node = &tree->store.nodes[id];
    qr_tree_leave_leaves(tree, id);
    if (node->cause & QR_NODE_UNSAVED) qr_tree_unlist_unsaved(tree, id);
    qr_siblings_remove(&tree->store, id);
    tree->roots[node->root].resident_count--;
    tree->resident_count--;
    if (!qr_node_is_root(&tree->store, node->parent)) qr_tree_update_leaf(tree, node->parent);
}

void qr_tree_evict(qr_tree *tree, qr_node_id id) {
    QR_ASSERT(qr_tree_is_resident(tree, id) && tree->store.nodes[id].leaf_slot != QR_NODE_NONE);
    qr_tree_detach(tree, id);
    qr_ghosts_push(tree, id, QR_GHOST_EVICTED);
}

/* ---- forgetting ---- */

/* From `id` down, a node with neither resident nor stored children; any will do. */
static qr_node_id tree_some_leaf(const qr_tree *tree, qr_node_id id) {
    for (;;) {
        qr_node_id child = tree->store.nodes[id].children;
        if (child == QR_NODE_NONE && qr_tree_has_stored_children(tree, id)) child = tree->store.copies[id].stored_children;
        if (child == QR_NODE_NONE) return id;
        id = child;
    }
}

static void tree_forget_node(qr_tree *tree, qr_node_id id) {
    if (qr_tree_is_stored(tree, id)) qr_stored_unlink(tree, id);
    else qr_tree_detach(tree, id);
    qr_node_store_unlink(&tree->store, id);
    qr_node_store_free(&tree->store, id);
}

static bool tree_has_copies(const qr_tree *tree, qr_node_id id) {
    return qr_tree_host(tree, id) != QR_COPY_NONE || qr_tree_record(tree, id) != QR_COPY_NONE;
}

void qr_tree_forget(qr_tree *tree, uint32_t root, qr_tree_release *release, qr_tree_release_copies *copies, void *owner) {
    qr_node_id parent;
    QR_ASSERT(root < tree->store.root_count);
    qr_pins_drop_root(tree, root);
    for (qr_node_id id = tree_some_leaf(tree, root); id != root; id = tree_some_leaf(tree, parent)) {
        bool stored = qr_tree_is_stored(tree, id);
        parent = qr_tree_parent(tree, id);
        if (!stored) release(owner, qr_tree_blocks(tree, id));
        if (copies && (stored || tree_has_copies(tree, id)))
            copies(owner, id, qr_tree_host(tree, id), qr_tree_record(tree, id));
        tree_forget_node(tree, id);
    }
    qr_ghosts_drop_root(tree, root);
}
