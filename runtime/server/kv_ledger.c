/* kv_ledger.c - GET /v1/kv: where the memory is, in bytes and in sessions; DELETE /v1/kv: forget cached KV for real;
 * POST /v1/kv/flush: write it to disk. */
#include "runtime/server/endpoints.h"
#include "runtime/server/json_in.h"
#include "runtime/server/json_out.h"
#include "runtime/server/kv_wait.h"
#include "runtime/server/server_internal.h"

#include "base/log.h"

#include <string.h>

/* ---- the ledger ---- */

static void put_pool(qr_json *json, const quire_engine_stats *stats) {
    const quire_kv_stats *kv = &stats->kv;
    uint64_t block_bytes = kv->block_total ? kv->pool_bytes / kv->block_total : 0;
    qr_json_key(json, "pool");
    qr_json_open(json, '{');
    qr_json_put_uint(json, "bytes", kv->pool_bytes);
    qr_json_put_uint(json, "block_tokens", stats->block_tokens);
    qr_json_put_uint(json, "block_bytes", block_bytes);
    qr_json_put_uint(json, "blocks", kv->block_total);
    qr_json_put_uint(json, "blocks_free", kv->block_free);
    qr_json_put_uint(json, "blocks_cached", kv->block_cached);
    qr_json_put_uint(json, "blocks_used", kv->block_used);
    qr_json_put_uint(json, "tokens", (uint64_t)kv->block_total * stats->block_tokens);
    qr_json_put_uint(json, "bytes_per_token", stats->kv_bytes_per_token);
    qr_json_close(json, '}');
}

static void put_tree(qr_json *json, const quire_kv_stats *kv) {
    qr_json_key(json, "tree");
    qr_json_open(json, '{');
    qr_json_put_uint(json, "bytes", kv->bookkeeping_bytes);
    qr_json_put_uint(json, "nodes", kv->node_count);
    qr_json_put_uint(json, "tokens_cached", kv->tokens_cached);
    qr_json_close(json, '}');
}

static void put_tier_open(qr_json *json, quire_kv_tier which, const quire_engine_stats *stats) {
    const quire_kv_tier_stats *tier = &stats->tiers.tiers[which];
    qr_json_key(json, quire_kv_tier_name(which));
    qr_json_open(json, '{');
    qr_json_put_bool(json, "present", tier->present);
    qr_json_put_uint(json, "bytes", tier->used_bytes);
    qr_json_put_uint(json, "bytes_max", tier->total_bytes);
    qr_json_put_uint(json, "blocks", tier->block_count);
    qr_json_put_uint(json, "tokens", (uint64_t)tier->block_count * stats->block_tokens);
    qr_json_put_uint(json, "loads_queued", tier->loads_queued);
    qr_json_put_uint(json, "stores_queued", tier->stores_queued);
    qr_json_put_uint(json, "damaged", tier->damaged_total);
    qr_json_put_uint(json, "errors", tier->error_total);
}

/* Buffers and index; its nodes are counted with the tree. */
static uint64_t disk_memory_bytes(const quire_engine_stats *stats) {
    uint64_t others = stats->weight_bytes + stats->work_bytes + stats->kv.pool_bytes + stats->kv.bookkeeping_bytes +
                      stats->tiers.tiers[QUIRE_KV_TIER_HOST].total_bytes;
    return stats->total_bytes > others ? stats->total_bytes - others : 0;
}

static void put_disk(qr_json *json, const quire_engine_stats *stats) {
    const quire_kv_tiers_stats *tiers = &stats->tiers;
    const quire_kv_tier_stats *disk = &tiers->tiers[QUIRE_KV_TIER_DISK];
    put_tier_open(json, QUIRE_KV_TIER_DISK, stats);
    qr_json_put_uint(json, "memory_bytes", disk_memory_bytes(stats));
    qr_json_put_uint(json, "written_bytes", disk->written_bytes_total);
    qr_json_put_uint(json, "day_budget_bytes", disk->budget_bytes);
    qr_json_put_uint(json, "day_budget_left_bytes", disk->budget_left_bytes);
    qr_json_put_uint(json, "flush_left", stats->flush_left);
    qr_json_put_uint(json, "erasing", stats->erasing);
    qr_json_put_uint(json, "found_at_start", tiers->index_records);
    qr_json_put_real(json, "index_seconds", (double)tiers->index_us / 1e6);
    qr_json_close(json, '}');
}

static void put_sessions(qr_json *json, const quire_engine_stats *stats) {
    uint64_t blocks = stats->context_tokens && stats->block_tokens
                          ? (stats->context_tokens + stats->block_tokens - 1) / stats->block_tokens
                          : 0;
    qr_json_key(json, "sessions");
    qr_json_open(json, '{');
    qr_json_put_uint(json, "context_tokens", stats->context_tokens);
    qr_json_put_uint(json, "at_full_context", blocks ? stats->kv.block_total / blocks : 0);
    qr_json_put_uint(json, "max_sequences", stats->max_sequences);
    qr_json_put_uint(json, "running", stats->running);
    qr_json_put_uint(json, "waiting", stats->waiting);
    qr_json_put_uint(json, "paused", stats->paused);
    qr_json_close(json, '}');
}

