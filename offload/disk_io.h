/* disk_io.h - file calls of one thread of the disk store, counted and timed. */
#ifndef QR_OFFLOAD_DISK_IO_H
#define QR_OFFLOAD_DISK_IO_H

#include "offload/files.h"

typedef struct qr_disk_io {
    qr_files *files;
    const char *folder; /* borrowed */
    uint64_t read_count, read_bytes, written_bytes, read_us, write_us, error_count;
    uint64_t failed_sync_count; /* since the thread began: bytes written before may be gone for good */
} qr_disk_io;

QUIRE_MUST_CHECK quire_status qr_disk_io_read(qr_disk_io *io, int fd, const struct iovec *parts, int part_count,
                                              uint64_t offset, quire_error *error);
QUIRE_MUST_CHECK quire_status qr_disk_io_write(qr_disk_io *io, int fd, const struct iovec *parts, int part_count,
                                               uint64_t offset, quire_error *error);
/* One buffer. */
QUIRE_MUST_CHECK quire_status qr_disk_io_read_at(qr_disk_io *io, int fd, void *bytes, uint64_t size_bytes, uint64_t offset,
                                                 quire_error *error);
QUIRE_MUST_CHECK quire_status qr_disk_io_write_at(qr_disk_io *io, int fd, const void *bytes, uint64_t size_bytes,
                                                  uint64_t offset, quire_error *error);
QUIRE_MUST_CHECK quire_status qr_disk_io_sync(qr_disk_io *io, int fd, quire_error *error);
#endif
