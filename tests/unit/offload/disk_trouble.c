/* What went wrong is told: which file, where in it, what. Nothing of what a record holds. */
#include "tests/unit/offload/disk_rig.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/faulty_files.h"

#define MIB (1ull << 20)
enum { COUNT = 12, RECORD_BYTES = 4096 + RIG_PAYLOAD };

static void make_segment(disk_rig *rig, char path[2 * RIG_PATH_MAX]) {
    rig_init(rig, 32 * MIB);
    rig_open(rig);
    for (uint32_t i = 0; i < COUNT; i++) rig_put(rig, i, QR_RECORD_NONE, 1);
    rig_settle(rig);
    cr_assert_eq(rig->trouble_count, 0, "%s: %s", rig->trouble.file, rig->trouble.what);
    rig_close(rig);
    cr_assert(rig_segment_path(rig, 0, path));
}

static void check_told(const disk_rig *rig, qr_store_trouble_kind kind, const char *path, uint64_t offset, const char *what) {
    const qr_store_trouble *trouble = &rig->trouble;
    cr_assert_eq(trouble->kind, kind);
    cr_assert_str_eq(trouble->file, path ? strrchr(path, '/') + 1 : "");
    cr_assert_eq(trouble->offset, offset, "%llu", (unsigned long long)trouble->offset);
    cr_assert_not_null(strstr(trouble->what, what), "%s", trouble->what);
    cr_assert(trouble->wall_ms + 60000 > qr_clock_wall_ms() && trouble->wall_ms <= qr_clock_wall_ms());
}

Test(offload_disk_trouble, a_damaged_record_is_told_by_file_and_offset) {
    static const struct {
        uint64_t place;
        const char *what;
    } cases[] = {{0, "magic"}, {70, "checksum"}, {5000, "payload checksum"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        disk_rig rig;
        char path[2 * RIG_PATH_MAX];
        make_segment(&rig, path);
        rig_flip(path, 4096 + 5 * RECORD_BYTES + cases[i].place);
        rig_open(&rig);
        for (uint32_t n = 4; n < 7; n++) cr_assert(rig.store->ops->get(rig.store, rig.found_ids[n], n)); /* in one read */
        rig.store->ops->kick(rig.store);
        rig_settle(&rig);
        cr_assert_eq(rig.trouble_count, 1);
        check_told(&rig, QR_STORE_TROUBLE_DAMAGED, path, 4096 + 5 * RECORD_BYTES, cases[i].what);
        rig_deinit(&rig);
    }
}

Test(offload_disk_trouble, a_record_of_another_chain_in_its_place_is_told) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    unsigned char record[RECORD_BYTES];
    make_segment(&rig, path);
    rig_open(&rig);
    int fd = open(path, O_RDWR);
    cr_assert_eq(pread(fd, record, sizeof record, 4096 + RECORD_BYTES), RECORD_BYTES);
    cr_assert_eq(pwrite(fd, record, sizeof record, 4096 + 2 * RECORD_BYTES), RECORD_BYTES);
    close(fd);
    cr_assert_eq(rig_get(&rig, rig.found_ids[2]), QUIRE_DAMAGED);
    check_told(&rig, QR_STORE_TROUBLE_DAMAGED, path, 4096 + 2 * RECORD_BYTES, "slot");
    rig_deinit(&rig);
}

Test(offload_disk_trouble, what_an_index_finds_is_told_once_somebody_listens) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    make_segment(&rig, path);
    rig_flip(path, 30);
    rig_open(&rig);
    rig_settle(&rig);
    cr_assert_eq(rig.trouble_count, 1);
    check_told(&rig, QR_STORE_TROUBLE_DAMAGED, path, 0, "header checksum");
    rig_deinit(&rig);
    make_segment(&rig, path);
    cr_assert_eq(truncate(path, 100), 0);
    rig_open(&rig);
    rig_settle(&rig);
    check_told(&rig, QR_STORE_TROUBLE_DAMAGED, path, 0, "too short");
    rig_deinit(&rig);
}

/* Without a footer every record speaks for itself. */
Test(offload_disk_trouble, a_record_that_a_scan_leaves_out_is_told) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    make_segment(&rig, path);
    rig_flip(path, 4096 + 3 * RECORD_BYTES + 7000);
    int fd = open(path, O_RDWR);
    unsigned char nothing[4096] = {0};
    off_t end = lseek(fd, 0, SEEK_END);
    for (off_t at = 4096 + COUNT * RECORD_BYTES; at < end; at += 4096) cr_assert_eq(pwrite(fd, nothing, 4096, at), 4096);
    close(fd);
    rig_open(&rig);
    rig_settle(&rig);
    cr_assert_eq(rig.found_count, COUNT - 1);
    cr_assert_eq(rig.trouble_count, 1);
    check_told(&rig, QR_STORE_TROUBLE_DAMAGED, path, 4096 + 3 * RECORD_BYTES, "payload checksum");
    rig_deinit(&rig);
}

