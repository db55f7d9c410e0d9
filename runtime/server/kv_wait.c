/* kv_wait.c - see kv_wait.h. The engine's figures are looked at while anybody waits. */
#include "runtime/server/kv_wait.h"

#include "base/clock.h"
#include "base/log.h"
#include "runtime/server/json_out.h"
#include "runtime/server/router.h"
#include "runtime/server/server_internal.h"

enum { LOOK_MS = 10 };

/* ---- what became of it ---- */

static bool wait_is_over(const qr_kv_wait *wait, const quire_engine_stats *stats) {
    if (wait->flush) return stats->flushes_total > wait->number && stats->flush_left == 0;
    return stats->forgets_total >= wait->number && stats->erasing == 0;
}

static void flush_answer(qr_task *task, const quire_engine_stats *stats, bool over) {
    const quire_kv_tier_stats *disk = &stats->tiers.tiers[QUIRE_KV_TIER_DISK];
    qr_json json = {.out = &task->answer};
    qr_json_open(&json, '{');
    bool lasts = over && stats->tiers.flush_refused == 0 && !stats->tiers.flush_failed;
    qr_json_put_bool(&json, "flushed", lasts);
    qr_json_put_uint(&json, "written_blocks", disk->stored_blocks_total - task->wait.stored_before);
    qr_json_put_uint(&json, "blocks_left", over ? stats->tiers.flush_refused : stats->flush_left);
    qr_json_put_real(&json, "seconds", (double)(qr_clock_us() - task->arrived_us) / 1e6);
    qr_json_close(&json, '}');
}

static void forget_answer(qr_task *task, const quire_engine_stats *stats) {
    qr_json json = {.out = &task->answer};
    qr_json_open(&json, '{');
    qr_json_put_text(&json, "forgotten", task->wait.all ? "all" : "namespace");
    qr_json_put_uint(&json, "erasing", stats->erasing);
    qr_json_close(&json, '}');
}

static void wait_end(qr_task *task, const quire_engine_stats *stats, bool over) {
    qr_list_remove(&task->wait.node);
    task->status = over ? 200 : 202;
    if (task->wait.flush) flush_answer(task, stats, over);
    else forget_answer(task, stats);
    qr_router_answer(task);
}

/* ---- looking ---- */

static void on_look(uv_timer_t *timer) {
    qr_server *server = timer->data;
    quire_engine_stats stats;
    uint64_t now_us = qr_clock_us();
    quire_engine_get_stats(server->engine, &stats);
    QR_LIST_EACH_SAFE (node, following, &server->kv_waits) {
        qr_task *task = QR_LIST_ENTRY(node, qr_task, wait.node);
        bool over = wait_is_over(&task->wait, &stats);
        if (over || now_us >= task->wait.until_us) wait_end(task, &stats, over);
    }
    qr_connection_flush_dirty(server);
    if (qr_list_empty(&server->kv_waits)) uv_timer_stop(timer);
}

static void wait_begin(qr_task *task, double timeout_s) {
    qr_server *server = task->server;
    task->waits = true;
    task->wait.until_us = qr_clock_us() + (uint64_t)(timeout_s * 1e6);
    qr_list_push_back(&server->kv_waits, &task->wait.node);
    if (!uv_is_active((uv_handle_t *)&server->kv_timer)) uv_timer_start(&server->kv_timer, on_look, LOOK_MS, LOOK_MS);
}

void qr_kv_wait_flush(qr_task *task, double timeout_s) {
    quire_engine_stats stats;
    quire_engine_get_stats(task->server->engine, &stats);
    task->wait.flush = true;
    task->wait.number = stats.flushes_total;
    task->wait.stored_before = stats.tiers.tiers[QUIRE_KV_TIER_DISK].stored_blocks_total;
    quire_engine_flush(task->server->engine);
    wait_begin(task, timeout_s);
}

void qr_kv_wait_forget(qr_task *task, const void *namespace_key, size_t namespace_bytes, double timeout_s) {
    task->wait.all = namespace_key == NULL;
    task->wait.number = ++task->server->forgets_asked;
    quire_engine_forget(task->server->engine, namespace_key, namespace_bytes);
    wait_begin(task, timeout_s);
}

void qr_kv_wait_fail(qr_server *server, const qr_http_error *error) {
    for (qr_list *node; (node = qr_list_pop_front(&server->kv_waits));) {
        qr_task *task = QR_LIST_ENTRY(node, qr_task, wait.node);
        task->error = *error;
        qr_router_answer(task);
    }
}
