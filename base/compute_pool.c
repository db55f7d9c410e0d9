/* compute_pool.c - fork-join by one ticket word.
 *
 *   ticket:  epoch 16 | pieces 24 | next 24
 *
 * run writes the job, then the ticket (release), then rings the bell. A claim is one fetch-add (acquire): the word it returns
 * says whether the piece exists, so a worker that wakes late either helps the job of now or finds nothing. Reading `piece` and
 * `argument` is safe only with a claimed piece in hand, because the job cannot end before that piece is done.
 * `done` counts finished pieces; the one that makes it complete wakes the caller, if that sleeps.
 *
 * Sleeping follows one rule on both sides: say that you sleep, then look again (all sequentially consistent). Whoever changes
 * the word first and looks for sleepers after cannot miss.
 */
#include "base/compute_pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/assertion.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/futex_internal.h"
#include "base/memory.h"

enum {
    TICKET_BITS = 24,
    TICKET_MASK = (1 << TICKET_BITS) - 1,
    /* Every thread may take one ticket too many per job; next must not run into pieces. */
    PIECES_MAX = TICKET_MASK - 2 * QR_COMPUTE_THREADS_MAX,
    RELAXES_PER_LOOK = 16,
    CACHE_LINE = 64,
};

typedef struct pool_worker {
    qr_compute_pool *pool;
    pthread_t id;
    int thread;
} pool_worker;

struct qr_compute_pool {
    _Alignas(CACHE_LINE) _Atomic uint64_t ticket;
    _Alignas(CACHE_LINE) _Atomic uint32_t done; /* futex word of the caller */
    _Atomic uint32_t caller_sleeps;
    _Alignas(CACHE_LINE) _Atomic uint32_t bell; /* futex word of the workers, moves with every job */
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
    _Alignas(CACHE_LINE) qr_compute_piece *piece;
    void *argument;
    uint64_t epoch;
    uint64_t spin_ns;
    int threads;
    int started; /* workers to join */
    pool_worker workers[];
};

/* Takes pieces until none is left. */
static void pool_work(qr_compute_pool *pool, int thread) {
    for (;;) {
        uint64_t ticket = atomic_fetch_add_explicit(&pool->ticket, 1, memory_order_acq_rel);
        uint32_t next = (uint32_t)(ticket & TICKET_MASK), pieces = (uint32_t)(ticket >> TICKET_BITS & TICKET_MASK);
        if (next >= pieces) return;
        pool->piece(pool->argument, (int)next, thread);
        uint32_t done = atomic_fetch_add(&pool->done, 1) + 1;
        if (done == pieces && atomic_load(&pool->caller_sleeps)) qr_futex_wake(&pool->done, 1);
    }
}

/* Spins until *word is (or, with until_equal false, is not) value; false when the time is up. */
static bool pool_spin(const qr_compute_pool *pool, _Atomic uint32_t *word, uint32_t value, bool until_equal) {
    uint64_t end = pool->spin_ns ? qr_clock_ns() + pool->spin_ns : 0;
    do {
        for (int i = 0; i < RELAXES_PER_LOOK; i++) {
            if ((atomic_load_explicit(word, memory_order_acquire) == value) == until_equal) return true;
            qr_cpu_relax();
        }
    } while (end && qr_clock_ns() < end);
    return false;
}

