/* What happens around a write that is under way or has failed: the order is made by a gate in front of the file calls. */
#include "tests/unit/offload/disk_rig.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "offload/disk_internal.h"
#include "tests/support/faulty_files.h"

#define MIB (1ull << 20)
enum { RECORD_BYTES = 4096 + RIG_PAYLOAD };

/* The system's calls, but writes of records wait while it is shut, or are done and said to have failed. */
typedef struct gate {
    qr_files files;
    qr_files_ops ops;
    atomic_bool shut, fails;
    atomic_uint entered;
} gate;

static quire_status gate_write(qr_files *files, int fd, const struct iovec *parts, int part_count, uint64_t offset,
                               quire_error *error) {
    gate *g = (gate *)(void *)files;
    bool record = parts[0].iov_len == RECORD_BYTES;
    if (record) g->entered++;
    while (record && g->shut) sched_yield();
    quire_status status = qr_files_system()->ops->write(qr_files_system(), fd, parts, part_count, offset, error);
    return record && g->fails ? QUIRE_IO : status;
}

static void rig_init_gated(disk_rig *rig, gate *g) {
    memset(g, 0, sizeof *g);
    g->ops = *qr_files_system()->ops;
    g->ops.write = gate_write;
    g->files.ops = &g->ops;
    rig_init(rig, 8 * MIB);
    rig->config.files = &g->files;
    rig->config.retry_us_max = 1000;
    rig_open(rig);
}

/* The writer is inside a write of it. */
static qr_record_id put_and_stop_there(disk_rig *rig, gate *g, uint32_t owner) {
    unsigned before = g->entered;
    g->shut = true;
    qr_record_id record = rig_put(rig, owner, QR_RECORD_NONE, 1);
    while (g->entered == before) sched_yield();
    return record;
}

