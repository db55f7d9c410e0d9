/* text_stream.c - bytes of tokens to whole characters, watched for the stop strings of a stop_set.
 *
 *   token bytes -> cut (an unfinished character, at most 3 bytes) -> text, given up to the longest begun stop
 *
 * The stop that ends first wins; of stops that end together the one that began first, so that no part of either is given.
 */
#include "runtime/model/text_stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "runtime/model/unicode_utf8.h"

enum { REPLACEMENT = 0xfffd, CHARACTER_BYTES_MAX = 4 };

struct qr_text_stream {
    const qr_tokenizer *tokenizer;
    bool show_control, stopped;
    const qr_stop_set *stops; /* borrowed; NULL = none */
    uint32_t stop_count;
    size_t matched[QR_STOP_STRINGS_MAX]; /* bytes of each stop that end the text so far */
    char cut[CHARACTER_BYTES_MAX];
    uint32_t cut_size;
    char *text; /* what the last call gave, then what is held; taken at create, large enough for any push */
    size_t size, capacity;
    size_t given;       /* of text, by the last call */
    size_t given_total; /* of the whole reply */
};

/* A push adds one token and what was cut before it, each byte of which may become a U+FFFD of three, to a held tail that is
 * shorter than the longest stop. */
static quire_status reserve_text(qr_text_stream *s) {
    size_t longest_stop = s->stops ? qr_stop_set_longest(s->stops) : 0;
    s->capacity = longest_stop + 3 * (qr_tokenizer_longest_bytes(s->tokenizer) + CHARACTER_BYTES_MAX);
    s->text = malloc(s->capacity);
    return s->text ? QUIRE_OK : QUIRE_NO_MEMORY;
}

quire_status qr_text_stream_create(const qr_tokenizer *tokenizer, const qr_stop_set *stops, bool show_control,
                                   qr_text_stream **stream) {
    *stream = NULL;
    qr_text_stream *s = calloc(1, sizeof *s);
    if (!s) return QUIRE_NO_MEMORY;
    s->tokenizer = tokenizer;
    s->show_control = show_control;
    s->stops = stops;
    s->stop_count = stops ? qr_stop_set_count(stops) : 0;
    quire_status status = reserve_text(s);
    if (status == QUIRE_OK) *stream = s;
    else qr_text_stream_destroy(s);
    return status;
}

void qr_text_stream_destroy(qr_text_stream *s) {
    if (!s) return;
    free(s->text);
    free(s);
}

static void forget_given(qr_text_stream *s) {
    s->size -= s->given;
    memmove(s->text, s->text + s->given, s->size);
    s->given = 0;
}

static void give(qr_text_stream *s, size_t size, qr_text *text) {
    s->given = size;
    s->given_total += size;
    *text = (qr_text){s->text, size};
}

/* Appends one character; returns the bytes of the longest stop that it completes, 0 for none. */
static size_t append(qr_text_stream *s, const char *character, size_t size) {
    QR_ASSERT(size <= s->capacity - s->size);
    memcpy(s->text + s->size, character, size);
    s->size += size;
    size_t completed = 0;
    for (uint32_t i = 0; i < s->stop_count; i++) {
        size_t stop_size = qr_stop_set_size(s->stops, i);
        for (size_t at = 0; at < size && s->matched[i] < stop_size; at++)
            s->matched[i] = qr_stop_set_advance(s->stops, i, s->matched[i], character[at]);
        if (s->matched[i] == stop_size && stop_size > completed) completed = stop_size;
    }
    return completed;
}

static size_t append_replacement(qr_text_stream *s) {
    char character[CHARACTER_BYTES_MAX];
    return append(s, character, qr_utf8_write(REPLACEMENT, character));
}

/* Takes one byte; returns the bytes of a completed stop. */
static size_t feed(qr_text_stream *s, char byte) {
    s->cut[s->cut_size++] = byte;
    qr_utf8 c = qr_utf8_read(s->cut, s->cut_size);
    if (c.kind == QR_UTF8_ILL && c.length < s->cut_size) {
        /* What was cut before will never be a character; the byte itself begins anew. */
        size_t completed = append_replacement(s);
        if (completed > 0) return completed;
        s->cut[0] = byte;
        s->cut_size = 1;
        c = qr_utf8_read(s->cut, 1);
    }
    if (c.kind == QR_UTF8_CUT) return 0;
    s->cut_size = 0;
    return c.kind == QR_UTF8_CHARACTER ? append(s, s->cut, c.length) : append_replacement(s);
}

static size_t held_bytes(const qr_text_stream *s) {
    size_t held = 0;
    for (uint32_t i = 0; i < s->stop_count; i++) {
        if (s->matched[i] > held) held = s->matched[i];
    }
    return held;
}

static void finish(qr_text_stream *s, qr_text *text) {
    if (s->cut_size > 0) s->size += qr_utf8_write(REPLACEMENT, s->text + s->size);
    s->cut_size = 0;
    s->stopped = true;
    give(s, s->size, text);
}

bool qr_text_stream_push(qr_text_stream *s, quire_token token, qr_text *text) {
    QR_ASSERT(!s->stopped);
    forget_given(s);
    qr_text bytes = qr_tokenizer_bytes(s->tokenizer, token);
    if (!s->show_control && qr_tokenizer_is_control(s->tokenizer, token)) {
        /* Not printed, but a stop that is its name has been met. */
        if (s->stops && qr_stop_set_has(s->stops, bytes)) {
            finish(s, text);
            return true;
        }
        bytes.size = 0;
    }
    for (size_t i = 0; i < bytes.size; i++) {
        size_t completed = feed(s, bytes.data[i]);
        if (completed == 0) continue;
        s->stopped = true;
        give(s, s->size - completed, text);
        return true;
    }
    give(s, s->size - held_bytes(s), text);
    return false;
}

void qr_text_stream_finish(qr_text_stream *s, qr_text *text) {
    forget_given(s);
    if (s->stopped) {
        *text = (qr_text){s->text, 0};
        return;
    }
    finish(s, text);
}

size_t qr_text_stream_given_bytes(const qr_text_stream *s) { return s->given_total; }

bool qr_text_is_utf8(const char *data, size_t size) {
    for (size_t at = 0; at < size;) {
        qr_utf8 c = qr_utf8_read(data + at, size - at);
        if (c.kind != QR_UTF8_CHARACTER) return false;
        at += c.length;
    }
    return true;
}

char *qr_text_to_utf8(const char *data, size_t size, size_t *out_size) {
    *out_size = 0;
    if (size > (SIZE_MAX - 1) / 3) return NULL;
    char *text = malloc(3 * size + 1);
    if (!text) return NULL;
    for (size_t at = 0; at < size;) {
        qr_utf8 c = qr_utf8_read(data + at, size - at);
        *out_size += qr_utf8_write(c.kind == QR_UTF8_CHARACTER ? c.code_point : REPLACEMENT, text + *out_size);
        at += c.length;
    }
    text[*out_size] = 0;
    return text;
}
