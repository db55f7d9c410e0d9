#include "runtime/cli/sse_parser.h"

#include <criterion/criterion.h>
#include <string.h>

typedef struct heard {
    char text[4096];
    int events, stop_at;
} heard;

static bool note(void *context, const char *data, size_t size) {
    heard *h = context;
    cr_assert_eq(strlen(data), size, "payload is terminated");
    strcat(h->text, "<");
    strcat(h->text, data);
    strcat(h->text, ">");
    return ++h->events != h->stop_at;
}

static bool feed(heard *h, const char *bytes, size_t piece) {
    qr_sse_parser parser = {.on_event = note, .context = h};
    bool ok = true;
    for (size_t at = 0, size = strlen(bytes); ok && at < size; at += piece)
        ok = qr_sse_parser_feed(&parser, bytes + at, size - at < piece ? size - at : piece);
    qr_sse_parser_deinit(&parser);
    return ok;
}

Test(cli_sse_parser, gives_the_same_events_however_the_bytes_are_cut) {
    static const struct {
        const char *bytes, *events;
    } cases[] = {
        {"data: a\n\ndata: b\n\n", "<a><b>"},
        {"data: a\r\n\r\ndata:b\r\n\r\n", "<a><b>"},
        {"data: a\r\rdata: b\r\r", "<a><b>"},
        {": ping\n\n: ping\ndata: x\n\n", "<x>"},
        {"event: e\nid: 7\ndata: one\ndata: two\nretry: 1\n\n", "<one\ntwo>"},
        {"data\n\n", "<>"},
        {"data:  two spaces\n\n", "< two spaces>"},
        {"datum: no\n\n", ""},
        {"data: unfinished\n", ""},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t piece = 1; piece <= strlen(cases[c].bytes); piece++) {
            heard h = {.stop_at = -1};
            cr_assert(feed(&h, cases[c].bytes, piece));
            cr_assert_str_eq(h.text, cases[c].events, "case %zu in pieces of %zu", c, piece);
        }
}

Test(cli_sse_parser, stops_when_the_listener_says_so) {
    heard h = {.stop_at = 2};
    cr_assert_not(feed(&h, "data: 1\n\ndata: 2\n\ndata: 3\n\n", 100));
    cr_assert_str_eq(h.text, "<1><2>");
}
