/* The list of what waits for a record. The functions under test are in prefix_cache/unsaved.c, declared in tree.h. */
#include <criterion/criterion.h>

#include "tests/unit/prefix_cache/tree_rig.h"

static qr_node_id run(tree_rig *rig, quire_token a, quire_token b) {
    const quire_token words[2 * RIG_LABEL] = {a, a, a, a, b, b, b, b};
    return tree_rig_run(rig, 0, words, b ? 2 * RIG_LABEL : RIG_LABEL);
}

static void expect_order(const tree_rig *rig, const qr_node_id *nodes, uint32_t count) {
    qr_node_id id = qr_tree_first_unsaved(&rig->tree);
    tree_rig_check(rig);
    for (uint32_t i = 0; i < count; i++, id = qr_tree_next_unsaved(&rig->tree, id)) cr_assert_eq(id, nodes[i], "place %u", i);
    cr_assert(id == QR_NODE_NONE && rig->tree.unsaved_count == count);
}

static void ignore_copies(void *owner, qr_node_id id, uint32_t host, uint32_t record) {}

Test(prefix_cache_unsaved, insert_lists_in_order_and_a_record_takes_out) {
    tree_rig *rig = tree_rig_create_tiers(QUIRE_KV_LRU, 8, 8, 8, 8);
    qr_node_id b = run(rig, 1, 2), c = run(rig, 3, 0), a = qr_tree_parent(&rig->tree, b);
    expect_order(rig, (qr_node_id[]){a, b, c}, 3);
    qr_tree_set_record(&rig->tree, b, 7);
    qr_tree_set_host(&rig->tree, c, 1);
    expect_order(rig, (qr_node_id[]){a, c}, 2);
    qr_tree_set_record(&rig->tree, b, QR_COPY_NONE);
    expect_order(rig, (qr_node_id[]){a, c}, 2);
    qr_tree_list_unsaved(&rig->tree, b);
    qr_tree_list_unsaved(&rig->tree, a);
    expect_order(rig, (qr_node_id[]){a, c, b}, 3);
    qr_tree_unlist_unsaved(&rig->tree, a);
    qr_tree_unlist_unsaved(&rig->tree, a);
    expect_order(rig, (qr_node_id[]){c, b}, 2);
    tree_rig_destroy(rig);
}

Test(prefix_cache_unsaved, whoever_leaves_the_device_leaves_the_list) {
    tree_rig *rig = tree_rig_create_tiers(QUIRE_KV_LRU, 8, 8, 8, 8);
    qr_node_id a = run(rig, 1, 0), b = run(rig, 2, 0), c = run(rig, 3, 0), d = run(rig, 4, 0);
    qr_tree_evict(&rig->tree, a);
    tree_rig_demote(rig, c, 0, QR_COPY_NONE);
    expect_order(rig, (qr_node_id[]){b, d}, 2);
    cr_assert_eq(run(rig, 3, 0), c);
    expect_order(rig, (qr_node_id[]){b, d, c}, 3);
    tree_rig_demote(rig, b, QR_COPY_NONE, 5);
    cr_assert_eq(run(rig, 2, 0), b);
    expect_order(rig, (qr_node_id[]){d, c}, 2);
    cr_assert_eq(qr_tree_record(&rig->tree, b), 5, "it kept its record and needs none");
    tree_rig_destroy(rig);
}

Test(prefix_cache_unsaved, without_lower_tiers_nothing_is_listed) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    run(rig, 1, 2);
    expect_order(rig, NULL, 0);
    cr_assert(rig->tree.store.copies == NULL);
    tree_rig_destroy(rig);
}

Test(prefix_cache_unsaved, the_topmost_without_a_record_comes_first) {
    tree_rig *rig = tree_rig_create_tiers(QUIRE_KV_LRU, 8, 8, 8, 8);
    const quire_token words[4 * RIG_LABEL] = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4};
    qr_node_id d = tree_rig_run(rig, 0, words, 4 * RIG_LABEL), c = qr_tree_parent(&rig->tree, d);
    qr_node_id b = qr_tree_parent(&rig->tree, c), a = qr_tree_parent(&rig->tree, b);
    cr_assert_eq(qr_tree_topmost_unsaved(&rig->tree, d), a);
    qr_tree_set_record(&rig->tree, a, 1);
    cr_assert_eq(qr_tree_topmost_unsaved(&rig->tree, d), b);
    cr_assert_eq(qr_tree_topmost_unsaved(&rig->tree, b), b);
    qr_tree_set_record(&rig->tree, b, 2);
    qr_tree_set_record(&rig->tree, c, 3);
    cr_assert_eq(qr_tree_topmost_unsaved(&rig->tree, d), d);
    qr_tree_lose(&rig->tree, b, QR_GHOST_DAMAGED, ignore_copies, NULL);
    cr_assert_eq(qr_tree_topmost_unsaved(&rig->tree, d), b);
    tree_rig_destroy(rig);
}

