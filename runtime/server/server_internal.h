/* server_internal.h - what the loop thread owns. Only for files of this folder. */
#ifndef QR_SERVER_SERVER_INTERNAL_H
#define QR_SERVER_SERVER_INTERNAL_H

#include "base/list.h"
#include "base/random.h"
#include "runtime/server/api_keys.h"
#include "runtime/server/byte_buffer.h"
#include "runtime/server/listener.h"
#include "runtime/server/live_table.h"
#include "runtime/server/server.h"
#include "runtime/server/server_metrics.h"
#include "runtime/server/socket_listen.h"
#include "runtime/server/tier_watch.h"

#include <stdatomic.h>
#include <uv.h>

typedef struct qr_connection qr_connection;
typedef struct qr_reply qr_reply;

enum {
    QR_EVENT_BATCH = 128,           /* events taken from the engine at a time */
    QR_EVENT_BATCHES_MAX = 32,      /* per wake-up, so that sockets are served between */
    QR_TICK_MS = 250,               /* timeouts and pings are noticed so late at most */
    QR_WATCH_MS = 1000,             /* trouble with the tiers is logged so often at most */
    QR_OFF_LOOP_BYTES = 16 * 1024,  /* larger bodies are handled on the libuv pool */
    QR_READ_BYTES = 64 * 1024,      /* one read; also what may wait behind a running request */
    QR_BODY_TOTAL_FACTOR = 8,       /* bodies of all connections together: so many times the body limit */
    QR_REQUEST_READ_MS = 60 * 1000, /* a request must arrive whole in this time */
    QR_IDLE_MS = 600 * 1000,        /* a silent connection between requests */
    QR_LINGER_MS = 2000,            /* after the last answer the client may take so long to close */
    QR_DRAIN_FLUSH_MS = 2000,       /* after the drain limit, for the last bytes */
    QR_FINGERPRINT_BYTES = 64,
};

typedef enum qr_server_state { QR_SERVER_LOADING, QR_SERVER_READY, QR_SERVER_DRAINING } qr_server_state;

struct qr_server {
    qr_server_config config; /* strings are ours */
    uv_loop_t loop;
    uv_async_t wake;
    uv_signal_t sigterm, sigint;
    uv_timer_t tick, drain_timer, kv_timer, watch_timer;
    qr_listener unix_listener, tcp_listener;
    qr_unix_socket unix_socket;
    qr_api_keys keys;

    /* handed over by attach and stop, from any thread */
    uv_mutex_t handover_lock;
    quire_engine *handover_engine;
    quire_model *handover_model;
    atomic_bool stop_asked;
    atomic_int failure; /* quire_status, set before stop_asked */

    quire_engine *engine; /* NULL while loading */
    quire_model *model;
    uint32_t context_tokens;
    uint64_t pool_tokens;
    char fingerprint[QR_FINGERPRINT_BYTES];
    uint64_t created_s;

    qr_server_state state;
    bool drain_limit_passed;
    bool hibernating;                               /* the drain is over; what is cached is being written */
    uint64_t hibernate_flushes, hibernate_begin_us; /* flushes before it */
    quire_status result;

    qr_list connections;
    uint32_t connection_count;
    qr_list dirty;   /* connections with output to flush */
    qr_list replies; /* generations that the engine knows */
    uint32_t tasks_in_pool;
    qr_list kv_waits; /* tasks whose answer waits for the engine */
    uint64_t forgets_asked;
    qr_live_table live;  /* engine request id -> reply */
    quire_event *events; /* [QR_EVENT_BATCH] */
    size_t body_bytes;   /* of all tasks */
    char *read_buffer;   /* [QR_READ_BYTES], shared: each read is consumed at once */
    qr_random random;    /* for reply ids */
    qr_metrics metrics;
    qr_tier_watch tier_watch;
};

/* Accounting of body memory. */
bool qr_server_body_reserve(qr_server *server, size_t size); /* false: over the total */
void qr_server_body_released(qr_server *server, size_t size);
/* Seconds until a refused request may be tried again, from how long requests take and how many wait. */
uint32_t qr_server_retry_after_s(const qr_server *server);

/* drain.c */
void qr_drain_begin(qr_server *server);
/* Ends the loop when a drain has nothing left to wait for. Called wherever something ends. */
void qr_drain_advance(qr_server *server);

#endif
