/* compute_pool stress: many short jobs, more threads than cores, pauses that let workers fall asleep, and a sum that only comes
 * out right when every piece ran once and its writes were seen. Run under ThreadSanitizer. */
#include "base/compute_pool.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/random.h"

enum { PIECES_MAX = 300 };

typedef struct job {
    uint64_t round;
    uint64_t out[PIECES_MAX]; /* plain memory: the pool must order these writes before run returns */
} job;

static void fill(void *argument, int piece, int thread) {
    job *j = argument;
    (void)thread;
    j->out[piece] += j->round * 1000 + (uint64_t)piece;
}

static int run_round(qr_compute_pool *pool, uint64_t round, int pieces) {
    job j = {.round = round};
    qr_compute_pool_run(pool, fill, &j, pieces);
    for (int p = 0; p < PIECES_MAX; p++) {
        uint64_t expected = p < pieces ? round * 1000 + (uint64_t)p : 0;
        if (j.out[p] == expected) continue;
        fprintf(stderr, "round %llu piece %d of %d: wrong\n", (unsigned long long)round, p, pieces);
        return 1;
    }
    return 0;
}

static int run_pool(int threads, int spin_ns, int rounds) {
    qr_compute_pool *pool;
    qr_random random = {(uint64_t)threads};
    if (qr_compute_pool_create(threads, spin_ns, &pool, NULL) != QUIRE_OK) return 1;
    int failed = 0;
    for (int round = 0; round < rounds && !failed; round++) {
        failed = run_round(pool, (uint64_t)round, 1 + (int)qr_random_below(&random, PIECES_MAX));
        if (round % 200 == 0) nanosleep(&(struct timespec){0, 300000}, NULL);
    }
    qr_compute_pool_destroy(pool);
    return failed;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 4000;
    int failed = 0;
    for (int threads = 1; threads <= 6 && !failed; threads++)
        failed = run_pool(threads, 0, rounds) || run_pool(threads, 20000, rounds);
    for (int i = 0; i < 100 && !failed; i++) failed = run_pool(4, 0, i % 3); /* start and stop */
    puts(failed ? "FAILED" : "ok");
    return failed;
}
