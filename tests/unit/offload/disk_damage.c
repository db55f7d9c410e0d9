/* R09 at the level of the store: files that are missing, short, altered or something else are a miss, never a crash and never
 * wrong bytes. */
#include "tests/unit/offload/disk_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/record.h"
#include "tests/support/faulty_files.h"

#define MIB (1ull << 20)
enum { COUNT = 12, RECORD_BYTES = 4096 + RIG_PAYLOAD };

/* COUNT records in one segment, closed. */
static void make_segment(disk_rig *rig, char path[2 * RIG_PATH_MAX]) {
    rig_init(rig, 32 * MIB);
    rig_open(rig);
    for (uint32_t i = 0; i < COUNT; i++) rig_put(rig, i, QR_RECORD_NONE, 1);
    rig_settle(rig);
    rig_close(rig);
    cr_assert(rig_segment_path(rig, 0, path));
}

static void get_each(disk_rig *rig, uint32_t *ok, uint32_t *failed) {
    uint32_t ok_before = rig->get_ok, failed_before = rig->get_failed;
    for (uint32_t i = 0; i < rig->found_count; i++) {
        qr_record_id id = rig->found_ids[rig->found_owners[i]];
        if (rig->lost[rig->found_owners[i]]) continue;
        cr_assert(rig->store->ops->get(rig->store, id, i));
        rig->store->ops->kick(rig->store);
        rig_settle(rig);
    }
    *ok = rig->get_ok - ok_before;
    *failed = rig->get_failed - failed_before;
}

Test(offload_disk_damage, one_flipped_bit_costs_one_record) {
    static const uint64_t places[] = {0, 9, 20, 70, 130, 1160, 4000, 4096, 4096 + RIG_PAYLOAD - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        disk_rig rig;
        char path[2 * RIG_PATH_MAX];
        uint32_t ok, failed;
        make_segment(&rig, path);
        rig_flip(path, 4096 + 5 * RECORD_BYTES + places[i]);
        rig_open(&rig);
        cr_assert_eq(rig.found_count, COUNT); /* the footer does not know yet */
        get_each(&rig, &ok, &failed);
        cr_assert_eq(ok, COUNT - 1, "byte %zu", (size_t)places[i]);
        cr_assert_eq(failed, 1);
        cr_assert_eq(rig_stats(&rig).corrupt_total, 1);
        rig_deinit(&rig);
    }
}

Test(offload_disk_damage, a_damaged_record_says_so_and_can_be_dropped) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    make_segment(&rig, path);
    rig_flip(path, 4096 + 2 * RECORD_BYTES + 5000);
    rig_open(&rig);
    cr_assert_eq(rig_get(&rig, rig.found_ids[2]), QUIRE_DAMAGED);
    rig.store->ops->drop(rig.store, rig.found_ids[2], false);
    rig_close(&rig);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, COUNT - 1);
    cr_assert_eq(rig_stats(&rig).corrupt_total, 0);
    rig_deinit(&rig);
}

Test(offload_disk_damage, without_its_footer_a_segment_is_read_record_by_record) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    make_segment(&rig, path);
    struct stat about;
    cr_assert_eq(stat(path, &about), 0);
    rig_flip(path, 4096 + 3 * RECORD_BYTES + 7000);
    /* Every page behind the records: one of them is the footer's first. */
    for (uint64_t at = 4096 + COUNT * RECORD_BYTES; at < (uint64_t)about.st_size; at += 4096) rig_flip(path, at);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, COUNT - 1);
    qr_store_stats stats = rig_stats(&rig);
    cr_assert_geq(stats.corrupt_total, 1);
    rig_deinit(&rig);
}

Test(offload_disk_damage, a_segment_that_lost_a_byte_still_gives_its_records) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    struct stat about;
    uint32_t ok, failed;
    make_segment(&rig, path);
    cr_assert_eq(stat(path, &about), 0);
    cr_assert_eq(truncate(path, about.st_size - 1), 0);
    rig_open(&rig);
    get_each(&rig, &ok, &failed);
    cr_assert_eq(ok, COUNT);
    cr_assert_eq(failed, 0);
    rig_deinit(&rig);
}

