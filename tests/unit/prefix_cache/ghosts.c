#include "prefix_cache/ghosts.h"

#include <criterion/criterion.h>

#include "tests/unit/prefix_cache/tree_rig.h"

Test(prefix_cache_ghosts, go_oldest_first_and_by_namespace) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    qr_node_id nodes[4];
    for (quire_token i = 0; i < 4; i++) {
        const quire_token words[RIG_LABEL] = {i};
        nodes[i] = tree_rig_run(rig, (uint32_t)i % 2, words, RIG_LABEL);
    }
    for (int i = 0; i < 4; i++) {
        qr_tree_evict(&rig->tree, nodes[i]);
        cr_assert(qr_ghosts_check(&rig->tree));
    }
    cr_assert(rig->tree.oldest_ghost == nodes[0] && rig->tree.newest_ghost == nodes[3]);
    qr_ghosts_drop(&rig->tree, nodes[1]);
    cr_assert(rig->tree.roots[1].ghost_count == 1 && qr_ghosts_check(&rig->tree));
    qr_ghosts_drop_root(&rig->tree, 0);
    cr_assert(rig->tree.oldest_ghost == nodes[3] && rig->tree.newest_ghost == nodes[3]);
    qr_ghosts_drop(&rig->tree, nodes[3]);
    cr_assert(rig->tree.ghost_count == 0 && rig->tree.oldest_ghost == QR_NODE_NONE);
    tree_rig_destroy(rig);
}

Test(prefix_cache_ghosts, check_finds_a_wrong_count) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    rig->tree.roots[2].ghost_count++;
    cr_assert(!qr_ghosts_check(&rig->tree));
    rig->tree.roots[2].ghost_count--;
    tree_rig_destroy(rig);
}

Test(prefix_cache_ghosts, check_finds_a_parent_before_its_child) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 8, 8);
    const quire_token words[2 * RIG_LABEL] = {1, 1, 1, 1, 2, 2, 2, 2};
    qr_node_id child = tree_rig_run(rig, 0, words, 2 * RIG_LABEL), parent = qr_tree_parent(&rig->tree, child);
    qr_tree_evict(&rig->tree, child);
    qr_tree_evict(&rig->tree, parent);
    cr_assert(qr_ghosts_check(&rig->tree) && rig->tree.oldest_ghost == child);
    qr_node *nodes = rig->tree.store.nodes;
    nodes[parent].previous = QR_NODE_NONE, nodes[parent].next = child;
    nodes[child].previous = parent, nodes[child].next = QR_NODE_NONE;
    rig->tree.oldest_ghost = parent, rig->tree.newest_ghost = child;
    cr_assert(!qr_ghosts_check(&rig->tree));
    nodes[child].previous = QR_NODE_NONE, nodes[child].next = parent;
    nodes[parent].previous = child, nodes[parent].next = QR_NODE_NONE;
    rig->tree.oldest_ghost = child, rig->tree.newest_ghost = parent;
    tree_rig_destroy(rig);
}
