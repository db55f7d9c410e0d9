/* listener.h - takes the connections of one listening socket.
 *
 * While no descriptor or no memory is left for one more, none is taken: clients wait in the kernel's queue, the loop goes on
 * with those that it has, and after QR_LISTEN_RETRY_MS it is tried again. Where descriptors are short its owner is asked first
 * whether one of his can be spared. (A listener of libuv's own stops for good when a
 * connection that it took is not taken from it, and holds the loop while accept fails.)
 *
 * Thread: the loop.
 */
#ifndef QR_SERVER_LISTENER_H
#define QR_SERVER_LISTENER_H

#include "base/log.h"

#include <uv.h>

enum { QR_LISTEN_RETRY_MS = 100 };

/* Takes the descriptor of a connection, which neither blocks nor is inherited. false: there was no memory, and it is closed. */
typedef bool qr_listener_take(void *context, int fd, bool is_unix);
/* Closes a descriptor that can be spared. false: there is none. */
typedef bool qr_listener_spare(void *context);

typedef struct qr_listener {
    uv_poll_t poll;
    uv_timer_t retry;
    qr_listener_take *take;
    qr_listener_spare *spare;
    void *context;
    const qr_log *log;
    bool is_unix;
    uint64_t told_us;       /* when a shortage was last logged; 0 = never */
    uint64_t spare_told_us; /* and one that the owner helped out of */
    int fd;                 /* -1 = none */
} qr_listener;

/* The timer belongs to the loop from now on; whoever ends the loop closes it. */
void qr_listener_init(qr_listener *listener, uv_loop_t *loop, qr_listener_take *take, qr_listener_spare *spare, void *context,
                      const qr_log *log);
/* Takes the descriptor of a socket that listens, also on failure. Returns 0 or libuv's error. */
int qr_listener_open(qr_listener *listener, int fd, bool is_unix);
/* Closes the socket. Harmless when not open. */
void qr_listener_close(qr_listener *listener);

#endif
