/* tokenize.h - `quire tokenize`: shows how a model cuts a text. */
#ifndef QR_CLI_TOKENIZE_H
#define QR_CLI_TOKENIZE_H

int qr_command_tokenize(int argc, char **argv);
#endif
