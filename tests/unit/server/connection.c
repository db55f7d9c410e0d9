#include "tests/unit/server/server_fixture.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEALTH "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    while ((text = strstr(text, part))) count++, text += strlen(part);
    return count;
}

/* Sends the bytes, closes the write side and reads to the end. */
static char *raw(const fixture *f, const char *bytes) {
    int fd = client_connect(f);
    client_send(fd, bytes);
    shutdown(fd, SHUT_WR);
    char *reply = client_read(fd, NULL);
    close(fd);
    return reply;
}

Test(server_connection, answers_pipelined_requests_in_order) {
    fixture f;
    fixture_start(&f, "abc", NULL, NULL);
    static const char three[] = "POST /v1/completions HTTP/1.1\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}" HEALTH
                                "POST /tokenize HTTP/1.1\r\nContent-Length: 16\r\n\r\n{\"content\":\"zz\"}" HEALTH;
    for (int glued = 0; glued < 2; glued++) {
        int fd = client_connect(&f);
        if (glued) client_send(fd, three);
        for (size_t i = 0; !glued && i < sizeof three - 1; i++) client_send_bytes(fd, three + i, 1);
        shutdown(fd, SHUT_WR);
        char *reply = client_read(fd, NULL);
        cr_assert_eq(count_of(reply, "HTTP/1.1 200 OK"), 4, "%s", reply);
        cr_assert_lt(strstr(reply, "text_completion"), strstr(reply, "status"));
        cr_assert_lt(strstr(reply, "status"), strstr(reply, "[122,122]"));
        free(reply);
        close(fd);
    }
    fixture_stop(&f);
}

Test(server_connection, refuses_and_closes_on_bad_framing) {
    fixture f;
    fixture_start(&f, "abc", NULL, NULL);
    static const struct {
        const char *bytes;
        int status;
    } bad[] = {
        {"GET /health HTTP/1.1\r\nHost : x\r\n\r\n" HEALTH, 400},
        {"POST /tokenize HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" HEALTH, 400},
        {"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" HEALTH, 400},
        {"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", 400},
        {"POST /tokenize HTTP/1.1\r\nContent-Length: 10\r\n\r\n{", 400},
        {"POST /tokenize HTTP/1.1\r\nContent-Length: 3221225472\r\n\r\n{", 413},
        {"POST /tokenize HTTP/1.1\r\nContent-Length: 2\r\nExpect: tea\r\n\r\n{}", 417},
        {"GET /nowhere\xff HTTP/1.1\r\n\r\n", 400},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *reply = raw(&f, bad[i].bytes);
        cr_expect_eq(reply_status(reply), bad[i].status, "%s: %s", bad[i].bytes, reply);
        cr_expect_eq(count_of(reply, "HTTP/1.1 "), 1, "went on after: %s", bad[i].bytes);
        cr_expect(strstr(reply, "Connection: close"));
        cr_expect(strstr(reply, "{\"error\":{\"message\":\""));
        free(reply);
    }
    fixture_stop(&f);
}

Test(server_connection, unknown_paths_and_methods) {
    fixture f;
    fixture_start(&f, "abc", NULL, NULL);
    char *reply = raw(&f, "GET /nowhere HTTP/1.1\r\n\r\nPUT /health HTTP/1.1\r\n\r\nHEAD /health HTTP/1.1\r\n\r\n" HEALTH);
    cr_assert_eq(count_of(reply, "HTTP/1.1 404"), 1);
    cr_assert_eq(count_of(reply, "HTTP/1.1 405"), 1);
    cr_assert(strstr(reply, "Allow: GET, HEAD"));
    cr_assert_eq(count_of(reply, "HTTP/1.1 200"), 2);
    cr_assert_eq(count_of(reply, "{\"status\":\"ok\"}"), 1, "HEAD has no body");
    free(reply);
    fixture_stop(&f);
}

Test(server_connection, expect_is_answered_before_the_body) {
    fixture f;
    fixture_start(&f, "abc", NULL, NULL);
    int fd = client_connect(&f);
    client_send(fd, "POST /tokenize HTTP/1.1\r\nContent-Length: 15\r\nExpect: 100-continue\r\n\r\n");
    char *reply = client_read(fd, "\r\n\r\n");
    cr_assert_str_eq(reply, "HTTP/1.1 100 Continue\r\n\r\n");
    free(reply);
    client_send(fd, "{\"content\":\"z\"}");
    reply = client_read(fd, "}");
    cr_assert_eq(reply_status(reply), 200);
    free(reply);
    close(fd);
    fd = client_connect(&f);
    client_send(fd, "POST /tokenize HTTP/1.1\r\nContent-Length: 3221225472\r\nExpect: 100-continue\r\n\r\n");
    reply = client_read(fd, "}}");
    cr_assert_eq(reply_status(reply), 413);
    free(reply);
    close(fd);
    fixture_stop(&f);
}

