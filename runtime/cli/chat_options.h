/* chat_options.h - the command line of `quire chat`. */
#ifndef QR_CLI_CHAT_OPTIONS_H
#define QR_CLI_CHAT_OPTIONS_H

#include "runtime/cli/sampling_options.h"

enum { QR_CHAT_ASKS_MAX = 64 };

typedef struct qr_chat_options {
    const char *socket, *api_key_file, *salt, *load; /* NULL = not given */
    qr_sampling_options answer;
    const char *asks[QR_CHAT_ASKS_MAX];
    int ask_count;
    int wait_seconds; /* for a daemon that is still loading */
} qr_chat_options;

/* Exits on a wrong command line, as argp does. */
void qr_chat_options_parse(int argc, char **argv, qr_chat_options *options);
#endif
