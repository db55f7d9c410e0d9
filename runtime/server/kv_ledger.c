/* kv_ledger.c - GET /v1/kv: where the memory is, in bytes and in sessions; DELETE /v1/kv: forget cached KV for real. */
#include "runtime/server/endpoints.h"
#include "runtime/server/json_in.h"
#include "runtime/server/json_out.h"
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

static void put_tier(qr_json *json, const char *name) {
    qr_json_key(json, name);
    qr_json_open(json, '{');
    qr_json_put_uint(json, "bytes", 0);
    qr_json_put_uint(json, "bytes_max", 0);
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
    put_tier(&json, "host"); /* with the CPU backend the pool is host memory */
    put_tier(&json, "disk");
    put_sessions(&json, &stats);
    qr_json_put_uint(&json, "total_bytes",
                     stats.weight_bytes + stats.work_bytes + stats.kv.pool_bytes + stats.kv.bookkeeping_bytes);
    qr_json_close(&json, '}');
}

/* ---- forget ---- */

typedef struct forget_scope {
    bool all;
    qr_text salt; /* data NULL: not given */
} forget_scope;

static bool forget_body(qr_task *task, json_t *body, forget_scope *scope) {
    const qr_field fields[] = {
        {"all", QR_FIELD_BOOL, offsetof(forget_scope, all), 0, 0},
        {"cache_salt", QR_FIELD_STRING, offsetof(forget_scope, salt), 0, 0},
    };
    return qr_json_read_fields(body, fields, 2, scope, &task->error);
}

static bool forget_run(qr_task *task, const forget_scope *scope) {
    if (scope->all == (scope->salt.data != NULL))
        return qr_http_refuse(&task->error, 400, "all", "say either \"all\": true or one \"cache_salt\"");
    qr_bytes key = {0};
    if (!scope->all) qr_namespace_key(scope->salt, &task->peer, task->namespace_by_uid, &key);
    if (key.failed) return qr_http_refuse(&task->error, 503, NULL, "out of memory");
    /* The empty key is the namespace of requests without a salt; NULL would mean all. */
    quire_engine_forget(task->server->engine, scope->all ? NULL : key.data ? key.data : "", key.size);
    qr_bytes_deinit(&key);
    qr_log_info(task->server->config.log, "forget", QR_STR("scope", scope->all ? "all" : "namespace"),
                QR_INT("uid", task->peer.uid));
    qr_bytes_text(&task->answer, scope->all ? "{\"forgotten\":\"all\"}" : "{\"forgotten\":\"namespace\"}");
    return true;
}

void qr_kv_forget_handle(qr_task *task) {
    if (!qr_peer_is_owner(&task->peer)) {
        qr_http_refuse(&task->error, 403, NULL, "only the daemon's own user may do this, over the Unix socket");
        return;
    }
    char value[512];
    forget_scope scope = {0};
    json_t *body = NULL;
    if (task->body.size && !(body = qr_json_load(task->body.data, task->body.size, &task->error))) return;
    if (!body || forget_body(task, body, &scope)) {
        if (qr_task_query(task, "all", value, sizeof value)) scope.all = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
        if (qr_task_query(task, "cache_salt", value, sizeof value)) scope.salt = (qr_text){value, strlen(value)};
        (void)forget_run(task, &scope);
    }
    json_decref(body);
}