Test(offload_disk_trouble, a_failed_call_is_told_with_its_reason) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    faults f = {0};
    make_segment(&rig, path);
    faulty_files *files = faulty_files_create(qr_files_system(), &f, false);
    rig.config.files = faulty_files_table(files);
    rig_open(&rig);
    f.eio_read.rate = 1;
    faulty_files_set(files, &f);
    cr_assert_eq(rig_get(&rig, rig.found_ids[7]), QUIRE_IO);
    check_told(&rig, QR_STORE_TROUBLE_ERROR, path, 4096 + 7 * RECORD_BYTES, "injected");
    f = (faults){.eio_write.rate = 1};
    faulty_files_set(files, &f);
    rig_put(&rig, 50, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert_eq(rig.last_put, QUIRE_IO);
    check_told(&rig, QR_STORE_TROUBLE_ERROR, path, rig.trouble.offset, "injected");
    cr_assert_geq(rig.trouble.offset, 4096 + COUNT * RECORD_BYTES);
    rig_deinit(&rig);
    faulty_files_destroy(files);
}

Test(offload_disk_trouble, a_file_that_went_is_told_by_its_name) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    make_segment(&rig, path);
    rig_open(&rig);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(rig_get(&rig, rig.found_ids[0]), QUIRE_BUSY);
    rig_wait_lost(&rig, COUNT);
    while (!strstr(rig.trouble.what, "is gone")) rig_poll(&rig);
    check_told(&rig, QR_STORE_TROUBLE_ERROR, path, UINT64_MAX, "the file is gone");
    rig_deinit(&rig);
}

/* The disk does not give back what is to be carried along: that says nothing about the record's bytes. */
Test(offload_disk_trouble, what_cannot_be_read_is_told_once_and_is_no_damage) {
    disk_rig rig;
    faults none = {0}, f = {.eio_read.rate = 1};
    faulty_files *files = faulty_files_create(qr_files_system(), &none, false);
    rig_init(&rig, 4 << 20);
    rig.config.files = faulty_files_table(files);
    rig_open(&rig);
    qr_record_id loved = rig_put(&rig, 0, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    rig.store->ops->touch(rig.store, loved);
    faulty_files_set(files, &f);
    for (uint32_t i = 1; !rig.lost[0]; i++) {
        rig_put(&rig, i, QR_RECORD_NONE, 1);
        rig_settle(&rig);
    }
    cr_assert_eq(rig.trouble_count, 1);
    cr_assert_eq(rig.trouble.kind, QR_STORE_TROUBLE_ERROR);
    cr_assert_eq(rig_stats(&rig).io_error_total, 1);
    cr_assert_eq(rig_stats(&rig).corrupt_total, 0);
    rig_deinit(&rig);
    faulty_files_destroy(files);
}

/* Owner's find: what it says of a record is where that lies. */
Test(offload_disk_trouble, where_a_record_lies_can_be_asked) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    qr_store_trouble place;
    make_segment(&rig, path);
    rig_open(&rig);
    cr_assert(rig.store->ops->where(rig.store, rig.found_ids[4], &place));
    cr_assert_str_eq(place.file, strrchr(path, '/') + 1);
    cr_assert_eq(place.offset, 4096 + 4 * RECORD_BYTES);
    cr_assert_neq(place.wall_ms, 0);
    rig_deinit(&rig);
}

/* Nobody listens for long: the newest are kept, the others counted, every one once. */
Test(offload_disk_trouble, more_than_can_be_kept_are_counted) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    faults f = {.eio_read.rate = 1};
    enum { READS = 2 * COUNT };
    make_segment(&rig, path);
    faults none = {0};
    faulty_files *files = faulty_files_create(qr_files_system(), &none, false);
    rig.config.files = faulty_files_table(files);
    rig_open(&rig);
    faulty_files_set(files, &f);
    for (uint32_t i = 0; i < READS; i++) { /* one at a time, and nobody polls */
        cr_assert(rig.store->ops->get(rig.store, rig.found_ids[i % COUNT], i));
        rig.store->ops->kick(rig.store);
        while (rig_stats(&rig).reads_queued) sched_yield();
    }
    cr_assert_eq(rig_stats(&rig).io_error_total, READS);
    rig_settle(&rig);
    cr_assert_eq(rig.trouble_count, 16);
    cr_assert_eq(rig.trouble_missed, READS - 16);
    check_told(&rig, QR_STORE_TROUBLE_ERROR, path, 4096 + (COUNT - 1) * RECORD_BYTES, "injected");
    rig_deinit(&rig);
    faulty_files_destroy(files);
}
