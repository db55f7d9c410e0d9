#include "runtime/cli/tokenize.h"

#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "runtime/cli/command_line.h"
#include "runtime/cli/input_text.h"
#include "runtime/cli/terminal.h"
#include "runtime/model/model.h"
#include "runtime/model/text_stream.h"

typedef struct tokenize_args {
    const char *model, *text;
    unsigned flags;
    bool json, ids;
} tokenize_args;

enum { KEY_SPECIAL = 300, KEY_BOS, KEY_JSON, KEY_IDS };

static const struct argp_option tokenize_options[] = {
    {"model", 'm', "FILE", 0, "Model file (default: $QUIRE_MODEL)", 0},
    {"special", KEY_SPECIAL, NULL, 0, "Names of control tokens in the text, such as <|im_start|>, become those tokens", 0},
    {"add-special", KEY_BOS, NULL, 0, "Begin with the start token where the model asks for one", 0},
    {"ids", KEY_IDS, NULL, 0, "Only the ids, on one line", 0},
    {"json", KEY_JSON, NULL, 0, "One JSON object: tokens, pieces, count", 0},
    {0},
};

static error_t tokenize_option(int key, char *argument, struct argp_state *state) {
    tokenize_args *args = state->input;
    switch (key) {
    case 'm': args->model = argument; break;
    case KEY_SPECIAL: args->flags |= QR_ENCODE_SPECIAL; break;
    case KEY_BOS: args->flags |= QR_ENCODE_BOS; break;
    case KEY_IDS: args->ids = true; break;
    case KEY_JSON: args->json = true; break;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0) argp_error(state, "one text, please: quote it");
        args->text = strcmp(argument, "-") == 0 ? NULL : argument;
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static void print_rows(const qr_tokenizer *tokenizer, const qr_token_buffer *buffer) {
    for (size_t i = 0; i < buffer->count; i++) {
        qr_text piece = qr_tokenizer_bytes(tokenizer, buffer->tokens[i]);
        printf("%8d  ", buffer->tokens[i]);
        for (size_t b = 0; b < piece.size;) { /* a token may be part of a character: bytes that are none are shown as \xNN */
            size_t length = qr_utf8_length(piece.data + b, piece.size - b);
            char c = piece.data[b];
            if (c == '\n') fputs("\\n", stdout);
            else if (c == '\t') fputs("\\t", stdout);
            else if (length == 0 || (length == 1 && (unsigned char)c < 0x20)) printf("\\x%02x", (unsigned char)c);
            else qr_terminal_write(stdout, piece.data + b, length);
            b += length ? length : 1;
        }
        fputc('\n', stdout);
    }
}

static void print_ids(const qr_token_buffer *buffer) {
    for (size_t i = 0; i < buffer->count; i++) printf("%s%d", i ? " " : "", buffer->tokens[i]);
    fputc('\n', stdout);
}

/* A piece that is not UTF-8 by itself is an array of bytes. */
static json_t *piece_json(qr_text piece) {
    if (qr_text_is_utf8(piece.data, piece.size)) return json_stringn(piece.data, piece.size);
    json_t *bytes = json_array();
    for (size_t i = 0; i < piece.size; i++) json_array_append_new(bytes, json_integer((unsigned char)piece.data[i]));
    return bytes;
}

static void print_json(const qr_tokenizer *tokenizer, const qr_token_buffer *buffer) {
    json_t *tokens = json_array(), *pieces = json_array();
    for (size_t i = 0; i < buffer->count; i++) {
        json_array_append_new(tokens, json_integer(buffer->tokens[i]));
        json_array_append_new(pieces, piece_json(qr_tokenizer_bytes(tokenizer, buffer->tokens[i])));
    }
    json_t *all = json_pack("{s:o, s:o, s:I}", "tokens", tokens, "pieces", pieces, "count", (json_int_t)buffer->count);
    json_dumpf(all, stdout, 0);
    fputc('\n', stdout);
    json_decref(all);
}

static quire_status tokenize_text(const tokenize_args *args, const quire_model *model, const char *text, size_t size,
                                  quire_error *error) {
    const qr_tokenizer *tokenizer = qr_model_tokenizer(model);
    qr_token_buffer buffer = {0};
    quire_status status = qr_tokenizer_encode(tokenizer, text, size, args->flags, &buffer);
    if (status != QUIRE_OK) (void)qr_fail(error, status, NULL, QR_NO_OFFSET, "the text of %zu bytes cannot be tokenized", size);
    else if (args->json) print_json(tokenizer, &buffer);
    else if (args->ids) print_ids(&buffer);
    else print_rows(tokenizer, &buffer);
    qr_token_buffer_deinit(&buffer);
    return status;
}

static int tokenize_run(const tokenize_args *args) {
    quire_error error;
    quire_model *model = NULL;
    char *input = NULL;
    size_t size = args->text ? strlen(args->text) : 0;
    quire_model_options options = {.header_only = true};
    qr_error_clear(&error);
    if (!args->model)
        (void)qr_fail(&error, QUIRE_INVALID, NULL, QR_NO_OFFSET, "no model: give --model FILE or set QUIRE_MODEL");
    else if (quire_model_open(args->model, &options, &model, &error) == QUIRE_OK &&
             (args->text || qr_input_text_read(stdin, &input, &size, &error) == QUIRE_OK))
        (void)tokenize_text(args, model, args->text ? args->text : input, size, &error);
    free(input);
    quire_model_close(model);
    return error.status == QUIRE_OK ? 0 : qr_terminal_fail("tokenize", &error);
}

int qr_command_tokenize(int argc, char **argv) {
    tokenize_args args = {.model = getenv("QUIRE_MODEL")};
    const struct argp argp = {.options = tokenize_options,
                              .parser = tokenize_option,
                              .args_doc = "[TEXT]",
                              .doc = "Show the tokens of a text (of standard input without TEXT or with -)."};
    qr_command_line_parse(&argp, argc, argv, &args);
    return tokenize_run(&args);
}
