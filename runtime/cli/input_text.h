/* input_text.h - a whole standard input as bytes. */
#ifndef QR_CLI_INPUT_TEXT_H
#define QR_CLI_INPUT_TEXT_H

#include <stdio.h>

#include <quire/status.h>

/* Gives a malloc'd buffer, NUL-terminated besides *size. Errors: IO, NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_input_text_read(FILE *file, char **text, size_t *size, quire_error *error);
#endif
