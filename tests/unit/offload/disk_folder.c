#include "tests/unit/offload/disk_rig.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ull << 20)

static unsigned mode_of(const char *path) {
    struct stat about;
    cr_assert_eq(lstat(path, &about), 0);
    return about.st_mode & 0777;
}

Test(offload_disk_folder, folder_and_files_are_their_owners_alone) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    umask(0);
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    rig_put(&rig, 0, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert_eq(mode_of(rig.path), 0700);
    cr_assert(rig_segment_path(&rig, 0, path));
    cr_assert_eq(mode_of(path), 0600);
    snprintf(path, sizeof path, "%s/lock", rig.path);
    cr_assert_eq(mode_of(path), 0600);
    snprintf(path, sizeof path, "%s/budget", rig.path);
    cr_assert_eq(mode_of(path), 0600);
    rig_deinit(&rig);
}

Test(offload_disk_folder, a_second_opener_is_refused_by_pid_until_the_first_has_closed) {
    disk_rig rig, second;
    char pid[32];
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    second = rig;
    snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    rig_fail_open(&second, QUIRE_BUSY, pid);
    pid_t child = fork();
    if (child == 0) {
        quire_error error;
        _exit(qr_disk_open(&second.config, &second.store, &error) == QUIRE_BUSY ? 7 : 8);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(WEXITSTATUS(status), 7);
    rig_put(&rig, 0, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert_eq(rig.last_put, QUIRE_OK);
    rig_close(&rig);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, 1);
    rig_deinit(&rig);
}

Test(offload_disk_folder, a_folder_that_others_may_write_or_own_or_a_link_is_refused_by_name) {
    disk_rig rig;
    char target[RIG_PATH_MAX + 8];
    rig_init(&rig, 32 * MIB);
    cr_assert_eq(mkdir(rig.path, 0700), 0);
    cr_assert_eq(chmod(rig.path, 0770), 0);
    rig_fail_open(&rig, QUIRE_IO, "others may write");
    rig_fail_open(&rig, QUIRE_IO, rig.path);
    cr_assert_eq(chmod(rig.path, 0700), 0);
    if (geteuid() == 0) {
        cr_assert_eq(chown(rig.path, 12345, (gid_t)-1), 0);
        rig_fail_open(&rig, QUIRE_IO, "belongs to user 12345");
        cr_assert_eq(chown(rig.path, 0, (gid_t)-1), 0);
    }
    snprintf(target, sizeof target, "%s-real", rig.path);
    cr_assert_eq(rename(rig.path, target), 0);
    cr_assert_eq(symlink(target, rig.path), 0);
    rig_fail_open(&rig, QUIRE_IO, "link");
    cr_assert_eq(unlink(rig.path), 0);
    int fd = open(rig.path, O_WRONLY | O_CREAT, 0600);
    close(fd);
    rig_fail_open(&rig, QUIRE_IO, "not a folder");
    cr_assert_eq(unlink(rig.path), 0);
    cr_assert_eq(rmdir(target), 0);
}

Test(offload_disk_folder, files_of_other_names_are_left_alone_and_links_not_followed) {
    disk_rig rig;
    char notes[2 * RIG_PATH_MAX], link[2 * RIG_PATH_MAX];
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    rig_close(&rig);
    snprintf(notes, sizeof notes, "%s/segment-notes.quire", rig.path);
    snprintf(link, sizeof link, "%s/segment-0000000000000001.quire", rig.path);
    int fd = open(notes, O_WRONLY | O_CREAT, 0600);
    close(fd);
    cr_assert_eq(symlink(notes, link), 0);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, 0);
    cr_assert_eq(access(notes, F_OK), 0);
    rig_put(&rig, 0, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert_eq(rig.last_put, QUIRE_OK);
    struct stat about;
    cr_assert_eq(stat(notes, &about), 0);
    cr_assert_eq(about.st_size, 0);
    rig_deinit(&rig);
}

Test(offload_disk_folder, folders_on_the_way_are_made) {
    disk_rig rig;
    char deep[RIG_PATH_MAX + 16], middle[RIG_PATH_MAX + 16];
    rig_init(&rig, 32 * MIB);
    snprintf(deep, sizeof deep, "%s/a/b/", rig.path);
    snprintf(middle, sizeof middle, "%s/a", rig.path);
    rig.config.path = deep;
    rig_open(&rig);
    rig_close(&rig);
    cr_assert_eq(mode_of(middle), 0700);
    rig_remove_folder(deep);
    rig_remove_folder(middle);
    rig_remove_folder(rig.path);
}

/* Removing a file must not let anybody in. */
Test(offload_disk_folder, without_its_lock_file_a_second_process_is_refused_all_the_same) {
    disk_rig rig;
    char lock[RIG_PATH_MAX + 8];
    int status;
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    snprintf(lock, sizeof lock, "%s/lock", rig.path);
    cr_assert_eq(unlink(lock), 0);
    pid_t child = fork();
    if (child == 0) {
        disk_rig second = rig;
        quire_error error;
        _exit(qr_disk_open(&second.config, &second.store, &error) == QUIRE_BUSY ? 7 : 8);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(WEXITSTATUS(status), 7);
    cr_assert_lt(access(lock, F_OK), 0); /* the other has signed nothing */
    rig_put(&rig, 0, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert_eq(rig.last_put, QUIRE_OK);
    rig_deinit(&rig);
}

/* ---- folders that cannot be written ---- */

enum { NOBODY = 65534, COUNT = 12, RECORD_BYTES = 4096 + RIG_PAYLOAD };

static void chown_each(const disk_rig *rig) {
    char path[2 * RIG_PATH_MAX];
    cr_assert_eq(chown(rig->path, NOBODY, NOBODY), 0);
    for (uint32_t i = 0; rig_segment_path(rig, i, path); i++) cr_assert_eq(chown(path, NOBODY, NOBODY), 0);
    snprintf(path, sizeof path, "%s/lock", rig->path);
    (void)!chown(path, NOBODY, NOBODY);
}

/* Permissions say nothing to root: from here on it is nobody's. */
static void close_folder(disk_rig *rig) {
    if (geteuid() == 0) {
        chown_each(rig);
        cr_assert_eq(seteuid(NOBODY), 0);
    }
    cr_assert_eq(chmod(rig->path, 0500), 0);
}

static void open_folder(disk_rig *rig) {
    cr_assert_eq(chmod(rig->path, 0700), 0);
    if (getuid() == 0) cr_assert_eq(seteuid(0), 0);
    rig_deinit(rig);
}

static void make_closed(disk_rig *rig, bool killed) {
    char copy[RIG_PATH_MAX + 8];
    rig_init(rig, 32 * MIB);
    rig_open(rig);
    for (uint32_t i = 0; i < COUNT; i++) rig_put(rig, i, QR_RECORD_NONE, 1);
    rig_settle(rig);
    snprintf(copy, sizeof copy, "%s-copy", rig->path);
    if (killed) rig_copy_folder(rig, copy);
    rig_close(rig);
    if (killed) {
        rig_remove_folder(rig->path);
        cr_assert_eq(rename(copy, rig->path), 0);
    }
    close_folder(rig);
}

Test(offload_disk_folder, a_folder_that_cannot_be_written_is_refused_unless_reading_is_enough) {
    disk_rig rig;
    make_closed(&rig, false);
    rig_fail_open(&rig, QUIRE_IO, "cannot be written");
    open_folder(&rig);
}

static struct timespec changed_at(const char *path) {
    struct stat about;
    cr_assert_eq(stat(path, &about), 0);
    return about.st_ctim;
}

static bool same_time(struct timespec a, struct timespec b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

/* `killed`: its segment has no footer. */
static void check_served(bool killed) {
    disk_rig rig;
    qr_record_id record;
    char path[2 * RIG_PATH_MAX];
    make_closed(&rig, killed);
    cr_assert(rig_segment_path(&rig, 0, path));
    struct timespec folder_before = changed_at(rig.path), file_before = changed_at(path);
    rig.config.may_only_read = true;
    rig_open(&rig);
    cr_assert_eq(rig.found_count, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) cr_assert_eq(rig_get(&rig, rig.found_ids[i]), QUIRE_OK);
    cr_assert_eq(rig_try_put(&rig, 50, QR_RECORD_NONE, 1, &record), QR_STORE_READ_ONLY);
    cr_assert_eq(rig_seal(&rig), QUIRE_OK);
    cr_assert_eq(rig_stats(&rig).io_error_total, 0);
    rig.store->ops->drop(rig.store, rig.found_ids[0], true);
    rig.store->ops->drop(rig.store, rig.found_ids[1], false);
    for (int i = 0; i < 1000; i++) sched_yield();
    cr_assert_eq(rig.store->ops->erasing(rig.store), 1); /* it cannot be, and nobody says that it is */
    rig_close(&rig);
    cr_assert(same_time(changed_at(rig.path), folder_before) && same_time(changed_at(path), file_before));
    open_folder(&rig);
}

Test(offload_disk_folder, a_folder_that_cannot_be_written_is_served_and_stays_as_it_is) { check_served(false); }
Test(offload_disk_folder, so_is_one_that_a_killed_process_has_left) { check_served(true); }

static void sign_as(const char *folder, const char *pid) {
    char path[RIG_PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/lock", folder);
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs(pid, file) >= 0 && fclose(file) == 0);
}

/* As whoever asks whether it is in use does: nobody is to be refused for that. */
static void *lock_for_a_moment(void *argument) {
    int fd = *(int *)argument;
    static const struct timespec moment = {0, 5000000};
    (void)nanosleep(&moment, NULL);
    (void)close(fd);
    return NULL;
}

Test(offload_disk_folder, a_lock_that_is_held_for_a_moment_is_waited_for) {
    disk_rig rig;
    pthread_t thread;
    make_closed(&rig, false);
    cr_assert_eq(chmod(rig.path, 0700), 0);
    int fd = open(rig.path, O_RDONLY | O_DIRECTORY);
    cr_assert_eq(flock(fd, LOCK_SH | LOCK_NB), 0);
    cr_assert_eq(pthread_create(&thread, NULL, lock_for_a_moment, &fd), 0);
    rig_open(&rig);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(rig.found_count, COUNT);
    rig_close(&rig);
    open_folder(&rig);
}

Test(offload_disk_folder, those_who_only_read_share_a_folder_and_keep_writers_out) {
    disk_rig rig, second;
    make_closed(&rig, false);
    rig.config.may_only_read = true;
    rig_open(&rig);
    second = rig;
    rig_open(&second);
    cr_assert_eq(second.found_count, COUNT);
    rig_close(&second);
    cr_assert_eq(chmod(rig.path, 0700), 0);
    sign_as(rig.path, "4242\n"); /* who wrote there last, and has long gone */
    quire_error error = {0};
    cr_assert_eq(qr_disk_open(&second.config, &second.store, &error), QUIRE_BUSY);
    cr_assert_str_eq(error.text, "another process reads the folder");
    rig_close(&rig);
    rig_open(&rig); /* can be written: as any other */
    rig_put(&rig, 50, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert_eq(rig.last_put, QUIRE_OK);
    rig_close(&rig);
    open_folder(&rig);
}

/* It may be larger than the cap of who reads it, and hold what would be removed elsewhere. */
Test(offload_disk_folder, nothing_is_removed_from_a_folder_that_cannot_be_written) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    for (uint32_t i = 0; i < 1000; i++) rig_put(&rig, i, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    rig_close(&rig);
    uint32_t segments = rig_segment_count(&rig);
    cr_assert(rig_segment_path(&rig, 1, path));
    rig_flip(path, 30);
    close_folder(&rig);
    rig.config.cap_bytes = 4 * MIB;
    rig.config.may_only_read = true;
    rig_open(&rig);
    cr_assert_gt(rig.found_count, 250);
    for (uint32_t i = 0; i < rig.found_count; i++) cr_assert_eq(rig_get(&rig, rig.found_ids[rig.found_owners[i]]), QUIRE_OK);
    cr_assert_eq(rig_stats(&rig).corrupt_total, 1);
    rig_close(&rig);
    cr_assert_eq(rig_segment_count(&rig), segments);
    open_folder(&rig);
}
