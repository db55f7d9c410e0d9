/* generation.h - a checked request for text: what the engine needs, and how the reply is to look.
 *
 * Made from a JSON body by the chat and completions handlers; everything that can be refused is refused there, before
 * any answer begins. It borrows nothing from the body.
 *
 * Thread: one owner; made on any thread.
 */
#ifndef QR_SERVER_GENERATION_H
#define QR_SERVER_GENERATION_H

#include "runtime/model/chat_template.h"
#include "runtime/model/text_stream.h"
#include "runtime/server/json_in.h"
#include "runtime/server/task.h"
#include <quire/engine.h>

typedef struct qr_prompt {
    qr_token_buffer tokens;
    char *text; /* echo: what the reply begins with; malloc'd, any bytes */
    size_t text_size;
    uint32_t max_tokens; /* after the context limit */
} qr_prompt;

typedef struct qr_generation {
    bool chat;
    qr_prompt *prompts; /* [prompt_count]; each becomes one engine request with n choices */
    uint32_t prompt_count;
    uint32_t n;
    int64_t max_tokens;    /* asked for; -1 = as many as fit */
    quire_request request; /* the parts that all prompts share */
    quire_logit_bias *bias;
    qr_token_buffer stop_tokens;
    qr_stop_set *stops; /* NULL: none */
    qr_bytes namespace_key;

    bool stream, include_usage, return_progress, return_token_ids, explain_cache, echo;
    bool logprobs;
    bool show_control;
} qr_generation;

enum { QR_PROMPTS_MAX = 256, QR_TOTAL_CHOICES_MAX = 256, QR_COMPLETION_TOKENS_DEFAULT = 16 };

qr_generation *qr_generation_create(void); /* NULL: out of memory */
void qr_generation_destroy(qr_generation *generation);

/* The fields that chat and completions share. */
bool qr_generation_read(qr_generation *generation, const json_t *body, const qr_task *task, qr_http_error *error);
/* Refuses fields that mean something and are not supported, by name. */
bool qr_generation_read_unsupported(const json_t *body, bool chat, qr_http_error *error);
/* Adds an empty prompt, or NULL with the error set. */
qr_prompt *qr_generation_add_prompt(qr_generation *generation, qr_http_error *error);
/* The last check, when all prompts are there: context, pool, number of choices; sets each prompt's max_tokens. */
bool qr_generation_finish(qr_generation *generation, const qr_task *task, qr_http_error *error);

/* messages of a chat body, as the template takes them; borrows from the JSON. */
typedef struct qr_chat_input {
    qr_chat_message *messages; /* [count] */
    size_t count;
    char **joined; /* [count] malloc'd contents that were made from several parts */
    bool add_generation;
} qr_chat_input;
bool qr_chat_input_read(const json_t *body, qr_chat_input *input, qr_http_error *error);
void qr_chat_input_deinit(qr_chat_input *input);

#endif
