/* make_tiny_models.c FOLDER - writes every variant of tiny_variants.h as FOLDER/<name>.gguf, for make_tiny_goldens.py. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/tiny_variants.h"

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    for (int i = 0; i < TINY_VARIANTS; i++) {
        tiny_model model;
        size_t size;
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/%s.gguf", argv[1], tiny_variant(i, &model));
        uint8_t *file = tiny_model_file(&model, &size);
        FILE *f = fopen(path, "wb");
        bool ok = f && fwrite(file, 1, size, f) == size;
        if ((f && fclose(f)) || !ok) return perror(path), 1;
        free(file);
    }
    return 0;
}
