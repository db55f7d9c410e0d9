/* router.c - see router.h. The table of all endpoints is here. */
#include "runtime/server/router.h"

#include "base/clock.h"
#include "runtime/server/endpoints.h"
#include "runtime/server/reply.h"
#include "runtime/server/tcp_origin.h"

#include <stdlib.h>
#include <string.h>

static const qr_route routes[] = {
    {"POST", "/v1/chat/completions", qr_chat_handle, .needs_model = true, .off_loop = true},
    {"POST", "/v1/completions", qr_completions_handle, .needs_model = true, .off_loop = true},
    {"POST", "/tokenize", qr_tokenize_handle, .needs_model = true, .off_loop = true},
    {"POST", "/detokenize", qr_detokenize_handle, .needs_model = true, .off_loop = true},
    {"POST", "/apply-template", qr_apply_template_handle, .needs_model = true, .off_loop = true},
    {"GET", "/v1/models", qr_models_handle, .needs_model = true},
    {"GET", "/v1/models/", qr_models_handle, .needs_model = true, .has_name = true},
    {"GET", "/v1/kv", qr_kv_ledger_handle, .needs_model = true},
    {"DELETE", "/v1/kv", qr_kv_forget_handle, .needs_model = true},
    {"POST", "/v1/kv/flush", qr_kv_flush_handle, .needs_model = true},
    {"GET", "/metrics", qr_metrics_handle, .while_draining = true},
    {"GET", "/health", qr_health_handle, .while_draining = true, .open = true},
};

/* ---- the target ---- */

/* Origin form, or absolute form, whose scheme and authority are skipped. */
static const char *target_path(const char *target) {
    if (target[0] == '/') return target;
    const char *authority = strstr(target, "://");
    if (!authority) return NULL;
    const char *path = strchr(authority + 3, '/');
    return path ? path : "/";
}

static bool route_matches(const qr_route *route, const char *path, size_t length) {
    size_t own = strlen(route->path);
    if (route->has_name) return length > own && memcmp(path, route->path, own) == 0;
    return length == own && memcmp(path, route->path, own) == 0;
}

/* HEAD is GET whose body is not sent. */
static bool method_matches(const qr_route *route, const char *method) {
    return strcmp(route->method, strcmp(method, "HEAD") == 0 ? "GET" : method) == 0;
}

static const char *methods_of(const char *path, size_t length) {
    bool get = false, post = false, delete = false;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!route_matches(&routes[i], path, length)) continue;
        get |= routes[i].method[0] == 'G';
        post |= routes[i].method[0] == 'P';
        delete |= routes[i].method[0] == 'D';
    }
    if (get && delete) return "GET, HEAD, DELETE";
    return get ? "GET, HEAD" : post ? "POST" : NULL;
}

static const qr_route *route_find(const char *path, const char *method, qr_http_error *error) {
    size_t length = path ? strcspn(path, "?#") : 0;
    for (size_t i = 0; path && i < sizeof routes / sizeof *routes; i++)
        if (route_matches(&routes[i], path, length) && method_matches(&routes[i], method)) return &routes[i];
    const char *allow = path ? methods_of(path, length) : NULL;
    if (allow) {
        qr_http_refuse(error, 405, NULL, "this path takes %s", allow);
        error->allow = allow;
    } else {
        qr_http_refuse(error, 404, NULL, "there is no such endpoint");
    }
    return NULL;
}

/* ---- the head ---- */

/* Before anything else, so that a web page learns nothing. With keys the key decides. */
static bool router_answers(const qr_connection *c, qr_http_error *error) {
    const qr_server *server = c->server;
    if (c->peer.is_unix || server->keys.count) return true;
    return qr_tcp_origin_check(server->config.listen, qr_http_parser_header(c->parser, "host"),
                               qr_http_parser_header(c->parser, "origin"), error);
}

