/* stop_set.h - the stop strings of one request, prepared for search once and shared by all its choices.
 *
 * Every string has a Knuth-Morris-Pratt matcher that is fed one byte at a time: work is proportional to text times stops,
 * and where tokens begin or end makes no difference. A set does not change, so what a choice keeps of it is one number per
 * string. Sizes are bounded (QR_STOP_STRINGS_MAX strings of QR_STOP_BYTES_MAX): a request that waits must not hold memory
 * for a string that no reply can be as long as.
 *
 * Thread: read-only after create.
 */
#ifndef QR_MODEL_STOP_SET_H
#define QR_MODEL_STOP_SET_H

#include "runtime/model/tokenizer.h"

enum { QR_STOP_STRINGS_MAX = 16, QR_STOP_BYTES_MAX = 4096 };

typedef struct qr_stop_set qr_stop_set;

/* Copies. Errors: INVALID (too many strings; one that is empty, too long or not UTF-8), NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_stop_set_create(const qr_text *stops, uint32_t count, qr_stop_set **set);
void qr_stop_set_destroy(qr_stop_set *set);

uint32_t qr_stop_set_count(const qr_stop_set *set);
/* Bytes of stop `index`. */
size_t qr_stop_set_size(const qr_stop_set *set, uint32_t index);
/* Of the longest; 0 of an empty set. */
size_t qr_stop_set_longest(const qr_stop_set *set);
bool qr_stop_set_has(const qr_stop_set *set, qr_text text);

/* matched: how many bytes of stop `index` end the text so far, fewer than all. The same after one byte more. */
size_t qr_stop_set_advance(const qr_stop_set *set, uint32_t index, size_t matched, char byte);

#endif
