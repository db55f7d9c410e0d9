/* tokenizer_added.h - finds added and control tokens in text, leftmost and of those the longest.
 *
 * The set is a sorted array; a candidate is narrowed byte by byte with binary searches, so memory is one entry per token
 * and time is O(text x longest token x log(tokens)) at worst, one table look-up per byte as a rule.
 */
#ifndef QR_MODEL_TOKENIZER_ADDED_H
#define QR_MODEL_TOKENIZER_ADDED_H

#include "runtime/model/tokenizer.h"

enum { QR_ADDED_TOKEN_BYTES_MAX = 512 }; /* bounds the time per byte of text; real ones have under 64 */

typedef struct qr_added_token {
    qr_text text; /* borrowed */
    quire_token id;
} qr_added_token;

typedef struct qr_added_set {
    qr_added_token *tokens; /* by bytes, then by falling id */
    uint32_t count;
    bool first_bytes[256];
} qr_added_set;

/* Takes the tokens (malloc'd) and sorts them. */
void qr_added_set_init(qr_added_set *set, qr_added_token *tokens, uint32_t count);
void qr_added_set_deinit(qr_added_set *set);
/* First match at or after `at`; NULL: none. *found_at gets its place, or size. */
const qr_added_token *qr_added_set_find(const qr_added_set *set, qr_text text, size_t at, size_t *found_at);
#endif
