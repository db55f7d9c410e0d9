/* connection.h - one client: bytes in, requests one at a time, answers in order.
 *
 *   READING --- request complete ---> ANSWERING --- answered, keep-alive ---> READING
 *      |  refused                         |  answered, close
 *      +------------> LINGERING <---------+        (all sent, write side shut; reads are discarded until the client
 *                         |                         closes or QR_LINGER_MS pass, so that it can read the answer)
 *                      CLOSED (uv_close; freed when libuv lets go)
 *
 * Bytes of later requests wait in `in` while one is answered. Reading goes on then, to notice a client that leaves; it
 * stops when QR_READ_BYTES wait, and the tick asks the kernel instead. A request is not begun, either, while more than half
 * of send_buffer_bytes of earlier answers waits: a client that asks and asks without reading costs bounded memory. Output is
 * bounded: a stream whose client lets more than send_buffer_bytes wait, or takes nothing for send_timeout_ms, is dropped. What
 * a request makes its stream say at once, however fast the client reads (an echo with scores), does not count:
 * qr_connection_allow.
 *
 * Thread: the loop.
 */
#ifndef QR_SERVER_CONNECTION_H
#define QR_SERVER_CONNECTION_H

#include "runtime/server/http_parse.h"
#include "runtime/server/server_internal.h"
#include "runtime/server/task.h"

typedef enum qr_connection_state { QR_CONN_READING, QR_CONN_ANSWERING, QR_CONN_LINGERING, QR_CONN_CLOSED } qr_connection_state;

struct qr_connection {
    qr_list node;       /* server->connections */
    qr_list dirty_node; /* server->dirty */
    qr_server *server;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
    } uv;
    uv_shutdown_t shutdown;
    qr_peer peer;
    qr_http_parser *parser;
    qr_connection_state state;
    qr_bytes in;                            /* bytes behind the request that is being answered */
    qr_bytes out;                           /* written at the next flush */
    qr_task *task;                          /* being read, or handled on a worker */
    qr_reply *reply;                        /* being answered by the engine */
    qr_http_error refused;                  /* by the head alone, while the request is still being read */
    bool keep_alive, minor_zero, head_only; /* of the request */
    bool streaming, chunked;                /* of the answer */
    size_t allowed_bytes;                   /* of the stream, beyond what may wait otherwise */
    bool feeding;                           /* inside connection_feed */
    bool read_stopped, read_ended, reading_request;
    uint64_t since_us;       /* of the state, or of the first byte of a request */
    uint64_t last_output_us; /* for pings */
    size_t stalled_bytes;    /* write queue at the last progress */
    uint64_t stalled_us;
};

/* Takes the descriptor of a client. false: there was no memory, and it is closed. */
bool qr_connection_take(qr_server *server, int fd, bool is_unix);
/* Timeouts; now_us is the time of the tick. */
void qr_connection_tick(qr_connection *connection, uint64_t now_us);
/* Drops it at once: whatever it waits for is cancelled. */
void qr_connection_close(qr_connection *connection);
/* The drain has begun: closes a connection between requests. */
void qr_connection_close_idle(qr_connection *connection);
/* Closes the connection that has been silent longest of those between requests, for spare_idle_ms at least, and of which
 * nothing has come that was not read yet. false: there is none. */
bool qr_connection_spare(qr_server *server);

/* ---- answers (connection_out.c) ---- */

/* A whole answer. Takes nothing; copies. */
void qr_connection_reply(qr_connection *connection, int status, const char *content_type, const char *body, size_t size);
void qr_connection_refuse(qr_connection *connection, const qr_http_error *error);
/* A stream of server-sent events: head, events (one JSON object each), comments, end. Written at the next flush. */
void qr_connection_begin_events(qr_connection *connection);
void qr_connection_event(qr_connection *connection, const char *json, size_t size);
/* So many bytes of the stream come at once and may wait, too. */
void qr_connection_allow(qr_connection *connection, size_t size);
void qr_connection_comment(qr_connection *connection, const char *text);
void qr_connection_end_events(qr_connection *connection);
void qr_connection_continue(qr_connection *connection); /* 100 Continue */
/* Memory ran out while an answer was made: the next flush drops the connection. */
void qr_connection_poison(qr_connection *connection);
/* Writes what waits in `out`; may close the connection. */
void qr_connection_flush(qr_connection *connection);
void qr_connection_flush_dirty(qr_server *server);

/* ---- for connection_out.c ---- */

/* The answer is complete: on to the next request, or to the end. */
void qr_connection_answered(qr_connection *connection);
/* Bytes have left: on to requests that waited for that. */
void qr_connection_written(qr_connection *connection);

#endif
