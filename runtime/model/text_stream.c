/* text_stream.c - bytes of tokens to whole characters, and a matcher per stop string.
 *
 *   token bytes -> cut (an unfinished character, at most 3 bytes) -> text, given up to the longest begun stop
 *
 * Every stop string has a Knuth-Morris-Pratt matcher, fed one byte at a time, so work is proportional to text times stops
 * and where tokens begin or end makes no difference. The stop that ends first wins; of stops that end together the one that
 * began first, so that no part of either is given.
 */
#include "runtime/model/text_stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "runtime/model/unicode_utf8.h"

enum { REPLACEMENT = 0xfffd, CHARACTER_BYTES_MAX = 4 };

typedef struct stop_matcher {
    char *text;
    size_t size;
    size_t *fallback; /* [size] longest proper prefix that also ends text[0 .. i] */
    size_t matched;   /* bytes of the stop that end the text so far */
} stop_matcher;

struct qr_text_stream {
    const qr_tokenizer *tokenizer;
    bool show_control, stopped;
    stop_matcher stops[QR_STOP_STRINGS_MAX];
    uint32_t stop_count;
    char cut[CHARACTER_BYTES_MAX];
    uint32_t cut_size;
    char *text; /* what the last call gave, then what is held; taken at create, large enough for any push */
    size_t size, capacity;
    size_t given;       /* of text, by the last call */
    size_t given_total; /* of the whole reply */
};

static void stop_matcher_deinit(stop_matcher *stop) {
    free(stop->text);
    free(stop->fallback);
}

/* Bytes of the stop that end the text after one byte more. */
static size_t stop_advance(const stop_matcher *stop, size_t matched, char byte) {
    while (matched > 0 && stop->text[matched] != byte) matched = stop->fallback[matched - 1];
    return stop->text[matched] == byte ? matched + 1 : 0;
}

static quire_status stop_matcher_init(stop_matcher *stop, qr_text text) {
    if (text.size == 0 || !qr_text_is_utf8(text.data, text.size)) return QUIRE_INVALID;
    if (text.size > SIZE_MAX / sizeof *stop->fallback) return QUIRE_NO_MEMORY;
    stop->text = malloc(text.size);
    stop->fallback = malloc(text.size * sizeof *stop->fallback);
    if (!stop->text || !stop->fallback) return QUIRE_NO_MEMORY;
    memcpy(stop->text, text.data, text.size);
    stop->size = text.size;
    stop->fallback[0] = 0;
    for (size_t i = 1; i < text.size; i++) stop->fallback[i] = stop_advance(stop, stop->fallback[i - 1], text.data[i]);
    return QUIRE_OK;
}

/* A push adds one token and what was cut before it, each byte of which may become a U+FFFD of three, to a held tail that is
 * shorter than the longest stop. */
static quire_status reserve_text(qr_text_stream *s) {
    size_t longest_stop = 0;
    for (uint32_t i = 0; i < s->stop_count; i++) {
        if (s->stops[i].size > longest_stop) longest_stop = s->stops[i].size;
    }
    s->capacity = longest_stop + 3 * (qr_tokenizer_longest_bytes(s->tokenizer) + CHARACTER_BYTES_MAX);
    s->text = malloc(s->capacity);
    return s->text ? QUIRE_OK : QUIRE_NO_MEMORY;
}

quire_status qr_text_stream_create(const qr_tokenizer *tokenizer, const qr_text *stops, uint32_t stop_count, bool show_control,
                                   qr_text_stream **stream) {
    *stream = NULL;
    if (stop_count > QR_STOP_STRINGS_MAX) return QUIRE_INVALID;
    qr_text_stream *s = calloc(1, sizeof *s);
    if (!s) return QUIRE_NO_MEMORY;
    s->tokenizer = tokenizer;
    s->show_control = show_control;
    quire_status status = QUIRE_OK;
    for (uint32_t i = 0; i < stop_count && !status; i++) {
        s->stop_count = i + 1;
        status = stop_matcher_init(&s->stops[i], stops[i]);
    }
    if (!status) status = reserve_text(s);
    if (status) {
        qr_text_stream_destroy(s);
        return status;
    }
    *stream = s;
    return QUIRE_OK;
}

void qr_text_stream_destroy(qr_text_stream *s) {
    if (!s) return;
    for (uint32_t i = 0; i < s->stop_count; i++) stop_matcher_deinit(&s->stops[i]);
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
        stop_matcher *stop = &s->stops[i];
        for (size_t at = 0; at < size && stop->matched < stop->size; at++) {
            stop->matched = stop_advance(stop, stop->matched, character[at]);
        }
        if (stop->matched == stop->size && stop->size > completed) completed = stop->size;
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
        if (s->stops[i].matched > held) held = s->stops[i].matched;
    }
    return held;
}

static bool names_stop(const qr_text_stream *s, qr_text name) {
    for (uint32_t i = 0; i < s->stop_count; i++) {
        if (s->stops[i].size == name.size && memcmp(s->stops[i].text, name.data, name.size) == 0) return true;
    }
    return false;
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
        if (names_stop(s, bytes)) {
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
