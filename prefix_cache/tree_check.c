/* The invariants of the tree (qr_tree_check), apart from the code that keeps them. First every node by itself, then the lists,
 * and when all links are proved a walk from every root, which must meet exactly what is counted. */
#include "base/error.h"
#include "prefix_cache/ghosts.h"
#include "prefix_cache/siblings.h"
#include "prefix_cache/tree_internal.h"

static quire_status check_fail(quire_error *error, qr_node_id id, const char *what) {
    return qr_fail(error, QUIRE_CORRUPT, "tree", QR_NO_OFFSET, "node %u: %s", id, what);
}

/* ---- one node ---- */

static bool check_has_copies(const qr_tree *tree, qr_node_id id) {
    return qr_tree_host(tree, id) != QR_COPY_NONE || qr_tree_record(tree, id) != QR_COPY_NONE;
}

static const char *check_parent(const qr_tree *tree, const qr_node *node) {
    const qr_node *parent = &tree->store.nodes[node->parent];
    if (node->root != parent->root || node->depth != parent->depth + 1) return "another namespace or depth than its parent's";
    if (parent->state == QR_NODE_FREE) return "its parent is gone";
    if (node->state == QR_NODE_RESIDENT && parent->state == QR_NODE_STORED) return "resident behind a stored node";
    if (node->state != QR_NODE_GHOST && parent->state == QR_NODE_GHOST) return "resident or stored behind a ghost";
    if (node->lock_count > parent->lock_count && parent->state != QR_NODE_ROOT) return "locked more often than its parent";
    if (node->pin_count > parent->pin_count && parent->state != QR_NODE_ROOT) return "pinned more often than its parent";
    return NULL;
}

static const char *check_resident(const qr_tree *tree, qr_node_id id) {
    const qr_node *node = &tree->store.nodes[id];
    bool evictable = !node->lock_count && !node->pin_count && !qr_tree_has_children(tree, id);
    if (evictable != (node->leaf_slot != QR_NODE_NONE)) return "wrongly in or out of the evictable leaves";
    if (node->cause & ~QR_NODE_UNSAVED) return "a mark of a sort is left";
    if (qr_tree_is_unsaved(tree, id) && qr_tree_record(tree, id) != QR_COPY_NONE) return "unsaved with a record";
    return NULL;
}

static const char *check_stored(const qr_tree *tree, qr_node_id id) {
    const qr_node *node = &tree->store.nodes[id];
    bool alone = qr_tree_record(tree, id) != QR_COPY_NONE || !qr_tree_has_stored_children(tree, id);
    bool evictable = !node->lock_count && qr_tree_host(tree, id) != QR_COPY_NONE && alone;
    if (evictable != (node->leaf_slot != QR_NODE_NONE)) return "wrongly in or out of the leaves of the host tier";
    if (node->pin_count || node->cause) return "stored, and pinned or with a cause";
    return qr_tree_has_children(tree, id) ? "stored before a resident node" : NULL;
}

static const char *check_ghost(const qr_tree *tree, qr_node_id id) {
    const qr_node *node = &tree->store.nodes[id];
    if (node->pin_count || node->leaf_slot != QR_NODE_NONE || qr_tree_has_children(tree, id)) return "a ghost in use";
    if (qr_tree_has_stored_children(tree, id) || check_has_copies(tree, id)) return "a ghost that is stored";
    return node->cause > QR_GHOST_FOREIGN ? "a ghost of unknown cause" : NULL;
}

static const char *check_by_state(const qr_tree *tree, qr_node_id id) {
    switch ((qr_node_state)tree->store.nodes[id].state) {
    case QR_NODE_RESIDENT: return check_resident(tree, id);
    case QR_NODE_STORED: return check_stored(tree, id);
    case QR_NODE_GHOST: return check_ghost(tree, id);
    default: return "a root in the place of a block";
    }
}

static const char *check_node(const qr_tree *tree, qr_node_id id) {
    const qr_node *node = &tree->store.nodes[id];
    if (node->state == QR_NODE_FREE) return node->leaf_slot == QR_NODE_NONE ? NULL : "free and a leaf";
    if (qr_tree_find(tree, node->parent, qr_node_label(&tree->store, id)) != id) return "not found by its label";
    const char *wrong = check_by_state(tree, id);
    return wrong ? wrong : check_parent(tree, node);
}

static const char *check_root(const qr_tree *tree, qr_node_id id) {
    const qr_node *node = &tree->store.nodes[id];
    if (node->state != QR_NODE_ROOT || node->root != id || node->depth != 0) return "a root that is none";
    return check_has_copies(tree, id) ? "a root with copies" : NULL;
}

/* ---- counts ---- */

typedef struct check_counts {
    uint64_t resident, stored, ghosts, held, free;
    uint64_t children, stored_children;
    uint64_t leaves, host_leaves, unsaved;
} check_counts;

