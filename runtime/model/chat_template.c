/* chat_template.c - recognition at create; rendering to ids or to text.
 *
 * Rendering writes two kinds of text: the template's own, whose control tokens become ids, and message text, in which
 * nothing is special. Both run together between control tokens, so that pieces form across them as the reference
 * tokenizer forms them.
 */
#include "runtime/model/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/error.h"
#include "runtime/model/chat_template_match.h"
#include "runtime/model/unicode_class.h"
#include "runtime/model/unicode_utf8.h"

enum { REASON_BYTES = 256, LINT_TURNS = 4, SHOWN_BYTES_MAX = 80 };

struct qr_chat_template {
    const qr_tokenizer *tokenizer;
    const char *family;
    qr_template_lines lines; /* the plan borrows from them */
    qr_chat_plan plan;
    bool supported, prefix_stable;
    char reason[REASON_BYTES];
};

/* ---- output ---- */

/* Gathers text; as ids it is encoded piece by piece between control tokens. */
typedef struct writer {
    const qr_tokenizer *tokenizer;
    qr_token_buffer *ids; /* NULL: text is the result */
    char *text;
    size_t size, capacity;
    quire_status status; /* of the first failure; everything after it does nothing */
} writer;

static void write_plain(writer *w, qr_text text) {
    if (w->status || text.size == 0) return;
    if (text.size >= w->capacity - w->size) {
        size_t capacity = w->size + text.size;
        capacity += capacity / 2 + 64;
        char *larger = realloc(w->text, capacity);
        if (!larger) {
            w->status = QUIRE_NO_MEMORY;
            return;
        }
        w->text = larger;
        w->capacity = capacity;
    }
    memcpy(w->text + w->size, text.data, text.size);
    w->size += text.size;
}

static void flush(writer *w) {
    if (!w->status && w->size > 0) w->status = qr_tokenizer_encode(w->tokenizer, w->text, w->size, 0, w->ids);
    w->size = 0;
}

static void write_control(writer *w, quire_token token) {
    if (!w->ids) {
        write_plain(w, qr_tokenizer_bytes(w->tokenizer, token));
        return;
    }
    flush(w);
    if (!w->status) w->status = qr_token_buffer_append(w->ids, &token, 1);
}

/* The template's own text. */
static void write_own(writer *w, qr_text text) {
    for (size_t at = 0; at < text.size;) {
        size_t found_at;
        quire_token token = qr_tokenizer_find_control(w->tokenizer, text.data, text.size, at, &found_at);
        write_plain(w, (qr_text){text.data + at, found_at - at});
        if (token >= 0) write_control(w, token);
        at = found_at + (token >= 0 ? qr_tokenizer_bytes(w->tokenizer, token).size : 0);
    }
}

static void write_own_string(writer *w, const char *text) { write_own(w, (qr_text){text, strlen(text)}); }

/* ---- conversations ---- */

static bool is(qr_text text, const char *other) {
    return text.size == strlen(other) && memcmp(text.data, other, text.size) == 0;
}

static bool is_system(const qr_chat_message *message) { return is(message->role, "system") || is(message->role, "developer"); }

/* What the reference's strip() takes for white space: Unicode's and the four ASCII separators. */
static bool is_strippable(uint32_t code_point) {
    return (code_point >= 0x1c && code_point <= 0x1f) || qr_unicode_class_of(code_point) == QR_UNICODE_SPACE;
}

static size_t last_character(qr_text text) {
    size_t at = text.size - 1;
    while (at > 0 && text.size - at < 4 && ((unsigned char)text.data[at] & 0xc0) == 0x80) at--;
    return at;
}

static qr_text strip(qr_text text) {
    while (text.size > 0) {
        qr_utf8 c = qr_utf8_read(text.data, text.size);
        if (c.kind != QR_UTF8_CHARACTER || !is_strippable(c.code_point)) break;
        text = (qr_text){text.data + c.length, text.size - c.length};
    }
    while (text.size > 0) {
        size_t at = last_character(text);
        qr_utf8 c = qr_utf8_read(text.data + at, text.size - at);
        if (c.kind != QR_UTF8_CHARACTER || c.length != text.size - at || !is_strippable(c.code_point)) break;
        text.size = at;
    }
    return text;
}

static void write_slot(const qr_chat_plan *plan, const qr_chat_message *system, writer *w) {
    write_own(w, plan->slot_open);
    write_own(w, plan->slot_date);
    write_own(w, plan->slot_between);
    if (system) {
        write_plain(w, plan->slot_trims ? strip(system->content) : system->content);
    } else {
        write_own(w, plan->slot_default);
    }
    write_own(w, plan->slot_close);
}

