/* http_guard.c - see http_guard.h. */
#include "runtime/server/http_guard.h"

#include "base/assertion.h"

#include <string.h>

enum {
    HEAD_START,
    HEAD_START_LF, /* an empty line before the request line is allowed, once */
    HEAD_REQUEST,
    HEAD_LINE_LF,
    HEAD_LINE_START,
    HEAD_NAME,
    HEAD_VALUE,
    HEAD_END_LF,
    BODY_LENGTH,
    CHUNK_SIZE,
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    TRAILER_START,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    TRAILER_END_LF,
};

void qr_http_guard_begin_head(qr_http_guard *guard) { *guard = (qr_http_guard){.state = HEAD_START}; }

void qr_http_guard_begin_length(qr_http_guard *guard, uint64_t content_length) {
    QR_ASSERT(content_length > 0);
    *guard = (qr_http_guard){.state = BODY_LENGTH, .remaining = content_length};
}

void qr_http_guard_begin_chunks(qr_http_guard *guard) { *guard = (qr_http_guard){.state = CHUNK_SIZE}; }

bool qr_http_guard_in_data(const qr_http_guard *guard) { return guard->state == BODY_LENGTH || guard->state == CHUNK_DATA; }

bool qr_http_guard_idle(const qr_http_guard *guard) { return guard->state == HEAD_START; }

bool qr_http_is_token_char(unsigned char c) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
    return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static qr_guard_result guard_refuse(qr_http_guard *guard, int status, const char *reason) {
    guard->status = status;
    guard->reason = reason;
    return QR_GUARD_BAD;
}

static qr_guard_result guard_to(qr_http_guard *guard, int state) {
    guard->state = state;
    guard->line_bytes = 0;
    return QR_GUARD_MORE;
}

/* A line feed must follow a carriage return; `state` comes next. */
static qr_guard_result guard_line_feed(qr_http_guard *guard, unsigned char c, int state) {
    if (c != '\n') return guard_refuse(guard, 400, "carriage return without line feed");
    return guard_to(guard, state);
}

/* Visible text, spaces and tabs; bytes over 127 are allowed in values only. */
static bool guard_is_value_char(unsigned char c) { return c == '\t' || (c >= ' ' && c != 0x7f); }

static qr_guard_result guard_request_line(qr_http_guard *guard, unsigned char c) {
    if (c == '\r') {
        if (guard->spaces != 2) return guard_refuse(guard, 400, "malformed request line");
        return guard_to(guard, HEAD_LINE_LF);
    }
    if (c == ' ') {
        guard->spaces++;
        guard->line_bytes = 0;
        return guard->spaces > 2 ? guard_refuse(guard, 400, "malformed request line") : QR_GUARD_MORE;
    }
    if (c < ' ' || c >= 0x7f) return guard_refuse(guard, 400, "malformed request line");
    if (guard->spaces == 1 && ++guard->line_bytes > QR_HTTP_TARGET_MAX)
        return guard_refuse(guard, 414, "the request target is longer than 8192 bytes");
    return QR_GUARD_MORE;
}

static qr_guard_result guard_line_start(qr_http_guard *guard, unsigned char c, int name, int end) {
    if (c == '\r') return guard_to(guard, end);
    if (c == ' ' || c == '\t') return guard_refuse(guard, 400, "folded header line");
    if (!qr_http_is_token_char(c)) return guard_refuse(guard, 400, "malformed header name");
    return guard_to(guard, name);
}

static qr_guard_result guard_name(qr_http_guard *guard, unsigned char c, int value) {
    if (c == ':') return guard_to(guard, value);
    if (c == ' ' || c == '\t') return guard_refuse(guard, 400, "space before the colon of a header");
    if (!qr_http_is_token_char(c)) return guard_refuse(guard, 400, "malformed header name");
    return QR_GUARD_MORE;
}

static qr_guard_result guard_value(qr_http_guard *guard, unsigned char c, int line_feed) {
    if (c == '\r') return guard_to(guard, line_feed);
    if (!guard_is_value_char(c)) return guard_refuse(guard, 400, "control character in a header");
    return QR_GUARD_MORE;
}

