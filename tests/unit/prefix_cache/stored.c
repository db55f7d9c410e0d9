/* Nodes in lower tiers. The functions under test are in prefix_cache/stored.c, declared in tree.h. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/prefix_cache/tree_rig.h"

enum {
    RECORD_A = 100,
    RECORD_B,
    RECORD_C,
#ifdef QR_CONSTANT_HASH /* every search looks at every node */
    LONG = 3000
#else
    LONG = 200000
#endif
};

static const quire_token abc[] = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}, abd[] = {1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4};
static const quire_block_id no_blocks[2] = {0};

typedef struct path {
    qr_node_id a, b, c;
} path;

static path path_to(const tree_rig *rig, qr_node_id tip) {
    qr_node_id b = qr_tree_parent(&rig->tree, tip);
    return (path){qr_tree_parent(&rig->tree, b), b, tip};
}

static path resident_path(tree_rig *rig) { return path_to(rig, tree_rig_run(rig, 0, abc, 12)); }
static path stored_path(tree_rig *rig) { return path_to(rig, tree_rig_store(rig, 0, abc, 12, RECORD_A)); }
static tree_rig *create(void) { return tree_rig_create_tiers(QUIRE_KV_LRU, 8, 8, 8, 8); }

/* What release was told, in order. */
typedef struct told {
    uint32_t count;
    qr_node_id ids[16];
    uint32_t hosts[16], records[16];
} told;

static void tell(void *owner, qr_node_id id, uint32_t host, uint32_t record) {
    told *t = owner;
    cr_assert_lt(t->count, 16);
    t->ids[t->count] = id;
    t->hosts[t->count] = host;
    t->records[t->count++] = record;
}

static void expect_told(const told *t, uint32_t place, qr_node_id id, uint32_t host, uint32_t record) {
    cr_assert(place < t->count && t->ids[place] == id && t->hosts[place] == host && t->records[place] == record,
              "telling %u of %u: node %u, slot %u, record %u", place, t->count, t->ids[place], t->hosts[place],
              t->records[place]);
}

/* ---- states ---- */

Test(prefix_cache_stored, demote_keeps_the_node_and_what_lies_below) {
    tree_rig *rig = create();
    path p = resident_path(rig);
    qr_node_id last;
    tree_rig_demote(rig, p.c, 3, RECORD_C);
    tree_rig_check(rig);
    cr_assert(qr_tree_is_stored(&rig->tree, p.c) && qr_tree_has_stored_children(&rig->tree, p.b));
    cr_assert(qr_tree_host(&rig->tree, p.c) == 3 && qr_tree_record(&rig->tree, p.c) == RECORD_C);
    cr_assert_eq(tree_rig_match(rig, 0, abc, 12), 2);
    cr_assert_eq(qr_tree_victim(&rig->tree), p.b, "a stored child does not keep its parent");
    tree_rig_demote(rig, p.b, QR_COPY_NONE, RECORD_B);
    tree_rig_check(rig);
    cr_assert_eq(qr_tree_find_stored(&rig->tree, p.a, abc + 4, 2, &last), 2);
    cr_assert_eq(last, p.c);
    cr_assert_eq(qr_tree_find_stored(&rig->tree, p.a, abd + 4, 2, &last), 1);
    cr_assert_eq(last, p.b);
    cr_assert_eq(qr_tree_find_stored(&rig->tree, 0, abc, 3, &last), 0, "a resident child is not followed");
    cr_assert(last == 0 && rig->tree.stored_count == 2 && rig->tree.roots[0].stored_count == 2);
    tree_rig_destroy(rig);
}

Test(prefix_cache_stored, demote_says_no_at_the_limit) {
    tree_rig *rig = tree_rig_create_tiers(QUIRE_KV_LRU, 8, 8, 1, 8);
    path p = resident_path(rig);
    tree_rig_demote(rig, p.c, 0, QR_COPY_NONE);
    qr_tree_set_host(&rig->tree, p.b, 1);
    cr_assert(!qr_tree_demote(&rig->tree, p.b));
    cr_assert(qr_tree_is_resident(&rig->tree, p.b));
    tree_rig_destroy(rig);
}

