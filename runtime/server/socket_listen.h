/* socket_listen.h - the listening sockets: a private Unix socket that is never stolen, and TCP.
 *
 * Rules of the Unix socket (docs/HTTP_API.md):
 *  - The folder is made 0700 when it is missing. It must belong to us or to root, and nobody else may be able to write
 *    to it, a sticky folder such as /tmp excepted.
 *  - PATH.lock is locked (flock) for as long as the socket lives, so two starts can never race. It is removed on a clean exit.
 *  - What is at the path is removed only if it is a socket, ours, and nobody answers a connect. Regular files, folders,
 *    links and live sockets are never touched.
 *  - The mode holds from the first moment: it is set on the descriptor before bind, and nobody can connect before listen.
 *
 * Thread: any.
 */
#ifndef QR_SERVER_SOCKET_LISTEN_H
#define QR_SERVER_SOCKET_LISTEN_H

#include <quire/status.h>

#include <stdbool.h>
#include <sys/types.h>

typedef struct qr_unix_socket {
    int fd;       /* bound and listening; -1 = none. The owner may hand it on and set -1. */
    int lock_fd;  /* -1 = none */
    dev_t device; /* of the socket file that we made */
    ino_t inode;
    char path[108];
    char lock_path[108 + 8];
} qr_unix_socket;

enum { QR_LISTEN_BACKLOG = 4096 }; /* the kernel lowers it to net.core.somaxconn */

/* Errors: INVALID (path), IO (path and reason). Nothing is left behind on failure. */
QUIRE_MUST_CHECK quire_status qr_unix_socket_open(const char *path, unsigned mode, qr_unix_socket *socket, quire_error *error);
/* Removes the file if it is still the one we made, then gives up the lock. Harmless when not open. */
void qr_unix_socket_close(qr_unix_socket *socket);

/* HOST:PORT or [IPV6]:PORT, numeric or "localhost"; port 0 lets the system choose. *loopback says whether only this machine can
 * connect. Errors: INVALID (the text), IO. */
QUIRE_MUST_CHECK quire_status qr_tcp_listen(const char *address, int *fd, bool *loopback, int *port, quire_error *error);

#endif
