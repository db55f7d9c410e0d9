#include "tests/unit/offload/disk_rig.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/faulty_files.h"

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

enum { QUEUED = 4 };

/* Nothing that poll says is about the first QUEUED owners. */
static void check_withdrawn(disk_rig *rig, uint32_t puts) {
    qr_store_event event;
    uint32_t told = 0;
    while (rig->store->ops->busy(rig->store) || told < puts) {
        if (!rig->store->ops->poll(rig->store, 0, &event) || event.kind == QR_STORE_TROUBLE) continue;
        cr_assert_geq(event.owner, 100);
        cr_assert_eq(event.kind, QR_STORE_PUT_DONE);
        cr_assert_eq(event.status, QUIRE_OK);
        told++;
    }
    cr_assert_eq(told, puts);
}

static void put_successors(disk_rig *rig, const qr_record_id *before) {
    bool reused = false;
    for (uint32_t i = 0; i < QUEUED; i++) {
        qr_record_id record = rig_put(rig, 100 + i, QR_RECORD_NONE, 1);
        for (uint32_t k = 0; k < QUEUED; k++) reused |= record == before[k];
    }
    cr_assert(reused, "the test is about ids that are used again");
}

Test(offload_disk_store, a_failed_put_that_is_dropped_unheard_says_nothing_any_more) {
    disk_rig rig;
    faults f = {.eio_write = {.rate = 1}}, none = {0};
    rig_init(&rig, 32 * MIB);
    faulty_files *files = faulty_files_create(qr_files_system(), &none, false);
    rig.config.files = faulty_files_table(files);
    rig.config.retry_us_max = 1;
    rig.config.write_buffers = 16;
    rig_open(&rig);
    faulty_files_set(files, &f);
    qr_record_id ids[QUEUED];
    for (uint32_t i = 0; i < QUEUED; i++) {
        while (rig_try_put(&rig, i, QR_RECORD_NONE, 1, &ids[i]) != QR_STORE_NONE) sched_yield();
    }
    while (rig_stats(&rig).writes_queued) sched_yield();
    faulty_files_set(files, &none);
    for (uint32_t i = 0; i < QUEUED; i++) rig.store->ops->drop(rig.store, ids[i], i % 2);
    put_successors(&rig, ids);
    check_withdrawn(&rig, QUEUED);
    rig_deinit(&rig);
    faulty_files_destroy(files);
}

Test(offload_disk_store, a_lost_record_that_is_dropped_unheard_says_nothing_any_more) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    qr_store_event event;
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    qr_record_id ids[QUEUED + 1];
    for (uint32_t i = 0; i <= QUEUED; i++) ids[i] = rig_put(&rig, i, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert(rig_segment_path(&rig, 0, path));
    cr_assert_eq(unlink(path), 0);
    cr_assert(rig.store->ops->get(rig.store, ids[QUEUED], 0));
    rig.store->ops->kick(rig.store);
    while (!rig.store->ops->poll(rig.store, 0, &event)) sched_yield();
    cr_assert(event.kind == QR_STORE_GET_DONE && event.status == QUIRE_BUSY);
    while (rig_stats(&rig).record_count) sched_yield();
    for (uint32_t i = 0; i <= QUEUED; i++) rig.store->ops->drop(rig.store, ids[i], i % 2);
    put_successors(&rig, ids);
    check_withdrawn(&rig, QUEUED);
    rig_deinit(&rig);
}
