#include "tests/unit/offload/disk_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
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
