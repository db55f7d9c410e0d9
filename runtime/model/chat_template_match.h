/* chat_template_match.h - which family a template belongs to, and its own words.
 *
 * A template is recognised when every line of it, after folding, stands where the family has it. The markers are the
 * family's; default system messages, dates and the like are taken from the template.
 */
#ifndef QR_MODEL_CHAT_TEMPLATE_MATCH_H
#define QR_MODEL_CHAT_TEMPLATE_MATCH_H

#include "runtime/model/chat_template_lines.h"

enum { QR_CHAT_MARKERS_MAX = 3 };

/* A conversation is: [start token] [system slot] turns [generation]. A turn is open role between content close. */
typedef struct qr_chat_plan {
    const char *family;                       /* "chatml" or "llama3" */
    const char *markers[QR_CHAT_MARKERS_MAX]; /* NULL after the last */
    const char *turn_open, *turn_between, *turn_close;
    qr_text generation;
    bool bos;         /* the template writes the start token */
    bool trims;       /* message content is stripped of white space at both ends */
    bool slot_trims;  /* so is the system message in the slot */
    bool system_slot; /* a system turn stands in front whatever the conversation: its words, around the first message's
                         content when that is a system message, else around the default */
    bool tool_turns;  /* a tool message is a turn like any other; else the template has a form for it that is not known */
    qr_text slot_open, slot_default, slot_date, slot_between, slot_close; /* open date between content close */
} qr_chat_plan;

/* Texts of the plan borrow from lines. False: *line gets the first line that no family has. */
bool qr_chat_plan_match(const qr_template_lines *lines, qr_chat_plan *plan, size_t *line);
#endif
