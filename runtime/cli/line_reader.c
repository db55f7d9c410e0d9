/* line_reader.c - libedit behind one call.
 *
 * SIGINT is blocked and comes as a descriptor, so libedit's own waiting for a key is replaced by one that watches both.
 */
#include "runtime/cli/line_reader.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "runtime/cli/terminal.h"

enum { HISTORY_LINES = 500 };

struct qr_line_reader {
    int interrupt_fd;
    bool interrupted;
    bool continued; /* the prompt of a second line */
    EditLine *edit; /* NULL: not a terminal */
    History *history;
    char *line; /* the whole line, continuations joined */
    size_t size, capacity;
    char *plain; /* getline's */
    size_t plain_capacity;
};

static char *reader_prompt(EditLine *edit) {
    static char first[] = "> ", next[] = ". ";
    qr_line_reader *reader = NULL;
    el_get(edit, EL_CLIENTDATA, &reader);
    return reader->continued ? next : first;
}

/* Waits for a key or Ctrl-C; false: Ctrl-C. */
static bool reader_wait(qr_line_reader *reader) {
    struct pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {reader->interrupt_fd, POLLIN, 0}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR) continue;
    reader->interrupted = qr_interrupt_take(reader->interrupt_fd);
    return !reader->interrupted;
}

/* One character from however many bytes it has. 1: read, 0: end, -1: Ctrl-C or an error. */
static int reader_get_character(EditLine *edit, wchar_t *character) {
    qr_line_reader *reader = NULL;
    mbstate_t state = {0};
    el_get(edit, EL_CLIENTDATA, &reader);
    for (;;) {
        char byte;
        if (!reader_wait(reader)) return -1;
        ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got <= 0) return got == 0 ? 0 : -1;
        size_t used = mbrtowc(character, &byte, 1, &state);
        if (used == (size_t)-2) continue; /* goes on */
        if (used == (size_t)-1) {         /* not a character here: drop it */
            memset(&state, 0, sizeof state);
            continue;
        }
        return 1;
    }
}

static void reader_open_terminal(qr_line_reader *reader, const char *program) {
    HistEvent event;
    reader->edit = el_init(program, stdin, stdout, stderr);
    if (!reader->edit) return;
    reader->history = history_init();
    history(reader->history, &event, H_SETSIZE, HISTORY_LINES);
    history(reader->history, &event, H_SETUNIQUE, 1);
    el_set(reader->edit, EL_CLIENTDATA, reader);
    el_set(reader->edit, EL_PROMPT, reader_prompt);
    el_set(reader->edit, EL_EDITOR, "emacs");
    el_set(reader->edit, EL_HIST, history, reader->history);
    el_set(reader->edit, EL_GETCFN, reader_get_character);
    el_source(reader->edit, NULL); /* the user's ~/.editrc */
}

quire_status qr_line_reader_create(const char *program, int interrupt_fd, qr_line_reader **out) {
    *out = NULL;
    qr_line_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return QUIRE_NO_MEMORY;
    reader->interrupt_fd = interrupt_fd;
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) reader_open_terminal(reader, program);
    *out = reader;
    return QUIRE_OK;
}

void qr_line_reader_destroy(qr_line_reader *reader) {
    if (!reader) return;
    if (reader->edit) el_end(reader->edit);
    if (reader->history) history_end(reader->history);
    free(reader->line);
    free(reader->plain);
    free(reader);
}

/* One physical line, newline included where it has one. */
static qr_line_result reader_one(qr_line_reader *reader, const char **text, size_t *size) {
    reader->interrupted = false;
    if (!reader->edit) {
        ssize_t got = getline(&reader->plain, &reader->plain_capacity, stdin);
        *text = reader->plain;
        *size = got > 0 ? (size_t)got : 0;
        return got > 0 ? QR_LINE_READ : QR_LINE_END;
    }
    int got = 0;
    *text = el_gets(reader->edit, &got);
    *size = got > 0 ? (size_t)got : 0;
    if (*text && got > 0) return QR_LINE_READ;
    fputc('\n', stdout);
    return reader->interrupted ? QR_LINE_INTERRUPTED : QR_LINE_END;
}

static bool reader_keep(qr_line_reader *reader, const char *text, size_t size) {
    if (reader->size + size + 2 > reader->capacity) {
        size_t capacity = (reader->size + size + 2) * 2;
        char *grown = realloc(reader->line, capacity);
        if (!grown) return false;
        reader->line = grown;
        reader->capacity = capacity;
    }
    memcpy(reader->line + reader->size, text, size);
    reader->size += size;
    reader->line[reader->size] = 0;
    return true;
}

static void reader_remember(qr_line_reader *reader) {
    HistEvent event;
    if (reader->history && reader->size) history(reader->history, &event, H_ENTER, reader->line);
}

qr_line_result qr_line_reader_next(qr_line_reader *reader, const char **line) {
    *line = NULL;
    reader->size = 0;
    reader->continued = false;
    for (;;) {
        const char *text;
        size_t size;
        qr_line_result result = reader_one(reader, &text, &size);
        if (result != QR_LINE_READ) return result;
        if (size && text[size - 1] == '\n') size--;
        reader->continued = size && text[size - 1] == '\\';
        if (!reader_keep(reader, text, reader->continued ? size - 1 : size)) return QR_LINE_END;
        if (!reader->continued) break;
        if (!reader_keep(reader, "\n", 1)) return QR_LINE_END;
    }
    reader_remember(reader);
    *line = reader->line;
    return QR_LINE_READ;
}
