/* What a store brings along when it is opened. */
#include <criterion/criterion.h>

#include "runtime/kv/kv_internal.h"
#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 5 * RIG_BLOCK };

static quire_token prompt[PROMPT];

static quire_namespace_id rig_namespace(const tiers_rig *rig, uint32_t key_bytes) {
    quire_namespace_id ns;
    cr_assert_eq(quire_kv_namespace_open(rig->kv, "abcdefgh", key_bytes, &ns), QUIRE_OK);
    quire_kv_namespace_close(rig->kv, ns);
    return ns;
}

static tiers_rig rig_open_filled(uint32_t namespaces) {
    tiers_rig rig = tiers_rig_make();
    rig.config.max_namespaces = namespaces;
    rig_count_up(prompt, PROMPT, 1);
    tiers_rig_open(&rig);
    for (uint32_t key = 0; key < namespaces; key++) {
        tiers_rig_run(&rig, rig_namespace(&rig, key), prompt, PROMPT - key * RIG_BLOCK);
        tiers_rig_settle(&rig);
    }
    return rig;
}

Test(kv_restore, namespaces_and_what_is_stored_in_them) {
    tiers_rig rig = rig_open_filled(3);
    quire_namespace_id ns;
    tiers_rig_restart(&rig);
    for (uint32_t key = 0; key < 3; key++) {
        cr_assert(quire_kv_namespace_find(rig.kv, "abcdefgh", key, &ns));
        cr_assert_eq(rig_match(rig.kv, ns, prompt, PROMPT).stored_tokens, PROMPT - key * RIG_BLOCK);
    }
    cr_assert_eq(tiers_rig_stats(&rig).index_records, 5 + 4 + 3);
    tiers_rig_close(&rig);
}

Test(kv_restore, what_no_namespace_has_a_place_for_is_dropped) {
    tiers_rig rig = rig_open_filled(3);
    rig.config.max_namespaces = 2;
    tiers_rig_restart(&rig);
    cr_assert_eq(fake_store_record_count(rig.fake), 9);
    cr_assert_eq(tiers_rig_stats(&rig).tiers[QUIRE_KV_TIER_DISK].evicted_blocks_total, 1, "and all that hangs on it");
    tiers_rig_close(&rig);
}

Test(kv_restore, places_are_given_up_by_namespaces_that_are_only_stored_first) {
    tiers_rig rig = rig_open_filled(3);
    quire_namespace_id ns;
    quire_seq_id seq;
    tiers_rig_restart(&rig);
    cr_assert(quire_kv_namespace_find(rig.kv, "abcdefgh", 1, &ns));
    tiers_rig_start(&rig, ns, prompt, PROMPT, &seq); /* resident, and later unused */
    rig_close(rig.kv, seq);
    rig_namespace(&rig, 7);
    cr_assert(quire_kv_namespace_find(rig.kv, "abcdefgh", 1, &ns));
    cr_assert_not(quire_kv_namespace_find(rig.kv, "abcdefgh", 2, &ns));
    tiers_rig_close(&rig);
}

Test(kv_restore, another_models_records_say_why_a_lookup_misses) {
    tiers_rig rig = rig_open_filled(1);
    qr_record_id record;
    for (uint32_t depth = 1; depth <= 5; depth++) {
        cr_assert(fake_store_find(rig.fake, prompt + (depth - 1) * RIG_BLOCK, depth, &record));
        fake_store_make_foreign(rig.fake, record);
    }
    tiers_rig_restart(&rig);
    quire_kv_match match = rig_match(rig.kv, 0, prompt, PROMPT);
    cr_assert(match.token_count == 0 && match.stored_tokens == 0 && match.miss == QUIRE_KV_MISS_FINGERPRINT);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_settle(&rig);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).token_count, PROMPT);
    tiers_rig_close(&rig);
}

/* Its second block is no beginning of a prompt. */
Test(kv_restore, only_first_blocks_of_another_model_are_remembered) {
    tiers_rig rig = rig_open_filled(1);
    qr_record_id record;
    for (uint32_t depth = 1; depth <= 5; depth++) {
        cr_assert(fake_store_find(rig.fake, prompt + (depth - 1) * RIG_BLOCK, depth, &record));
        fake_store_make_foreign(rig.fake, record);
    }
    tiers_rig_restart(&rig);
    cr_assert_eq(rig.kv->tree.ghost_count, 1);
    cr_assert_eq(rig_match(rig.kv, 0, prompt + RIG_BLOCK, PROMPT - RIG_BLOCK).miss, QUIRE_KV_MISS_NEVER_STORED);
    tiers_rig_close(&rig);
}

/* No more than the pool has blocks: they take places of what this manager may remember itself. */
Test(kv_restore, few_of_another_model_are_remembered) {
    tiers_rig rig = tiers_rig_make();
    quire_token small[RIG_BLOCK];
    qr_record_id record;
    rig.store.write_buffers = 40;
    tiers_rig_open(&rig);
    for (quire_token i = 0; i < 40; i++) {
        rig_count_up(small, RIG_BLOCK, 1 + 100 * i);
        tiers_rig_run(&rig, 0, small, RIG_BLOCK);
        tiers_rig_settle(&rig);
        cr_assert(fake_store_find(rig.fake, small, 1, &record));
        fake_store_make_foreign(rig.fake, record);
    }
    tiers_rig_restart(&rig);
    cr_assert_eq(rig.kv->tree.ghost_count, rig.config.block_count);
    tiers_rig_close(&rig);
}

Test(kv_restore, a_kill_loses_only_what_was_not_published) {
    tiers_rig rig = tiers_rig_make();
    rig_count_up(prompt, PROMPT, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_round(&rig);
    tiers_rig_round(&rig); /* four are published, the fifth is on its way */
    fake_store_kill(rig.fake);
    tiers_rig_restart(&rig);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, 4 * RIG_BLOCK);
    tiers_rig_close(&rig);
}
