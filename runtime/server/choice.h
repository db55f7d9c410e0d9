/* choice.h - one choice of a reply as it grows: text that may be shown, token ids, digests and scores.
 *
 * A streamed reply takes what is there with every chunk (qr_choice_sent); another keeps all until the end.
 *
 * A token's score is shown once the text that it begins has been given: tokens of which nothing is shown (the stop
 * string, the end token) have no entry. Offsets count the tokens' own bytes; where bytes that are no character were
 * replaced by U+FFFD the text given is longer, so an entry can only come out earlier than its text.
 *
 * Thread: the loop.
 */
#ifndef QR_SERVER_CHOICE_H
#define QR_SERVER_CHOICE_H

#include "runtime/server/generation.h"

typedef struct qr_scored_token {
    quire_token token;
    bool unscored; /* the first token of a prompt */
    float logprob;
    uint32_t top_first, top_count; /* in tops */
    size_t byte_offset;            /* of its first byte in the choice's text */
    size_t char_offset;            /* of the character that this byte belongs to */
    bool empty;                    /* it has no text */
} qr_scored_token;

typedef struct qr_choice {
    uint32_t index;
    qr_text_stream *stream;
    qr_bytes text;    /* given */
    qr_bytes tokens;  /* quire_token: all that were generated, the end token and those of a stop string included */
    qr_bytes digests; /* uint64_t, one per token */
    qr_bytes scored;  /* qr_scored_token */
    qr_bytes tops;    /* quire_token_logprob */
    size_t released;  /* leading entries of scored that may be shown */
    size_t echo_bytes;
    bool echo_sent;
    size_t raw_bytes, raw_chars; /* of all tokens pushed */
    uint32_t completion_tokens;
    uint64_t last_token_us;
    bool ended;
    bool finish_sent;
    quire_finish finish;
} qr_choice;

/* Echo: the prompt's text comes first. false: out of memory. */
bool qr_choice_init(qr_choice *choice, uint32_t index, const qr_generation *generation, const qr_prompt *prompt,
                    const qr_tokenizer *tokenizer);
void qr_choice_deinit(qr_choice *choice);

/* Scores of the prompt (echo with logprobs): position 0 has none; event NULL then. */
void qr_choice_push_prompt(qr_choice *choice, quire_token token, const quire_event *event, const qr_tokenizer *tokenizer);
/* A generated token. Returns true when it completed a stop string: the choice has ended. */
bool qr_choice_push(qr_choice *choice, const quire_event *event, const qr_generation *generation,
                    const qr_tokenizer *tokenizer);
/* The engine's end of it. Gives the held text. */
void qr_choice_finish(qr_choice *choice, quire_finish finish);

/* There is something that a chunk would carry. */
bool qr_choice_has_news(const qr_choice *choice);
/* And the prompt's text and scores are in it. */
bool qr_choice_echoes(const qr_choice *choice);
/* What was there has been sent. */
void qr_choice_sent(qr_choice *choice);
/* Memory ran out somewhere on the way. */
bool qr_choice_failed(const qr_choice *choice);

/* "stop", "length", "timeout", or NULL while it goes on. */
const char *qr_finish_name(quire_finish finish);

#endif
