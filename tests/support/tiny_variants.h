/* tiny_variants.h - the tiny models that have goldens: one per tensor type, and those with something special. */
#ifndef QR_TESTS_TINY_VARIANTS_H
#define QR_TESTS_TINY_VARIANTS_H

#include "tests/support/tiny_model.h"

enum { TINY_VARIANTS = QR_WEIGHT_TYPE_COUNT + 4 };

/* index below TINY_VARIANTS; returns the variant's name. */
const char *tiny_variant(int index, tiny_model *model);
#endif
