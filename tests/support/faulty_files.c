/* faulty_files.c - see faulty_files.h. Decisions are made under one lock; sleeping and, unless unsynced bytes are
 * remembered, the work itself happen outside. */
#include "tests/support/faulty_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assertion.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"
#include "tests/support/faulty_journal.h"

enum { PAGE = 4096 };

typedef enum call_kind {
    CALL_OPEN,
    CALL_READ,
    CALL_WRITE,
    CALL_ALLOCATE,
    CALL_PUNCH,
    CALL_SYNC,
    CALL_REMOVE,
    CALL_OTHER
} call_kind;

/* What chance decides. Every stream has draws of its own, the n-th always the same for a seed: so a thread that comes a little
 * earlier or later changes nothing for the calls of another kind. */
typedef enum stream {
    STREAM_IO, /* of the first kind; the others follow */
    STREAM_SPACE = STREAM_IO + CALL_OTHER + 1,
    STREAM_FLIP_READ = STREAM_SPACE + CALL_OTHER + 1,
    STREAM_FLIP_WRITE,
    STREAM_FLIP_BIT,
    STREAM_PART,
    STREAM_COUNT
} stream;

struct faulty_files {
    qr_files files;
    qr_files *below;
    faulty_journal *journal; /* NULL: nothing is remembered */
    pthread_mutex_t serial;  /* held through a call when unsynced bytes are remembered; before lock */
    pthread_mutex_t lock;
    /* under lock */
    faults now;
    uint64_t seen[STREAM_COUNT];  /* calls of a stream since set */
    uint64_t drawn[STREAM_COUNT]; /* since create */
    faulty_counts counts;
    uint64_t medium_free_ns; /* slow: until then it is busy */
    uint64_t stop_after;     /* changes until the end; 0: never */
    bool stopped;
};

static faulty_files *faulty_of(qr_files *files) { return (faulty_files *)(void *)files; }

/* ---- decisions; under lock ---- */

static qr_random draw(faulty_files *f, stream from) {
    return (qr_random){qr_mix64(f->now.seed ^ qr_mix64((uint64_t)from << 48 ^ ++f->drawn[from]))};
}

static bool happens(faulty_files *f, const fault_when *when, stream from) {
    qr_random random = draw(f, from);
    if (++f->seen[from] == when->nth) return true;
    return when->rate > 0 && qr_random_unit(&random) < when->rate;
}

/* What was there before a change must be known for certain, so with a journal one call goes after the other. */
static void enter(faulty_files *f) {
    if (f->journal) pthread_mutex_lock(&f->serial);
}

static void leave(faulty_files *f) {
    if (f->journal) pthread_mutex_unlock(&f->serial);
}

typedef enum verdict { GO, GO_IN_PART, FAIL_IO, FAIL_NO_SPACE, OVER /* the process is no more: it never called */ } verdict;

static const fault_when *io_fault(const faults *now, call_kind kind) {
    static const fault_when never = {0};
    switch (kind) {
    case CALL_OPEN: return &now->eio_open;
    case CALL_READ: return &now->eio_read;
    case CALL_WRITE: return &now->eio_write;
    case CALL_PUNCH: return &now->eio_punch;
    case CALL_SYNC: return &now->eio_sync;
    case CALL_REMOVE: return &now->eio_remove;
    case CALL_ALLOCATE:
    case CALL_OTHER: break;
    }
    return &never;
}

static const fault_when *space_fault(const faults *now, call_kind kind) {
    static const fault_when never = {0};
    return kind == CALL_ALLOCATE ? &now->nospace_allocate : kind == CALL_WRITE ? &now->nospace_write : &never;
}

/* Counts down to the end. True: this change is the one that is cut short. */
static bool is_last_change(faulty_files *f) {
    f->counts.changes++;
    if (!f->stop_after || --f->stop_after) return false;
    f->stopped = true;
    return true;
}

static verdict decide(faulty_files *f, call_kind kind, bool changes) {
    f->counts.calls++;
    if (f->stopped) return OVER;
    bool io = happens(f, io_fault(&f->now, kind), STREAM_IO + kind);
    bool space = happens(f, space_fault(&f->now, kind), STREAM_SPACE + kind);
    if (changes && is_last_change(f)) return GO_IN_PART;
    f->counts.failures += io;
    f->counts.no_space += !io && space;
    return io ? FAIL_IO : space ? FAIL_NO_SPACE : GO;
}