Test(prefix_cache_unsaved, sorts_the_hottest_first) {
    for (int policy = QUIRE_KV_DLFU; policy <= QUIRE_KV_LRU; policy++) {
        tree_rig *rig = tree_rig_create_tiers((quire_kv_policy)policy, 128, 8, 8, 8);
        qr_node_id nodes[100], id;
        for (uint32_t i = 0; i < 100; i++) nodes[i] = run(rig, (quire_token)i + 1, 0);
        for (uint32_t i = 0; i < 100; i++)
            for (uint32_t k = 0; k < i * 37 % 100; k++) run(rig, (quire_token)i + 1, 0);
        for (uint32_t i = 0; i < 100; i++) {
            qr_tree_set_time(&rig->tree, 1000000 + i);
            run(rig, (quire_token)(i * 37 % 100) + 1, 0);
        }
        qr_tree_sort_unsaved(&rig->tree);
        tree_rig_check(rig);
        id = qr_tree_first_unsaved(&rig->tree);
        if (policy == QUIRE_KV_LRU) cr_assert_eq(id, nodes[99 * 37 % 100]);
        for (qr_node_id next = qr_tree_next_unsaved(&rig->tree, id); next != QR_NODE_NONE;
             id = next, next = qr_tree_next_unsaved(&rig->tree, id))
            cr_assert(!qr_policy_before(&rig->tree.policy, &rig->tree.store.nodes[id], &rig->tree.store.nodes[next]));
        cr_assert_eq(rig->tree.unsaved_count, 100);
        tree_rig_destroy(rig);
    }
}

/* Under LRU the node locked last is the hottest, and paths are locked from the root down. */
Test(prefix_cache_unsaved, a_sort_keeps_parents_before_hotter_children) {
    tree_rig *rig = tree_rig_create_tiers(QUIRE_KV_LRU, 16, 8, 8, 8);
    const quire_token words[4 * RIG_LABEL] = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4};
    qr_node_id other = run(rig, 9, 0), d = tree_rig_lock_path(rig, 0, words, 4 * RIG_LABEL);
    qr_node_id c = qr_tree_parent(&rig->tree, d), b = qr_tree_parent(&rig->tree, c), a = qr_tree_parent(&rig->tree, b);
    qr_tree_sort_unsaved(&rig->tree);
    expect_order(rig, (qr_node_id[]){a, b, c, d, other}, 5);
    qr_tree_set_record(&rig->tree, b, 4); /* nothing is known of what lies behind a gap: by worth */
    qr_tree_sort_unsaved(&rig->tree);
    expect_order(rig, (qr_node_id[]){c, d, a, other}, 4);
    qr_tree_sort_unsaved(&rig->tree);
    expect_order(rig, (qr_node_id[]){c, d, a, other}, 4);
    tree_rig_unlock_path(rig, d);
    tree_rig_destroy(rig);
}

Test(prefix_cache_unsaved, check_finds_damage) {
    tree_rig *rig = tree_rig_create_tiers(QUIRE_KV_LRU, 8, 8, 8, 8);
    qr_node_id b = run(rig, 1, 2);
    qr_node *node = &rig->tree.store.nodes[b];
    rig->tree.store.copies[b].record = 3;
    cr_assert_eq(qr_tree_check(&rig->tree, NULL), QUIRE_CORRUPT, "unsaved with a record");
    rig->tree.store.copies[b].record = QR_COPY_NONE;
    node->cause = 0;
    cr_assert_eq(qr_tree_check(&rig->tree, NULL), QUIRE_CORRUPT, "listed without the mark");
    node->cause = QR_NODE_UNSAVED, node->previous = b;
    cr_assert_eq(qr_tree_check(&rig->tree, NULL), QUIRE_CORRUPT, "a wrong link");
    node->previous = qr_tree_parent(&rig->tree, b), rig->tree.unsaved_count++;
    cr_assert_eq(qr_tree_check(&rig->tree, NULL), QUIRE_CORRUPT, "a wrong count");
    rig->tree.unsaved_count--;
    tree_rig_destroy(rig);
}
