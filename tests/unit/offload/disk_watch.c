/* Folder and files may be removed, moved or replaced under a running store: records go, bytes are released, puts go on or are
 * refused, and nothing is written to a place that is not the store's. */
#include "tests/unit/offload/disk_rig.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "offload/disk_sizes.h"

#define MIB (1ull << 20)
enum { COUNT = 200 };

/* COUNT records in several segments; ids by owner. */
static void make_many(disk_rig *rig, qr_record_id ids[COUNT]) {
    rig_init(rig, 8 * MIB);
    rig->config.retry_us_max = 1000;
    rig_open(rig);
    for (uint32_t i = 0; i < COUNT; i++) ids[i] = rig_put(rig, i, QR_RECORD_NONE, 1);
    rig_settle(rig);
    cr_assert_eq(rig->lost_count, 0);
    cr_assert_gt(rig_segment_count(rig), 2);
}

/* Puts until one is stored; what fails or is refused meanwhile is no crash. */
static qr_record_id put_until_stored(disk_rig *rig, uint32_t owner) {
    qr_record_id record;
    for (uint32_t before = rig->put_ok;;) {
        if (rig_try_put(rig, owner, QR_RECORD_NONE, 1, &record) != QR_STORE_NONE) {
            rig_poll(rig);
            sched_yield();
            continue;
        }
        rig_settle(rig);
        if (rig->put_ok > before) return record;
    }
}

static void check_mode(const char *path, unsigned mode) {
    struct stat about;
    cr_assert_eq(lstat(path, &about), 0);
    cr_assert_eq(about.st_mode & 0777, mode);
}

Test(offload_disk_watch, a_folder_that_is_removed_is_made_again_and_its_bytes_are_released, .timeout = 30) {
    for (int by_reading = 0; by_reading < 2; by_reading++) {
        disk_rig rig, second;
        qr_record_id ids[COUNT];
        make_many(&rig, ids);
        rig_remove_folder(rig.path);
        if (by_reading) cr_assert_eq(rig_get(&rig, ids[3]), QUIRE_BUSY);
        qr_record_id record = put_until_stored(&rig, 500);
        rig_settle(&rig);
        cr_assert_eq(rig.lost_count, COUNT);
        cr_assert_eq(rig_get(&rig, record), QUIRE_OK);
        cr_assert_eq(rig_stats(&rig).record_count, 1);
        cr_assert_eq(rig_stats(&rig).segment_count, 1);
        cr_assert_leq(rig_stats(&rig).used_bytes, 2 * MIB);
        check_mode(rig.path, 0700);
        second = rig;
        rig_fail_open(&second, QUIRE_BUSY, "process");
        rig_close(&rig);
        rig_open(&rig);
        cr_assert_eq(rig.found_count, 1);
        rig_deinit(&rig);
    }
}

Test(offload_disk_watch, a_removed_folder_is_told, .timeout = 30) {
    disk_rig rig;
    qr_record_id ids[COUNT];
    make_many(&rig, ids);
    rig_remove_folder(rig.path);
    put_until_stored(&rig, 500);
    rig_poll(&rig);
    cr_assert_eq(rig.trouble_count, 1, "%s: %s", rig.trouble.file, rig.trouble.what);
    cr_assert_str_empty(rig.trouble.file);
    cr_assert_not_null(strstr(rig.trouble.what, "removed"));
    rig_deinit(&rig);
}

