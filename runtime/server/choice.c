/* choice.c - see choice.h. */
#include "runtime/server/choice.h"

#include "base/assertion.h"

#include <string.h>

/* ---- life ---- */

bool qr_choice_init(qr_choice *choice, uint32_t index, const qr_generation *g, const qr_prompt *prompt,
                    const qr_tokenizer *tokenizer) {
    *choice = (qr_choice){.index = index};
    if (qr_text_stream_create(tokenizer, g->stops, g->show_control, &choice->stream) != QUIRE_OK) return false;
    if (!g->echo) return true;
    qr_bytes_append(&choice->text, prompt->text, prompt->text_size);
    choice->echo_bytes = prompt->text_size;
    if (g->logprobs) qr_choice_push_prompt(choice, prompt->tokens.tokens[0], NULL, tokenizer);
    return !qr_choice_failed(choice);
}

void qr_choice_deinit(qr_choice *choice) {
    qr_text_stream_destroy(choice->stream);
    qr_bytes_deinit(&choice->text);
    qr_bytes_deinit(&choice->tokens);
    qr_bytes_deinit(&choice->digests);
    qr_bytes_deinit(&choice->scored);
    qr_bytes_deinit(&choice->tops);
}

bool qr_choice_failed(const qr_choice *choice) {
    return choice->text.failed || choice->tokens.failed || choice->digests.failed || choice->scored.failed ||
           choice->tops.failed;
}

/* ---- scores ---- */

static size_t scored_count(const qr_choice *choice) { return choice->scored.size / sizeof(qr_scored_token); }

static const qr_scored_token *scored_at(const qr_choice *choice, size_t i) {
    return (const qr_scored_token *)(const void *)choice->scored.data + i;
}

/* Characters begin at bytes that are not 10xxxxxx. */
static size_t chars_begun(qr_text bytes) {
    size_t count = 0;
    for (size_t i = 0; i < bytes.size; i++) count += ((unsigned char)bytes.data[i] & 0xc0) != 0x80;
    return count;
}

static bool begins_inside_character(qr_text bytes) { return bytes.size && ((unsigned char)bytes.data[0] & 0xc0) == 0x80; }

/* event NULL: no score. shown: the token's bytes as they appear in the text. */
static void scored_add(qr_choice *choice, quire_token token, const quire_event *event, qr_text shown) {
    qr_scored_token scored = {
        .token = token,
        .unscored = event == NULL,
        .logprob = event ? event->logprob : 0,
        .top_first = (uint32_t)(choice->tops.size / sizeof(quire_token_logprob)),
        .top_count = event ? event->top_count : 0,
        .byte_offset = choice->raw_bytes,
        .char_offset = choice->raw_chars - (begins_inside_character(shown) && choice->raw_chars),
        .empty = shown.size == 0,
    };
    qr_bytes_append(&choice->scored, &scored, sizeof scored);
    if (event) qr_bytes_append(&choice->tops, event->top, event->top_count * sizeof *event->top);
}

static size_t given_bytes(const qr_choice *choice) { return choice->echo_bytes + qr_text_stream_given_bytes(choice->stream); }

static void scored_release(qr_choice *choice) {
    size_t count = scored_count(choice), given = given_bytes(choice);
    while (choice->released < count) {
        const qr_scored_token *next = scored_at(choice, choice->released);
        if (next->empty ? next->byte_offset > given : next->byte_offset >= given) break;
        choice->released++;
    }
}

/* ---- tokens ---- */

static void raw_add(qr_choice *choice, qr_text bytes) {
    choice->raw_bytes += bytes.size;
    choice->raw_chars += chars_begun(bytes);
}

void qr_choice_push_prompt(qr_choice *choice, quire_token token, const quire_event *event, const qr_tokenizer *tokenizer) {
    qr_text bytes = qr_tokenizer_bytes(tokenizer, token);
    /* A start token that the tokenizer put in front is not part of the text that was sent. */
    bool added = !event && qr_tokenizer_is_control(tokenizer, token) &&
                 (choice->echo_bytes < bytes.size || memcmp(choice->text.data, bytes.data, bytes.size) != 0);
    if (added) bytes.size = 0;
    scored_add(choice, token, event, bytes);
    raw_add(choice, bytes);
    scored_release(choice);
}

static void choice_end_at_stop(qr_choice *choice) {
    choice->scored.size = choice->released * sizeof(qr_scored_token);
    choice->ended = true;
    choice->finish = QUIRE_FINISH_STOP;
}

bool qr_choice_push(qr_choice *choice, const quire_event *event, const qr_generation *g, const qr_tokenizer *tokenizer) {
    QR_ASSERT(!choice->ended);
    choice->completion_tokens++;
    if (g->return_token_ids) qr_bytes_append(&choice->tokens, &event->token, sizeof event->token);
    if (g->request.logits_digest) qr_bytes_append(&choice->digests, &event->logits_digest, sizeof event->logits_digest);
    if (event->is_end) return false;
    bool hidden = !g->show_control && qr_tokenizer_is_control(tokenizer, event->token);
    qr_text bytes = hidden ? (qr_text){"", 0} : qr_tokenizer_bytes(tokenizer, event->token);
    if (g->logprobs) scored_add(choice, event->token, event, bytes);
    raw_add(choice, bytes);
    qr_text given;
    bool stopped = qr_text_stream_push(choice->stream, event->token, &given);
    qr_bytes_append(&choice->text, given.data, given.size);
    scored_release(choice);
    if (stopped) choice_end_at_stop(choice);
    return stopped;
}

void qr_choice_finish(qr_choice *choice, quire_finish finish) {
    QR_ASSERT(!choice->ended);
    qr_text given;
    qr_text_stream_finish(choice->stream, &given);
    qr_bytes_append(&choice->text, given.data, given.size);
    choice->released = scored_count(choice);
    choice->ended = true;
    choice->finish = finish;
}

/* ---- chunks ---- */

bool qr_choice_has_news(const qr_choice *choice) {
    return choice->text.size || choice->tokens.size || choice->digests.size || choice->released;
}

bool qr_choice_echoes(const qr_choice *choice) { return choice->echo_bytes && !choice->echo_sent; }

void qr_choice_sent(qr_choice *choice) {
    choice->echo_sent = true;
    qr_bytes_clear(&choice->text);
    qr_bytes_clear(&choice->tokens);
    qr_bytes_clear(&choice->digests);
    qr_bytes_consume(&choice->scored, choice->released * sizeof(qr_scored_token));
    choice->released = 0;
    if (choice->scored.size == 0) qr_bytes_clear(&choice->tops);
}

const char *qr_finish_name(quire_finish finish) {
    switch (finish) {
    case QUIRE_FINISH_STOP: return "stop";
    case QUIRE_FINISH_LENGTH: return "length";
    case QUIRE_FINISH_TIMEOUT: return "timeout";
    default: return NULL;
    }
}