static verdict decide_locked(faulty_files *f, call_kind kind, bool changes) {
    pthread_mutex_lock(&f->lock);
    verdict v = decide(f, kind, changes);
    pthread_mutex_unlock(&f->lock);
    return v;
}

static quire_status refuse(quire_error *error, verdict v, const char *source, uint64_t offset) {
    return qr_fail(error, v == FAIL_NO_SPACE ? QUIRE_NO_SPACE : QUIRE_IO, source, offset, "injected: %s",
                   v == FAIL_NO_SPACE ? "no space"
                   : v == GO_IN_PART  ? "stopped in the middle"
                                      : "input or output failed");
}

/* ---- the medium ---- */

static void sleep_until(uint64_t ns) {
    struct timespec until = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {}
}

/* One head for reads and writes: each waits for those before it. */
static void take_time(faulty_files *f, uint64_t bytes) {
    pthread_mutex_lock(&f->lock);
    uint64_t now = qr_clock_ns(), end = now, rate = f->now.slow_bytes_per_second;
    if (rate) {
        uint64_t begin = f->medium_free_ns > now ? f->medium_free_ns : now;
        end = f->medium_free_ns = begin + (uint64_t)((double)bytes / (double)rate * 1e9);
    }
    end += f->now.delay_us * 1000;
    f->counts.delayed += end > now;
    pthread_mutex_unlock(&f->lock);
    if (end > now) sleep_until(end);
}

/* ---- parts ---- */

static uint64_t parts_bytes(const struct iovec *parts, int part_count) {
    uint64_t bytes = 0;
    for (int i = 0; i < part_count; i++) bytes += parts[i].iov_len;
    return bytes;
}

static unsigned char *parts_at(const struct iovec *parts, uint64_t offset) {
    while (offset >= parts->iov_len) offset -= parts->iov_len, parts++;
    return (unsigned char *)parts->iov_base + offset;
}

/* Which bit, or UINT64_MAX for none. */
static uint64_t choose_flip(faulty_files *f, bool writes, uint64_t bytes) {
    pthread_mutex_lock(&f->lock);
    const fault_when *when = writes ? &f->now.flip_write : &f->now.flip_read;
    bool flip = happens(f, when, writes ? STREAM_FLIP_WRITE : STREAM_FLIP_READ) && bytes;
    qr_random random = draw(f, STREAM_FLIP_BIT);
    uint64_t bit = flip ? qr_random_u64(&random) % (bytes * 8) : UINT64_MAX;
    f->counts.flips += flip;
    pthread_mutex_unlock(&f->lock);
    return bit;
}

/* ---- room for more ---- */

static uint64_t file_bytes(qr_files *below, int fd) {
    uint64_t size = 0;
    return below->ops->size(below, fd, &size, NULL) == QUIRE_OK ? size : 0;
}

