/* chat_client.h - the daemon's API over its Unix socket, as `quire chat` uses it.
 *
 * Every connection checks who listens: a server of another user (root excepted) is refused before a byte is sent.
 *
 * Thread: one owner.
 */
#ifndef QR_CLI_CHAT_CLIENT_H
#define QR_CLI_CHAT_CLIENT_H

#include <jansson.h>
#include <stdbool.h>

#include <quire/status.h>

typedef struct qr_chat_client qr_chat_client;

/* interrupt_fd: readable = stop the answer (-1: none). api_key_file: its first line is the key; NULL: none. Errors: INVALID
 * (a path too long for a socket), IO, NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_chat_client_create(const char *socket_path, const char *api_key_file, int interrupt_fd,
                                                    qr_chat_client **client, quire_error *error);
void qr_chat_client_destroy(qr_chat_client *client);

/* One exchange; body NULL = GET, else POST (borrowed). *reply is the caller's, NULL when the server sent no JSON. *code is the
 * HTTP status, 0 when there was none. Errors: IO (no connection, another user's server, a broken reply). */
QUIRE_MUST_CHECK quire_status qr_chat_client_call(qr_chat_client *client, const char *path, const json_t *body, json_t **reply,
                                                  long *code, quire_error *error);

/* The same with any method; body NULL: none. */
QUIRE_MUST_CHECK quire_status qr_chat_client_request(qr_chat_client *client, const char *method, const char *path,
                                                     const json_t *body, json_t **reply, long *code, quire_error *error);

typedef void qr_chat_text_fn(void *context, const char *text, size_t size);

typedef struct qr_chat_reply {
    char *text; /* malloc'd, the caller's; NULL when nothing was said */
    size_t size;
    char finish[32];
    bool interrupted;
    int64_t prompt_tokens, cached_tokens, completion_tokens; /* -1: the server did not say */
    double first_ms, tokens_per_second;                      /* 0: none */
} qr_chat_reply;

/* POST /v1/chat/completions with a streamed answer; on_text gets it piece by piece. Errors: INVALID (a 4xx: the server's own
 * message), IO (all others). What was said before a failure is in *reply in every case. */
QUIRE_MUST_CHECK quire_status qr_chat_client_stream(qr_chat_client *client, const json_t *body, qr_chat_text_fn *on_text,
                                                    void *context, qr_chat_reply *reply, quire_error *error);
void qr_chat_reply_deinit(qr_chat_reply *reply);

/* The message of an API error object, or NULL. Borrowed from the reply. */
const char *qr_chat_error_message(const json_t *reply);
#endif