Test(offload_disk_watch, one_file_that_is_missing_makes_all_that_are_missing_known) {
    disk_rig rig;
    qr_record_id ids[COUNT];
    char paths[2][2 * RIG_PATH_MAX];
    make_many(&rig, ids);
    uint64_t used = rig_stats(&rig).used_bytes;
    uint32_t segments = rig_stats(&rig).segment_count;
    cr_assert(rig_segment_path(&rig, 0, paths[0]) && rig_segment_path(&rig, 1, paths[1]));
    cr_assert(unlink(paths[0]) == 0 && unlink(paths[1]) == 0);
    cr_assert_eq(rig_get(&rig, ids[0]), QUIRE_BUSY);
    while (rig_stats(&rig).segment_count > segments - 2) sched_yield();
    rig_settle(&rig);
    cr_assert_eq(rig_stats(&rig).used_bytes, used - 2 * ((used - QR_DISK_FOLDER_BYTES) / segments));
    cr_assert_gt(rig.lost_count, 0);
    cr_assert_lt(rig.lost_count, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        if (!rig.lost[i]) cr_assert_eq(rig_get(&rig, ids[i]), QUIRE_OK);
    rig_deinit(&rig);
}

Test(offload_disk_watch, the_file_that_is_written_to_goes_and_another_is_begun) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    rig_put(&rig, 0, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert(rig_segment_path(&rig, 0, path));
    cr_assert_eq(unlink(path), 0);
    qr_record_id record = put_until_stored(&rig, 1);
    cr_assert_eq(rig.put_ok, 2); /* at the first try */
    cr_assert(rig.lost[0]);
    cr_assert_eq(rig_segment_count(&rig), 1);
    cr_assert_eq(rig_get(&rig, record), QUIRE_OK);
    rig_close(&rig);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, 1);
    rig_deinit(&rig);
}

static void put_for_a_while(disk_rig *rig, uint32_t tries) {
    qr_record_id record;
    uint32_t ok = rig->put_ok;
    for (uint32_t failed = rig->put_failed; rig->put_failed < failed + tries;) {
        if (rig_try_put(rig, 600, QR_RECORD_NONE, 1, &record) != QR_STORE_NONE) sched_yield();
        rig_settle(rig);
    }
    cr_assert_eq(rig->put_ok, ok);
}