/* What the files of a folder take together: asked every time, so that nobody has to keep count across restarts. */
static uint64_t folder_bytes(const char *folder) {
    uint64_t bytes = 0;
    DIR *entries = opendir(folder);
    struct stat about;
    for (struct dirent *entry; entries && (entry = readdir(entries)) != NULL;)
        if (fstatat(dirfd(entries), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(about.st_mode))
            bytes += (uint64_t)about.st_size;
    if (entries) (void)closedir(entries);
    return bytes;
}

static uint64_t bytes_beside(int fd) {
    char link[64], path[512];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    QR_ASSERT(length > 0);
    path[length] = 0;
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
    return folder_bytes(path);
}

/* Space for a file that grows to size_bytes; false: there is not enough. */
static bool take_space(faulty_files *f, int fd, uint64_t size_bytes) {
    pthread_mutex_lock(&f->lock);
    uint64_t limit = f->now.full ? 0 : f->now.nospace_bytes ? f->now.nospace_bytes : UINT64_MAX;
    pthread_mutex_unlock(&f->lock);
    uint64_t has = limit == UINT64_MAX ? UINT64_MAX : file_bytes(f->below, fd);
    if (size_bytes <= has || bytes_beside(fd) + (size_bytes - has) <= limit) return true;
    pthread_mutex_lock(&f->lock);
    f->counts.no_space++;
    pthread_mutex_unlock(&f->lock);
    return false;
}

/* ---- reading and writing ---- */

static quire_status faulty_read(qr_files *files, int fd, const struct iovec *parts, int part_count, uint64_t offset,
                                quire_error *error) {
    faulty_files *f = faulty_of(files);
    uint64_t bytes = parts_bytes(parts, part_count);
    verdict v = decide_locked(f, CALL_READ, false);
    if (v != GO) return refuse(error, v, NULL, offset);
    take_time(f, bytes);
    quire_status status = f->below->ops->read(f->below, fd, parts, part_count, offset, error);
    if (status != QUIRE_OK) return status;
    uint64_t bit = choose_flip(f, false, bytes);
    if (bit != UINT64_MAX) *parts_at(parts, bit / 8) ^= (unsigned char)(1u << bit % 8);
    pthread_mutex_lock(&f->lock);
    f->counts.bytes_read += bytes;
    pthread_mutex_unlock(&f->lock);
    return QUIRE_OK;
}

/* Only the first `bytes` of the parts, from a copy in which one bit may be another. */
static quire_status write_copy(faulty_files *f, int fd, const struct iovec *parts, uint64_t bytes, uint64_t bit,
                               uint64_t offset, quire_error *error) {
    unsigned char *copy = NULL;
    QR_ASSERT(posix_memalign((void **)(void *)&copy, PAGE, bytes + 1) == 0);
    for (uint64_t done = 0; done < bytes; parts++) {
        uint64_t part = parts->iov_len < bytes - done ? parts->iov_len : bytes - done;
        memcpy(copy + done, parts->iov_base, part);
        done += part;
    }
    if (bit != UINT64_MAX) copy[bit / 8] ^= (unsigned char)(1u << bit % 8);
    quire_status status = f->below->ops->write(f->below, fd, &(struct iovec){copy, bytes}, 1, offset, error);
    free(copy);
    return status;
}

/* Whole pages of it, as a process that is killed inside a write leaves it. */
static void write_in_part(faulty_files *f, int fd, const struct iovec *parts, int part_count, uint64_t offset) {
    uint64_t pages = parts_bytes(parts, part_count) / PAGE;
    pthread_mutex_lock(&f->lock);
    qr_random random = draw(f, STREAM_PART);
    uint64_t bytes = qr_random_u64(&random) % (pages + 1) * PAGE;
    pthread_mutex_unlock(&f->lock);
    if (bytes) (void)!write_copy(f, fd, parts, bytes, UINT64_MAX, offset, NULL);
}

static quire_status write_now(faulty_files *f, int fd, const struct iovec *parts, int part_count, uint64_t offset,
                              quire_error *error) {
    uint64_t bytes = parts_bytes(parts, part_count);
    verdict v = decide_locked(f, CALL_WRITE, true);
    if (v == GO && !take_space(f, fd, offset + bytes)) v = FAIL_NO_SPACE;
    if (v == GO_IN_PART) write_in_part(f, fd, parts, part_count, offset);
    if (v != GO) return refuse(error, v, NULL, offset);
    uint64_t bit = choose_flip(f, true, bytes);
    pthread_mutex_lock(&f->lock);
    f->counts.bytes_written += bytes;
    pthread_mutex_unlock(&f->lock);
    if (bit != UINT64_MAX) return write_copy(f, fd, parts, bytes, bit, offset, error);
    return f->below->ops->write(f->below, fd, parts, part_count, offset, error);
}

static quire_status faulty_write(qr_files *files, int fd, const struct iovec *parts, int part_count, uint64_t offset,
                                 quire_error *error) {
    faulty_files *f = faulty_of(files);
    uint64_t bytes = parts_bytes(parts, part_count);
    take_time(f, bytes);
    enter(f);
    if (f->journal) faulty_journal_change(f->journal, fd, offset, bytes);
    quire_status status = write_now(f, fd, parts, part_count, offset, error);
    if (f->journal) faulty_journal_changed(f->journal, fd);
    leave(f);
    return status;
}

/* ---- space ---- */

static quire_status faulty_allocate(qr_files *files, int fd, uint64_t size_bytes, quire_error *error) {
    faulty_files *f = faulty_of(files);
    verdict v = decide_locked(f, CALL_ALLOCATE, true);
    if (v == GO && !take_space(f, fd, size_bytes)) v = FAIL_NO_SPACE;
    if (v != GO) return refuse(error, v, NULL, QR_NO_OFFSET);
    enter(f);
    if (f->journal) faulty_journal_change(f->journal, fd, 0, 0);
    quire_status status = f->below->ops->allocate(f->below, fd, size_bytes, error);
    if (f->journal) faulty_journal_changed(f->journal, fd);
    leave(f);
    return status;
}

typedef quire_status emptying(qr_files *files, int fd, uint64_t offset, uint64_t size_bytes, quire_error *error);

static quire_status empty(faulty_files *f, emptying *call, int fd, uint64_t offset, uint64_t size_bytes, quire_error *error) {
    verdict v = decide_locked(f, CALL_PUNCH, true);
    if (v != GO) return refuse(error, v, NULL, offset);
    enter(f);
    if (f->journal) faulty_journal_change(f->journal, fd, offset, size_bytes);
    quire_status status = call(f->below, fd, offset, size_bytes, error);
    if (f->journal) faulty_journal_changed(f->journal, fd);
    leave(f);
    return status;
}

static quire_status faulty_punch(qr_files *files, int fd, uint64_t offset, uint64_t size_bytes, quire_error *error) {
    faulty_files *f = faulty_of(files);
    return empty(f, f->below->ops->punch, fd, offset, size_bytes, error);
}

static quire_status faulty_zero(qr_files *files, int fd, uint64_t offset, uint64_t size_bytes, quire_error *error) {
    faulty_files *f = faulty_of(files);
    return empty(f, f->below->ops->zero, fd, offset, size_bytes, error);
}

static quire_status faulty_space(qr_files *files, const char *path, qr_files_space *space, quire_error *error) {
    faulty_files *f = faulty_of(files);
    verdict v = decide_locked(f, CALL_OTHER, false);
    *space = (qr_files_space){0};
    if (v != GO) return refuse(error, v, path, QR_NO_OFFSET);
    quire_status status = f->below->ops->space(f->below, path, space, error);
    if (status != QUIRE_OK) return status;
    uint64_t used = folder_bytes(path);
    pthread_mutex_lock(&f->lock);
    uint64_t total = f->now.nospace_bytes;
    if (total) *space = (qr_files_space){total > used ? total - used : 0, total};
    if (f->now.full) space->free_bytes = 0;
    pthread_mutex_unlock(&f->lock);
    return QUIRE_OK;
}

/* ---- files and folders ---- */

/* The journal works on paths, also when no process has the folder open any more by whose descriptor a path begins. */
static const char *real_path(const char *path, char real[4096]) {
    char link[32];
    int fd = -1, begin = 0;
    if (sscanf(path, "/proc/self/fd/%d%n", &fd, &begin) != 1) return path;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, real, 4096);
    if (length <= 0 || (size_t)length + strlen(path + begin) >= 4096) return path;
    memcpy(real + length, path + begin, strlen(path + begin) + 1);
    return real;
}

