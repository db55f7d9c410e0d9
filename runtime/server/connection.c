/* connection.c - see connection.h. Reading, states and timeouts; connection_out.c writes. */
#include "runtime/server/connection.h"

#include "base/assertion.h"
#include "base/clock.h"
#include "runtime/server/reply.h"
#include "runtime/server/router.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- life ---- */

static void connection_free(uv_handle_t *handle) {
    qr_connection *c = handle->data;
    qr_server *server = c->server;
    qr_http_parser_destroy(c->parser);
    qr_bytes_deinit(&c->in);
    qr_bytes_deinit(&c->out);
    free(c);
    server->connection_count--;
    qr_drain_advance(server);
}

/* What the connection was waiting for goes on without it, or ends. */
static void connection_let_go(qr_connection *c) {
    qr_task *task = c->task;
    qr_reply *reply = c->reply;
    c->task = NULL;
    c->reply = NULL;
    if (task) {
        task->connection = NULL;
        if (!task->in_pool) qr_task_destroy(task);
    }
    if (reply) qr_reply_client_gone(reply);
}

void qr_connection_close(qr_connection *c) {
    if (c->state == QR_CONN_CLOSED) return;
    c->state = QR_CONN_CLOSED;
    connection_let_go(c);
    qr_list_remove(&c->node);
    qr_list_remove(&c->dirty_node);
    uv_close(&c->uv.handle, connection_free);
}

void qr_connection_close_idle(qr_connection *c) {
    if (c->state != QR_CONN_READING || c->reading_request) return;
    if (uv_stream_get_write_queue_size(&c->uv.stream) == 0) qr_connection_close(c);
}

static void connection_to(qr_connection *c, qr_connection_state state) {
    c->state = state;
    c->since_us = qr_clock_us();
}

/* ---- the end of a connection ---- */

static void connection_shut(uv_shutdown_t *shutdown, int status) {
    qr_connection *c = shutdown->data;
    if (c->state == QR_CONN_LINGERING && (status < 0 || c->read_ended)) qr_connection_close(c);
}

static void connection_read_start(qr_connection *c);

/* Shuts the write side when all is sent, and discards what still comes: a close with unread bytes would take the answer
 * away from a client that is still writing. */
static void connection_linger(qr_connection *c) {
    connection_to(c, QR_CONN_LINGERING);
    qr_bytes_deinit(&c->in);
    c->shutdown.data = c;
    if (uv_shutdown(&c->shutdown, &c->uv.stream, connection_shut) < 0) return qr_connection_close(c);
    connection_read_start(c);
}

/* ---- requests ---- */

static void connection_refuse(qr_connection *c, int status, const char *param, const char *reason) {
    qr_http_error error;
    qr_http_refuse(&error, status, param, "%s", reason);
    c->keep_alive = false;
    qr_connection_refuse(c, &error);
}

static void connection_refuse_error(qr_connection *c, const qr_http_error *error) {
    c->keep_alive = false;
    qr_connection_refuse(c, error);
}

static bool connection_expects(qr_connection *c, const qr_http_head *head, qr_http_error *error) {
    const char *expect = qr_http_parser_header(c->parser, "expect");
    if (!expect || head->minor_version == 0) return true;
    if (strcasecmp(expect, "100-continue") != 0)
        return qr_http_refuse(error, 417, NULL, "only the expectation 100-continue is understood");
    if (head->has_body) qr_connection_continue(c);
    return true;
}

/* Everything that the head alone can decide is decided before a byte of the body is read. */
static void connection_head(qr_connection *c) {
    const qr_http_head *head = qr_http_parser_head(c->parser);
    qr_http_error error = {0};
    c->keep_alive = head->keep_alive;
    c->minor_zero = head->minor_version == 0;
    c->head_only = strcmp(head->method, "HEAD") == 0;
    c->task = qr_router_accept(c, head, &error);
    if (!c->task) {
        c->refused = error;
        if (head->has_body) c->keep_alive = false; /* the body is not worth reading */
        if (head->has_body) qr_connection_refuse(c, &error);
        return;
    }
    if (head->content_length > c->server->config.max_body_bytes) {
        qr_http_refuse(&error, 413, NULL, "the body has %llu bytes, the limit is %zu", (unsigned long long)head->content_length,
                       c->server->config.max_body_bytes);
        return connection_refuse_error(c, &error);
    }
    if (!connection_expects(c, head, &error)) connection_refuse_error(c, &error);
}

static void connection_body(qr_connection *c, qr_http_span body) {
    qr_server *server = c->server;
    size_t had = c->task->body.size;
    if (had + body.size > server->config.max_body_bytes)
        return connection_refuse(c, 413, NULL, "the body is larger than the limit");
    if (!qr_server_body_reserve(server, body.size)) return connection_refuse(c, 503, NULL, "too many request bodies at once");
    qr_bytes_append(&c->task->body, body.data, body.size);
    if (!c->task->body.failed) return;
    qr_server_body_released(server, had + body.size); /* the buffer has emptied itself */
    connection_refuse(c, 503, NULL, "out of memory");
}

