#include "runtime/cli/run_prompt.h"

#include <string.h>

#include "base/error.h"

static quire_status prompt_raw(const quire_model *model, qr_text prompt, qr_token_buffer *out, quire_error *error) {
    quire_status status = qr_tokenizer_encode(qr_model_tokenizer(model), prompt.data, prompt.size, QR_ENCODE_BOS, out);
    if (status == QUIRE_OK) return QUIRE_OK;
    return qr_fail(error, status, "prompt", QR_NO_OFFSET, "%zu bytes cannot be tokenized", prompt.size);
}

quire_status qr_run_prompt(const quire_model *model, bool raw, const char *system, qr_text prompt, qr_token_buffer *out,
                           quire_error *error) {
    if (raw) return prompt_raw(model, prompt, out, error);
    const qr_chat_template *chat = qr_model_chat_template(model);
    if (!qr_chat_template_supported(chat))
        return qr_fail(error, QUIRE_UNSUPPORTED, NULL, QR_NO_OFFSET, "%s; --raw continues the text as it is",
                       qr_chat_template_reason(chat));
    qr_chat_message messages[2];
    size_t count = 0;
    if (system) messages[count++] = (qr_chat_message){{"system", 6}, {system, strlen(system)}};
    messages[count++] = (qr_chat_message){{"user", 4}, prompt};
    return qr_chat_template_render(chat, messages, count, true, out, error);
}
