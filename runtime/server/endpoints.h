/* endpoints.h - the handlers of all routes. Each fills exactly one result of the task (see task.h). */
#ifndef QR_SERVER_ENDPOINTS_H
#define QR_SERVER_ENDPOINTS_H

#include "runtime/server/task.h"

/* Pure: may run on a worker thread. */
void qr_chat_handle(qr_task *task);
void qr_completions_handle(qr_task *task);
void qr_tokenize_handle(qr_task *task);
void qr_detokenize_handle(qr_task *task);
void qr_apply_template_handle(qr_task *task);

/* On the loop. */
void qr_models_handle(qr_task *task);
void qr_health_handle(qr_task *task);
void qr_metrics_handle(qr_task *task);
void qr_kv_ledger_handle(qr_task *task);
void qr_kv_forget_handle(qr_task *task);
void qr_kv_flush_handle(qr_task *task);

#endif
