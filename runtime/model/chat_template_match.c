/* chat_template_match.c - the shapes of ChatML and Llama 3. */
#include "runtime/model/chat_template_match.h"

#include <string.h>

#define FIRST_IS_SYSTEM "messages [ 0 ] . role == \"system\""
#define FIRST_IS_NOT_SYSTEM "loop . first and messages [ 0 ] . role != \"system\""
#define HEADER_OPEN "<|start_header_id|>"
#define HEADER_CLOSE "<|end_header_id|>\n\n"
#define TURN_CLOSE "<|eot_id|>"

typedef struct cursor {
    const qr_template_lines *lines;
    size_t at, furthest;
} cursor;

static bool is_kind(const cursor *c, qr_template_line_kind kind) {
    return c->at < c->lines->count && c->lines->lines[c->at].kind == kind;
}

static bool advance(cursor *c) {
    c->at++;
    if (c->at > c->furthest) c->furthest = c->at;
    return true;
}

static bool equals(qr_text text, const char *other) {
    return text.size == strlen(other) && memcmp(text.data, other, text.size) == 0;
}

/* Passes a line of this kind and these words. */
static bool take(cursor *c, qr_template_line_kind kind, const char *words) {
    return is_kind(c, kind) && equals(qr_template_line_text(c->lines, c->at), words) && advance(c);
}

/* Passes a line that begins and ends with these words and gives what stands between. */
static bool take_around(cursor *c, qr_template_line_kind kind, const char *before, const char *after, qr_text *between) {
    if (!is_kind(c, kind)) return false;
    qr_text text = qr_template_line_text(c->lines, c->at);
    size_t head = strlen(before), tail = strlen(after);
    if (text.size < head + tail || memcmp(text.data, before, head) != 0) return false;
    if (tail > 0 && memcmp(text.data + text.size - tail, after, tail) != 0) return false;
    *between = (qr_text){text.data + head, text.size - head - tail};
    return advance(c);
}

/* The same for a string constant; one with escapes is not taken. */
static bool take_set_string(cursor *c, const char *name_and_sign, qr_text *value) {
    size_t start = c->at;
    if (take_around(c, QR_LINE_SET, name_and_sign, "\"", value) && !memchr(value->data, '\\', value->size) &&
        !memchr(value->data, '"', value->size)) {
        return true;
    }
    c->at = start;
    return false;
}

/* Passes the lines of a branch that no conversation of ours takes, up to the elif, else or endif behind it. */
static bool skip_branch(cursor *c) {
    for (size_t depth = 0; c->at < c->lines->count; advance(c)) {
        bool opens = is_kind(c, QR_LINE_IF) || is_kind(c, QR_LINE_FOR);
        bool closes = is_kind(c, QR_LINE_ENDIF) || is_kind(c, QR_LINE_ENDFOR);
        if (depth == 0 && (closes || is_kind(c, QR_LINE_ELIF) || is_kind(c, QR_LINE_ELSE))) return true;
        depth = depth + opens - closes;
    }
    return false;
}

static bool take_generation(cursor *c, const char *text, qr_chat_plan *plan) {
    plan->generation = (qr_text){text, strlen(text)};
    return take(c, QR_LINE_IF, "add_generation_prompt") && take(c, QR_LINE_TEXT, text) && take(c, QR_LINE_ENDIF, "");
}

static bool at_end(const cursor *c) { return c->at == c->lines->count; }

/* ---- ChatML ---- */

static void set_chatml(qr_chat_plan *plan) {
    *plan = (qr_chat_plan){
        .family = "chatml",
        .markers = {"<|im_start|>", "<|im_end|>"},
        .turn_open = "<|im_start|>",
        .turn_between = "\n",
        .turn_close = "<|im_end|>\n",
        .tool_turns = true,
        .slot_open = {"<|im_start|>system\n", 19},
        .slot_close = {"<|im_end|>\n", 11},
    };
}

