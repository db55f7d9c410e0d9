#include "prefix_cache/pins.h"

#include <criterion/criterion.h>

#include "tests/unit/prefix_cache/tree_rig.h"

static qr_node_id run_one(tree_rig *rig, quire_token first) {
    const quire_token words[RIG_LABEL] = {first};
    return tree_rig_run(rig, 0, words, RIG_LABEL);
}

Test(prefix_cache_pins, a_pinned_path_goes_last_and_the_lowest_priority_first) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    qr_node_id high = run_one(rig, 1), low = run_one(rig, 2), plain = run_one(rig, 3);
    cr_assert(qr_tree_pin(&rig->tree, high, 9, UINT64_MAX) && qr_tree_pin(&rig->tree, low, 1, UINT64_MAX));
    const qr_node_id order[] = {plain, low, high};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(qr_tree_victim(&rig->tree), order[i]);
        qr_tree_evict(&rig->tree, order[i]);
    }
    cr_assert_eq(rig->tree.pin_count, 0);
    tree_rig_destroy(rig);
}

Test(prefix_cache_pins, a_pin_ends_with_its_time) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    qr_tree_set_time(&rig->tree, 100);
    qr_node_id node = run_one(rig, 1);
    cr_assert(qr_tree_pin(&rig->tree, node, 1, 50));
    qr_tree_set_time(&rig->tree, 149);
    cr_assert_eq(rig->tree.pin_count, 1);
    qr_tree_set_time(&rig->tree, 150);
    cr_assert(rig->tree.pin_count == 0 && rig->tree.store.nodes[node].pin_count == 0);
    tree_rig_destroy(rig);
}

Test(prefix_cache_pins, time_never_goes_back) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    qr_node_id node = run_one(rig, 1);
    qr_tree_set_time(&rig->tree, 100);
    qr_tree_set_time(&rig->tree, 20);
    cr_assert(qr_tree_pin(&rig->tree, node, 1, 50) && rig->tree.pins[0].expires_us == 150);
    tree_rig_destroy(rig);
}

Test(prefix_cache_pins, the_same_node_again_replaces_its_pin) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    qr_node_id node = run_one(rig, 1);
    for (uint32_t i = 0; i < 10; i++) cr_assert(qr_tree_pin(&rig->tree, node, i, 1000));
    cr_assert(rig->tree.pin_count == 1 && rig->tree.pins[0].priority == 9 && rig->tree.store.nodes[node].pin_count == 1);
    tree_rig_destroy(rig);
}

Test(prefix_cache_pins, when_all_are_taken_the_lowest_yields_or_is_refused) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, QR_TREE_PINS_MAX + 2, 8);
    for (uint32_t i = 0; i < QR_TREE_PINS_MAX; i++) cr_assert(qr_tree_pin(&rig->tree, run_one(rig, (quire_token)i), 5, 1000));
    qr_node_id node = run_one(rig, -1);
    cr_assert(!qr_tree_pin(&rig->tree, node, 4, 1000));
    cr_assert(qr_tree_pin(&rig->tree, node, 6, 1000));
    cr_assert_eq(rig->tree.pin_count, QR_TREE_PINS_MAX);
    tree_rig_destroy(rig);
}

/* Of equal priority the one goes that ends first; one without end never does. */
Test(prefix_cache_pins, of_equals_the_one_that_ends_first_yields) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    qr_tree_set_time(&rig->tree, 100);
    qr_node_id later = run_one(rig, 1), sooner = run_one(rig, 2), never = run_one(rig, 3);
    cr_assert(qr_tree_pin(&rig->tree, later, 5, 2000) && qr_tree_pin(&rig->tree, sooner, 5, 1000));
    cr_assert(qr_tree_pin(&rig->tree, never, 5, UINT64_MAX));
    qr_tree_set_time(&rig->tree, 200);
    cr_assert_eq(rig->tree.pin_count, 3);
    const qr_node_id order[] = {sooner, later, never};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(qr_tree_victim(&rig->tree), order[i]);
        qr_tree_evict(&rig->tree, order[i]);
    }
    tree_rig_destroy(rig);
}
