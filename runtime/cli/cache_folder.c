#include "runtime/cli/cache_folder.h"

#include <stdio.h>
#include <stdlib.h>

bool qr_cache_folder(const char *part, char *path, size_t size) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (cache && cache[0] == '/') length = snprintf(path, size, "%s/quire/%s", cache, part);
    else if (home && home[0] == '/') length = snprintf(path, size, "%s/.cache/quire/%s", home, part);
    bool fits = length >= 0 && (size_t)length < size;
    if (!fits) path[0] = '\0';
    return fits;
}
