#include "runtime/cli/sse_parser.h"

#include <stdlib.h>
#include <string.h>

static bool append(char **buffer, size_t *size, size_t *capacity, const char *bytes, size_t count) {
    if (count > QR_SSE_EVENT_BYTES_MAX - *size) return false;
    size_t needed = *size + count + 1; /* room for the terminator */
    if (needed > *capacity) {
        size_t grown = *capacity ? *capacity : 256;
        while (grown < needed) grown *= 2;
        char *moved = realloc(*buffer, grown);
        if (!moved) return false;
        *buffer = moved;
        *capacity = grown;
    }
    memcpy(*buffer + *size, bytes, count);
    *size += count;
    (*buffer)[*size] = '\0';
    return true;
}

static bool add_data(qr_sse_parser *parser, const char *value, size_t size) {
    if (parser->has_data && !append(&parser->data, &parser->data_size, &parser->data_capacity, "\n", 1)) return false;
    parser->has_data = true;
    return append(&parser->data, &parser->data_size, &parser->data_capacity, value, size);
}

static bool dispatch(qr_sse_parser *parser) {
    if (!parser->has_data) return true;
    bool more = parser->on_event(parser->context, parser->data, parser->data_size);
    parser->data_size = 0;
    parser->has_data = false;
    return more;
}

static bool end_line(qr_sse_parser *parser) {
    const char *line = parser->line;
    size_t size = parser->line_size;
    parser->line_size = 0;
    if (size == 0) return dispatch(parser);
    const char *colon = memchr(line, ':', size);
    size_t name = colon ? (size_t)(colon - line) : size;
    if (name != 4 || memcmp(line, "data", 4) != 0) return true; /* a comment or another field */
    const char *value = colon ? colon + 1 : line + size;
    if (colon && value < line + size && *value == ' ') value++;
    return add_data(parser, value, (size_t)(line + size - value));
}

bool qr_sse_parser_feed(qr_sse_parser *parser, const char *bytes, size_t size) {
    size_t at = 0;
    while (at < size) {
        char c = bytes[at];
        if (c == '\n' && parser->last_was_cr) {
            parser->last_was_cr = false;
            at++;
            continue;
        }
        parser->last_was_cr = false;
        if (c == '\n' || c == '\r') {
            parser->last_was_cr = c == '\r';
            at++;
            if (!end_line(parser)) return false;
            continue;
        }
        size_t run = at;
        while (run < size && bytes[run] != '\n' && bytes[run] != '\r') run++;
        if (!append(&parser->line, &parser->line_size, &parser->line_capacity, bytes + at, run - at)) return false;
        at = run;
    }
    return true;
}

void qr_sse_parser_deinit(qr_sse_parser *parser) {
    free(parser->line);
    free(parser->data);
    *parser = (qr_sse_parser){0};
}
