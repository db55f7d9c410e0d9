/* unicode_nfc.h - Normalization Form C of text that may hold bytes that are not UTF-8 (those stay as they are).
 *
 * Canonical data from libutf8proc, for the code points that the reference's NFC knows (unicode_ranges.h). Time is near linear
 * on any input: runs of combining marks are sorted by merging, where the library's own ordering is quadratic.
 */
#ifndef QR_MODEL_UNICODE_NFC_H
#define QR_MODEL_UNICODE_NFC_H

#include <stdbool.h>

#include "runtime/model/tokenizer.h"

/* Working memory and result; zero-initialised, reusable. */
typedef struct qr_nfc {
    int32_t *code_points;
    int32_t *sorted;
    size_t capacity;
    char *bytes;
    size_t byte_count, byte_capacity;
} qr_nfc;

void qr_nfc_deinit(qr_nfc *nfc);
/* *out borrows the input where it is in NFC already for a cheap reason, else the working memory. False: out of memory. */
bool qr_nfc_normalize(qr_nfc *nfc, qr_text in, qr_text *out);
#endif
