/* disk_folder.c - owner, lock and content of a disk store's folder.
 *
 * The lock is flock(2) on the folder itself: nothing in it can be removed to get around it, it works where nothing can be
 * written, and it goes with the process, however that ends. The file `lock` has the pid, which is only for people.
 */
#include "offload/disk_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "offload/segment_file.h"

enum { FOLDER_MODE = 0700, FILE_MODE = 0600, OTHERS_MAY_WRITE = 022, LOCK_TRIES = 11, LOCK_PAUSE_MS = 20 };

static quire_status fail_errno(quire_error *error, const char *path, const char *what, int reason) {
    char text[128];
    return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "%s: %s", what, strerror_r(reason, text, sizeof text));
}

/* Makes what is missing of the path, one name after the other. */
static quire_status folder_make(const char *path, quire_error *error) {
    char part[QR_SEGMENT_PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof part) return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "the path is too long");
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (part[i] != '/' && part[i] != 0) continue;
        char kept = part[i];
        part[i] = 0;
        if (mkdir(part, FOLDER_MODE) && errno != EEXIST && (kept == 0 || access(part, F_OK)))
            return fail_errno(error, part, "cannot be made", errno);
        part[i] = kept;
    }
    return QUIRE_OK;
}

static quire_status folder_check(const char *path, quire_error *error) {
    struct stat about;
    if (lstat(path, &about)) return fail_errno(error, path, "cannot be looked at", errno);
    if (S_ISLNK(about.st_mode)) return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "a link is not followed: name its target");
    if (!S_ISDIR(about.st_mode)) return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "not a folder");
    if (about.st_uid != geteuid())
        return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "the folder belongs to user %u, not to %u", (unsigned)about.st_uid,
                       (unsigned)geteuid());
    if (about.st_mode & OTHERS_MAY_WRITE)
        return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "others may write to the folder (mode %03o)",
                       (unsigned)(about.st_mode & 0777));
    return QUIRE_OK;
}

/* ---- the lock ---- */

static bool lock_path(const char *folder, char path[QR_SEGMENT_PATH_MAX]) {
    return snprintf(path, QR_SEGMENT_PATH_MAX, "%s/lock", folder) < QR_SEGMENT_PATH_MAX;
}

/* 0: it does not say. */
static uint64_t lock_pid(const char *folder) {
    char path[QR_SEGMENT_PATH_MAX], text[32] = {0};
    int fd = lock_path(folder, path) ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    if (fd < 0) return 0;
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    (void)close(fd);
    return length > 0 ? strtoull(text, NULL, 10) : 0;
}

/* Only who writes there has signed: when a shared lock is to be had, it is others who read. */
static quire_status lock_busy(int fd, const char *folder, quire_error *error) {
    bool is_written = flock(fd, LOCK_SH | LOCK_NB) != 0;
    uint64_t pid = is_written ? lock_pid(folder) : 0;
    if (!is_written) return qr_fail(error, QUIRE_BUSY, folder, QR_NO_OFFSET, "another process reads the folder");
    if (pid == 0) return qr_fail(error, QUIRE_BUSY, folder, QR_NO_OFFSET, "another process has the folder open");
    return qr_fail(error, QUIRE_BUSY, folder, QR_NO_OFFSET, "process %" PRIu64 " has the folder open", pid);
}

/* Only for people: a failure is none. */
void qr_disk_folder_sign(const qr_disk_folder *locked, const char *told) {
    const char *folder = qr_disk_folder_reach(locked, told);
    char path[QR_SEGMENT_PATH_MAX], text[32];
    int fd = lock_path(folder, path) ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, FILE_MODE) : -1;
    int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (fd < 0) return;
    bool signed_well = !ftruncate(fd, 0) && pwrite(fd, text, (size_t)length, 0) == length;
    (void)signed_well;
    (void)close(fd);
}

/* Something could be made in it, by the rights of this user and what is mounted there. */
static quire_status check_writable(qr_disk_folder *folder, const char *path, bool may_only_read, quire_error *error) {
    if (faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) == 0) return QUIRE_OK;
    folder->read_only = true;
    return may_only_read ? QUIRE_OK : fail_errno(error, path, "cannot be written", errno);
}

static bool same_file(const struct stat *a, const struct stat *b) { return a->st_dev == b->st_dev && a->st_ino == b->st_ino; }

bool qr_disk_folder_holds(const char *path, int fd) {
    struct stat held, there;
    return fstat(fd, &held) == 0 && lstat(path, &there) == 0 && same_file(&held, &there);
}

/* Whoever asks whether a folder is in use has it locked for an instant, so one refusal says nothing yet. */
static int lock_take(int fd, int kind) {
    static const struct timespec pause = {0, LOCK_PAUSE_MS * 1000000L};
    int failed = 0;
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (i > 0) (void)nanosleep(&pause, NULL);
        failed = flock(fd, kind | LOCK_NB) ? errno : 0;
        if (failed != EWOULDBLOCK && failed != EINTR) break;
    }
    return failed;
}

