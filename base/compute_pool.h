/* compute_pool.h - fork-join over the cores for pieces of a few microseconds.
 *
 * A job is `pieces` independent calls. Pieces are claimed from one 64-bit word (epoch, pieces, next), so a claim is one
 * fetch-add and a late worker can never touch a job that is over. The caller is thread 0, works too, and waits only for
 * pieces that somebody claimed: a worker that the kernel has not scheduled yet costs nothing. Waiting is a short spin,
 * then a futex (spinning for ever made a peer 3 to 15 times slower beside one busy stranger).
 *
 * Thread: run may be called by one thread at a time; pieces run on any of the pool's threads.
 */
#ifndef QR_BASE_COMPUTE_POOL_H
#define QR_BASE_COMPUTE_POOL_H

#include <quire/status.h>

typedef struct qr_compute_pool qr_compute_pool;
/* thread: 0 .. thread_count-1, the same for all pieces that one thread runs, for per-thread scratch. */
typedef void qr_compute_piece(void *argument, int piece, int thread);

enum { QR_COMPUTE_THREADS_MAX = 256, QR_COMPUTE_SPIN_NS = 20000 };

/* thread_count counts the caller. Errors: INVALID, NO_MEMORY, IO (a thread could not be started). */
QUIRE_MUST_CHECK quire_status qr_compute_pool_create(int thread_count, int spin_ns, qr_compute_pool **pool, quire_error *error);
void qr_compute_pool_destroy(qr_compute_pool *pool);
int qr_compute_pool_threads(const qr_compute_pool *pool);
void qr_compute_pool_run(qr_compute_pool *pool, qr_compute_piece *piece, void *argument, int pieces);
#endif