Test(prefix_cache_stored, insert_makes_a_stored_child_resident_with_its_copies) {
    tree_rig *rig = create();
    path p = resident_path(rig);
    tree_rig_demote(rig, p.c, 3, RECORD_C);
    tree_rig_demote(rig, p.b, 4, RECORD_B);
    float weight = rig->tree.store.nodes[p.b].weight;
    tree_rig_lock_up(rig, p.b); /* a load reads it */
    cr_assert_eq(qr_tree_insert(&rig->tree, p.a, abc + 4, no_blocks), p.b);
    cr_assert_eq(rig->tree.store.nodes[p.b].lock_count, 2);
    qr_tree_lock(&rig->tree, p.a);
    tree_rig_check(rig);
    cr_assert(qr_tree_is_resident(&rig->tree, p.b) && qr_tree_is_stored(&rig->tree, p.c));
    cr_assert(qr_tree_host(&rig->tree, p.b) == 4 && qr_tree_record(&rig->tree, p.b) == RECORD_B);
    cr_assert_gt(rig->tree.store.nodes[p.b].weight, weight);
    cr_assert_eq(tree_rig_match(rig, 0, abc, 12), 2);
    tree_rig_unlock_path(rig, p.b);
    tree_rig_unlock_path(rig, p.b);
    tree_rig_destroy(rig);
}

Test(prefix_cache_stored, an_index_comes_back_below_anything_but_ghosts) {
    tree_rig *rig = tree_rig_create_tiers(QUIRE_KV_LRU, 8, 8, 3, 0);
    qr_node_id a = tree_rig_run(rig, 0, abc, 4);
    qr_node_id b = qr_tree_insert_stored(&rig->tree, a, abc + 4, RECORD_B);
    qr_node_id c = qr_tree_insert_stored(&rig->tree, b, abc + 8, RECORD_C);
    cr_assert(b != QR_NODE_NONE && c != QR_NODE_NONE && qr_tree_record(&rig->tree, c) == RECORD_C);
    cr_assert_eq(qr_tree_insert_stored(&rig->tree, b, abc + 8, RECORD_A), QR_NODE_NONE, "there already");
    cr_assert_eq(qr_tree_insert_stored(&rig->tree, 0, abc, RECORD_A), QR_NODE_NONE, "resident");
    cr_assert_neq(qr_tree_insert_stored(&rig->tree, 1, abc, 1), QR_NODE_NONE);
    cr_assert_eq(qr_tree_insert_stored(&rig->tree, 1, abd + 8, 2), QR_NODE_NONE, "the limit");
    tree_rig_check(rig);
    tree_rig_destroy(rig);
}

Test(prefix_cache_stored, counts_live_through_every_state) {
    for (int policy = QUIRE_KV_DLFU; policy <= QUIRE_KV_LRU; policy++) {
        tree_rig *rig = tree_rig_create_tiers((quire_kv_policy)policy, 8, 8, 8, 8);
        told t = {0};
        qr_node_id node = tree_rig_run(rig, 0, abc, 4);
        cr_assert(!qr_tree_seen_twice(&rig->tree, node));
        tree_rig_demote(rig, node, 0, QR_COPY_NONE);
        cr_assert(!qr_tree_seen_twice(&rig->tree, node), "it was moved and not touched");
        tree_rig_lock_up(rig, node);
        qr_tree_touch(&rig->tree, node);
        tree_rig_unlock_path(rig, node);
        cr_assert(qr_tree_seen_twice(&rig->tree, node));
        qr_tree_lose(&rig->tree, node, QR_GHOST_EVICTED, tell, &t);
        cr_assert(qr_tree_is_ghost(&rig->tree, node) && qr_tree_seen_twice(&rig->tree, node));
        cr_assert_eq(qr_tree_insert_stored(&rig->tree, 0, abc, 1), node);
        cr_assert_eq(tree_rig_run(rig, 0, abc, 4), node);
        if (policy == QUIRE_KV_DLFU) cr_assert_float_eq(rig->tree.store.nodes[node].weight, 3, 1e-6);
        tree_rig_destroy(rig);
    }
}

