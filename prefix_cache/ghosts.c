#include "prefix_cache/ghosts.h"

#include "base/assertion.h"

static bool ghosts_held(const qr_node *node) { return node->state == QR_NODE_GHOST && node->lock_count > 0; }

/* The ghost that must be dropped after this one, or QR_NODE_NONE. */
static qr_node_id ghosts_successor(const qr_tree *tree, qr_node_id id) {
    qr_node_id parent = tree->store.nodes[id].parent;
    const qr_node *above = &tree->store.nodes[parent];
    return above->state == QR_NODE_GHOST && !ghosts_held(above) ? parent : QR_NODE_NONE;
}

static void ghosts_link_by_age(qr_tree *tree, qr_node_id id) {
    qr_node *nodes = tree->store.nodes;
    qr_node_id next = ghosts_successor(tree, id);
    qr_node_id previous = next == QR_NODE_NONE ? tree->newest_ghost : nodes[next].previous;
    nodes[id].previous = previous;
    nodes[id].next = next;
    if (previous != QR_NODE_NONE) nodes[previous].next = id;
    else tree->oldest_ghost = id;
    if (next != QR_NODE_NONE) nodes[next].previous = id;
    else tree->newest_ghost = id;
}

static void ghosts_unlink_by_age(qr_tree *tree, qr_node_id id) {
    qr_node *nodes = tree->store.nodes, *node = &nodes[id];
    if (node->previous != QR_NODE_NONE) nodes[node->previous].next = node->next;
    else tree->oldest_ghost = node->next;
    if (node->next != QR_NODE_NONE) nodes[node->next].previous = node->previous;
    else tree->newest_ghost = node->previous;
}

static void ghosts_link_by_root(qr_tree *tree, qr_node_id id) {
    qr_node *nodes = tree->store.nodes;
    qr_tree_root *root = &tree->roots[nodes[id].root];
    nodes[id].left = QR_NODE_NONE;
    nodes[id].right = root->ghosts;
    if (root->ghosts != QR_NODE_NONE) nodes[root->ghosts].left = id;
    root->ghosts = id;
}

static void ghosts_unlink_by_root(qr_tree *tree, qr_node_id id) {
    qr_node *nodes = tree->store.nodes, *node = &nodes[id];
    if (node->left != QR_NODE_NONE) nodes[node->left].right = node->right;
    else tree->roots[node->root].ghosts = node->right;
    if (node->right != QR_NODE_NONE) nodes[node->right].left = node->left;
    node->left = node->right = QR_NODE_NONE;
}

/* Neither copies nor stored children. */
static bool ghosts_has_nothing(const qr_tree *tree, qr_node_id id) {
    const qr_node_copies *copies = tree->store.copies;
    return !copies ||
           (copies[id].stored_children == QR_NODE_NONE && copies[id].host == QR_COPY_NONE && copies[id].record == QR_COPY_NONE);
}

void qr_ghosts_push(qr_tree *tree, qr_node_id id, qr_ghost_cause cause) {
    qr_node *node = &tree->store.nodes[id];
    QR_ASSERT(node->children == QR_NODE_NONE && node->pin_count == 0 && ghosts_has_nothing(tree, id));
    node->state = QR_NODE_GHOST;
    node->cause = (uint8_t)cause;
    if (ghosts_held(node)) tree->held_count++;
    else ghosts_link_by_age(tree, id);
    ghosts_link_by_root(tree, id);
    tree->roots[node->root].ghost_count++;
    tree->ghost_count++;
}

void qr_ghosts_let_go(qr_tree *tree, qr_node_id id) {
    QR_ASSERT(qr_tree_is_ghost(tree, id) && tree->store.nodes[id].lock_count == 0 && tree->held_count > 0);
    tree->held_count--;
    ghosts_link_by_age(tree, id);
}

void qr_ghosts_unlink(qr_tree *tree, qr_node_id id) {
    const qr_node *node = &tree->store.nodes[id];
    QR_ASSERT(node->state == QR_NODE_GHOST);
    if (ghosts_held(node)) tree->held_count--;
    else ghosts_unlink_by_age(tree, id);
    ghosts_unlink_by_root(tree, id);
    tree->roots[node->root].ghost_count--;
    tree->ghost_count--;
}

void qr_ghosts_drop(qr_tree *tree, qr_node_id id) {
    qr_ghosts_unlink(tree, id);
    qr_node_store_unlink(&tree->store, id);
    qr_node_store_free(&tree->store, id);
}

void qr_ghosts_drop_root(qr_tree *tree, uint32_t root) {
    while (tree->roots[root].ghosts != QR_NODE_NONE) qr_ghosts_drop(tree, tree->roots[root].ghosts);
}

static bool ghosts_check_links(const qr_tree *tree) {
    const qr_node *nodes = tree->store.nodes;
    qr_node_id previous = QR_NODE_NONE;
    uint32_t count = 0;
    for (qr_node_id id = tree->oldest_ghost; id != QR_NODE_NONE; previous = id, id = nodes[id].next)
        if (nodes[id].state != QR_NODE_GHOST || ghosts_held(&nodes[id]) || nodes[id].previous != previous ||
            ++count > tree->ghost_count)
            return false;
    return previous == tree->newest_ghost && count + tree->held_count == tree->ghost_count;
}

enum { GHOSTS_WINDOW = 1 << 16 }; /* nodes: 8 KiB of bits */

/* No ghost among the ids [first, first + GHOSTS_WINDOW) comes before one below it. */
static bool ghosts_check_window(const qr_tree *tree, qr_node_id first) {
    const qr_node *nodes = tree->store.nodes;
    uint64_t passed[GHOSTS_WINDOW / 64] = {0};
    for (qr_node_id id = tree->oldest_ghost; id != QR_NODE_NONE; id = nodes[id].next) {
        uint32_t parent = nodes[id].parent - first, place = id - first; /* wraps for what is not in the window */
        if (parent < GHOSTS_WINDOW && (passed[parent / 64] >> parent % 64 & 1)) return false;
        if (place < GHOSTS_WINDOW) passed[place / 64] |= UINT64_C(1) << place % 64;
    }
    return true;
}

static bool ghosts_check_order(const qr_tree *tree) {
    uint32_t total = tree->store.root_count + tree->store.node_count;
    bool ordered = true;
    for (uint64_t first = 0; first < total && ordered; first += GHOSTS_WINDOW)
        ordered = ghosts_check_window(tree, (qr_node_id)first);
    return ordered;
}

static bool ghosts_check_root(const qr_tree *tree, uint32_t root) {
    const qr_node *nodes = tree->store.nodes;
    qr_node_id previous = QR_NODE_NONE;
    uint32_t count = 0;
    for (qr_node_id id = tree->roots[root].ghosts; id != QR_NODE_NONE; previous = id, id = nodes[id].right)
        if (nodes[id].state != QR_NODE_GHOST || nodes[id].root != root || nodes[id].left != previous ||
            ++count > tree->roots[root].ghost_count)
            return false;
    return count == tree->roots[root].ghost_count;
}

bool qr_ghosts_check(const qr_tree *tree) {
    uint64_t sum = 0;
    for (uint32_t root = 0; root < tree->store.root_count; root++) {
        if (!ghosts_check_root(tree, root)) return false;
        sum += tree->roots[root].ghost_count;
    }
    return sum == tree->ghost_count && ghosts_check_links(tree) && ghosts_check_order(tree);
}
