/* disk_store.h - the store on disk: segment files of self-describing records (docs/KV_FILE_FORMAT.md).
 *
 *   folder/  lock                       pid of the process that has the folder open for writing; the folder itself is locked
 *            segment-<id>.quire         one fixed size, taken whole when it is begun
 *            budget                     bytes written today
 *
 *   segment  [ header 4 KiB | record 0 | record 1 | ... | index footer ]      record: [ header 4 KiB | payload ]
 *
 * One segment is open; records are appended to it and published when their write has returned. A full one is sealed: synced,
 * then its footer (ids, tokens, keys) is written and synced. Opening a folder reads headers and footers of sealed segments
 * and every record of an unsealed one, checksums and all.
 *
 * Space is taken a segment at a time and never exceeds the cap. When it is short the oldest segment goes: records that were
 * touched since they were written, or have children elsewhere, are carried into the open segment (at most half of one), the
 * others are LOST, and the file is removed. Segments of another fingerprint go before any of ours.
 */
#ifndef QR_OFFLOAD_DISK_STORE_H
#define QR_OFFLOAD_DISK_STORE_H

#include "offload/files.h"
#include "offload/store.h"

typedef struct qr_disk_config {
    const char *path; /* made when missing, mode 0700; copied */
    uint64_t cap_bytes;
    uint64_t free_floor_bytes; /* of the file system, never gone below by us; 0 = the lesser of 1 GiB and 5 % of it */
    uint64_t day_budget_bytes; /* written to disk a day, 0 = no limit; kept across restarts */
    uint64_t payload_bytes;    /* a multiple of 4 KiB */
    uint32_t block_tokens;
    qr_fingerprint fingerprint;
    uint32_t write_buffers, read_buffers; /* 0 = by payload size: up to 32 each, 16 MiB each, at least 4 */
    uint32_t reader_count;                /* threads; 0 = what measured best */
    uint32_t retry_us_max;                /* the longest pause before what failed is tried again; 0 = 2 s */
    bool may_only_read;          /* a folder that cannot be written is served from: puts are refused, nothing is erased */
    qr_files *files;             /* NULL = the system */
    void (*wake)(void *context); /* any thread; may be NULL */
    void *wake_context;
    bool (*cancelled)(void *context); /* asked by open between reads: true makes it end with CANCELLED; may be NULL */
    void *cancelled_context;
} qr_disk_config;

/* The smallest cap that can be served with these sizes: eight segments of one record. */
uint64_t qr_disk_cap_min_bytes(uint64_t payload_bytes, uint32_t block_tokens);
/* Records that can be in the store at most, and the memory that open takes for them, buffers and stacks included. */
uint32_t qr_disk_record_max(uint64_t cap_bytes, uint64_t payload_bytes, uint32_t block_tokens);
uint64_t qr_disk_memory_bytes(const qr_disk_config *config);

/* Errors: INVALID (field, a cap below the minimum with both numbers), IO (path and reason), BUSY (another process has the
 * folder: its pid; those that can only read share it), UNSUPPORTED (a file of an unknown version: the path and the version),
 * NO_MEMORY, CANCELLED. */
QUIRE_MUST_CHECK quire_status qr_disk_open(const qr_disk_config *config, qr_store **store, quire_error *error);
#endif