Test(prefix_cache_stored, what_is_stored_elsewhere_counts_as_found_there) {
    tree_rig *rig = create();
    qr_node_id tip = tree_rig_run(rig, 1, abc, 12);
    tree_rig_demote(rig, tip, 0, QR_COPY_NONE);
    cr_assert(qr_tree_found_elsewhere(&rig->tree, 0, abc, 3) && !qr_tree_found_elsewhere(&rig->tree, 0, abd, 3));
    tree_rig_store(rig, 2, abd, 12, RECORD_A);
    cr_assert(qr_tree_found_elsewhere(&rig->tree, 0, abd, 3) && !qr_tree_found_elsewhere(&rig->tree, 2, abd, 3));
    tree_rig_destroy(rig);
}

/* ---- losing ---- */

Test(prefix_cache_stored, a_lost_node_takes_along_what_is_stored_below_it) {
    tree_rig *rig = create();
    path p = stored_path(rig);
    told t = {0};
    qr_tree_set_host(&rig->tree, p.c, 5);
    qr_tree_lose(&rig->tree, p.b, QR_GHOST_DAMAGED, tell, &t);
    tree_rig_check(rig);
    cr_assert_eq(t.count, 2);
    expect_told(&t, 0, p.c, 5, RECORD_C);
    expect_told(&t, 1, p.b, QR_COPY_NONE, RECORD_B);
    cr_assert(qr_tree_is_stored(&rig->tree, p.a) && qr_tree_is_ghost(&rig->tree, p.b) && qr_tree_is_ghost(&rig->tree, p.c));
    cr_assert(qr_tree_cause(&rig->tree, p.c) == QR_GHOST_DAMAGED && rig->tree.oldest_ghost == p.c);
    tree_rig_destroy(rig);
}

Test(prefix_cache_stored, a_loss_reaches_below_resident_nodes_and_they_stay) {
    tree_rig *rig = create();
    path p = resident_path(rig);
    qr_node_id d = tree_rig_run(rig, 0, abd, 12);
    told t = {0};
    const qr_node_id nodes[] = {p.a, p.b, p.c, d};
    for (uint32_t i = 0; i < 4; i++) qr_tree_set_record(&rig->tree, nodes[i], i);
    tree_rig_demote(rig, p.c, QR_COPY_NONE, QR_COPY_NONE);
    qr_tree_set_host(&rig->tree, d, 6);
    qr_tree_lose(&rig->tree, p.a, QR_GHOST_EVICTED, tell, &t);
    tree_rig_check(rig);
    cr_assert_eq(t.count, 4);
    expect_told(&t, 0, p.c, QR_COPY_NONE, 2);
    expect_told(&t, 1, d, 6, 3);
    expect_told(&t, 2, p.b, QR_COPY_NONE, 1);
    expect_told(&t, 3, p.a, QR_COPY_NONE, 0);
    cr_assert(qr_tree_is_ghost(&rig->tree, p.c) && qr_tree_is_resident(&rig->tree, d));
    cr_assert_eq(rig->tree.unsaved_count, 0, "unsaved, but not listed");
    t.count = 0;
    qr_tree_lose(&rig->tree, p.a, QR_GHOST_EVICTED, tell, &t);
    cr_assert_eq(t.count, 0, "nothing to lose");
    tree_rig_destroy(rig);
}

