/* chat_template_lines.c - the syntax of Jinja: tags, white space, words. */
#include "runtime/model/chat_template_lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { WORD_MAX = 4096, TEMPLATE_BYTES_MAX = 1 << 20 };

typedef enum word_kind { WORD_NAME, WORD_STRING, WORD_SIGN } word_kind; /* numbers are names */

typedef struct word {
    word_kind kind;
    qr_text text; /* a string with its escapes resolved, in reader.strings */
} word;

typedef struct reader {
    qr_text source;
    size_t at;
    bool at_line_start; /* nothing but a removed line break since the line began */
    bool strip_next;    /* the last tag ended with a minus sign */
    bool trim_next;     /* the last tag was a block or a comment */
    char *strings;      /* [source.size] */
    size_t strings_size;
    word words[WORD_MAX]; /* of the current tag */
    size_t word_count;
    qr_template_lines *lines;
    quire_error *error;
} reader;

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f'; }
static bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

void qr_template_lines_deinit(qr_template_lines *lines) {
    free(lines->lines);
    free(lines->pool);
    *lines = (qr_template_lines){0};
}

/* The array, moved to hold `need` items; NULL when out of memory, and then the old one stays. */
static void *grow(void *array, size_t *capacity, size_t need, size_t item) {
    if (need <= *capacity) return array;
    size_t larger = need + need / 2 + 16;
    void *moved = realloc(array, larger * item);
    if (moved) *capacity = larger;
    return moved;
}

static bool pool_append(qr_template_lines *lines, qr_text text) {
    char *pool = grow(lines->pool, &lines->pool_capacity, lines->pool_size + text.size + 1, 1);
    if (!pool) return false;
    lines->pool = pool;
    if (text.size > 0) memcpy(pool + lines->pool_size, text.data, text.size);
    lines->pool_size += text.size;
    return true;
}

static bool begin_line(qr_template_lines *lines, qr_template_line_kind kind, uint32_t source_line) {
    qr_template_line *array = grow(lines->lines, &lines->capacity, lines->count + 1, sizeof *array);
    if (!array) return false;
    lines->lines = array;
    array[lines->count++] = (qr_template_line){kind, lines->pool_size, 0, source_line};
    return true;
}

static bool extend_line(qr_template_lines *lines, qr_text text) {
    if (!pool_append(lines, text)) return false;
    lines->lines[lines->count - 1].size += text.size;
    return true;
}

bool qr_template_lines_add(qr_template_lines *lines, qr_template_line_kind kind, qr_text text, uint32_t source_line) {
    bool joins = kind == QR_LINE_TEXT && lines->count > 0 && lines->lines[lines->count - 1].kind == QR_LINE_TEXT;
    if (kind == QR_LINE_TEXT && text.size == 0) return true;
    return (joins || begin_line(lines, kind, source_line)) && extend_line(lines, text);
}

static uint32_t line_number(const reader *r) {
    uint32_t line = 1;
    for (size_t i = 0; i < r->at && i < r->source.size; i++) line += r->source.data[i] == '\n';
    return line;
}

static quire_status malformed(const reader *r, const char *what) {
    return qr_fail(r->error, QUIRE_FORMAT, "tokenizer.chat_template", r->at, "line %u: %s", line_number(r), what);
}

static bool starts_with(const reader *r, size_t at, const char *text) {
    size_t size = strlen(text);
    return r->source.size - at >= size && memcmp(r->source.data + at, text, size) == 0;
}

/* ---- words of a tag ---- */

static bool resolve_escape(char c, char *to) {
    static const char from[] = "nt\\'\"r", into[] = "\n\t\\'\"\r";
    const char *found = memchr(from, c, sizeof from - 1);
    if (found) *to = into[found - from];
    return found;
}

