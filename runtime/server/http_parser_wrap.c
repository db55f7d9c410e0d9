/* http_parser_wrap.c - see http_parse.h.
 *
 * The guard finds the end of each section (head, body) and the library is fed exactly that section; it must agree that
 * the section ended there, or the request is refused. So the library never sees the bytes of a following request.
 *
 * Header names and values are kept as NUL-terminated strings, back to back in one buffer: name, value, name, value...
 */
#include "runtime/server/http_parse.h"

#include "base/assertion.h"
#include "runtime/server/http_guard.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifdef QR_HAVE_LLHTTP
#include <llhttp.h>
typedef llhttp_t library_parser;
typedef llhttp_settings_t library_settings;
#else
#include <http_parser.h>
typedef http_parser library_parser;
typedef http_parser_settings library_settings;
#endif

typedef enum parse_phase { PARSE_HEAD, PARSE_HEAD_GIVEN, PARSE_BODY, PARSE_BODY_GIVEN, PARSE_FAILED } parse_phase;
typedef enum header_piece { HEADER_NONE, HEADER_NAME, HEADER_VALUE } header_piece;

struct qr_http_parser {
    library_parser library;
    library_settings settings;
    qr_http_guard guard;
    parse_phase phase;
    qr_http_head head;
    qr_bytes target;
    qr_bytes headers;
    uint32_t header_count;
    header_piece piece; /* what the library gave last */
    size_t value_start; /* in headers */
    bool head_complete; /* what the library has told */
    bool message_complete;
    bool done;         /* DONE was given: the next feed begins a new request */
    qr_http_span span; /* body piece of this feed */
    int status;
    const char *reason;
};

/* ---- the two libraries ---- */

#ifdef QR_HAVE_LLHTTP
static void library_init(qr_http_parser *p) { llhttp_init(&p->library, HTTP_REQUEST, &p->settings); }

static bool library_feed(qr_http_parser *p, const char *data, size_t size) {
    llhttp_errno_t result = llhttp_execute(&p->library, data, size);
    return result == HPE_OK || result == HPE_PAUSED_UPGRADE;
}

static const char *library_reason(const qr_http_parser *p) { return llhttp_get_error_reason(&p->library); }

static bool library_keep_alive(const qr_http_parser *p) { return llhttp_should_keep_alive(&p->library) != 0; }

static const char *library_method(const qr_http_parser *p) { return llhttp_method_name((llhttp_method_t)p->library.method); }

const char *qr_http_parser_library(void) { return "llhttp"; }
#else
static void library_init(qr_http_parser *p) { http_parser_init(&p->library, HTTP_REQUEST); }

static bool library_feed(qr_http_parser *p, const char *data, size_t size) {
    http_parser_execute(&p->library, &p->settings, data, size);
    return HTTP_PARSER_ERRNO(&p->library) == HPE_OK;
}

static const char *library_reason(const qr_http_parser *p) { return http_errno_description(HTTP_PARSER_ERRNO(&p->library)); }

static bool library_keep_alive(const qr_http_parser *p) { return http_should_keep_alive(&p->library) != 0; }

static const char *library_method(const qr_http_parser *p) { return http_method_str((enum http_method)p->library.method); }

const char *qr_http_parser_library(void) { return "http-parser"; }
#endif

/* ---- what the library tells ---- */

static qr_http_parser *parser_of(library_parser *library) { return library->data; }

static int on_target(library_parser *library, const char *at, size_t length) {
    qr_bytes_append(&parser_of(library)->target, at, length);
    return 0;
}

/* Ends the header that was being read: trailing blanks of the value go, both strings get their NUL. */
static void header_close(qr_http_parser *p) {
    qr_bytes *out = &p->headers;
    if (p->piece == HEADER_NAME) qr_bytes_append(out, "", 1);
    while (p->piece == HEADER_VALUE && out->size > p->value_start && strchr(" \t", out->data[out->size - 1])) out->size--;
    if (p->piece != HEADER_NONE) qr_bytes_append(out, "", 1);
    p->piece = HEADER_NONE;
}

/* Trailers are read and dropped. */
static int on_header_name(library_parser *library, const char *at, size_t length) {
    qr_http_parser *p = parser_of(library);
    if (p->head_complete) return 0;
    if (p->piece == HEADER_VALUE) header_close(p);
    if (p->piece == HEADER_NONE) p->header_count++;
    p->piece = HEADER_NAME;
    qr_bytes_append(&p->headers, at, length);
    return 0;
}

