/* logprobs_json.c - the two published layouts of scores: a list of entries (chat), parallel arrays (text).
 *
 * A token's text may be part of a character: then its string shows U+FFFD, and `bytes` holds what it really is.
 */
#include "runtime/server/reply_json.h"

#include <string.h>

static const qr_scored_token *scored_of(const qr_choice *choice) {
    return (const qr_scored_token *)(const void *)choice->scored.data;
}

static const quire_token_logprob *tops_of(const qr_choice *choice, const qr_scored_token *scored) {
    return (const quire_token_logprob *)(const void *)choice->tops.data + scored->top_first;
}

static void json_token(qr_json *json, const qr_tokenizer *tokenizer, quire_token token) {
    qr_text bytes = qr_tokenizer_bytes(tokenizer, token);
    qr_json_string(json, bytes.data, bytes.size);
}

static void json_token_bytes(qr_json *json, const qr_tokenizer *tokenizer, quire_token token) {
    qr_text bytes = qr_tokenizer_bytes(tokenizer, token);
    qr_json_byte_array(json, bytes.data, bytes.size);
}

/* ---- chat ---- */

static void chat_entry_open(qr_json *json, const qr_tokenizer *tokenizer, quire_token token, float logprob, bool ids) {
    qr_json_open(json, '{');
    qr_json_key(json, "token");
    json_token(json, tokenizer, token);
    if (ids) qr_json_put_int(json, "id", token);
    qr_json_key(json, "logprob");
    qr_json_float(json, logprob);
    qr_json_key(json, "bytes");
    json_token_bytes(json, tokenizer, token);
}

static void chat_entry(qr_json *json, const qr_choice *choice, const qr_scored_token *scored, const qr_tokenizer *tokenizer,
                       bool ids) {
    const quire_token_logprob *top = tops_of(choice, scored);
    chat_entry_open(json, tokenizer, scored->token, scored->logprob, ids);
    qr_json_key(json, "top_logprobs");
    qr_json_open(json, '[');
    for (uint32_t i = 0; i < scored->top_count; i++) {
        chat_entry_open(json, tokenizer, top[i].token, top[i].logprob, ids);
        qr_json_close(json, '}');
    }
    qr_json_close(json, ']');
    qr_json_close(json, '}');
}

void qr_logprobs_chat(qr_json *json, const qr_choice *choice, const qr_tokenizer *tokenizer, bool ids) {
    qr_json_open(json, '{');
    qr_json_key(json, "content");
    qr_json_open(json, '[');
    for (size_t i = 0; i < choice->released; i++) chat_entry(json, choice, &scored_of(choice)[i], tokenizer, ids);
    qr_json_close(json, ']');
    qr_json_put_null(json, "refusal");
    qr_json_close(json, '}');
}

/* ---- text ---- */

static bool text_is_new(const quire_token_logprob *top, uint32_t index, qr_text text, const qr_tokenizer *tokenizer) {
    for (uint32_t i = 0; i < index; i++) {
        qr_text other = qr_tokenizer_bytes(tokenizer, top[i].token);
        if (other.size == text.size && memcmp(other.data, text.data, text.size) == 0) return false;
    }
    return true;
}

/* An object from text to logprob: the best N and the token itself. Equal texts: the best one stays, since keys of an object
 * are unique; top_token_ids has them all. */
static void text_top(qr_json *json, const qr_choice *choice, const qr_scored_token *scored, const qr_tokenizer *tokenizer) {
    if (scored->unscored) return qr_json_null(json);
    const quire_token_logprob *top = tops_of(choice, scored);
    qr_json_open(json, '{');
    for (uint32_t i = 0; i < scored->top_count; i++) {
        qr_text text = qr_tokenizer_bytes(tokenizer, top[i].token);
        if (!text_is_new(top, i, text, tokenizer)) continue;
        qr_json_key_bytes(json, text.data, text.size);
        qr_json_float(json, top[i].logprob);
    }
    qr_text own = qr_tokenizer_bytes(tokenizer, scored->token);
    if (text_is_new(top, scored->top_count, own, tokenizer)) {
        qr_json_key_bytes(json, own.data, own.size);
        qr_json_float(json, scored->logprob);
    }
    qr_json_close(json, '}');
}

static void text_top_ids(qr_json *json, const qr_choice *choice, const qr_scored_token *scored) {
    if (scored->unscored) return qr_json_null(json);
    const quire_token_logprob *top = tops_of(choice, scored);
    qr_json_open(json, '[');
    for (uint32_t i = 0; i < scored->top_count; i++) {
        qr_json_open(json, '[');
        qr_json_int(json, top[i].token);
        qr_json_float(json, top[i].logprob);
        qr_json_close(json, ']');
    }
    qr_json_close(json, ']');
}

static void text_logprob(qr_json *json, const qr_scored_token *scored) {
    if (scored->unscored) qr_json_null(json);
    else qr_json_float(json, scored->logprob);
}

/* One array of the layout. */
#define TEXT_ARRAY(key, write)                            \
    qr_json_key(json, key);                               \
    qr_json_open(json, '[');                              \
    for (size_t i = 0; i < choice->released; i++) {       \
        const qr_scored_token *s = &scored_of(choice)[i]; \
        write;                                            \
    }                                                     \
    qr_json_close(json, ']')

void qr_logprobs_text(qr_json *json, const qr_choice *choice, const qr_tokenizer *tokenizer, bool ids) {
    qr_json_open(json, '{');
    TEXT_ARRAY("tokens", json_token(json, tokenizer, s->token));
    TEXT_ARRAY("token_logprobs", text_logprob(json, s));
    TEXT_ARRAY("top_logprobs", text_top(json, choice, s, tokenizer));
    TEXT_ARRAY("text_offset", qr_json_uint(json, s->char_offset));
    TEXT_ARRAY("bytes", json_token_bytes(json, tokenizer, s->token));
    if (ids) {
        TEXT_ARRAY("top_token_ids", text_top_ids(json, choice, s));
    }
    qr_json_close(json, '}');
}
