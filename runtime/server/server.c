/* server.c - see server.h: creation, hand-over of the engine, the loop, the end. */
#include "runtime/server/server.h"

#include "base/assertion.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/server/connection.h"
#include "runtime/server/descriptors.h"
#include "runtime/server/reply.h"
#include "runtime/server/server_internal.h"
#include "runtime/server/workers.h"

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- shared by the folder ---- */

bool qr_server_body_reserve(qr_server *server, size_t size) {
    if (server->body_bytes + size > server->config.max_body_bytes * QR_BODY_TOTAL_FACTOR) return false;
    server->body_bytes += size;
    return true;
}

void qr_server_body_released(qr_server *server, size_t size) {
    QR_ASSERT(server->body_bytes >= size);
    server->body_bytes -= size;
}

uint32_t qr_server_retry_after_s(const qr_server *server) {
    quire_engine_stats stats;
    quire_engine_get_stats(server->engine, &stats);
    double rounds = (double)(stats.waiting + stats.running) / (double)(stats.max_sequences ? stats.max_sequences : 1);
    double seconds = rounds * server->metrics.recent_request_s;
    return seconds < 1 ? 1 : seconds > 600 ? 600 : (uint32_t)seconds;
}

/* ---- events ---- */

/* Events of the engine, in batches; sockets get their turn between long runs of them. */
static void server_take_events(qr_server *server) {
    for (int batch = 0; batch < QR_EVENT_BATCHES_MAX; batch++) {
        size_t count = quire_engine_poll(server->engine, server->events, QR_EVENT_BATCH);
        for (size_t i = 0; i < count; i++) qr_reply_event(server, &server->events[i]);
        qr_connection_flush_dirty(server);
        if (count < QR_EVENT_BATCH) return;
    }
    uv_async_send(&server->wake);
}

/* ---- the tiers ---- */

static void watch_tiers(qr_server *server) {
    quire_engine_stats stats;
    quire_engine_get_stats(server->engine, &stats);
    qr_tier_watch_look(&server->tier_watch, &stats.tiers, server->config.log);
}

static void on_watch(uv_timer_t *timer) { watch_tiers(timer->data); }

static bool has_tiers(const quire_kv_tiers_stats *tiers) {
    return tiers->tiers[QUIRE_KV_TIER_HOST].present || tiers->tiers[QUIRE_KV_TIER_DISK].present;
}

/* ---- hand-over ---- */

static void server_take_engine(qr_server *server) {
    uv_mutex_lock(&server->handover_lock);
    server->engine = server->handover_engine;
    server->model = server->handover_model;
    uv_mutex_unlock(&server->handover_lock);
    if (!server->engine) return;
    quire_engine_stats stats;
    quire_engine_get_stats(server->engine, &stats);
    server->context_tokens = stats.context_tokens;
    server->pool_tokens = (uint64_t)stats.kv.block_total * stats.block_tokens;
    snprintf(server->fingerprint, sizeof server->fingerprint, "quire-%.24s-cpu-%016" PRIx64, server->config.version,
             quire_engine_numerics_fingerprint(server->engine));
    if (has_tiers(&stats.tiers)) uv_timer_start(&server->watch_timer, on_watch, 0, QR_WATCH_MS);
    if (server->state == QR_SERVER_LOADING) server->state = QR_SERVER_READY;
    qr_log_info(server->config.log, "ready", QR_STR("fingerprint", server->fingerprint),
                QR_INT("context_tokens", server->context_tokens), QR_INT("pool_tokens", server->pool_tokens));
}

static void server_take_stop(qr_server *server) {
    if (server->result == QUIRE_OK) server->result = (quire_status)atomic_load(&server->failure);
    qr_drain_begin(server);
}

static void on_wake(uv_async_t *async) {
    qr_server *server = async->data;
    if (!server->engine) server_take_engine(server);
    if (server->engine) server_take_events(server);
    if (atomic_load(&server->stop_asked)) server_take_stop(server);
}

static void on_signal(uv_signal_t *signal, int number) {
    qr_server *server = signal->data;
    qr_log_info(server->config.log, "signal", QR_INT("number", number));
    if (server->state != QR_SERVER_DRAINING) return qr_drain_begin(server);
    server->result = QUIRE_CANCELLED;
    uv_stop(&server->loop);
}

static void on_tick(uv_timer_t *timer) {
    qr_server *server = timer->data;
    uint64_t now_us = qr_clock_us();
    QR_LIST_EACH_SAFE (node, following, &server->replies) {
        qr_reply_tick(QR_LIST_ENTRY(node, qr_reply, node), now_us);
    }
    qr_connection_flush_dirty(server);
    QR_LIST_EACH_SAFE (node, following, &server->connections) {
        qr_connection_tick(QR_LIST_ENTRY(node, qr_connection, node), now_us);
    }
    if (qr_list_empty(&server->connections)) uv_timer_stop(timer);
    qr_drain_advance(server);
}

