/* chat_goldens.c - renderings equal to Jinja2's, for every template and conversation of chat_templates.jsonl.
 *
 * Besides the text: its ids decode to it, and hold as many control tokens as the template itself has written, whatever
 * the messages say.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "runtime/model/chat_template.h"
#include "tests/unit/tokenizer/small_vocabulary.h"

enum { MESSAGES_MAX = 16 };

static const char *const markers[] = {
    "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>", NULL};

static qr_text text_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return (qr_text){json_string_value(value), json_string_length(value)};
}

static size_t read_messages(const json_t *row, qr_chat_message *messages) {
    const json_t *list = json_object_get(row, "messages");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *message = json_array_get(list, i);
        messages[i] = (qr_chat_message){text_of(message, "role"), text_of(message, "content")};
    }
    return json_array_size(list);
}

static size_t count_of(qr_text text, const char *what) {
    size_t count = 0, size = strlen(what);
    for (size_t i = 0; i + size <= text.size; i++) count += memcmp(text.data + i, what, size) == 0;
    return count;
}

/* Markers in the text that no message brought. */
static size_t own_markers(qr_text text, const qr_chat_message *messages, size_t count) {
    size_t own = 0;
    for (const char *const *marker = markers; *marker; marker++) {
        own += count_of(text, *marker);
        for (size_t i = 0; i < count; i++) own -= count_of(messages[i].content, *marker);
    }
    return own;
}

static size_t control_count(const qr_tokenizer *tokenizer, const qr_token_buffer *ids) {
    size_t count = 0;
    for (size_t i = 0; i < ids->count; i++) count += qr_tokenizer_is_control(tokenizer, ids->tokens[i]);
    return count;
}

static bool ids_hold(const qr_tokenizer *tokenizer, const qr_chat_template *chat, const qr_chat_message *messages, size_t count,
                     bool generation, qr_text expected) {
    qr_token_buffer ids = {0};
    char *bytes = NULL;
    size_t size = 0, bad;
    bool holds = !qr_chat_template_render(chat, messages, count, generation, &ids, NULL) &&
                 !qr_tokenizer_decode(tokenizer, ids.tokens, ids.count, true, &bytes, &size, &bad) && size == expected.size &&
                 memcmp(bytes, expected.data, size) == 0 &&
                 control_count(tokenizer, &ids) == own_markers(expected, messages, count);
    free(bytes);
    qr_token_buffer_deinit(&ids);
    return holds;
}

static bool case_holds(const qr_tokenizer *tokenizer, const qr_chat_template *chat, const json_t *row) {
    qr_chat_message messages[MESSAGES_MAX];
    size_t count = read_messages(row, messages), size;
    bool generation = json_is_true(json_object_get(row, "generation"));
    qr_text expected = text_of(row, "text");
    char *text;
    quire_error error = {0};
    if (qr_chat_template_render_text(chat, messages, count, generation, &text, &size, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return false;
    }
    bool holds = size == expected.size && memcmp(text, expected.data, size) == 0;
    if (!holds) fprintf(stderr, "expected:\n%s\ngot:\n%s\n", expected.data, text);
    free(text);
    return holds && ids_hold(tokenizer, chat, messages, count, generation, expected);
}

/* A template's row: makes it the current one. */
static bool template_holds(const qr_tokenizer *tokenizer, const json_t *row, qr_chat_template **chat) {
    qr_text text = text_of(row, "template");
    qr_chat_template_destroy(*chat);
    if (qr_chat_template_create(text.data, text.size, tokenizer, chat)) return false;
    bool supported = json_is_true(json_object_get(row, "supported"));
    bool reason = strlen(qr_chat_template_reason(*chat)) > 0;
    printf("%s: %s%s%s\n", text_of(row, "name").data, qr_chat_template_family(*chat), reason ? ": " : "",
           qr_chat_template_reason(*chat));
    return qr_chat_template_supported(*chat) == supported && reason != supported &&
           (!supported || qr_chat_template_prefix_stable(*chat));
}

int main(int argc, char **argv) {
    FILE *rows = argc == 2 ? fopen(argv[1], "r") : NULL;
    if (!rows) return 2;
    qr_tokenizer *tokenizer =
        small_tokenizer(&(small_vocabulary){.pre = "llama-bpe", .control = markers, .bos = "<|begin_of_text|>"});
    qr_chat_template *chat = NULL;
    char *line = NULL;
    size_t capacity = 0, count = 0, failed = 0;
    json_t *current = NULL; /* the template's text is borrowed */
    while (getline(&line, &capacity, rows) > 0) {
        json_t *row = json_loads(line, JSON_ALLOW_NUL, NULL);
        bool is_template = json_object_get(row, "template") != NULL;
        bool holds = is_template ? template_holds(tokenizer, row, &chat) : case_holds(tokenizer, chat, row);
        count++;
        failed += !holds;
        if (!holds) fprintf(stderr, "row %zu fails: %.120s\n", count, line);
        if (is_template) json_decref(current);
        if (is_template) current = row;
        else json_decref(row);
    }
    printf("%zu rows, %zu fail\n", count, failed);
    json_decref(current);
    free(line);
    fclose(rows);
    qr_chat_template_destroy(chat);
    qr_tokenizer_destroy(tokenizer);
    return failed > 0 || count == 0;
}
