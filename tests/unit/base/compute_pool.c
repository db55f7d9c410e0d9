#include "base/compute_pool.h"

#include <criterion/criterion.h>
#include <stdatomic.h>

typedef struct tally {
    _Atomic int runs[5000];
    _Atomic int bad_thread;
    int threads;
} tally;

static void count_piece(void *argument, int piece, int thread) {
    tally *t = argument;
    atomic_fetch_add(&t->runs[piece], 1);
    if (thread < 0 || thread >= t->threads) atomic_store(&t->bad_thread, 1);
}

Test(base_compute_pool, every_piece_runs_exactly_once) {
    const int pieces[] = {0, 1, 2, 3, 17, 1000, 5000};
    for (int threads = 1; threads <= 4; threads++) {
        qr_compute_pool *pool;
        cr_assert_eq(qr_compute_pool_create(threads, QR_COMPUTE_SPIN_NS, &pool, NULL), QUIRE_OK);
        cr_assert_eq(qr_compute_pool_threads(pool), threads);
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            static tally t;
            t = (tally){.threads = threads};
            qr_compute_pool_run(pool, count_piece, &t, pieces[i]);
            for (int p = 0; p < 5000; p++) cr_assert_eq(t.runs[p], p < pieces[i]);
            cr_assert_eq(t.bad_thread, 0);
        }
        qr_compute_pool_destroy(pool);
    }
}

Test(base_compute_pool, impossible_sizes_are_refused) {
    qr_compute_pool *pool = (void *)1;
    quire_error error;
    cr_assert_eq(qr_compute_pool_create(0, 0, &pool, &error), QUIRE_INVALID);
    cr_assert_null(pool);
    cr_assert_eq(qr_compute_pool_create(QR_COMPUTE_THREADS_MAX + 1, 0, &pool, &error), QUIRE_INVALID);
    cr_assert_eq(qr_compute_pool_create(2, -1, &pool, &error), QUIRE_INVALID);
    qr_compute_pool_destroy(NULL);
}

#if defined(__x86_64__)
static void read_mode(void *argument, int piece, int thread) {
    (void)piece;
    ((unsigned *)argument)[thread] = __builtin_ia32_stmxcsr();
}

Test(base_compute_pool, workers_keep_subnormals_whatever_the_creator_does) {
    enum { FLUSH_TO_ZERO = 1 << 15, DENORMALS_ARE_ZERO = 1 << 6, MODE = 0x7fc0 | FLUSH_TO_ZERO };
    unsigned modes[4] = {0}, before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
    qr_compute_pool *pool;
    cr_assert_eq(qr_compute_pool_create(4, QR_COMPUTE_SPIN_NS, &pool, NULL), QUIRE_OK);
    __builtin_ia32_ldmxcsr(before);
    for (int i = 0; i < 2000; i++) qr_compute_pool_run(pool, read_mode, modes, 64);
    for (int t = 1; t < 4; t++)
        if (modes[t]) cr_assert_eq(modes[t] & MODE, 0x1f80 & MODE);
    qr_compute_pool_destroy(pool);
}
#endif
