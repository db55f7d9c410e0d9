/* Random operations over host memory, a store with failures and a device with slow copies (tiers_model.h). Replay a failure
 * with QUIRE_SEED. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/prop/kv/kv_model.h"
#include "tests/prop/kv/tiers_model.h"

enum { STEPS = 50000 };

static tiers_options tiny_options(uint64_t seed) {
    return (tiers_options){.config = tiers_model_config(1),
                           .has_store = true,
                           .faults = true,
                           .restarts = true,
                           .record_max = 24,
                           .seed = model_seed(seed)};
}

static void report(const tiers_model *m) {
    const tiers_counts *c = &m->counts;
    quire_kv_tiers_stats stats;
    quire_kv_get_tiers_stats(m->kv, &stats);
    if (!getenv("QUIRE_VERBOSE")) return;
    fprintf(stderr,
            "taken %llu host %llu disk %llu failed %llu abandoned %llu forked %llu refused %llu restarts %llu verified %llu\n",
            (unsigned long long)c->taken, (unsigned long long)c->host, (unsigned long long)c->disk,
            (unsigned long long)c->failed, (unsigned long long)c->abandoned, (unsigned long long)c->forked,
            (unsigned long long)c->refused, (unsigned long long)c->restarts, (unsigned long long)stats.verified_blocks_total);
}

/* A run that never comes to the interesting cases proves nothing. */
static void check_coverage(const tiers_model *m) {
    const tiers_counts *c = &m->counts;
    cr_assert(c->taken > STEPS / 60);
    cr_assert(!m->options.has_store || c->disk > STEPS / 500);
    cr_assert(!m->options.host_slots || c->host > STEPS / 500);
    cr_assert(!m->options.faults || !m->options.has_store || c->failed >= 10);
    cr_assert(c->abandoned > 20);
}

static void run(const tiers_options *options) {
    tiers_model *m = malloc(sizeof *m);
    tiers_model_create(m, options);
    tiers_model_live(m, STEPS);
    report(m);
    check_coverage(m);
    tiers_model_destroy(m);
    free(m);
}

Test(prop_kv_tiers, a_store_that_fails) {
    tiers_options o = tiny_options(201);
    run(&o);
}

Test(prop_kv_tiers, written_at_eviction_in_two_groups) {
    tiers_options o = tiny_options(202);
    o.config.group_count = 2;
    o.config.groups[1].layer_count = 300;
    o.config.tiers.disk_write = QUIRE_KV_DISK_EVICT;
    o.config.policy = QUIRE_KV_LRU;
    run(&o);
}

Test(prop_kv_tiers, a_host_tier_behind_slow_copies) {
    tiers_options o = tiny_options(203);
    o.has_store = false;
    o.restarts = false;
    o.device_sim = true;
    o.host_slots = 20;
    run(&o);
}

Test(prop_kv_tiers, host_tier_and_store_behind_slow_copies) {
    tiers_options o = tiny_options(204);
    o.config.group_count = 2;
    o.device_sim = true;
    o.host_slots = 10;
    o.record_max = 40;
    run(&o);
}

Test(prop_kv_tiers, host_tier_and_a_store_written_at_eviction) {
    tiers_options o = tiny_options(205);
    o.device_sim = true;
    o.host_slots = 6;
    o.config.tiers.disk_write = QUIRE_KV_DISK_EVICT;
    run(&o);
}

Test(prop_kv_tiers, a_host_tier_whose_copies_are_done_at_once) {
    tiers_options o = tiny_options(206);
    o.host_slots = 8;
    run(&o);
}

Test(prop_kv_tiers, every_third_load_is_a_verification_and_nothing_ever_differs) {
    tiers_options o = tiny_options(207);
    o.device_sim = true;
    o.host_slots = 8;
    o.config.tiers.verify_every = 3;
    run(&o);
}

Test(prop_kv_tiers, ids_only) {
    tiers_options o = tiny_options(208);
    o.config.storage = QUIRE_KV_STORAGE_NONE;
    run(&o);
}
