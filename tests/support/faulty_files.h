/* faulty_files.h - a table of file operations in front of another one that fails, delays, flips bits, stops, and forgets.
 *
 * Three ways for a process to end are told apart. After faulty_files_stop_after(n) the n-th call that changes something is
 * done in part and nothing after it is done at all; every call fails from then on. That is the instant. The owner closes
 * what it can, and then the test calls
 *   - faulty_files_revive: a process was killed (kill -9). What was written before the instant is there.
 *   - faulty_files_power_cut, then revive: the power failed. Of what was written since a file's last sync each sector of 512
 *     or 4096 bytes is there or not, and of the folder's changes since its last sync only the first few have happened.
 *
 * What is unsynced is only remembered when `remember` is set, which makes every call serial and never direct; the files
 * are real ones then, and syncs go no further than here. A sync that failed has lost what it was for: a later one does not
 * save it.
 *
 * Thread: any, as for any qr_files; the calls below only while no other is under way (stop_after and set: any time).
 */
#ifndef QR_TESTS_FAULTY_FILES_H
#define QR_TESTS_FAULTY_FILES_H

#include "offload/files.h"
#include "tests/support/faults.h"

typedef struct faulty_files faulty_files;

/* What has happened, to prove that a test met what it was to meet. */
typedef struct faulty_counts {
    uint64_t calls, changes; /* changes: calls that write, take, remove, rename, make */
    uint64_t flips, failures, no_space, bytes_read, bytes_written;
    uint64_t delayed;                         /* reads and writes that had to wait */
    uint64_t dropped_sectors, undone_changes; /* by power cuts */
} faulty_counts;

/* below: borrowed. NULL: no memory. */
faulty_files *faulty_files_create(qr_files *below, const faults *f, bool remember);
void faulty_files_destroy(faulty_files *files);
qr_files *faulty_files_table(faulty_files *files);

/* Other faults from now on; calls are counted on, `nth` from here. */
void faulty_files_set(faulty_files *files, const faults *f);
void faulty_files_get_counts(faulty_files *files, faulty_counts *counts);

void faulty_files_stop_after(faulty_files *files, uint64_t changes); /* 1: the next one; 0: all is stopped now */
bool faulty_files_stopped(faulty_files *files);
void faulty_files_power_cut(faulty_files *files, uint64_t seed);
void faulty_files_revive(faulty_files *files);
#endif
