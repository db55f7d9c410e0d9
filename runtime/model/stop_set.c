/* stop_set.c - see stop_set.h. */
#include "runtime/model/stop_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "runtime/model/text_stream.h"

typedef struct stop_matcher {
    char *text;
    uint16_t *fallback; /* [size] longest proper prefix that also ends text[0 .. i] */
    size_t size;
} stop_matcher;

struct qr_stop_set {
    uint32_t count;
    stop_matcher stops[QR_STOP_STRINGS_MAX];
};

_Static_assert(QR_STOP_BYTES_MAX <= UINT16_MAX, "a fallback holds any length");

static size_t matcher_advance(const stop_matcher *stop, size_t matched, char byte) {
    while (matched > 0 && stop->text[matched] != byte) matched = stop->fallback[matched - 1];
    return stop->text[matched] == byte ? matched + 1 : 0;
}

static quire_status matcher_init(stop_matcher *stop, qr_text text) {
    if (text.size == 0 || text.size > QR_STOP_BYTES_MAX || !qr_text_is_utf8(text.data, text.size)) return QUIRE_INVALID;
    stop->text = malloc(text.size);
    stop->fallback = malloc(text.size * sizeof *stop->fallback);
    if (!stop->text || !stop->fallback) return QUIRE_NO_MEMORY;
    memcpy(stop->text, text.data, text.size);
    stop->size = text.size;
    stop->fallback[0] = 0;
    for (size_t i = 1; i < text.size; i++)
        stop->fallback[i] = (uint16_t)matcher_advance(stop, stop->fallback[i - 1], text.data[i]);
    return QUIRE_OK;
}

quire_status qr_stop_set_create(const qr_text *stops, uint32_t count, qr_stop_set **out) {
    *out = NULL;
    if (count > QR_STOP_STRINGS_MAX) return QUIRE_INVALID;
    qr_stop_set *set = calloc(1, sizeof *set);
    if (!set) return QUIRE_NO_MEMORY;
    quire_status status = QUIRE_OK;
    for (; set->count < count && status == QUIRE_OK; set->count++)
        status = matcher_init(&set->stops[set->count], stops[set->count]);
    if (status == QUIRE_OK) *out = set;
    else qr_stop_set_destroy(set);
    return status;
}

void qr_stop_set_destroy(qr_stop_set *set) {
    if (!set) return;
    for (uint32_t i = 0; i < set->count; i++) {
        free(set->stops[i].text);
        free(set->stops[i].fallback);
    }
    free(set);
}

uint32_t qr_stop_set_count(const qr_stop_set *set) { return set->count; }

size_t qr_stop_set_size(const qr_stop_set *set, uint32_t index) {
    QR_ASSERT(index < set->count);
    return set->stops[index].size;
}

size_t qr_stop_set_longest(const qr_stop_set *set) {
    size_t longest = 0;
    for (uint32_t i = 0; i < set->count; i++)
        if (set->stops[i].size > longest) longest = set->stops[i].size;
    return longest;
}

bool qr_stop_set_has(const qr_stop_set *set, qr_text text) {
    for (uint32_t i = 0; i < set->count; i++)
        if (set->stops[i].size == text.size && memcmp(set->stops[i].text, text.data, text.size) == 0) return true;
    return false;
}

size_t qr_stop_set_advance(const qr_stop_set *set, uint32_t index, size_t matched, char byte) {
    QR_ASSERT(index < set->count && matched < set->stops[index].size);
    return matcher_advance(&set->stops[index], matched, byte);
}
