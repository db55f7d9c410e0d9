/* Random operations on a prefix tree with lower tiers against a naive one, every invariant after each. QUIRE_SEED replays one
 * seed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/prop/prefix_cache/tree_model.h"

enum { SEEDS = 25, OPERATIONS = 16000 };

/* How often out of the sum. Namespaces are forgotten seldom, so that trees grow. */
static const struct {
    void (*run)(model *m);
    uint32_t weight;
    const char *name;
} operations[] = {
    {model_insert, 200, "insert"},
    {model_lock_path, 60, "lock_path"},
    {model_unlock_path, 160, "unlock_path"},
    {model_touch, 60, "touch"},
    {model_pin, 15, "pin"},
    {model_demote, 80, "demote"},
    {model_evict, 20, "evict"},
    {model_set_host, 60, "set_host"},
    {model_set_record, 60, "set_record"},
    {model_insert_stored, 60, "insert_stored"},
    {model_insert_ghost, 20, "insert_ghost"},
    {model_lose, 15, "lose"},
    {model_lose_record, 15, "lose_record"},
    {model_host_victim, 30, "host_victim"},
    {model_list_unsaved, 40, "list_unsaved"},
    {model_sort_unsaved, 20, "sort_unsaved"},
    {model_look, 40, "look"},
    {model_set_time, 40, "set_time"},
    {model_forget, 2, "forget"},
};
enum { OPERATION_COUNT = sizeof operations / sizeof *operations };

static uint32_t pick_operation(qr_random *random) {
    uint32_t sum = 0, at = 0;
    for (uint32_t i = 0; i < OPERATION_COUNT; i++) sum += operations[i].weight;
    uint32_t drawn = qr_random_below(random, sum);
    while (drawn >= operations[at].weight) drawn -= operations[at++].weight;
    return at;
}

/* What a run has seen; a test that is too tame proves little. */
typedef struct seen {
    uint64_t losses, held_max, drops;
} seen;

static void run_seed(quire_kv_policy policy, uint64_t seed, seen *all) {
    model *m = model_create(policy, seed);
    for (int i = 0; i < OPERATIONS; i++) {
        uint32_t at = pick_operation(&m->random);
        if (getenv("QUIRE_SEED")) fprintf(stderr, "%d %s\n", i, operations[at].name);
        operations[at].run(m);
        model_compare(m);
    }
    all->losses += m->losses;
    all->drops += m->drops;
    if (m->held_max > all->held_max) all->held_max = m->held_max;
    model_destroy(m);
}

static void run_seeds(quire_kv_policy policy) {
    const char *seed = getenv("QUIRE_SEED");
    seen all = {0};
    for (uint64_t i = 1; i <= SEEDS; i++) {
        if (!seed) fprintf(stderr, "policy %d, seed %llu\n", policy, (unsigned long long)i);
        run_seed(policy, seed ? strtoull(seed, NULL, 10) : i, &all);
        if (seed) return;
    }
    cr_assert_gt(all.losses, 100 * SEEDS);
    cr_assert_gt(all.drops, 100 * SEEDS);
    cr_assert_gt(all.held_max, 2);
}

Test(prop_prefix_cache_tree, dlfu_with_lower_tiers_equals_a_naive_one) { run_seeds(QUIRE_KV_DLFU); }
Test(prop_prefix_cache_tree, lru_with_lower_tiers_equals_a_naive_one) { run_seeds(QUIRE_KV_LRU); }