/* System message or default in front of the loop (Qwen2.5). */
static bool take_chatml_front(cursor *c, qr_chat_plan *plan) {
    plan->system_slot = true;
    return take(c, QR_LINE_IF, FIRST_IS_SYSTEM) && take(c, QR_LINE_TEXT, "<|im_start|>system\n") &&
           take(c, QR_LINE_OUT, "messages [ 0 ] . content") && take(c, QR_LINE_TEXT, "<|im_end|>\n") &&
           take(c, QR_LINE_ELSE, "") &&
           take_around(c, QR_LINE_TEXT, "<|im_start|>system\n", "<|im_end|>\n", &plan->slot_default) &&
           take(c, QR_LINE_ENDIF, "");
}

/* Default in front of the first message, inside the loop (Qwen2, SmolLM2). */
static bool take_chatml_default(cursor *c, qr_chat_plan *plan) {
    if (!take(c, QR_LINE_IF, FIRST_IS_NOT_SYSTEM)) return true;
    plan->system_slot = true;
    return take_around(c, QR_LINE_TEXT, "<|im_start|>system\n", "<|im_end|>\n", &plan->slot_default) &&
           take(c, QR_LINE_ENDIF, "");
}

static bool take_chatml_turn(cursor *c, qr_chat_plan *plan) {
    if (!take(c, QR_LINE_TEXT, "<|im_start|>") || !take(c, QR_LINE_OUT, "message . role") || !take(c, QR_LINE_TEXT, "\n")) {
        return false;
    }
    plan->trims = take(c, QR_LINE_OUT, "message . content | trim");
    return (plan->trims || take(c, QR_LINE_OUT, "message . content")) && take(c, QR_LINE_TEXT, "<|im_end|>\n");
}

/* Qwen2.5's loop: branches for tool calls and tool answers behind the plain one. */
static bool take_qwen_turn(cursor *c, qr_chat_plan *plan) {
    plan->tool_turns = false;
    return take(c, QR_LINE_IF,
                "( message . role == \"user\" ) or ( message . role == \"system\" and not loop . first ) or "
                "( message . role == \"assistant\" and not message . tool_calls )") &&
           take_chatml_turn(c, plan) && take(c, QR_LINE_ELIF, "message . role == \"assistant\"") && skip_branch(c) &&
           take(c, QR_LINE_ELIF, "message . role == \"tool\"") && skip_branch(c) && take(c, QR_LINE_ENDIF, "");
}

static bool match_chatml(cursor *c, qr_chat_plan *plan) {
    set_chatml(plan);
    plan->bos = take(c, QR_LINE_OUT, "bos_token");
    bool front = is_kind(c, QR_LINE_IF);
    if (front && !take_chatml_front(c, plan)) return false;
    if (!take(c, QR_LINE_FOR, "message in messages")) return false;
    if (front) {
        if (!take_qwen_turn(c, plan)) return false;
    } else {
        if (!take_chatml_default(c, plan) || !take_chatml_turn(c, plan)) return false;
        plan->slot_trims = plan->trims;
    }
    return take(c, QR_LINE_ENDFOR, "") && take_generation(c, "<|im_start|>assistant\n", plan) && at_end(c);
}

/* ---- Llama 3 ---- */

static void set_llama3(qr_chat_plan *plan) {
    *plan = (qr_chat_plan){
        .family = "llama3",
        .markers = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
        .turn_open = HEADER_OPEN,
        .turn_between = HEADER_CLOSE,
        .turn_close = TURN_CLOSE,
        .tool_turns = true,
        .bos = true,
    };
}

static bool take_llama3_generation(cursor *c, qr_chat_plan *plan) {
    const char *text = HEADER_OPEN "assistant" HEADER_CLOSE;
    plan->generation = (qr_text){text, strlen(text)};
    if (take(c, QR_LINE_TEXT, text)) return true; /* some early files do not ask */
    return take_generation(c, text, plan);
}

/* Llama 3: every message is a turn, and the start token goes before the first. */
static bool match_llama3(cursor *c, qr_chat_plan *plan) {
    set_llama3(plan);
    plan->trims = true;
    bool renamed = take(c, QR_LINE_SET, "loop_messages = messages");
    return take(c, QR_LINE_FOR, renamed ? "message in loop_messages" : "message in messages") &&
           take(c, QR_LINE_SET,
                "content = \"" HEADER_OPEN "\" + message . role + \"" HEADER_CLOSE "\" + message . content | trim + "
                "\"" TURN_CLOSE "\"") &&
           take(c, QR_LINE_IF, "loop . index0 == 0") && take(c, QR_LINE_SET, "content = bos_token + content") &&
           take(c, QR_LINE_ENDIF, "") && take(c, QR_LINE_OUT, "content") && take(c, QR_LINE_ENDFOR, "") &&
           take_llama3_generation(c, plan) && at_end(c);
}