static void check_count(const qr_tree *tree, qr_node_id id, check_counts *counts) {
    const qr_node *node = &tree->store.nodes[id];
    bool leaf = node->leaf_slot != QR_NODE_NONE;
    counts->resident += node->state == QR_NODE_RESIDENT;
    counts->stored += node->state == QR_NODE_STORED;
    counts->ghosts += node->state == QR_NODE_GHOST;
    counts->held += node->state == QR_NODE_GHOST && node->lock_count > 0;
    counts->free += node->state == QR_NODE_FREE;
    counts->leaves += leaf && node->state == QR_NODE_RESIDENT;
    counts->host_leaves += leaf && node->state == QR_NODE_STORED;
    counts->unsaved += qr_tree_is_unsaved(tree, id);
}

static const char *check_children(const qr_tree *tree, qr_node_id id, check_counts *counts) {
    if (tree->store.nodes[id].state == QR_NODE_FREE) return NULL;
    uint32_t children = qr_siblings_check(&tree->store, id), stored = qr_stored_check(tree, id);
    if (children == UINT32_MAX) return "its children are out of order";
    if (stored == UINT32_MAX) return "the list of its stored children is broken";
    counts->children += children;
    counts->stored_children += stored;
    return NULL;
}

static uint64_t check_free_list(const qr_tree *tree) {
    uint64_t count = 0;
    for (qr_node_id id = tree->store.free_head; id != QR_NODE_NONE && count <= tree->store.node_count;
         id = tree->store.nodes[id].next)
        count++;
    return count;
}

static const char *check_totals(const qr_tree *tree, const check_counts *counts) {
    if (counts->resident != tree->resident_count || counts->ghosts != tree->ghost_count)
        return "resident or ghost count is wrong";
    if (counts->stored != tree->stored_count || counts->held != tree->held_count) return "stored or held count is wrong";
    if (counts->resident > tree->block_limit || counts->stored + counts->held > tree->stored_limit)
        return "more nodes than the limits allow";
    if (counts->children != counts->resident) return "a resident node is no child of its parent";
    if (counts->stored_children != counts->stored) return "a stored node is not in its parent's list";
    if (counts->free != check_free_list(tree)) return "the free list is broken";
    return NULL;
}

static const char *check_lists(const qr_tree *tree, const check_counts *counts) {
    if (counts->leaves != tree->leaves.count || !qr_leaves_check(&tree->leaves, tree->store.nodes))
        return "the evictable leaves are broken";
    if (counts->host_leaves != tree->host_leaves.count || !qr_leaves_check(&tree->host_leaves, tree->store.nodes))
        return "the leaves of the host tier are broken";
    if (counts->unsaved != tree->unsaved_count || !qr_unsaved_check(tree)) return "the list of the unsaved is broken";
    return qr_ghosts_check(tree) ? NULL : "the lists of ghosts are broken";
}

/* ---- namespaces ---- */

/* The next node after `id` in a walk of what is resident or stored below `root`; `root` at the end. */
static qr_node_id check_walk_next(const qr_tree *tree, qr_node_id root, qr_node_id id) {
    qr_node_id next = qr_tree_first_child(tree, id);
    while (next == QR_NODE_NONE && id != root) {
        next = qr_tree_next_sibling(tree, id);
        id = qr_tree_parent(tree, id);
    }
    return next == QR_NODE_NONE ? root : next;
}

static bool check_root_counts(const qr_tree *tree, qr_node_id root) {
    uint32_t resident = 0, stored = 0;
    for (qr_node_id id = check_walk_next(tree, root, root); id != root; id = check_walk_next(tree, root, id)) {
        resident += qr_tree_is_resident(tree, id);
        stored += qr_tree_is_stored(tree, id);
    }
    return resident == tree->roots[root].resident_count && stored == tree->roots[root].stored_count;
}

quire_status qr_tree_check(const qr_tree *tree, quire_error *error) {
    check_counts counts = {0};
    uint32_t total = tree->store.root_count + tree->store.node_count;
    for (qr_node_id id = 0; id < total; id++) {
        const char *wrong = qr_node_is_root(&tree->store, id) ? check_root(tree, id) : check_node(tree, id);
        if (!wrong) wrong = check_children(tree, id, &counts);
        if (wrong) return check_fail(error, id, wrong);
        check_count(tree, id, &counts);
    }
    const char *wrong = check_totals(tree, &counts);
    if (!wrong) wrong = check_lists(tree, &counts);
    if (wrong) return check_fail(error, QR_NODE_NONE, wrong);
    for (qr_node_id root = 0; root < tree->store.root_count; root++)
        if (!check_root_counts(tree, root)) return check_fail(error, root, "its counts are wrong");
    return QUIRE_OK;
}
