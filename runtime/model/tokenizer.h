/* tokenizer.h - byte-level BPE: text to token ids and back.
 *
 * Pre-tokenizers: "gpt-2", "smollm", "llama-bpe", "qwen2" (also by the aliases that GGUF files use). Time is near linear
 * in the text and the stack is bounded on any input. Text may hold any bytes; NUL is an ordinary character; bytes that
 * are not UTF-8 are tokenized as bytes. A byte for which the vocabulary has no token is left out, as the reference
 * tokenizers do (SmolLM2 has none for U+0004 and five other control characters). qwen2's text is brought to NFC first.
 *
 * Thread: read-only after create; encode takes its scratch from the caller's qr_token_buffer.
 */
#ifndef QR_MODEL_TOKENIZER_H
#define QR_MODEL_TOKENIZER_H

#include <quire/types.h>

typedef struct qr_tokenizer qr_tokenizer;

/* GGUF token types. */
typedef enum qr_token_kind {
    QR_TOKEN_NORMAL = 1,
    QR_TOKEN_UNKNOWN = 2,
    QR_TOKEN_CONTROL = 3,      /* special: never made from user text */
    QR_TOKEN_USER_DEFINED = 4, /* added: matched in any text before BPE */
    QR_TOKEN_UNUSED = 5,
    QR_TOKEN_BYTE = 6,
} qr_token_kind;

typedef struct qr_text {
    const char *data; /* any bytes, not terminated */
    size_t size;
} qr_text;

/* What a vocabulary is made of; borrowed during create only. */
typedef struct qr_vocabulary {
    const char *source; /* file name for errors */
    const char *model;  /* tokenizer.ggml.model: "gpt2" */
    const char *pre;    /* tokenizer.ggml.pre */
    uint32_t token_count;
    const qr_text *tokens; /* [token_count] in the byte-level alphabet of GPT-2, control tokens as plain text */
    const int32_t *kinds;  /* [token_count] qr_token_kind, or NULL: all normal */
    uint32_t merge_count;
    const qr_text *merges;              /* "left right" in rank order */
    quire_token bos, eos, eot, unknown; /* -1 = none */
    bool add_bos, add_eos;
} qr_vocabulary;

/* Errors: UNSUPPORTED (model or pre named), FORMAT (a token, merge or id that cannot be: which one named), NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_tokenizer_create(const qr_vocabulary *vocabulary, qr_tokenizer **tokenizer,
                                                  quire_error *error);
void qr_tokenizer_destroy(qr_tokenizer *tokenizer);

uint32_t qr_tokenizer_token_count(const qr_tokenizer *tokenizer);
quire_token qr_tokenizer_bos(const qr_tokenizer *tokenizer); /* -1 = none */
quire_token qr_tokenizer_eos(const qr_tokenizer *tokenizer);
bool qr_tokenizer_add_bos(const qr_tokenizer *tokenizer);
/* Ends a reply: eos, eot, and the end-of-turn tokens known by their text (<|im_end|>, <|eot_id|>, <|endoftext|>, ...). */
bool qr_tokenizer_is_end(const qr_tokenizer *tokenizer, quire_token token);
/* All of them; returns the count, borrowed. */
uint32_t qr_tokenizer_end_tokens(const qr_tokenizer *tokenizer, const quire_token **tokens);
bool qr_tokenizer_is_control(const qr_tokenizer *tokenizer, quire_token token);
/* The token with exactly this text (control tokens included), or -1. */
quire_token qr_tokenizer_find(const qr_tokenizer *tokenizer, const char *text, size_t size);
/* The first control token in the text at or after `at`, or -1; *found_at gets its place, or size. For a template's own text. */
quire_token qr_tokenizer_find_control(const qr_tokenizer *tokenizer, const char *text, size_t size, size_t at,
                                      size_t *found_at);
/* The bytes a token stands for; control tokens give their name. Borrowed. Out of range: empty. */
qr_text qr_tokenizer_bytes(const qr_tokenizer *tokenizer, quire_token token);
size_t qr_tokenizer_longest_bytes(const qr_tokenizer *tokenizer); /* of any token */

/* A growing list of ids and the working memory of encode; zero-initialised, reusable. */
typedef struct qr_token_buffer {
    quire_token *tokens;
    size_t count, capacity;
    void *scratch; /* private to encode */
} qr_token_buffer;
void qr_token_buffer_deinit(qr_token_buffer *buffer);
QUIRE_MUST_CHECK quire_status qr_token_buffer_append(qr_token_buffer *buffer, const quire_token *tokens, size_t count);

typedef enum qr_encode_flags {
    QR_ENCODE_SPECIAL = 1, /* recognise control tokens in the text; user text must never set this */
    QR_ENCODE_BOS = 2,     /* put the start token in front if the model asks for one and it is not there already */
} qr_encode_flags;

/* Appends the ids of the text. Errors: NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_tokenizer_encode(const qr_tokenizer *tokenizer, const char *text, size_t size, unsigned flags,
                                                  qr_token_buffer *out);

/* Appends the bytes of the tokens to a malloc'd buffer that the caller owns. Control tokens are left out unless
 * show_control. NO_MEMORY; NOT_FOUND for an id outside the vocabulary (its index in *bad). */
QUIRE_MUST_CHECK quire_status qr_tokenizer_decode(const qr_tokenizer *tokenizer, const quire_token *tokens, size_t count,
                                                  bool show_control, char **bytes, size_t *size, size_t *bad);
#endif
