/* task.h - one HTTP request from its last header byte to its answer.
 *
 * A route's handler turns the task's inputs into exactly one result: an error, an answer body, a generation for the engine, or
 * a wait, which gives one of the first two later. Handlers of routes marked off_loop read nothing but the task and read-only
 * objects, so that large bodies can be handled on a worker thread while the loop goes on.
 *
 * Thread: the loop, except while `in_pool`.
 */
#ifndef QR_SERVER_TASK_H
#define QR_SERVER_TASK_H

#include "base/list.h"
#include "runtime/server/byte_buffer.h"
#include "runtime/server/http_error.h"
#include "runtime/server/peer.h"
#include <quire/model.h>

#include <uv.h>

struct qr_server;
struct qr_connection;
struct qr_generation;
typedef struct qr_task qr_task;

typedef struct qr_route {
    const char *method, *path;
    void (*handle)(qr_task *task);
    bool has_name;       /* path is a prefix; what follows is task->name */
    bool needs_model;    /* 503 while loading */
    bool while_draining; /* answers during the drain */
    bool off_loop;
    bool open; /* no API key needed */
} qr_route;

/* Of a task whose answer waits for the engine (kv_wait.h). */
typedef struct qr_kv_wait {
    qr_list node;           /* server->kv_waits; an empty list of its own while it does not wait */
    bool flush, all;        /* a flush; else to forget, everything or one namespace */
    uint64_t number;        /* to forget: that of the call; a flush: of flushes before it */
    uint64_t stored_before; /* blocks */
    uint64_t until_us;
} qr_kv_wait;

struct qr_task {
    uv_work_t work;
    struct qr_server *server;
    struct qr_connection *connection; /* NULL: the client has gone */
    const qr_route *route;
    bool in_pool;
    uint64_t arrived_us;

    /* inputs */
    qr_peer peer;
    char *name;  /* percent-decoded, or NULL */
    char *query; /* after '?', or NULL */
    qr_bytes body;
    const quire_model *model;
    const char *fingerprint; /* system_fingerprint */
    uint32_t context_tokens;
    uint64_t pool_tokens; /* that the KV pool can hold */
    bool namespace_by_uid;

    /* result */
    qr_http_error error; /* status 0: none */
    int status;          /* of an answer; 0 = 200 */
    qr_bytes answer;
    const char *content_type; /* NULL = application/json */
    struct qr_generation *generation;
    bool waits;
    qr_kv_wait wait;
};

qr_task *qr_task_create(struct qr_server *server, struct qr_connection *connection, const qr_route *route);
void qr_task_destroy(qr_task *task);
/* Value of a query parameter, percent-decoded into a buffer; false when it is not there or too long. */
bool qr_task_query(const qr_task *task, const char *name, char *value, size_t size);
/* Decodes %XX in place; false for a malformed escape or a NUL. */
bool qr_percent_decode(char *text);

#endif
