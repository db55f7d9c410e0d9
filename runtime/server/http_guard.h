/* http_guard.h - strict HTTP/1.1 framing, byte by byte: where the head of a request ends and where its body ends.
 *
 * A second judge beside the parser library, which in Debian's build accepts a space before a header's colon, a line
 * feed without carriage return, folded header lines and any two bytes after a chunk. Two readers of one message must never
 * disagree about its end (request smuggling), so this one is strict and the wrapper refuses what the two see differently.
 * It understands lines, lengths and chunks; the meaning of header fields is left to the wrapper.
 *
 *   head:     [CRLF] request-line CRLF { name ":" value CRLF } CRLF
 *   chunked:  { size-in-hex [";" extension] CRLF data CRLF } "0" [";" extension] CRLF { trailer CRLF } CRLF
 *
 * Thread: one owner. No allocation.
 */
#ifndef QR_SERVER_HTTP_GUARD_H
#define QR_SERVER_HTTP_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QR_HTTP_HEAD_MAX = 32 * 1024,   /* request line and header lines: 431 beyond */
    QR_HTTP_TARGET_MAX = 8 * 1024,  /* request target: 414 beyond */
    QR_HTTP_CHUNK_LINE_MAX = 1024,  /* chunk size and extension */
    QR_HTTP_TRAILER_MAX = 8 * 1024, /* all trailers: 431 beyond */
};

typedef enum qr_guard_result {
    QR_GUARD_MORE, /* all bytes used, the section goes on */
    QR_GUARD_END,  /* the section ended after *used bytes */
    QR_GUARD_BAD   /* status and reason are set; the connection must be closed */
} qr_guard_result;

typedef struct qr_http_guard {
    int state;
    uint32_t section_bytes; /* of the head, chunk line or trailers */
    uint32_t line_bytes;    /* of the line being read */
    uint32_t spaces;        /* of the request line */
    uint32_t digits;        /* of the chunk size */
    uint64_t remaining;     /* body or chunk bytes to come */
    int status;             /* HTTP status of a refusal */
    const char *reason;
} qr_http_guard;

void qr_http_guard_begin_head(qr_http_guard *guard);
void qr_http_guard_begin_length(qr_http_guard *guard, uint64_t content_length); /* >= 1 */
void qr_http_guard_begin_chunks(qr_http_guard *guard);
/* Looks at the next bytes of the section. Afterwards *used bytes belong to it. */
qr_guard_result qr_http_guard_scan(qr_http_guard *guard, const char *data, size_t size, size_t *used);
/* The next byte is one of the body itself, not of its framing. */
bool qr_http_guard_in_data(const qr_http_guard *guard);
/* Nothing of a head has been seen yet. */
bool qr_http_guard_idle(const qr_http_guard *guard);
/* A character of a header name or method (RFC 9110, token). */
bool qr_http_is_token_char(unsigned char c);

#endif
