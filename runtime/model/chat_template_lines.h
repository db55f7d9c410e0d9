/* chat_template_lines.h - a Jinja chat template as a list of plain lines, for recognition.
 *
 * Reads the syntax, evaluates nothing. White space is removed as the reference environment does (trim_blocks, lstrip_blocks,
 * minus signs in tags); comments vanish; an output of a sum becomes one line per part; subscripts by name become attributes;
 * what is left of an expression has one space between its words. So templates that differ in layout alone give equal lines:
 *
 *   {% for m in messages %}{{ '<|' + m['role'] + "|>" }}{% endfor %}
 *   ->  FOR "m in messages", TEXT "<|", OUT "m . role", TEXT "|>", ENDFOR
 */
#ifndef QR_MODEL_CHAT_TEMPLATE_LINES_H
#define QR_MODEL_CHAT_TEMPLATE_LINES_H

#include "runtime/model/tokenizer.h"

typedef enum qr_template_line_kind {
    QR_LINE_TEXT, /* text as it comes out */
    QR_LINE_OUT,  /* expression */
    QR_LINE_IF,   /* condition, as for ELIF */
    QR_LINE_ELIF,
    QR_LINE_ELSE,
    QR_LINE_ENDIF,
    QR_LINE_FOR, /* "name in expression" */
    QR_LINE_ENDFOR,
    QR_LINE_SET,   /* "name = expression" */
    QR_LINE_OTHER, /* a statement of another kind, in its own words */
} qr_template_line_kind;

typedef struct qr_template_line {
    qr_template_line_kind kind;
    size_t at, size; /* in pool */
    uint32_t source_line;
} qr_template_line;

typedef struct qr_template_lines {
    qr_template_line *lines;
    size_t count, capacity;
    char *pool;
    size_t pool_size, pool_capacity;
} qr_template_lines;

/* FORMAT: text that is no template as far as this reader knows, with the line in *error. NO_MEMORY. On failure empty. */
QUIRE_MUST_CHECK quire_status qr_template_lines_read(qr_text text, qr_template_lines *lines, quire_error *error);
void qr_template_lines_deinit(qr_template_lines *lines);

/* Takes out what a conversation without tools never reaches: conditions about tools, dates and defaults that are known
 * beforehand are decided, their dead branches dropped, neighbouring texts joined. Errors: FORMAT, NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_template_lines_fold(const qr_template_lines *in, qr_template_lines *out, quire_error *error);

/* For the two above. */
bool qr_template_lines_add(qr_template_lines *lines, qr_template_line_kind kind, qr_text text, uint32_t source_line);
static inline qr_text qr_template_line_text(const qr_template_lines *lines, size_t index) {
    return (qr_text){lines->pool + lines->lines[index].at, lines->lines[index].size};
}
#endif
