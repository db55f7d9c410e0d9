/* api_keys.c - see api_keys.h. */
#include "runtime/server/api_keys.h"

#include "base/error.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static bool keys_add(qr_api_keys *keys, const char *key) {
    char **grown = realloc(keys->keys, (keys->count + 1) * sizeof *grown);
    if (!grown) return false;
    keys->keys = grown;
    keys->keys[keys->count] = strdup(key);
    return keys->keys[keys->count] != NULL && ++keys->count;
}

/* Blanks around a key do not count: a header's value has none, so such a key could never be shown. */
static const char *line_trim(char *line, size_t end) {
    while (end && strchr(" \t", line[end - 1])) end--;
    line[end] = 0;
    return line + strspn(line, " \t");
}

static quire_status keys_read(FILE *file, const char *path, qr_api_keys *keys, quire_error *error) {
    char line[1024];
    while (fgets(line, sizeof line, file)) {
        size_t end = strcspn(line, "\r\n");
        if (!line[end] && !feof(file))
            return qr_fail(error, QUIRE_FORMAT, path, QR_NO_OFFSET, "a key is longer than 1022 bytes");
        const char *key = line_trim(line, end);
        if (key[0] && key[0] != '#' && !keys_add(keys, key))
            return qr_fail(error, QUIRE_NO_MEMORY, path, QR_NO_OFFSET, "no memory");
    }
    if (keys->count == 0) return qr_fail(error, QUIRE_FORMAT, path, QR_NO_OFFSET, "the file holds no key");
    return QUIRE_OK;
}

quire_status qr_api_keys_load(const char *path, qr_api_keys *keys, quire_error *error) {
    *keys = (qr_api_keys){0};
    FILE *file = fopen(path, "re");
    struct stat info;
    if (!file || fstat(fileno(file), &info) < 0) {
        quire_status status = qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "the key file cannot be read: %s", strerror(errno));
        if (file) fclose(file);
        return status;
    }
    quire_status status = info.st_mode & 077 ? qr_fail(error, QUIRE_FORMAT, path, QR_NO_OFFSET,
                                                       "the key file may be read by others (mode %04o); make it 0600",
                                                       (unsigned)info.st_mode & 07777u)
                                             : keys_read(file, path, keys, error);
    fclose(file);
    if (status != QUIRE_OK) qr_api_keys_deinit(keys);
    return status;
}

void qr_api_keys_deinit(qr_api_keys *keys) {
    for (size_t i = 0; i < keys->count; i++) {
        explicit_bzero(keys->keys[i], strlen(keys->keys[i]));
        free(keys->keys[i]);
    }
    free(keys->keys);
    *keys = (qr_api_keys){0};
}

/* Time depends on the length of what the client sent, never on the key. */
static bool key_equal(const char *key, const char *shown) {
    size_t length = strlen(key);
    volatile unsigned char difference = (unsigned char)(length != strlen(shown));
    for (size_t i = 0; shown[i]; i++)
        difference = (unsigned char)(difference | ((unsigned char)shown[i] ^ (unsigned char)key[length ? i % length : 0]));
    return difference == 0;
}

bool qr_api_keys_allow(const qr_api_keys *keys, const char *authorization) {
    if (keys->count == 0) return true;
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0) return false;
    const char *shown = authorization + 7;
    while (*shown == ' ') shown++;
    bool allowed = false;
    for (size_t i = 0; i < keys->count; i++) allowed |= key_equal(keys->keys[i], shown);
    return allowed;
}
