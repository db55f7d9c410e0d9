#include "prefix_cache/node_store.h"

#include <string.h>

#include "base/assertion.h"
#include "base/hash.h"
#include "base/memory.h"

static uint32_t store_bucket_count(uint64_t nodes) {
    uint32_t count = 1;
    while (count < nodes) count *= 2;
    return count;
}

static const qr_node_copies store_no_copies = {QR_NODE_NONE, QR_COPY_NONE, QR_COPY_NONE};

static void store_init_roots(qr_node_store *store) {
    for (qr_node_id i = 0; i < store->root_count; i++) {
        if (store->copies) store->copies[i] = store_no_copies;
        store->nodes[i] = (qr_node){.parent = QR_NODE_NONE,
                                    .children = QR_NODE_NONE,
                                    .left = QR_NODE_NONE,
                                    .right = QR_NODE_NONE,
                                    .leaf_slot = QR_NODE_NONE,
                                    .state = QR_NODE_ROOT,
                                    .root = i};
    }
}

void qr_node_store_init(qr_node_store *store, qr_arena *arena) {
    uint64_t total = (uint64_t)store->root_count + store->node_count;
    QR_ASSERT(total <= QR_NODES_MAX && store->label_words > 0);
    uint32_t buckets = store_bucket_count(store->node_count);
    store->nodes = qr_arena_take(arena, total, sizeof *store->nodes);
    store->labels = qr_arena_take(arena, store->node_count, (uint64_t)store->label_words * sizeof *store->labels);
    store->blocks = qr_arena_take(arena, store->node_count, store->group_count * sizeof *store->blocks);
    store->buckets = qr_arena_take(arena, buckets, sizeof *store->buckets);
    store->copies = store->has_copies ? qr_arena_take(arena, total, sizeof *store->copies) : NULL;
    store->bucket_mask = buckets - 1;
    store->free_head = QR_NODE_NONE;
    if (!store->buckets) return;
    memset(store->buckets, 0xff, (size_t)buckets * sizeof *store->buckets);
    store_init_roots(store);
    for (uint64_t i = total; i-- > store->root_count;) qr_node_store_free(store, (qr_node_id)i);
}

qr_node_id qr_node_store_alloc(qr_node_store *store) {
    qr_node_id id = store->free_head;
    if (id == QR_NODE_NONE) return id;
    store->free_head = store->nodes[id].next;
    return id;
}

void qr_node_store_free(qr_node_store *store, qr_node_id id) {
    QR_ASSERT(!qr_node_is_root(store, id));
    if (store->nodes[id].state != QR_NODE_FREE) qr_wipe(qr_node_label(store, id), store->label_words * sizeof(quire_token));
    store->nodes[id] = (qr_node){.state = QR_NODE_FREE, .next = store->free_head, .leaf_slot = QR_NODE_NONE};
    store->free_head = id;
    if (store->copies) store->copies[id] = store_no_copies;
}

static uint32_t store_hash(const qr_node_store *store, qr_node_id parent, const quire_token *label) {
    uint64_t seed = qr_node_is_root(store, parent) ? 0 : (uint64_t)store->nodes[parent].hash + 1;
    return (uint32_t)qr_hash_bytes(label, store->label_words * sizeof *label, seed);
}

/* The root is given, for while a namespace is forgotten a ghost may outlive its parent. */
static qr_node_id *store_bucket(const qr_node_store *store, qr_node_id parent, qr_node_id root, uint32_t hash) {
    uint64_t spread = qr_node_is_root(store, parent) ? hash : qr_mix64((uint64_t)root << 32 | hash);
    return &store->buckets[spread & store->bucket_mask];
}

void qr_node_store_link(qr_node_store *store, qr_node_id id) {
    qr_node *node = &store->nodes[id];
    node->hash = store_hash(store, node->parent, qr_node_label(store, id));
    qr_node_id *bucket = store_bucket(store, node->parent, node->root, node->hash);
    node->hash_next = *bucket;
    *bucket = id;
}

void qr_node_store_unlink(qr_node_store *store, qr_node_id id) {
    const qr_node *node = &store->nodes[id];
    qr_node_id *link = store_bucket(store, node->parent, node->root, node->hash);
    while (*link != id) {
        QR_ASSERT(*link != QR_NODE_NONE);
        link = &store->nodes[*link].hash_next;
    }
    *link = node->hash_next;
}

static bool store_label_equal(const qr_node_store *store, qr_node_id id, const quire_token *label) {
    return memcmp(qr_node_label(store, id), label, store->label_words * sizeof *label) == 0;
}

qr_node_id qr_node_store_find(const qr_node_store *store, qr_node_id parent, const quire_token *label) {
    uint32_t hash = store_hash(store, parent, label);
    qr_node_id id = *store_bucket(store, parent, store->nodes[parent].root, hash);
    for (; id != QR_NODE_NONE; id = store->nodes[id].hash_next) {
        const qr_node *node = &store->nodes[id];
        if (node->hash == hash && node->parent == parent && store_label_equal(store, id, label)) break;
    }
    return id;
}

qr_node_id qr_node_store_next(const qr_node_store *store, qr_node_id last, const quire_token *label) {
    qr_node_id id =
        last == QR_NODE_NONE ? *store_bucket(store, 0, 0, store_hash(store, 0, label)) : store->nodes[last].hash_next;
    for (; id != QR_NODE_NONE; id = store->nodes[id].hash_next)
        if (qr_node_is_root(store, store->nodes[id].parent) && store_label_equal(store, id, label)) break;
    return id;
}
