/* The lower tiers under the engine, on a tiny model with random weights: law 1 through each of them, end to end. */
#include <criterion/criterion.h>

#include "tests/support/tier_laws.h"
#include "tests/support/tiny_model.h"

/* Much work for few bytes, so that a disk is always faster. */
static quire_model *open_tiny(uint64_t seed) {
    tiny_model tiny = tiny_model_of(QR_WEIGHT_Q4_1);
    tiny.context = 512;
    tiny.feed_forward = 4096;
    tiny.seed += seed;
    return tiny_model_open(&tiny, &(quire_model_options){.thread_count = 1});
}

static const quire_kv_type types[] = {QUIRE_KV_F32, QUIRE_KV_F16, QUIRE_KV_BF16};

static int for_all_types(int (*law)(const tier_laws *laws)) {
    int wrong = 0;
    quire_model *model = open_tiny(0);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const tier_laws laws = {model, types[i], 320, 12, 0};
        wrong += law(&laws);
    }
    quire_model_close(model);
    return wrong;
}

Test(engine_tiers, host_memory_changes_nothing) { cr_assert_eq(for_all_types(tier_laws_host), 0); }

Test(engine_tiers, disk_and_restart_change_nothing) { cr_assert_eq(for_all_types(tier_laws_disk), 0); }

Test(engine_tiers, a_load_that_is_given_up_changes_nothing) { cr_assert_eq(for_all_types(tier_laws_abandoned), 0); }

Test(engine_tiers, damage_changes_nothing) { cr_assert_eq(for_all_types(tier_laws_damaged), 0); }

Test(engine_tiers, verifying_finds_nothing) { cr_assert_eq(for_all_types(tier_laws_verified), 0); }

/* R11 */
Test(engine_tiers, another_model_uses_nothing_of_it) {
    quire_model *a = open_tiny(0), *b = open_tiny(1);
    const tier_laws laws = {a, QUIRE_KV_F16, 320, 12, 0};
    cr_assert_eq(tier_laws_other_model(&laws, b), 0);
    quire_model_close(a);
    quire_model_close(b);
}

/* R12 */
Test(engine_tiers, nobody_sees_another_ones_blocks) {
    quire_model *model = open_tiny(0);
    const tier_laws laws = {model, QUIRE_KV_F16, 160, 8, 200};
    cr_assert_eq(tier_laws_isolation(&laws), 0);
    quire_model_close(model);
}
