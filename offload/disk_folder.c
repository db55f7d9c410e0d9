/* disk_folder.c - owner, lock and content of a disk store's folder.
 *
 * The lock is flock(2) on a file that stays: it goes with the process, however that ends. The pid in it is only for people.
 */
#include "offload/disk_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "offload/segment_file.h"

enum { FOLDER_MODE = 0700, FILE_MODE = 0600, OTHERS_MAY_WRITE = 022 };

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

static quire_status lock_busy(int fd, const char *path, quire_error *error) {
    char text[32] = {0};
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    long pid = length > 0 ? strtol(text, NULL, 10) : 0;
    if (pid <= 0) return qr_fail(error, QUIRE_BUSY, path, QR_NO_OFFSET, "another process has the folder open");
    return qr_fail(error, QUIRE_BUSY, path, QR_NO_OFFSET, "process %ld has the folder open", pid);
}

static void lock_sign(int fd) {
    char text[32];
    int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) || pwrite(fd, text, (size_t)length, 0) != length) return; /* only for people */
}

quire_status qr_disk_folder_open(qr_disk_folder *folder, const char *path, quire_error *error) {
    char lock[QR_SEGMENT_PATH_MAX];
    folder->lock_fd = -1;
    quire_status status = folder_make(path, error);
    if (status == QUIRE_OK) status = folder_check(path, error);
    if (status != QUIRE_OK) return status;
    if (snprintf(lock, sizeof lock, "%s/lock", path) >= (int)sizeof lock)
        return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "the path is too long");
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, FILE_MODE);
    if (fd < 0) return fail_errno(error, lock, "cannot be opened", errno);
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        status = errno == EWOULDBLOCK ? lock_busy(fd, path, error) : fail_errno(error, lock, "cannot be locked", errno);
        close(fd);
        return status;
    }
    lock_sign(fd);
    folder->lock_fd = fd;
    return QUIRE_OK;
}

void qr_disk_folder_close(qr_disk_folder *folder) {
    if (folder->lock_fd >= 0) close(folder->lock_fd);
    folder->lock_fd = -1;
}

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

bool qr_disk_folder_has_file(const char *path, uint64_t *size_bytes) {
    struct stat about;
    *size_bytes = 0;
    if (lstat(path, &about) || !S_ISREG(about.st_mode)) return false;
    *size_bytes = (uint64_t)about.st_size;
    return true;
}
