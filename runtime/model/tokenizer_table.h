/* tokenizer_table.h - token text to id, and the byte-level alphabet that vocabularies are written in.
 *
 * The alphabet (GPT-2): printable bytes stand for themselves as Latin-1 characters, the other 68 as U+0100 and up, so
 * that every byte has a visible character.
 */
#ifndef QR_MODEL_TOKENIZER_TABLE_H
#define QR_MODEL_TOKENIZER_TABLE_H

#include "runtime/model/tokenizer.h"

/* Open addressing, at most half full; hits are proven by comparing bytes. */
typedef struct qr_token_table {
    const qr_text *texts; /* [token_count], borrowed */
    quire_token *slots;   /* -1 = empty */
    uint32_t mask;
} qr_token_table;

bool qr_token_table_init(qr_token_table *table, const qr_text *texts, uint32_t token_count); /* false: out of memory */
void qr_token_table_deinit(qr_token_table *table);
/* At most token_count times. Of two tokens with one text the later is found. */
void qr_token_table_insert(qr_token_table *table, quire_token token);
quire_token qr_token_table_find(const qr_token_table *table, qr_text text); /* -1: none */

enum { QR_ALPHABET_SIZE = 324 };
typedef struct qr_alphabet {
    int16_t bytes[QR_ALPHABET_SIZE]; /* code point to byte, or -1 */
} qr_alphabet;
void qr_alphabet_init(qr_alphabet *alphabet);
/* Writes at most text.size bytes to `to`; false when a character is not of the alphabet. */
bool qr_alphabet_decode(const qr_alphabet *alphabet, qr_text text, char *to, size_t *size);
#endif
