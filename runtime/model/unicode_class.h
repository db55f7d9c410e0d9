/* unicode_class.h - what a code point is to a pre-tokenizer.
 *
 * Tables agree with the reference tokenizer's own (see unicode_ranges.h), not with a library of the system, so ids do not
 * depend on the machine.
 */
#ifndef QR_MODEL_UNICODE_CLASS_H
#define QR_MODEL_UNICODE_CLASS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum qr_unicode_class {
    QR_UNICODE_OTHER, /* punctuation, marks, symbols, controls, unassigned, bytes that are not UTF-8 */
    QR_UNICODE_LETTER,
    QR_UNICODE_NUMBER,
    QR_UNICODE_NUMERIC, /* a number to Digits only; to regular expressions it is OTHER */
    QR_UNICODE_SPACE,
} qr_unicode_class;

qr_unicode_class qr_unicode_class_of(uint32_t code_point);
/* Takes part in the reference's normalisation: combines, has a decomposition or is part of one. */
bool qr_unicode_joins(uint32_t code_point);
#endif