static quire_status read_string(reader *r, word *w) {
    char quote = r->source.data[r->at++];
    char *start = r->strings + r->strings_size;
    for (; r->at < r->source.size && r->source.data[r->at] != quote; r->at++) {
        char c = r->source.data[r->at];
        if (c == '\\') {
            r->at++;
            if (r->at == r->source.size || !resolve_escape(r->source.data[r->at], &c)) {
                return malformed(r, "an escape in a string that is not known");
            }
        }
        r->strings[r->strings_size++] = c;
    }
    if (r->at == r->source.size) return malformed(r, "a string does not end");
    r->at++;
    *w = (word){WORD_STRING, {start, (size_t)(r->strings + r->strings_size - start)}};
    return QUIRE_OK;
}

static void read_name(reader *r, word *w) {
    size_t start = r->at;
    while (r->at < r->source.size && (is_name_start(r->source.data[r->at]) || is_digit(r->source.data[r->at]))) r->at++;
    *w = (word){WORD_NAME, {r->source.data + start, r->at - start}};
}

static quire_status read_sign(reader *r, word *w) {
    static const char *const pairs[] = {"==", "!=", "<=", ">=", "//", "**"};
    size_t size = 1;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (starts_with(r, r->at, pairs[i])) size = 2;
    }
    if (!strchr("=!<>+-*/%~|()[]{},.:", r->source.data[r->at])) return malformed(r, "a character that is not known in a tag");
    *w = (word){WORD_SIGN, {r->source.data + r->at, size}};
    r->at += size;
    return QUIRE_OK;
}

static quire_status read_word(reader *r) {
    if (r->word_count == WORD_MAX) return malformed(r, "a tag is too long");
    word *w = &r->words[r->word_count++];
    char c = r->source.data[r->at];
    if (c == '\'' || c == '"') return read_string(r, w);
    if (c == 0) return malformed(r, "a zero byte in a tag");
    if (!is_name_start(c) && !is_digit(c)) return read_sign(r, w);
    read_name(r, w);
    return QUIRE_OK;
}

/* Words up to the end of the tag, which is `end` ("%}" or "}}"), with a minus sign before it or not. */
static quire_status read_words(reader *r, const char *end) {
    r->word_count = 0;
    for (;;) {
        while (r->at < r->source.size && is_blank(r->source.data[r->at])) r->at++;
        if (r->at == r->source.size) return malformed(r, "a tag does not end");
        r->strip_next = r->source.data[r->at] == '-' && starts_with(r, r->at + 1, end);
        if (r->strip_next) r->at++;
        if (starts_with(r, r->at, end)) {
            r->at += 2;
            return QUIRE_OK;
        }
        quire_status status = read_word(r);
        if (status) return status;
    }
}

/* ---- words to lines ---- */

static bool is_sign(const word *w, const char *text) {
    return w->kind == WORD_SIGN && w->text.size == strlen(text) && memcmp(w->text.data, text, w->text.size) == 0;
}

static bool is_name(const word *w, const char *text) {
    return w->kind == WORD_NAME && w->text.size == strlen(text) && memcmp(w->text.data, text, w->text.size) == 0;
}

static bool is_identifier(qr_text text) {
    if (text.size == 0 || !is_name_start(text.data[0])) return false;
    for (size_t i = 1; i < text.size; i++) {
        if (!is_name_start(text.data[i]) && !is_digit(text.data[i])) return false;
    }
    return true;
}

/* words[i] .. is ['name'] behind something that has attributes. */
static bool is_named_subscript(const word *words, size_t i, size_t count) {
    if (i == 0 || i + 2 >= count || !is_sign(&words[i], "[") || !is_sign(&words[i + 2], "]")) return false;
    bool postfix = words[i - 1].kind == WORD_NAME || is_sign(&words[i - 1], "]") || is_sign(&words[i - 1], ")");
    return postfix && words[i + 1].kind == WORD_STRING && is_identifier(words[i + 1].text);
}

static bool extend_with(qr_template_lines *lines, const char *text) {
    return extend_line(lines, (qr_text){text, strlen(text)});
}

