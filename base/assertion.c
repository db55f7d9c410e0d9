/* assertion.c - how a broken promise ends the process. */
#include "base/assertion.h"

#include <stdio.h>
#include <stdlib.h>

void qr_assert_failed(const char *file, int line, const char *expression) {
    fprintf(stderr, "quire: %s:%d: assertion failed: %s\n", file, line, expression);
    abort();
}
