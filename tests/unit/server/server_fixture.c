/* server_fixture.c - see server_fixture.h. */
#include "tests/unit/server/server_fixture.h"

#include "base/assertion.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

static void *serve(void *argument) {
    fixture *f = argument;
    f->result = qr_server_run(f->server);
    return NULL;
}

void fixture_start_loading(fixture *f, const qr_server_config *options) {
    quire_error error = {0};
    qr_server_config config = options ? *options : (qr_server_config){0};
    snprintf(f->folder, sizeof f->folder, "/tmp/quire-test-XXXXXX");
    QR_ASSERT(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/s.sock", f->folder);
    config.socket_path = f->path;
    config.version = "test";
    quire_status status = qr_server_create(&config, &f->server, &error);
    if (status != QUIRE_OK) fprintf(stderr, "%s: %s\n", error.source, error.text);
    QR_ASSERT(status == QUIRE_OK);
    QR_ASSERT(pthread_create(&f->thread, NULL, serve, f) == 0);
}

void fixture_start(fixture *f, const char *text, const fake_script *script, const qr_server_config *options) {
    *f = (fixture){.result = QUIRE_OK};
    fake_script own = script ? *script : (fake_script){0};
    if (!own.tokens) {
        for (size_t i = 0; text && text[i]; i++) f->script_tokens[own.count++] = (unsigned char)text[i];
        own.tokens = f->script_tokens;
    }
    if (!own.end) own.end = FAKE_IM_END;
    f->model = fake_model_create(true);
    f->engine = fake_engine_create(&own, NULL, NULL);
    fixture_start_loading(f, options);
    fake_engine_set_wake(f->engine, qr_server_wake, f->server);
    qr_server_attach(f->server, f->engine, f->model);
    for (int i = 0; i < 500; i++) {
        char *reply = client_get(f, "GET", "/health");
        bool ready = reply_status(reply) == 200;
        free(reply);
        if (ready) return;
        usleep(10000);
    }
    QR_ASSERT(!"the server never became ready");
}

/* A leak fails no test by itself. */
static void check_leaks(void) {
#if defined(__SANITIZE_ADDRESS__)
    QR_ASSERT(__lsan_do_recoverable_leak_check() == 0);
#endif
}

void fixture_stop(fixture *f) {
    qr_server_stop(f->server);
    pthread_join(f->thread, NULL);
    if (f->engine) quire_engine_destroy(f->engine);
    qr_server_destroy(f->server);
    if (f->model) fake_model_destroy(f->model);
    QR_ASSERT(access(f->path, F_OK) < 0);
    QR_ASSERT(rmdir(f->folder) == 0); /* nothing is left behind */
    check_leaks();
}

int client_connect(const fixture *f) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", f->path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    QR_ASSERT(fd >= 0);
    QR_ASSERT(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

void client_send_bytes(int fd, const void *data, size_t size) {
    const char *at = data;
    while (size) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent <= 0) return; /* the server may refuse before it has read all */
        at += sent;
        size -= (size_t)sent;
    }
}

void client_send(int fd, const char *text) { client_send_bytes(fd, text, strlen(text)); }

char *client_read(int fd, const char *until) {
    size_t size = 0, capacity = 1 << 16;
    char *data = malloc(capacity);
    uint64_t end_us = qr_clock_us() + 5000000;
    data[0] = 0;
    while (qr_clock_us() < end_us && !(until && strstr(data, until))) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (poll(&poll_fd, 1, 100) <= 0) continue;
        if (size + 4096 > capacity) data = realloc(data, capacity *= 2);
        ssize_t count = read(fd, data + size, 4095);
        if (count <= 0) break;
        size += (size_t)count;
        data[size] = 0;
    }
    return data;
}

char *client_post(const fixture *f, const char *path, const char *body) {
    char head[512];
    int fd = client_connect(f);
    snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", path,
             strlen(body));
    client_send(fd, head);
    client_send(fd, body);
    char *reply = client_read(fd, NULL);
    close(fd);
    return reply;
}

char *client_get(const fixture *f, const char *method, const char *path) {
    char head[512];
    int fd = client_connect(f);
    snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method, path);
    client_send(fd, head);
    char *reply = client_read(fd, NULL);
    close(fd);
    return reply;
}

int reply_status(const char *reply) { return strncmp(reply, "HTTP/1.1 ", 9) == 0 ? atoi(reply + 9) : 0; }

const char *reply_body(const char *reply) {
    const char *end = strstr(reply, "\r\n\r\n");
    return end ? end + 4 : "";
}

bool fixture_wait_idle(fixture *f) {
    for (int i = 0; i < 500; i++) {
        if (fake_engine_counts(f->engine).live == 0) return true;
        usleep(10000);
    }
    return false;
}