static int on_header_value(library_parser *library, const char *at, size_t length) {
    qr_http_parser *p = parser_of(library);
    if (p->head_complete) return 0;
    if (p->piece == HEADER_NAME) {
        qr_bytes_append(&p->headers, "", 1);
        p->value_start = p->headers.size;
        p->piece = HEADER_VALUE;
    }
    qr_bytes_append(&p->headers, at, length);
    return 0;
}

static int on_headers_complete(library_parser *library) {
    qr_http_parser *p = parser_of(library);
    header_close(p);
    p->head_complete = true;
    p->head.method = library_method(p);
    p->head.minor_version = library->http_minor;
    p->head.keep_alive = library_keep_alive(p);
    return 0;
}

static int on_body(library_parser *library, const char *at, size_t length) {
    qr_http_parser *p = parser_of(library);
    QR_ASSERT(!p->span.size); /* one section at a time, one piece per feed */
    p->span = (qr_http_span){at, length};
    return 0;
}

static int on_message_complete(library_parser *library) {
    parser_of(library)->message_complete = true;
    return 0;
}

/* ---- life ---- */

static void parser_begin(qr_http_parser *p) {
    library_init(p);
    p->library.data = p;
    qr_http_guard_begin_head(&p->guard);
    qr_bytes_clear(&p->target);
    qr_bytes_clear(&p->headers);
    p->phase = PARSE_HEAD;
    p->head = (qr_http_head){.method = ""};
    p->header_count = 0;
    p->piece = HEADER_NONE;
    p->head_complete = p->message_complete = p->done = false;
}

qr_http_parser *qr_http_parser_create(void) {
    qr_http_parser *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->settings.on_url = on_target;
    p->settings.on_header_field = on_header_name;
    p->settings.on_header_value = on_header_value;
    p->settings.on_headers_complete = on_headers_complete;
    p->settings.on_body = on_body;
    p->settings.on_message_complete = on_message_complete;
    parser_begin(p);
    return p;
}

void qr_http_parser_destroy(qr_http_parser *p) {
    if (!p) return;
    qr_bytes_deinit(&p->target);
    qr_bytes_deinit(&p->headers);
    free(p);
}

/* ---- headers ---- */

/* Steps to the next (name, value) pair; *at is NULL before the first. */
static bool header_next(const qr_http_parser *p, const char **at, const char **name, const char **value) {
    if (p->headers.size == 0) return false;
    const char *end = p->headers.data + p->headers.size;
    const char *next = *at ? *at : p->headers.data;
    if (next >= end) return false;
    *name = next;
    *value = next + strlen(next) + 1;
    if (*value > end) return false;
    *at = *value + strlen(*value) + 1;
    return true;
}

const char *qr_http_parser_header(const qr_http_parser *p, const char *name) {
    const char *at = NULL, *found, *value;
    while (header_next(p, &at, &found, &value))
        if (strcasecmp(found, name) == 0) return value;
    return NULL;
}

unsigned qr_http_parser_header_count(const qr_http_parser *p, const char *name) {
    unsigned count = 0;
    const char *at = NULL, *found, *value;
    while (header_next(p, &at, &found, &value)) count += strcasecmp(found, name) == 0;
    return count;
}

/* ---- the head ---- */

static qr_http_step parser_refuse(qr_http_parser *p, int status, const char *reason) {
    p->phase = PARSE_FAILED;
    p->status = status;
    p->reason = reason ? reason : "malformed request";
    return QR_HTTP_ERROR;
}

/* Decimal digits only, at most 18 of them. */
static bool content_length_parse(const char *text, uint64_t *length) {
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18 || text[digits]) return false;
    *length = strtoull(text, NULL, 10);
    return true;
}

static const char *head_framing(qr_http_parser *p) {
    const char *length = qr_http_parser_header(p, "content-length");
    const char *coding = qr_http_parser_header(p, "transfer-encoding");
    if (length && coding) return "both Content-Length and Transfer-Encoding";
    if (qr_http_parser_header_count(p, "content-length") > 1) return "more than one Content-Length";
    if (qr_http_parser_header_count(p, "transfer-encoding") > 1) return "more than one Transfer-Encoding";
    if (qr_http_parser_header_count(p, "host") > 1) return "more than one Host";
    if (length && !content_length_parse(length, &p->head.content_length)) return "malformed Content-Length";
    if (coding && strcasecmp(coding, "chunked") != 0) return "a transfer coding other than chunked";
    if (coding && p->head.minor_version == 0) return "Transfer-Encoding in HTTP/1.0";
    p->head.chunked = coding != NULL;
    p->head.has_body = p->head.chunked || p->head.content_length > 0;
    return NULL;
}

