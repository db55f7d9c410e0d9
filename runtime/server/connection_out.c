/* connection_out.c - the output half of connection.h: answers, event streams and the bound on what waits. */
#include "runtime/server/connection.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

typedef struct write_op {
    uv_write_t write;
    char *data;
} write_op;

static void write_done(uv_write_t *write, int status) {
    write_op *op = write->data;
    qr_connection *c = write->handle->data;
    free(op->data);
    free(op);
    if (status == 0) qr_connection_written(c);
    else if (status != UV_ECANCELED) qr_connection_close(c);
}

static bool out_is_over(const qr_connection *c) {
    size_t most = c->server->config.send_buffer_bytes + c->allowed_bytes;
    return c->streaming && uv_stream_get_write_queue_size(&c->uv.stream) > most;
}

static void out_drop(qr_connection *c) {
    c->server->metrics.clients_dropped_total++;
    qr_connection_close(c);
}

void qr_connection_flush(qr_connection *c) {
    qr_list_remove(&c->dirty_node);
    if (c->state == QR_CONN_CLOSED) return;
    if (c->out.failed) return qr_connection_close(c);
    if (c->out.size == 0) return;
    write_op *op = malloc(sizeof *op);
    if (!op) return qr_connection_close(c);
    size_t size;
    op->data = qr_bytes_take(&c->out, &size);
    op->write.data = op;
    c->last_output_us = qr_clock_us();
    uv_buf_t buffer = uv_buf_init(op->data, (unsigned)size);
    if (uv_write(&op->write, &c->uv.stream, &buffer, 1, write_done) < 0) {
        free(op->data);
        free(op);
        return qr_connection_close(c);
    }
    if (out_is_over(c)) out_drop(c);
}

void qr_connection_flush_dirty(qr_server *server) {
    for (qr_list *node; (node = qr_list_pop_front(&server->dirty));)
        qr_connection_flush(QR_LIST_ENTRY(node, qr_connection, dirty_node));
}

static void out_mark(qr_connection *c) {
    qr_list_remove(&c->dirty_node);
    qr_list_push_back(&c->server->dirty, &c->dirty_node);
}

void qr_connection_poison(qr_connection *c) {
    c->out.failed = true;
    out_mark(c);
}

/* ---- whole answers ---- */

static void out_head(qr_connection *c, int status, const char *content_type) {
    if (c->server->state == QR_SERVER_DRAINING) c->keep_alive = false;
    qr_bytes_format(&c->out, "HTTP/1.1 %d %s\r\nServer: quire/%s\r\nContent-Type: %s\r\n", status, qr_http_reason(status),
                    c->server->config.version, content_type);
    if (!c->keep_alive) qr_bytes_text(&c->out, "Connection: close\r\n");
    else if (c->minor_zero) qr_bytes_text(&c->out, "Connection: keep-alive\r\n");
}

static void out_body(qr_connection *c, const char *body, size_t size) {
    qr_bytes_format(&c->out, "Content-Length: %zu\r\n\r\n", size);
    if (!c->head_only) qr_bytes_append(&c->out, body, size);
    qr_connection_answered(c);
}

void qr_connection_reply(qr_connection *c, int status, const char *content_type, const char *body, size_t size) {
    out_head(c, status, content_type);
    qr_metrics_count_reply(&c->server->metrics, status);
    out_body(c, body, size);
}

void qr_connection_refuse(qr_connection *c, const qr_http_error *error) {
    qr_bytes body = {0};
    qr_http_error_write(error, &body);
    out_head(c, error->status, "application/json");
    if (error->retry_after_s) qr_bytes_format(&c->out, "Retry-After: %u\r\n", error->retry_after_s);
    if (error->allow) qr_bytes_format(&c->out, "Allow: %s\r\n", error->allow);
    if (error->status == 401) qr_bytes_text(&c->out, "WWW-Authenticate: Bearer\r\n");
    qr_metrics_count_reply(&c->server->metrics, error->status);
    out_body(c, body.data ? body.data : "", body.size);
    qr_bytes_deinit(&body);
}

void qr_connection_continue(qr_connection *c) {
    qr_bytes_text(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
    qr_connection_flush(c);
}

/* ---- event streams ---- */

/* Runs once per stream. HTTP/1.0 knows no chunks: there the stream ends with the connection. */
void qr_connection_begin_events(qr_connection *c) {
    c->streaming = true;
    c->allowed_bytes = 0;
    c->chunked = !c->minor_zero;
    if (c->minor_zero) c->keep_alive = false;
    out_head(c, 200, "text/event-stream");
    qr_bytes_text(&c->out, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    qr_bytes_text(&c->out, c->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    qr_metrics_count_reply(&c->server->metrics, 200);
    out_mark(c);
}

static void out_chunk(qr_connection *c, const char *prefix, const char *data, size_t size) {
    if (c->state == QR_CONN_CLOSED) return;
    size_t length = strlen(prefix) + size + 2;
    if (c->chunked) qr_bytes_format(&c->out, "%zx\r\n", length);
    qr_bytes_text(&c->out, prefix);
    qr_bytes_append(&c->out, data, size);
    qr_bytes_text(&c->out, c->chunked ? "\n\n\r\n" : "\n\n");
    out_mark(c);
}

void qr_connection_event(qr_connection *c, const char *json, size_t size) { out_chunk(c, "data: ", json, size); }

void qr_connection_allow(qr_connection *c, size_t size) { c->allowed_bytes += size; }

void qr_connection_comment(qr_connection *c, const char *text) { out_chunk(c, ": ", text, strlen(text)); }

void qr_connection_end_events(qr_connection *c) {
    if (c->chunked) qr_bytes_text(&c->out, "0\r\n\r\n");
    qr_connection_answered(c);
}
