/* http_error.c - see http_error.h. */
#include "runtime/server/http_error.h"

#include "runtime/server/json_out.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct http_status_entry {
    int status;
    const char *reason;
    const char *type;
} http_status_entry;

static const http_status_entry http_statuses[] = {
    {200, "OK", ""},
    {202, "Accepted", ""},
    {400, "Bad Request", "invalid_request_error"},
    {401, "Unauthorized", "authentication_error"},
    {403, "Forbidden", "permission_error"},
    {404, "Not Found", "not_found_error"},
    {405, "Method Not Allowed", "invalid_request_error"},
    {408, "Request Timeout", "invalid_request_error"},
    {413, "Content Too Large", "invalid_request_error"},
    {414, "URI Too Long", "invalid_request_error"},
    {417, "Expectation Failed", "invalid_request_error"},
    {429, "Too Many Requests", "rate_limit_error"},
    {431, "Request Header Fields Too Large", "invalid_request_error"},
    {500, "Internal Server Error", "server_error"},
    {501, "Not Implemented", "invalid_request_error"},
    {503, "Service Unavailable", "unavailable_error"},
    {505, "HTTP Version Not Supported", "invalid_request_error"},
};

static const http_status_entry *http_status_find(int status) {
    for (size_t i = 0; i < sizeof http_statuses / sizeof *http_statuses; i++)
        if (http_statuses[i].status == status) return &http_statuses[i];
    return NULL;
}

const char *qr_http_reason(int status) {
    const http_status_entry *entry = http_status_find(status);
    return entry ? entry->reason : "Unknown";
}

bool qr_http_refuse(qr_http_error *error, int status, const char *param, const char *format, ...) {
    *error = (qr_http_error){.status = status};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    snprintf(error->param, sizeof error->param, "%s", param ? param : "");
    return false;
}

static int http_status_of(quire_status status) {
    switch (status) {
    case QUIRE_INVALID:
    case QUIRE_TOO_LARGE:
    case QUIRE_UNSUPPORTED:
    case QUIRE_NOT_FOUND:
    case QUIRE_FORMAT: return 400;
    case QUIRE_QUEUE_FULL: return 429;
    case QUIRE_NO_MEMORY:
    case QUIRE_NO_BLOCKS:
    case QUIRE_CANCELLED:
    case QUIRE_SHUTTING_DOWN: return 503;
    default: return 500;
    }
}

bool qr_http_refuse_status(qr_http_error *error, quire_status status, const quire_error *cause, const char *param) {
    const char *text = cause && cause->text[0] ? cause->text : quire_status_message(status);
    const char *field = cause && cause->source[0] ? cause->source : param;
    qr_http_refuse(error, http_status_of(status), field, "%s", text);
    if (status == QUIRE_TOO_LARGE) error->type = "exceed_context_size_error";
    return false;
}

void qr_http_error_write(const qr_http_error *error, qr_bytes *out) {
    const http_status_entry *entry = http_status_find(error->status);
    qr_json json = {.out = out};
    qr_json_open(&json, '{');
    qr_json_key(&json, "error");
    qr_json_open(&json, '{');
    qr_json_put_text(&json, "message", error->message);
    qr_json_put_text(&json, "type", error->type ? error->type : entry ? entry->type : "server_error");
    qr_json_put_text(&json, "param", error->param[0] ? error->param : NULL);
    qr_json_put_text(&json, "code", error->code);
    if (error->context_tokens) {
        qr_json_put_uint(&json, "n_prompt_tokens", error->prompt_tokens);
        qr_json_put_uint(&json, "n_ctx", error->context_tokens);
    }
    qr_json_close(&json, '}');
    qr_json_close(&json, '}');
}