Test(prefix_cache_stored, a_lost_record_leaves_slots_where_they_still_hang_together) {
    tree_rig *rig = create();
    path p = stored_path(rig);
    qr_node_id d = qr_tree_insert_stored(&rig->tree, p.b, abd + 8, 9);
    told t = {0};
    qr_tree_set_host(&rig->tree, p.a, 1);
    qr_tree_set_host(&rig->tree, p.b, 2);
    qr_tree_set_host(&rig->tree, d, 3);
    qr_tree_lose_record(&rig->tree, p.a, QR_GHOST_EVICTED, tell, &t); /* c has no slot */
    tree_rig_check(rig);
    cr_assert_eq(t.count, 4);
    cr_assert(qr_tree_is_stored(&rig->tree, p.a) && qr_tree_is_stored(&rig->tree, p.b) && qr_tree_is_stored(&rig->tree, d));
    cr_assert(qr_tree_is_ghost(&rig->tree, p.c) && qr_tree_host(&rig->tree, d) == 3 &&
              qr_tree_record(&rig->tree, d) == QR_COPY_NONE);
    expect_told(&t, 3, p.a, QR_COPY_NONE, RECORD_A);
    cr_assert_eq(qr_tree_host_victim(&rig->tree), d);
    tree_rig_destroy(rig);
}

Test(prefix_cache_stored, a_lost_record_takes_slots_along_that_hang_on_it) {
    tree_rig *rig = create();
    path p = stored_path(rig);
    told t = {0};
    qr_tree_set_host(&rig->tree, p.a, 1);
    qr_tree_set_host(&rig->tree, p.c, 3);
    qr_tree_lose_record(&rig->tree, p.a, QR_GHOST_EVICTED, tell, &t); /* b has no slot, so c cannot be reached */
    tree_rig_check(rig);
    cr_assert_eq(t.count, 3);
    expect_told(&t, 0, p.c, 3, RECORD_C);
    expect_told(&t, 1, p.b, QR_COPY_NONE, RECORD_B);
    expect_told(&t, 2, p.a, QR_COPY_NONE, RECORD_A);
    cr_assert(qr_tree_is_stored(&rig->tree, p.a) && qr_tree_is_ghost(&rig->tree, p.c) && qr_tree_host(&rig->tree, p.a) == 1);
    tree_rig_destroy(rig);
}

Test(prefix_cache_stored, who_is_about_to_have_a_copy_is_told_of_too) {
    tree_rig *rig = create();
    path p = resident_path(rig);
    told t = {0};
    cr_assert(qr_tree_demote(&rig->tree, p.c));
    tree_rig_check(rig);
    qr_tree_lose(&rig->tree, p.b, QR_GHOST_EVICTED, tell, &t);
    cr_assert_eq(t.count, 1);
    expect_told(&t, 0, p.c, QR_COPY_NONE, QR_COPY_NONE);
    qr_tree_evict(&rig->tree, p.b);
    tree_rig_destroy(rig);
}

static void count_copies(void *owner, qr_node_id id, uint32_t host, uint32_t record) { ++*(uint32_t *)owner; }

static qr_node_id store_chain(tree_rig *rig, uint32_t length) {
    qr_node_id tip = 0;
    for (uint32_t i = 0; i < length; i++) {
        const quire_token label[RIG_LABEL] = {(quire_token)i};
        tip = qr_tree_insert_stored(&rig->tree, tip, label, i);
        cr_assert_neq(tip, QR_NODE_NONE);
    }
    return tip;
}

Test(prefix_cache_stored, chains_of_thousands_are_lost_and_forgotten) {
    tree_rig *rig = tree_rig_create_tiers(QUIRE_KV_LRU, 8, 8, LONG, 0);
    uint32_t told_count = 0;
    store_chain(rig, LONG);
    qr_tree_lose(&rig->tree, qr_tree_find(&rig->tree, 0, (const quire_token[RIG_LABEL]){0}), QR_GHOST_EVICTED, count_copies,
                 &told_count);
    cr_assert(told_count == LONG && rig->tree.ghost_count == LONG && rig->tree.stored_count == 0);
    tree_rig_check(rig);
    store_chain(rig, LONG);
    qr_tree_forget(&rig->tree, 0, NULL, count_copies, &told_count);
    cr_assert(told_count == 2 * LONG && rig->tree.stored_count == 0 && rig->tree.ghost_count == 0);
    tree_rig_destroy(rig);
}

/* ---- locks ---- */

