#include "prefix_cache/ghosts.h"

#include "base/assertion.h"

static void ghosts_link_by_age(qr_tree *tree, qr_node_id id) {
    qr_node *nodes = tree->store.nodes;
    nodes[id].previous = tree->newest_ghost;
    nodes[id].next = QR_NODE_NONE;
    if (tree->newest_ghost != QR_NODE_NONE) nodes[tree->newest_ghost].next = id;
    else tree->oldest_ghost = id;
    tree->newest_ghost = id;
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

void qr_ghosts_push(qr_tree *tree, qr_node_id id) {
    qr_node *node = &tree->store.nodes[id];
    QR_ASSERT(node->children == QR_NODE_NONE && node->lock_count == 0 && node->pin_count == 0);
    node->state = QR_NODE_GHOST;
    ghosts_link_by_age(tree, id);
    ghosts_link_by_root(tree, id);
    tree->roots[node->root].ghost_count++;
    tree->ghost_count++;
}

void qr_ghosts_unlink(qr_tree *tree, qr_node_id id) {
    QR_ASSERT(tree->store.nodes[id].state == QR_NODE_GHOST);
    ghosts_unlink_by_age(tree, id);
    ghosts_unlink_by_root(tree, id);
    tree->roots[tree->store.nodes[id].root].ghost_count--;
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

static bool ghosts_check_ages(const qr_tree *tree) {
    const qr_node *nodes = tree->store.nodes;
    qr_node_id previous = QR_NODE_NONE;
    uint32_t count = 0;
    for (qr_node_id id = tree->oldest_ghost; id != QR_NODE_NONE; previous = id, id = nodes[id].next)
        if (nodes[id].state != QR_NODE_GHOST || nodes[id].previous != previous || ++count > tree->ghost_count) return false;
    return previous == tree->newest_ghost && count == tree->ghost_count;
}

static bool ghosts_check_root(const qr_tree *tree, uint32_t root) {
    const qr_node *nodes = tree->store.nodes;
    qr_node_id previous = QR_NODE_NONE;
    uint32_t count = 0;
    for (qr_node_id id = tree->roots[root].ghosts; id != QR_NODE_NONE; previous = id, id = nodes[id].right)
        if (nodes[id].root != root || nodes[id].left != previous || ++count > tree->roots[root].ghost_count) return false;
    return count == tree->roots[root].ghost_count;
}

bool qr_ghosts_check(const qr_tree *tree) {
    uint64_t sum = 0;
    for (uint32_t root = 0; root < tree->store.root_count; root++) {
        if (!ghosts_check_root(tree, root)) return false;
        sum += tree->roots[root].ghost_count;
    }
    return sum == tree->ghost_count && ghosts_check_ages(tree);
}
