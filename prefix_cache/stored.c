/* Nodes in the lower tiers: which are stored there, what they have, and what goes when a copy is lost. */
#include "base/assertion.h"
#include "prefix_cache/ghosts.h"
#include "prefix_cache/siblings.h"
#include "prefix_cache/tree_internal.h"

enum { STORED_GOES = 1 }; /* in `cause` of a stored node, while a loss is under way: it will be a ghost */

/* ---- the stored children of a node ---- */

void qr_stored_link(qr_tree *tree, qr_node_id id) {
    qr_node *nodes = tree->store.nodes, *node = &nodes[id];
    qr_node_id *first = &tree->store.copies[node->parent].stored_children;
    node->state = QR_NODE_STORED;
    node->cause = 0;
    node->left = QR_NODE_NONE;
    node->right = *first;
    if (*first != QR_NODE_NONE) nodes[*first].left = id;
    *first = id;
    tree->roots[node->root].stored_count++;
    tree->stored_count++;
    qr_tree_update_leaf(tree, node->parent);
    qr_tree_update_leaf(tree, id);
}

void qr_stored_unlink(qr_tree *tree, qr_node_id id) {
    qr_node *nodes = tree->store.nodes, *node = &nodes[id];
    QR_ASSERT(node->state == QR_NODE_STORED);
    qr_tree_leave_leaves(tree, id);
    if (node->left != QR_NODE_NONE) nodes[node->left].right = node->right;
    else tree->store.copies[node->parent].stored_children = node->right;
    if (node->right != QR_NODE_NONE) nodes[node->right].left = node->left;
    node->left = node->right = QR_NODE_NONE;
    tree->roots[node->root].stored_count--;
    tree->stored_count--;
    qr_tree_update_leaf(tree, node->parent);
}

qr_node_id qr_tree_first_child(const qr_tree *tree, qr_node_id id) {
    if (qr_tree_has_stored_children(tree, id)) return tree->store.copies[id].stored_children;
    return qr_siblings_first(&tree->store, id);
}

qr_node_id qr_tree_next_sibling(const qr_tree *tree, qr_node_id id) {
    const qr_node *node = &tree->store.nodes[id];
    if (node->state != QR_NODE_STORED) return qr_siblings_next(&tree->store, id);
    return node->right != QR_NODE_NONE ? node->right : qr_siblings_first(&tree->store, node->parent);
}

uint32_t qr_stored_check(const qr_tree *tree, qr_node_id parent) {
    const qr_node *nodes = tree->store.nodes;
    qr_node_id previous = QR_NODE_NONE;
    uint32_t count = 0;
    if (!tree->store.copies) return 0;
    for (qr_node_id id = tree->store.copies[parent].stored_children; id != QR_NODE_NONE; previous = id, id = nodes[id].right)
        if (nodes[id].state != QR_NODE_STORED || nodes[id].parent != parent || nodes[id].left != previous ||
            ++count > tree->stored_count)
            return UINT32_MAX;
    return count;
}

/* ---- looking ---- */

uint32_t qr_tree_find_stored(const qr_tree *tree, qr_node_id from, const quire_token *words, uint64_t blocks,
                             qr_node_id *node) {
    uint32_t count = 0;
    *node = from;
    while (count < blocks && qr_tree_has_stored_children(tree, *node)) {
        qr_node_id child = qr_tree_find(tree, *node, words + (uint64_t)count * tree->store.label_words);
        if (child == QR_NODE_NONE || !qr_tree_is_stored(tree, child)) break;
        *node = child;
        count++;
    }
    return count;
}

qr_node_id qr_tree_host_victim(qr_tree *tree) { return qr_leaves_worst(&tree->host_leaves, tree->store.nodes); }

/* ---- copies come and go ---- */

static qr_node_copies *stored_copies(qr_tree *tree, qr_node_id id) {
    QR_ASSERT(tree->store.copies && (qr_tree_is_resident(tree, id) || qr_tree_is_stored(tree, id)));
    return &tree->store.copies[id];
}

static void stored_changed(qr_tree *tree, qr_node_id id) {
    const qr_node_copies *copies = &tree->store.copies[id];
    if (qr_tree_is_resident(tree, id)) return;
    QR_ASSERT(copies->host != QR_COPY_NONE || copies->record != QR_COPY_NONE);
    qr_tree_update_leaf(tree, id);
}

void qr_tree_set_host(qr_tree *tree, qr_node_id id, uint32_t slot) {
    stored_copies(tree, id)->host = slot;
    stored_changed(tree, id);
}

void qr_tree_set_record(qr_tree *tree, qr_node_id id, uint32_t record) {
    stored_copies(tree, id)->record = record;
    if (record != QR_COPY_NONE) qr_tree_unlist_unsaved(tree, id);
    stored_changed(tree, id);
}

/* Held ghosts count, so that with the resident nodes at their limit and the stored ones too there are ghosts to drop. */
static bool stored_is_full(const qr_tree *tree) { return tree->stored_count + tree->held_count >= tree->stored_limit; }

