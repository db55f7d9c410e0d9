/* chat_template_fold.c - decides what is known before any conversation: there are no tools, no variables besides messages,
 * add_generation_prompt and the start token are given, and the date is the template's own.
 *
 * A clock in the prompt would change every prompt at midnight and miss the whole cache, so strftime_now counts as absent:
 * templates that ask for it name a fixed date for engines without.
 */
#include <string.h>

#include "base/error.h"
#include "runtime/model/chat_template_lines.h"

enum { DEPTH_MAX = 64 };

typedef enum judgement { UNDECIDED, NEVER, ALWAYS } judgement;

typedef struct level {
    bool is_loop;
    bool live;    /* lines of this branch come out */
    bool outside; /* lines around the whole statement come out */
    bool decided; /* a branch that is always taken was met */
    bool open;    /* an undecided condition stands in the output */
} level;

typedef struct folder {
    const qr_template_lines *in;
    qr_template_lines *out;
    level levels[DEPTH_MAX];
    size_t depth;
    bool tools_are_none; /* "tools" was set to none; before that it is undefined */
    quire_error *error;
} folder;

static bool equals(qr_text text, const char *other) {
    return text.size == strlen(other) && memcmp(text.data, other, text.size) == 0;
}

static judgement judge(const folder *f, qr_text condition) {
    static const struct {
        const char *condition;
        judgement verdict;
        bool needs_none; /* holds only after tools = none */
    } known[] = {
        {"tools", NEVER, false},
        {"tools is defined", NEVER, false},
        {"tools is defined and tools", NEVER, false},
        {"not tools is defined", ALWAYS, false},
        {"tools is not defined", ALWAYS, false},
        {"tools is not none", NEVER, true},
        {"tools is not none and not tools_in_user_message", NEVER, true},
        {"tools_in_user_message and not tools is none", NEVER, true},
        {"builtin_tools is defined or tools is not none", NEVER, true},
        {"builtin_tools is defined", NEVER, false},
        {"custom_tools is defined", NEVER, false},
        {"not tools_in_user_message is defined", ALWAYS, false},
        {"not date_string is defined", ALWAYS, false},
        {"strftime_now is defined", NEVER, false},
        {"not add_generation_prompt is defined", NEVER, false},
        {"add_generation_prompt is not defined", NEVER, false},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!equals(condition, known[i].condition)) continue;
        return known[i].needs_none && !f->tools_are_none ? UNDECIDED : known[i].verdict;
    }
    return UNDECIDED;
}

static bool live(const folder *f) { return f->depth == 0 || f->levels[f->depth - 1].live; }

static quire_status emit(folder *f, size_t index, qr_template_line_kind kind, qr_text text) {
    bool added = qr_template_lines_add(f->out, kind, text, f->in->lines[index].source_line);
    return added ? QUIRE_OK : QUIRE_NO_MEMORY;
}

static quire_status unbalanced(const folder *f, size_t index) {
    return qr_fail(f->error, QUIRE_FORMAT, "tokenizer.chat_template", QR_NO_OFFSET,
                   "line %u: blocks are not nested as they should be", f->in->lines[index].source_line);
}

/* A branch with a condition: if and elif, and else as one that is always true. */
static quire_status fold_branch(folder *f, size_t index, judgement verdict) {
    level *l = &f->levels[f->depth - 1];
    qr_text condition = qr_template_line_text(f->in, index);
    l->live = l->outside && !l->decided && verdict != NEVER;
    if (!l->live) return QUIRE_OK;
    if (verdict == ALWAYS) {
        l->decided = true;
        return l->open ? emit(f, index, QR_LINE_ELSE, (qr_text){"", 0}) : QUIRE_OK;
    }
    qr_template_line_kind kind = l->open ? QR_LINE_ELIF : QR_LINE_IF;
    l->open = true;
    return emit(f, index, kind, condition);
}

static quire_status push(folder *f, size_t index, bool is_loop) {
    bool outside = live(f);
    if (f->depth == DEPTH_MAX) return unbalanced(f, index);
    f->levels[f->depth++] = (level){.is_loop = is_loop, .live = outside, .outside = outside};
    return QUIRE_OK;
}

static quire_status fold_end(folder *f, size_t index, bool is_loop) {
    if (f->depth == 0 || f->levels[f->depth - 1].is_loop != is_loop) return unbalanced(f, index);
    level l = f->levels[--f->depth];
    bool comes_out = is_loop ? l.outside : l.open;
    return comes_out ? emit(f, index, is_loop ? QR_LINE_ENDFOR : QR_LINE_ENDIF, (qr_text){"", 0}) : QUIRE_OK;
}

static quire_status fold_set(folder *f, size_t index) {
    qr_text text = qr_template_line_text(f->in, index);
    if (!live(f)) return QUIRE_OK;
    bool sets_none = equals(text, "tools = none");
    if (sets_none && f->depth > 0 && f->levels[f->depth - 1].open) return emit(f, index, QR_LINE_SET, text);
    f->tools_are_none |= sets_none;
    if (sets_none || equals(text, "tools_in_user_message = true")) return QUIRE_OK;
    return emit(f, index, QR_LINE_SET, text);
}

static quire_status fold_line(folder *f, size_t index) {
    qr_text text = qr_template_line_text(f->in, index);
    qr_template_line_kind kind = f->in->lines[index].kind;
    bool in_if = f->depth > 0 && !f->levels[f->depth - 1].is_loop;
    quire_status status = QUIRE_OK;
    switch (kind) {
    case QR_LINE_IF: status = push(f, index, false); return status ? status : fold_branch(f, index, judge(f, text));
    case QR_LINE_ELIF: return in_if ? fold_branch(f, index, judge(f, text)) : unbalanced(f, index);
    case QR_LINE_ELSE: return in_if ? fold_branch(f, index, ALWAYS) : unbalanced(f, index);
    case QR_LINE_ENDIF: return fold_end(f, index, false);
    case QR_LINE_FOR:
        if (live(f)) status = emit(f, index, kind, text);
        return status ? status : push(f, index, true);
    case QR_LINE_ENDFOR: return fold_end(f, index, true);
    case QR_LINE_SET: return fold_set(f, index);
    case QR_LINE_TEXT:
    case QR_LINE_OUT:
    case QR_LINE_OTHER: break;
    }
    return live(f) ? emit(f, index, kind, text) : QUIRE_OK;
}

quire_status qr_template_lines_fold(const qr_template_lines *in, qr_template_lines *out, quire_error *error) {
    *out = (qr_template_lines){0};
    folder f = {.in = in, .out = out, .error = error};
    quire_status status = QUIRE_OK;
    for (size_t i = 0; i < in->count && !status; i++) status = fold_line(&f, i);
    if (!status && f.depth > 0) status = unbalanced(&f, in->count - 1);
    if (status) qr_template_lines_deinit(out);
    return status;
}