static bool extend_with_string(qr_template_lines *lines, qr_text text) {
    if (!extend_with(lines, "\"")) return false;
    for (size_t i = 0; i < text.size; i++) {
        bool escape = text.data[i] == '"' || text.data[i] == '\\';
        if (escape && !extend_with(lines, "\\")) return false;
        if (!extend_line(lines, (qr_text){text.data + i, 1})) return false;
    }
    return extend_with(lines, "\"");
}

/* One line of words with single spaces between. */
static bool add_words(reader *r, qr_template_line_kind kind, const word *words, size_t count) {
    if (!begin_line(r->lines, kind, line_number(r))) return false;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && !extend_with(r->lines, " ")) return false;
        if (is_named_subscript(words, i, count)) {
            if (!extend_with(r->lines, ". ") || !extend_line(r->lines, words[i + 1].text)) return false;
            i += 2;
        } else if (words[i].kind == WORD_STRING) {
            if (!extend_with_string(r->lines, words[i].text)) return false;
        } else if (!extend_line(r->lines, words[i].text)) {
            return false;
        }
    }
    return true;
}

static int depth_change(const word *w) {
    if (is_sign(w, "(") || is_sign(w, "[") || is_sign(w, "{")) return 1;
    return is_sign(w, ")") || is_sign(w, "]") || is_sign(w, "}") ? -1 : 0;
}

/* A sum whose operators bind tighter than any around them, so that it may be cut at its plus signs. */
static bool is_plain_sum(const reader *r) {
    static const char *const loose[] = {"if", "else", "and", "or", "not", "in", "is"};
    static const char *const signs[] = {"==", "!=", "<", ">", "<=", ">=", "-", "*", "/", "%", "//", "**"};
    int depth = 0;
    for (size_t i = 0; i < r->word_count; i++) {
        depth += depth_change(&r->words[i]);
        if (depth > 0) continue;
        for (size_t k = 0; k < sizeof loose / sizeof loose[0]; k++) {
            if (is_name(&r->words[i], loose[k])) return false;
        }
        for (size_t k = 0; k < sizeof signs / sizeof signs[0]; k++) {
            if (is_sign(&r->words[i], signs[k])) return false;
        }
    }
    return true;
}

static bool add_part(reader *r, size_t from, size_t to) {
    const word *words = r->words + from;
    if (to - from == 1 && words->kind == WORD_STRING) {
        return qr_template_lines_add(r->lines, QR_LINE_TEXT, words->text, line_number(r));
    }
    return add_words(r, QR_LINE_OUT, words, to - from);
}

static quire_status add_output(reader *r) {
    size_t from = 0;
    int depth = 0;
    if (!is_plain_sum(r)) return add_words(r, QR_LINE_OUT, r->words, r->word_count) ? QUIRE_OK : QUIRE_NO_MEMORY;
    for (size_t i = 0; i <= r->word_count; i++) {
        bool ends = i == r->word_count || (depth == 0 && (is_sign(&r->words[i], "+") || is_sign(&r->words[i], "~")));
        if (ends) {
            if (i == from) return malformed(r, "an output with an empty part");
            if (!add_part(r, from, i)) return QUIRE_NO_MEMORY;
            from = i + 1;
        } else {
            depth += depth_change(&r->words[i]);
        }
    }
    return QUIRE_OK;
}

static quire_status add_statement(reader *r) {
    static const struct {
        const char *name;
        qr_template_line_kind kind;
    } statements[] = {{"if", QR_LINE_IF},   {"elif", QR_LINE_ELIF},     {"else", QR_LINE_ELSE}, {"endif", QR_LINE_ENDIF},
                      {"for", QR_LINE_FOR}, {"endfor", QR_LINE_ENDFOR}, {"set", QR_LINE_SET}};
    if (r->word_count == 0) return malformed(r, "an empty statement");
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (!is_name(&r->words[0], statements[i].name)) continue;
        return add_words(r, statements[i].kind, r->words + 1, r->word_count - 1) ? QUIRE_OK : QUIRE_NO_MEMORY;
    }
    return add_words(r, QR_LINE_OTHER, r->words, r->word_count) ? QUIRE_OK : QUIRE_NO_MEMORY;
}