Test(server_connection, chunked_bodies_are_limited_too) {
    fixture f;
    qr_server_config options = {.max_body_bytes = 1000};
    fixture_start(&f, "abc", NULL, &options);
    int fd = client_connect(&f);
    client_send(fd, "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
    char chunk[320];
    snprintf(chunk, sizeof chunk, "12c\r\n%0300d\r\n", 1);
    for (int i = 0; i < 10; i++) client_send(fd, chunk);
    char *reply = client_read(fd, "}}");
    cr_assert_eq(reply_status(reply), 413, "%s", reply);
    free(reply);
    close(fd);
    fixture_stop(&f);
}

Test(server_connection, a_large_body_is_handled_beside_the_loop) {
    fixture f;
    fake_script script = {.context_tokens = 4000000};
    qr_server_config options = {0};
    fixture_start(&f, "abc", &script, &options);
    size_t size = 1 << 20;
    char *body = malloc(size + 100);
    size_t at = (size_t)sprintf(body, "{\"content\":\"");
    memset(body + at, 'a', size);
    strcpy(body + at + size, "\"}");
    char *reply = client_post(&f, "/tokenize", body);
    cr_assert_eq(reply_status(reply), 200);
    cr_assert(strstr(reply, "\"count\":1048576"));
    free(reply);
    free(body);
    fixture_stop(&f);
}

Test(server_connection, a_client_that_never_reads_is_dropped) {
    fixture f;
    fake_script script = {.context_tokens = 1000000, .step_us = 50};
    qr_server_config options = {.send_timeout_ms = 500, .send_buffer_bytes = 1 << 16};
    char text[4000];
    memset(text, 's', sizeof text - 1);
    text[sizeof text - 1] = 0;
    fixture_start(&f, text, &script, &options);
    int fd = client_connect(&f);
    char request[300];
    static const char body[] = "{\"prompt\":\"a\",\"stream\":true,\"max_tokens\":100000,\"logprobs\":20}";
    snprintf(request, sizeof request, "POST /v1/completions HTTP/1.1\r\nContent-Length: %zu\r\n\r\n%s", sizeof body - 1, body);
    client_send(fd, request);
    char *other = client_post(&f, "/v1/completions", "{\"prompt\":\"b\",\"max_tokens\":5}");
    cr_assert_eq(reply_status(other), 200);
    free(other);
    cr_assert(fixture_wait_idle(&f), "still generating for a client that does not read");
    cr_assert_eq(fake_engine_counts(f.engine).cancelled, 1);
    close(fd);
    fixture_stop(&f);
}

/* The echo of a scored prompt comes at once and may be larger than the bound: a client that reads gets it. */
Test(server_connection, an_echo_larger_than_the_bound_reaches_a_client_that_reads) {
    fixture f;
    fake_script script = {.context_tokens = 10000, .step_us = 20000};
    qr_server_config options = {.send_buffer_bytes = 1 << 12};
    fixture_start(&f, "0123456789", &script, &options);
    char prompt[4001] = {0}, body[5000];
    memset(prompt, 'p', sizeof prompt - 1);
    snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"stream\":true,\"echo\":true,\"logprobs\":20,\"n\":4}", prompt);
    char *reply = client_post(&f, "/v1/completions", body);
    cr_assert_gt(strlen(reply), 1000000, "larger than a socket takes at once");
    cr_assert_not_null(strstr(reply, "data: [DONE]"));
    free(reply);
    fixture_stop(&f);
}

static size_t count_in(const char *text, size_t size, const char *part) {
    size_t count = 0, length = strlen(part);
    for (size_t i = 0; i + length <= size; i++) count += text[i] == part[0] && memcmp(text + i, part, length) == 0;
    return count;
}

/* What the socket takes of the rest right now; stops after half a second without progress. */
static size_t send_what_fits(int fd, const char *data, size_t size) {
    size_t sent = 0;
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    while (sent < size && poll(&ready, 1, 500) > 0) {
        ssize_t n = send(fd, data + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) sent += (size_t)n;
    }
    return sent;
}