static void connection_complete(qr_connection *c) {
    c->reading_request = false;
    if (!c->task) return qr_connection_refuse(c, &c->refused);
    connection_to(c, QR_CONN_ANSWERING);
    qr_router_dispatch(c->task);
}

static void connection_parse_error(qr_connection *c) {
    connection_refuse(c, qr_http_parser_status(c->parser), NULL, qr_http_parser_reason(c->parser));
}

/* One event of the parser. false: it wants more bytes. */
static bool connection_step(qr_connection *c, const char **data, size_t *size) {
    size_t used;
    qr_http_span body;
    qr_http_step step = qr_http_parser_feed(c->parser, *data, *size, &used, &body);
    *data += used;
    *size -= used;
    if (used && !c->reading_request && !qr_http_parser_idle(c->parser)) {
        c->reading_request = true;
        c->since_us = qr_clock_us();
    }
    if (step == QR_HTTP_HEAD) connection_head(c);
    if (step == QR_HTTP_BODY) connection_body(c, body);
    if (step == QR_HTTP_DONE) connection_complete(c);
    if (step == QR_HTTP_ERROR) connection_parse_error(c);
    return step != QR_HTTP_MORE;
}

/* Answers wait that the client does not read: it gets no further one begun. */
static bool connection_is_backed_up(const qr_connection *c) {
    return !c->reading_request && uv_stream_get_write_queue_size(&c->uv.stream) > c->server->config.send_buffer_bytes / 2;
}

/* Keeps bytes of later requests, and stops reading when they are many or nothing else may begin. */
static void connection_keep(qr_connection *c, const char *data, size_t size) {
    qr_bytes_append(&c->in, data, size);
    if (c->in.failed) return qr_connection_close(c);
    if (c->in.size < QR_READ_BYTES && c->state == QR_CONN_ANSWERING) return;
    uv_read_stop(&c->uv.stream);
    c->read_stopped = true;
}

/* Feeds bytes as long as requests are wanted; the rest waits in `in`. */
static void connection_feed(qr_connection *c, const char *data, size_t size) {
    bool backed_up = false;
    c->feeding = true;
    while (c->state == QR_CONN_READING && !(backed_up = size && connection_is_backed_up(c)) &&
           connection_step(c, &data, &size)) {}
    c->feeding = false;
    if (size && (backed_up || c->state == QR_CONN_ANSWERING)) connection_keep(c, data, size);
}

static void connection_ended(qr_connection *c);

/* Requests that came while another was being answered. */
static void connection_resume(qr_connection *c) {
    size_t size;
    char *data = qr_bytes_take(&c->in, &size);
    if (size) connection_feed(c, data, size);
    free(data);
    if (c->state != QR_CONN_READING || c->in.size) return;
    if (c->read_ended) return connection_ended(c);
    if (c->read_stopped) connection_read_start(c);
}

void qr_connection_written(qr_connection *c) {
    if (c->state == QR_CONN_READING && c->in.size && !connection_is_backed_up(c)) connection_resume(c);
}

void qr_connection_answered(qr_connection *c) {
    if (c->state == QR_CONN_CLOSED) return;
    qr_task *task = c->task;
    c->task = NULL;
    c->reply = NULL;
    c->streaming = c->chunked = false;
    qr_task_destroy(task);
    qr_connection_flush(c);
    if (c->state == QR_CONN_CLOSED) return;
    c->reading_request = false;
    if (!c->keep_alive) return connection_linger(c);
    connection_to(c, QR_CONN_READING);
    if (!c->feeding) connection_resume(c);
}

/* ---- bytes ---- */

static void connection_allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
    qr_connection *c = handle->data;
    *buffer = uv_buf_init(c->server->read_buffer, QR_READ_BYTES);
}

static int connection_poll(const qr_connection *c, int events) {
    uv_os_fd_t fd;
    if (uv_fileno(&c->uv.handle, &fd) < 0) return POLLERR;
    struct pollfd poll_fd = {.fd = fd, .events = (short)events};
    return poll(&poll_fd, 1, 0) > 0 ? poll_fd.revents : 0;
}

/* The peer has closed, rather than only finished writing. Over TCP the two look alike and count as closed. */
static bool connection_peer_gone(const qr_connection *c) {
    return (connection_poll(c, POLLRDHUP) & (POLLHUP | POLLERR | (c->peer.is_unix ? 0 : POLLRDHUP))) != 0;
}

/* No more bytes will come. */
static void connection_ended(qr_connection *c) {
    c->read_ended = true;
    if (connection_peer_gone(c)) return qr_connection_close(c);
    if (c->state == QR_CONN_ANSWERING || c->in.size) return;
    if (c->state == QR_CONN_READING && c->reading_request)
        return connection_refuse(c, 400, NULL, "the request ended before it was complete");
    if (c->state == QR_CONN_READING && uv_stream_get_write_queue_size(&c->uv.stream)) return connection_linger(c);
    if (c->state == QR_CONN_READING || uv_stream_get_write_queue_size(&c->uv.stream) == 0) qr_connection_close(c);
}

