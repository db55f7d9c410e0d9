/* files.c - the operating system's table of file operations.
 *
 * Whole reads and writes: short counts and interrupted calls are repeated here and nowhere else. What a file system cannot
 * do is replaced by what it can: direct I/O by ordinary, allocation and holes by zeros that are written. Knows no format,
 * keeps no state; any thread.
 */
#include "offload/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/assertion.h"
#include "base/error.h"

enum { WINDOW_PARTS = 64, ZERO_BYTES = 64 << 10, FILE_MODE = 0600, STAT_BLOCK_BYTES = 512 };

/* ---- failures ---- */

static quire_status status_of(int reason) { return reason == ENOSPC || reason == EDQUOT ? QUIRE_NO_SPACE : QUIRE_IO; }

static quire_status fail_path(quire_error *error, const char *path, const char *what, int reason) {
    char text[128];
    return qr_fail(error, status_of(reason), path, QR_NO_OFFSET, "%s: %s", what, strerror_r(reason, text, sizeof text));
}

/* Nothing is there, or something that is no file: a folder, a link, a socket. */
static quire_status open_status_of(int reason) {
    bool none = reason == ENOENT || reason == ENOTDIR || reason == ELOOP || reason == EISDIR || reason == ENXIO;
    return none ? QUIRE_NOT_FOUND : status_of(reason);
}

static quire_status fail_open(quire_error *error, const char *path, int reason) {
    char text[128];
    return qr_fail(error, open_status_of(reason), path, QR_NO_OFFSET, "cannot be opened: %s",
                   strerror_r(reason, text, sizeof text));
}

/* The path that a descriptor was opened with; the kernel knows it, so nobody has to carry it along. */
static void path_of(int fd, char *path, size_t capacity) {
    char link[64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, capacity - 1);
    path[length > 0 ? length : 0] = 0;
}

static quire_status fail_fd(quire_error *error, int fd, uint64_t offset, const char *what, int reason) {
    char path[256], text[128];
    path_of(fd, path, sizeof path);
    return qr_fail(error, status_of(reason), path, offset, "%s: %s", what, strerror_r(reason, text, sizeof text));
}

/* ---- opening ---- */

static int flags_of(qr_file_mode mode) {
    /* O_NONBLOCK: a pipe that was put in a file's place must not hold us up. It means nothing for a file. */
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    switch (mode) {
    case QR_FILE_READ: return flags | O_RDONLY;
    case QR_FILE_READ_WRITE: return flags | O_RDWR;
    case QR_FILE_CREATE_UNIQUE: return flags | O_RDWR | O_CREAT | O_EXCL;
    }
    QR_ASSERT(!"a mode of the list");
    return flags;
}

