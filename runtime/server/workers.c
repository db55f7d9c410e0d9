/* workers.c - see workers.h. */
#include "runtime/server/workers.h"

#include "base/error.h"

#include <stdlib.h>
#include <uv.h>

enum { WORKERS_DEFAULT = 4, WORKERS_MAX = 1024 }; /* libuv's own figures, as is the variable's name */

static int workers_wanted(void) {
    const char *text = getenv("UV_THREADPOOL_SIZE");
    int count = text ? atoi(text) : WORKERS_DEFAULT;
    if (text && count == 0) return 1;
    return count < 0 || count > WORKERS_MAX ? WORKERS_MAX : count; /* libuv takes a negative one for a large one */
}

static void wait_for_end(void *gate) { uv_sem_wait(gate); }

/* Starts so many at once and ends them again; how many there were, and what kept one more from it. */
static int workers_try(int wanted, int *reason) {
    uv_thread_t threads[WORKERS_MAX];
    uv_sem_t gate;
    int count = 0;
    if ((*reason = uv_sem_init(&gate, 0)) != 0) return 0;
    while (count < wanted && (*reason = uv_thread_create(&threads[count], wait_for_end, &gate)) == 0) count++;
    for (int i = 0; i < count; i++) uv_sem_post(&gate);
    for (int i = 0; i < count; i++) uv_thread_join(&threads[i]);
    uv_sem_destroy(&gate);
    return count;
}

static void no_work(uv_work_t *work) {}

/* Any work will do. */
static int workers_begin(void) {
    uv_loop_t loop;
    uv_work_t work;
    int failed = uv_loop_init(&loop);
    if (failed) return failed;
    failed = uv_queue_work(&loop, &work, no_work, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    return failed;
}

quire_status qr_workers_start(quire_error *error) {
    int reason, wanted = workers_wanted(), count = workers_try(wanted, &reason);
    if (count == wanted) reason = workers_begin();
    if (reason == 0) return QUIRE_OK;
    return qr_fail(error, QUIRE_IO, "server", QR_NO_OFFSET,
                   "%s: it needs %d worker threads and could start %d; raise the limits (ulimit -u, ulimit -v)",
                   uv_strerror(reason), wanted, count);
}
