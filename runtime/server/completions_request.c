/* completions_request.c - POST /v1/completions: a text, a list of ids, or a list of either, to prompts.
 *
 * A raw text prompt is the caller's own template: control tokens typed in it are control tokens, and the start token is
 * put in front if the model asks for one and it is not there. Ids are taken as they are.
 */
#include "runtime/model/model.h"
#include "runtime/server/endpoints.h"
#include "runtime/server/generation.h"

#include <stdlib.h>
#include <string.h>

static bool prompt_echo_text(qr_prompt *prompt, const void *text, size_t size, qr_http_error *error) {
    prompt->text = malloc(size + 1);
    if (!prompt->text) return qr_http_refuse(error, 503, NULL, "out of memory");
    memcpy(prompt->text, text, size);
    prompt->text_size = size;
    return true;
}

static bool prompt_of_text(qr_task *task, qr_generation *g, qr_text text) {
    qr_prompt *prompt = qr_generation_add_prompt(g, &task->error);
    if (!prompt) return false;
    quire_status status = qr_tokenizer_encode(qr_model_tokenizer(task->model), text.data, text.size,
                                              QR_ENCODE_SPECIAL | QR_ENCODE_BOS, &prompt->tokens);
    if (status != QUIRE_OK) return qr_http_refuse_status(&task->error, status, NULL, "prompt");
    return !g->echo || prompt_echo_text(prompt, text.data, text.size, &task->error);
}

static bool prompt_of_ids(qr_task *task, qr_generation *g, const json_t *ids) {
    const qr_tokenizer *tokenizer = qr_model_tokenizer(task->model);
    qr_prompt *prompt = qr_generation_add_prompt(g, &task->error);
    if (!prompt) return false;
    if (!qr_json_read_tokens(ids, "prompt", qr_tokenizer_token_count(tokenizer), &prompt->tokens, &task->error)) return false;
    if (!g->echo) return true;
    size_t bad;
    quire_status status = qr_tokenizer_decode(tokenizer, prompt->tokens.tokens, prompt->tokens.count, true, &prompt->text,
                                              &prompt->text_size, &bad);
    return status == QUIRE_OK || qr_http_refuse_status(&task->error, status, NULL, "prompt");
}

static bool prompts_of_list(qr_task *task, qr_generation *g, const json_t *list) {
    size_t count = json_array_size(list);
    if (count == 0) return qr_http_refuse(&task->error, 400, "prompt", "prompt is an empty list");
    if (json_is_integer(json_array_get(list, 0))) return prompt_of_ids(task, g, list);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        bool read = json_is_string(item) ? prompt_of_text(task, g, qr_json_string_of(item))
                    : json_is_array(item)
                        ? prompt_of_ids(task, g, item)
                        : qr_http_refuse(&task->error, 400, "prompt", "prompt[%zu] is neither text nor a list of ids", i);
        if (!read) return false;
    }
    return true;
}

static bool prompts_read(qr_task *task, qr_generation *g, const json_t *body) {
    const json_t *prompt = qr_json_member(body, "prompt");
    if (json_is_string(prompt)) return prompt_of_text(task, g, qr_json_string_of(prompt));
    if (json_is_array(prompt)) return prompts_of_list(task, g, prompt);
    return qr_http_refuse(&task->error, 400, "prompt", "prompt must be a text, a list of token ids, or a list of either");
}

/* NULL: refused. */
static qr_generation *completions_read(qr_task *task, const json_t *body) {
    qr_generation *g = qr_generation_create();
    if (!g) {
        qr_http_refuse(&task->error, 503, NULL, "out of memory");
        return NULL;
    }
    if (qr_generation_read(g, body, task, &task->error)) {
        if (g->max_tokens < 0) g->max_tokens = QR_COMPLETION_TOKENS_DEFAULT;
        if (prompts_read(task, g, body) && qr_generation_finish(g, task, &task->error)) return g;
    }
    qr_generation_destroy(g);
    return NULL;
}

void qr_completions_handle(qr_task *task) {
    json_t *body = qr_json_load(task->body.data, task->body.size, &task->error);
    if (!body) return;
    task->generation = completions_read(task, body);
    json_decref(body);
}