Test(prefix_cache_stored, a_locked_node_that_is_lost_is_held_until_its_last_unlock) {
    tree_rig *rig = tree_rig_create_tiers(QUIRE_KV_LRU, 1, 1, 3, 3);
    path p = stored_path(rig);
    told t = {0};
    tree_rig_lock_up(rig, p.c);
    qr_tree_lose(&rig->tree, p.a, QR_GHOST_DAMAGED, tell, &t);
    tree_rig_check(rig);
    cr_assert(t.count == 3 && rig->tree.held_count == 3 && rig->tree.oldest_ghost == QR_NODE_NONE);
    for (quire_token i = 10; i < 30; i++) { /* ghosts come and go, but not these */
        const quire_token words[RIG_LABEL] = {i};
        cr_assert_eq(qr_tree_insert_stored(&rig->tree, 1, words, 7), QR_NODE_NONE, "they have the stored nodes' places");
        tree_rig_run(rig, 1, words, RIG_LABEL);
        tree_rig_check(rig);
    }
    cr_assert(qr_tree_find(&rig->tree, p.b, abc + 8) == p.c && qr_tree_cause(&rig->tree, p.c) == QR_GHOST_DAMAGED);
    tree_rig_unlock_path(rig, p.c);
    cr_assert(rig->tree.held_count == 0 && rig->tree.newest_ghost == p.a);
    tree_rig_check(rig);
    for (quire_token i = 10; i < 30; i++) tree_rig_run(rig, 1, (const quire_token[RIG_LABEL]){i}, RIG_LABEL);
    cr_assert_eq(qr_tree_find(&rig->tree, 0, abc), QR_NODE_NONE, "dropped like any other");
    tree_rig_destroy(rig);
}

Test(prefix_cache_stored, a_held_ghost_comes_back_as_anything) {
    tree_rig *rig = tree_rig_create_tiers(QUIRE_KV_LRU, 8, 8, 3, 3);
    path p = stored_path(rig);
    told t = {0};
    tree_rig_lock_up(rig, p.c);
    qr_tree_lose(&rig->tree, p.a, QR_GHOST_DAMAGED, tell, &t);
    cr_assert_eq(qr_tree_insert(&rig->tree, 0, abc, no_blocks), p.a, "computed while the load was failing");
    cr_assert_eq(qr_tree_insert_stored(&rig->tree, p.a, abc + 4, RECORD_B), p.b, "at the limit, but it has its place");
    tree_rig_check(rig);
    cr_assert(rig->tree.held_count == 1 && rig->tree.store.nodes[p.a].lock_count == 2);
    cr_assert(rig->tree.store.nodes[p.b].lock_count == 1 && qr_tree_is_ghost(&rig->tree, p.c));
    tree_rig_unlock_path(rig, p.c);
    qr_tree_unlock(&rig->tree, p.a);
    cr_assert_eq(qr_tree_victim(&rig->tree), p.a);
    tree_rig_destroy(rig);
}

typedef struct forgotten {
    told copies; /* first, so that it can be told */
    uint32_t blocks;
} forgotten;

static void count_blocks(void *owner, const quire_block_id *blocks) { ((forgotten *)owner)->blocks++; }

Test(prefix_cache_stored, forget_takes_everything_and_tells) {
    tree_rig *rig = create();
    path p = resident_path(rig);
    forgotten f = {0};
    qr_node_id d = qr_tree_insert_stored(&rig->tree, p.b, abd + 8, 9), other = tree_rig_store(rig, 1, abc, 4, 1);
    qr_node_id lost = tree_rig_store(rig, 0, abd + 8, 4, 8);
    qr_tree_set_host(&rig->tree, p.a, 2);
    tree_rig_lock_up(rig, d);
    tree_rig_lock_up(rig, lost);
    qr_tree_lose(&rig->tree, lost, QR_GHOST_DAMAGED, tell, &f);
    f.copies.count = 0;
    qr_tree_forget(&rig->tree, 0, count_blocks, tell, &f);
    cr_assert(f.blocks == 3 && f.copies.count == 2);
    for (uint32_t i = 0; i < 2; i++)
        if (f.copies.ids[i] == d) expect_told(&f.copies, i, d, QR_COPY_NONE, 9);
        else expect_told(&f.copies, i, p.a, 2, QR_COPY_NONE);
    cr_assert(rig->tree.ghost_count == 0 && rig->tree.held_count == 0 && rig->tree.unsaved_count == 0);
    cr_assert(rig->tree.stored_count == 1 && qr_tree_is_stored(&rig->tree, other));
    tree_rig_destroy(rig);
}

