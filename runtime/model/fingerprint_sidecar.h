/* fingerprint_sidecar.h - remembers the fingerprint of a weights file, so that a file that did not change is not hashed again.
 *
 * One small text file per weights file in a private folder, found by device and inode and believed only when size, time of
 * modification and time of change agree to the nanosecond and its own checksum holds. Whatever is wrong with it (missing,
 * unreadable, damaged, another's) means "not known": it is never an error, and a file that cannot be written is not missed.
 *
 * What it does not notice: bytes that change behind the file system's back, and a writer that still holds the file mapped. A
 * file that changed within the last QR_SIDECAR_SETTLE_NS is not remembered, because a second change might leave it the same
 * times. Who may write to the folder could lie; it has to belong to the user and to nobody else.
 *
 * Thread: any; files are replaced by rename.
 */
#ifndef QR_MODEL_FINGERPRINT_SIDECAR_H
#define QR_MODEL_FINGERPRINT_SIDECAR_H

#include <stdbool.h>
#include <stdint.h>

/* The coarsest clock of a file system in use (FAT) counts in two seconds. */
#define QR_SIDECAR_SETTLE_NS INT64_C(2000000000)

/* What must agree for a file to count as unchanged. */
typedef struct qr_file_identity {
    uint64_t device, inode, size_bytes;
    int64_t modified_ns, changed_ns; /* since 1970; the system sets the second, no program can */
} qr_file_identity;

/* Of an open file. False: fd is not a regular file. */
bool qr_file_identity_read(int fd, qr_file_identity *identity);
bool qr_file_identity_equal(const qr_file_identity *a, const qr_file_identity *b);

/* The remembered fingerprint; 0: not known. exact: of weights that were widened, as quire_model_options says. */
uint64_t qr_fingerprint_sidecar_find(const char *folder, const qr_file_identity *identity, bool exact);
/* Remembers it; makes the folder (0700) when it is missing. now_ns: the clock that the identity's times are from. */
void qr_fingerprint_sidecar_keep(const char *folder, const qr_file_identity *identity, bool exact, uint64_t fingerprint,
                                 int64_t now_ns);
#endif
