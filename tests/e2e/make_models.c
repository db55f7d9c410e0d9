/* make_models.c - writes the small and the header-only model files that the end-to-end tests need.
 *
 *   make_models FOLDER
 *
 * Header-only files have the keys and the tensor table of a real model and a hole where its data would be (sparse: they take
 * a few pages), so that `quire plan` can be asked about models that do not fit this machine.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/tiny_model.h"

enum { F32 = 0, F16 = 1, ALIGNMENT = 32 };

static void write_file(const char *folder, const char *name, const void *data, size_t size, uint64_t hole) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fflush(file)) abort();
    if (ftruncate(fileno(file), (off_t)(size + hole)) || fclose(file)) abort();
}

static void finish(const char *folder, const char *name, gguf_writer *w, uint64_t hole) {
    size_t size;
    uint8_t *file = gguf_writer_finish(w, &size);
    write_file(folder, name, file, size, hole);
    free(file);
    gguf_writer_deinit(w);
}

/* ---- header-only models ---- */

/* A tensor whose data lies in the hole; `at` moves past it. */
static void add_hole(gguf_writer *w, const char *name, uint32_t type, uint64_t k, uint64_t n, uint64_t *at) {
    uint64_t bytes = k * n * (type == F16 ? 2 : 4);
    gguf_writer_raw_tensor(w, name, type, (uint64_t[]){k, n}, n > 1 ? 2 : 1, *at);
    *at += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void add_layer(const tiny_model *m, gguf_writer *w, uint32_t layer, uint64_t *at) {
    const uint64_t e = m->embedding, f = m->feed_forward, q = (uint64_t)m->heads * m->key_dim;
    const struct {
        const char *name;
        uint64_t k, n; /* n 1: a norm */
    } tensors[] = {{"attn_norm", e, 1},
                   {"attn_q", e, q},
                   {"attn_k", e, (uint64_t)m->kv_heads * m->key_dim},
                   {"attn_v", e, (uint64_t)m->kv_heads * m->value_dim},
                   {"attn_output", (uint64_t)m->heads * m->value_dim, e},
                   {"ffn_norm", e, 1},
                   {"ffn_gate", e, f},
                   {"ffn_up", e, f},
                   {"ffn_down", f, e}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%u.%s.weight", layer, tensors[i].name);
        add_hole(w, name, tensors[i].n == 1 ? F32 : F16, tensors[i].k, tensors[i].n, at);
    }
}

static void write_header(const char *folder, const char *name, const tiny_model *m, bool declare_lengths) {
    gguf_writer w = {.omit = declare_lengths ? NULL : "llama.attention.key_length"};
    uint64_t at = 0;
    tiny_model_keys(m, &w);
    add_hole(&w, "token_embd.weight", F16, m->embedding, m->vocabulary, &at);
    add_hole(&w, "output.weight", F16, m->embedding, m->vocabulary, &at);
    add_hole(&w, "output_norm.weight", F32, m->embedding, 1, &at);
    for (uint32_t i = 0; i < m->layers; i++) add_layer(m, &w, i, &at);
    finish(folder, name, &w, at + ALIGNMENT); /* the data begins at the next multiple of it */
}

static tiny_model shape(uint32_t layers, uint32_t embedding, uint32_t key_dim, uint32_t value_dim) {
    tiny_model m = tiny_model_of(QR_WEIGHT_F16);
    m.layers = layers;
    m.embedding = embedding;
    m.heads = 32;
    m.kv_heads = 8;
    m.key_dim = key_dim;
    m.value_dim = value_dim;
    m.feed_forward = 2 * embedding;
    m.context = 131072;
    return m;
}

static void write_headers(const char *folder) {
    tiny_model llama3_8b = shape(32, 4096, 128, 128);
    llama3_8b.feed_forward = 14336;
    llama3_8b.vocabulary = 128256;
    llama3_8b.context = 8192;
    const tiny_model forty = shape(40, 5120, 128, 128), thirty_six = shape(36, 4096, 128, 128);
    const tiny_model unequal = shape(36, 4096, 192, 128), fallen_back = shape(40, 5120, 160, 160);
    write_header(folder, "llama3_8b", &llama3_8b, true);
    write_header(folder, "forty", &forty, true);
    write_header(folder, "thirty_six", &thirty_six, true);
    write_header(folder, "unequal", &unequal, true);
    write_header(folder, "fallen_back", &fallen_back, false);
}

/* ---- small whole models ---- */

static const char chatml[] = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
                             "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' "
                             "}}{% endif %}";

/* `key` gets another text than a tiny model's own. */
static void write_tiny(const char *folder, const char *name, const char *key, const char *text) {
    const tiny_model m = tiny_model_of(QR_WEIGHT_Q8_0);
    gguf_writer w = {.omit = key};
    tiny_model_keys(&m, &w);
    tiny_model_tensors(&m, &w);
    w.omit = NULL;
    gguf_writer_text(&w, key, text);
    finish(folder, name, &w, 0);
}

/* The embedding of the byte 'Z' is no number: a prompt that has it gives unusable logits, any other prompt does not. */
static void write_spoiled(const char *folder) {
    tiny_model m = tiny_model_of(QR_WEIGHT_F32);
    enum { LETTER_Z = 3 + 'Z' };
    m.explicit_head = true;
    gguf_writer w = {0};
    tiny_model_keys(&m, &w);
    tiny_model_tensors(&m, &w);
    for (size_t i = 0; i < m.embedding; i++) { /* token_embd.weight is the first tensor */
        const float none = NAN;
        memcpy(w.data.data + (LETTER_Z * m.embedding + i) * sizeof none, &none, sizeof none);
    }
    finish(folder, "spoiled", &w, 0);
}

/* Two models that differ in nothing but their weights. Computing a block takes longer than reading it from a disk. */
static void write_twin(const char *folder, const char *name, uint64_t seed) {
    tiny_model m = tiny_model_of(QR_WEIGHT_Q8_0);
    m.layers = 3;
    m.embedding = 512;
    m.heads = 8;
    m.key_dim = m.value_dim = 64;
    m.feed_forward = 6144;
    m.context = 4096;
    m.seed = seed;
    gguf_writer w = {0};
    tiny_model_keys(&m, &w);
    tiny_model_tensors(&m, &w);
    finish(folder, name, &w, 0);
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: make_models FOLDER\n"), 64;
    write_headers(argv[1]);
    write_tiny(argv[1], "odd_name", "general.name", "a \"quoted\" \\ name\nof two lines \xc3\xa9 \xff");
    write_tiny(argv[1], "chat", "tokenizer.chat_template", chatml);
    write_tiny(argv[1], "odd_template", "tokenizer.chat_template", "{% import 'os' as os %}{{ os.name }}");
    write_spoiled(argv[1]);
    write_twin(argv[1], "twin_a", 1);
    write_twin(argv[1], "twin_b", 2);
    return 0;
}