/* ---- the host tier ---- */

Test(prefix_cache_stored, the_victim_of_the_host_tier_takes_nothing_along) {
    tree_rig *rig = create();
    path p = resident_path(rig);
    told t = {0};
    cr_assert_eq(qr_tree_host_victim(&rig->tree), QR_NODE_NONE);
    qr_tree_set_host(&rig->tree, p.a, 7);
    cr_assert_eq(qr_tree_host_victim(&rig->tree), QR_NODE_NONE, "a resident node's slot is its owner's");
    tree_rig_demote(rig, p.c, 1, QR_COPY_NONE);
    tree_rig_demote(rig, p.b, 2, QR_COPY_NONE);
    cr_assert_eq(qr_tree_host_victim(&rig->tree), p.c);
    tree_rig_lock_up(rig, p.c);
    cr_assert_eq(qr_tree_host_victim(&rig->tree), QR_NODE_NONE, "a load reads them");
    tree_rig_unlock_path(rig, p.c);
    qr_tree_lose(&rig->tree, qr_tree_host_victim(&rig->tree), QR_GHOST_EVICTED, tell, &t);
    cr_assert_eq(qr_tree_host_victim(&rig->tree), p.b);
    tree_rig_check(rig);
    tree_rig_destroy(rig);
}

Test(prefix_cache_stored, with_a_record_a_slot_is_free_to_go) {
    tree_rig *rig = create();
    path p = stored_path(rig);
    qr_tree_set_host(&rig->tree, p.a, 1);
    cr_assert_eq(qr_tree_host_victim(&rig->tree), p.a);
    qr_tree_set_record(&rig->tree, p.a, QR_COPY_NONE);
    cr_assert_eq(qr_tree_host_victim(&rig->tree), QR_NODE_NONE, "b hangs on it");
    qr_tree_set_record(&rig->tree, p.a, RECORD_A);
    qr_tree_set_host(&rig->tree, p.a, QR_COPY_NONE);
    cr_assert_eq(qr_tree_host_victim(&rig->tree), QR_NODE_NONE);
    tree_rig_check(rig);
    tree_rig_destroy(rig);
}

Test(prefix_cache_stored, the_slot_used_longest_ago_goes_first) {
    tree_rig *rig = create();
    qr_node_id nodes[6];
    for (uint32_t i = 0; i < 6; i++) {
        const quire_token words[RIG_LABEL] = {(quire_token)i};
        nodes[i] = tree_rig_run(rig, 0, words, RIG_LABEL);
        tree_rig_demote(rig, nodes[i], i, QR_COPY_NONE);
    }
    tree_rig_lock_up(rig, nodes[0]);
    qr_tree_touch(&rig->tree, nodes[0]);
    tree_rig_unlock_path(rig, nodes[0]);
    for (uint32_t i = 1; i <= 6; i++) {
        told t = {0};
        qr_node_id victim = qr_tree_host_victim(&rig->tree);
        cr_assert_eq(victim, nodes[i % 6]);
        qr_tree_lose(&rig->tree, victim, QR_GHOST_EVICTED, tell, &t);
        expect_told(&t, 0, victim, i % 6, QR_COPY_NONE);
    }
    tree_rig_destroy(rig);
}

/* ---- ghosts of what never was here ---- */

