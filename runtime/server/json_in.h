/* json_in.h - JSON bodies in: loading under limits, and a table-driven reader that names the bad field.
 *
 * Rules (docs/HTTP_API.md): one JSON object, UTF-8, nothing before or after it; \u0000 is an ordinary character of
 * strings; duplicate keys, lone surrogates, numbers that overflow, nesting beyond 64 and more than a million values are
 * refused. null means absent. Unknown fields are accepted.
 *
 * Thread: any; nothing shared.
 */
#ifndef QR_SERVER_JSON_IN_H
#define QR_SERVER_JSON_IN_H

#include "runtime/model/tokenizer.h"
#include "runtime/server/http_error.h"

#include <jansson.h>

enum { QR_JSON_DEPTH_MAX = 64, QR_JSON_VALUES_MAX = 1 << 20 };

/* The object (the caller's to decref), or NULL with the error set. */
json_t *qr_json_load(const char *data, size_t size, qr_http_error *error);

typedef enum qr_field_kind {
    QR_FIELD_BOOL,   /* bool */
    QR_FIELD_INT,    /* int64_t; whole numbers only */
    QR_FIELD_REAL,   /* double; whole numbers too */
    QR_FIELD_STRING, /* qr_text, borrowed from the JSON value */
} qr_field_kind;

typedef struct qr_field {
    const char *name;
    qr_field_kind kind;
    size_t offset;      /* of the member in the struct that is filled */
    double least, most; /* numbers: the range, both included */
} qr_field;

/* Fills the members whose fields are there and not null; others keep their value. */
bool qr_json_read_fields(const json_t *object, const qr_field *fields, size_t count, void *into, qr_http_error *error);

/* The member, or NULL when absent or null. */
const json_t *qr_json_member(const json_t *object, const char *name);
qr_text qr_json_string_of(const json_t *string);
/* A list of token ids of the vocabulary, appended. */
bool qr_json_read_tokens(const json_t *array, const char *name, uint32_t vocabulary_size, qr_token_buffer *out,
                         qr_http_error *error);

#endif
