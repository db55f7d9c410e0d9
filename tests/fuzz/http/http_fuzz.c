/* http_fuzz.c - any bytes as a connection: parsed whole and in pieces, both readings must agree in every event and stop at
 * the same place. The first byte chooses the size of the pieces. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "runtime/server/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct reading {
    uint64_t requests, body_bytes, digest;
    int status;
} reading;

static void mix(reading *r, const void *data, size_t size) {
    for (size_t i = 0; i < size; i++) r->digest = (r->digest ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
}

static void read_head(reading *r, const qr_http_parser *parser) {
    const qr_http_head *head = qr_http_parser_head(parser);
    QR_ASSERT(!head->chunked || head->content_length == 0);
    mix(r, head->method, strlen(head->method));
    mix(r, head->target, strlen(head->target));
    mix(r, &head->content_length, sizeof head->content_length);
    const char *authorization = qr_http_parser_header(parser, "authorization");
    if (authorization) mix(r, authorization, strlen(authorization));
}

/* Feeds one piece. false: refused. */
static bool read_piece(reading *r, qr_http_parser *parser, const char *data, size_t size) {
    for (;;) {
        size_t used;
        qr_http_span body;
        qr_http_step step = qr_http_parser_feed(parser, data, size, &used, &body);
        QR_ASSERT(used <= size);
        data += used;
        size -= used;
        if (step == QR_HTTP_MORE) return QR_ASSERT(size == 0), true;
        if (step == QR_HTTP_HEAD) read_head(r, parser);
        if (step == QR_HTTP_BODY) mix(r, body.data, body.size);
        if (step == QR_HTTP_BODY) r->body_bytes += body.size;
        if (step == QR_HTTP_DONE) r->requests++;
        if (step != QR_HTTP_ERROR) continue;
        r->status = qr_http_parser_status(parser);
        QR_ASSERT(r->status >= 400 && qr_http_parser_reason(parser));
        return false;
    }
}

static reading read_all(const uint8_t *data, size_t size, size_t piece) {
    reading r = {0};
    qr_http_parser *parser = qr_http_parser_create();
    for (size_t at = 0; at < size; at += piece) {
        size_t length = size - at < piece ? size - at : piece;
        char *copy = malloc(length); /* so that reading past a piece is seen */
        memcpy(copy, data + at, length);
        bool going_on = read_piece(&r, parser, copy, length);
        free(copy);
        if (!going_on) break;
    }
    qr_http_parser_destroy(parser);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    size_t piece = 1 + data[0] % 17;
    reading whole = read_all(data + 1, size - 1, size), pieces = read_all(data + 1, size - 1, piece);
    QR_ASSERT(whole.requests == pieces.requests && whole.status == pieces.status);
    QR_ASSERT(whole.status || (whole.body_bytes == pieces.body_bytes && whole.digest == pieces.digest));
    return 0;
}