static bool router_allows(const qr_connection *c, const qr_route *route, qr_http_error *error) {
    const qr_server *server = c->server;
    bool key_ok =
        c->peer.is_unix || route->open || qr_api_keys_allow(&server->keys, qr_http_parser_header(c->parser, "authorization"));
    if (!key_ok) return qr_http_refuse(error, 401, NULL, "a valid API key is needed: Authorization: Bearer KEY");
    if (server->state == QR_SERVER_DRAINING && !route->while_draining) return qr_http_refuse(error, 503, NULL, "shutting down");
    if (server->state != QR_SERVER_LOADING || !route->needs_model) return true;
    qr_http_refuse(error, 503, NULL, "the model is loading");
    error->retry_after_s = 1;
    return false;
}

static void task_snapshot(qr_task *task, const qr_connection *c) {
    const qr_server *server = c->server;
    task->peer = c->peer;
    task->model = server->model;
    task->fingerprint = server->fingerprint;
    task->context_tokens = server->context_tokens;
    task->pool_tokens = server->pool_tokens;
    task->namespace_by_uid = server->config.namespace_by_uid;
}

static bool task_target(qr_task *task, const char *path, qr_http_error *error) {
    const char *question = strchr(path, '?');
    size_t length = question ? (size_t)(question - path) : strlen(path);
    if (question) task->query = strdup(question + 1);
    if (question && !task->query) return qr_http_refuse(error, 503, NULL, "out of memory");
    if (!task->route->has_name) return true;
    size_t prefix = strlen(task->route->path);
    task->name = strndup(path + prefix, length - prefix);
    if (!task->name) return qr_http_refuse(error, 503, NULL, "out of memory");
    return qr_percent_decode(task->name) || qr_http_refuse(error, 400, NULL, "malformed percent-encoding in the path");
}

qr_task *qr_router_accept(qr_connection *c, const qr_http_head *head, qr_http_error *error) {
    if (!router_answers(c, error)) return NULL;
    const char *path = target_path(head->target);
    const qr_route *route = route_find(path, head->method, error);
    if (!route || !router_allows(c, route, error)) return NULL;
    qr_task *task = qr_task_create(c->server, c, route);
    if (!task) return qr_http_refuse(error, 503, NULL, "out of memory"), NULL;
    task_snapshot(task, c);
    if (task_target(task, path, error)) return task;
    qr_task_destroy(task);
    return NULL;
}

/* ---- dispatch ---- */

void qr_router_answer(qr_task *task) {
    qr_connection *c = task->connection;
    qr_server_body_released(task->server, task->body.size);
    qr_bytes_deinit(&task->body);
    if (task->answer.failed) qr_http_refuse(&task->error, 503, NULL, "out of memory");
    if (task->error.status) return qr_connection_refuse(c, &task->error);
    if (task->generation) return qr_reply_start(task);
    const char *type = task->content_type ? task->content_type : "application/json";
    qr_connection_reply(c, task->status ? task->status : 200, type, task->answer.data ? task->answer.data : "",
                        task->answer.size);
}

static void task_run(uv_work_t *work) {
    qr_task *task = work->data;
    task->route->handle(task);
}

static void task_ran(uv_work_t *work, int status) {
    qr_task *task = work->data;
    qr_server *server = task->server;
    task->in_pool = false;
    server->tasks_in_pool--;
    if (task->connection) {
        if (server->state == QR_SERVER_DRAINING) qr_http_refuse(&task->error, 503, NULL, "shutting down");
        qr_router_answer(task);
    } else {
        qr_task_destroy(task);
    }
    qr_drain_advance(server);
}

void qr_router_dispatch(qr_task *task) {
    if (!task->route->off_loop || task->body.size <= QR_OFF_LOOP_BYTES) {
        task->route->handle(task);
        if (!task->waits) qr_router_answer(task);
        return;
    }
    task->work.data = task;
    task->in_pool = true;
    task->server->tasks_in_pool++;
    uv_queue_work(&task->server->loop, &task->work, task_run, task_ran);
}
