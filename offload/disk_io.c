/* disk_io.c - file calls, counted and timed, and where those that failed did. */
#include "offload/disk_io.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

enum { PATH_BYTES = 4096 };

/* ---- troubles ---- */

void qr_store_trouble_fill(qr_store_trouble *trouble, qr_store_trouble_kind kind, const char *file, uint64_t offset,
                           const char *what) {
    *trouble = (qr_store_trouble){.kind = kind, .offset = offset, .wall_ms = qr_clock_wall_ms()};
    (void)qr_text_sanitize(trouble->file, sizeof trouble->file, file, strlen(file));
    (void)qr_text_sanitize(trouble->what, sizeof trouble->what, what, strlen(what));
}

static void note(qr_disk_io *io, qr_store_trouble_kind kind, const char *file, uint64_t offset, const char *what) {
    uint32_t place = io->trouble_count++;
    if (place < QR_IO_TROUBLES) qr_store_trouble_fill(&io->troubles[place], kind, file, offset, what);
}

/* The folder has no name in a trouble: it is the only one. */
static const char *name_in_folder(const qr_disk_io *io, const char *path) {
    const char *slash = strrchr(path, '/');
    if (strcmp(path, io->folder) == 0) return "";
    return slash ? slash + 1 : path;
}

/* The name that a descriptor was opened with; the kernel knows it, also of a file that is gone. */
static const char *name_of_fd(const qr_disk_io *io, int fd, char path[PATH_BYTES]) {
    static const char gone[] = " (deleted)";
    char link[64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_BYTES - 1);
    path[length > 0 ? length : 0] = 0;
    size_t size = strlen(path), tail = sizeof gone - 1;
    if (size > tail && strcmp(path + size - tail, gone) == 0) path[size - tail] = 0;
    return name_in_folder(io, path);
}

static bool is_trouble(quire_status status) { return status != QUIRE_OK && status != QUIRE_NO_SPACE; }

quire_status qr_disk_io_path_result(qr_disk_io *io, quire_status status, const char *path, const quire_error *why) {
    if (!is_trouble(status)) return status;
    io->error_count++;
    note(io, QR_STORE_TROUBLE_ERROR, name_in_folder(io, path), why->offset, why->text);
    return status;
}

quire_status qr_disk_io_fd_result(qr_disk_io *io, quire_status status, int fd, const quire_error *why) {
    char path[PATH_BYTES];
    if (!is_trouble(status)) return status;
    io->error_count++;
    note(io, QR_STORE_TROUBLE_ERROR, name_of_fd(io, fd, path), why->offset, why->text);
    return status;
}

void qr_disk_io_note_damage(qr_disk_io *io, const char *file, uint64_t offset, const quire_error *why) {
    note(io, QR_STORE_TROUBLE_DAMAGED, file, offset, why->text);
}

/* ---- calls ---- */

static uint64_t parts_bytes(const struct iovec *parts, int part_count) {
    uint64_t bytes = 0;
    for (int i = 0; i < part_count; i++) bytes += parts[i].iov_len;
    return bytes;
}

/* Where a call was to read or write, when it does not say so itself. */
static quire_status transferred(qr_disk_io *io, quire_status status, int fd, uint64_t offset, quire_error *why) {
    if (status != QUIRE_OK && why->offset == QR_NO_OFFSET) why->offset = offset;
    return qr_disk_io_fd_result(io, status, fd, why);
}

quire_status qr_disk_io_read(qr_disk_io *io, int fd, const struct iovec *parts, int part_count, uint64_t offset,
                             quire_error *error) {
    quire_error own, *why = error ? error : &own;
    uint64_t begin = qr_clock_us();
    qr_error_clear(why);
    quire_status status = io->files->ops->read(io->files, fd, parts, part_count, offset, why);
    io->read_us += qr_clock_us() - begin;
    io->read_count++;
    if (status == QUIRE_OK) io->read_bytes += parts_bytes(parts, part_count);
    return transferred(io, status, fd, offset, why);
}

quire_status qr_disk_io_write(qr_disk_io *io, int fd, const struct iovec *parts, int part_count, uint64_t offset,
                              quire_error *error) {
    quire_error own, *why = error ? error : &own;
    uint64_t begin = qr_clock_us();
    qr_error_clear(why);
    quire_status status = io->files->ops->write(io->files, fd, parts, part_count, offset, why);
    io->write_us += qr_clock_us() - begin;
    io->written_bytes += parts_bytes(parts, part_count); /* some of a failed one may have been */
    return transferred(io, status, fd, offset, why);
}

quire_status qr_disk_io_read_at(qr_disk_io *io, int fd, void *bytes, uint64_t size_bytes, uint64_t offset, quire_error *error) {
    struct iovec part = {bytes, size_bytes};
    return qr_disk_io_read(io, fd, &part, 1, offset, error);
}

quire_status qr_disk_io_write_at(qr_disk_io *io, int fd, const void *bytes, uint64_t size_bytes, uint64_t offset,
                                 quire_error *error) {
    struct iovec part = {(void *)(uintptr_t)bytes, size_bytes};
    return qr_disk_io_write(io, fd, &part, 1, offset, error);
}

quire_status qr_disk_io_sync(qr_disk_io *io, int fd, quire_error *error) {
    quire_error own, *why = error ? error : &own;
    uint64_t begin = qr_clock_us();
    qr_error_clear(why);
    quire_status status = io->files->ops->sync(io->files, fd, why);
    io->write_us += qr_clock_us() - begin;
    io->failed_sync_count += status != QUIRE_OK;
    return qr_disk_io_fd_result(io, status, fd, why);
}

quire_status qr_disk_io_sync_folder(qr_disk_io *io, quire_error *error) {
    quire_error own, *why = error ? error : &own;
    qr_error_clear(why);
    return qr_disk_io_path_result(io, io->files->ops->sync_folder(io->files, io->folder, why), io->folder, why);
}