Test(offload_disk_damage, a_record_that_was_cut_off_is_left_out) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    uint32_t ok, failed;
    make_segment(&rig, path);
    cr_assert_eq(truncate(path, 4096 + 8 * RECORD_BYTES - 1), 0);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, 7);
    get_each(&rig, &ok, &failed);
    cr_assert_eq(ok, 7);
    cr_assert_geq(rig_stats(&rig).io_error_total, 1);
    rig_deinit(&rig);
}

Test(offload_disk_damage, empty_and_half_made_files_go) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX], other[2 * RIG_PATH_MAX];
    make_segment(&rig, path);
    cr_assert_eq(truncate(path, 0), 0);
    snprintf(other, sizeof other, "%s/segment-00000000000000aa.quire", rig.path);
    int fd = open(other, O_WRONLY | O_CREAT | O_EXCL, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(ftruncate(fd, 1 << 20), 0); /* taken, but its header was not written */
    close(fd);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, 0);
    cr_assert_eq(rig_segment_count(&rig), 0);
    rig_put(&rig, 1, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert_eq(rig.last_put, QUIRE_OK);
    rig_deinit(&rig);
}

Test(offload_disk_damage, a_flipped_bit_in_a_segments_header_costs_the_segment) {
    for (uint64_t at = 0; at < 80; at += 9) {
        disk_rig rig;
        char path[2 * RIG_PATH_MAX];
        make_segment(&rig, path);
        rig_flip(path, at);
        rig_open(&rig);
        cr_assert_eq(rig.found_count, 0);
        cr_assert_eq(rig_stats(&rig).corrupt_total, 1);
        cr_assert_eq(rig_segment_count(&rig), 0);
        rig_deinit(&rig);
    }
}

Test(offload_disk_damage, a_file_that_goes_while_it_is_indexed_loses_its_records) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    make_segment(&rig, path);
    rig_open(&rig);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(rig_get(&rig, rig.found_ids[0]), QUIRE_BUSY);
    rig_wait_lost(&rig, COUNT);
    qr_store_stats stats = rig_stats(&rig);
    cr_assert_geq(stats.io_error_total, 1);
    cr_assert_eq(stats.record_count, 0);
    rig_put(&rig, 50, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert_eq(rig.last_put, QUIRE_OK);
    rig_deinit(&rig);
}

/* As when a server has as many connections as descriptors: nothing is wrong with the files. */
Test(offload_disk_damage, too_many_open_files_cost_no_record) {
    disk_rig rig;
    struct rlimit before, none;
    rig_init(&rig, 1u << 20);
    rig_open(&rig);
    qr_record_id record = rig_put(&rig, 1, QR_RECORD_NONE, 1);
    cr_assert_eq(rig_seal(&rig), QUIRE_OK);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int i = 0; i < 3; i++) cr_assert_eq(rig_get(&rig, record), QUIRE_BUSY);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    cr_assert_eq(rig_get(&rig, record), QUIRE_OK);
    cr_assert_eq(rig.lost_count, 0);
    rig_deinit(&rig);
}

Test(offload_disk_damage, a_folder_in_its_place_is_no_file) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    make_segment(&rig, path);
    rig_open(&rig);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(rig_get(&rig, rig.found_ids[3]), QUIRE_BUSY);
    rig_wait_lost(&rig, COUNT);
    rig_put(&rig, 50, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert_eq(rig.last_put, QUIRE_OK);
    rig_close(&rig);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, 1);
    rig_deinit(&rig);
}

Test(offload_disk_damage, cut_short_while_it_is_indexed) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    uint32_t ok, failed;
    make_segment(&rig, path);
    rig_open(&rig);
    cr_assert_eq(truncate(path, 4096 + 4 * RECORD_BYTES - 1), 0);
    get_each(&rig, &ok, &failed);
    cr_assert_eq(ok, 3);
    cr_assert_eq(failed, COUNT - 3);
    rig_deinit(&rig);
}

