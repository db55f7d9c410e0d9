/* faulty_journal.h - what a power cut could undo: the writes of each file since its last sync, and the changes of folders.
 *
 * Works on real files by their paths. A removed file is kept in a folder beside the one it was in until the folder is synced,
 * so that a cut can bring it back. Thread: one at a time.
 */
#ifndef QR_TESTS_FAULTY_JOURNAL_H
#define QR_TESTS_FAULTY_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

typedef struct faulty_journal faulty_journal;

faulty_journal *faulty_journal_create(void);
void faulty_journal_destroy(faulty_journal *journal); /* what was removed is removed now */

/* A file was opened as fd; made: it is new. */
void faulty_journal_open(faulty_journal *journal, const char *path, int fd, bool made);
void faulty_journal_close(faulty_journal *journal, int fd);
/* To be called before bytes [offset, offset + size) change or the file grows; `changed` after that. */
void faulty_journal_change(faulty_journal *journal, int fd, uint64_t offset, uint64_t size_bytes);
void faulty_journal_changed(faulty_journal *journal, int fd);
/* What was changed before is safe, or, when the sync failed, can never be made safe. */
void faulty_journal_sync(faulty_journal *journal, int fd, bool failed);

/* Instead of the system's. 0, or an errno. */
int faulty_journal_remove(faulty_journal *journal, const char *path);
int faulty_journal_rename(faulty_journal *journal, const char *from, const char *to);
void faulty_journal_sync_folder(faulty_journal *journal, const char *path);

/* No file may be open. Counts what did not survive. */
void faulty_journal_cut(faulty_journal *journal, uint64_t seed, uint64_t *dropped_sectors, uint64_t *undone_changes);
#endif
