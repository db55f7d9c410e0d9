#include "tests/unit/offload/disk_rig.h"

#include <string.h>

#define MIB (1ull << 20)

Test(offload_disk_store, what_was_put_comes_back_proved) {
    disk_rig rig;
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    qr_record_id ids[20], parent = QR_RECORD_NONE;
    for (uint32_t i = 0; i < 20; i++) ids[i] = parent = rig_put(&rig, i, parent, i + 1);
    rig_settle(&rig);
    cr_assert_eq(rig.put_ok, 20);
    for (uint32_t i = 0; i < 20; i++) cr_assert_eq(rig_get(&rig, ids[i]), QUIRE_OK);
    qr_store_stats stats = rig_stats(&rig);
    cr_assert_eq(stats.record_count, 20);
    cr_assert_eq(stats.put_bytes_total, 20 * RIG_PAYLOAD);
    cr_assert_eq(stats.get_bytes_total, 20 * RIG_PAYLOAD);
    cr_assert_eq(stats.corrupt_total, 0);
    cr_assert_eq(stats.io_error_total, 0);
    rig_deinit(&rig);
}

Test(offload_disk_store, a_restart_finds_everything_parents_first) {
    disk_rig rig;
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    qr_record_id parent = QR_RECORD_NONE;
    for (uint32_t i = 0; i < 500; i++) parent = rig_put(&rig, i, i % 7 ? parent : QR_RECORD_NONE, i % 7 + 1);
    rig_settle(&rig);
    for (int restart = 0; restart < 3; restart++) {
        rig_close(&rig);
        rig_open(&rig);
        cr_assert_eq(rig.found_count, 500);
        for (uint32_t i = 0; i < 500; i++) {
            cr_assert_eq(rig.found_owners[i], i);
            cr_assert_eq(rig.found_parents[i], i % 7 ? i - 1 : QR_OWNER_NONE);
        }
        for (uint32_t i = 0; i < 500; i += 50) cr_assert_eq(rig_get(&rig, rig.found_ids[i]), QUIRE_OK);
    }
    rig_deinit(&rig);
}

Test(offload_disk_store, a_dropped_record_is_gone_after_an_orderly_restart) {
    disk_rig rig;
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    qr_record_id ids[10];
    for (uint32_t i = 0; i < 10; i++) ids[i] = rig_put(&rig, i, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    rig.store->ops->drop(rig.store, ids[3], false);
    rig.store->ops->drop(rig.store, ids[9], false);
    rig_close(&rig);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, 8);
    rig_deinit(&rig);
}
