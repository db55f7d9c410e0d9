/* chat_template.h - messages to a prompt, as ids.
 *
 * Families by recognition of the model's own template text: ChatML and Llama 3. Everything else is "unknown", reported
 * at load; chat then answers 400 with the reason. (A Jinja interpreter may replace `recognise` and `render` later: these
 * two calls are the whole seam.)
 *
 * Text from messages can never become a control token (R33): the template's own markers are written as ids, and message
 * text is encoded without recognition of control tokens.
 *
 * Thread: read-only after create.
 */
#ifndef QR_MODEL_CHAT_TEMPLATE_H
#define QR_MODEL_CHAT_TEMPLATE_H

#include "runtime/model/tokenizer.h"

typedef struct qr_chat_template qr_chat_template;

typedef struct qr_chat_message {
    qr_text role;    /* "system", "user", "assistant", "tool", "developer" (= system) */
    qr_text content; /* parts already joined */
} qr_chat_message;

/* template_text may be NULL (a base model). Always succeeds except for NO_MEMORY: an unknown template gives an object
 * whose supported() is false and whose reason() says why. */
QUIRE_MUST_CHECK quire_status qr_chat_template_create(const char *template_text, size_t size, const qr_tokenizer *tokenizer,
                                                      qr_chat_template **chat);
void qr_chat_template_destroy(qr_chat_template *chat);
bool qr_chat_template_supported(const qr_chat_template *chat);
const char *qr_chat_template_family(const qr_chat_template *chat); /* "chatml", "llama3", "none", "unknown" */
const char *qr_chat_template_reason(const qr_chat_template *chat); /* why not supported; "" otherwise */

/* Lint, run at load: true when the prompt of turn k is a prefix of the prompt of turn k+1, so that multi-turn chats hit. */
bool qr_chat_template_prefix_stable(const qr_chat_template *chat);

/* Appends the prompt's ids. add_generation: end with the opening of the assistant's turn; false with an assistant message
 * last leaves that message open to be continued. Errors: INVALID (a conversation the template cannot express: the reason,
 * naming messages[i]), UNSUPPORTED, NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_chat_template_render(const qr_chat_template *chat, const qr_chat_message *messages,
                                                      size_t count, bool add_generation, qr_token_buffer *out,
                                                      quire_error *error);
/* The same as text, for /apply-template; malloc'd, caller owns. */
QUIRE_MUST_CHECK quire_status qr_chat_template_render_text(const qr_chat_template *chat, const qr_chat_message *messages,
                                                           size_t count, bool add_generation, char **text, size_t *size,
                                                           quire_error *error);
#endif
