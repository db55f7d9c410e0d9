/* model_vocabulary.c - the tokenizer.* keys of a GGUF header. */
#include "runtime/model/model_vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "runtime/model/model_shape.h"

enum { NAME_MAX_BYTES = 64 }; /* of a tokenizer's model or pre-tokenizer */

typedef struct vocabulary_reader {
    const qr_gguf *gguf;
    quire_error *error;
    char model[NAME_MAX_BYTES], pre[NAME_MAX_BYTES];
    qr_text *tokens, *merges;
    int32_t *kinds;
    qr_vocabulary vocabulary;
} vocabulary_reader;

static quire_status malformed(const vocabulary_reader *r, const char *key, const char *what) {
    return qr_fail(r->error, QUIRE_FORMAT, qr_gguf_path(r->gguf), QR_NO_OFFSET, "%s: %s", key, what);
}

static quire_status read_name(const vocabulary_reader *r, const char *key, bool required, char *name) {
    qr_text text;
    quire_status status = qr_gguf_get_text(r->gguf, key, &text, r->error);
    if (status == QUIRE_NOT_FOUND) return required ? malformed(r, key, "the key is missing") : QUIRE_OK;
    if (status) return status;
    if (text.size >= NAME_MAX_BYTES || memchr(text.data, 0, text.size)) return malformed(r, key, "no such name is known");
    memcpy(name, text.data, text.size);
    name[text.size] = 0;
    return QUIRE_OK;
}

/* An id inside the vocabulary, or -1 when the key is absent. */
static quire_status read_id(const vocabulary_reader *r, const char *key, quire_token *id) {
    uint64_t value;
    *id = -1;
    quire_status status = qr_gguf_get_u64(r->gguf, key, &value, r->error);
    if (status == QUIRE_NOT_FOUND) return QUIRE_OK;
    if (status) return status;
    if (value >= r->vocabulary.token_count) return malformed(r, key, "the id is outside the vocabulary");
    *id = (quire_token)value;
    return QUIRE_OK;
}

static quire_status read_flag(const vocabulary_reader *r, const char *key, bool fallback, bool *flag) {
    quire_status status = qr_gguf_get_bool(r->gguf, key, flag, r->error);
    if (status != QUIRE_NOT_FOUND) return status;
    *flag = fallback;
    return QUIRE_OK;
}

/* Files of these pre-tokenizers mean a start token when they do not say. */
static bool adds_bos_by_default(const char *pre) {
    static const char *const names[] = {"llama3", "llama-v3", "llama-bpe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(pre, names[i])) return true;
    return false;
}

static quire_status read_special(vocabulary_reader *r) {
    /* Known in GGUF, not used here, but an id that cannot be marks a broken file. */
    static const char *const others[] = {
        "tokenizer.ggml.padding_token_id", "tokenizer.ggml.seperator_token_id", "tokenizer.ggml.separator_token_id",
        "tokenizer.ggml.cls_token_id",     "tokenizer.ggml.mask_token_id",      "tokenizer.ggml.eom_token_id",
    };
    qr_vocabulary *v = &r->vocabulary;
    quire_status status;
    quire_token ignored;
    if ((status = read_id(r, "tokenizer.ggml.bos_token_id", &v->bos)) ||
        (status = read_id(r, "tokenizer.ggml.eos_token_id", &v->eos)) ||
        (status = read_id(r, "tokenizer.ggml.eot_token_id", &v->eot)) ||
        (status = read_id(r, "tokenizer.ggml.unknown_token_id", &v->unknown)) ||
        (status = read_flag(r, "tokenizer.ggml.add_bos_token", adds_bos_by_default(r->pre), &v->add_bos)) ||
        (status = read_flag(r, "tokenizer.ggml.add_eos_token", false, &v->add_eos)))
        return status;
    for (size_t i = 0; !status && i < sizeof others / sizeof *others; i++) status = read_id(r, others[i], &ignored);
    return status;
}

static quire_status read_tokens(vocabulary_reader *r) {
    uint64_t tokens, kinds, merges;
    quire_status status = qr_gguf_get_texts(r->gguf, "tokenizer.ggml.tokens", &r->tokens, &tokens, r->error);
    if (status == QUIRE_NOT_FOUND) return malformed(r, "tokenizer.ggml.tokens", "the key is missing");
    if (status) return status;
    if (!tokens || tokens > QR_VOCABULARY_MAX) return malformed(r, "tokenizer.ggml.tokens", "too few or too many");
    status = qr_gguf_get_i32s(r->gguf, "tokenizer.ggml.token_type", &r->kinds, &kinds, r->error);
    if (status && status != QUIRE_NOT_FOUND) return status;
    if (!status && kinds != tokens) return malformed(r, "tokenizer.ggml.token_type", "it does not have one type per token");
    status = qr_gguf_get_texts(r->gguf, "tokenizer.ggml.merges", &r->merges, &merges, r->error);
    if (status == QUIRE_NOT_FOUND) merges = 0;
    else if (status) return status;
    if (merges > QR_VOCABULARY_MAX) return malformed(r, "tokenizer.ggml.merges", "too many");
    r->vocabulary.tokens = r->tokens;
    r->vocabulary.kinds = r->kinds;
    r->vocabulary.merges = r->merges;
    r->vocabulary.token_count = (uint32_t)tokens;
    r->vocabulary.merge_count = (uint32_t)merges;
    return QUIRE_OK;
}

static quire_status read_vocabulary(vocabulary_reader *r, qr_tokenizer **tokenizer) {
    quire_status status;
    if ((status = read_name(r, "tokenizer.ggml.model", true, r->model)) ||
        (status = read_name(r, "tokenizer.ggml.pre", false, r->pre)) || (status = read_tokens(r)) || (status = read_special(r)))
        return status;
    r->vocabulary.source = qr_gguf_path(r->gguf);
    r->vocabulary.model = r->model;
    r->vocabulary.pre = r->pre;
    return qr_tokenizer_create(&r->vocabulary, tokenizer, r->error);
}

quire_status qr_model_vocabulary_read(const qr_gguf *gguf, qr_tokenizer **tokenizer, quire_error *error) {
    vocabulary_reader r = {.gguf = gguf, .error = error};
    *tokenizer = NULL;
    quire_status status = read_vocabulary(&r, tokenizer);
    free(r.tokens);
    free(r.merges);
    free(r.kinds);
    return status;
}

quire_status qr_model_chat_template_read(const qr_gguf *gguf, const qr_tokenizer *tokenizer, char **template_text,
                                         qr_chat_template **chat, quire_error *error) {
    qr_text text;
    *template_text = NULL;
    *chat = NULL;
    quire_status status = qr_gguf_get_text(gguf, "tokenizer.chat_template", &text, error);
    if (status && status != QUIRE_NOT_FOUND) return status;
    if (!status) {
        *template_text = malloc(text.size + 1);
        if (!*template_text)
            return qr_fail(error, QUIRE_NO_MEMORY, qr_gguf_path(gguf), QR_NO_OFFSET, "tokenizer.chat_template");
        memcpy(*template_text, text.data, text.size);
        (*template_text)[text.size] = 0;
    }
    status = qr_chat_template_create(*template_text, text.size, tokenizer, chat);
    if (status) return qr_fail(error, status, qr_gguf_path(gguf), QR_NO_OFFSET, "tokenizer.chat_template: no memory for it");
    return QUIRE_OK;
}
