/* chat_request.c - POST /v1/chat/completions: messages to one prompt, and the messages reader that other endpoints share.
 *
 * Content is a string or a list of text parts; both give the same prompt in every role. Text becomes ids without
 * recognition of control tokens, so nothing typed in a message can end a turn (R33).
 */
#include "runtime/model/model.h"
#include "runtime/server/endpoints.h"
#include "runtime/server/generation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- content ---- */

static bool content_refuse(size_t index, const char *what, qr_http_error *error) {
    char param[64];
    snprintf(param, sizeof param, "messages[%zu].content", index);
    return qr_http_refuse(error, 400, param, "messages[%zu].content %s", index, what);
}

static bool part_text(const json_t *part, size_t index, qr_text *text, qr_http_error *error) {
    const json_t *type = json_object_get(part, "type"), *value = json_object_get(part, "text");
    if (!json_is_string(type)) return content_refuse(index, "must be a string or a list of text parts", error);
    if (strcmp(json_string_value(type), "text") != 0) return content_refuse(index, "has a part that is not text", error);
    if (!json_is_string(value)) return content_refuse(index, "has a text part without text", error);
    *text = qr_json_string_of(value);
    return true;
}

/* Parts are joined without anything between. No part is an empty text. */
static bool parts_join(const json_t *parts, size_t index, qr_text *content, char **joined, qr_http_error *error) {
    size_t count = json_array_size(parts), size = 0, at = 0;
    qr_text text = {"", 0};
    for (size_t i = 0; i < count; i++, size += text.size)
        if (!part_text(json_array_get(parts, i), index, &text, error)) return false;
    *joined = malloc(size + 1);
    if (!*joined) return qr_http_refuse(error, 503, NULL, "out of memory");
    for (size_t i = 0; i < count; i++, at += text.size) {
        text = qr_json_string_of(json_object_get(json_array_get(parts, i), "text"));
        memcpy(*joined + at, text.data, text.size);
    }
    *content = (qr_text){*joined, size};
    return true;
}

static bool content_read(const json_t *message, size_t index, qr_text *content, char **joined, qr_http_error *error) {
    const json_t *value = qr_json_member(message, "content");
    *content = (qr_text){"", 0};
    if (json_is_string(value)) return *content = qr_json_string_of(value), true;
    if (json_is_array(value)) return parts_join(value, index, content, joined, error);
    if (value) return content_refuse(index, "must be a string or a list of text parts", error);
    if (json_array_size(qr_json_member(message, "tool_calls")) > 0) return true;
    return content_refuse(index, "is missing", error);
}

/* ---- messages ---- */

static bool message_read(const json_t *message, size_t index, qr_chat_input *input, qr_http_error *error) {
    char param[64];
    snprintf(param, sizeof param, "messages[%zu]", index);
    if (!json_is_object(message)) return qr_http_refuse(error, 400, param, "%s must be an object", param);
    const json_t *role = qr_json_member(message, "role"), *name = qr_json_member(message, "name");
    if (!json_is_string(role)) return qr_http_refuse(error, 400, param, "%s.role must be a string", param);
    if (name && !json_is_string(name)) return qr_http_refuse(error, 400, param, "%s.name must be a string", param);
    input->messages[index].role = qr_json_string_of(role);
    return content_read(message, index, &input->messages[index].content, &input->joined[index], error);
}

static bool messages_read(const json_t *body, qr_chat_input *input, qr_http_error *error) {
    const json_t *messages = qr_json_member(body, "messages");
    size_t count = json_array_size(messages);
    if (count == 0) {
        qr_http_refuse(error, 400, "messages", "messages must be a list with at least one message");
        return false;
    }
    input->messages = calloc(count, sizeof *input->messages);
    input->joined = calloc(count, sizeof *input->joined);
    if (!input->messages || !input->joined) {
        qr_http_refuse(error, 503, NULL, "out of memory");
        return false;
    }
    input->count = count;
    for (size_t i = 0; i < count; i++)
        if (!message_read(json_array_get(messages, i), i, input, error)) return false;
    return true;
}

static bool turn_read(const json_t *body, qr_chat_input *input, qr_http_error *error) {
    struct {
        bool add_generation, continue_final;
    } into = {true, false};
    const qr_field fields[] = {
        {"add_generation_prompt", QR_FIELD_BOOL, offsetof(__typeof__(into), add_generation), 0, 0},
        {"continue_final_message", QR_FIELD_BOOL, offsetof(__typeof__(into), continue_final), 0, 0},
    };
    if (!qr_json_read_fields(body, fields, 2, &into, error)) return false;
    qr_text last = input->messages[input->count - 1].role;
    bool assistant_last = last.size == 9 && memcmp(last.data, "assistant", 9) == 0;
    if (into.continue_final && qr_json_member(body, "add_generation_prompt") && into.add_generation)
        return qr_http_refuse(error, 400, "continue_final_message", "continue_final_message excludes add_generation_prompt");
    if (into.continue_final && !assistant_last)
        return qr_http_refuse(error, 400, "continue_final_message", "the last message is not the assistant's");
    input->add_generation = into.add_generation && !into.continue_final;
    return true;
}

bool qr_chat_input_read(const json_t *body, qr_chat_input *input, qr_http_error *error) {
    *input = (qr_chat_input){0};
    if (messages_read(body, input, error) && turn_read(body, input, error)) return true;
    qr_chat_input_deinit(input);
    return false;
}

void qr_chat_input_deinit(qr_chat_input *input) {
    for (size_t i = 0; i < input->count; i++) free(input->joined[i]);
    free(input->joined);
    free(input->messages);
    *input = (qr_chat_input){0};
}

/* ---- the endpoint ---- */

static bool chat_prompt(qr_task *task, const json_t *body, qr_generation *g) {
    const qr_chat_template *chat = qr_model_chat_template(task->model);
    if (!qr_chat_template_supported(chat))
        return qr_http_refuse(&task->error, 400, "messages", "this model cannot chat: %s", qr_chat_template_reason(chat));
    qr_chat_input input;
    if (!qr_chat_input_read(body, &input, &task->error)) return false;
    qr_prompt *prompt = qr_generation_add_prompt(g, &task->error);
    quire_error cause = {0};
    quire_status status = QUIRE_OK;
    if (prompt)
        status = qr_chat_template_render(chat, input.messages, input.count, input.add_generation, &prompt->tokens, &cause);
    qr_chat_input_deinit(&input);
    if (status != QUIRE_OK) return qr_http_refuse_status(&task->error, status, &cause, "messages");
    return prompt != NULL;
}

/* NULL: refused. */
static qr_generation *chat_read(qr_task *task, const json_t *body) {
    qr_generation *g = qr_generation_create();
    if (!g) {
        qr_http_refuse(&task->error, 503, NULL, "out of memory");
        return NULL;
    }
    g->chat = true;
    if (qr_generation_read(g, body, task, &task->error) && chat_prompt(task, body, g) &&
        qr_generation_finish(g, task, &task->error))
        return g;
    qr_generation_destroy(g);
    return NULL;
}

void qr_chat_handle(qr_task *task) {
    json_t *body = qr_json_load(task->body.data, task->body.size, &task->error);
    if (!body) return;
    task->generation = chat_read(task, body);
    json_decref(body);
}
