/* unsupported_fields.c - request fields that mean something and are not supported: refused by name, never ignored.
 *
 * A field is refused only when its value asks for something; the value that means "off" is accepted.
 */
#include "runtime/server/generation.h"

#include <string.h>

typedef enum off_value {
    OFF_EMPTY,     /* an empty list or object, false, or an empty string */
    OFF_NEVER,     /* any value but null asks for it */
    OFF_ZERO,      /* the number 0 */
    OFF_ONE,       /* the number 1 */
    OFF_TEXT_TYPE, /* {"type": "text"} */
    OFF_NO_TOOLS,  /* "none" or "auto" */
    OFF_TEXT_LIST, /* ["text"] */
} off_value;

typedef struct unsupported_field {
    const char *name;
    off_value off;
    bool chat_only;
} unsupported_field;

static const unsupported_field unsupported_fields[] = {
    {"tools", OFF_EMPTY, true},
    {"tool_choice", OFF_NO_TOOLS, true},
    {"functions", OFF_EMPTY, true},
    {"function_call", OFF_NO_TOOLS, true},
    {"response_format", OFF_TEXT_TYPE, false},
    {"modalities", OFF_TEXT_LIST, true},
    {"audio", OFF_NEVER, true},
    {"prediction", OFF_NEVER, true},
    {"web_search_options", OFF_NEVER, true},
    {"chat_template", OFF_NEVER, true},
    {"chat_template_kwargs", OFF_EMPTY, true},
    {"documents", OFF_EMPTY, true},
    {"suffix", OFF_EMPTY, false},
    {"grammar", OFF_EMPTY, false},
    {"json_schema", OFF_EMPTY, false},
    {"structured_outputs", OFF_EMPTY, false},
    {"guided_json", OFF_EMPTY, false},
    {"guided_regex", OFF_EMPTY, false},
    {"guided_choice", OFF_EMPTY, false},
    {"guided_grammar", OFF_EMPTY, false},
    {"use_beam_search", OFF_EMPTY, false},
    {"length_penalty", OFF_ONE, false},
    {"typical_p", OFF_ONE, false},
    {"mirostat", OFF_ZERO, false},
    {"dry_multiplier", OFF_ZERO, false},
    {"xtc_probability", OFF_ZERO, false},
    {"repeat_penalty", OFF_ONE, false},
    {"prompt_logprobs", OFF_NEVER, false},
    {"include_stop_str_in_output", OFF_EMPTY, false},
    {"allowed_token_ids", OFF_EMPTY, false},
    {"bad_words", OFF_EMPTY, false},
    {"logits_processors", OFF_EMPTY, false},
    {"truncate_prompt_tokens", OFF_NEVER, false},
    {"prompt_embeds", OFF_NEVER, false},
    {"lora", OFF_EMPTY, false},
};

static bool string_is(const json_t *value, const char *text) {
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static bool value_is_empty(const json_t *value) {
    return json_is_false(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) || (json_is_string(value) && json_string_length(value) == 0);
}

static bool value_is_off(const json_t *value, off_value off) {
    switch (off) {
    case OFF_EMPTY: return value_is_empty(value);
    case OFF_NEVER: return false;
    case OFF_ZERO: return json_is_number(value) && json_number_value(value) == 0;
    case OFF_ONE: return json_is_number(value) && json_number_value(value) == 1;
    case OFF_TEXT_TYPE: return string_is(json_object_get(value, "type"), "text");
    case OFF_NO_TOOLS: return string_is(value, "none") || string_is(value, "auto");
    case OFF_TEXT_LIST: return json_array_size(value) == 1 && string_is(json_array_get(value, 0), "text");
    }
    return false;
}

bool qr_generation_read_unsupported(const json_t *body, bool chat, qr_http_error *error) {
    for (size_t i = 0; i < sizeof unsupported_fields / sizeof *unsupported_fields; i++) {
        const unsupported_field *field = &unsupported_fields[i];
        const json_t *value = qr_json_member(body, field->name);
        if (value && (chat || !field->chat_only) && !value_is_off(value, field->off))
            return qr_http_refuse(error, 400, field->name, "%s is not supported", field->name);
    }
    return true;
}
