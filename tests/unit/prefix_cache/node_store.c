#include "prefix_cache/node_store.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { ROOTS = 2, NODES = 40, WORDS = 2 };

static qr_node_store store;
static void *memory;

static void setup(void) {
    qr_arena arena = {0};
    store = (qr_node_store){.root_count = ROOTS, .node_count = NODES, .label_words = WORDS, .group_count = 1};
    qr_node_store_init(&store, &arena);
    memory = calloc(1, arena.used_bytes);
    arena = (qr_arena){.base = memory, .size_bytes = arena.used_bytes};
    qr_node_store_init(&store, &arena);
}

static void teardown(void) { free(memory); }

TestSuite(prefix_cache_node_store, .init = setup, .fini = teardown);

static qr_node_id add(qr_node_id parent, quire_token a, quire_token b) {
    qr_node_id id = qr_node_store_alloc(&store);
    const quire_token label[WORDS] = {a, b};
    store.nodes[id] = (qr_node){.parent = parent, .root = store.nodes[parent].root, .state = QR_NODE_RESIDENT};
    memcpy(qr_node_label(&store, id), label, sizeof label);
    qr_node_store_link(&store, id);
    return id;
}

static qr_node_id find(qr_node_id parent, quire_token a, quire_token b) {
    const quire_token label[WORDS] = {a, b};
    return qr_node_store_find(&store, parent, label);
}

Test(prefix_cache_node_store, finds_by_parent_and_label) {
    qr_node_id a = add(0, 1, 2), b = add(1, 1, 2), c = add(a, 1, 2), d = add(b, 1, 2);
    cr_assert(find(0, 1, 2) == a && find(1, 1, 2) == b && find(a, 1, 2) == c && find(b, 1, 2) == d);
    cr_assert(find(0, 1, 3) == QR_NODE_NONE && find(c, 1, 2) == QR_NODE_NONE);
    qr_node_store_unlink(&store, a);
    cr_assert(find(0, 1, 2) == QR_NODE_NONE && find(1, 1, 2) == b);
}

Test(prefix_cache_node_store, walks_the_same_beginning_over_namespaces) {
    const quire_token label[WORDS] = {5, 6};
    add(0, 5, 7);
    qr_node_id a = add(0, 5, 6), b = add(1, 5, 6);
    add(a, 5, 6);
    qr_node_id first = qr_node_store_next(&store, QR_NODE_NONE, label), second = qr_node_store_next(&store, first, label);
    cr_assert((first == a && second == b) || (first == b && second == a));
    cr_assert_eq(qr_node_store_next(&store, second, label), QR_NODE_NONE);
}

Test(prefix_cache_node_store, nodes_come_back) {
    qr_node_id last = QR_NODE_NONE;
    for (int i = 0; i < NODES; i++) {
        last = qr_node_store_alloc(&store);
        cr_assert(last >= ROOTS && last < ROOTS + NODES);
    }
    cr_assert_eq(qr_node_store_alloc(&store), QR_NODE_NONE);
    qr_node_store_free(&store, last);
    cr_assert_eq(qr_node_store_alloc(&store), last);
}
