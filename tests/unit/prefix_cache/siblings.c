#include "prefix_cache/siblings.h"

#include <criterion/criterion.h>

#include "base/random.h"
#include "tests/unit/prefix_cache/tree_rig.h"

enum { CHILDREN = 300 };

static uint32_t run_of(const quire_token *a, const quire_token *b, uint32_t words) {
    uint32_t run = 0;
    while (run < words && a[run] == b[run]) run++;
    return run;
}

/* Against a linear search, while children come and go. */
Test(prefix_cache_siblings, nearest_is_the_longest_run_of_all) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_DLFU, CHILDREN, CHILDREN);
    qr_random random = {11};
    for (int i = 0; i < 4000; i++) {
        quire_token words[RIG_LABEL];
        for (int k = 0; k < RIG_LABEL; k++) words[k] = (quire_token)qr_random_below(&random, 6) - 3;
        if (i % 3 == 0) tree_rig_run(rig, 0, words, RIG_LABEL);
        uint32_t wanted = 1 + qr_random_below(&random, RIG_LABEL), best = 0, run;
        for (qr_node_id id = RIG_ROOTS; id < RIG_ROOTS + rig->tree.store.node_count; id++) {
            if (!qr_tree_is_resident(&rig->tree, id)) continue;
            uint32_t same = run_of(words, qr_node_label(&rig->tree.store, id), wanted);
            best = same > best ? same : best;
        }
        qr_node_id nearest = qr_siblings_nearest(&rig->tree.store, 0, words, wanted, &run);
        if (run != best || (nearest == QR_NODE_NONE) != (best == 0)) cr_assert_fail("run %u, longest %u", run, best);
    }
    tree_rig_destroy(rig);
}

Test(prefix_cache_siblings, an_empty_set_has_no_nearest) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, 4, 4);
    const quire_token words[RIG_LABEL] = {0};
    uint32_t run;
    cr_assert_eq(qr_siblings_nearest(&rig->tree.store, 0, words, RIG_LABEL, &run), QR_NODE_NONE);
    cr_assert_eq(run, 0);
    tree_rig_destroy(rig);
}

Test(prefix_cache_siblings, a_walk_meets_every_child_in_label_order) {
    tree_rig *rig = tree_rig_create(QUIRE_KV_LRU, CHILDREN, CHILDREN);
    qr_random random = {5};
    cr_assert_eq(qr_siblings_first(&rig->tree.store, 0), QR_NODE_NONE);
    for (int i = 0; i < CHILDREN; i++) {
        quire_token words[RIG_LABEL];
        for (int k = 0; k < RIG_LABEL; k++) words[k] = (quire_token)qr_random_below(&random, 6) - 3;
        tree_rig_run(rig, 0, words, RIG_LABEL);
    }
    const qr_node_store *store = &rig->tree.store;
    uint32_t count = 1;
    qr_node_id id = qr_siblings_first(store, 0), next;
    for (; (next = qr_siblings_next(store, id)) != QR_NODE_NONE; id = next, count++) {
        const quire_token *a = qr_node_label(store, id), *b = qr_node_label(store, next);
        uint32_t run = run_of(a, b, RIG_LABEL);
        cr_assert(run < RIG_LABEL && a[run] < b[run]);
    }
    cr_assert_eq(count, rig->tree.resident_count);
    tree_rig_destroy(rig);
}
