/* router.h - from a request head to a route, and from a complete request to its handler.
 *
 * Thread: the loop.
 */
#ifndef QR_SERVER_ROUTER_H
#define QR_SERVER_ROUTER_H

#include "runtime/server/connection.h"

/* Decides by the head alone: target, method, key, whether the server can answer now. NULL: refused, error is set. */
qr_task *qr_router_accept(qr_connection *connection, const qr_http_head *head, qr_http_error *error);
/* Runs the handler, here or on a worker thread, and sends what comes out. The task's connection is ANSWERING. */
void qr_router_dispatch(qr_task *task);
/* Sends the result of a task that waited. */
void qr_router_answer(qr_task *task);

#endif
