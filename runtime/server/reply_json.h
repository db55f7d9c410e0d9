/* reply_json.h - how a reply looks: the JSON of chat and text completions, whole and in chunks (docs/HTTP_API.md).
 *
 * Thread: the loop.
 */
#ifndef QR_SERVER_REPLY_JSON_H
#define QR_SERVER_REPLY_JSON_H

#include "runtime/server/json_out.h"
#include "runtime/server/reply.h"

/* The whole reply. */
void qr_reply_json_body(const qr_reply *reply, qr_bytes *out);
/* Chunks of a stream: the role, what is new in a choice, its end (with the figures of the reply when asked), the prefill's
 * progress, and the usage. */
void qr_reply_json_role(const qr_reply *reply, const qr_choice *choice, qr_bytes *out);
void qr_reply_json_chunk(const qr_reply *reply, const qr_choice *choice, qr_bytes *out);
void qr_reply_json_finish(const qr_reply *reply, const qr_choice *choice, bool figures, qr_bytes *out);
void qr_reply_json_progress(const qr_reply *reply, uint32_t part, uint32_t processed_tokens, qr_bytes *out);
void qr_reply_json_usage(const qr_reply *reply, qr_bytes *out);

/* ---- logprobs_json.c: the released scores of a choice, in the layout of chat or of text completions ---- */
void qr_logprobs_chat(qr_json *json, const qr_choice *choice, const qr_tokenizer *tokenizer, bool ids);
void qr_logprobs_text(qr_json *json, const qr_choice *choice, const qr_tokenizer *tokenizer, bool ids);

#endif