void qr_kv_ledger_handle(qr_task *task) {
    quire_engine_stats stats;
    quire_engine_get_stats(task->server->engine, &stats);
    qr_json json = {.out = &task->answer};
    qr_json_open(&json, '{');
    qr_json_key(&json, "weights");
    qr_json_open(&json, '{');
    qr_json_put_uint(&json, "bytes", stats.weight_bytes);
    qr_json_put_uint(&json, "mapped_bytes", quire_model_get_info(task->server->model)->mapped_bytes);
    qr_json_close(&json, '}');
    qr_json_key(&json, "work");
    qr_json_open(&json, '{');
    qr_json_put_uint(&json, "bytes", stats.work_bytes);
    qr_json_close(&json, '}');
    put_pool(&json, &stats);
    put_tree(&json, &stats.kv);
    put_tier_open(&json, QUIRE_KV_TIER_HOST, &stats); /* with the CPU backend the pool is host memory: none */
    qr_json_close(&json, '}');
    put_disk(&json, &stats);
    put_sessions(&json, &stats);
    qr_json_put_uint(&json, "total_bytes", stats.total_bytes);
    qr_json_close(&json, '}');
}

/* ---- what the owner alone may ask for ---- */

static bool owner_asks(qr_task *task) {
    if (qr_peer_is_owner(&task->peer)) return true;
    return qr_http_refuse(&task->error, 403, NULL, "only the daemon's own user may do this, over the Unix socket");
}

/* The body, NULL without one. */
static bool load_body(qr_task *task, json_t **body) {
    *body = NULL;
    return task->body.size == 0 || (*body = qr_json_load(task->body.data, task->body.size, &task->error)) != NULL;
}

#define TIMEOUT_FIELD(type) \
    { "timeout", QR_FIELD_REAL, offsetof(type, timeout_s), 0, QR_KV_WAIT_MAX_S }

/* ---- forget ---- */

typedef struct forget_scope {
    bool all;
    qr_text salt; /* data NULL: not given */
    double timeout_s;
} forget_scope;

static bool forget_body(qr_task *task, json_t *body, forget_scope *scope) {
    const qr_field fields[] = {
        {"all", QR_FIELD_BOOL, offsetof(forget_scope, all), 0, 0},
        {"cache_salt", QR_FIELD_STRING, offsetof(forget_scope, salt), 0, 0},
        TIMEOUT_FIELD(forget_scope),
    };
    return qr_json_read_fields(body, fields, sizeof fields / sizeof *fields, scope, &task->error);
}

static bool forget_run(qr_task *task, const forget_scope *scope) {
    if (scope->all == (scope->salt.data != NULL))
        return qr_http_refuse(&task->error, 400, "all", "say either \"all\": true or one \"cache_salt\"");
    qr_bytes key = {0};
    if (!scope->all) qr_namespace_key(scope->salt, &task->peer, task->namespace_by_uid, &key);
    if (key.failed) return qr_http_refuse(&task->error, 503, NULL, "out of memory");
    /* The empty key is the namespace of requests without a salt; NULL would mean all. */
    qr_kv_wait_forget(task, scope->all ? NULL : key.data ? key.data : "", key.size, scope->timeout_s);
    qr_bytes_deinit(&key);
    qr_log_info(task->server->config.log, "forget", QR_STR("scope", scope->all ? "all" : "namespace"),
                QR_INT("uid", task->peer.uid));
    return true;
}

void qr_kv_forget_handle(qr_task *task) {
    char value[512];
    forget_scope scope = {.timeout_s = QR_KV_WAIT_S};
    json_t *body;
    if (!owner_asks(task) || !load_body(task, &body)) return;
    if (!body || forget_body(task, body, &scope)) {
        if (qr_task_query(task, "all", value, sizeof value)) scope.all = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
        if (qr_task_query(task, "cache_salt", value, sizeof value)) scope.salt = (qr_text){value, strlen(value)};
        (void)forget_run(task, &scope);
    }
    json_decref(body);
}

/* ---- flush ---- */

typedef struct flush_fields {
    double timeout_s;
} flush_fields;

void qr_kv_flush_handle(qr_task *task) {
    flush_fields fields = {QR_KV_WAIT_S};
    const qr_field table[] = {TIMEOUT_FIELD(flush_fields)};
    quire_engine_stats stats;
    json_t *body;
    if (!owner_asks(task) || !load_body(task, &body)) return;
    bool valid = !body || qr_json_read_fields(body, table, 1, &fields, &task->error);
    json_decref(body);
    if (!valid) return;
    quire_engine_get_stats(task->server->engine, &stats);
    if (stats.tiers.tiers[QUIRE_KV_TIER_DISK].present) return qr_kv_wait_flush(task, fields.timeout_s);
    qr_http_refuse(&task->error, 400, NULL, "there is no cache on disk: start the daemon with --disk-cache DIR");
}
