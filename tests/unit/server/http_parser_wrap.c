#include "runtime/server/http_parse.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct outcome {
    int requests, status;
    char body[256];
    size_t body_size;
    char last_target[64];
    bool closed_after; /* keep_alive of the last one was off */
} outcome;

/* Feeds the bytes in pieces of `step`. */
static outcome parse(const char *data, size_t size, size_t step) {
    outcome o = {0};
    qr_http_parser *p = qr_http_parser_create();
    cr_assert(p);
    for (size_t at = 0; at <= size && !o.status;) {
        size_t piece = size - at < step ? size - at : step, used;
        qr_http_span body;
        const char *from = data + at;
        qr_http_step result;
        at += piece;
        do {
            result = qr_http_parser_feed(p, from, piece, &used, &body);
            from += used;
            piece -= used;
            if (result == QR_HTTP_HEAD) {
                const qr_http_head *head = qr_http_parser_head(p);
                snprintf(o.last_target, sizeof o.last_target, "%s", head->target);
                o.closed_after = !head->keep_alive;
            }
            if (result == QR_HTTP_BODY && o.body_size + body.size < sizeof o.body) {
                memcpy(o.body + o.body_size, body.data, body.size);
                o.body_size += body.size;
            }
            if (result == QR_HTTP_DONE) o.requests++;
            if (result == QR_HTTP_ERROR) o.status = qr_http_parser_status(p);
        } while (result != QR_HTTP_MORE && result != QR_HTTP_ERROR);
        if (at == size) break;
    }
    qr_http_parser_destroy(p);
    return o;
}

static outcome parse_text(const char *text) {
    outcome whole = parse(text, strlen(text), strlen(text));
    outcome bytes = parse(text, strlen(text), 1);
    cr_assert_eq(whole.status, bytes.status, "glued and byte by byte differ: %s", text);
    cr_assert_eq(whole.requests, bytes.requests, "glued and byte by byte differ: %s", text);
    cr_assert_str_eq(whole.body, bytes.body);
    return whole;
}

Test(server_http_parser_wrap, gives_requests_in_order_glued_or_byte_by_byte) {
    outcome o = parse_text("GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyz"
                           "POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;e=1\r\nab\r\n1\r\nc\r\n0\r\nT: v\r\n\r\n");
    cr_assert_eq(o.status, 0);
    cr_assert_eq(o.requests, 3);
    cr_assert_str_eq(o.body, "xyzabc");
    cr_assert_str_eq(o.last_target, "/c");
}

Test(server_http_parser_wrap, accepts_one_empty_line_before_a_request) {
    cr_assert_eq(parse_text("\r\nGET / HTTP/1.1\r\n\r\n").requests, 1);
    cr_assert_eq(parse_text("\r\n\r\nGET / HTTP/1.1\r\n\r\n").status, 400);
}

Test(server_http_parser_wrap, knows_when_the_connection_ends) {
    cr_assert(!parse_text("GET / HTTP/1.1\r\n\r\n").closed_after);
    cr_assert(parse_text("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").closed_after);
    cr_assert(parse_text("GET / HTTP/1.0\r\n\r\n").closed_after);
    cr_assert(!parse_text("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").closed_after);
}

Test(server_http_parser_wrap, refuses_ambiguous_framing) {
    static const char *const bad[] = {
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nContent-Length: -3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nContent-Length: 0x3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nContent-Length: three\r\n\r\nabc",
        "POST / HTTP/1.1\r\nContent-Length:\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\nabc",
        "POST / HTTP/1.1\r\nContent-Length : 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\n folded\r\n\r\nabc",
        "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\nHost: x\n\n",
        "GET / HTTP/1.1\r\nHost: x\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\x01\r\n\r\n",
        "GET / HTTP/1.1\r\n: b\r\n\r\n",
        "GET  / HTTP/1.1\r\n\r\n",
        "GET /\r\n\r\n",
        "GET /\x80 HTTP/1.1\r\n\r\n",
        "NONSENSE / HTTP/1.1\r\n\r\n",
        "{}\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect_eq(parse_text(bad[i]).status, 400, "accepted: %s (status %d)", bad[i], parse_text(bad[i]).status);
}

Test(server_http_parser_wrap, refuses_malformed_chunks) {
    static const char head[] = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    static const char *const bad[] = {
        "\r\nabc",      "g\r\n",       "-1\r\nx",
        "1\nx",         "1 \r\nx",     "0x1\r\nx",
        "1\r\nxy\r\n0", "1\r\nx0\r\n", "FFFFFFFFFFFFFFFFF\r\n",
        "1\r\nx\n",     "0\r\n\n",     "0\r\n bad\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s%s", head, bad[i]);
        cr_expect_eq(parse_text(text).status, 400, "accepted: %s", bad[i]);
    }
}

Test(server_http_parser_wrap, bounds_the_head) {
    char *big = malloc(70000);
    memset(big, 'a', 70000);
    memcpy(big, "GET / HTTP/1.1\r\nX: ", 19);
    cr_assert_eq(parse(big, 70000, 70000).status, 431);
    memset(big, 'a', 70000);
    memcpy(big, "GET /", 5);
    cr_assert_eq(parse(big, 70000, 1000).status, 414);
    size_t at = (size_t)sprintf(big, "GET / HTTP/1.1\r\n");
    for (int i = 0; i < 101; i++) at += (size_t)sprintf(big + at, "H%d: v\r\n", i);
    sprintf(big + at, "\r\n");
    cr_assert_eq(parse_text(big).status, 431);
    free(big);
}

Test(server_http_parser_wrap, knows_other_versions) {
    cr_assert_eq(parse_text("GET / HTTP/2.0\r\n\r\n").status, 505);
    cr_assert_eq(parse_text("GET / HTTP/1.2\r\n\r\n").status, 505);
}

Test(server_http_parser_wrap, finds_headers_in_any_case_and_trims_them) {
    static const char text[] = "GET / HTTP/1.1\r\nEmpty:\r\nAuthorization: \t Bearer a b \t \r\nx:1\r\nX: 2\r\n\r\n";
    qr_http_parser *p = qr_http_parser_create();
    size_t used;
    qr_http_span body;
    cr_assert_eq(qr_http_parser_feed(p, text, sizeof text - 1, &used, &body), QR_HTTP_HEAD);
    cr_assert_str_eq(qr_http_parser_header(p, "authorization"), "Bearer a b");
    cr_assert_str_eq(qr_http_parser_header(p, "empty"), "");
    cr_assert_eq(qr_http_parser_header_count(p, "x"), 2);
    cr_assert_null(qr_http_parser_header(p, "missing"));
    cr_assert(!qr_http_parser_idle(p));
    cr_assert_eq(qr_http_parser_feed(p, "", 0, &used, &body), QR_HTTP_DONE);
    cr_assert(qr_http_parser_idle(p));
    qr_http_parser_destroy(p);
}
