/* line_reader.h - lines from the user: edited with history at a terminal (libedit), plain from a pipe. */
#ifndef QR_CLI_LINE_READER_H
#define QR_CLI_LINE_READER_H

#include <quire/status.h>

typedef struct qr_line_reader qr_line_reader;

typedef enum qr_line_result { QR_LINE_READ, QR_LINE_INTERRUPTED, QR_LINE_END } qr_line_result;

/* interrupt_fd: from qr_interrupt_open. Call after setlocale. */
QUIRE_MUST_CHECK quire_status qr_line_reader_create(const char *program, int interrupt_fd, qr_line_reader **reader);
void qr_line_reader_destroy(qr_line_reader *reader);
/* The line without its newline, borrowed until the next call. A line that ends in a backslash goes on in the next. */
qr_line_result qr_line_reader_next(qr_line_reader *reader, const char **line);
#endif