static quire_status faulty_open(qr_files *files, const char *path, qr_file_mode mode, bool direct, int *fd,
                                quire_error *error) {
    faulty_files *f = faulty_of(files);
    bool makes = mode == QR_FILE_CREATE_UNIQUE;
    char real[4096];
    verdict v = decide_locked(f, CALL_OPEN, makes);
    *fd = -1;
    if (v != GO) return refuse(error, v, path, QR_NO_OFFSET);
    enter(f);
    quire_status status = f->below->ops->open(f->below, path, mode, direct && !f->journal, fd, error);
    if (f->journal && status == QUIRE_OK) faulty_journal_open(f->journal, real_path(path, real), *fd, makes);
    leave(f);
    return status;
}

static void faulty_close(qr_files *files, int fd) {
    faulty_files *f = faulty_of(files);
    enter(f);
    if (f->journal) faulty_journal_close(f->journal, fd);
    f->below->ops->close(f->below, fd);
    leave(f);
}

static quire_status faulty_size(qr_files *files, int fd, uint64_t *size_bytes, quire_error *error) {
    faulty_files *f = faulty_of(files);
    verdict v = decide_locked(f, CALL_OTHER, false);
    *size_bytes = 0;
    if (v != GO) return refuse(error, v, NULL, QR_NO_OFFSET);
    return f->below->ops->size(f->below, fd, size_bytes, error);
}

static quire_status faulty_sync(qr_files *files, int fd, quire_error *error) {
    faulty_files *f = faulty_of(files);
    verdict v = decide_locked(f, CALL_SYNC, true);
    enter(f);
    if (f->journal && v != GO_IN_PART && v != OVER) faulty_journal_sync(f->journal, fd, v != GO);
    quire_status status = f->journal || v != GO ? QUIRE_OK : f->below->ops->sync(f->below, fd, error);
    leave(f);
    return v != GO ? refuse(error, v, NULL, QR_NO_OFFSET) : status;
}