Test(offload_disk_watch, a_folder_that_was_moved_is_left_alone_until_it_is_back, .timeout = 30) {
    disk_rig rig;
    qr_record_id ids[COUNT];
    char away[RIG_PATH_MAX + 8];
    make_many(&rig, ids);
    snprintf(away, sizeof away, "%s-away", rig.path);
    cr_assert_eq(rename(rig.path, away), 0);
    put_for_a_while(&rig, 3);
    cr_assert_lt(access(rig.path, F_OK), 0);
    cr_assert_eq(rename(away, rig.path), 0);
    qr_record_id record = put_until_stored(&rig, 500);
    cr_assert_eq(rig_get(&rig, record), QUIRE_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        if (!rig.lost[i]) cr_assert_eq(rig_get(&rig, ids[i]), QUIRE_OK);
    cr_assert_lt(rig.lost_count, COUNT / 2); /* no more than made room */
    rig_deinit(&rig);
}

/* Files that are there, or appear, where the folder was. */
static uint32_t count_files(const char *path) {
    disk_rig look;
    snprintf(look.path, sizeof look.path, "%s", path);
    return rig_segment_count(&look);
}

Test(offload_disk_watch, another_folder_in_its_place_is_not_written_to, .timeout = 30) {
    disk_rig rig;
    qr_record_id ids[COUNT];
    char away[RIG_PATH_MAX + 8], budget[RIG_PATH_MAX + 8];
    make_many(&rig, ids);
    snprintf(away, sizeof away, "%s-away", rig.path);
    snprintf(budget, sizeof budget, "%s/budget", rig.path);
    cr_assert_eq(rename(rig.path, away), 0);
    cr_assert_eq(mkdir(rig.path, 0700), 0);
    put_for_a_while(&rig, 3);
    rig.store->ops->drop(rig.store, ids[COUNT - 1], true);
    for (int i = 0; i < 1000; i++) sched_yield();
    cr_assert_eq(rig.store->ops->erasing(rig.store), 1); /* nor is anything said to be erased */
    rig_close(&rig);
    cr_assert_eq(count_files(rig.path), 0);
    cr_assert_lt(access(budget, F_OK), 0);
    cr_assert_eq(rmdir(rig.path), 0);
    cr_assert_eq(rename(away, rig.path), 0);
    rig_deinit(&rig);
}

Test(offload_disk_watch, a_folder_that_somebody_made_anew_is_taken_when_it_is_empty, .timeout = 30) {
    disk_rig rig;
    qr_record_id ids[COUNT];
    make_many(&rig, ids);
    rig_remove_folder(rig.path);
    cr_assert_eq(mkdir(rig.path, 0700), 0);
    put_until_stored(&rig, 500);
    cr_assert_eq(rig.lost_count, COUNT);
    cr_assert_eq(count_files(rig.path), 1);
    rig_deinit(&rig);
}

Test(offload_disk_watch, a_folder_that_somebody_put_there_with_segments_is_left_alone, .timeout = 30) {
    disk_rig rig;
    qr_record_id ids[COUNT];
    char file[2 * RIG_PATH_MAX], lock[RIG_PATH_MAX + 8];
    make_many(&rig, ids);
    rig_remove_folder(rig.path);
    cr_assert_eq(mkdir(rig.path, 0700), 0);
    snprintf(file, sizeof file, "%s/segment-0000000000000001.quire", rig.path);
    close(open(file, O_WRONLY | O_CREAT, 0600));
    put_for_a_while(&rig, 3);
    rig_settle(&rig);
    cr_assert_eq(rig.lost_count, COUNT); /* what was removed is gone all the same */
    cr_assert_eq(rig_stats(&rig).segment_count, 0);
    cr_assert_not_null(strstr(rig.trouble.what, "another folder"), "%s", rig.trouble.what);
    cr_assert_eq(count_files(rig.path), 1);
    snprintf(lock, sizeof lock, "%s/lock", rig.path);
    cr_assert_lt(access(lock, F_OK), 0); /* it is not signed either */
    cr_assert_eq(unlink(file), 0);
    put_until_stored(&rig, 500);
    rig_deinit(&rig);
}

Test(offload_disk_watch, a_folder_that_was_moved_is_read_from_all_the_same, .timeout = 30) {
    disk_rig rig;
    qr_record_id ids[COUNT];
    char away[RIG_PATH_MAX + 8];
    make_many(&rig, ids);
    snprintf(away, sizeof away, "%s-away", rig.path);
    uint32_t segments = rig_segment_count(&rig);
    cr_assert_eq(rename(rig.path, away), 0);
    for (uint32_t i = 0; i < COUNT; i++) cr_assert_eq(rig_get(&rig, ids[i]), QUIRE_OK);
    cr_assert_eq(rename(away, rig.path), 0);
    cr_assert_eq(rig.lost_count, 0);
    rig_close(&rig);
    cr_assert_eq(rig_segment_count(&rig), segments);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, COUNT);
    rig_deinit(&rig);
}

/* ---- moved while the writer is at work ---- */

/* Files whose next sync moves the folder away, right after it was looked at. */
typedef struct mover {
    qr_files files;
    qr_files_ops ops;
    char path[RIG_PATH_MAX], away[RIG_PATH_MAX + 8];
    bool leaves_another; /* at the path */
    _Atomic bool armed, moved;
} mover;

static quire_status moving_sync(qr_files *files, int fd, quire_error *error) {
    mover *m = (mover *)(void *)files;
    if (atomic_exchange(&m->armed, false)) {
        bool done = rename(m->path, m->away) == 0 && (!m->leaves_another || mkdir(m->path, 0700) == 0);
        atomic_store(&m->moved, done);
    }
    return qr_files_system()->ops->sync(files, fd, error);
}

static void open_moving(disk_rig *rig, mover *m, bool leaves_another) {
    rig_init(rig, 8 * MIB);
    *m = (mover){.files = {&m->ops}, .ops = *qr_files_system()->ops, .leaves_another = leaves_another};
    m->ops.sync = moving_sync;
    memcpy(m->path, rig->path, sizeof m->path);
    snprintf(m->away, sizeof m->away, "%s-away", rig->path);
    rig->config.files = &m->files;
    rig->config.retry_us_max = 1000;
    rig_open(rig);
}

