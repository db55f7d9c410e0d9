/* drain.c - the end of a daemon: no new work, running replies finish up to a limit, nobody is left hanging (R30).
 *
 * begin: queued requests get 503, idle connections close, new ones are accepted and get 503 with "Connection: close".
 * Limit: each running reply gets one error and ends; a short time is left to write it.
 * Then, with a cache on disk, the daemon hibernates: what is cached and not written yet is written, up to a limit of its own.
 * A second signal ends at once, at any stage.
 */
#include "base/clock.h"
#include "base/log.h"
#include "runtime/server/connection.h"
#include "runtime/server/kv_wait.h"
#include "runtime/server/reply.h"

enum { HIBERNATE_LOOK_MS = 10 };

static void drain_error(qr_http_error *error) {
    qr_http_refuse(error, 503, NULL, "the server is shutting down");
    error->code = "shutting_down";
}

static void replies_fail(qr_server *server, bool also_started) {
    qr_http_error error;
    drain_error(&error);
    QR_LIST_EACH_SAFE (node, following, &server->replies) {
        qr_reply *reply = QR_LIST_ENTRY(node, qr_reply, node);
        if (also_started || !reply->started) qr_reply_fail(reply, &error);
    }
    qr_connection_flush_dirty(server);
}

/* ---- hibernation ---- */

/* Since the start: what a full or failing disk, or a budget, kept from being written. It is not on disk, and not among those
 * left. */
static uint64_t refused_blocks(const quire_engine_stats *stats) {
    const uint64_t *refused = stats->tiers.refused_blocks_total;
    return refused[QUIRE_KV_REFUSED_NO_SPACE] + refused[QUIRE_KV_REFUSED_BUDGET] + refused[QUIRE_KV_REFUSED_BROKEN];
}

static void hibernate_look(uv_timer_t *timer) {
    qr_server *server = timer->data;
    quire_engine_stats stats;
    quire_engine_get_stats(server->engine, &stats);
    uint64_t spent_ms = (qr_clock_us() - server->hibernate_begin_us) / 1000;
    bool over = stats.flushes_total > server->hibernate_flushes && stats.flush_left == 0;
    if (!over && spent_ms < server->config.hibernate_ms) return;
    if (!over) quire_engine_stop_flush(server->engine);
    uint32_t left = over ? stats.tiers.flush_refused : stats.flush_left;
    qr_log_info(server->config.log, "hibernated",
                QR_STR("lasts", over && left == 0 && !stats.tiers.flush_failed ? "yes" : "no"), QR_INT("blocks_left", left),
                QR_INT("refused_blocks", refused_blocks(&stats)), QR_INT("ms", spent_ms));
    uv_timer_stop(timer);
    uv_stop(timer->loop);
}

static bool can_hibernate(const qr_server *server, const quire_engine_stats *stats) {
    return server->config.hibernate_ms > 0 && stats->tiers.tiers[QUIRE_KV_TIER_DISK].present;
}

/* Nobody is left to answer. */
static void drain_end(qr_server *server) {
    if (server->hibernating) return;
    quire_engine_stats stats = {0};
    if (server->engine) quire_engine_get_stats(server->engine, &stats);
    if (!can_hibernate(server, &stats)) return uv_stop(&server->loop);
    server->hibernating = true;
    server->hibernate_flushes = stats.flushes_total;
    server->hibernate_begin_us = qr_clock_us();
    quire_engine_flush(server->engine);
    uv_timer_start(&server->drain_timer, hibernate_look, HIBERNATE_LOOK_MS, HIBERNATE_LOOK_MS);
}

/* ---- the drain ---- */

static void drain_flush_over(uv_timer_t *timer) { drain_end(timer->data); }

static void waits_fail(qr_server *server) {
    qr_http_error error;
    drain_error(&error);
    qr_kv_wait_fail(server, &error);
    qr_connection_flush_dirty(server);
}

static void drain_over(uv_timer_t *timer) {
    qr_server *server = timer->data;
    server->drain_limit_passed = true;
    server->result = QUIRE_TIMED_OUT;
    replies_fail(server, true);
    waits_fail(server);
    uv_timer_start(timer, drain_flush_over, QR_DRAIN_FLUSH_MS, 0);
    qr_drain_advance(server);
}

void qr_drain_begin(qr_server *server) {
    if (server->state == QR_SERVER_DRAINING) return;
    server->state = QR_SERVER_DRAINING;
    qr_log_info(server->config.log, "drain", QR_INT("connections", server->connection_count),
                QR_INT("limit_seconds", server->config.drain_ms / 1000));
    uv_timer_start(&server->drain_timer, drain_over, server->config.drain_ms, 0);
    replies_fail(server, false);
    QR_LIST_EACH_SAFE (node, following, &server->connections) {
        qr_connection_close_idle(QR_LIST_ENTRY(node, qr_connection, node));
    }
    qr_drain_advance(server);
}

/* A connection that still has bytes to write, or a client to read them, is waited for; one between requests is not. */
static bool connection_is_busy(const qr_connection *c) {
    if (c->state == QR_CONN_ANSWERING || c->out.size) return true;
    return uv_stream_get_write_queue_size(&c->uv.stream) > 0 || (c->state == QR_CONN_LINGERING && !c->read_ended);
}

void qr_drain_advance(qr_server *server) {
    if (server->state != QR_SERVER_DRAINING || server->tasks_in_pool || !qr_list_empty(&server->replies)) return;
    QR_LIST_EACH (node, &server->connections) {
        if (connection_is_busy(QR_LIST_ENTRY(node, qr_connection, node))) return;
    }
    drain_end(server);
}
