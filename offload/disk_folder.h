/* disk_folder.h - the folder of a disk store: whose it is, who has it open, which segments lie in it.
 *
 * Not through qr_files: nothing here is data. Thread: the one that opens and closes the store, between them its writer.
 */
#ifndef QR_OFFLOAD_DISK_FOLDER_H
#define QR_OFFLOAD_DISK_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include <quire/status.h>

typedef struct qr_disk_folder {
    int fd;         /* of the folder itself, which is what is locked; -1: not open */
    bool read_only; /* nothing can be written in it; then the lock is shared with others who only read */
    char reach[32]; /* a path that leads to what is locked, wherever it is moved; empty: the system has no such thing */
} qr_disk_folder;

/* Makes the folder when it is missing (mode 0700, parents too), checks that it is a folder of this user that nobody else can
 * write to and no link, and locks it. One that cannot be written is opened when `may_only_read`. Nothing in it changes. IO
 * (path, reason), BUSY (pid of who writes there; none when others only read). */
QUIRE_MUST_CHECK quire_status qr_disk_folder_open(qr_disk_folder *folder, const char *path, bool may_only_read,
                                                  quire_error *error);
void qr_disk_folder_close(qr_disk_folder *folder);
/* Writes our pid into its file `lock`. */
void qr_disk_folder_sign(const qr_disk_folder *folder, const char *path);
/* What file calls are to name it by: they reach what is locked also while the path leads elsewhere, as far as the system can
 * do that. The same for as long as it is open, and after it was renewed. */
const char *qr_disk_folder_reach(const qr_disk_folder *folder, const char *path);
/* Takes the place of one that was removed, under its descriptor; `renewed` is closed. False: it cannot. */
QUIRE_MUST_CHECK bool qr_disk_folder_renew(qr_disk_folder *folder, qr_disk_folder *renewed);
/* Somebody has it open for writing. *pid as far as its lock file says, else 0. */
bool qr_disk_folder_in_use(const char *path, uint64_t *pid);

typedef enum qr_disk_folder_state {
    QR_FOLDER_HERE,    /* the path leads to it */
    QR_FOLDER_AWAY,    /* it does not, but it is still there: it was moved, or something was mounted over it */
    QR_FOLDER_REMOVED, /* and everything in it */
} qr_disk_folder_state;
qr_disk_folder_state qr_disk_folder_look(const qr_disk_folder *folder, const char *path);

/* Ids of the segments in it, rising, on the heap. IO, NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_disk_folder_list(const char *path, uint64_t **ids, size_t *count, quire_error *error);
/* A regular file is there, whether or not it can be opened. taken_bytes: what the file system has given it. */
bool qr_disk_folder_has_file(const char *path, uint64_t *size_bytes, uint64_t *taken_bytes);
/* No regular file is there, for certain. */
bool qr_disk_folder_lacks(const char *path);
/* What is there is the open file. */
bool qr_disk_folder_holds(const char *path, int fd);
#endif
