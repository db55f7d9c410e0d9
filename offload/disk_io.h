/* disk_io.h - file calls of one thread of the disk store, counted and timed; what fails is noted with its place. */
#ifndef QR_OFFLOAD_DISK_IO_H
#define QR_OFFLOAD_DISK_IO_H

#include "offload/files.h"
#include "offload/store.h"

enum { QR_IO_TROUBLES = 8 };

typedef struct qr_disk_io {
    qr_files *files;
    const char *folder; /* borrowed */
    uint64_t read_count, read_bytes, written_bytes, read_us, write_us, error_count;
    uint64_t failed_sync_count;       /* since the thread began: bytes written before may be gone for good */
    bool (*cancelled)(void *context); /* NULL: never; long series of calls ask it in between */
    void *cancelled_context;
    uint32_t trouble_count; /* noted; those beyond the first QR_IO_TROUBLES only here */
    qr_store_trouble troubles[QR_IO_TROUBLES];
} qr_disk_io;

/* A call that failed is counted and noted; OK and NO_SPACE are not. Returns status. path: its last name is told. */
quire_status qr_disk_io_path_result(qr_disk_io *io, quire_status status, const char *path, const quire_error *why);
quire_status qr_disk_io_fd_result(qr_disk_io *io, quire_status status, int fd, const quire_error *why);
static inline bool qr_disk_io_cancelled(const qr_disk_io *io) { return io->cancelled && io->cancelled(io->cancelled_context); }
/* Something that was read and does not hold. */
void qr_disk_io_note_damage(qr_disk_io *io, const char *file, uint64_t offset, const quire_error *why);
void qr_store_trouble_fill(qr_store_trouble *trouble, qr_store_trouble_kind kind, const char *file, uint64_t offset,
                           const char *what);

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
QUIRE_MUST_CHECK quire_status qr_disk_io_sync_folder(qr_disk_io *io, quire_error *error);
#endif