Test(offload_disk_damage, a_bad_neighbour_does_not_spoil_a_joint_read) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    make_segment(&rig, path);
    rig_open(&rig);
    cr_assert_eq(truncate(path, 4096 + 8 * RECORD_BYTES - 1), 0);
    rig_flip(path, 4096 + 2 * RECORD_BYTES + 4200);
    for (uint32_t i = COUNT; i-- > 0;) cr_assert(rig.store->ops->get(rig.store, rig.found_ids[i], i));
    rig.store->ops->kick(rig.store);
    rig_settle(&rig);
    cr_assert_eq(rig.get_ok, 6);
    cr_assert_eq(rig.get_failed, COUNT - 6);
    rig_deinit(&rig);
}

Test(offload_disk_damage, bytes_of_another_place_prove_nothing) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    unsigned char record[RECORD_BYTES];
    make_segment(&rig, path);
    int fd = open(path, O_RDWR);
    cr_assert_eq(pread(fd, record, sizeof record, 4096 + RECORD_BYTES), RECORD_BYTES);
    cr_assert_eq(pwrite(fd, record, sizeof record, 4096 + 2 * RECORD_BYTES), RECORD_BYTES);
    close(fd);
    rig_open(&rig);
    cr_assert_eq(rig_get(&rig, rig.found_ids[1]), QUIRE_OK);
    cr_assert_eq(rig_get(&rig, rig.found_ids[2]), QUIRE_DAMAGED);
    rig_deinit(&rig);
}

/* The version, with the check of it that every version has, so that it is not taken for damage. */
static void set_version(const char *path, uint32_t version) {
    unsigned char page[16];
    int fd = open(path, O_RDWR);
    cr_assert_eq(pread(fd, page, sizeof page, 0), 16);
    memcpy(page + 8, &version, 4);
    uint32_t check = (uint32_t)qr_record_checksum(page, 12);
    memcpy(page + 12, &check, 4);
    cr_assert_eq(pwrite(fd, page, sizeof page, 0), 16);
    close(fd);
}

Test(offload_disk_damage, an_unknown_version_is_named_and_left_alone) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    make_segment(&rig, path);
    set_version(path, 9);
    rig_fail_open(&rig, QUIRE_UNSUPPORTED, "version 9");
    rig_fail_open(&rig, QUIRE_UNSUPPORTED, "segment-");
    set_version(path, 1);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, COUNT);
    rig_deinit(&rig);
}

/* A sync that fails leaves the segment without a footer; by the time that one is made, some of it cannot be read. */
Test(offload_disk_damage, a_bad_sector_in_a_segment_without_a_footer_costs_its_record) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    faults f = {0};
    rig_init(&rig, 32 * MIB);
    faulty_files *files = faulty_files_create(qr_files_system(), &f, false);
    rig.config.files = faulty_files_table(files);
    rig_open(&rig);
    qr_record_id ids[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) ids[i] = rig_put(&rig, i, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    f.eio_sync.rate = 1;
    faulty_files_set(files, &f);
    cr_assert_eq(rig_seal(&rig), QUIRE_IO);
    cr_assert_eq(rig.lost_count, 0);
    cr_assert(rig_segment_path(&rig, 0, path));
    cr_assert_eq(truncate(path, 4096 + (COUNT - 2) * RECORD_BYTES), 0);
    f.eio_sync.rate = 0;
    faulty_files_set(files, &f);
    cr_assert_eq(rig_seal(&rig), QUIRE_OK);
    cr_assert_eq(rig.lost_count, 2);
    cr_assert(rig.lost[COUNT - 1] && rig.lost[COUNT - 2]);
    for (uint32_t i = 0; i < COUNT - 2; i++) cr_assert_eq(rig_get(&rig, ids[i]), QUIRE_OK);
    cr_assert_eq(rig_seal(&rig), QUIRE_OK);
    rig_close(&rig);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, COUNT - 2);
    cr_assert_eq(rig_stats(&rig).corrupt_total, 0);
    rig_deinit(&rig);
    faulty_files_destroy(files);
}

/* ---- files that are longer than they were made ---- */

