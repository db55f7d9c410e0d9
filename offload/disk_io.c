/* disk_io.c - file calls, counted and timed. */
#include "offload/disk_io.h"

#include "base/clock.h"

static uint64_t parts_bytes(const struct iovec *parts, int part_count) {
    uint64_t bytes = 0;
    for (int i = 0; i < part_count; i++) bytes += parts[i].iov_len;
    return bytes;
}

static quire_status counted(qr_disk_io *io, quire_status status) {
    io->error_count += status != QUIRE_OK && status != QUIRE_NO_SPACE;
    return status;
}

quire_status qr_disk_io_read(qr_disk_io *io, int fd, const struct iovec *parts, int part_count, uint64_t offset,
                             quire_error *error) {
    uint64_t begin = qr_clock_us();
    quire_status status = io->files->ops->read(io->files, fd, parts, part_count, offset, error);
    io->read_us += qr_clock_us() - begin;
    io->read_count++;
    if (status == QUIRE_OK) io->read_bytes += parts_bytes(parts, part_count);
    return counted(io, status);
}

quire_status qr_disk_io_write(qr_disk_io *io, int fd, const struct iovec *parts, int part_count, uint64_t offset,
                              quire_error *error) {
    uint64_t begin = qr_clock_us();
    quire_status status = io->files->ops->write(io->files, fd, parts, part_count, offset, error);
    io->write_us += qr_clock_us() - begin;
    io->written_bytes += parts_bytes(parts, part_count); /* some of a failed one may have been */
    return counted(io, status);
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
    uint64_t begin = qr_clock_us();
    quire_status status = io->files->ops->sync(io->files, fd, error);
    io->write_us += qr_clock_us() - begin;
    io->failed_sync_count += status != QUIRE_OK;
    return counted(io, status);
}
