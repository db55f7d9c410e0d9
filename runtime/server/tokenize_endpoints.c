/* tokenize_endpoints.c - POST /tokenize, /detokenize and /apply-template. Pure: they may run on a worker thread. */
#include "runtime/model/model.h"
#include "runtime/server/endpoints.h"
#include "runtime/server/generation.h"
#include "runtime/server/json_out.h"

#include <stdlib.h>

typedef struct tokenize_options {
    bool add_special, parse_special, with_pieces;
} tokenize_options;

static bool options_read(const json_t *body, tokenize_options *options, qr_http_error *error) {
    *options = (tokenize_options){.add_special = true, .parse_special = true};
    const qr_field fields[] = {
        {"add_special", QR_FIELD_BOOL, offsetof(tokenize_options, add_special), 0, 0},
        {"add_special_tokens", QR_FIELD_BOOL, offsetof(tokenize_options, add_special), 0, 0},
        {"parse_special", QR_FIELD_BOOL, offsetof(tokenize_options, parse_special), 0, 0},
        {"with_pieces", QR_FIELD_BOOL, offsetof(tokenize_options, with_pieces), 0, 0},
    };
    return qr_json_read_fields(body, fields, sizeof fields / sizeof *fields, options, error);
}

/* ---- messages ---- */

static bool template_ready(const qr_task *task, qr_http_error *error) {
    const qr_chat_template *chat = qr_model_chat_template(task->model);
    if (qr_chat_template_supported(chat)) return true;
    return qr_http_refuse(error, 400, "messages", "this model cannot chat: %s", qr_chat_template_reason(chat));
}

static bool messages_to_tokens(qr_task *task, const json_t *body, qr_token_buffer *out) {
    qr_chat_input input;
    quire_error cause = {0};
    if (!template_ready(task, &task->error) || !qr_chat_input_read(body, &input, &task->error)) return false;
    quire_status status = qr_chat_template_render(qr_model_chat_template(task->model), input.messages, input.count,
                                                  input.add_generation, out, &cause);
    qr_chat_input_deinit(&input);
    return status == QUIRE_OK || qr_http_refuse_status(&task->error, status, &cause, "messages");
}

/* ---- tokenize ---- */

static bool text_to_tokens(qr_task *task, const json_t *text, const char *field, const tokenize_options *options,
                           qr_token_buffer *out) {
    if (!json_is_string(text)) return qr_http_refuse(&task->error, 400, field, "%s must be a string", field);
    qr_text input = qr_json_string_of(text);
    unsigned flags = (options->parse_special ? QR_ENCODE_SPECIAL : 0u) | (options->add_special ? QR_ENCODE_BOS : 0u);
    if (input.size == 0) return true;
    quire_status status = qr_tokenizer_encode(qr_model_tokenizer(task->model), input.data, input.size, flags, out);
    return status == QUIRE_OK || qr_http_refuse_status(&task->error, status, NULL, field);
}

/* Exactly one of the three inputs. */
static bool tokenize_input(qr_task *task, const json_t *body, const tokenize_options *options, qr_token_buffer *out) {
    const json_t *content = qr_json_member(body, "content"), *prompt = qr_json_member(body, "prompt");
    const json_t *messages = qr_json_member(body, "messages");
    if ((content != NULL) + (prompt != NULL) + (messages != NULL) != 1)
        return qr_http_refuse(&task->error, 400, "content", "exactly one of content, prompt and messages is needed");
    if (messages) return messages_to_tokens(task, body, out);
    return text_to_tokens(task, content ? content : prompt, content ? "content" : "prompt", options, out);
}

/* A piece is a string, or a list of bytes where it is only part of a character. */
static void put_piece(qr_json *json, const qr_tokenizer *tokenizer, quire_token token) {
    qr_text bytes = qr_tokenizer_bytes(tokenizer, token);
    qr_json_open(json, '{');
    qr_json_put_int(json, "id", token);
    qr_json_key(json, "piece");
    if (qr_text_is_utf8(bytes.data, bytes.size)) qr_json_string(json, bytes.data, bytes.size);
    else qr_json_byte_array(json, bytes.data, bytes.size);
    qr_json_close(json, '}');
}