/* Puts until a segment is full and sealed, and the folder is away. */
static void put_until_moved(disk_rig *rig, mover *m) {
    qr_record_id record;
    for (uint32_t i = 0; i < COUNT; i++) rig_put(rig, i, QR_RECORD_NONE, 1), rig_settle(rig);
    atomic_store(&m->armed, true);
    for (uint32_t i = COUNT; !atomic_load(&m->moved); i++) {
        (void)rig_try_put(rig, i, QR_RECORD_NONE, 1, &record);
        rig_settle(rig);
    }
    put_for_a_while(rig, 2);
}

Test(offload_disk_watch, a_folder_that_moves_between_two_calls_loses_nothing, .timeout = 30) {
    disk_rig rig;
    mover m;
    qr_record_id record;
    open_moving(&rig, &m, false);
    put_until_moved(&rig, &m);
    cr_assert_eq(rename(m.away, rig.path), 0);
    put_until_stored(&rig, 900);
    cr_assert_eq(rig.lost_count, 0);
    cr_assert_eq(rig_stats(&rig).segment_count, rig_segment_count(&rig));
    rig.store->ops->erase_foreign(rig.store, NULL, 0);
    rig_settle(&rig);
    cr_assert_eq(rig_try_put(&rig, 901, QR_RECORD_NONE, 1, &record), QR_STORE_NONE);
    rig_settle(&rig);
    cr_assert_eq(rig.last_put, QUIRE_OK);
    cr_assert_eq(rig_stats(&rig).segment_count, rig_segment_count(&rig));
    rig_deinit(&rig);
}

Test(offload_disk_watch, another_folder_that_takes_its_place_between_two_calls_stays_empty, .timeout = 30) {
    disk_rig rig;
    mover m;
    open_moving(&rig, &m, true);
    put_until_moved(&rig, &m);
    cr_assert_eq(rmdir(rig.path), 0, "something was made in it");
    cr_assert_eq(rename(m.away, rig.path), 0);
    put_until_stored(&rig, 900);
    cr_assert_eq(rig.lost_count, 0);
    rig_deinit(&rig);
}

/* ---- given up, and back ---- */

static void erase_key(disk_rig *rig, const char *key) {
    rig->store->ops->erase_foreign(rig->store, key, strlen(key));
    rig_settle(rig);
    cr_assert_eq(rig->store->ops->erasing(rig->store), 0);
}

/* Nobody has its records any more, so whatever is erased, they go with it. */
Test(offload_disk_watch, a_file_that_comes_back_after_it_was_given_up_is_erased) {
    for (int forget = 0; forget < 2; forget++) {
        disk_rig rig;
        qr_record_id ids[COUNT];
        unsigned char payload[RIG_PAYLOAD];
        char path[2 * RIG_PATH_MAX], away[2 * RIG_PATH_MAX + 8];
        make_many(&rig, ids);
        rig_fill_payload(payload, 0);
        cr_assert(rig_segment_path(&rig, 0, path));
        snprintf(away, sizeof away, "%s-away", rig.path);
        cr_assert_eq(rename(path, away), 0);
        cr_assert_eq(rig_get(&rig, ids[0]), QUIRE_BUSY);
        while (rig.lost_count == 0) rig_poll(&rig);
        cr_assert_eq(rename(away, path), 0);
        cr_assert(rig_folder_has(&rig, payload, 64));
        if (forget) erase_key(&rig, "key");
        else rig.store->ops->drop(rig.store, ids[COUNT - 1], true);
        rig_settle(&rig);
        cr_assert_eq(rig.store->ops->erasing(rig.store), 0);
        cr_assert_not(rig_folder_has(&rig, payload, 64));
        cr_assert_eq(rig_stats(&rig).segment_count, rig_segment_count(&rig));
        rig_deinit(&rig);
    }
}