static bool on_connection(void *context, int fd, bool is_unix) {
    qr_server *server = context;
    if (!uv_is_active((uv_handle_t *)&server->tick)) uv_timer_start(&server->tick, on_tick, QR_TICK_MS, QR_TICK_MS);
    return qr_connection_take(server, fd, is_unix);
}

static bool on_shortage(void *context) { return qr_connection_spare(context); }

/* ---- creation ---- */

static char *copy_text(const char *text) { return text ? strdup(text) : NULL; }

static bool config_copy(qr_server_config *to, const qr_server_config *from) {
    *to = *from;
    to->socket_path = copy_text(from->socket_path);
    to->listen = copy_text(from->listen);
    to->api_key_file = copy_text(from->api_key_file);
    to->version = copy_text(from->version ? from->version : "0");
    if (!to->socket_mode) to->socket_mode = 0600;
    if (!to->max_body_bytes) to->max_body_bytes = (size_t)32 << 20;
    if (!to->max_connections) to->max_connections = 1024;
    if (!to->drain_ms) to->drain_ms = 30000;
    if (!to->send_timeout_ms) to->send_timeout_ms = 30000;
    if (!to->ping_ms) to->ping_ms = 5000;
    if (!to->spare_idle_ms) to->spare_idle_ms = 1000;
    if (!to->send_buffer_bytes) to->send_buffer_bytes = (size_t)1 << 20;
    return to->version && !to->socket_path == !from->socket_path && !to->listen == !from->listen &&
           !to->api_key_file == !from->api_key_file;
}

static void config_free(qr_server_config *config) {
    free((char *)(uintptr_t)config->socket_path);
    free((char *)(uintptr_t)config->listen);
    free((char *)(uintptr_t)config->api_key_file);
    free((char *)(uintptr_t)config->version);
}

static quire_status fail_uv(quire_error *error, const char *source, int code) {
    return qr_fail(error, QUIRE_IO, source, QR_NO_OFFSET, "%s", uv_strerror(code));
}

static quire_status listen_unix(qr_server *server, quire_error *error) {
    const char *path = server->config.socket_path;
    if (!path) return QUIRE_OK;
    quire_status status = qr_unix_socket_open(path, server->config.socket_mode, &server->unix_socket, error);
    if (status != QUIRE_OK) return status;
    int failed = qr_listener_open(&server->unix_listener, server->unix_socket.fd, true);
    server->unix_socket.fd = -1;
    if (failed) return fail_uv(error, path, failed);
    qr_log_info(server->config.log, "listening", QR_STR("socket", path));
    return QUIRE_OK;
}

static quire_status listen_tcp(qr_server *server, quire_error *error) {
    const char *address = server->config.listen;
    if (!address) return QUIRE_OK;
    int fd, port;
    bool loopback;
    quire_status status = qr_tcp_listen(address, &fd, &loopback, &port, error);
    if (status != QUIRE_OK) return status;
    if (!loopback && server->keys.count == 0) {
        close(fd);
        return qr_fail(error, QUIRE_INVALID, "listen", QR_NO_OFFSET,
                       "an address that other machines can reach needs an API key file: %s", address);
    }
    int failed = qr_listener_open(&server->tcp_listener, fd, false);
    if (failed) return fail_uv(error, address, failed);
    qr_log_info(server->config.log, "listening", QR_STR("tcp", address), QR_INT("port", port));
    return QUIRE_OK;
}

static void handles_init(qr_server *server) {
    uv_async_init(&server->loop, &server->wake, on_wake);
    uv_signal_init(&server->loop, &server->sigterm);
    uv_signal_init(&server->loop, &server->sigint);
    uv_timer_init(&server->loop, &server->tick);
    uv_timer_init(&server->loop, &server->drain_timer);
    uv_timer_init(&server->loop, &server->kv_timer);
    uv_timer_init(&server->loop, &server->watch_timer);
    qr_listener_init(&server->unix_listener, &server->loop, on_connection, on_shortage, server, server->config.log);
    qr_listener_init(&server->tcp_listener, &server->loop, on_connection, on_shortage, server, server->config.log);
    server->wake.data = server->sigterm.data = server->sigint.data = server;
    server->tick.data = server->drain_timer.data = server->kv_timer.data = server->watch_timer.data = server;
}

static quire_status server_listen(qr_server *server, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (!server->config.socket_path && !server->config.listen)
        return qr_fail(error, QUIRE_INVALID, "socket", QR_NO_OFFSET, "neither a socket path nor an address to listen on");
    if (server->config.api_key_file) status = qr_api_keys_load(server->config.api_key_file, &server->keys, error);
    if (status == QUIRE_OK) status = listen_unix(server, error);
    if (status == QUIRE_OK) status = listen_tcp(server, error);
    return status;
}

