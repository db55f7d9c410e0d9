/* http_error.h - one refused request: HTTP status and the error object of docs/HTTP_API.md.
 *
 * Plain data, so that a worker thread can fill it and the loop can send it.
 */
#ifndef QR_SERVER_HTTP_ERROR_H
#define QR_SERVER_HTTP_ERROR_H

#include "runtime/server/byte_buffer.h"
#include <quire/status.h>

#include <stdint.h>

typedef struct qr_http_error {
    int status;             /* 0 = no error */
    const char *type;       /* static; NULL = by status */
    const char *code;       /* static, or NULL */
    const char *allow;      /* 405: the methods, static */
    char param[96];         /* the field, or empty */
    char message[512];      /* may be cut; JSON output makes it valid */
    uint32_t prompt_tokens; /* both set for exceed_context_size_error */
    uint32_t context_tokens;
    uint32_t retry_after_s; /* 429, 503 */
} qr_http_error;

/* Fills the error and returns false, so that a failing check is one line. param may be NULL. */
__attribute__((format(printf, 4, 5))) bool qr_http_refuse(qr_http_error *error, int status, const char *param,
                                                          const char *format, ...);
/* The same for what the model or the engine refused: INVALID and TOO_LARGE are the client's fault. */
bool qr_http_refuse_status(qr_http_error *error, quire_status status, const quire_error *cause, const char *param);

/* Reason phrase; "Unknown" for a status that this server never sends. */
const char *qr_http_reason(int status);
/* Appends {"error": {...}}. */
void qr_http_error_write(const qr_http_error *error, qr_bytes *out);

#endif
