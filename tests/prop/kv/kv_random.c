/* Random operations on tiny pools against the naive model (kv_model.h). Replay a failure with QUIRE_SEED. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/prop/kv/kv_model.h"

enum { STEPS = 30000, STEPS_BETWEEN_DRAINS = 3000 };

static quire_kv_config tiny_config(void) {
    quire_kv_group group = {1, 1, 1, 1, QUIRE_KV_F32, QUIRE_KV_F32};
    return (quire_kv_config){.block_tokens = 4,
                             .group_count = 1,
                             .groups = {group, group},
                             .block_count = 24,
                             .max_sequences = MODEL_SEQUENCES,
                             .max_sequence_tokens = MODEL_TOKENS,
                             .max_namespaces = MODEL_NAMESPACES,
                             .policy = QUIRE_KV_DLFU,
                             .storage = QUIRE_KV_STORAGE_HOST};
}

/* A run that never comes to the interesting cases proves nothing. */
static void check_coverage(const model *m) {
    const quire_kv_stats *stats = &m->before;
    if (getenv("QUIRE_VERBOSE"))
        fprintf(stderr, "hits %llu/%llu inserted %llu evicted %llu deduplicated %llu copied %llu\n",
                (unsigned long long)stats->hit_tokens_total, (unsigned long long)stats->lookup_tokens_total,
                (unsigned long long)stats->inserted_blocks_total, (unsigned long long)stats->evicted_blocks_total,
                (unsigned long long)stats->deduplicated_blocks_total, (unsigned long long)stats->copied_blocks_total);
    cr_assert(stats->hit_tokens_total > STEPS / 40 && stats->evicted_blocks_total > STEPS / 40);
    cr_assert(stats->deduplicated_blocks_total > STEPS / 200);
    cr_assert(m->config.block_tokens == 1 || stats->copied_blocks_total > STEPS / 200);
}

static void run(const quire_kv_config *config, uint64_t seed) {
    model *m = malloc(sizeof *m);
    model_create(m, config, model_seed(seed));
    for (uint32_t i = 1; i <= STEPS; i++) {
        model_step(m);
        if (i % STEPS_BETWEEN_DRAINS == 0) model_drain(m);
    }
    if (!config->cache_disabled && config->block_count > 1) check_coverage(m);
    model_destroy(m);
    free(m);
}

Test(prop_kv, dlfu_with_host_storage) {
    quire_kv_config config = tiny_config();
    run(&config, 101);
}

Test(prop_kv, lru_with_storage_of_the_engine) {
    quire_kv_config config = tiny_config();
    config.policy = QUIRE_KV_LRU;
    config.storage = QUIRE_KV_STORAGE_NONE;
    run(&config, 102);
}

Test(prop_kv, two_groups) {
    quire_kv_config config = tiny_config();
    config.group_count = 2;
    config.policy = QUIRE_KV_LRU;
    run(&config, 103);
}

Test(prop_kv, two_groups_with_storage_of_the_engine) {
    quire_kv_config config = tiny_config();
    config.group_count = 2;
    config.storage = QUIRE_KV_STORAGE_NONE;
    run(&config, 104);
}

Test(prop_kv, blocks_of_one_token) {
    quire_kv_config config = tiny_config();
    config.block_tokens = 1;
    config.block_count = 60;
    run(&config, 105);
}

Test(prop_kv, blocks_that_are_no_power_of_two_in_a_pool_that_is_always_full) {
    quire_kv_config config = tiny_config();
    config.block_tokens = 3;
    config.block_count = 7;
    run(&config, 106);
}

Test(prop_kv, a_single_block) {
    quire_kv_config config = tiny_config();
    config.block_count = 1;
    run(&config, 107);
}

Test(prop_kv, cache_disabled) {
    quire_kv_config config = tiny_config();
    config.cache_disabled = true;
    run(&config, 108);
}
