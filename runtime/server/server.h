/* server.h - the daemon: libuv loop, HTTP/1.1, the OpenAI-compatible API of docs/HTTP_API.md.
 *
 * Thread: the loop thread, which is the caller of run. The engine speaks to it by mailbox and one wake-up per step.
 */
#ifndef QR_SERVER_SERVER_H
#define QR_SERVER_SERVER_H

#include "base/log.h"
#include <quire/engine.h>
#include <quire/model.h>

typedef struct qr_server qr_server;

typedef struct qr_server_config {
    const char *socket_path;  /* NULL = no Unix socket */
    unsigned socket_mode;     /* 0 = 0600 */
    const char *listen;       /* HOST:PORT or NULL */
    const char *api_key_file; /* one key per line, or NULL; required for a listen address that is not loopback */
    size_t max_body_bytes;    /* 0 = 32 MiB */
    uint32_t max_connections; /* 0 = 1,024 */
    uint32_t drain_ms;        /* SIGTERM: running replies may finish for so long; 0 = 30,000 */
    uint32_t hibernate_ms;    /* after the drain, for writing what is cached to disk; 0 = it is not written */
    uint32_t send_timeout_ms; /* a client that reads nothing for so long is dropped; 0 = 30,000 */
    uint32_t ping_ms;         /* comment pings in a silent stream; 0 = 5,000 */
    uint32_t spare_idle_ms;   /* while no file can be opened, a connection that is silent for so long gives way; 0 = 1,000 */
    size_t send_buffer_bytes; /* bound of what waits for one client; 0 = 1 MiB */
    bool namespace_by_uid;    /* the peer's uid is part of the namespace */
    bool metrics_vllm;        /* also the vllm: names */
    const char *version;      /* for system_fingerprint and the Server header */
    const qr_log *log;
} qr_server_config;

/* Two steps, so that /health answers 503 while the model loads: create binds and listens at once (R29: never steals or
 * deletes what is not its own dead socket); attach gives it the engine. Errors: INVALID, IO (path and reason). */
QUIRE_MUST_CHECK quire_status qr_server_create(const qr_server_config *config, qr_server **server, quire_error *error);
/* Keeps both. Call before run, or from the load thread while run is going: it is handed over safely. */
void qr_server_attach(qr_server *server, quire_engine *engine, quire_model *model);
/* The engine's wake callback; context is the server. */
void qr_server_wake(void *server);
/* Runs until drained (SIGTERM, SIGINT, stop or fail). Returns OK after a clean drain, TIMED_OUT when the limit passed, the
 * status that fail was given. */
QUIRE_MUST_CHECK quire_status qr_server_run(qr_server *server);
/* Any thread: begins the drain. */
void qr_server_stop(qr_server *server);
/* The same when the model cannot be loaded; status says why. */
void qr_server_fail(qr_server *server, quire_status status);
void qr_server_destroy(qr_server *server);
#endif
