/* tokenizer_merge.h - the merge rules of byte-level BPE and their application to one piece.
 *
 * A piece is a linked list of symbols; a heap holds the pairs that a rule joins, least rank first and leftmost among equal
 * ranks, which is the order that BPE defines. O(n log n) for a piece of n bytes, no recursion.
 */
#ifndef QR_MODEL_TOKENIZER_MERGE_H
#define QR_MODEL_TOKENIZER_MERGE_H

#include "runtime/model/tokenizer.h"

typedef struct qr_merge_rule {
    uint32_t left, right; /* token ids; left is UINT32_MAX in an empty slot */
    uint32_t rank, result;
} qr_merge_rule;

/* Open addressing, at most half full. */
typedef struct qr_merge_table {
    qr_merge_rule *slots;
    uint32_t mask; /* slot count - 1 */
} qr_merge_table;

bool qr_merge_table_init(qr_merge_table *table, uint32_t rule_count); /* false: out of memory */
void qr_merge_table_deinit(qr_merge_table *table);
/* At most rule_count times. A pair that is there already gets the new rank. */
void qr_merge_table_insert(qr_merge_table *table, const qr_merge_rule *rule);
/* NULL: no rule joins them. */
const qr_merge_rule *qr_merge_table_find(const qr_merge_table *table, quire_token left, quire_token right);

typedef struct qr_merge_symbol {
    uint32_t id;
    uint32_t rank, result; /* rule that joins it with the next symbol; rank UINT32_MAX: none, or joined away */
    uint32_t previous, next;
} qr_merge_symbol;

/* Working memory; zero-initialised, reusable. */
typedef struct qr_merge_work {
    qr_merge_symbol *symbols;
    uint64_t *heap; /* rank << 32 | symbol index */
    size_t capacity, heap_count;
} qr_merge_work;

void qr_merge_work_deinit(qr_merge_work *work);
/* Joins the `count` symbols at `tokens` in place and sets *count to what is left. Errors: NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_merge_run(const qr_merge_table *table, qr_merge_work *work, quire_token *tokens,
                                           size_t *count);
#endif
