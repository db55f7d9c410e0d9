/* sse_parser.h - server-sent events, byte by byte: what arrives in any pieces leaves as whole `data` payloads.
 *
 * Handles what OpenAI-compatible servers send: `data:` lines (several join with a newline), comments, other fields
 * (ignored), CR, LF and CRLF line ends. An event's payload may be at most QR_SSE_EVENT_BYTES_MAX; a longer one is an
 * error, not a cut. Format: WHATWG HTML, section 9.2.
 *
 * Thread: one owner.
 */
#ifndef QR_CLI_SSE_PARSER_H
#define QR_CLI_SSE_PARSER_H

#include <stdbool.h>
#include <stddef.h>

enum { QR_SSE_EVENT_BYTES_MAX = 16 * 1024 * 1024 };

/* data is NUL-terminated besides its size, and valid during the call. False stops the feed. */
typedef bool qr_sse_event_fn(void *context, const char *data, size_t size);

/* Zero-initialised, plus the callback. */
typedef struct qr_sse_parser {
    qr_sse_event_fn *on_event;
    void *context;
    char *line, *data;
    size_t line_size, line_capacity, data_size, data_capacity;
    bool has_data, last_was_cr;
} qr_sse_parser;

/* False: out of memory, an event too large, or on_event said stop. */
bool qr_sse_parser_feed(qr_sse_parser *parser, const char *bytes, size_t size);
void qr_sse_parser_deinit(qr_sse_parser *parser);
#endif