static void tokenize_answer(qr_task *task, const qr_token_buffer *tokens, bool with_pieces) {
    const qr_tokenizer *tokenizer = qr_model_tokenizer(task->model);
    qr_json json = {.out = &task->answer};
    qr_json_open(&json, '{');
    qr_json_key(&json, "tokens");
    qr_json_open(&json, '[');
    for (size_t i = 0; i < tokens->count; i++) {
        if (with_pieces) put_piece(&json, tokenizer, tokens->tokens[i]);
        else qr_json_int(&json, tokens->tokens[i]);
    }
    qr_json_close(&json, ']');
    qr_json_put_uint(&json, "count", tokens->count);
    qr_json_put_uint(&json, "max_model_len", task->context_tokens);
    qr_json_close(&json, '}');
}

void qr_tokenize_handle(qr_task *task) {
    json_t *body = qr_json_load(task->body.data, task->body.size, &task->error);
    if (!body) return;
    tokenize_options options;
    qr_token_buffer tokens = {0};
    if (options_read(body, &options, &task->error) && tokenize_input(task, body, &options, &tokens))
        tokenize_answer(task, &tokens, options.with_pieces);
    qr_token_buffer_deinit(&tokens);
    json_decref(body);
}

/* ---- detokenize ---- */

static bool detokenize_answer(qr_task *task, const qr_token_buffer *tokens) {
    char *bytes = NULL;
    size_t size = 0, bad;
    quire_status status =
        qr_tokenizer_decode(qr_model_tokenizer(task->model), tokens->tokens, tokens->count, true, &bytes, &size, &bad);
    if (status != QUIRE_OK) return qr_http_refuse_status(&task->error, status, NULL, "tokens");
    size_t text_size;
    char *text = qr_text_to_utf8(bytes ? bytes : "", size, &text_size);
    free(bytes);
    if (!text) return qr_http_refuse(&task->error, 503, NULL, "out of memory");
    qr_json json = {.out = &task->answer};
    qr_json_open(&json, '{');
    qr_json_key(&json, "content");
    qr_json_string(&json, text, text_size);
    qr_json_close(&json, '}');
    free(text);
    return true;
}

void qr_detokenize_handle(qr_task *task) {
    json_t *body = qr_json_load(task->body.data, task->body.size, &task->error);
    if (!body) return;
    qr_token_buffer tokens = {0};
    uint32_t vocabulary = qr_tokenizer_token_count(qr_model_tokenizer(task->model));
    if (qr_json_read_tokens(qr_json_member(body, "tokens"), "tokens", vocabulary, &tokens, &task->error))
        (void)detokenize_answer(task, &tokens);
    qr_token_buffer_deinit(&tokens);
    json_decref(body);
}

/* ---- apply-template ---- */

static bool template_answer(qr_task *task, const json_t *body) {
    qr_chat_input input;
    quire_error cause = {0};
    char *text = NULL;
    size_t size = 0;
    if (!template_ready(task, &task->error) || !qr_chat_input_read(body, &input, &task->error)) return false;
    quire_status status = qr_chat_template_render_text(qr_model_chat_template(task->model), input.messages, input.count,
                                                       input.add_generation, &text, &size, &cause);
    qr_chat_input_deinit(&input);
    if (status != QUIRE_OK) return qr_http_refuse_status(&task->error, status, &cause, "messages");
    qr_json json = {.out = &task->answer};
    qr_json_open(&json, '{');
    qr_json_key(&json, "prompt");
    qr_json_string(&json, text, size);
    qr_json_close(&json, '}');
    free(text);
    return true;
}

void qr_apply_template_handle(qr_task *task) {
    json_t *body = qr_json_load(task->body.data, task->body.size, &task->error);
    if (!body) return;
    (void)template_answer(task, body);
    json_decref(body);
}
