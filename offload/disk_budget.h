/* disk_budget.h - how many bytes were written today, kept across restarts in the folder's file `budget`.
 *
 * What is about to be written is noted in the file ahead, in portions, so that a process that dies has never written more
 * than the file says; an orderly close notes the exact number. Days are UTC. Thread: values under the owner's lock; load and
 * save are file calls of one thread.
 */
#ifndef QR_OFFLOAD_DISK_BUDGET_H
#define QR_OFFLOAD_DISK_BUDGET_H

#include <stdbool.h>

#include "offload/disk_io.h"

typedef struct qr_disk_budget {
    uint64_t limit_bytes; /* a day; 0: only counted */
    uint64_t day;         /* since 1970 */
    uint64_t spent_bytes; /* in that day */
    uint64_t noted_bytes; /* in the file */
} qr_disk_budget;

/* Reads the file; one that is missing, of another day or does not hold counts as nothing spent. page [4 KiB], aligned. */
void qr_disk_budget_load(qr_disk_budget *budget, uint64_t limit_bytes, uint64_t now_ms, qr_disk_io *io, unsigned char *page);
uint64_t qr_disk_budget_left(qr_disk_budget *budget, uint64_t now_ms); /* UINT64_MAX without a limit */
void qr_disk_budget_spend(qr_disk_budget *budget, uint64_t bytes, uint64_t now_ms);
/* The file must be written before `bytes` more are: noted_bytes is raised, pass a copy to save. */
bool qr_disk_budget_note(qr_disk_budget *budget, uint64_t bytes, uint64_t now_ms);
void qr_disk_budget_save(const qr_disk_budget *budget, qr_disk_io *io, unsigned char *page);
#endif
