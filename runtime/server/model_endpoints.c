/* model_endpoints.c - GET /v1/models, /v1/models/NAME and /health. */
#include "runtime/server/endpoints.h"
#include "runtime/server/json_out.h"
#include "runtime/server/server_internal.h"

#include <string.h>

static void put_model(qr_json *json, const qr_server *server) {
    const quire_model_info *info = quire_model_get_info(server->model);
    qr_json_open(json, '{');
    qr_json_put_text(json, "id", info->name);
    qr_json_put_text(json, "object", "model");
    qr_json_put_uint(json, "created", server->created_s);
    qr_json_put_text(json, "owned_by", "quire");
    qr_json_put_uint(json, "max_model_len", server->context_tokens);
    qr_json_put_text(json, "architecture", info->architecture);
    qr_json_put_text(json, "quantization", info->quantization);
    qr_json_put_uint(json, "size_bytes", info->file_bytes);
    qr_json_put_uint(json, "parameters", info->parameter_count);
    qr_json_put_uint(json, "vocabulary_size", info->vocabulary_size);
    qr_json_put_bool(json, "chat", info->has_chat_template);
    qr_json_close(json, '}');
}

void qr_models_handle(qr_task *task) {
    const qr_server *server = task->server;
    qr_json json = {.out = &task->answer};
    if (task->name) {
        if (strcmp(task->name, quire_model_get_info(server->model)->name) == 0) return put_model(&json, server);
        qr_http_refuse(&task->error, 404, "model", "no such model; GET /v1/models lists the one that is loaded");
        return;
    }
    qr_json_open(&json, '{');
    qr_json_put_text(&json, "object", "list");
    qr_json_key(&json, "data");
    qr_json_open(&json, '[');
    put_model(&json, server);
    qr_json_close(&json, ']');
    qr_json_close(&json, '}');
}

void qr_health_handle(qr_task *task) {
    switch (task->server->state) {
    case QR_SERVER_LOADING:
        qr_http_refuse(&task->error, 503, NULL, "the model is loading");
        task->error.retry_after_s = 1;
        return;
    case QR_SERVER_DRAINING: qr_http_refuse(&task->error, 503, NULL, "shutting down"); return;
    case QR_SERVER_READY: qr_bytes_text(&task->answer, "{\"status\":\"ok\"}"); return;
    }
}
