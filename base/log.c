/* log.c - one event per line.
 *
 * A line is built on the stack and goes out in one write, so lines of several threads never mix (writes to a pipe are atomic up
 * to PIPE_BUF, which is more than a line). A failed write is dropped: a log must not stop the work.
 */
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

enum { LINE_BYTES = 1024 };

typedef struct log_line {
    size_t used;
    bool full;
    char text[LINE_BYTES]; /* the last byte is kept for the newline */
} log_line;

/* Adds a whole piece or, when it does not fit, nothing more. */
static void line_add(log_line *line, const char *piece, size_t size) {
    line->full |= line->used + size > LINE_BYTES - 1;
    if (line->full) return;
    memcpy(line->text + line->used, piece, size);
    line->used += size;
}

static void line_add_string(log_line *line, const char *string) { line_add(line, string, strlen(string)); }

static bool value_needs_quotes(const char *value) { return *value == 0 || strpbrk(value, " \"=\\") != NULL; }

/* The value is made safe first, then added character by character, so a cut falls between characters. */
static void line_add_value(log_line *line, const char *value) {
    char safe[LINE_BYTES];
    size_t size = qr_text_sanitize(safe, sizeof safe, value, strlen(value));
    bool quotes = value_needs_quotes(safe);
    if (quotes) line_add(line, "\"", 1);
    for (size_t i = 0; i < size;) {
        size_t length = qr_utf8_length(safe + i, size - i);
        if (safe[i] == '"' || safe[i] == '\\') line_add(line, "\\", 1);
        line_add(line, safe + i, length);
        i += length;
    }
    if (quotes) line_add(line, "\"", 1);
}

static void line_add_field(log_line *line, const qr_log_field *field) {
    char number[48];
    line_add(line, " ", 1);
    line_add_string(line, field->key);
    line_add(line, "=", 1);
    switch (field->kind) {
    case QR_LOG_STRING: line_add_value(line, field->string ? field->string : ""); return;
    case QR_LOG_INTEGER: snprintf(number, sizeof number, "%" PRId64, field->integer); break;
    case QR_LOG_FLOAT: snprintf(number, sizeof number, "%.6g", field->number); break;
    }
    line_add_string(line, number);
}

static void line_add_head(log_line *line, qr_log_level level, const char *event) {
    static const char *const names[] = {"debug", "info", "warn", "error", "off"};
    uint64_t now_ms = qr_clock_wall_ms();
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    char head[64];
    size_t size = strftime(head, sizeof head, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(head + size, sizeof head - size, ".%03uZ %s ", (unsigned)(now_ms % 1000), names[level]);
    line_add_string(line, head);
    line_add_string(line, event);
}

void qr_log_event(const qr_log *log, qr_log_level level, const char *event, const qr_log_field *fields, int count) {
    if (!log || level < log->level || level >= QR_LOG_OFF) return;
    log_line line = {0};
    line_add_head(&line, level, event);
    for (int i = 0; i < count; i++) line_add_field(&line, &fields[i]);
    line.text[line.used++] = '\n';
    ssize_t written = write(log->fd, line.text, line.used);
    (void)written;
}