static quire_status faulty_sync_folder(qr_files *files, const char *path, quire_error *error) {
    faulty_files *f = faulty_of(files);
    verdict v = decide_locked(f, CALL_SYNC, true);
    if (v != GO) return refuse(error, v, path, QR_NO_OFFSET);
    if (!f->journal) return f->below->ops->sync_folder(f->below, path, error);
    enter(f);
    char real[4096];
    faulty_journal_sync_folder(f->journal, real_path(path, real));
    leave(f);
    return QUIRE_OK;
}

static quire_status of_reason(int failed, const char *path, quire_error *error) {
    char text[128];
    if (!failed) return QUIRE_OK;
    return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "%s", strerror_r(failed, text, sizeof text));
}

static quire_status faulty_remove(qr_files *files, const char *path, quire_error *error) {
    faulty_files *f = faulty_of(files);
    verdict v = decide_locked(f, CALL_REMOVE, true);
    if (v != GO) return refuse(error, v, path, QR_NO_OFFSET);
    if (!f->journal) return f->below->ops->remove(f->below, path, error);
    enter(f);
    char real[4096];
    int failed = faulty_journal_remove(f->journal, real_path(path, real));
    leave(f);
    if (failed == ENOENT || failed == EISDIR) return qr_fail(error, QUIRE_NOT_FOUND, path, QR_NO_OFFSET, "no file is there");
    return of_reason(failed, path, error);
}

static quire_status faulty_rename(qr_files *files, const char *from, const char *to, quire_error *error) {
    faulty_files *f = faulty_of(files);
    verdict v = decide_locked(f, CALL_OTHER, true);
    if (v != GO) return refuse(error, v, from, QR_NO_OFFSET);
    if (!f->journal) return f->below->ops->rename(f->below, from, to, error);
    enter(f);
    char real_from[4096], real_to[4096];
    int failed = faulty_journal_rename(f->journal, real_path(from, real_from), real_path(to, real_to));
    leave(f);
    return of_reason(failed, from, error);
}

/* ---- the owner's ---- */

faulty_files *faulty_files_create(qr_files *below, const faults *now, bool remember) {
    static const qr_files_ops ops = {
        .open = faulty_open,
        .close = faulty_close,
        .size = faulty_size,
        .read = faulty_read,
        .write = faulty_write,
        .allocate = faulty_allocate,
        .punch = faulty_punch,
        .zero = faulty_zero,
        .sync = faulty_sync,
        .sync_folder = faulty_sync_folder,
        .remove = faulty_remove,
        .rename = faulty_rename,
        .space = faulty_space,
    };
    faulty_files *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->files.ops = &ops;
    f->below = below;
    f->journal = remember ? faulty_journal_create() : NULL;
    pthread_mutex_init(&f->serial, NULL);
    pthread_mutex_init(&f->lock, NULL);
    f->now = *now;
    return f;
}

void faulty_files_destroy(faulty_files *f) {
    if (!f) return;
    faulty_journal_destroy(f->journal);
    pthread_mutex_destroy(&f->lock);
    pthread_mutex_destroy(&f->serial);
    free(f);
}

qr_files *faulty_files_table(faulty_files *f) { return &f->files; }

void faulty_files_set(faulty_files *f, const faults *now) {
    pthread_mutex_lock(&f->lock);
    f->now = *now;
    memset(f->seen, 0, sizeof f->seen);
    pthread_mutex_unlock(&f->lock);
}

void faulty_files_get_counts(faulty_files *f, faulty_counts *counts) {
    pthread_mutex_lock(&f->lock);
    *counts = f->counts;
    pthread_mutex_unlock(&f->lock);
}

void faulty_files_stop_after(faulty_files *f, uint64_t changes) {
    pthread_mutex_lock(&f->lock);
    f->stop_after = changes;
    f->stopped = changes == 0;
    pthread_mutex_unlock(&f->lock);
}

bool faulty_files_stopped(faulty_files *f) {
    pthread_mutex_lock(&f->lock);
    bool stopped = f->stopped;
    pthread_mutex_unlock(&f->lock);
    return stopped;
}

void faulty_files_power_cut(faulty_files *f, uint64_t seed) {
    QR_ASSERT(f->journal && f->stopped);
    faulty_journal_cut(f->journal, seed, &f->counts.dropped_sectors, &f->counts.undone_changes);
}

void faulty_files_revive(faulty_files *f) {
    pthread_mutex_lock(&f->lock);
    f->stopped = false;
    f->stop_after = 0;
    pthread_mutex_unlock(&f->lock);
}
