/* What went wrong below the pool is kept for whoever asks: the latest, each once, with its place. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/kv/kv_internal.h"
#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 8 * RIG_BLOCK };

static quire_token prompt[PROMPT];

static void rig_prepare(tiers_rig *rig) {
    rig->config.tiers.verify_every = 1;
    rig_count_up(prompt, PROMPT, 1);
    tiers_rig_open(rig);
    tiers_rig_run(rig, 0, prompt, PROMPT);
    tiers_rig_settle(rig);
    quire_kv_evict(rig->kv, 1000);
    tiers_rig_settle(rig);
    cr_assert_eq(tiers_rig_stats(rig).troubles_total, 0);
}

static void rig_run_loading(tiers_rig *rig, bool verify) {
    quire_seq_id seq;
    tiers_rig_load(rig, 0, prompt, PROMPT, verify, &seq);
    if (verify) tiers_rig_compute(rig, seq, prompt, 0, PROMPT);
    else tiers_rig_finish(rig, seq, prompt, PROMPT, 0);
    rig_close(rig->kv, seq);
    tiers_rig_settle(rig);
}

static qr_record_id record_at(const tiers_rig *rig, uint32_t depth) {
    qr_record_id record;
    cr_assert(fake_store_find(rig->fake, prompt + (depth - 1) * RIG_BLOCK, depth, &record));
    return record;
}

/* The fake says that a record lies at the offset of its number. */
static void check_latest(const tiers_rig *rig, quire_kv_trouble_kind kind, qr_record_id record, const char *what) {
    quire_kv_tiers_stats stats = tiers_rig_stats(rig);
    cr_assert_eq(stats.troubles_total, 1);
    const quire_kv_trouble *trouble = &stats.troubles[0];
    cr_assert_eq(trouble->kind, kind);
    cr_assert_str_eq(trouble->file, "fake");
    cr_assert_eq(trouble->offset, record);
    cr_assert_not_null(strstr(trouble->what, what), "%s", trouble->what);
}

Test(kv_troubles, a_record_of_other_tokens_or_another_namespace_is_told_by_its_place) {
    for (int key = 0; key < 2; key++) {
        tiers_rig rig = tiers_rig_make();
        rig_prepare(&rig);
        qr_record_id record = record_at(&rig, 5);
        if (key) fake_store_set_key(rig.fake, record, "other", 5);
        else fake_store_tokens(rig.fake, record)[1]++;
        rig_run_loading(&rig, false);
        check_latest(&rig, QUIRE_KV_TROUBLE_DAMAGED, record, "another block");
        tiers_rig_close(&rig);
    }
}

Test(kv_troubles, a_block_that_was_recomputed_and_differs_is_told_by_its_place) {
    tiers_rig rig = tiers_rig_make();
    rig_prepare(&rig);
    qr_record_id record = record_at(&rig, 3);
    ((unsigned char *)fake_store_payload(rig.fake, record))[2] ^= 4;
    rig_run_loading(&rig, true);
    cr_assert_eq(tiers_rig_stats(&rig).verify_mismatches_total, 1);
    check_latest(&rig, QUIRE_KV_TROUBLE_MISMATCH, record, "recomputed");
    tiers_rig_close(&rig);
}

static bool nowhere(const qr_store *store, qr_record_id record, qr_store_trouble *trouble) {
    (void)store, (void)record, (void)trouble;
    return false;
}

/* Nobody is to take it for one of host memory. */
Test(kv_troubles, a_record_whose_place_cannot_be_told_is_one_of_the_disk_all_the_same) {
    for (int verify = 0; verify < 2; verify++) {
        tiers_rig rig = tiers_rig_make();
        rig_prepare(&rig);
        qr_record_id record = record_at(&rig, 3);
        qr_store *store = rig.kv->tiers.store;
        const qr_store_ops *ops = store->ops;
        qr_store_ops lost = *ops;
        lost.where = nowhere;
        store->ops = &lost;
        if (verify) ((unsigned char *)fake_store_payload(rig.fake, record))[2] ^= 4;
        else fake_store_tokens(rig.fake, record)[1]++;
        rig_run_loading(&rig, verify);
        quire_kv_tiers_stats stats = tiers_rig_stats(&rig);
        cr_assert_eq(stats.troubles_total, 1);
        cr_assert_str_eq(stats.troubles[0].file, "?");
        cr_assert_eq(stats.troubles[0].offset, UINT64_MAX);
        store->ops = ops;
        tiers_rig_close(&rig);
    }
}

static qr_store_trouble complaint(uint32_t number) {
    return (qr_store_trouble){
        .kind = number % 2 ? QR_STORE_TROUBLE_ERROR : QR_STORE_TROUBLE_DAMAGED, .offset = number, .file = "f", .what = "w"};
}

Test(kv_troubles, the_latest_are_kept_and_all_are_counted) {
    tiers_rig rig = tiers_rig_make();
    tiers_rig_open(&rig);
    for (uint32_t n = 0; n < 3 * QUIRE_KV_TROUBLES; n++) {
        qr_store_trouble trouble = complaint(n);
        fake_store_complain(rig.fake, &trouble, 0);
        cr_assert(tiers_rig_round(&rig), "whoever watches figures looks again");
        quire_kv_tiers_stats stats = tiers_rig_stats(&rig);
        cr_assert_eq(stats.troubles_total, n + 1);
        for (uint32_t k = n < QUIRE_KV_TROUBLES ? 0 : n + 1 - QUIRE_KV_TROUBLES; k <= n; k++) {
            const quire_kv_trouble *kept = &stats.troubles[k % QUIRE_KV_TROUBLES];
            cr_assert_eq(kept->offset, k);
            cr_assert_eq(kept->kind, k % 2 ? QUIRE_KV_TROUBLE_ERROR : QUIRE_KV_TROUBLE_DAMAGED);
        }
    }
    tiers_rig_close(&rig);
}

/* Nobody may take an old one for one of those that were not kept. */
Test(kv_troubles, those_that_a_store_did_not_keep_are_counted_and_say_nothing) {
    static const uint64_t missed[] = {1, 3, QUIRE_KV_TROUBLES, 1000003};
    for (size_t i = 0; i < sizeof missed / sizeof *missed; i++) {
        tiers_rig rig = tiers_rig_make();
        tiers_rig_open(&rig);
        for (uint32_t n = 0; n < QUIRE_KV_TROUBLES; n++) {
            qr_store_trouble trouble = complaint(n);
            fake_store_complain(rig.fake, &trouble, n == QUIRE_KV_TROUBLES - 1 ? missed[i] : 0);
            tiers_rig_round(&rig);
        }
        quire_kv_tiers_stats stats = tiers_rig_stats(&rig);
        cr_assert_eq(stats.troubles_total, QUIRE_KV_TROUBLES + missed[i]);
        uint64_t last = stats.troubles_total - 1, silent = 0;
        cr_assert_eq(stats.troubles[last % QUIRE_KV_TROUBLES].offset, QUIRE_KV_TROUBLES - 1);
        for (uint64_t n = last; n > last - QUIRE_KV_TROUBLES + 1; n--)
            silent += stats.troubles[(n - 1) % QUIRE_KV_TROUBLES].what[0] == 0;
        cr_assert_eq(silent, missed[i] < QUIRE_KV_TROUBLES - 1 ? missed[i] : QUIRE_KV_TROUBLES - 1);
        tiers_rig_close(&rig);
    }
}
