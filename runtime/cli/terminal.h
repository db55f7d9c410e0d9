/* terminal.h - writing text from outside to a terminal, and reading Ctrl-C as an event.
 *
 * A model can be made to say anything, escape sequences too; what goes to the screen passes through here.
 */
#ifndef QR_CLI_TERMINAL_H
#define QR_CLI_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

#include <quire/status.h>

/* Control characters other than newline and tab come out as '?'. */
void qr_terminal_write(FILE *file, const char *text, size_t size);

/* One dim line where the file is a terminal, a plain one elsewhere. */
__attribute__((format(printf, 2, 3))) void qr_terminal_note(FILE *file, const char *format, ...);

/* "quire serve: source: text" on standard error; returns 1, the exit status. */
int qr_terminal_fail(const char *command, const quire_error *error);

/* Blocks SIGINT for the process and gives a descriptor that becomes readable with it (signalfd), or -1. Call before threads
 * are started: they inherit the mask. */
int qr_interrupt_open(void);
/* Takes what is pending; true when there was any. */
bool qr_interrupt_take(int fd);
#endif
