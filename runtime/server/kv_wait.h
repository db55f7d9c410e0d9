/* kv_wait.h - answers that are given when the engine has done something: written what is cached, or erased what is forgotten.
 *
 * The task waits; its connection goes on as in any answer that takes a while. The engine does what it was asked whether or not
 * somebody still waits for it.
 *
 * Thread: the loop.
 */
#ifndef QR_SERVER_KV_WAIT_H
#define QR_SERVER_KV_WAIT_H

#include "runtime/server/task.h"
#include <quire/engine.h>

/* How long an answer may wait unless the request says otherwise, and at most. */
enum { QR_KV_WAIT_S = 60, QR_KV_WAIT_MAX_S = 3600 };

/* Asks the engine and lets the task wait. The answer is 200 when it is done, or 202 with what is left after timeout_s. */
void qr_kv_wait_flush(qr_task *task, double timeout_s);
/* key NULL: everything. */
void qr_kv_wait_forget(qr_task *task, const void *namespace_key, size_t namespace_bytes, double timeout_s);

/* The drain's limit has passed: whoever waits gets this error. */
void qr_kv_wait_fail(struct qr_server *server, const qr_http_error *error);
#endif