static int hex_digit(unsigned char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static qr_guard_result guard_chunk_size(qr_http_guard *guard, unsigned char c) {
    int digit = hex_digit(c);
    if (digit >= 0) {
        if (++guard->digits > 15) return guard_refuse(guard, 400, "chunk size too large");
        guard->remaining = guard->remaining * 16 + (unsigned)digit;
        return QR_GUARD_MORE;
    }
    if (guard->digits == 0) return guard_refuse(guard, 400, "malformed chunk size");
    if (c == ';') return guard_to(guard, CHUNK_EXTENSION);
    if (c == '\r') return guard_to(guard, CHUNK_SIZE_LF);
    return guard_refuse(guard, 400, "malformed chunk size");
}

static qr_guard_result guard_chunk_header_end(qr_http_guard *guard, unsigned char c) {
    guard->digits = 0;
    guard->section_bytes = 0;
    return guard_line_feed(guard, c, guard->remaining ? CHUNK_DATA : TRAILER_START);
}

static qr_guard_result guard_chunk_data_cr(qr_http_guard *guard, unsigned char c) {
    if (c != '\r') return guard_refuse(guard, 400, "chunk longer than its size");
    return guard_to(guard, CHUNK_DATA_LF);
}

static qr_guard_result guard_end(qr_http_guard *guard, unsigned char c) {
    return c == '\n' ? QR_GUARD_END : guard_refuse(guard, 400, "carriage return without line feed");
}

static qr_guard_result guard_head_start(qr_http_guard *guard, unsigned char c) {
    if (c == '\r' && guard->section_bytes <= 1) return guard_to(guard, HEAD_START_LF);
    if (!qr_http_is_token_char(c)) return guard_refuse(guard, 400, "malformed request line");
    return guard_to(guard, HEAD_REQUEST);
}

static qr_guard_result guard_byte(qr_http_guard *guard, unsigned char c) {
    switch (guard->state) {
    case HEAD_START: return guard_head_start(guard, c);
    case HEAD_START_LF: return guard_line_feed(guard, c, HEAD_START);
    case HEAD_REQUEST: return guard_request_line(guard, c);
    case HEAD_LINE_LF: return guard_line_feed(guard, c, HEAD_LINE_START);
    case HEAD_LINE_START: return guard_line_start(guard, c, HEAD_NAME, HEAD_END_LF);
    case HEAD_NAME: return guard_name(guard, c, HEAD_VALUE);
    case HEAD_VALUE: return guard_value(guard, c, HEAD_LINE_LF);
    case HEAD_END_LF: return guard_end(guard, c);
    case CHUNK_SIZE: return guard_chunk_size(guard, c);
    case CHUNK_EXTENSION: return guard_value(guard, c, CHUNK_SIZE_LF);
    case CHUNK_SIZE_LF: return guard_chunk_header_end(guard, c);
    case CHUNK_DATA_CR: return guard_chunk_data_cr(guard, c);
    case CHUNK_DATA_LF: return guard_line_feed(guard, c, CHUNK_SIZE);
    case TRAILER_START: return guard_line_start(guard, c, TRAILER_NAME, TRAILER_END_LF);
    case TRAILER_NAME: return guard_name(guard, c, TRAILER_VALUE);
    case TRAILER_VALUE: return guard_value(guard, c, TRAILER_LF);
    case TRAILER_LF: return guard_line_feed(guard, c, TRAILER_START);
    case TRAILER_END_LF: return guard_end(guard, c);
    default: return guard_refuse(guard, 400, "malformed request");
    }
}

/* Limits of the sections that are read byte by byte. */
static qr_guard_result guard_count(qr_http_guard *guard) {
    guard->section_bytes++;
    if (guard->state <= HEAD_END_LF) {
        if (guard->section_bytes > QR_HTTP_HEAD_MAX)
            return guard_refuse(guard, 431, "the request head is longer than 32768 bytes");
    } else if (guard->state >= TRAILER_START) {
        if (guard->section_bytes > QR_HTTP_TRAILER_MAX)
            return guard_refuse(guard, 431, "the trailers are longer than 8192 bytes");
    } else if (guard->section_bytes > QR_HTTP_CHUNK_LINE_MAX) {
        return guard_refuse(guard, 400, "chunk header too long");
    }
    return QR_GUARD_MORE;
}

/* Body bytes are counted, not looked at. */
static size_t guard_skip(qr_http_guard *guard, size_t size) {
    size_t skipped = guard->remaining < size ? (size_t)guard->remaining : size;
    guard->remaining -= skipped;
    return skipped;
}

qr_guard_result qr_http_guard_scan(qr_http_guard *guard, const char *data, size_t size, size_t *used) {
    size_t i = 0;
    qr_guard_result result = QR_GUARD_MORE;
    while (i < size && result == QR_GUARD_MORE) {
        if (qr_http_guard_in_data(guard)) {
            i += guard_skip(guard, size - i);
            if (guard->remaining) break;
            if (guard->state == BODY_LENGTH) result = QR_GUARD_END;
            else guard_to(guard, CHUNK_DATA_CR);
            continue;
        }
        result = guard_count(guard);
        if (result == QR_GUARD_MORE) result = guard_byte(guard, (unsigned char)data[i++]);
    }
    *used = i;
    return result;
}
