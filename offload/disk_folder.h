/* disk_folder.h - the folder of a disk store: whose it is, who has it open, which segments lie in it.
 *
 * Not through qr_files: nothing here is data. Thread: the one that opens and closes the store.
 */
#ifndef QR_OFFLOAD_DISK_FOLDER_H
#define QR_OFFLOAD_DISK_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include <quire/status.h>

typedef struct qr_disk_folder {
    int lock_fd; /* held while open; -1: not open */
} qr_disk_folder;

/* Makes the folder when it is missing (mode 0700, parents too), checks that it is a folder of this user that nobody else can
 * write to and no link, and locks it. IO (path, reason), BUSY (pid of the holder). */
QUIRE_MUST_CHECK quire_status qr_disk_folder_open(qr_disk_folder *folder, const char *path, quire_error *error);
void qr_disk_folder_close(qr_disk_folder *folder);

/* Ids of the segments in it, rising, on the heap. IO, NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_disk_folder_list(const char *path, uint64_t **ids, size_t *count, quire_error *error);
/* A regular file is there, whether or not it can be opened. */
bool qr_disk_folder_has_file(const char *path, uint64_t *size_bytes);
#endif
