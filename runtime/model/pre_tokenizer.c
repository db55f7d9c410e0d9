/* pre_tokenizer.c - the splitting rules as hand-written matchers.
 *
 * Each matcher takes (text, end, at) and returns where the match ends, or `at` when there is none; a rule set is the
 * matchers in the order of the alternatives. `end` is the end of the text the regular expression would see.
 */
#include "runtime/model/pre_tokenizer.h"

#include <string.h>

#include "base/assertion.h"
#include "runtime/model/unicode_class.h"
#include "runtime/model/unicode_utf8.h"

typedef struct code_point {
    uint32_t value;
    qr_unicode_class class; /* as regular expressions see it; SPACE .. OTHER */
    size_t next;
} code_point;

static qr_unicode_class raw_class(const char *text, size_t end, size_t at, uint32_t *value, size_t *next) {
    qr_utf8 c = qr_utf8_read(text + at, end - at);
    bool valid = c.kind == QR_UTF8_CHARACTER;
    *value = valid ? c.code_point : UINT32_MAX;
    *next = at + (valid ? c.length : 1);
    return valid ? qr_unicode_class_of(c.code_point) : QR_UNICODE_OTHER;
}

static code_point read_at(const char *text, size_t end, size_t at) {
    code_point c;
    c.class = raw_class(text, end, at, &c.value, &c.next);
    if (c.class == QR_UNICODE_NUMERIC) c.class = QR_UNICODE_OTHER;
    return c;
}

/* End of the run of one class, at most limit code points. */
static size_t run_of(const char *text, size_t end, size_t at, qr_unicode_class class, size_t limit) {
    while (at < end && limit-- > 0) {
        code_point c = read_at(text, end, at);
        if (c.class != class) break;
        at = c.next;
    }
    return at;
}

