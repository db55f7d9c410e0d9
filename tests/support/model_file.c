/* model_file.c - see model_file.h. */
#include "tests/support/model_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char model_name[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

bool find_model_file(char *path, size_t size) {
    const char *chosen = getenv("QUIRE_MODEL"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (chosen && *chosen) (void)snprintf(path, size, "%s", chosen);
    else if (cache && *cache) (void)snprintf(path, size, "%s/quire/models/%s", cache, model_name);
    else (void)snprintf(path, size, "%s/.cache/quire/models/%s", home ? home : "", model_name);
    return access(path, R_OK) == 0;
}