static void write_turn(const qr_chat_plan *plan, const qr_chat_message *message, bool open, writer *w) {
    write_own_string(w, plan->turn_open);
    write_plain(w, is_system(message) ? (qr_text){"system", 6} : message->role);
    write_own_string(w, plan->turn_between);
    write_plain(w, plan->trims ? strip(message->content) : message->content);
    if (!open) write_own_string(w, plan->turn_close);
}

static quire_status refuse(quire_error *error, size_t index, const char *why) {
    return qr_fail(error, QUIRE_INVALID, "messages", QR_NO_OFFSET, "messages[%zu]: %s", index, why);
}

static quire_status check_conversation(const qr_chat_template *chat, const qr_chat_message *messages, size_t count,
                                       quire_error *error) {
    if (!chat->supported) {
        return qr_fail(error, QUIRE_UNSUPPORTED, "messages", QR_NO_OFFSET, "no chat with this model: %s", chat->reason);
    }
    if (count == 0) return qr_fail(error, QUIRE_INVALID, "messages", QR_NO_OFFSET, "there are no messages");
    for (size_t i = 0; i < count; i++) {
        qr_text role = messages[i].role;
        if (is_system(&messages[i]) || is(role, "user") || is(role, "assistant")) continue;
        if (!is(role, "tool")) return refuse(error, i, "the role is none of system, developer, user, assistant and tool");
        if (!chat->plan.tool_turns) return refuse(error, i, "tool messages are not supported with this model's template");
    }
    return QUIRE_OK;
}

static bool template_writes_bos(const qr_chat_template *chat) {
    return chat->plan.bos && qr_tokenizer_bos(chat->tokenizer) >= 0;
}

static void write_conversation(const qr_chat_template *chat, const qr_chat_message *messages, size_t count, bool add_generation,
                               writer *w) {
    const qr_chat_plan *plan = &chat->plan;
    /* As ids also where only the vocabulary asks for it; never twice. */
    bool bos = template_writes_bos(chat) || (w->ids && qr_tokenizer_add_bos(chat->tokenizer));
    if (bos) write_control(w, qr_tokenizer_bos(chat->tokenizer));
    size_t first = 0;
    if (plan->system_slot) {
        first = is_system(&messages[0]);
        write_slot(plan, first ? &messages[0] : NULL, w);
    }
    for (size_t i = first; i < count; i++) {
        bool open = !add_generation && i + 1 == count && is(messages[i].role, "assistant");
        write_turn(plan, &messages[i], open, w);
    }
    if (add_generation) write_own(w, plan->generation);
}

quire_status qr_chat_template_render(const qr_chat_template *chat, const qr_chat_message *messages, size_t count,
                                     bool add_generation, qr_token_buffer *out, quire_error *error) {
    quire_status status = check_conversation(chat, messages, count, error);
    if (status) return status;
    size_t start = out->count;
    writer w = {.tokenizer = chat->tokenizer, .ids = out};
    write_conversation(chat, messages, count, add_generation, &w);
    flush(&w);
    free(w.text);
    if (!w.status) return QUIRE_OK;
    out->count = start;
    return qr_fail(error, w.status, "messages", QR_NO_OFFSET, "no memory for the prompt");
}

quire_status qr_chat_template_render_text(const qr_chat_template *chat, const qr_chat_message *messages, size_t count,
                                          bool add_generation, char **text, size_t *size, quire_error *error) {
    *text = NULL;
    *size = 0;
    quire_status status = check_conversation(chat, messages, count, error);
    if (status) return status;
    writer w = {.tokenizer = chat->tokenizer};
    write_conversation(chat, messages, count, add_generation, &w);
    if (w.status) {
        free(w.text);
        return qr_fail(error, w.status, "messages", QR_NO_OFFSET, "no memory for the prompt");
    }
    w.text[w.size] = 0; /* write_plain leaves room; a turn is never empty */
    *text = w.text;
    *size = w.size;
    return QUIRE_OK;
}

/* ---- create ---- */

static void unsupported(qr_chat_template *chat, const char *family, const char *why, qr_text what) {
    int shown = (int)(what.size < SHOWN_BYTES_MAX ? what.size : SHOWN_BYTES_MAX);
    chat->family = family;
    snprintf(chat->reason, sizeof chat->reason, "%s%.*s", why, shown, what.data ? what.data : "");
    for (char *c = chat->reason; *c; c++) {
        if ((unsigned char)*c < ' ') *c = ' '; /* one line */
    }
}