/* Requests behind each other whose answers nobody reads: they wait, unread, and are all answered once somebody does. */
Test(server_connection, a_client_that_asks_without_reading_is_made_to_wait, .timeout = 60) {
    enum { COUNT = 40000 };
    static const char request[] = "GET /health HTTP/1.1\r\nX: 0123456789012345678901234567890123456789\r\n\r\n";
    fixture f;
    qr_server_config options = {.send_buffer_bytes = 1 << 16};
    fixture_start(&f, "ok", NULL, &options);
    size_t size = (sizeof request - 1) * COUNT, answers = 0, held = 0;
    char *all = malloc(size), buffer[1 << 16];
    for (size_t i = 0; i < COUNT; i++) memcpy(all + i * (sizeof request - 1), request, sizeof request - 1);
    int fd = client_connect(&f);
    size_t sent = send_what_fits(fd, all, size);
    cr_assert_lt(sent, size / 2, "the server read %zu of %zu bytes", sent, size);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (answers < COUNT && poll(&ready, 1, 5000) > 0) {
        ssize_t n = recv(fd, buffer + held, sizeof buffer - held, 0);
        if (n <= 0) break;
        size_t end = held + (size_t)n;
        answers += count_in(buffer, end, "HTTP/1.1 200");
        held = end < 11 ? end : 11; /* one byte short of what is counted: a status line that the next piece completes */
        memmove(buffer, buffer + end - held, held);
        if (sent < size) {
            ssize_t more = send(fd, all + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (more > 0) sent += (size_t)more;
        }
    }
    cr_assert_eq(answers, COUNT);
    close(fd);
    free(all);
    fixture_stop(&f);
}

static int open_descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

Test(server_connection, vanishing_clients_leave_nothing_behind, .timeout = 60) {
    fixture f;
    fake_script script = {.prefill_steps = 5, .step_us = 500, .context_tokens = 10000};
    char text[2000];
    memset(text, 's', sizeof text - 1);
    text[sizeof text - 1] = 0;
    fixture_start(&f, text, &script, NULL);
    static const char *const bodies[] = {
        "{\"prompt\":\"a\",\"stream\":true,\"max_tokens\":1000}",
        "{\"prompt\":\"a\",\"max_tokens\":1000}",
        "{\"prompt\":[\"a\",\"b\"],\"n\":2,\"max_tokens\":1000}",
    };
    int before = open_descriptors();
    for (int i = 0; i < 200; i++) {
        int fd = client_connect(&f);
        char request[300];
        const char *body = bodies[i % 3];
        snprintf(request, sizeof request, "POST /v1/completions HTTP/1.1\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
        if (i % 5 == 4) request[i % 100] = 0; /* gone in the middle of the request */
        client_send(fd, request);
        usleep((useconds_t)(i % 7) * 1000);
        close(fd);
    }
    cr_assert(fixture_wait_idle(&f));
    for (int i = 0; i < 100 && open_descriptors() > before; i++) usleep(10000);
    cr_assert_leq(open_descriptors(), before);
    char *reply = client_post(&f, "/v1/completions", "{\"prompt\":\"b\",\"max_tokens\":5}");
    cr_assert_eq(reply_status(reply), 200);
    free(reply);
    fixture_stop(&f);
}

Test(server_connection, http_1_0_streams_end_with_the_connection) {
    fixture f;
    fixture_start(&f, "abc", NULL, NULL);
    char *reply = raw(&f, "POST /v1/completions HTTP/1.0\r\nContent-Length: 28\r\n\r\n{\"prompt\":\"a\",\"stream\":true}");
    cr_assert_eq(reply_status(reply), 200);
    cr_assert_null(strstr(reply, "Transfer-Encoding"));
    cr_assert_str_eq(reply + strlen(reply) - 14, "data: [DONE]\n\n");
    free(reply);
    fixture_stop(&f);
}

Test(server_connection, too_many_connections_get_503) {
    fixture f;
    qr_server_config options = {.max_connections = 2};
    fixture_start(&f, "abc", NULL, &options);
    usleep(50000);
    int first = client_connect(&f), second = client_connect(&f);
    usleep(50000);
    int third = client_connect(&f);
    char *reply = client_read(third, "}}");
    cr_assert_eq(reply_status(reply), 503, "%s", reply);
    free(reply);
    close(first);
    close(second);
    close(third);
    fixture_stop(&f);
}
