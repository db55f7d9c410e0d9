#include "prefix_cache/tree.h"

#include <criterion/criterion.h>

#include "tests/unit/prefix_cache/tree_rig.h"

static const quire_token abc[] = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}, abd[] = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4};

Test(prefix_cache_tree, finds_whole_blocks_and_a_tail) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    qr_tree_match match;
    qr_node_id tip = tree_rig_run(rig, 0, abc, 12);
    qr_tree_find_prefix(&rig->tree, 0, abc, 12, &match);
    cr_assert(match.block_count == 3 && match.node == tip && match.tail_words == 0);
    qr_tree_find_prefix(&rig->tree, 0, abd, 12, &match);
    cr_assert(match.block_count == 2 && match.tail_words == 2 && match.tail_node == tip);
    qr_tree_find_prefix(&rig->tree, 0, abc, 11, &match);
    cr_assert(match.block_count == 2 && match.tail_words == 3);
    cr_assert_eq(tree_rig_match(rig, 1, abc, 12), 0);
    tree_rig_destroy(rig);
}

Test(prefix_cache_tree, keeps_the_blocks_of_every_group) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    rig->next_block = 7;
    qr_node_id tip = tree_rig_run(rig, 0, abc, 4);
    cr_assert_eq(qr_tree_blocks(&rig->tree, tip)[0], 7);
    cr_assert_eq(qr_tree_blocks(&rig->tree, tip)[1], 1007);
    tree_rig_destroy(rig);
}

Test(prefix_cache_tree, evicts_leaves_only_and_never_what_is_locked) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    qr_node_id held = tree_rig_lock_path(rig, 0, abc, 8);
    tree_rig_run(rig, 0, abc, 12);
    tree_rig_run(rig, 0, abd, 12);
    for (int i = 0; i < 2; i++) {
        qr_node_id victim = qr_tree_victim(&rig->tree);
        cr_assert(!qr_tree_has_children(&rig->tree, victim) && qr_tree_parent(&rig->tree, victim) == held);
        qr_tree_evict(&rig->tree, victim);
        tree_rig_check(rig);
    }
    cr_assert_eq(qr_tree_victim(&rig->tree), QR_NODE_NONE);
    tree_rig_unlock_path(rig, held);
    cr_assert_eq(qr_tree_victim(&rig->tree), held);
    tree_rig_destroy(rig);
}

Test(prefix_cache_tree, a_ghost_remembers_and_comes_back_with_its_counts) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_DLFU, 8, 8);
    qr_node_id node = tree_rig_run(rig, 0, abc, 4);
    tree_rig_run(rig, 0, abc, 4);
    qr_tree_evict(&rig->tree, node);
    cr_assert_eq(tree_rig_match(rig, 0, abc, 4), 0);
    cr_assert(qr_tree_is_ghost(&rig->tree, qr_tree_find(&rig->tree, 0, abc)));
    cr_assert_eq(tree_rig_run(rig, 0, abc, 4), node);
    cr_assert_float_eq(rig->tree.store.nodes[node].weight, 3, 1e-6);
    tree_rig_destroy(rig);
}

Test(prefix_cache_tree, the_oldest_ghosts_make_room) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 2, 3);
    quire_token words[RIG_LABEL] = {0};
    for (quire_token i = 0; i < 50; i++) {
        words[0] = i;
        tree_rig_run(rig, 0, words, RIG_LABEL);
        tree_rig_check(rig);
    }
    for (quire_token i = 0; i < 50; i++) {
        words[0] = i;
        qr_node_id node = qr_tree_find(&rig->tree, 0, words);
        cr_assert_eq(node != QR_NODE_NONE, i >= 45, "two resident and three ghosts");
    }
    tree_rig_destroy(rig);
}

Test(prefix_cache_tree, refuses_more_than_its_blocks) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 1, 0);
    const quire_block_id blocks[2] = {0};
    qr_node_id tip = tree_rig_lock_path(rig, 0, abc, 4);
    cr_assert_eq(qr_tree_insert(&rig->tree, tip, abc + 4, blocks), QR_NODE_NONE);
    tree_rig_destroy(rig);
}

Test(prefix_cache_tree, finds_the_same_beginning_in_another_namespace) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    tree_rig_run(rig, 1, abc, 12);
    cr_assert(qr_tree_found_elsewhere(&rig->tree, 0, abc, 3));
    cr_assert(!qr_tree_found_elsewhere(&rig->tree, 0, abd, 3));
    cr_assert(qr_tree_found_elsewhere(&rig->tree, 2, abd, 2));
    cr_assert(!qr_tree_found_elsewhere(&rig->tree, 1, abc, 1));
    tree_rig_destroy(rig);
}

static void count_released(void *owner, const quire_block_id *blocks) { *(uint32_t *)owner += blocks[1] - blocks[0] == 1000; }

Test(prefix_cache_tree, forgets_one_namespace_whole) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    uint32_t released = 0;
    tree_rig_lock_path(rig, 1, abc, 12);
    qr_node_id ghost = tree_rig_run(rig, 1, abd, 12);
    qr_tree_evict(&rig->tree, ghost);
    tree_rig_run(rig, 2, abc, 8);
    qr_tree_forget(&rig->tree, 1, count_released, NULL, &released);
    cr_assert_eq(released, 3);
    cr_assert(rig->tree.roots[1].resident_count == 0 && rig->tree.roots[1].ghost_count == 0);
    cr_assert_eq(tree_rig_match(rig, 2, abc, 8), 2);
    tree_rig_destroy(rig);
}

Test(prefix_cache_tree, check_finds_damage) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    qr_node_id tip = tree_rig_run(rig, 0, abc, 12);
    qr_node *node = &rig->tree.store.nodes[tip];
    node->lock_count++;
    cr_assert_eq(qr_tree_check(&rig->tree, NULL), QUIRE_CORRUPT);
    node->lock_count--, node->depth++;
    cr_assert_eq(qr_tree_check(&rig->tree, NULL), QUIRE_CORRUPT);
    node->depth--, qr_node_label(&rig->tree.store, tip)[0]++;
#ifndef QR_CONSTANT_HASH /* there every label hashes alike, and the changed one is found */
    cr_assert_eq(qr_tree_check(&rig->tree, NULL), QUIRE_CORRUPT);
#endif
    qr_node_label(&rig->tree.store, tip)[0]--, rig->tree.resident_count++;
    cr_assert_eq(qr_tree_check(&rig->tree, NULL), QUIRE_CORRUPT);
    rig->tree.resident_count--;
    tree_rig_destroy(rig);
}

Test(prefix_cache_tree, more_nodes_than_ids_fail_the_plan) {
    qr_tree_config config = {.root_count = 1, .block_count = 1u << 30, .label_words = 16, .group_count = 1};
    qr_tree tree;
    for (uint32_t i = 0; i < 3; i++) {
        qr_arena arena = {0};
        config.stored_count = (UINT32_C(1) << 30) - 3 + i; /* the root is one of 2^31 - 1 */
        qr_tree_init(&tree, &config, &arena);
        cr_assert_eq(arena.failed, i == 2);
    }
}