static void check_markers(qr_chat_template *chat) {
    for (size_t i = 0; i < QR_CHAT_MARKERS_MAX && chat->plan.markers[i]; i++) {
        const char *marker = chat->plan.markers[i];
        quire_token token = qr_tokenizer_find(chat->tokenizer, marker, strlen(marker));
        if (qr_tokenizer_is_control(chat->tokenizer, token)) continue;
        unsupported(chat, "unknown",
                    "the template's marker is no control token of the vocabulary: ", (qr_text){marker, strlen(marker)});
        return;
    }
    chat->supported = true;
    chat->family = chat->plan.family;
}

static void report_unmatched(qr_chat_template *chat, size_t index) {
    if (index >= chat->lines.count) {
        unsupported(chat, "unknown", "neither ChatML nor Llama 3: it ends too early", (qr_text){0});
        return;
    }
    char why[96];
    snprintf(why, sizeof why, "neither ChatML nor Llama 3: line %u: ", chat->lines.lines[index].source_line);
    unsupported(chat, "unknown", why, qr_template_line_text(&chat->lines, index));
}

static quire_status recognise(qr_chat_template *chat, qr_text text) {
    qr_template_lines all;
    quire_error error = {0};
    quire_status status = qr_template_lines_read(text, &all, &error);
    if (!status) {
        status = qr_template_lines_fold(&all, &chat->lines, &error);
        qr_template_lines_deinit(&all);
    }
    if (status == QUIRE_FORMAT) {
        unsupported(chat, "unknown", "", (qr_text){error.text, strlen(error.text)});
        return QUIRE_OK;
    }
    if (status) return status;
    size_t line;
    if (qr_chat_plan_match(&chat->lines, &chat->plan, &line)) check_markers(chat);
    else report_unmatched(chat, line);
    return QUIRE_OK;
}

/* Renders growing conversations and compares each prompt with the next. */
static quire_status lint(qr_chat_template *chat) {
    qr_chat_message messages[2 * LINT_TURNS];
    qr_token_buffer buffers[2] = {{0}};
    quire_status status = QUIRE_OK;
    chat->prefix_stable = true;
    for (size_t turn = 0; turn < LINT_TURNS && !status; turn++) {
        qr_token_buffer *now = &buffers[turn % 2], *before = &buffers[(turn + 1) % 2];
        messages[2 * turn] = (qr_chat_message){{"user", 4}, {"Hello.", 6}};
        messages[2 * turn + 1] = (qr_chat_message){{"assistant", 9}, {"Good day.", 9}};
        now->count = 0;
        status = qr_chat_template_render(chat, messages, 2 * turn + 1, true, now, NULL);
        bool prefix = !status && before->count <= now->count &&
                      (before->count == 0 || memcmp(before->tokens, now->tokens, before->count * sizeof *now->tokens) == 0);
        chat->prefix_stable = chat->prefix_stable && prefix;
    }
    qr_token_buffer_deinit(&buffers[0]);
    qr_token_buffer_deinit(&buffers[1]);
    return status;
}

quire_status qr_chat_template_create(const char *template_text, size_t size, const qr_tokenizer *tokenizer,
                                     qr_chat_template **chat) {
    *chat = NULL;
    qr_chat_template *c = calloc(1, sizeof *c);
    if (!c) return QUIRE_NO_MEMORY;
    c->tokenizer = tokenizer;
    quire_status status = QUIRE_OK;
    if (template_text) {
        status = recognise(c, (qr_text){template_text, size});
    } else {
        unsupported(c, "none", "the model has no chat template (a base model)", (qr_text){0});
    }
    if (!status && c->supported) status = lint(c);
    if (status) {
        qr_chat_template_destroy(c);
        return status;
    }
    *chat = c;
    return QUIRE_OK;
}

void qr_chat_template_destroy(qr_chat_template *chat) {
    if (!chat) return;
    qr_template_lines_deinit(&chat->lines);
    free(chat);
}

bool qr_chat_template_supported(const qr_chat_template *chat) { return chat->supported; }
const char *qr_chat_template_family(const qr_chat_template *chat) { return chat->family; }
const char *qr_chat_template_reason(const qr_chat_template *chat) { return chat->reason; }
bool qr_chat_template_prefix_stable(const qr_chat_template *chat) { return chat->prefix_stable; }