static quire_status folder_lock(qr_disk_folder *folder, const char *path, quire_error *error) {
    folder->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (folder->fd < 0) return fail_errno(error, path, "cannot be opened", errno);
    int failed = lock_take(folder->fd, folder->read_only ? LOCK_SH : LOCK_EX);
    if (failed == EWOULDBLOCK) return lock_busy(folder->fd, path, error);
    if (failed) return fail_errno(error, path, "cannot be locked", failed);
    if (!qr_disk_folder_holds(path, folder->fd))
        return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "was replaced while it was opened");
    return QUIRE_OK;
}

/* By its descriptor, where /proc is mounted. */
static void reach_find(qr_disk_folder *folder) {
    struct stat held, there;
    (void)snprintf(folder->reach, sizeof folder->reach, "/proc/self/fd/%d", folder->fd);
    bool leads = fstat(folder->fd, &held) == 0 && stat(folder->reach, &there) == 0 && same_file(&held, &there);
    if (!leads) folder->reach[0] = 0;
}

const char *qr_disk_folder_reach(const qr_disk_folder *folder, const char *path) {
    return folder->reach[0] ? folder->reach : path;
}

quire_status qr_disk_folder_open(qr_disk_folder *folder, const char *path, bool may_only_read, quire_error *error) {
    *folder = (qr_disk_folder){.fd = -1};
    quire_status status = folder_make(path, error);
    if (status == QUIRE_OK) status = folder_check(path, error);
    if (status == QUIRE_OK) status = check_writable(folder, path, may_only_read, error);
    if (status == QUIRE_OK) status = folder_lock(folder, path, error);
    if (status != QUIRE_OK) qr_disk_folder_close(folder);
    else reach_find(folder);
    return status;
}

void qr_disk_folder_close(qr_disk_folder *folder) {
    if (folder->fd >= 0) close(folder->fd);
    folder->fd = -1;
}

/* The lock belongs to what was opened, not to the number. */
bool qr_disk_folder_renew(qr_disk_folder *folder, qr_disk_folder *renewed) {
    bool moved = dup3(renewed->fd, folder->fd, O_CLOEXEC) == folder->fd;
    qr_disk_folder_close(renewed);
    return moved;
}

/* A shared lock is to be had exactly when nobody writes there; it is given back at once. */
bool qr_disk_folder_in_use(const char *path, uint64_t *pid) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *pid = 0;
    if (fd < 0) return false;
    bool in_use = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (in_use) *pid = lock_pid(path);
    (void)close(fd);
    return in_use;
}

/* A folder that was removed has no link left; one that was moved, or lies under a mount, has. */
qr_disk_folder_state qr_disk_folder_look(const qr_disk_folder *folder, const char *path) {
    struct stat held;
    if (qr_disk_folder_holds(path, folder->fd)) return QR_FOLDER_HERE;
    return fstat(folder->fd, &held) == 0 && held.st_nlink == 0 ? QR_FOLDER_REMOVED : QR_FOLDER_AWAY;
}

/* ---- what lies in it ---- */

typedef struct id_list {
    uint64_t *ids;
    size_t count, capacity;
} id_list;

static bool id_list_add(id_list *list, uint64_t id) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        uint64_t *ids = realloc(list->ids, capacity * sizeof *ids);
        if (!ids) return false;
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return true;
}

static int compare_ids(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

quire_status qr_disk_folder_list(const char *path, uint64_t **ids, size_t *count, quire_error *error) {
    id_list list = {0};
    bool fits = true;
    *ids = NULL;
    *count = 0;
    DIR *folder = opendir(path);
    if (!folder) return fail_errno(error, path, "cannot be listed", errno);
    for (struct dirent *entry; fits && (entry = readdir(folder));) {
        uint64_t id;
        if (qr_segment_name_parse(entry->d_name, &id)) fits = id_list_add(&list, id);
    }
    closedir(folder);
    if (!fits) {
        free(list.ids);
        return qr_fail(error, QUIRE_NO_MEMORY, path, QR_NO_OFFSET, "no memory for %zu names", list.count);
    }
    if (list.count) qsort(list.ids, list.count, sizeof *list.ids, compare_ids);
    *ids = list.ids;
    *count = list.count;
    return QUIRE_OK;
}

bool qr_disk_folder_has_file(const char *path, uint64_t *size_bytes, uint64_t *taken_bytes) {
    enum { STAT_BLOCK = 512 };
    struct stat about;
    *size_bytes = *taken_bytes = 0;
    if (lstat(path, &about) || !S_ISREG(about.st_mode)) return false;
    *size_bytes = (uint64_t)about.st_size;
    *taken_bytes = (uint64_t)about.st_blocks * STAT_BLOCK;
    return true;
}

bool qr_disk_folder_lacks(const char *path) {
    struct stat about;
    if (lstat(path, &about)) return errno == ENOENT || errno == ENOTDIR;
    return !S_ISREG(about.st_mode);
}
