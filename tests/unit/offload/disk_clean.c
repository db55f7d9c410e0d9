/* Erasing: bytes, token ids and keys are in no file any more. */
#include "tests/unit/offload/disk_rig.h"

#include <sched.h>
#include <string.h>

#include "tests/support/faulty_files.h"

#define MIB (1ull << 20)

static bool has_payload(const disk_rig *rig, uint32_t owner) {
    static unsigned char payload[RIG_PAYLOAD];
    rig_fill_payload(payload, owner);
    return rig_folder_has(rig, payload + 512, 64);
}

static bool has_tokens(const disk_rig *rig, uint32_t owner) {
    quire_token tokens[RIG_TOKENS] = {(quire_token)owner, 1, 2, 3};
    return rig_folder_has(rig, tokens, sizeof tokens);
}

static void erase(disk_rig *rig, qr_record_id record) {
    rig->store->ops->drop(rig->store, record, true);
    rig_settle(rig);
    cr_assert_eq(rig->store->ops->erasing(rig->store), 0);
}

/* `sealed`: 0 never, 1 before, 2 the segment is left full. */
static void check_erasure(int sealed) {
    disk_rig rig;
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    qr_record_id ids[6];
    for (uint32_t i = 0; i < 6; i++) ids[i] = rig_put_keyed(&rig, 1000 + i, QR_RECORD_NONE, 1, i == 2 ? "secret-key" : "key");
    rig_settle(&rig);
    if (sealed == 1) cr_assert_eq(rig_seal(&rig), QUIRE_OK);
    if (sealed == 2)
        for (uint32_t i = 0; i < 200; i++) rig_put(&rig, 2000 + i, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert(has_payload(&rig, 1002) && has_tokens(&rig, 1002) && rig_folder_has(&rig, "secret-key", 10));
    erase(&rig, ids[2]);
    cr_assert(!has_payload(&rig, 1002) && !has_tokens(&rig, 1002) && !rig_folder_has(&rig, "secret-key", 10));
    cr_assert_eq(rig_stats(&rig).erased_total, 1);
    for (uint32_t i = 0; i < 6; i++)
        if (i != 2) cr_assert_eq(rig_get(&rig, ids[i]), QUIRE_OK);
    rig_close(&rig);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, sealed == 2 ? 205 : 5);
    cr_assert_eq(rig_stats(&rig).corrupt_total, 0);
    cr_assert(!rig_folder_has(&rig, "secret-key", 10));
    rig_deinit(&rig);
}

Test(offload_disk_clean, erased_from_the_open_segment) { check_erasure(0); }
Test(offload_disk_clean, erased_from_a_sealed_one_that_is_open) { check_erasure(1); }
Test(offload_disk_clean, erased_from_a_full_one) { check_erasure(2); }

Test(offload_disk_clean, what_was_only_dropped_goes_with_the_next_erasure) {
    disk_rig rig;
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    qr_record_id a = rig_put_keyed(&rig, 1000, QR_RECORD_NONE, 1, "secret-key"), b = rig_put(&rig, 1001, QR_RECORD_NONE, 1);
    rig_put(&rig, 1002, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    rig.store->ops->drop(rig.store, a, false);
    erase(&rig, b);
    cr_assert(!has_payload(&rig, 1000) && !has_tokens(&rig, 1000) && !rig_folder_has(&rig, "secret-key", 10));
    cr_assert(has_payload(&rig, 1002));
    rig_deinit(&rig);
}

Test(offload_disk_clean, erasing_while_it_is_written_or_waits_leaves_nothing) {
    disk_rig rig;
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    for (uint32_t round = 0; round < 50; round++) {
        qr_record_id ids[4];
        for (uint32_t i = 0; i < 4; i++) ids[i] = rig_put_keyed(&rig, 1000 + i, QR_RECORD_NONE, 1, "secret-key");
        for (uint32_t i = 0; i < round * 20; i++) rig.store->ops->erasing(rig.store);
        for (uint32_t i = 0; i < 4; i++) rig.store->ops->drop(rig.store, ids[i], true);
        rig_settle(&rig);
        for (uint32_t i = 0; i < 4; i++) cr_assert(!has_payload(&rig, 1000 + i) && !has_tokens(&rig, 1000 + i));
    }
    cr_assert(!rig_folder_has(&rig, "secret-key", 10));
    cr_assert_eq(rig.put_ok, 0);
    rig_deinit(&rig);
}

Test(offload_disk_clean, a_segment_without_records_is_removed, .timeout = 30) {
    disk_rig rig;
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    qr_record_id ids[100];
    for (uint32_t i = 0; i < 100; i++) ids[i] = rig_put(&rig, i, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    uint64_t used = rig_stats(&rig).used_bytes;
    cr_assert_gt(rig_segment_count(&rig), 1);
    for (uint32_t i = 0; i < 100; i++) rig.store->ops->drop(rig.store, ids[i], i % 2);
    rig_settle(&rig);
    while (rig_segment_count(&rig)) sched_yield(); /* nobody waits for it, so nothing says that it is done */
    rig_settle(&rig);
    cr_assert_lt(rig_stats(&rig).used_bytes, used);
    rig_deinit(&rig);
}

/* A power cut would bring the file back. */
Test(offload_disk_clean, a_removal_that_does_not_last_is_no_erasure, .timeout = 30) {
    disk_rig rig;
    faults none = {0}, f = {.eio_sync = {.rate = 1}};
    faulty_counts counts = {0};
    rig_init(&rig, 8 * MIB);
    faulty_files *files = faulty_files_create(qr_files_system(), &none, false);
    rig.config.files = faulty_files_table(files);
    rig.config.retry_us_max = 1000;
    rig_open(&rig);
    qr_record_id record = rig_put_keyed(&rig, 1000, QR_RECORD_NONE, 1, "secret-key");
    rig_settle(&rig);
    faulty_files_set(files, &f);
    rig.store->ops->drop(rig.store, record, true);
    while (counts.failures < 10) {
        cr_assert_eq(rig.store->ops->erasing(rig.store), 1);
        faulty_files_get_counts(files, &counts);
    }
    faulty_files_set(files, &none);
    rig_settle(&rig);
    cr_assert_eq(rig.store->ops->erasing(rig.store), 0);
    cr_assert_eq(rig_segment_count(&rig), 0);
    rig_deinit(&rig);
    faulty_files_destroy(files);
}
