#include "prefix_cache/siblings.h"

#include "base/assertion.h"
#include "base/hash.h"

static uint64_t sibling_priority(qr_node_id id) { return qr_mix64(id); }

static uint32_t sibling_run(const quire_token *a, const quire_token *b, uint32_t words) {
    uint32_t run = 0;
    while (run < words && a[run] == b[run]) run++;
    return run;
}

/* Word by word; any total order that compares the first differing word keeps longest runs adjacent. */
static bool sibling_before(const qr_node_store *store, qr_node_id a, qr_node_id b) {
    const quire_token *x = qr_node_label(store, a), *y = qr_node_label(store, b);
    uint32_t run = sibling_run(x, y, store->label_words);
    return run < store->label_words && x[run] < y[run];
}

/* Divides `tree` into what lies before and after `id` and makes both its subtrees. */
static void siblings_split(qr_node_store *store, qr_node_id tree, qr_node_id id) {
    qr_node_id *left = &store->nodes[id].left, *right = &store->nodes[id].right;
    while (tree != QR_NODE_NONE) {
        if (sibling_before(store, id, tree)) {
            *right = tree;
            right = &store->nodes[tree].left;
            tree = *right;
        } else {
            *left = tree;
            left = &store->nodes[tree].right;
            tree = *left;
        }
    }
    *left = *right = QR_NODE_NONE;
}

void qr_siblings_insert(qr_node_store *store, qr_node_id id) {
    qr_node_id *link = &store->nodes[store->nodes[id].parent].children;
    while (*link != QR_NODE_NONE && sibling_priority(*link) > sibling_priority(id))
        link = sibling_before(store, id, *link) ? &store->nodes[*link].left : &store->nodes[*link].right;
    qr_node_id below = *link;
    *link = id;
    siblings_split(store, below, id);
}

/* Joins two sets, all of `a` before all of `b`, at *link. */
static void siblings_merge(qr_node_store *store, qr_node_id a, qr_node_id b, qr_node_id *link) {
    while (a != QR_NODE_NONE && b != QR_NODE_NONE) {
        if (sibling_priority(a) > sibling_priority(b)) {
            *link = a;
            link = &store->nodes[a].right;
            a = *link;
        } else {
            *link = b;
            link = &store->nodes[b].left;
            b = *link;
        }
    }
    *link = a != QR_NODE_NONE ? a : b;
}

void qr_siblings_remove(qr_node_store *store, qr_node_id id) {
    qr_node *node = &store->nodes[id];
    qr_node_id *link = &store->nodes[node->parent].children;
    while (*link != id) {
        QR_ASSERT(*link != QR_NODE_NONE);
        link = sibling_before(store, id, *link) ? &store->nodes[*link].left : &store->nodes[*link].right;
    }
    siblings_merge(store, node->left, node->right, link);
    node->left = node->right = QR_NODE_NONE;
}

qr_node_id qr_siblings_first(const qr_node_store *store, qr_node_id parent) {
    qr_node_id id = store->nodes[parent].children;
    while (id != QR_NODE_NONE && store->nodes[id].left != QR_NODE_NONE) id = store->nodes[id].left;
    return id;
}

qr_node_id qr_siblings_next(const qr_node_store *store, qr_node_id id) {
    qr_node_id at = store->nodes[store->nodes[id].parent].children, next = QR_NODE_NONE;
    while (at != QR_NODE_NONE) {
        bool behind = sibling_before(store, id, at);
        if (behind) next = at;
        at = behind ? store->nodes[at].left : store->nodes[at].right;
    }
    return next;
}

/* The longest run lies with the wanted label's neighbours, and a search passes both. */
qr_node_id qr_siblings_nearest(const qr_node_store *store, qr_node_id parent, const quire_token *words, uint32_t word_count,
                               uint32_t *run) {
    qr_node_id id = store->nodes[parent].children, best = QR_NODE_NONE;
    QR_ASSERT(word_count <= store->label_words);
    *run = 0;
    while (id != QR_NODE_NONE && *run < word_count) {
        const quire_token *label = qr_node_label(store, id);
        uint32_t same = sibling_run(words, label, word_count);
        if (same > *run) {
            best = id;
            *run = same;
        }
        if (same == word_count) break;
        id = words[same] < label[same] ? store->nodes[id].left : store->nodes[id].right;
    }
    return best;
}

static bool siblings_check_subtree(const qr_node_store *store, qr_node_id parent, qr_node_id id, uint32_t *count) {
    if (id == QR_NODE_NONE) return true;
    const qr_node *node = &store->nodes[id];
    if (node->parent != parent || node->state != QR_NODE_RESIDENT) return false;
    if (node->left != QR_NODE_NONE &&
        (sibling_priority(node->left) > sibling_priority(id) || !sibling_before(store, node->left, id)))
        return false;
    if (node->right != QR_NODE_NONE &&
        (sibling_priority(node->right) > sibling_priority(id) || !sibling_before(store, id, node->right)))
        return false;
    ++*count;
    return siblings_check_subtree(store, parent, node->left, count) &&
           siblings_check_subtree(store, parent, node->right, count);
}

uint32_t qr_siblings_check(const qr_node_store *store, qr_node_id parent) {
    uint32_t count = 0;
    return siblings_check_subtree(store, parent, store->nodes[parent].children, &count) ? count : UINT32_MAX;
}
