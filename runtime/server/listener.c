/* listener.c - see listener.h. */
#include "runtime/server/listener.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TAKEN_MAX = 64,               /* at a time, so that those who are there get their turn between */
    TELL_AGAIN_US = 10 * 1000000, /* a shortage that lasts is logged so often */
};

static void listener_ready(uv_poll_t *poll, int status, int events);

static int listener_watch(qr_listener *l) { return uv_poll_start(&l->poll, UV_READABLE, listener_ready); }

static void listener_retry(uv_timer_t *timer) { (void)listener_watch(timer->data); /* fails only for a handle that closes */ }

static void listener_tell(const qr_listener *l, uint64_t *told_us, const char *event, int reason) {
    uint64_t now_us = qr_clock_us();
    if (*told_us && now_us - *told_us < TELL_AGAIN_US) return;
    *told_us = now_us;
    qr_log_warn(l->log, event, QR_STR("listener", l->is_unix ? "unix" : "tcp"), QR_STR("reason", strerror(reason)));
}

static void listener_pause(qr_listener *l, int reason) {
    uv_poll_stop(&l->poll);
    uv_timer_start(&l->retry, listener_retry, QR_LISTEN_RETRY_MS, 0);
    listener_tell(l, &l->told_us, "connections_wait", reason);
}

/* What ails this process or this machine, and not the one connection: accept(2) passes errors of its network on, too. */
static bool is_shortage(int reason) { return reason == EMFILE || reason == ENFILE || reason == ENOBUFS || reason == ENOMEM; }

static int listener_accept(const qr_listener *l) { return accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC); }

static bool somebody_waits(const qr_listener *l) {
    struct pollfd poll_fd = {.fd = l->fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) > 0;
}

/* The kernel looks for a descriptor before it looks whether anybody waits. One is spared for each that comes, no more: of a
 * table that is the machine's, others may take what was given back. */
static int listener_accept_or_spare(qr_listener *l) {
    int fd = listener_accept(l);
    if (fd >= 0 || (errno != EMFILE && errno != ENFILE)) return fd;
    int reason = errno;
    if (!somebody_waits(l)) return errno = EAGAIN, -1;
    if (!l->spare(l->context)) return errno = reason, -1;
    listener_tell(l, &l->spare_told_us, "idle_connections_close", reason);
    return listener_accept(l);
}

static void listener_ready(uv_poll_t *poll, int status, int events) {
    qr_listener *l = poll->data;
    if (status < 0) return listener_pause(l, -status); /* libuv has stopped watching */
    for (int i = 0; i < TAKEN_MAX; i++) {
        int fd = listener_accept_or_spare(l);
        if (fd < 0 && errno == EAGAIN) return;
        if (fd < 0 && is_shortage(errno)) return listener_pause(l, errno);
        if (fd >= 0 && !l->take(l->context, fd, l->is_unix)) return listener_pause(l, ENOMEM);
    }
}

void qr_listener_init(qr_listener *l, uv_loop_t *loop, qr_listener_take *take, qr_listener_spare *spare, void *context,
                      const qr_log *log) {
    *l = (qr_listener){.take = take, .spare = spare, .context = context, .log = log, .fd = -1};
    uv_timer_init(loop, &l->retry);
    l->retry.data = l;
}

int qr_listener_open(qr_listener *l, int fd, bool is_unix) {
    int failed = uv_poll_init(l->retry.loop, &l->poll, fd);
    if (failed) return close(fd), failed;
    l->poll.data = l;
    l->is_unix = is_unix;
    l->fd = fd;
    return listener_watch(l);
}

void qr_listener_close(qr_listener *l) {
    if (l->fd < 0) return;
    uv_timer_stop(&l->retry);
    uv_close((uv_handle_t *)&l->poll, NULL);
    close(l->fd);
    l->fd = -1;
}
