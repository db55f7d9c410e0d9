#include "prefix_cache/policy.h"

#include "base/random.h"
#include <criterion/criterion.h>

_Alignas(QR_ARENA_ALIGNMENT) static qr_policy_end ends[QR_POLICY_ENDS];

static qr_policy policy_of(quire_kv_policy kind) {
    qr_policy policy;
    qr_arena arena = {.base = (unsigned char *)ends, .size_bytes = sizeof ends};
    qr_policy_init(&policy, kind, &arena);
    return policy;
}

Test(prefix_cache_policy, weight_decays_by_half_in_one_horizon) {
    qr_policy policy = policy_of(QUIRE_KV_DLFU);
    qr_node node = {.hash = 1};
    qr_policy_touch(&policy, &node);
    cr_assert_float_eq(node.weight, 1, 1e-6);
    policy.now_us = (uint64_t)(policy.horizon_s * 1e6);
    qr_policy_touch(&policy, &node);
    cr_assert_float_eq(node.weight, 1.5, 1e-6);
    cr_assert_eq(node.touched, policy.now_us);
}

Test(prefix_cache_policy, twice_the_weight_is_worth_one_horizon_of_time) {
    qr_policy policy = policy_of(QUIRE_KV_DLFU);
    uint64_t horizon_us = (uint64_t)(policy.horizon_s * 1e6);
    qr_node heavy = {.weight = 2, .touched = 0}, recent = {.weight = 1, .touched = horizon_us + 1000000};
    cr_assert(qr_policy_before(&policy, &heavy, &recent));
    recent.touched = horizon_us - 1000000;
    cr_assert(qr_policy_before(&policy, &recent, &heavy));
}

Test(prefix_cache_policy, equal_worth_evicts_the_deeper) {
    for (int kind = QUIRE_KV_DLFU; kind <= QUIRE_KV_LRU; kind++) {
        qr_policy policy = policy_of((quire_kv_policy)kind);
        qr_node shallow = {.weight = 1, .depth = 1}, deep = {.weight = 1, .depth = 2};
        cr_assert(qr_policy_before(&policy, &deep, &shallow) && !qr_policy_before(&policy, &shallow, &deep));
    }
}

Test(prefix_cache_policy, the_horizon_becomes_twice_the_median_return) {
    qr_policy policy = policy_of(QUIRE_KV_DLFU);
    qr_random random = {1};
    for (uint32_t i = 0; i < 4000; i++) {
        qr_node node = {.hash = i, .weight = 1};
        qr_policy_mark_end(&policy, &node);
        policy.now_us += 50000000 + qr_random_below(&random, 100000001); /* 50 to 150 s, median 100 s */
        qr_policy_touch(&policy, &node);
    }
    cr_assert(policy.horizon_s > 160 && policy.horizon_s < 240, "%f", policy.horizon_s);
}

Test(prefix_cache_policy, an_end_is_observed_once_and_by_its_own_return) {
    qr_policy policy = policy_of(QUIRE_KV_DLFU);
    qr_node a = {.hash = 1, .weight = 1}, elsewhere = {.hash = 1, .root = 1, .weight = 1};
    qr_policy_mark_end(&policy, &a);
    qr_policy_touch(&policy, &elsewhere);
    cr_assert_eq(policy.observation_count, 0);
    qr_policy_touch(&policy, &a);
    qr_policy_touch(&policy, &a);
    cr_assert_eq(policy.observation_count, 1);
}

Test(prefix_cache_policy, lru_counts_the_end_of_use) {
    qr_policy policy = policy_of(QUIRE_KV_LRU);
    qr_node first = {0}, second = {0};
    qr_policy_touch(&policy, &first);
    qr_policy_touch(&policy, &second);
    cr_assert(qr_policy_before(&policy, &first, &second));
    qr_policy_release(&policy, &first);
    cr_assert(qr_policy_before(&policy, &second, &first));
}

Test(prefix_cache_policy, knows_whether_somebody_came_back) {
    for (int kind = QUIRE_KV_DLFU; kind <= QUIRE_KV_LRU; kind++) {
        qr_policy policy = policy_of((quire_kv_policy)kind);
        qr_node node = {.hash = 1};
        cr_assert(!qr_policy_seen_twice(&node));
        qr_policy_touch(&policy, &node);
        qr_policy_release(&policy, &node);
        cr_assert(!qr_policy_seen_twice(&node), "released and not touched again");
        policy.now_us += (uint64_t)(10 * policy.horizon_s * 1e6);
        qr_policy_touch(&policy, &node);
        cr_assert(qr_policy_seen_twice(&node));
        policy.now_us += (uint64_t)(40 * policy.horizon_s * 1e6);
        qr_policy_touch(&policy, &node);
        cr_assert_eq(qr_policy_seen_twice(&node), kind == QUIRE_KV_LRU, "dlfu forgets");
    }
}