/* Another model's segment that is put into the folder of a running store: what is not asked for stays. */
Test(offload_disk_watch, a_segment_that_somebody_put_there_is_looked_through_by_an_erasure) {
    disk_rig rig, other;
    char from[2 * RIG_PATH_MAX], to[3 * RIG_PATH_MAX];
    unsigned char payload[RIG_PAYLOAD];
    rig_init(&other, 8 * MIB);
    other.config.fingerprint.weights ^= 1;
    rig_open(&other);
    rig_put_keyed(&other, 7, QR_RECORD_NONE, 1, "one");
    rig_put_keyed(&other, 8, QR_RECORD_NONE, 1, "two");
    rig_settle(&other);
    rig_close(&other);
    cr_assert(rig_segment_path(&other, 0, from));
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    snprintf(to, sizeof to, "%s%s", rig.path, strrchr(from, '/'));
    cr_assert_eq(rename(from, to), 0);
    erase_key(&rig, "one");
    rig_fill_payload(payload, 7);
    cr_assert_not(rig_folder_has(&rig, payload, 64));
    rig_fill_payload(payload, 8);
    cr_assert(rig_folder_has(&rig, payload, 64));
    cr_assert_eq(rig_stats(&rig).foreign_segment_count, 1);
    rig.store->ops->erase_foreign(rig.store, NULL, 0);
    rig_settle(&rig);
    cr_assert_eq(rig_segment_count(&rig), 0);
    rig_deinit(&rig);
    rig_deinit(&other);
}

/* ---- replaced ---- */

static void replace_by_copy(const char *path) {
    char copy[2 * RIG_PATH_MAX + 8], bytes[4096];
    snprintf(copy, sizeof copy, "%s.copy", path);
    FILE *from = fopen(path, "r"), *to = fopen(copy, "w");
    cr_assert(from && to);
    for (size_t size; (size = fread(bytes, 1, sizeof bytes, from)) > 0;) cr_assert_eq(fwrite(bytes, 1, size, to), size);
    cr_assert(fclose(from) == 0 && fclose(to) == 0 && rename(copy, path) == 0);
}

Test(offload_disk_watch, nothing_is_put_into_a_file_that_was_replaced) {
    disk_rig rig;
    qr_record_id ids[3];
    char path[2 * RIG_PATH_MAX];
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    for (uint32_t i = 0; i < 2; i++) ids[i] = rig_put(&rig, i, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert(rig_segment_path(&rig, 0, path));
    replace_by_copy(path);
    ids[2] = rig_put(&rig, 2, ids[1], 2);
    rig_settle(&rig);
    cr_assert_eq(rig.last_put, QUIRE_OK);
    cr_assert_not_null(strstr(rig.trouble.what, "replaced"), "%s", rig.trouble.what);
    for (int i = 0; i < 3; i++) cr_assert_eq(rig_get(&rig, ids[i]), QUIRE_OK);
    cr_assert_eq(rig_seal(&rig), QUIRE_OK); /* the copy too */
    rig_close(&rig);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, 3);
    rig_deinit(&rig);
}

/* The first has its folder taken away, and a second process makes one of the same name. */
Test(offload_disk_watch, two_processes_never_write_into_one_folder, .timeout = 60) {
    disk_rig rig;
    qr_record_id ids[COUNT];
    int ready[2], go[2], status;
    char byte = 0;
    make_many(&rig, ids);
    cr_assert(pipe(ready) == 0 && pipe(go) == 0);
    rig_remove_folder(rig.path);
    pid_t child = fork();
    if (child == 0) {
        disk_rig second;
        memset(&second, 0, sizeof second);
        memcpy(second.path, rig.path, sizeof second.path);
        second.config = rig.config;
        second.config.path = second.path;
        rig_open(&second);
        if (write(ready[1], "x", 1) != 1 || read(go[0], &byte, 1) != 1) _exit(1);
        qr_record_id record = rig_put(&second, 700, QR_RECORD_NONE, 1);
        rig_settle(&second);
        bool well = rig_get(&second, record) == QUIRE_OK && rig_segment_count(&second) == 1;
        rig_close(&second);
        _exit(well ? 7 : 8);
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    put_for_a_while(&rig, 3);
    cr_assert_eq(count_files(rig.path), 0);
    cr_assert_not_null(strstr(rig.trouble.what, "has the folder open"), "%s", rig.trouble.what);
    cr_assert_eq(write(go[1], "x", 1), 1);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(WEXITSTATUS(status), 7);
    rig_deinit(&rig);
}