static void connection_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer) {
    qr_connection *c = stream->data;
    if (count == 0) return;
    if (count == UV_EOF) return connection_ended(c);
    if (count < 0) return qr_connection_close(c);
    if (c->state == QR_CONN_READING) connection_feed(c, buffer->base, (size_t)count);
    else if (c->state == QR_CONN_ANSWERING) connection_keep(c, buffer->base, (size_t)count);
}

static void connection_read_start(qr_connection *c) {
    c->read_stopped = false;
    if (c->read_ended) return;
    int failed = uv_read_start(&c->uv.stream, connection_allocate, connection_read);
    if (failed && failed != UV_EALREADY) qr_connection_close(c);
}

/* ---- accept ---- */

static qr_connection *connection_create(qr_server *server, bool is_unix) {
    qr_connection *c = calloc(1, sizeof *c);
    qr_http_parser *parser = c ? qr_http_parser_create() : NULL;
    if (!parser) {
        free(c);
        return NULL;
    }
    int failed = is_unix ? uv_pipe_init(&server->loop, &c->uv.pipe, 0) : uv_tcp_init(&server->loop, &c->uv.tcp);
    QR_ASSERT(failed == 0); /* nothing but memory of ours */
    c->uv.handle.data = c;
    c->server = server;
    c->parser = parser;
    qr_list_init(&c->dirty_node);
    qr_list_push_back(&server->connections, &c->node);
    server->connection_count++;
    connection_to(c, QR_CONN_READING);
    return c;
}

/* false: the descriptor is still the caller's. */
static bool connection_open(qr_connection *c, int fd, bool is_unix) {
    if (is_unix) {
        c->peer = qr_peer_of_unix(fd);
        return uv_pipe_open(&c->uv.pipe, fd) == 0;
    }
    if (uv_tcp_open(&c->uv.tcp, fd) != 0) return false;
    uv_tcp_nodelay(&c->uv.tcp, 1);
    return true;
}

bool qr_connection_take(qr_server *server, int fd, bool is_unix) {
    bool crowded = server->connection_count >= server->config.max_connections;
    qr_connection *c = connection_create(server, is_unix);
    if (!c || !connection_open(c, fd, is_unix)) {
        close(fd);
        if (c) qr_connection_close(c);
        return c != NULL;
    }
    connection_read_start(c);
    if (crowded && c->state == QR_CONN_READING) connection_refuse(c, 503, NULL, "too many connections");
    return true;
}

/* ---- giving way ---- */

static bool connection_is_silent(const qr_connection *c) {
    return c->state == QR_CONN_READING && !c->reading_request && c->in.size == 0 &&
           uv_stream_get_write_queue_size(&c->uv.stream) == 0 && (connection_poll(c, POLLIN) & POLLIN) == 0;
}

bool qr_connection_spare(qr_server *server) {
    qr_connection *oldest = NULL;
    uint64_t before_us = qr_clock_us() - (uint64_t)server->config.spare_idle_ms * 1000;
    QR_LIST_EACH (node, &server->connections) {
        qr_connection *c = QR_LIST_ENTRY(node, qr_connection, node);
        if (c->since_us >= before_us || !connection_is_silent(c)) continue;
        oldest = c;
        before_us = c->since_us;
    }
    if (oldest) qr_connection_close(oldest);
    return oldest != NULL;
}

/* ---- time ---- */

/* A client that takes none of what waits for it. */
static bool connection_is_stalled(qr_connection *c, uint64_t now_us) {
    size_t queued = uv_stream_get_write_queue_size(&c->uv.stream);
    if (queued == 0 || queued != c->stalled_bytes) {
        c->stalled_bytes = queued;
        c->stalled_us = now_us;
        return false;
    }
    return now_us - c->stalled_us > (uint64_t)c->server->config.send_timeout_ms * 1000;
}

void qr_connection_tick(qr_connection *c, uint64_t now_us) {
    uint64_t age_ms = now_us > c->since_us ? (now_us - c->since_us) / 1000 : 0;
    if (connection_is_stalled(c, now_us)) {
        c->server->metrics.clients_dropped_total++;
        return qr_connection_close(c);
    }
    if ((c->read_stopped || c->read_ended) && connection_peer_gone(c)) return qr_connection_close(c);
    if (c->state == QR_CONN_LINGERING && age_ms > QR_LINGER_MS && uv_stream_get_write_queue_size(&c->uv.stream) == 0)
        return qr_connection_close(c);
    if (c->state != QR_CONN_READING) return;
    if (c->reading_request && age_ms > QR_REQUEST_READ_MS)
        connection_refuse(c, 408, NULL, "the request took too long to arrive");
    else if (!c->reading_request && age_ms > QR_IDLE_MS) qr_connection_close_idle(c);
}
