/* tokenizer_table.c - hash table of token texts; GPT-2's alphabet. */
#include "runtime/model/tokenizer_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/hash.h"
#include "runtime/model/unicode_utf8.h"

/* FNV-1a, since tokens are a few bytes long, then a finaliser, since slots are its low bits. */
static uint64_t hash_text(qr_text text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < text.size; i++) hash = (hash ^ (unsigned char)text.data[i]) * 0x100000001b3u;
    return qr_mix64(hash);
}

bool qr_token_table_init(qr_token_table *table, const qr_text *texts, uint32_t token_count) {
    QR_ASSERT(token_count < UINT32_MAX / 4);
    uint32_t slot_count = 16;
    while (slot_count < 2 * token_count) slot_count *= 2;
    *table = (qr_token_table){texts, malloc((size_t)slot_count * sizeof(quire_token)), slot_count - 1};
    if (!table->slots) return false;
    memset(table->slots, 0xff, (size_t)slot_count * sizeof(quire_token)); /* -1 */
    return true;
}

void qr_token_table_deinit(qr_token_table *table) {
    free(table->slots);
    *table = (qr_token_table){0};
}

static bool same_text(qr_text a, qr_text b) { return a.size == b.size && memcmp(a.data, b.data, a.size) == 0; }

/* The slot of the text, or the empty slot where it belongs. */
static quire_token *find_slot(const qr_token_table *table, qr_text text) {
    uint32_t at = (uint32_t)hash_text(text) & table->mask;
    for (;; at = (at + 1) & table->mask) {
        quire_token *slot = &table->slots[at];
        if (*slot < 0 || same_text(table->texts[*slot], text)) return slot;
    }
}

void qr_token_table_insert(qr_token_table *table, quire_token token) { *find_slot(table, table->texts[token]) = token; }

quire_token qr_token_table_find(const qr_token_table *table, qr_text text) { return *find_slot(table, text); }

static bool is_printable(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

void qr_alphabet_init(qr_alphabet *alphabet) {
    memset(alphabet->bytes, 0xff, sizeof alphabet->bytes); /* -1 */
    int next = 256;
    for (int byte = 0; byte < 256; byte++) alphabet->bytes[is_printable(byte) ? byte : next++] = (int16_t)byte;
    QR_ASSERT(next == QR_ALPHABET_SIZE);
}

bool qr_alphabet_decode(const qr_alphabet *alphabet, qr_text text, char *to, size_t *size) {
    *size = 0;
    for (size_t at = 0; at < text.size;) {
        qr_utf8 c = qr_utf8_read(text.data + at, text.size - at);
        if (c.kind != QR_UTF8_CHARACTER || c.code_point >= QR_ALPHABET_SIZE) return false;
        if (alphabet->bytes[c.code_point] < 0) return false;
        to[(*size)++] = (char)alphabet->bytes[c.code_point];
        at += c.length;
    }
    return true;
}
