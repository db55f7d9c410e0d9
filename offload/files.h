/* files.h - the file operations of the disk tier, as a table, so that tests can break them.
 *
 * qr_files_system() is the operating system. Tests put a table in front of it that fails, tears, delays or forgets
 * (tests/support/faulty_files.h); nothing of that is part of a release build.
 *
 * Every call returns QUIRE_OK, or IO (or NO_SPACE) with the path, the offset and the system's reason in error (may be
 * NULL). Reads and writes are whole or fail: short ones are repeated inside. Thread: any; the table holds no state of a file.
 */
#ifndef QR_OFFLOAD_FILES_H
#define QR_OFFLOAD_FILES_H

#include <stdbool.h>
#include <sys/uio.h>

#include <quire/status.h>

typedef struct qr_files qr_files;

typedef enum qr_file_mode {
    QR_FILE_READ,         /* must exist */
    QR_FILE_READ_WRITE,   /* must exist */
    QR_FILE_CREATE_UNIQUE /* must not exist; mode 0600 */
} qr_file_mode;

typedef struct qr_files_space {
    uint64_t free_bytes, total_bytes; /* of the file system, for an ordinary user */
} qr_files_space;

typedef struct qr_files_ops {
    /* direct: past the page cache where the file system can (buffers, sizes and offsets are multiples of 4 KiB); where it
     * cannot the file is opened without. Never follows a link as last component. NOT_FOUND: nothing is there, or no regular
     * file; any other failure says nothing about the file (too many open ones, rights, a bad disk). */
    quire_status (*open)(qr_files *files, const char *path, qr_file_mode mode, bool direct, int *fd, quire_error *error);
    void (*close)(qr_files *files, int fd);
    quire_status (*size)(qr_files *files, int fd, uint64_t *size_bytes, quire_error *error);
    quire_status (*read)(qr_files *files, int fd, const struct iovec *parts, int part_count, uint64_t offset,
                         quire_error *error);
    quire_status (*write)(qr_files *files, int fd, const struct iovec *parts, int part_count, uint64_t offset,
                          quire_error *error);
    quire_status (*allocate)(qr_files *files, int fd, uint64_t size_bytes, quire_error *error); /* from 0, zeros */
    quire_status (*punch)(qr_files *files, int fd, uint64_t offset, uint64_t size_bytes, quire_error *error); /* bytes gone */
    /* Bytes gone, space kept: what is written there later needs no more of it. */
    quire_status (*zero)(qr_files *files, int fd, uint64_t offset, uint64_t size_bytes, quire_error *error);
    quire_status (*sync)(qr_files *files, int fd, quire_error *error); /* fdatasync */
    quire_status (*sync_folder)(qr_files *files, const char *path, quire_error *error);
    /* NOT_FOUND: nothing is there, or a folder. */
    quire_status (*remove)(qr_files *files, const char *path, quire_error *error);
    quire_status (*rename)(qr_files *files, const char *from, const char *to, quire_error *error);
    quire_status (*space)(qr_files *files, const char *path, qr_files_space *space, quire_error *error);
} qr_files_ops;

/* Every implementation begins with this. */
struct qr_files {
    const qr_files_ops *ops;
};

/* The operating system's. Never freed. */
qr_files *qr_files_system(void);
#endif
