/* reply.h - one reply in the making: a generation, its engine requests, its choices and its client.
 *
 * Life: start submits one engine request per prompt; events move the choices; the last DONE completes the reply. The reply
 * outlives its client: after a disconnect, an error or a drain it cancels what runs and waits for the DONEs.
 *
 * A streamed reply begins (status 200) when the engine has admitted the first of its requests, or with the first ping; until
 * then a refusal is still an HTTP status.
 *
 * Thread: the loop.
 */
#ifndef QR_SERVER_JOB_H
#define QR_SERVER_JOB_H

#include "runtime/server/choice.h"
#include "runtime/server/connection.h"

/* One prompt: one request of the engine. */
typedef struct qr_reply_part {
    uint64_t engine_id; /* 0 = not submitted or over */
    bool started, over;
    quire_kv_match match;
    uint64_t queued_us, prefill_us, decode_us;
} qr_reply_part;

struct qr_reply {
    qr_list node; /* server->replies */
    qr_server *server;
    qr_connection *connection; /* NULL: answered, or the client has gone */
    qr_generation *generation;
    char id[40];
    uint64_t created_s, arrived_us, first_token_us;
    qr_reply_part *parts; /* [prompt_count] */
    qr_choice *choices;   /* [prompt_count * n]; choice i belongs to part i / n */
    uint32_t choice_count, choices_open, parts_open;
    bool started; /* some part was admitted */
};

/* Takes the task's generation; answers at once when the engine refuses. */
void qr_reply_start(qr_task *task);
/* An event of the engine; finds its reply by the request id. */
void qr_reply_event(qr_server *server, const quire_event *event);
/* The connection is closing: cancel. */
void qr_reply_client_gone(qr_reply *reply);
/* Ends the reply with an error, as a status or as the last event of a stream, and cancels what runs. */
void qr_reply_fail(qr_reply *reply, const qr_http_error *error);
/* The engine has gone: frees a reply whose client has gone too. */
void qr_reply_abandon(qr_reply *reply);
/* Pings a silent stream. */
void qr_reply_tick(qr_reply *reply, uint64_t now_us);

/* Figures of a reply; summed over its parts and choices. */
typedef struct qr_usage {
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    uint64_t prefill_us, decode_us;
} qr_usage;
qr_usage qr_reply_usage(const qr_reply *reply);

#endif
