/* socket_listen.c - see socket_listen.h. */
#include "runtime/server/socket_listen.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static quire_status fail_errno(quire_error *error, const char *path, const char *what) {
    return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "%s: %s", what, strerror(errno));
}

/* ---- the folder ---- */

static quire_status folder_check(const char *folder, quire_error *error) {
    struct stat info;
    if (stat(folder, &info) < 0) return fail_errno(error, folder, "the folder of the socket cannot be read");
    if (!S_ISDIR(info.st_mode))
        return qr_fail(error, QUIRE_IO, folder, QR_NO_OFFSET, "the folder of the socket is not a folder");
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return qr_fail(error, QUIRE_IO, folder, QR_NO_OFFSET, "the folder of the socket belongs to another user (uid %u)",
                       (unsigned)info.st_uid);
    if ((info.st_mode & 022) && !(info.st_mode & S_ISVTX))
        return qr_fail(error, QUIRE_IO, folder, QR_NO_OFFSET, "others may write to the folder of the socket (mode %04o)",
                       (unsigned)info.st_mode & 07777u);
    return QUIRE_OK;
}

static quire_status folder_prepare(const char *path, quire_error *error) {
    char folder[108];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash) return folder_check(".", error);
    slash[slash == folder] = 0;
    if (mkdir(folder, 0700) < 0 && errno != EEXIST) return fail_errno(error, folder, "the folder of the socket cannot be made");
    return folder_check(folder, error);
}

/* ---- the lock ---- */

/* Between open and flock another process may have removed the file: then our lock means nothing. */
static bool lock_is_current(int fd, const char *path) {
    struct stat held, named;
    return fstat(fd, &held) == 0 && lstat(path, &named) == 0 && held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

static quire_status lock_take(qr_unix_socket *s, quire_error *error) {
    for (int attempt = 0; attempt < 16; attempt++) {
        int fd = open(s->lock_path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0) return fail_errno(error, s->lock_path, "the lock file cannot be opened");
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            int reason = errno;
            close(fd);
            errno = reason;
            if (reason != EWOULDBLOCK) return fail_errno(error, s->lock_path, "the lock file cannot be locked");
            return qr_fail(error, QUIRE_IO, s->path, QR_NO_OFFSET, "another daemon is already running on this socket");
        }
        s->lock_fd = fd;
        if (lock_is_current(fd, s->lock_path)) return QUIRE_OK;
        close(fd);
        s->lock_fd = -1;
    }
    return qr_fail(error, QUIRE_IO, s->lock_path, QR_NO_OFFSET, "the lock file keeps vanishing");
}

static void lock_give_back(qr_unix_socket *s) {
    if (s->lock_fd < 0) return;
    if (lock_is_current(s->lock_fd, s->lock_path)) unlink(s->lock_path);
    close(s->lock_fd);
    s->lock_fd = -1;
}

/* ---- what is at the path ---- */

static void address_fill(struct sockaddr_un *address, const char *path) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path, sizeof address->sun_path, "%s", path);
}

/* Only a refused connect proves that nobody listens; a full backlog (EAGAIN) is a live server. */
static bool socket_is_dead(const char *path) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    struct sockaddr_un address;
    address_fill(&address, path);
    bool dead = connect(fd, (const struct sockaddr *)&address, sizeof address) < 0 && errno == ECONNREFUSED;
    close(fd);
    return dead;
}

static quire_status path_clear(const char *path, quire_error *error) {
    struct stat info;
    if (lstat(path, &info) < 0) return errno == ENOENT ? QUIRE_OK : fail_errno(error, path, "the socket path cannot be read");
    if (!S_ISSOCK(info.st_mode))
        return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "something that is not a socket is there and will not be removed");
    if (info.st_uid != geteuid())
        return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "a socket of another user (uid %u) is there",
                       (unsigned)info.st_uid);
    if (!socket_is_dead(path)) return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "another process answers on this socket");
    if (unlink(path) < 0 && errno != ENOENT) return fail_errno(error, path, "the dead socket cannot be removed");
    return QUIRE_OK;
}

/* ---- bind ---- */

