/* config_file.c - reads the whole file, then cuts it into strings in place. */
#include "runtime/cli/config_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { FILE_BYTES_MAX = 1 << 20 };

static quire_status read_whole(FILE *file, const char *path, char **text, quire_error *error) {
    char *bytes = malloc(FILE_BYTES_MAX + 1);
    if (!bytes) return qr_fail(error, QUIRE_NO_MEMORY, path, QR_NO_OFFSET, "no memory to read it");
    size_t size = fread(bytes, 1, FILE_BYTES_MAX + 1, file);
    *text = bytes;
    if (ferror(file)) return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "cannot be read: %s", strerror(errno));
    if (size > FILE_BYTES_MAX) return qr_fail(error, QUIRE_FORMAT, path, QR_NO_OFFSET, "is larger than 1 MiB");
    if (memchr(bytes, 0, size)) return qr_fail(error, QUIRE_FORMAT, path, QR_NO_OFFSET, "has a zero byte: not a text file");
    bytes[size] = 0;
    return QUIRE_OK;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static char *trim(char *text) {
    while (is_blank(*text)) text++;
    size_t size = strlen(text);
    while (size && is_blank(text[size - 1])) text[--size] = 0;
    return text;
}

static quire_status take_line(const char *path, char *line, unsigned number, qr_config_entry_fn *entry, void *context,
                              quire_error *error) {
    char *key = trim(line);
    if (*key == 0 || *key == '#') return QUIRE_OK;
    char *equals = strchr(key, '=');
    if (!equals) return qr_fail(error, QUIRE_FORMAT, path, QR_NO_OFFSET, "line %u is not `key = value`", number);
    *equals = 0;
    key = trim(key);
    if (*key == 0) return qr_fail(error, QUIRE_FORMAT, path, QR_NO_OFFSET, "line %u has no key before '='", number);
    return entry(context, key, trim(equals + 1), number, error);
}

quire_status qr_config_file_read(const char *path, qr_config_entry_fn *entry, void *context, char **text, quire_error *error) {
    *text = NULL;
    FILE *file = fopen(path, "re");
    if (!file) return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "cannot be opened: %s", strerror(errno));
    quire_status status = read_whole(file, path, text, error);
    fclose(file);
    unsigned number = 0;
    for (char *line = *text; status == QUIRE_OK && line;) {
        char *next = strchr(line, '\n');
        if (next) *next++ = 0;
        status = take_line(path, line, ++number, entry, context, error);
        line = next;
    }
    return status;
}
