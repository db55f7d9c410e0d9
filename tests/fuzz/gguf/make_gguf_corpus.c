/* make_gguf_corpus.c FOLDER - seeds for the GGUF fuzzer: small whole models, and headers with each value type. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/tiny_model.h"

static int save(const char *folder, const char *name, gguf_writer *w) {
    char path[4096];
    size_t size;
    uint8_t *file = gguf_writer_finish(w, &size);
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(file, 1, size, f) == size;
    if (f && fclose(f)) ok = false;
    gguf_writer_deinit(w);
    free(file);
    return ok ? 0 : 1;
}

static int save_model(const char *folder, const char *name, tiny_model model) {
    gguf_writer w = {0};
    model.layers = 1;
    model.heads = 2;
    model.kv_heads = 1;
    model.key_dim = model.value_dim = 16;
    model.embedding = model.feed_forward = 32;
    model.vocabulary = 8;
    tiny_model_keys(&model, &w);
    tiny_model_tensors(&model, &w);
    return save(folder, name, &w);
}

static void add_values(gguf_writer *w) {
    static const uint8_t bytes[8] = {1, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t sizes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    for (uint32_t type = 0; type < 13; type++) {
        char key[8];
        (void)snprintf(key, sizeof key, "k%u", type);
        if (sizes[type]) gguf_writer_raw(w, key, type, bytes, sizes[type]);
    }
    gguf_writer_text(w, "k", "text");
    gguf_writer_texts(w, "texts", (const char *[]){"a", "", "ccc"}, 3);
    gguf_writer_i32s(w, "numbers", (int32_t[]){1, -1, 7}, 3);
    gguf_writer_u32(w, "general.alignment", 64);
    w->alignment = 64;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    tiny_model tied = tiny_model_of(QR_WEIGHT_Q8_0), untied = tiny_model_of(QR_WEIGHT_Q4_1),
               scaled = tiny_model_of(QR_WEIGHT_F16);
    untied.explicit_head = untied.mixed = true;
    scaled.rope_factors = true;
    scaled.linear_scale = 2;
    gguf_writer values = {0}, empty = {0}, old = {.version = 2};
    add_values(&values);
    gguf_writer_tensor(&values, "t", 0, (uint64_t[]){2, 2}, 2, (float[]){1, 2, 3, 4}, 16);
    gguf_writer_text(&old, "general.architecture", "other");
    return save_model(argv[1], "tied_q8_0", tied) | save_model(argv[1], "mixed_q4_1", untied) |
           save_model(argv[1], "scaled_f16", scaled) | save(argv[1], "values", &values) | save(argv[1], "empty", &empty) |
           save(argv[1], "version_2", &old);
}
