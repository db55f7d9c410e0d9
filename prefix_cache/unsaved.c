/* The list of resident nodes that wait for a record, and its order for a flush. */
#include "base/assertion.h"
#include "prefix_cache/tree_internal.h"

enum { UNSAVED_PLACED = 2, UNSAVED_RUNS = 32 }; /* a mark in `cause` while sorting; runs of 1, 2, 4 .. 2^31 nodes */

/* Links a node before `next`, or as the last. */
static void unsaved_link(qr_tree *tree, qr_node_id id, qr_node_id next) {
    qr_node *nodes = tree->store.nodes;
    qr_node_id previous = next == QR_NODE_NONE ? tree->last_unsaved : nodes[next].previous;
    nodes[id].previous = previous;
    nodes[id].next = next;
    if (previous != QR_NODE_NONE) nodes[previous].next = id;
    else tree->first_unsaved = id;
    if (next != QR_NODE_NONE) nodes[next].previous = id;
    else tree->last_unsaved = id;
}

static void unsaved_unlink(qr_tree *tree, qr_node_id id) {
    qr_node *nodes = tree->store.nodes, *node = &nodes[id];
    if (node->previous != QR_NODE_NONE) nodes[node->previous].next = node->next;
    else tree->first_unsaved = node->next;
    if (node->next != QR_NODE_NONE) nodes[node->next].previous = node->previous;
    else tree->last_unsaved = node->previous;
}

void qr_tree_list_unsaved(qr_tree *tree, qr_node_id id) {
    QR_ASSERT(tree->store.copies && qr_tree_is_resident(tree, id) && qr_tree_record(tree, id) == QR_COPY_NONE);
    if (qr_tree_is_unsaved(tree, id)) return;
    tree->store.nodes[id].cause |= QR_NODE_UNSAVED;
    unsaved_link(tree, id, QR_NODE_NONE);
    tree->unsaved_count++;
}

void qr_tree_unlist_unsaved(qr_tree *tree, qr_node_id id) {
    if (!qr_tree_is_unsaved(tree, id)) return;
    tree->store.nodes[id].cause = 0;
    unsaved_unlink(tree, id);
    tree->unsaved_count--;
}

qr_node_id qr_tree_topmost_unsaved(const qr_tree *tree, qr_node_id id) {
    qr_node_id parent = qr_tree_parent(tree, id);
    while (!qr_node_is_root(&tree->store, parent) && qr_tree_record(tree, parent) == QR_COPY_NONE) {
        id = parent;
        parent = qr_tree_parent(tree, id);
    }
    return id;
}

/* ---- the order of a flush ---- */

/* Merges two runs linked over `next`, the hottest first; of equals those of `a`. */
static qr_node_id unsaved_merge(qr_tree *tree, qr_node_id a, qr_node_id b) {
    qr_node *nodes = tree->store.nodes;
    qr_node_id first, *link = &first;
    while (a != QR_NODE_NONE && b != QR_NODE_NONE) {
        qr_node_id *hotter = qr_policy_before(&tree->policy, &nodes[a], &nodes[b]) ? &b : &a;
        *link = *hotter;
        link = &nodes[*hotter].next;
        *hotter = *link;
    }
    *link = a != QR_NODE_NONE ? a : b;
    return first;
}

/* Merge sort from the bottom up; runs[i] has 2^i nodes that came before those of runs[i - 1]. Sets `next` only. */
static void unsaved_sort_by_worth(qr_tree *tree) {
    qr_node_id runs[UNSAVED_RUNS], next;
    for (uint32_t i = 0; i < UNSAVED_RUNS; i++) runs[i] = QR_NODE_NONE;
    for (qr_node_id id = tree->first_unsaved; id != QR_NODE_NONE; id = next) {
        qr_node_id run = id;
        uint32_t i = 0;
        next = tree->store.nodes[id].next;
        tree->store.nodes[id].next = QR_NODE_NONE;
        for (; runs[i] != QR_NODE_NONE; i++) {
            run = unsaved_merge(tree, runs[i], run);
            runs[i] = QR_NODE_NONE;
        }
        runs[i] = run;
    }
    tree->first_unsaved = QR_NODE_NONE;
    for (uint32_t i = 0; i < UNSAVED_RUNS; i++) tree->first_unsaved = unsaved_merge(tree, runs[i], tree->first_unsaved);
}

static void unsaved_set_previous(qr_tree *tree) {
    qr_node *nodes = tree->store.nodes;
    qr_node_id previous = QR_NODE_NONE;
    for (qr_node_id id = tree->first_unsaved; id != QR_NODE_NONE; previous = id, id = nodes[id].next)
        nodes[id].previous = previous;
    tree->last_unsaved = previous;
}

/* Moves what lies above a node and comes after it to right before it. Every node moves once at most. */
static void unsaved_place(qr_tree *tree, qr_node_id id) {
    qr_node *nodes = tree->store.nodes;
    nodes[id].cause |= UNSAVED_PLACED;
    for (;;) {
        qr_node_id parent = nodes[id].parent;
        if (!qr_tree_is_unsaved(tree, parent) || (nodes[parent].cause & UNSAVED_PLACED)) return;
        unsaved_unlink(tree, parent);
        unsaved_link(tree, parent, id);
        nodes[parent].cause |= UNSAVED_PLACED;
        id = parent;
    }
}

/* A parent is worth as much as its children nearly always, but not while somebody is using it. */
void qr_tree_sort_unsaved(qr_tree *tree) {
    qr_node *nodes = tree->store.nodes;
    unsaved_sort_by_worth(tree);
    unsaved_set_previous(tree);
    for (qr_node_id id = tree->first_unsaved; id != QR_NODE_NONE; id = nodes[id].next) unsaved_place(tree, id);
    for (qr_node_id id = tree->first_unsaved; id != QR_NODE_NONE; id = nodes[id].next) nodes[id].cause = QR_NODE_UNSAVED;
}

bool qr_unsaved_check(const qr_tree *tree) {
    qr_node_id previous = QR_NODE_NONE;
    uint32_t count = 0;
    for (qr_node_id id = tree->first_unsaved; id != QR_NODE_NONE; previous = id, id = tree->store.nodes[id].next)
        if (!qr_tree_is_unsaved(tree, id) || qr_tree_record(tree, id) != QR_COPY_NONE ||
            tree->store.nodes[id].previous != previous || ++count > tree->unsaved_count)
            return false;
    return previous == tree->last_unsaved && count == tree->unsaved_count;
}
