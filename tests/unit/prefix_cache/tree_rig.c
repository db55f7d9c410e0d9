#include "tests/unit/prefix_cache/tree_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

tree_rig *tree_rig_create(quire_kv_policy policy, uint32_t blocks, uint32_t ghosts) {
    return tree_rig_create_tiers(policy, blocks, ghosts, 0, 0);
}

tree_rig *tree_rig_create_tiers(quire_kv_policy policy, uint32_t blocks, uint32_t ghosts, uint32_t stored, uint32_t slots) {
    tree_rig *rig = calloc(1, sizeof *rig);
    qr_tree_config config = {.root_count = RIG_ROOTS,
                             .block_count = blocks,
                             .ghost_count = ghosts,
                             .stored_count = stored,
                             .host_count = slots,
                             .label_words = RIG_LABEL,
                             .group_count = 2,
                             .policy = policy,
                             .seed = 5};
    qr_arena arena = {0};
    qr_tree_init(&rig->tree, &config, &arena);
    rig->memory = aligned_alloc(QR_ARENA_ALIGNMENT, arena.used_bytes);
    memset(rig->memory, 0, arena.used_bytes);
    arena = (qr_arena){.base = rig->memory, .size_bytes = arena.used_bytes};
    qr_tree_init(&rig->tree, &config, &arena);
    cr_assert(!arena.failed && arena.used_bytes == arena.size_bytes);
    return rig;
}

void tree_rig_check(const tree_rig *rig) {
    quire_error error = {0};
    cr_assert_eq(qr_tree_check(&rig->tree, &error), QUIRE_OK, "%s", error.text);
}

void tree_rig_destroy(tree_rig *rig) {
    tree_rig_check(rig);
    free(rig->memory);
    free(rig);
}

static void rig_make_room(tree_rig *rig) {
    if (rig->tree.resident_count < rig->tree.block_limit) return;
    qr_node_id victim = qr_tree_victim(&rig->tree);
    cr_assert_neq(victim, QR_NODE_NONE);
    qr_tree_evict(&rig->tree, victim);
}

qr_node_id tree_rig_lock_path(tree_rig *rig, uint32_t root, const quire_token *words, uint32_t count) {
    qr_node_id tip = root;
    for (uint32_t at = 0; at + RIG_LABEL <= count; at += RIG_LABEL) {
        qr_node_id node = qr_tree_find(&rig->tree, tip, words + at);
        if (node != QR_NODE_NONE && qr_tree_is_resident(&rig->tree, node)) {
            qr_tree_lock(&rig->tree, node);
            qr_tree_touch(&rig->tree, node);
        } else {
            quire_block_id blocks[2] = {rig->next_block, rig->next_block + 1000};
            rig->next_block++;
            rig_make_room(rig);
            node = qr_tree_insert(&rig->tree, tip, words + at, blocks);
            cr_assert_neq(node, QR_NODE_NONE);
        }
        tip = node;
    }
    return tip;
}

void tree_rig_unlock_path(tree_rig *rig, qr_node_id tip) {
    for (; tip >= RIG_ROOTS; tip = qr_tree_parent(&rig->tree, tip)) qr_tree_unlock(&rig->tree, tip);
}

qr_node_id tree_rig_run(tree_rig *rig, uint32_t root, const quire_token *words, uint32_t count) {
    qr_node_id tip = tree_rig_lock_path(rig, root, words, count);
    qr_tree_mark_end(&rig->tree, tip);
    tree_rig_unlock_path(rig, tip);
    return tip;
}

uint32_t tree_rig_match(const tree_rig *rig, uint32_t root, const quire_token *words, uint32_t count) {
    qr_tree_match match;
    qr_tree_find_prefix(&rig->tree, root, words, count, &match);
    return match.block_count;
}

void tree_rig_demote(tree_rig *rig, qr_node_id id, uint32_t host, uint32_t record) {
    if (host != QR_COPY_NONE) qr_tree_set_host(&rig->tree, id, host);
    if (record != QR_COPY_NONE) qr_tree_set_record(&rig->tree, id, record);
    cr_assert(qr_tree_demote(&rig->tree, id));
}

qr_node_id tree_rig_store(tree_rig *rig, uint32_t root, const quire_token *words, uint32_t count, uint32_t first_record) {
    qr_node_id tip = root;
    for (uint32_t at = 0; at + RIG_LABEL <= count; at += RIG_LABEL, first_record++) {
        qr_node_id node = qr_tree_insert_stored(&rig->tree, tip, words + at, first_record);
        if (node == QR_NODE_NONE) node = qr_tree_find(&rig->tree, tip, words + at);
        cr_assert_neq(node, QR_NODE_NONE);
        tip = node;
    }
    return tip;
}

void tree_rig_lock_up(tree_rig *rig, qr_node_id tip) {
    for (; tip >= RIG_ROOTS; tip = qr_tree_parent(&rig->tree, tip)) qr_tree_lock(&rig->tree, tip);
}