/* Several segments, and a cap that has room for hardly another. */
static void make_full(disk_rig *rig) {
    rig_init(rig, 8 * MIB);
    rig_open(rig);
    for (uint32_t i = 0; i < 400; i++) rig_put(rig, i, QR_RECORD_NONE, 1);
    rig_settle(rig);
    rig_close(rig);
    rig_open(rig); /* what was found, of what was not lost */
    rig_close(rig);
}

Test(offload_disk_damage, holes_behind_a_segment_cost_nobody_anything) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    make_full(&rig);
    uint32_t found = rig.found_count, segments = rig_segment_count(&rig);
    cr_assert_gt(segments, 3);
    cr_assert(rig_segment_path(&rig, 1, path));
    cr_assert_eq(truncate(path, 64ll << 30), 0);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, found);
    cr_assert_eq(rig_segment_count(&rig), segments);
    cr_assert_leq(rig_stats(&rig).used_bytes, 8 * MIB);
    rig_close(&rig);
    rig.config.fingerprint.weights = 99; /* the same for a model that it is not of */
    rig_open(&rig);
    cr_assert_eq(rig.foreign_count, found);
    cr_assert_eq(rig_segment_count(&rig), segments);
    rig_deinit(&rig);
}

Test(offload_disk_damage, bytes_behind_a_segment_cost_that_one) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX], first[2 * RIG_PATH_MAX];
    static unsigned char rubbish[4 << 20];
    make_full(&rig);
    uint32_t segments = rig_segment_count(&rig);
    cr_assert(rig_segment_path(&rig, 0, first) && rig_segment_path(&rig, 2, path));
    memset(rubbish, 7, sizeof rubbish);
    int fd = open(path, O_WRONLY | O_APPEND);
    cr_assert_eq(write(fd, rubbish, sizeof rubbish), (ssize_t)sizeof rubbish);
    cr_assert_eq(fsync(fd), 0); /* a file system may take the space that late */
    close(fd);
    rig_open(&rig);
    cr_assert_lt(access(path, F_OK), 0);
    cr_assert_eq(access(first, F_OK), 0);
    cr_assert_eq(rig_segment_count(&rig), segments - 1);
    cr_assert_leq(rig_stats(&rig).used_bytes, 8 * MIB);
    rig_deinit(&rig);
}

/* ---- an index that is given up ---- */

static uint32_t questions, patience;

static bool out_of_patience(void *context) {
    (void)context;
    return ++questions > patience;
}

Test(offload_disk_damage, an_index_that_is_given_up_changes_nothing) {
    disk_rig rig;
    char copy[RIG_PATH_MAX + 8];
    make_full(&rig);
    rig_open(&rig);
    uint32_t found = rig.found_count;
    for (uint32_t i = 500; i < 505; i++) rig_put(&rig, i, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    snprintf(copy, sizeof copy, "%s-copy", rig.path);
    rig_copy_folder(&rig, copy); /* with a segment to be scanned */
    rig_close(&rig);
    rig_remove_folder(rig.path);
    cr_assert_eq(rename(copy, rig.path), 0);
    uint32_t segments = rig_segment_count(&rig);
    rig.config.cancelled = out_of_patience;
    bool over = false;
    for (patience = 0; !over; patience++) {
        quire_error error;
        questions = 0;
        quire_status status = qr_disk_open(&rig.config, &rig.store, &error);
        over = status == QUIRE_OK;
        if (over) break;
        cr_assert_eq(status, QUIRE_CANCELLED);
        cr_assert_null(rig.store);
        cr_assert_eq(rig_segment_count(&rig), segments);
    }
    cr_assert_geq(patience, 2 * segments); /* asked for each header, and each footer or scan */
    uint32_t asked = questions;
    rig_put(&rig, 600, QR_RECORD_NONE, 1);
    rig_close(&rig);
    cr_assert_eq(questions, asked); /* whoever ends a store wants it to be closed well */
    rig.config.cancelled = NULL;
    rig_open(&rig);
    cr_assert_geq(rig.found_count, found - 20);
    cr_assert_leq(rig_stats(&rig).corrupt_total, 0);
    rig_deinit(&rig);
}
