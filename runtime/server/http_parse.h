/* http_parse.h - HTTP/1.1 requests from bytes, strictly.
 *
 * The only seam to a parser library: llhttp where the system has it, else http-parser 2.9 (Debian 12; its upstream has
 * ended). Lenient modes stay off, and http_guard.h adds what the library lets through. Ambiguous framing is an error
 * after which the connection must be closed: both length headers, a repeated or malformed Content-Length, a transfer
 * coding other than chunked, folded lines, bare line feeds, a space before a colon, malformed chunks.
 *
 * Thread: one owner.
 */
#ifndef QR_SERVER_HTTP_PARSE_H
#define QR_SERVER_HTTP_PARSE_H

#include "runtime/server/byte_buffer.h"

#include <stdint.h>

enum { QR_HTTP_HEADERS_MAX = 100 };

typedef struct qr_http_parser qr_http_parser;

typedef enum qr_http_step {
    QR_HTTP_MORE,  /* all bytes used; wants more */
    QR_HTTP_HEAD,  /* the head is complete: see qr_http_parser_head; go on with the bytes that are left */
    QR_HTTP_BODY,  /* *body holds a piece of the body (chunk framing removed) */
    QR_HTTP_DONE,  /* the request is complete; the next byte begins another */
    QR_HTTP_ERROR, /* see qr_http_parser_status and _reason; nothing more may be fed */
} qr_http_step;

typedef struct qr_http_head {
    const char *method; /* static */
    const char *target; /* NUL-terminated, visible ASCII only; valid until the request is complete */
    int minor_version;  /* of HTTP/1 */
    bool keep_alive;
    bool has_body;
    bool chunked;
    uint64_t content_length; /* 0 when chunked */
} qr_http_head;

/* A piece of a body; borrows from the bytes that were fed. */
typedef struct qr_http_span {
    const char *data;
    size_t size;
} qr_http_span;

qr_http_parser *qr_http_parser_create(void); /* NULL: out of memory */
void qr_http_parser_destroy(qr_http_parser *parser);

/* Takes bytes up to the next event; *used says how many. */
qr_http_step qr_http_parser_feed(qr_http_parser *parser, const char *data, size_t size, size_t *used, qr_http_span *body);
/* Valid from QR_HTTP_HEAD until QR_HTTP_DONE was handled (the next feed). */
const qr_http_head *qr_http_parser_head(const qr_http_parser *parser);
/* Value of a header (name in lower case), or NULL. NUL-terminated, outer blanks removed. Repeated headers: the first. */
const char *qr_http_parser_header(const qr_http_parser *parser, const char *name);
/* How often the header is there. */
unsigned qr_http_parser_header_count(const qr_http_parser *parser, const char *name);
/* Between two requests: nothing of the next one has been fed. */
bool qr_http_parser_idle(const qr_http_parser *parser);
int qr_http_parser_status(const qr_http_parser *parser);
const char *qr_http_parser_reason(const qr_http_parser *parser);
/* "llhttp" or "http-parser". */
const char *qr_http_parser_library(void);

#endif