Test(offload_disk_writer, a_child_that_waits_is_not_written_when_its_parent_goes) {
    disk_rig rig;
    gate g;
    rig_init_gated(&rig, &g);
    qr_record_id parent = rig_put(&rig, 0, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    put_and_stop_there(&rig, &g, 1);
    rig_put(&rig, 2, parent, 2);
    rig.store->ops->drop(rig.store, parent, false);
    unsigned writes = g.entered;
    g.shut = false;
    rig_settle(&rig);
    cr_assert_eq(rig.put_failed, 1);
    cr_assert_eq(rig.last_put, QUIRE_NOT_FOUND);
    cr_assert_eq(g.entered, writes);
    rig_deinit(&rig);
}

Test(offload_disk_writer, a_record_whose_file_goes_while_it_is_written_is_not_stored) {
    disk_rig rig;
    gate g;
    char path[2 * RIG_PATH_MAX];
    rig_init_gated(&rig, &g);
    qr_record_id first = rig_put(&rig, 0, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    put_and_stop_there(&rig, &g, 1);
    cr_assert(rig_segment_path(&rig, 0, path));
    cr_assert_eq(unlink(path), 0);
    cr_assert(rig.store->ops->get(rig.store, first, 0));
    rig.store->ops->kick(rig.store);
    while (rig.get_failed == 0) rig_poll(&rig);
    g.shut = false;
    rig_wait_lost(&rig, 1);
    cr_assert(rig.lost[0]);
    cr_assert_eq(rig.put_failed, 1);
    cr_assert_eq(rig_stats(&rig).record_count, 0);
    rig_put(&rig, 2, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert_eq(rig.last_put, QUIRE_OK);
    rig_deinit(&rig);
}

/* The disk has it, though it said that it failed. */
Test(offload_disk_writer, what_a_failed_write_left_is_erased_too) {
    disk_rig rig;
    gate g;
    unsigned char payload[RIG_PAYLOAD];
    rig_init_gated(&rig, &g);
    rig_put(&rig, 0, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    g.fails = true;
    rig_put_keyed(&rig, 1, QR_RECORD_NONE, 1, "secret-key");
    rig_settle(&rig);
    cr_assert_eq(rig.put_failed, 1);
    g.fails = false;
    rig_fill_payload(payload, 1);
    cr_assert(rig_folder_has(&rig, payload, 64));
    rig.store->ops->erase_foreign(rig.store, "secret-key", 10);
    rig_settle(&rig);
    cr_assert(!rig_folder_has(&rig, payload, 64) && !rig_folder_has(&rig, "secret-key", 10));
    rig_deinit(&rig);
}

Test(offload_disk_writer, a_disk_that_works_again_is_no_longer_short_of_space) {
    disk_rig rig;
    gate g;
    rig_init_gated(&rig, &g);
    g.fails = true;
    rig_put(&rig, 1, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert(rig_stats(&rig).space_short);
    g.fails = false;
    for (qr_record_id record; rig_try_put(&rig, 2, QR_RECORD_NONE, 1, &record) != QR_STORE_NONE;) sched_yield();
    rig_settle(&rig);
    cr_assert_eq(rig.put_ok, 1);
    cr_assert(!rig_stats(&rig).space_short);
    rig_deinit(&rig);
}

/* A sync that failed has lost what it was for. Nobody may say by a footer that it is there. */
Test(offload_disk_writer, after_a_failed_sync_no_footer_speaks_of_what_was_lost) {
    disk_rig rig;
    faults none = {0}, f = {.eio_sync.rate = 1};
    rig_init(&rig, 8 * MIB);
    faulty_files *files = faulty_files_create(qr_files_system(), &none, true);
    rig.config.files = faulty_files_table(files);
    rig_open(&rig);
    for (uint32_t i = 0; i < 5; i++) rig_put(&rig, i, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    faulty_files_set(files, &f);
    cr_assert_eq(rig_seal(&rig), QUIRE_IO);
    faulty_files_set(files, &none);
    uint32_t segments = rig_segment_count(&rig);
    rig_put(&rig, 10, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert_eq(rig_segment_count(&rig), segments + 1); /* nothing is added to it */
    faulty_files_stop_after(files, 0);
    rig_close(&rig);
    faulty_files_power_cut(files, 1);
    faulty_files_revive(files);
    rig_open(&rig);
    for (uint32_t i = 0; i < rig.found_count; i++)
        cr_assert_eq(rig_get(&rig, rig.found_ids[rig.found_owners[i]]), QUIRE_OK, "owner %u", rig.found_owners[i]);
    rig_deinit(&rig);
    faulty_files_destroy(files);
}

static bool open_segment_lost_a_sync(disk_rig *rig) {
    qr_disk *disk = (qr_disk *)(void *)rig->store;
    pthread_mutex_lock(&disk->lock);
    uint32_t open = disk->writer.segment; /* nothing is under way: the writer waits for that lock */
    bool lost = open != QR_SEGMENT_NONE && disk->segments[open].sync_failed;
    pthread_mutex_unlock(&disk->lock);
    return lost;
}

/* The sync of what was carried along fails, and the next one would go well. */
Test(offload_disk_writer, nor_after_one_that_failed_while_records_were_carried) {
    disk_rig rig;
    /* When a segment is begun: two to seal the one before, the folder's, that of the copies. */
    faults none = {0}, f = {.eio_sync.nth = 4};
    rig_init(&rig, 2 * MIB);
    faulty_files *files = faulty_files_create(qr_files_system(), &none, true);
    rig.config.files = faulty_files_table(files);
    rig_open(&rig);
    for (uint32_t i = 0; !open_segment_lost_a_sync(&rig); i++) {
        faulty_files_set(files, &f);
        qr_record_id record = rig_put(&rig, i % 900, QR_RECORD_NONE, 1);
        rig.store->ops->touch(rig.store, record);
        rig_settle(&rig);
        cr_assert_lt(i, 1000);
    }
    faulty_files_set(files, &none);
    rig_put(&rig, 1000, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    faulty_files_stop_after(files, 0);
    rig_close(&rig);
    faulty_files_power_cut(files, 1);
    faulty_files_revive(files);
    rig_open(&rig);
    for (uint32_t i = 0; i < rig.found_count; i++)
        cr_assert_eq(rig_get(&rig, rig.found_ids[rig.found_owners[i]]), QUIRE_OK, "owner %u", rig.found_owners[i]);
    rig_deinit(&rig);
    faulty_files_destroy(files);
}

/* ---- serials, segments ---- */

Test(offload_disk_writer, an_id_says_when_so_that_it_never_comes_again) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    uint64_t id, before = qr_clock_wall_ms() << 20;
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    rig_put(&rig, 0, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert(rig_segment_path(&rig, 0, path));
    cr_assert(qr_segment_name_parse(strrchr(path, '/') + 1, &id));
    cr_assert(id >= before && id < (qr_clock_wall_ms() + 1) << 20);
    rig_deinit(&rig);
}

Test(offload_disk_writer, segments_whose_records_were_all_dropped_go_without_an_erasure, .timeout = 30) {
    disk_rig rig;
    qr_record_id ids[100];
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    for (uint32_t i = 0; i < 100; i++) ids[i] = rig_put(&rig, i, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    for (uint32_t i = 0; i < 100; i++) rig.store->ops->drop(rig.store, ids[i], false);
    while (rig_segment_count(&rig)) sched_yield();
    rig_deinit(&rig);
}

/* What was of use once is not kept for ever. */
Test(offload_disk_writer, a_record_that_was_carried_is_carried_again_only_when_it_was_of_use_again) {
    disk_rig rig;
    rig_init(&rig, 2 * MIB);
    rig_open(&rig);
    qr_record_id record = rig_put(&rig, 1000, QR_RECORD_NONE, 1);
    rig.store->ops->touch(rig.store, record);
    uint32_t all = qr_disk_record_max(2 * MIB, RIG_PAYLOAD, RIG_TOKENS);
    for (uint32_t i = 0; i < 3 * all && !rig.lost[1000]; i++) {
        rig_put(&rig, i % 900, QR_RECORD_NONE, 1);
        rig_settle(&rig);
    }
    cr_assert_geq(rig_stats(&rig).carried_total, 1);
    cr_assert(rig.lost[1000]);
    rig_deinit(&rig);
}

/* ---- a record of the right place that is another one ---- */

static void change_header(const char *path, uint64_t offset, int what) {
    static _Alignas(4096) unsigned char page[4096];
    qr_record_header header;
    unsigned char key[QR_RECORD_KEY_MAX];
    FILE *file = fopen(path, "r+");
    cr_assert(file && fseek(file, (long)offset, SEEK_SET) == 0 && fread(page, sizeof page, 1, file) == 1);
    cr_assert_eq(qr_record_decode(page, &header, NULL), QUIRE_OK);
    memcpy(key, header.namespace_key, header.namespace_bytes);
    header.namespace_key = key;
    if (what == 0) header.serial++;
    if (what == 1) header.parent_serial++;
    if (what == 2) header.chain_digest ^= 1;
    qr_record_encode(&header, page);
    cr_assert(fseek(file, (long)offset, SEEK_SET) == 0 && fwrite(page, sizeof page, 1, file) == 1 && fclose(file) == 0);
}

Test(offload_disk_writer, serial_parent_and_digest_are_compared_with_what_memory_says) {
    for (int what = 0; what < 3; what++) {
        disk_rig rig;
        char path[2 * RIG_PATH_MAX];
        rig_init(&rig, 8 * MIB);
        rig_open(&rig);
        qr_record_id parent = rig_put(&rig, 0, QR_RECORD_NONE, 1), child = rig_put(&rig, 1, parent, 2);
        rig_settle(&rig);
        cr_assert(rig_segment_path(&rig, 0, path));
        cr_assert_eq(rig_get(&rig, child), QUIRE_OK);
        change_header(path, 4096 + RECORD_BYTES, what);
        cr_assert_eq(rig_get(&rig, child), QUIRE_DAMAGED, "%d", what);
        cr_assert_not_null(strstr(rig.trouble.what, "another record"));
        cr_assert_eq(rig_get(&rig, parent), QUIRE_OK);
        rig_deinit(&rig);
    }
}
