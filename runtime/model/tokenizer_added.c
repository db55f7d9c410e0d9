/* tokenizer_added.c - sorted set of added tokens. */
#include "runtime/model/tokenizer_added.h"

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"

static int compare(const void *left, const void *right) {
    const qr_added_token *a = left, *b = right;
    size_t shorter = a->text.size < b->text.size ? a->text.size : b->text.size;
    int order = memcmp(a->text.data, b->text.data, shorter);
    if (order) return order;
    if (a->text.size != b->text.size) return a->text.size < b->text.size ? -1 : 1;
    return a->id < b->id ? 1 : a->id > b->id ? -1 : 0;
}

void qr_added_set_init(qr_added_set *set, qr_added_token *tokens, uint32_t count) {
    *set = (qr_added_set){.tokens = tokens, .count = count};
    if (count > 1) qsort(tokens, count, sizeof *tokens, compare);
    for (uint32_t i = 0; i < count; i++) {
        QR_ASSERT(tokens[i].text.size > 0 && tokens[i].text.size <= QR_ADDED_TOKEN_BYTES_MAX);
        set->first_bytes[(unsigned char)tokens[i].text.data[0]] = true;
    }
}

void qr_added_set_deinit(qr_added_set *set) {
    free(set->tokens);
    *set = (qr_added_set){0};
}

/* First of [low, high), whose tokens agree in `depth` bytes, that is longer and whose next byte is at least `byte`. */
static uint32_t lower_bound(const qr_added_set *set, uint32_t low, uint32_t high, size_t depth, int byte) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const qr_text *text = &set->tokens[middle].text;
        if (text->size <= depth || (unsigned char)text->data[depth] < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The longest token that the text begins with. */
static const qr_added_token *longest_at(const qr_added_set *set, qr_text text) {
    const qr_added_token *best = NULL;
    uint32_t low = 0, high = set->count;
    for (size_t depth = 0; depth < text.size && low < high; depth++) {
        int byte = (unsigned char)text.data[depth];
        low = lower_bound(set, low, high, depth, byte);
        high = lower_bound(set, low, high, depth, byte + 1);
        /* A token of exactly depth + 1 bytes sorts before those that it begins. */
        if (low < high && set->tokens[low].text.size == depth + 1) best = &set->tokens[low];
    }
    return best;
}

const qr_added_token *qr_added_set_find(const qr_added_set *set, qr_text text, size_t at, size_t *found_at) {
    if (set->count > 0) {
        for (; at < text.size; at++) {
            if (!set->first_bytes[(unsigned char)text.data[at]]) continue;
            const qr_added_token *token = longest_at(set, (qr_text){text.data + at, text.size - at});
            if (!token) continue;
            *found_at = at;
            return token;
        }
    }
    *found_at = text.size;
    return NULL;
}
