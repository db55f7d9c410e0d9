/* tier_settings.c - see tier_settings.h. */
#include "runtime/cli/tier_settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "runtime/cli/size_text.h"

quire_status qr_daily_size_parse(const char *text, uint64_t *bytes) {
    static const char day[] = "/day";
    char size[64];
    size_t length = strlen(text), suffix = sizeof day - 1;
    *bytes = 0;
    if (length > suffix && strcmp(text + length - suffix, day) == 0) length -= suffix;
    if (length >= sizeof size) return QUIRE_INVALID;
    memcpy(size, text, length);
    size[length] = 0;
    return qr_size_parse(size, bytes);
}

quire_status qr_verify_parse(const char *text, uint64_t *every) {
    enum { SAMPLE_MAX = 1000000 };
    static const char sample[] = "sample=";
    *every = strcmp(text, "always") == 0;
    if (*every || strcmp(text, "off") == 0) return QUIRE_OK;
    const char *digits = text + sizeof sample - 1;
    if (strncmp(text, sample, sizeof sample - 1) != 0 || !isdigit((unsigned char)*digits)) return QUIRE_INVALID;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(digits, &end, 10);
    if (errno || *end || number < 2 || number > SAMPLE_MAX) return QUIRE_INVALID;
    *every = number;
    return QUIRE_OK;
}

/* Of the folder, or of the nearest one above it that is there; false: not even that can be asked. */
static bool statvfs_of(const char *folder, struct statvfs *space) {
    char *path = strdup(folder);
    if (!path) return false;
    int failed = statvfs(path, space);
    while (failed && errno == ENOENT && strcmp(path, "/") != 0 && strcmp(path, ".") != 0) {
        char *slash = strrchr(path, '/');
        if (!slash) strcpy(path, "."); /* no path is empty, so there is room for it */
        else if (slash == path) slash[1] = 0;
        else *slash = 0;
        failed = statvfs(path, space);
    }
    free(path);
    return !failed;
}

uint64_t qr_disk_cache_max_default(const char *folder) {
    const uint64_t most = (uint64_t)20 << 30;
    struct statvfs space;
    if (!statvfs_of(folder, &space)) return most; /* opening it will say why */
    uint64_t quarter = (uint64_t)space.f_blocks * space.f_frsize / 4;
    return quarter && quarter < most ? quarter : most; /* one without a size, such as /proc: opening says why it will not do */
}

bool qr_disk_holds(const char *folder, uint64_t bytes, uint64_t *total_bytes) {
    struct statvfs space;
    *total_bytes = 0;
    if (!statvfs_of(folder, &space)) return true;
    *total_bytes = (uint64_t)space.f_blocks * space.f_frsize;
    return *total_bytes == 0 || bytes < *total_bytes;
}