static void pool_wait_bell(qr_compute_pool *pool, uint32_t seen) {
    if (pool_spin(pool, &pool->bell, seen, false)) return;
    atomic_fetch_add(&pool->sleepers, 1);
    if (atomic_load(&pool->bell) == seen) qr_futex_wait(&pool->bell, seen, UINT64_MAX);
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void *pool_worker_main(void *context) {
    pool_worker *worker = context;
    qr_compute_pool *pool = worker->pool;
    uint32_t seen = 0;
    qr_arithmetic_set_canonical(); /* whatever the creator's mode was */
    while (!atomic_load(&pool->stop)) {
        pool_wait_bell(pool, seen);
        uint32_t now = atomic_load(&pool->bell);
        if (now == seen) continue;
        seen = now;
        pool_work(pool, worker->thread);
    }
    return NULL;
}

static void pool_wait_done(qr_compute_pool *pool, uint32_t pieces) {
    while (!pool_spin(pool, &pool->done, pieces, true)) {
        atomic_store(&pool->caller_sleeps, 1);
        uint32_t done = atomic_load(&pool->done);
        if (done != pieces) qr_futex_wait(&pool->done, done, UINT64_MAX);
        atomic_store(&pool->caller_sleeps, 0);
    }
}

static void pool_ring(qr_compute_pool *pool) {
    atomic_fetch_add(&pool->bell, 1);
    if (atomic_load(&pool->sleepers)) qr_futex_wake(&pool->bell, pool->threads);
}

void qr_compute_pool_run(qr_compute_pool *pool, qr_compute_piece *piece, void *argument, int pieces) {
    QR_ASSERT(pieces <= PIECES_MAX);
    if (pieces <= 0) return;
    if (pool->threads == 1 || pieces == 1) {
        for (int i = 0; i < pieces; i++) piece(argument, i, 0);
        return;
    }
    pool->piece = piece;
    pool->argument = argument;
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    pool->epoch++;
    uint64_t ticket = pool->epoch << (2 * TICKET_BITS) | (uint64_t)pieces << TICKET_BITS;
    atomic_store_explicit(&pool->ticket, ticket, memory_order_release);
    pool_ring(pool);
    pool_work(pool, 0);
    pool_wait_done(pool, (uint32_t)pieces);
}

static quire_status pool_start_worker(qr_compute_pool *pool, int thread, quire_error *error) {
    pool_worker *worker = &pool->workers[thread];
    *worker = (pool_worker){.pool = pool, .thread = thread};
    int failed = pthread_create(&worker->id, NULL, pool_worker_main, worker);
    if (failed)
        return qr_fail(error, QUIRE_IO, NULL, QR_NO_OFFSET, "cannot start compute thread %d: %s", thread, strerror(failed));
    pool->started = thread;
    return QUIRE_OK;
}

/* Workers take no signals: those belong to the program's own threads. */
static quire_status pool_start_workers(qr_compute_pool *pool, quire_error *error) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    quire_status status = QUIRE_OK;
    for (int thread = 1; thread < pool->threads && status == QUIRE_OK; thread++)
        status = pool_start_worker(pool, thread, error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

quire_status qr_compute_pool_create(int thread_count, int spin_ns, qr_compute_pool **out, quire_error *error) {
    *out = NULL;
    if (thread_count < 1 || thread_count > QR_COMPUTE_THREADS_MAX || spin_ns < 0)
        return qr_fail(error, QUIRE_INVALID, NULL, QR_NO_OFFSET, "a compute pool has 1 to %d threads, not %d",
                       QR_COMPUTE_THREADS_MAX, thread_count);
    qr_compute_pool *pool = qr_alloc_zero(1, sizeof *pool + (size_t)thread_count * sizeof pool->workers[0]);
    if (!pool) return qr_fail(error, QUIRE_NO_MEMORY, NULL, QR_NO_OFFSET, "no memory for a compute pool");
    pool->threads = thread_count;
    pool->spin_ns = (uint64_t)spin_ns;
    quire_status status = pool_start_workers(pool, error);
    if (status != QUIRE_OK) qr_compute_pool_destroy(pool);
    else *out = pool;
    return status;
}

void qr_compute_pool_destroy(qr_compute_pool *pool) {
    if (!pool) return;
    atomic_store(&pool->stop, true);
    atomic_fetch_add(&pool->bell, 1);
    qr_futex_wake(&pool->bell, pool->threads);
    for (int thread = 1; thread <= pool->started; thread++) pthread_join(pool->workers[thread].id, NULL);
    free(pool);
}

int qr_compute_pool_threads(const qr_compute_pool *pool) { return pool->threads; }
