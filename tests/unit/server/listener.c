#include "runtime/server/listener.h"
#include "runtime/server/descriptors.h"
#include "tests/unit/server/server_fixture.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HEALTH "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"

static rlim_t files_max(rlim_t count) {
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = count;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return before;
}

static void expect_answer(int fd) {
    char *reply = client_read(fd, "\r\n\r\n");
    cr_expect_eq(reply_status(reply), 200, "%s", reply);
    free(reply);
}

/* The client is this process, too: it has its sockets before the limit falls. */
Test(server_listener, clients_wait_while_no_file_can_be_opened_and_are_answered_then, .timeout = 60) {
    enum { CLIENTS = 5 };
    fixture f;
    qr_server_config options = {.spare_idle_ms = 600000};
    fixture_start(&f, "abc", NULL, &options);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", f.path);
    int early = client_connect(&f), clients[CLIENTS];
    client_send(early, HEALTH);
    expect_answer(early);
    for (int i = 0; i < CLIENTS; i++) cr_assert_geq(clients[i] = socket(AF_UNIX, SOCK_STREAM, 0), 0);
    rlim_t before = files_max(3);
    for (int i = 0; i < CLIENTS; i++) {
        cr_assert_eq(connect(clients[i], (struct sockaddr *)&address, sizeof address), 0);
        client_send(clients[i], HEALTH);
    }
    for (int round = 0; round < 3; round++) { /* the loop goes on, and tries more than once */
        client_send(early, HEALTH);
        expect_answer(early);
        usleep(QR_LISTEN_RETRY_MS * 1000);
    }
    for (int i = 0; i < CLIENTS; i++) {
        struct pollfd waiting = {.fd = clients[i], .events = POLLIN};
        cr_expect_eq(poll(&waiting, 1, 0), 0, "neither answered nor turned away");
    }
    files_max(before);
    for (int i = 0; i < CLIENTS; i++) {
        expect_answer(clients[i]);
        close(clients[i]);
    }
    close(early);
    fixture_stop(&f);
}

/* Not one file can be opened beyond those that are. */
static rlim_t files_no_more(void) {
    enum { FILES = 512 };
    int highest = FILES;
    while (fcntl(highest, F_GETFD) < 0) highest--;
    rlim_t before = files_max((rlim_t)highest + 1);
    while (dup(highest) >= 0) {} /* the gaps */
    return before;
}

static int client_that_was_answered(const fixture *f) {
    int fd = client_connect(f);
    client_send(fd, HEALTH);
    expect_answer(fd);
    return fd;
}

Test(server_listener, the_connection_that_is_idle_longest_gives_way_when_no_file_can_be_opened, .timeout = 60) {
    fixture f;
    qr_server_config options = {.spare_idle_ms = 1};
    fixture_start(&f, "abc", NULL, &options);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", f.path);
    int asking = client_that_was_answered(&f);
    client_send(asking, "GET /health HTTP/1.1\r\n");
    int longest = client_that_was_answered(&f), other = client_that_was_answered(&f);
    int late = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert_geq(late, 0);
    rlim_t before = files_no_more();
    cr_assert_eq(connect(late, (struct sockaddr *)&address, sizeof address), 0);
    client_send(late, HEALTH);
    expect_answer(late);
    char *end = client_read(longest, NULL);
    cr_expect_str_empty(end);
    free(end);
    client_send(other, HEALTH);
    expect_answer(other);
    client_send(asking, "Host: x\r\n\r\n");
    expect_answer(asking);
    files_max(before);
    int fds[] = {asking, longest, other, late};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) close(fds[i]);
    fixture_stop(&f);
}

/* ---- the listener alone ---- */

enum { REFUSED = 2, QUEUED = 4 };

static bool take_from_the_third(void *context, int fd, bool is_unix) {
    int *calls = context;
    close(fd);
    return is_unix && ++*calls > REFUSED;
}

static bool none_to_spare(void *context) { return false; }

static int listen_at(struct sockaddr_un *address) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path, sizeof address->sun_path, "/tmp/quire-listener-%ld", (long)getpid());
    cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)address, sizeof *address) == 0 && listen(fd, QUEUED) == 0);
    return fd;
}

Test(server_listener, goes_on_after_connections_that_there_was_no_memory_for, .timeout = 60) {
    int calls = 0, clients[QUEUED];
    struct sockaddr_un address;
    uv_loop_t loop;
    qr_listener listener;
    cr_assert_eq(uv_loop_init(&loop), 0);
    qr_listener_init(&listener, &loop, take_from_the_third, none_to_spare, &calls, NULL);
    cr_assert_eq(qr_listener_open(&listener, listen_at(&address), true), 0);
    for (int i = 0; i < QUEUED; i++) {
        cr_assert_geq(clients[i] = socket(AF_UNIX, SOCK_STREAM, 0), 0);
        cr_assert_eq(connect(clients[i], (struct sockaddr *)&address, sizeof address), 0);
    }
    while (calls < QUEUED) uv_run(&loop, UV_RUN_ONCE);
    for (int i = 0; i < QUEUED; i++) close(clients[i]);
    qr_listener_close(&listener);
    qr_listener_close(&listener);
    uv_close((uv_handle_t *)&listener.retry, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(uv_loop_close(&loop), 0);
    unlink(address.sun_path);
}

/* ---- descriptors ---- */

static rlim_t limit_that_leaves(int count) {
    int fd = 0;
    while (fcntl(fd, F_GETFD) >= 0 || count-- > 0) fd++;
    return (rlim_t)fd;
}

Test(server_descriptors, too_few_files_are_refused_with_the_numbers) {
    quire_error error;
    cr_assert_eq(qr_descriptors_check(&error), QUIRE_OK);
    rlim_t before = files_max(limit_that_leaves(QR_DESCRIPTORS_MIN));
    cr_expect_eq(qr_descriptors_check(&error), QUIRE_OK);
    files_max(limit_that_leaves(QR_DESCRIPTORS_MIN - 1));
    cr_expect_eq(qr_descriptors_check(&error), QUIRE_IO);
    cr_expect_not_null(strstr(error.text, "needs 24 open files more and could have 23"), "%s", error.text);
    qr_server *server;
    qr_server_config config = {.socket_path = "/tmp/quire-never.sock"};
    cr_expect_eq(qr_server_create(&config, &server, &error), QUIRE_IO);
    files_max(before);
}