static qr_http_step head_finish(qr_http_parser *p) {
    if (!p->head_complete) return parser_refuse(p, 400, "malformed request head");
    if (p->headers.failed || p->target.failed) return parser_refuse(p, 503, "out of memory");
    if (p->library.http_major != 1 || p->library.http_minor > 1) return parser_refuse(p, 505, "only HTTP/1.0 and HTTP/1.1");
    if (p->header_count > QR_HTTP_HEADERS_MAX) return parser_refuse(p, 431, "more than 100 header lines");
    const char *wrong = head_framing(p);
    if (wrong) return parser_refuse(p, 400, wrong);
    if (p->message_complete == p->head.has_body) return parser_refuse(p, 400, "ambiguous message length");
    p->head.target = p->target.data ? p->target.data : "";
    p->phase = PARSE_HEAD_GIVEN;
    return QR_HTTP_HEAD;
}

static qr_http_step parser_feed_head(qr_http_parser *p, const char *data, size_t size, size_t *used) {
    qr_guard_result result = qr_http_guard_scan(&p->guard, data, size, used);
    if (result == QR_GUARD_BAD) return parser_refuse(p, p->guard.status, p->guard.reason);
    if (!library_feed(p, data, *used)) return parser_refuse(p, 400, library_reason(p));
    return result == QR_GUARD_MORE ? QR_HTTP_MORE : head_finish(p);
}

/* ---- the body ---- */

static void parser_begin_body(qr_http_parser *p) {
    if (p->head.chunked) qr_http_guard_begin_chunks(&p->guard);
    else qr_http_guard_begin_length(&p->guard, p->head.content_length);
    p->phase = PARSE_BODY;
}

/* The library gives at most one piece of body per call when data and chunk framing are fed apart. */
static size_t body_section(const qr_http_guard *guard, size_t size) {
    if (!qr_http_guard_in_data(guard)) return 1;
    return guard->remaining < size ? (size_t)guard->remaining : size;
}

static qr_http_step parser_feed_body(qr_http_parser *p, const char *data, size_t size, size_t *used, qr_http_span *body) {
    p->span = (qr_http_span){0};
    while (*used < size) {
        size_t step = 0;
        qr_guard_result result = qr_http_guard_scan(&p->guard, data + *used, body_section(&p->guard, size - *used), &step);
        if (result == QR_GUARD_BAD) return parser_refuse(p, p->guard.status, p->guard.reason);
        if (!library_feed(p, data + *used, step)) return parser_refuse(p, 400, library_reason(p));
        *used += step;
        if ((result == QR_GUARD_END) != p->message_complete) return parser_refuse(p, 400, "ambiguous message length");
        if (result == QR_GUARD_END) p->phase = PARSE_BODY_GIVEN;
        *body = p->span;
        if (body->size) return QR_HTTP_BODY;
        if (result == QR_GUARD_END) break;
    }
    return p->phase == PARSE_BODY_GIVEN ? QR_HTTP_DONE : QR_HTTP_MORE;
}

qr_http_step qr_http_parser_feed(qr_http_parser *p, const char *data, size_t size, size_t *used, qr_http_span *body) {
    *used = 0;
    *body = (qr_http_span){0};
    if (p->phase == PARSE_FAILED) return QR_HTTP_ERROR;
    if (p->done) parser_begin(p);
    if (p->phase == PARSE_HEAD) return parser_feed_head(p, data, size, used);
    if (p->phase == PARSE_HEAD_GIVEN && p->head.has_body) parser_begin_body(p);
    qr_http_step step = QR_HTTP_DONE;
    if (p->phase == PARSE_BODY) step = parser_feed_body(p, data, size, used, body);
    p->done = step == QR_HTTP_DONE;
    return step;
}

const qr_http_head *qr_http_parser_head(const qr_http_parser *p) { return &p->head; }

bool qr_http_parser_idle(const qr_http_parser *p) {
    return p->done || (p->phase == PARSE_HEAD && qr_http_guard_idle(&p->guard));
}

int qr_http_parser_status(const qr_http_parser *p) { return p->status; }

const char *qr_http_parser_reason(const qr_http_parser *p) { return p->reason; }
