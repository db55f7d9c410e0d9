/* snapshot.h - a struct that one thread writes and any thread copies, without a lock.
 *
 * A sequence counter that is odd while the writer works and words that are atomics: a reader that saw a new word also sees
 * the counter move and tries again. The writer never waits. */
#ifndef QR_ENGINE_SNAPSHOT_H
#define QR_ENGINE_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>

typedef struct qr_snapshot qr_snapshot;

/* Of `bytes` bytes, zero at first. NULL when out of memory. */
qr_snapshot *qr_snapshot_create(size_t bytes);
void qr_snapshot_destroy(qr_snapshot *snapshot);
void qr_snapshot_write(qr_snapshot *snapshot, const void *from); /* one thread */
void qr_snapshot_read(const qr_snapshot *snapshot, void *to);    /* any thread */
#endif
