#include "runtime/cli/input_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

quire_status qr_input_text_read(FILE *file, char **text, size_t *size, quire_error *error) {
    size_t capacity = 0;
    *text = NULL;
    *size = 0;
    do {
        if (*size + 1 >= capacity) {
            capacity = capacity ? capacity * 2 : 65536;
            char *grown = realloc(*text, capacity);
            if (!grown) goto no_memory;
            *text = grown;
        }
        *size += fread(*text + *size, 1, capacity - *size - 1, file);
    } while (!feof(file) && !ferror(file));
    (*text)[*size] = 0;
    if (!ferror(file)) return QUIRE_OK;
    free(*text);
    *text = NULL;
    *size = 0;
    return qr_fail(error, QUIRE_IO, "standard input", QR_NO_OFFSET, "cannot be read: %s", strerror(errno));
no_memory:
    free(*text);
    *text = NULL;
    *size = 0;
    return qr_fail(error, QUIRE_NO_MEMORY, "standard input", QR_NO_OFFSET, "does not fit in memory");
}
