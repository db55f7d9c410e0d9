/* The invariants of the tree (qr_tree_check), apart from the code that keeps them. */
#include "base/error.h"
#include "prefix_cache/ghosts.h"
#include "prefix_cache/siblings.h"

static quire_status check_fail(quire_error *error, qr_node_id id, const char *what) {
    return qr_fail(error, QUIRE_CORRUPT, "tree", QR_NO_OFFSET, "node %u: %s", id, what);
}

static const char *check_parent(const qr_tree *tree, const qr_node *node) {
    const qr_node *parent = &tree->store.nodes[node->parent];
    if (node->root != parent->root || node->depth != parent->depth + 1) return "another namespace or depth than its parent's";
    if (parent->state == QR_NODE_FREE) return "its parent is gone";
    if (node->state == QR_NODE_RESIDENT && parent->state == QR_NODE_GHOST) return "resident behind a ghost";
    if (node->lock_count > parent->lock_count && parent->state != QR_NODE_ROOT) return "locked more often than its parent";
    if (node->pin_count > parent->pin_count && parent->state != QR_NODE_ROOT) return "pinned more often than its parent";
    return NULL;
}

static const char *check_node(const qr_tree *tree, qr_node_id id) {
    const qr_node *node = &tree->store.nodes[id];
    bool evictable =
        node->state == QR_NODE_RESIDENT && !node->lock_count && !node->pin_count && !qr_tree_has_children(tree, id);
    if (node->state == QR_NODE_ROOT) return "a root in the place of a block";
    if (evictable != (node->leaf_slot != QR_NODE_NONE)) return "wrongly in or out of the evictable leaves";
    if (node->state == QR_NODE_GHOST && (node->lock_count || node->pin_count || qr_tree_has_children(tree, id)))
        return "a ghost in use";
    if (node->state == QR_NODE_FREE) return NULL;
    if (qr_tree_find(tree, node->parent, qr_node_label(&tree->store, id)) != id) return "not found by its label";
    return check_parent(tree, node);
}

typedef struct check_counts {
    uint64_t resident, ghosts, free, children, evictable;
} check_counts;

static void check_count(const qr_node *node, check_counts *counts) {
    counts->resident += node->state == QR_NODE_RESIDENT;
    counts->ghosts += node->state == QR_NODE_GHOST;
    counts->free += node->state == QR_NODE_FREE;
    counts->evictable += node->leaf_slot != QR_NODE_NONE;
}

static uint64_t check_free_list(const qr_tree *tree) {
    uint64_t count = 0;
    for (qr_node_id id = tree->store.free_head; id != QR_NODE_NONE && count <= tree->store.node_count;
         id = tree->store.nodes[id].next)
        count++;
    return count;
}

static quire_status check_totals(const qr_tree *tree, const check_counts *counts, quire_error *error) {
    if (counts->resident != tree->resident_count || counts->ghosts != tree->ghost_count)
        return check_fail(error, QR_NODE_NONE, "resident or ghost count is wrong");
    if (counts->children != counts->resident)
        return check_fail(error, QR_NODE_NONE, "a resident node is no child of its parent");
    if (counts->free != check_free_list(tree)) return check_fail(error, QR_NODE_NONE, "the free list is broken");
    if (counts->evictable != tree->leaves.count || !qr_leaves_check(&tree->leaves, tree->store.nodes))
        return check_fail(error, QR_NODE_NONE, "the evictable leaves are broken");
    if (!qr_ghosts_check(tree)) return check_fail(error, QR_NODE_NONE, "the lists of ghosts are broken");
    return QUIRE_OK;
}

quire_status qr_tree_check(const qr_tree *tree, quire_error *error) {
    check_counts counts = {0};
    uint32_t total = tree->store.root_count + tree->store.node_count;
    for (qr_node_id id = 0; id < total; id++) {
        const char *wrong = qr_node_is_root(&tree->store, id) ? NULL : check_node(tree, id);
        if (wrong) return check_fail(error, id, wrong);
        if (tree->store.nodes[id].state == QR_NODE_FREE) {
            check_count(&tree->store.nodes[id], &counts);
            continue;
        }
        uint32_t children = qr_siblings_check(&tree->store, id);
        if (children == UINT32_MAX) return check_fail(error, id, "its children are out of order");
        counts.children += children;
        check_count(&tree->store.nodes[id], &counts);
    }
    return check_totals(tree, &counts, error);
}