quire_status qr_server_create(const qr_server_config *config, qr_server **out, quire_error *error) {
    *out = NULL;
    quire_status status = qr_descriptors_check(error);
    if (status == QUIRE_OK) status = qr_workers_start(error);
    if (status != QUIRE_OK) return status;
    qr_server *server = calloc(1, sizeof *server);
    if (!server) return qr_fail(error, QUIRE_NO_MEMORY, "server", QR_NO_OFFSET, "no memory");
    server->unix_socket.fd = server->unix_socket.lock_fd = -1;
    if (!config_copy(&server->config, config) || uv_loop_init(&server->loop) < 0) {
        config_free(&server->config);
        free(server);
        return qr_fail(error, QUIRE_NO_MEMORY, "server", QR_NO_OFFSET, "no event loop");
    }
    uv_mutex_init(&server->handover_lock);
    handles_init(server);
    qr_list_init(&server->connections);
    qr_list_init(&server->dirty);
    qr_list_init(&server->replies);
    qr_list_init(&server->kv_waits);
    server->created_s = qr_clock_wall_ms() / 1000;
    if (getrandom(&server->random, sizeof server->random, GRND_NONBLOCK) < 0) server->random.state = qr_clock_ns();
    json_object_seed(0); /* before any thread parses */
    server->read_buffer = malloc(QR_READ_BYTES);
    server->events = calloc(QR_EVENT_BATCH, sizeof *server->events);
    status = server->read_buffer && server->events ? server_listen(server, error)
                                                   : qr_fail(error, QUIRE_NO_MEMORY, "server", QR_NO_OFFSET, "no memory");
    if (status == QUIRE_OK) *out = server;
    else qr_server_destroy(server);
    return status;
}

/* ---- from other threads ---- */

void qr_server_attach(qr_server *server, quire_engine *engine, quire_model *model) {
    uv_mutex_lock(&server->handover_lock);
    server->handover_engine = engine;
    server->handover_model = model;
    uv_mutex_unlock(&server->handover_lock);
    uv_async_send(&server->wake);
}

void qr_server_wake(void *context) {
    qr_server *server = context;
    uv_async_send(&server->wake);
}

void qr_server_stop(qr_server *server) {
    atomic_store(&server->stop_asked, true);
    uv_async_send(&server->wake);
}

void qr_server_fail(qr_server *server, quire_status status) {
    atomic_store(&server->failure, (int)status);
    qr_server_stop(server);
}

/* ---- run and end ---- */

static void listeners_close(qr_server *server) {
    qr_listener_close(&server->unix_listener);
    qr_listener_close(&server->tcp_listener);
    qr_unix_socket_close(&server->unix_socket);
}

static void connections_close(qr_server *server) {
    while (!qr_list_empty(&server->connections))
        qr_connection_close(QR_LIST_ENTRY(server->connections.next, qr_connection, node));
}

quire_status qr_server_run(qr_server *server) {
    void (*old_pipe)(int) = signal(SIGPIPE, SIG_IGN);
    uv_signal_start(&server->sigterm, on_signal, SIGTERM);
    uv_signal_start(&server->sigint, on_signal, SIGINT);
    server->result = QUIRE_OK;
    uv_run(&server->loop, UV_RUN_DEFAULT);
    listeners_close(server); /* the socket file goes before another signal may end the process */
    uv_signal_stop(&server->sigterm);
    uv_signal_stop(&server->sigint);
    uv_timer_stop(&server->watch_timer);
    connections_close(server);
    uv_run(&server->loop, UV_RUN_NOWAIT);
    if (server->engine) watch_tiers(server); /* hibernation too may have met something */
    signal(SIGPIPE, old_pipe);
    qr_log_info(server->config.log, "stopped", QR_STR("result", quire_status_name(server->result)));
    return server->result;
}

static void handle_close(uv_handle_t *handle, void *argument) {
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

/* Replies whose DONE never came, because the engine went first or the end was sudden. */
static void replies_abandon(qr_server *server) {
    QR_LIST_EACH_SAFE (node, following, &server->replies) {
        qr_reply_abandon(QR_LIST_ENTRY(node, qr_reply, node));
    }
}

void qr_server_destroy(qr_server *server) {
    if (!server) return;
    listeners_close(server);
    server->engine = NULL; /* may be gone already */
    connections_close(server);
    uv_walk(&server->loop, handle_close, NULL);
    while (uv_run(&server->loop, UV_RUN_DEFAULT)) {} /* a drain may stop it once more */
    replies_abandon(server);
    int busy = uv_loop_close(&server->loop);
    QR_ASSERT(busy == 0);
    uv_mutex_destroy(&server->handover_lock);
    qr_live_table_deinit(&server->live);
    qr_api_keys_deinit(&server->keys);
    config_free(&server->config);
    free(server->events);
    free(server->read_buffer);
    free(server);
}