/* The system message, or the default, as a variable; the others stay in messages. */
static bool take_llama31_system(cursor *c, qr_chat_plan *plan) {
    if (!take(c, QR_LINE_IF, FIRST_IS_SYSTEM)) return false;
    plan->slot_trims = take(c, QR_LINE_SET, "system_message = messages [ 0 ] . content | trim");
    return (plan->slot_trims || take(c, QR_LINE_SET, "system_message = messages [ 0 ] . content")) &&
           take(c, QR_LINE_SET, "messages = messages [ 1 : ]") && take(c, QR_LINE_ELSE, "") &&
           take_set_string(c, "system_message = \"", &plan->slot_default) && take(c, QR_LINE_ENDIF, "");
}

/* The slot: header, what the template says of knowledge and date, system message. */
static bool take_llama31_slot(cursor *c, bool dated, qr_chat_plan *plan) {
    const char *header = HEADER_OPEN "system" HEADER_CLOSE;
    qr_text rest;
    if (!take_around(c, QR_LINE_TEXT, header, "", &rest)) return false;
    plan->slot_open = (qr_text){rest.data - strlen(header), rest.size + strlen(header)};
    if (!dated) plan->slot_date = (qr_text){"", 0};
    if (dated && (!take(c, QR_LINE_OUT, "date_string") || !take_around(c, QR_LINE_TEXT, "", "", &plan->slot_between))) {
        return false;
    }
    plan->slot_close = (qr_text){TURN_CLOSE, strlen(TURN_CLOSE)};
    return take(c, QR_LINE_OUT, "system_message") && take(c, QR_LINE_TEXT, TURN_CLOSE);
}

static bool take_llama31_turn(cursor *c, qr_chat_plan *plan) {
    if (!take(c, QR_LINE_TEXT, HEADER_OPEN) || !take(c, QR_LINE_OUT, "message . role") ||
        !take(c, QR_LINE_TEXT, HEADER_CLOSE)) {
        return false;
    }
    plan->trims = take(c, QR_LINE_OUT, "message . content | trim");
    return (plan->trims || take(c, QR_LINE_OUT, "message . content")) && take(c, QR_LINE_TEXT, TURN_CLOSE);
}

static bool take_llama31_loop(cursor *c, qr_chat_plan *plan) {
    plan->tool_turns = false;
    return take(c, QR_LINE_FOR, "message in messages") &&
           take(c, QR_LINE_IF,
                "not ( message . role == \"ipython\" or message . role == \"tool\" or \"tool_calls\" in message )") &&
           take_llama31_turn(c, plan) && take(c, QR_LINE_ELIF, "\"tool_calls\" in message") && skip_branch(c) &&
           take(c, QR_LINE_ELIF, "message . role == \"tool\" or message . role == \"ipython\"") && skip_branch(c) &&
           take(c, QR_LINE_ENDIF, "") && take(c, QR_LINE_ENDFOR, "");
}

/* Llama 3.1, 3.2 and 3.3: a system turn in any case, with the date. */
static bool match_llama31(cursor *c, qr_chat_plan *plan) {
    set_llama3(plan);
    plan->system_slot = true;
    plan->bos = take(c, QR_LINE_OUT, "bos_token");
    bool dated = take_set_string(c, "date_string = \"", &plan->slot_date);
    return take_llama31_system(c, plan) && take_llama31_slot(c, dated, plan) && take_llama31_loop(c, plan) &&
           take_llama3_generation(c, plan) && at_end(c);
}

bool qr_chat_plan_match(const qr_template_lines *lines, qr_chat_plan *plan, size_t *line) {
    static bool (*const families[])(cursor *, qr_chat_plan *) = {match_chatml, match_llama3, match_llama31};
    *line = 0;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        cursor c = {.lines = lines};
        if (families[i](&c, plan)) return true;
        if (c.furthest > *line) *line = c.furthest;
    }
    *plan = (qr_chat_plan){0};
    return false;
}
