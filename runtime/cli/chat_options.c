#include "runtime/cli/chat_options.h"

#include <stdlib.h>

#include "runtime/cli/command_line.h"

enum { KEY_ASK = 300, KEY_KEY, KEY_SALT, KEY_LOAD, KEY_WAIT, WAIT_SECONDS_MAX = 86400 };

static const struct argp_option chat_options[] = {
    {"socket", 's', "PATH", 0, "Socket of the daemon (default: $QUIRE_SOCKET, else the daemon's own default)", 0},
    {"api-key-file", KEY_KEY, "FILE", 0, "File with the API key, where the daemon asks for one", 0},
    {"ask", KEY_ASK, "TEXT", 0, "Ask this and end; given again, it is a follow-up in the same conversation", 0},
    {"load", KEY_LOAD, "FILE", 0, "Begin with a saved conversation", 0},
    {"salt", KEY_SALT, "TEXT", 0, "Share cached blocks only with requests of the same salt", 0},
    {"wait", KEY_WAIT, "SECONDS", 0, "How long to wait for a daemon that is still loading (120)", 0},
    {0},
};

static error_t chat_option(int key, char *argument, struct argp_state *state) {
    qr_chat_options *options = state->input;
    char *end;
    long seconds;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &options->answer; break;
    case 's': options->socket = argument; break;
    case KEY_KEY: options->api_key_file = argument; break;
    case KEY_SALT: options->salt = argument; break;
    case KEY_LOAD: options->load = argument; break;
    case KEY_ASK:
        if (options->ask_count == QR_CHAT_ASKS_MAX) argp_error(state, "--ask may be given %d times", QR_CHAT_ASKS_MAX);
        options->asks[options->ask_count++] = argument;
        break;
    case KEY_WAIT:
        seconds = strtol(argument, &end, 10);
        if (end == argument || *end || seconds < 0 || seconds > WAIT_SECONDS_MAX) argp_error(state, "--wait takes seconds");
        options->wait_seconds = (int)seconds;
        break;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument '%s' (questions are given by --ask)", argument); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

void qr_chat_options_parse(int argc, char **argv, qr_chat_options *options) {
    static const struct argp_child children[] = {{&qr_sampling_argp, 0, "Answer:", 0}, {0}};
    static const struct argp argp = {.options = chat_options,
                                     .parser = chat_option,
                                     .doc = "Talk with a running `quire serve`.\v"
                                            "At the prompt: /help lists the commands, Ctrl-C stops an answer and keeps the "
                                            "conversation, Ctrl-D ends. A line that ends in \\ goes on in the next.",
                                     .children = children};
    *options = (qr_chat_options){.socket = getenv("QUIRE_SOCKET"), .wait_seconds = 120};
    qr_sampling_options_init(&options->answer);
    qr_command_line_parse(&argp, argc, argv, options);
    if (options->socket && !*options->socket) options->socket = NULL;
}