static size_t newlines(const char *text, size_t end, size_t at) {
    while (at < end && (text[at] == '\r' || text[at] == '\n')) at++;
    return at;
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

/* 's 't 're 've 'm 'll 'd */
static size_t contraction(const char *text, size_t end, size_t at, bool any_case) {
    if (end - at < 2 || text[at] != '\'') return at;
    /* U+017F, the long s, is an s to a matcher that ignores case. */
    if (any_case && end - at >= 3 && memcmp(text + at + 1, "\xc5\xbf", 2) == 0) return at + 3;
    char first = any_case ? lower(text[at + 1]) : text[at + 1];
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    if (end - at < 3) return at;
    char second = any_case ? lower(text[at + 2]) : text[at + 2];
    bool match = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
    return match ? at + 3 : at;
}

/* ` ?X+` for a class X */
static size_t spaced_run(const char *text, size_t end, size_t at, qr_unicode_class class) {
    size_t start = at + (text[at] == ' ');
    size_t stop = run_of(text, end, start, class, SIZE_MAX);
    return stop > start ? stop : at;
}

/* `\s+(?!\S)|\s+`: white space up to the last one before something else, which goes with what follows. */
static size_t spaces(const char *text, size_t end, size_t at) {
    size_t last = at, stop = at;
    while (stop < end) {
        code_point c = read_at(text, end, stop);
        if (c.class != QR_UNICODE_SPACE) return last > at ? last : stop;
        last = stop;
        stop = c.next;
    }
    return stop;
}

/* `\s*[\r\n]+`: white space up to its last line break. */
static size_t spaces_to_newline(const char *text, size_t end, size_t at) {
    size_t after_newline = at;
    while (at < end) {
        code_point c = read_at(text, end, at);
        if (c.class != QR_UNICODE_SPACE) break;
        if (c.value == '\r' || c.value == '\n') after_newline = c.next;
        at = c.next;
    }
    return after_newline;
}

/* `[^\r\n\p{L}\p{N}]?\p{L}+` */
static size_t prefixed_letters(const char *text, size_t end, size_t at) {
    code_point c = read_at(text, end, at);
    if (c.class == QR_UNICODE_LETTER) return run_of(text, end, c.next, QR_UNICODE_LETTER, SIZE_MAX);
    if (c.class == QR_UNICODE_NUMBER || c.value == '\r' || c.value == '\n') return at;
    size_t stop = run_of(text, end, c.next, QR_UNICODE_LETTER, SIZE_MAX);
    return stop > c.next ? stop : at;
}

static size_t match_gpt2(const char *text, size_t end, size_t at) {
    size_t stop = contraction(text, end, at, false);
    if (stop == at) stop = spaced_run(text, end, at, QR_UNICODE_LETTER);
    if (stop == at) stop = spaced_run(text, end, at, QR_UNICODE_NUMBER);
    if (stop == at) stop = spaced_run(text, end, at, QR_UNICODE_OTHER);
    if (stop == at) stop = spaces(text, end, at);
    return stop;
}

static size_t match_llama3(const char *text, size_t end, size_t at, size_t digits) {
    size_t stop = contraction(text, end, at, true);
    if (stop == at) stop = prefixed_letters(text, end, at);
    if (stop == at) stop = run_of(text, end, at, QR_UNICODE_NUMBER, digits);
    if (stop == at) {
        stop = spaced_run(text, end, at, QR_UNICODE_OTHER);
        if (stop > at) stop = newlines(text, end, stop);
    }
    if (stop == at) stop = spaces_to_newline(text, end, at);
    if (stop == at) stop = spaces(text, end, at);
    return stop;
}

static bool is_numeric(const char *text, size_t end, size_t at, size_t *next) {
    uint32_t value;
    qr_unicode_class class = raw_class(text, end, at, &value, next);
    return class == QR_UNICODE_NUMBER || class == QR_UNICODE_NUMERIC;
}

static size_t match_smollm(qr_pre_tokenizer *pre) {
    size_t next;
    if (pre->at >= pre->part_end) {
        if (is_numeric(pre->text, pre->size, pre->at, &next)) return next;
        do pre->part_end = next;
        while (next < pre->size && !is_numeric(pre->text, pre->size, pre->part_end, &next));
    }
    return match_gpt2(pre->text, pre->part_end, pre->at);
}

bool qr_pre_tokenizer_find(const char *name, qr_pre_tokenizer_kind *kind) {
    static const struct {
        const char *name;
        qr_pre_tokenizer_kind kind;
    } known[] = {
        {"gpt-2", QR_PRE_GPT2},       {"phi-2", QR_PRE_GPT2},      {"smollm", QR_PRE_SMOLLM}, {"starcoder", QR_PRE_SMOLLM},
        {"llama-bpe", QR_PRE_LLAMA3}, {"llama-v3", QR_PRE_LLAMA3}, {"llama3", QR_PRE_LLAMA3}, {"qwen2", QR_PRE_QWEN2},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i].name) != 0) continue;
        *kind = known[i].kind;
        return true;
    }
    return false;
}

void qr_pre_tokenizer_init(qr_pre_tokenizer *pre, qr_pre_tokenizer_kind kind, const char *text, size_t size) {
    *pre = (qr_pre_tokenizer){.kind = kind, .text = text, .size = size};
}

bool qr_pre_tokenizer_next(qr_pre_tokenizer *pre, qr_text *piece) {
    if (pre->at == pre->size) return false;
    size_t stop = pre->at;
    switch (pre->kind) {
    case QR_PRE_GPT2: stop = match_gpt2(pre->text, pre->size, pre->at); break;
    case QR_PRE_SMOLLM: stop = match_smollm(pre); break;
    case QR_PRE_LLAMA3: stop = match_llama3(pre->text, pre->size, pre->at, 3); break;
    case QR_PRE_QWEN2: stop = match_llama3(pre->text, pre->size, pre->at, 1); break;
    }
    QR_ASSERT(stop > pre->at && stop <= pre->size);
    *piece = (qr_text){pre->text + pre->at, stop - pre->at};
    pre->at = stop;
    return true;
}
