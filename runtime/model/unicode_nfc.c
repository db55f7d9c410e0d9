/* unicode_nfc.c - decompose, put combining marks in order, compose (UAX #15). */
#include "runtime/model/unicode_nfc.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/assertion.h"
#include "runtime/model/unicode_class.h"
#include "runtime/model/unicode_utf8.h"

/* Code points of the longest canonical decomposition (Unicode promises that it stays so). */
enum { DECOMPOSITION_MAX = 4 };

void qr_nfc_deinit(qr_nfc *nfc) {
    free(nfc->code_points);
    free(nfc->sorted);
    free(nfc->bytes);
    *nfc = (qr_nfc){0};
}

/* No code point below U+0300 (CC 80) is changed by NFC or combines: text without a byte from CC up has no affected code point.
 */
static bool is_unaffected(qr_text in) {
    for (size_t i = 0; i < in.size; i++) {
        if ((unsigned char)in.data[i] >= 0xcc) return false;
    }
    return true;
}

static bool reserve_code_points(qr_nfc *nfc, size_t count) {
    if (count <= nfc->capacity) return true;
    if (count > SIZE_MAX / (2 * sizeof(int32_t))) return false;
    size_t capacity = count + count / 2;
    int32_t *code_points = realloc(nfc->code_points, capacity * sizeof *code_points);
    if (code_points) nfc->code_points = code_points;
    int32_t *sorted = realloc(nfc->sorted, capacity * sizeof *sorted);
    if (sorted) nfc->sorted = sorted;
    if (!code_points || !sorted) return false;
    nfc->capacity = capacity;
    return true;
}

static bool reserve_bytes(qr_nfc *nfc, size_t more) {
    size_t need = nfc->byte_count + more;
    if (need <= nfc->byte_capacity) return true;
    size_t capacity = need + need / 2;
    char *bytes = realloc(nfc->bytes, capacity);
    if (!bytes) return false;
    nfc->bytes = bytes;
    nfc->byte_capacity = capacity;
    return true;
}

/* Canonical decomposition of the run at `in` of code points that take part; *read gets the bytes it took. */
static bool decompose(qr_nfc *nfc, qr_text in, size_t *read, size_t *count) {
    *read = *count = 0;
    while (*read < in.size) {
        qr_utf8 c = qr_utf8_read(in.data + *read, in.size - *read);
        if (c.kind != QR_UTF8_CHARACTER || !qr_unicode_joins(c.code_point)) break;
        if (!reserve_code_points(nfc, *count + DECOMPOSITION_MAX)) return false;
        int boundary = 0;
        utf8proc_ssize_t made = utf8proc_decompose_char((int32_t)c.code_point, nfc->code_points + *count, DECOMPOSITION_MAX,
                                                        UTF8PROC_DECOMPOSE, &boundary);
        QR_ASSERT(made > 0 && made <= DECOMPOSITION_MAX);
        *count += (size_t)made;
        *read += c.length;
    }
    return true;
}

static int combining_class(int32_t code_point) { return utf8proc_get_property(code_point)->combining_class; }

static bool is_ordered(const int32_t *marks, size_t count) {
    for (size_t i = 1; i < count; i++) {
        if (combining_class(marks[i - 1]) > combining_class(marks[i])) return false;
    }
    return true;
}

/* Stable counting sort by combining class (1 .. 255). */
static void sort_marks(int32_t *marks, int32_t *sorted, size_t count) {
    if (is_ordered(marks, count)) return;
    size_t starts[257] = {0};
    for (size_t i = 0; i < count; i++) starts[combining_class(marks[i]) + 1]++;
    for (size_t c = 1; c < 257; c++) starts[c] += starts[c - 1];
    for (size_t i = 0; i < count; i++) sorted[starts[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, sorted, count * sizeof *marks);
}

static void order_marks(qr_nfc *nfc, size_t count) {
    for (size_t i = 0; i < count;) {
        size_t end = i;
        while (end < count && combining_class(nfc->code_points[end]) > 0) end++;
        sort_marks(nfc->code_points + i, nfc->sorted, end - i);
        i = end + 1;
    }
}

static bool append_composed(qr_nfc *nfc, size_t count) {
    utf8proc_ssize_t composed =
        utf8proc_normalize_utf32(nfc->code_points, (utf8proc_ssize_t)count, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    QR_ASSERT(composed >= 0 && (size_t)composed <= count);
    if (!reserve_bytes(nfc, 4 * (size_t)composed)) return false;
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        nfc->byte_count += qr_utf8_write((uint32_t)nfc->code_points[i], nfc->bytes + nfc->byte_count);
    }
    return true;
}

/* A code point that takes no part, or a byte that is not UTF-8. */
static bool copy_next(qr_nfc *nfc, qr_text *in) {
    qr_utf8 c = qr_utf8_read(in->data, in->size);
    size_t length = c.kind == QR_UTF8_CHARACTER ? c.length : 1;
    if (!reserve_bytes(nfc, length)) return false;
    memcpy(nfc->bytes + nfc->byte_count, in->data, length);
    nfc->byte_count += length;
    *in = (qr_text){in->data + length, in->size - length};
    return true;
}

bool qr_nfc_normalize(qr_nfc *nfc, qr_text in, qr_text *out) {
    *out = in;
    if (is_unaffected(in)) return true;
    nfc->byte_count = 0;
    while (in.size > 0) {
        size_t read, count;
        if (!decompose(nfc, in, &read, &count)) return false;
        order_marks(nfc, count);
        if (!append_composed(nfc, count)) return false;
        in = (qr_text){in.data + read, in.size - read};
        if (in.size == 0) break;
        if (!copy_next(nfc, &in)) return false;
    }
    *out = (qr_text){nfc->bytes, nfc->byte_count};
    return true;
}