bool qr_tree_demote(qr_tree *tree, qr_node_id id) {
    QR_ASSERT(qr_tree_is_resident(tree, id) && tree->store.nodes[id].leaf_slot != QR_NODE_NONE);
    if (stored_is_full(tree)) return false;
    qr_tree_detach(tree, id);
    qr_stored_link(tree, id);
    return true;
}

qr_node_id qr_tree_insert_stored(qr_tree *tree, qr_node_id parent, const quire_token *label, uint32_t record) {
    qr_node_id id = qr_tree_find(tree, parent, label);
    QR_ASSERT(!qr_tree_is_ghost(tree, parent) && record != QR_COPY_NONE);
    bool ghost = id != QR_NODE_NONE && qr_tree_is_ghost(tree, id);
    bool held = ghost && tree->store.nodes[id].lock_count > 0; /* has its place already */
    if ((id != QR_NODE_NONE && !ghost) || (!held && stored_is_full(tree))) return QR_NODE_NONE;
    if (ghost) qr_ghosts_unlink(tree, id);
    else id = qr_tree_new_node(tree, parent, label);
    tree->store.copies[id].record = record;
    qr_stored_link(tree, id);
    return id;
}

void qr_tree_insert_ghost(qr_tree *tree, uint32_t root, const quire_token *labels, uint32_t depth, qr_ghost_cause cause) {
    qr_node_id at = root;
    QR_ASSERT(root < tree->store.root_count);
    for (uint32_t i = 0; i < depth; i++) {
        const quire_token *label = labels + (uint64_t)i * tree->store.label_words;
        qr_node_id child = qr_tree_find(tree, at, label);
        if (child == QR_NODE_NONE) {
            if (tree->store.free_head == QR_NODE_NONE) return;
            child = qr_tree_new_node(tree, at, label);
            qr_ghosts_push(tree, child, cause);
        }
        at = child;
    }
}

/* ---- copies are lost ---- */

typedef struct stored_loss {
    qr_tree *tree;
    qr_ghost_cause cause;
    bool records_only;
    qr_tree_release_copies *release;
    void *owner;
} stored_loss;

static bool loss_goes(const qr_node *node) { return node->state == QR_NODE_STORED && node->cause == STORED_GOES; }

/* On the way down: a stored node will go when nothing is left of it, or of what it hangs on. */
static void loss_enter(const stored_loss *loss, qr_node_id id) {
    qr_node *node = &loss->tree->store.nodes[id];
    if (node->state != QR_NODE_STORED) return;
    bool keeps_slot = loss->records_only && qr_tree_host(loss->tree, id) != QR_COPY_NONE;
    if (!keeps_slot || loss_goes(&loss->tree->store.nodes[node->parent])) node->cause = STORED_GOES;
}

/* On the way up, when everything below is done. */
static void loss_leave(const stored_loss *loss, qr_node_id id) {
    qr_node_copies *copies = &loss->tree->store.copies[id];
    bool goes = loss_goes(&loss->tree->store.nodes[id]), keeps_slot = loss->records_only && !goes;
    uint32_t host = keeps_slot ? QR_COPY_NONE : copies->host, record = copies->record;
    if (goes || host != QR_COPY_NONE || record != QR_COPY_NONE) loss->release(loss->owner, id, host, record);
    copies->record = QR_COPY_NONE;
    if (!keeps_slot) copies->host = QR_COPY_NONE;
    if (goes) {
        qr_stored_unlink(loss->tree, id);
        qr_ghosts_push(loss->tree, id, loss->cause);
    } else {
        qr_tree_update_leaf(loss->tree, id);
    }
}

/* Visits everything below `top` and then `top`, children before parents, with no stack: chains are thousands long. */
static void loss_walk(const stored_loss *loss, qr_node_id top) {
    qr_node_id id = top;
    for (;;) {
        loss_enter(loss, id);
        qr_node_id next = qr_tree_first_child(loss->tree, id);
        while (next == QR_NODE_NONE && id != top) {
            qr_node_id parent = qr_tree_parent(loss->tree, id);
            next = qr_tree_next_sibling(loss->tree, id);
            loss_leave(loss, id);
            if (next == QR_NODE_NONE) id = parent;
        }
        if (next == QR_NODE_NONE) break;
        id = next;
    }
    loss_leave(loss, top);
}

void qr_tree_lose(qr_tree *tree, qr_node_id id, qr_ghost_cause cause, qr_tree_release_copies *release, void *owner) {
    stored_loss loss = {tree, cause, false, release, owner};
    (void)stored_copies(tree, id);
    loss_walk(&loss, id);
}

void qr_tree_lose_record(qr_tree *tree, qr_node_id id, qr_ghost_cause cause, qr_tree_release_copies *release, void *owner) {
    stored_loss loss = {tree, cause, true, release, owner};
    (void)stored_copies(tree, id);
    loss_walk(&loss, id);
}