static quire_status socket_bind(qr_unix_socket *s, unsigned mode, quire_error *error) {
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0) return fail_errno(error, s->path, "no socket");
    struct sockaddr_un address;
    struct stat info;
    address_fill(&address, s->path);
    if (fchmod(s->fd, (mode_t)mode) < 0) return fail_errno(error, s->path, "the mode cannot be set");
    if (bind(s->fd, (const struct sockaddr *)&address, sizeof address) < 0) return fail_errno(error, s->path, "bind failed");
    if (lstat(s->path, &info) < 0) return fail_errno(error, s->path, "the socket vanished");
    s->device = info.st_dev;
    s->inode = info.st_ino;
    /* bind took the umask away from the mode; nobody can have connected before listen. */
    if (chmod(s->path, (mode_t)mode) < 0) return fail_errno(error, s->path, "the mode cannot be set");
    if (listen(s->fd, QR_LISTEN_BACKLOG) < 0) return fail_errno(error, s->path, "listen failed");
    return QUIRE_OK;
}

quire_status qr_unix_socket_open(const char *path, unsigned mode, qr_unix_socket *s, quire_error *error) {
    *s = (qr_unix_socket){.fd = -1, .lock_fd = -1};
    if (!path[0]) return qr_fail(error, QUIRE_INVALID, "socket", QR_NO_OFFSET, "the socket path is empty");
    if (strlen(path) >= sizeof s->path)
        return qr_fail(error, QUIRE_INVALID, "socket", QR_NO_OFFSET, "the socket path has %zu bytes, the system allows 107: %s",
                       strlen(path), path);
    snprintf(s->path, sizeof s->path, "%s", path);
    snprintf(s->lock_path, sizeof s->lock_path, "%s.lock", path);
    quire_status status = folder_prepare(path, error);
    if (status == QUIRE_OK) status = lock_take(s, error);
    if (status == QUIRE_OK) status = path_clear(path, error);
    if (status == QUIRE_OK) status = socket_bind(s, mode, error);
    if (status != QUIRE_OK) qr_unix_socket_close(s);
    return status;
}

void qr_unix_socket_close(qr_unix_socket *s) {
    struct stat info;
    if (s->inode && lstat(s->path, &info) == 0 && info.st_dev == s->device && info.st_ino == s->inode) unlink(s->path);
    s->inode = 0;
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
    lock_give_back(s);
}

/* ---- TCP ---- */

static quire_status tcp_split(const char *address, char *host, size_t host_size, char *port, size_t port_size,
                              quire_error *error) {
    const char *colon = strrchr(address, ':');
    const char *from = address, *to = colon;
    if (colon && address[0] == '[' && colon[-1] == ']') from++, to--;
    bool bracketed = from != address;
    if (!colon || to <= from || (!bracketed && memchr(from, ':', (size_t)(to - from))) || !colon[1] ||
        colon[1 + strspn(colon + 1, "0123456789")] || strlen(colon + 1) >= port_size || (size_t)(to - from) >= host_size ||
        atol(colon + 1) > 65535)
        return qr_fail(error, QUIRE_INVALID, "listen", QR_NO_OFFSET, "not HOST:PORT or [IPV6]:PORT: %s", address);
    memcpy(host, from, (size_t)(to - from));
    host[to - from] = 0;
    snprintf(port, port_size, "%s", colon + 1);
    return QUIRE_OK;
}

static bool address_is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24) == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static int bound_port(int fd) {
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size) < 0) return 0;
    if (address.ss_family == AF_INET) return ntohs(((struct sockaddr_in *)(void *)&address)->sin_port);
    return ntohs(((struct sockaddr_in6 *)(void *)&address)->sin6_port);
}

static int tcp_bind(const struct addrinfo *info) {
    int on = 1, fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, QR_LISTEN_BACKLOG) == 0) return fd;
    int reason = errno;
    close(fd);
    errno = reason;
    return -1;
}

quire_status qr_tcp_listen(const char *address, int *fd, bool *loopback, int *port, quire_error *error) {
    char host[256], service[8];
    *fd = -1;
    quire_status status = tcp_split(address, host, sizeof host, service, sizeof service, error);
    if (status != QUIRE_OK) return status;
    bool local = strcmp(host, "localhost") == 0;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_PASSIVE};
    struct addrinfo *info = NULL;
    int failed = getaddrinfo(local ? "127.0.0.1" : host, service, &hints, &info);
    if (failed)
        return qr_fail(error, QUIRE_INVALID, "listen", QR_NO_OFFSET, "not a numeric address: %s (%s)", host,
                       gai_strerror(failed));
    *fd = tcp_bind(info);
    *loopback = address_is_loopback(info->ai_addr);
    freeaddrinfo(info);
    if (*fd < 0) return fail_errno(error, address, "cannot listen");
    *port = bound_port(*fd);
    return QUIRE_OK;
}