/* ---- text between tags ---- */

static size_t find_tag(const reader *r) {
    for (size_t at = r->at; at + 1 < r->source.size; at++) {
        char next = r->source.data[at + 1];
        if (r->source.data[at] == '{' && (next == '{' || next == '%' || next == '#')) return at;
    }
    return r->source.size;
}

/* lstrip_blocks: blanks between the line's start and a block or comment go. */
static size_t strip_indent(const reader *r, size_t start, size_t end) {
    size_t at = end;
    while (at > start && (r->source.data[at - 1] == ' ' || r->source.data[at - 1] == '\t')) at--;
    bool line_start = at > start ? r->source.data[at - 1] == '\n' : r->at_line_start;
    return line_start ? at : end;
}

static quire_status read_text(reader *r, size_t end) {
    size_t start = r->at, stop = end;
    if (r->strip_next) {
        while (start < stop && is_blank(r->source.data[start])) start++;
        r->at_line_start = false;
    } else if (r->trim_next && start < stop && r->source.data[start] == '\n') {
        start++;
        r->at_line_start = true;
    }
    bool tag = end < r->source.size;
    if (tag && starts_with(r, end + 2, "-")) {
        while (stop > start && is_blank(r->source.data[stop - 1])) stop--;
    } else if (tag && r->source.data[end + 1] != '{') {
        stop = strip_indent(r, start, stop);
    }
    qr_text text = {r->source.data + start, stop - start};
    return qr_template_lines_add(r->lines, QR_LINE_TEXT, text, line_number(r)) ? QUIRE_OK : QUIRE_NO_MEMORY;
}

static quire_status skip_comment(reader *r) {
    while (r->at < r->source.size && !starts_with(r, r->at, "#}")) r->at++;
    if (r->at == r->source.size) return malformed(r, "a comment does not end");
    r->strip_next = r->source.data[r->at - 1] == '-';
    r->at += 2;
    return QUIRE_OK;
}

static quire_status read_tag(reader *r) {
    char kind = r->source.data[r->at + 1];
    r->at += 2;
    if (starts_with(r, r->at, "-")) r->at++;
    if (starts_with(r, r->at, "+")) return malformed(r, "a plus sign at a tag's start");
    r->trim_next = kind != '{';
    r->at_line_start = false;
    if (kind == '#') return skip_comment(r);
    quire_status status = read_words(r, kind == '{' ? "}}" : "%}");
    if (status) return status;
    return kind == '{' ? add_output(r) : add_statement(r);
}

static quire_status read_all(reader *r) {
    while (r->at < r->source.size) {
        size_t tag = find_tag(r);
        quire_status status = read_text(r, tag);
        r->at = tag;
        if (!status && tag < r->source.size) status = read_tag(r);
        if (status) return status;
    }
    return QUIRE_OK;
}

quire_status qr_template_lines_read(qr_text text, qr_template_lines *lines, quire_error *error) {
    *lines = (qr_template_lines){0};
    reader *r = calloc(1, sizeof *r);
    if (!r) return QUIRE_NO_MEMORY;
    /* The template engine drops one line break at the end of the source. */
    if (text.size > 0 && text.data[text.size - 1] == '\n') text.size--;
    r->source = text;
    r->lines = lines;
    r->error = error;
    r->at_line_start = true;
    r->strings = malloc(text.size + 1);
    quire_status status = r->strings ? QUIRE_OK : QUIRE_NO_MEMORY;
    if (!status && text.size > TEMPLATE_BYTES_MAX) status = malformed(r, "the template is larger than 1 MiB");
    if (!status && memchr(text.data, '\r', text.size)) status = malformed(r, "carriage returns are not known");
    if (!status) status = read_all(r);
    free(r->strings);
    free(r);
    if (status) qr_template_lines_deinit(lines);
    return status;
}