static int open_again(const char *path, int flags) {
    int fd;
    do fd = openat(AT_FDCWD, path, flags, FILE_MODE);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* A file system without direct I/O says EINVAL, and some have made the file by then. */
static int open_ordinary(const char *path, qr_file_mode mode) {
    int flags = flags_of(mode), fd = open_again(path, flags);
    struct stat about;
    if (fd >= 0 || errno != EEXIST || mode != QR_FILE_CREATE_UNIQUE) return fd;
    fd = open_again(path, flags & ~(O_CREAT | O_EXCL));
    if (fd >= 0 && (fstat(fd, &about) || about.st_size)) {
        (void)close(fd);
        errno = EEXIST;
        return -1;
    }
    return fd;
}

static quire_status system_open(qr_files *files, const char *path, qr_file_mode mode, bool direct, int *out,
                                quire_error *error) {
    (void)files;
    *out = -1;
    struct stat about;
    int fd = open_again(path, flags_of(mode) | (direct ? O_DIRECT : 0));
    if (fd < 0 && direct && errno == EINVAL) fd = open_ordinary(path, mode);
    if (fd < 0) return fail_open(error, path, errno);
    if (fstat(fd, &about) || !S_ISREG(about.st_mode)) {
        (void)close(fd);
        return qr_fail(error, QUIRE_NOT_FOUND, path, QR_NO_OFFSET, "not a regular file");
    }
    *out = fd;
    return QUIRE_OK;
}

static void system_close(qr_files *files, int fd) {
    (void)files;
    (void)close(fd); /* what counts was synced before; Linux closes even when it says EINTR */
}

static quire_status system_size(qr_files *files, int fd, uint64_t *size_bytes, quire_error *error) {
    (void)files;
    struct stat about;
    *size_bytes = 0;
    if (fstat(fd, &about)) return fail_fd(error, fd, QR_NO_OFFSET, "has no size", errno);
    *size_bytes = (uint64_t)about.st_size;
    return QUIRE_OK;
}

/* ---- reading and writing ---- */

typedef ssize_t transfer_call(int fd, const struct iovec *parts, int part_count, off_t offset);

/* Where a transfer is: `parts` from here on, the first `skip` bytes of parts[0] done. */
typedef struct transfer {
    const struct iovec *parts;
    int part_count;
    size_t skip;
    uint64_t offset;
} transfer;

/* The next parts for one call; those of no length are left behind. */
static int transfer_window(transfer *t, struct iovec window[WINDOW_PARTS]) {
    while (t->part_count && t->skip == t->parts[0].iov_len) t->parts++, t->part_count--, t->skip = 0;
    int count = t->part_count < WINDOW_PARTS ? t->part_count : WINDOW_PARTS;
    if (!count) return 0;
    memcpy(window, t->parts, (size_t)count * sizeof *window);
    window[0].iov_base = (char *)window[0].iov_base + t->skip;
    window[0].iov_len -= t->skip;
    return count;
}

static void transfer_advance(transfer *t, size_t bytes) {
    t->offset += bytes;
    while (bytes) {
        size_t left = t->parts[0].iov_len - t->skip;
        if (bytes < left) {
            t->skip += bytes;
            return;
        }
        bytes -= left;
        t->parts++, t->part_count--, t->skip = 0;
    }
}

/* Direct I/O that is refused after all (a file system that only says so now, or a short count that ended inside a block)
 * goes on without. True: it was on. */
static bool leave_direct(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

/* 0, or the errno that ended it; a file that ends too early is ENODATA. */
static int transfer_run(transfer *t, int fd, transfer_call *call) {
    struct iovec window[WINDOW_PARTS];
    int count;
    while ((count = transfer_window(t, window)) > 0) {
        ssize_t moved = call(fd, window, count, (off_t)t->offset);
        if (moved > 0) transfer_advance(t, (size_t)moved);
        else if (moved == 0) return ENODATA;
        else if (errno != EINTR && !(errno == EINVAL && leave_direct(fd))) return errno;
    }
    return 0;
}

static quire_status system_read(qr_files *files, int fd, const struct iovec *parts, int part_count, uint64_t offset,
                                quire_error *error) {
    (void)files;
    transfer t = {parts, part_count, 0, offset};
    int failed = transfer_run(&t, fd, preadv);
    if (failed == ENODATA) {
        char path[256];
        path_of(fd, path, sizeof path);
        return qr_fail(error, QUIRE_IO, path, t.offset, "the file ends here, and more was to be read");
    }
    return failed ? fail_fd(error, fd, t.offset, "cannot be read", failed) : QUIRE_OK;
}

static quire_status system_write(qr_files *files, int fd, const struct iovec *parts, int part_count, uint64_t offset,
                                 quire_error *error) {
    (void)files;
    transfer t = {parts, part_count, 0, offset};
    int failed = transfer_run(&t, fd, pwritev);
    return failed ? fail_fd(error, fd, t.offset, "cannot be written", failed) : QUIRE_OK;
}

/* ---- space ---- */

static int fallocate_again(int fd, int mode, uint64_t offset, uint64_t size_bytes) {
    int failed;
    do failed = fallocate(fd, mode, (off_t)offset, (off_t)size_bytes) ? errno : 0;
    while (failed == EINTR);
    return failed;
}

static bool is_unsupported(int reason) { return reason == EOPNOTSUPP || reason == ENOSYS; }

/* In calls of 4 MiB: what posix_fallocate does instead, a byte in every block, is slow and no use on a compressing file
 * system. */
static int write_zeros(int fd, uint64_t offset, uint64_t size_bytes) {
    static const _Alignas(4096) unsigned char zeros[ZERO_BYTES];
    struct iovec parts[WINDOW_PARTS];
    int failed = 0;
    for (uint64_t done = 0; done < size_bytes && !failed;) {
        uint64_t start = done;
        int count = 0;
        for (; count < WINDOW_PARTS && done < size_bytes; count++) {
            uint64_t left = size_bytes - done;
            parts[count] = (struct iovec){(void *)(uintptr_t)zeros, left < ZERO_BYTES ? (size_t)left : ZERO_BYTES};
            done += parts[count].iov_len;
        }
        failed = transfer_run(&(transfer){parts, count, 0, offset + start}, fd, pwritev);
    }
    return failed;
}

/* A file system that has too little is not asked: for a moment it would give all that it has, and nobody else could write. */
static bool lacks_space(int fd, uint64_t size_bytes) {
    struct statvfs space;
    struct stat file;
    if (fstatvfs(fd, &space) || fstat(fd, &file)) return false; /* the call itself will say */
    uint64_t there = (uint64_t)file.st_blocks * STAT_BLOCK_BYTES, free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
    return size_bytes > there && size_bytes - there > free_bytes;
}

static quire_status system_allocate(qr_files *files, int fd, uint64_t size_bytes, quire_error *error) {
    (void)files;
    int failed = lacks_space(fd, size_bytes) ? ENOSPC : fallocate_again(fd, 0, 0, size_bytes);
    if (is_unsupported(failed)) failed = write_zeros(fd, 0, size_bytes);
    return failed ? fail_fd(error, fd, QR_NO_OFFSET, "cannot take its space", failed) : QUIRE_OK;
}

static quire_status system_punch(qr_files *files, int fd, uint64_t offset, uint64_t size_bytes, quire_error *error) {
    (void)files;
    int failed = fallocate_again(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size_bytes);
    if (is_unsupported(failed)) failed = write_zeros(fd, offset, size_bytes);
    return failed ? fail_fd(error, fd, offset, "cannot be erased", failed) : QUIRE_OK;
}

static quire_status system_zero(qr_files *files, int fd, uint64_t offset, uint64_t size_bytes, quire_error *error) {
    (void)files;
    int failed = fallocate_again(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, offset, size_bytes);
    if (is_unsupported(failed)) failed = write_zeros(fd, offset, size_bytes);
    return failed ? fail_fd(error, fd, offset, "cannot be zeroed", failed) : QUIRE_OK;
}

static quire_status system_space(qr_files *files, const char *path, qr_files_space *space, quire_error *error) {
    (void)files;
    struct statvfs about;
    int failed;
    *space = (qr_files_space){0};
    do failed = statvfs(path, &about) ? errno : 0;
    while (failed == EINTR);
    if (failed) return fail_path(error, path, "its file system does not answer", failed);
    *space = (qr_files_space){(uint64_t)about.f_bavail * about.f_frsize, (uint64_t)about.f_blocks * about.f_frsize};
    return QUIRE_OK;
}

/* ---- lasting ---- */

/* Never again after a failure: the kernel has dropped the pages and would say that all is well. */
static quire_status system_sync(qr_files *files, int fd, quire_error *error) {
    (void)files;
    int failed;
    do failed = fdatasync(fd) ? errno : 0;
    while (failed == EINTR);
    return failed ? fail_fd(error, fd, QR_NO_OFFSET, "cannot be made to last", failed) : QUIRE_OK;
}

static quire_status system_sync_folder(qr_files *files, const char *path, quire_error *error) {
    (void)files;
    int fd = open_again(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail_path(error, path, "cannot be opened", errno);
    int failed;
    do failed = fsync(fd) ? errno : 0;
    while (failed == EINTR);
    (void)close(fd);
    if (failed == EINVAL) failed = 0; /* a file system that has no such thing for folders */
    return failed ? fail_path(error, path, "cannot be made to last", failed) : QUIRE_OK;
}

static quire_status system_remove(qr_files *files, const char *path, quire_error *error) {
    (void)files;
    if (unlink(path) == 0) return QUIRE_OK;
    int reason = errno;
    struct stat about;
    bool missing = lstat(path, &about) ? errno == ENOENT : S_ISDIR(about.st_mode);
    if (missing) return qr_fail(error, QUIRE_NOT_FOUND, path, QR_NO_OFFSET, "no file is there");
    return fail_path(error, path, "cannot be removed", reason);
}

static quire_status system_rename(qr_files *files, const char *from, const char *to, quire_error *error) {
    (void)files;
    return rename(from, to) ? fail_path(error, from, "cannot be renamed", errno) : QUIRE_OK;
}

qr_files *qr_files_system(void) {
    static const qr_files_ops ops = {
        .open = system_open,
        .close = system_close,
        .size = system_size,
        .read = system_read,
        .write = system_write,
        .allocate = system_allocate,
        .punch = system_punch,
        .zero = system_zero,
        .sync = system_sync,
        .sync_folder = system_sync_folder,
        .remove = system_remove,
        .rename = system_rename,
        .space = system_space,
    };
    static qr_files system_files = {&ops};
    return &system_files;
}