Test(prefix_cache_stored, remembered_ghosts_go_leaves_first) {
    tree_rig *rig = tree_rig_create_tiers(QUIRE_KV_LRU, 2, 4, 1, 1);
    qr_tree_insert_ghost(&rig->tree, 0, abc, 2, QR_GHOST_FOREIGN);
    tree_rig_check(rig);
    qr_tree_insert_ghost(&rig->tree, 0, abd, 3, QR_GHOST_DAMAGED); /* a child of a ghost that is there */
    qr_tree_insert_ghost(&rig->tree, 0, abc, 3, QR_GHOST_DAMAGED);
    tree_rig_check(rig);
    qr_node_id a = qr_tree_find(&rig->tree, 0, abc), b = qr_tree_find(&rig->tree, a, abc + 4);
    cr_assert(qr_tree_cause(&rig->tree, b) == QR_GHOST_FOREIGN && rig->tree.newest_ghost == a && rig->tree.ghost_count == 4);
    for (quire_token i = 0; i < 20; i++) {
        tree_rig_run(rig, 1, (const quire_token[RIG_LABEL]){i}, RIG_LABEL);
        tree_rig_check(rig);
    }
    cr_assert_eq(qr_tree_find(&rig->tree, 0, abc), QR_NODE_NONE);
    tree_rig_destroy(rig);
}

Test(prefix_cache_stored, remembering_costs_no_other_ghost) {
    tree_rig *rig = tree_rig_create_tiers(QUIRE_KV_LRU, 1, 2, 1, 1);
    for (quire_token i = 0; i < 20; i++) tree_rig_run(rig, 1, (const quire_token[RIG_LABEL]){i}, RIG_LABEL);
    cr_assert_eq(rig->tree.ghost_count, 3);
    qr_tree_insert_ghost(&rig->tree, 0, abc, 3, QR_GHOST_FOREIGN);
    cr_assert(rig->tree.ghost_count == 3 && rig->tree.roots[0].ghost_count == 0);
    tree_rig_destroy(rig);
}

/* ---- damage ---- */

static void expect_damage(const tree_rig *rig, const char *what) {
    quire_error error = {0};
    cr_assert_eq(qr_tree_check(&rig->tree, &error), QUIRE_CORRUPT, "%s", what);
    cr_assert(strstr(error.text, what) != NULL, "found '%s' instead of '%s'", error.text, what);
}

Test(prefix_cache_stored, check_finds_damage) {
    tree_rig *rig = create();
    path p = resident_path(rig);
    tree_rig_demote(rig, p.c, 1, QR_COPY_NONE);
    tree_rig_demote(rig, p.b, 2, QR_COPY_NONE);
    qr_tree *tree = &rig->tree;
    tree->stored_count++, expect_damage(rig, "stored or held count"), tree->stored_count--;
    tree->held_count++, expect_damage(rig, "stored or held count"), tree->held_count--;
    tree->roots[0].stored_count++, expect_damage(rig, "its counts are wrong"), tree->roots[0].stored_count--;
    tree->roots[2].resident_count++, expect_damage(rig, "its counts are wrong"), tree->roots[2].resident_count--;
    tree->stored_limit = 1, expect_damage(rig, "more nodes than the limits"), tree->stored_limit = 8;
    tree->store.copies[p.c].host = QR_COPY_NONE, expect_damage(rig, "leaves of the host tier"),
    tree->store.copies[p.c].host = 1;
    tree->store.copies[p.b].record = 9, expect_damage(rig, "leaves of the host tier");
    tree->store.copies[p.b].record = QR_COPY_NONE;
    tree->store.copies[0].record = 1, expect_damage(rig, "a root with copies"), tree->store.copies[0].record = QR_COPY_NONE;
    tree->store.nodes[p.b].pin_count = 1, expect_damage(rig, "pinned"), tree->store.nodes[p.b].pin_count = 0;
    tree->store.nodes[p.c].left = p.a, expect_damage(rig, "its stored children"), tree->store.nodes[p.c].left = QR_NODE_NONE;
    tree->store.copies[p.b].stored_children = QR_NODE_NONE, expect_damage(rig, "leaves of the host tier");
    tree->store.copies[p.b].stored_children = p.c;
    tree->store.nodes[p.c].lock_count = 1, expect_damage(rig, "leaves of the host tier");
    tree->store.nodes[p.c].lock_count = 0;
    tree_rig_destroy(rig);
}
