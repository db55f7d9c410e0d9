/* tiny_model.c - see tiny_model.h. Quantised blocks are random bytes with scales that keep activations near one, so that
 * a wrong bit anywhere shows in the logits. */
#include "tests/support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/float16.h"
#include "base/random.h"

static const uint32_t ggml_type[QR_WEIGHT_TYPE_COUNT] = {
    [QR_WEIGHT_F32] = 0,   [QR_WEIGHT_F16] = 1,   [QR_WEIGHT_BF16] = 30, [QR_WEIGHT_Q8_0] = 8,
    [QR_WEIGHT_Q4_0] = 2,  [QR_WEIGHT_Q4_1] = 3,  [QR_WEIGHT_Q5_0] = 6,  [QR_WEIGHT_Q5_1] = 7,
    [QR_WEIGHT_Q4_K] = 12, [QR_WEIGHT_Q5_K] = 13, [QR_WEIGHT_Q6_K] = 14,
};

/* Where a block keeps its f16 scale and minimum, and values that make its weights about 0.1 wide (0.05 for rows of 256) (-1:
 * none). */
typedef struct block_scales {
    int scale_at, minimum_at;
    float scale, minimum;
} block_scales;

static const block_scales scales_of[QR_WEIGHT_TYPE_COUNT] = {
    [QR_WEIGHT_Q8_0] = {0, -1, 0.0016f, 0},      [QR_WEIGHT_Q4_0] = {0, -1, 0.026f, 0},
    [QR_WEIGHT_Q4_1] = {0, 2, 0.026f, -0.195f},  [QR_WEIGHT_Q5_0] = {0, -1, 0.013f, 0},
    [QR_WEIGHT_Q5_1] = {0, 2, 0.013f, -0.2f},    [QR_WEIGHT_Q4_K] = {0, 2, 0.0002f, 0.0016f},
    [QR_WEIGHT_Q5_K] = {0, 2, 0.0001f, 0.0016f}, [QR_WEIGHT_Q6_K] = {208, -1, 0.00003f, 0},
};

tiny_model tiny_model_of(qr_weight_type type) {
    uint32_t dim = qr_weight_block_elements(type) == 256 ? 256 : 64;
    return (tiny_model){
        .type = type,
        .layers = 2,
        .heads = 4,
        .kv_heads = 2,
        .key_dim = dim / 4,
        .value_dim = dim / 4,
        .embedding = dim,
        .feed_forward = dim == 64 ? 96 : 256,
        .vocabulary = TINY_VOCABULARY,
        .context = 1024,
        .seed = 1,
    };
}

/* ---- vocabulary: three control tokens, the 256 byte letters of GPT-2, then plain words ---- */

static void byte_letter(unsigned byte, char *text) {
    bool plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    unsigned shifted = byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67; /* place among the bytes that are not plain */
    unsigned code = plain ? byte : 256 + shifted;
    if (code < 128) (void)snprintf(text, 4, "%c", (char)code);
    else (void)snprintf(text, 4, "%c%c", (char)(0xc0u | code >> 6), (char)(0x80u | (code & 63u)));
}

static void add_vocabulary(const tiny_model *m, gguf_writer *w) {
    static const char *const control[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    enum { CONTROL = 3, BYTES = 256, TEXT_MAX = 16 };
    char(*texts)[TEXT_MAX] = calloc(m->vocabulary, sizeof *texts);
    const char **tokens = calloc(m->vocabulary, sizeof *tokens);
    int32_t *kinds = calloc(m->vocabulary, sizeof *kinds);
    if (!texts || !tokens || !kinds) abort();
    for (uint32_t i = 0; i < m->vocabulary; i++) {
        tokens[i] = texts[i];
        kinds[i] = i < CONTROL ? 3 : 1;
        if (i < CONTROL) (void)snprintf(texts[i], TEXT_MAX, "%s", control[i]);
        else if (i < CONTROL + BYTES) byte_letter(i - CONTROL, texts[i]);
        else (void)snprintf(texts[i], TEXT_MAX, "word%u", i);
    }
    gguf_writer_texts(w, "tokenizer.ggml.tokens", tokens, m->vocabulary);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", kinds, m->vocabulary);
    gguf_writer_texts(w, "tokenizer.ggml.merges", NULL, 0);
    free(texts);
    free(tokens);
    free(kinds);
}

void tiny_model_keys(const tiny_model *m, gguf_writer *w) {
    gguf_writer_text(w, "general.architecture", "llama");
    gguf_writer_text(w, "general.name", "tiny");
    gguf_writer_u32(w, "llama.block_count", m->layers);
    gguf_writer_u32(w, "llama.context_length", m->context);
    gguf_writer_u32(w, "llama.embedding_length", m->embedding);
    gguf_writer_u32(w, "llama.feed_forward_length", m->feed_forward);
    gguf_writer_u32(w, "llama.attention.head_count", m->heads);
    gguf_writer_u32(w, "llama.attention.head_count_kv", m->kv_heads);
    gguf_writer_u32(w, "llama.attention.key_length", m->key_dim);
    gguf_writer_u32(w, "llama.attention.value_length", m->value_dim);
    gguf_writer_u32(w, "llama.rope.dimension_count", m->key_dim);
    gguf_writer_f32(w, "llama.rope.freq_base", 10000.0f);
    gguf_writer_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (m->linear_scale != 0.0f) {
        gguf_writer_text(w, "llama.rope.scaling.type", "linear");
        gguf_writer_f32(w, "llama.rope.scaling.factor", m->linear_scale);
    }
    gguf_writer_text(w, "tokenizer.ggml.model", "gpt2");
    gguf_writer_text(w, "tokenizer.ggml.pre", "smollm");
    add_vocabulary(m, w);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 2);
}

/* ---- tensors ---- */

static void random_floats(qr_weight_type type, uint8_t *out, size_t count, qr_random *r) {
    for (size_t i = 0; i < count; i++) {
        float value = (float)(qr_random_unit(r) - 0.5) * 0.4f;
        uint16_t half = type == QR_WEIGHT_F16 ? qr_f32_to_f16(value) : qr_f32_to_bf16(value);
        if (type == QR_WEIGHT_F32) memcpy(out + i * 4, &value, 4);
        else memcpy(out + i * 2, &half, 2);
    }
}

static void random_blocks(qr_weight_type type, uint8_t *out, size_t blocks, qr_random *r) {
    const block_scales *s = &scales_of[type];
    size_t bytes = qr_weight_block_bytes(type);
    for (size_t i = 0; i < blocks * bytes; i++) out[i] = (uint8_t)qr_random_u64(r);
    for (size_t i = 0; i < blocks; i++) {
        float vary = 0.75f + 0.5f * (float)qr_random_unit(r);
        uint16_t scale = qr_f32_to_f16(s->scale * vary), minimum = qr_f32_to_f16(s->minimum * vary);
        memcpy(out + i * bytes + (size_t)s->scale_at, &scale, 2);
        if (s->minimum_at >= 0) memcpy(out + i * bytes + (size_t)s->minimum_at, &minimum, 2);
    }
}

static void add_matrix(gguf_writer *w, const char *name, qr_weight_type type, uint32_t n, uint32_t k, uint64_t seed) {
    qr_random r = {seed};
    size_t blocks = (size_t)n * k / qr_weight_block_elements(type), bytes = blocks * qr_weight_block_bytes(type);
    uint8_t *data = malloc(bytes);
    if (!data) abort();
    if (qr_weight_is_float(type)) random_floats(type, data, (size_t)n * k, &r);
    else random_blocks(type, data, blocks, &r);
    gguf_writer_tensor(w, name, ggml_type[type], (uint64_t[]){k, n}, 2, data, bytes);
    free(data);
}

static void add_vector(gguf_writer *w, const char *name, uint32_t count, float base, float spread, uint64_t seed) {
    qr_random r = {seed};
    float *data = malloc(count * sizeof *data);
    if (!data) abort();
    for (uint32_t i = 0; i < count; i++) data[i] = base + spread * (float)qr_random_unit(&r);
    gguf_writer_tensor(w, name, 0, (uint64_t[]){count}, 1, data, count * sizeof *data);
    free(data);
}

static void add_layer(const tiny_model *m, gguf_writer *w, uint32_t layer) {
    const qr_weight_type odd = m->mixed ? QR_WEIGHT_F16 : m->type, other = m->mixed ? QR_WEIGHT_Q8_0 : m->type;
    const struct {
        const char *name;
        qr_weight_type type;
        uint32_t n, k; /* k 0: a norm */
    } tensors[] = {
        {"attn_norm", QR_WEIGHT_F32, m->embedding, 0},
        {"attn_q", m->type, m->heads * m->key_dim, m->embedding},
        {"attn_k", m->type, m->kv_heads * m->key_dim, m->embedding},
        {"attn_v", odd, m->kv_heads * m->value_dim, m->embedding},
        {"attn_output", other, m->embedding, m->heads * m->value_dim},
        {"ffn_norm", QR_WEIGHT_F32, m->embedding, 0},
        {"ffn_gate", m->type, m->feed_forward, m->embedding},
        {"ffn_up", other, m->feed_forward, m->embedding},
        {"ffn_down", odd, m->embedding, m->feed_forward},
    };
    for (uint32_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char name[64];
        uint64_t seed = m->seed * 1000 + layer * 16 + i;
        (void)snprintf(name, sizeof name, "blk.%u.%s.weight", layer, tensors[i].name);
        if (tensors[i].k) add_matrix(w, name, tensors[i].type, tensors[i].n, tensors[i].k, seed);
        else add_vector(w, name, tensors[i].n, 0.5f, 1.0f, seed);
    }
}

void tiny_model_tensors(const tiny_model *m, gguf_writer *w) {
    add_matrix(w, "token_embd.weight", m->type, m->vocabulary, m->embedding, m->seed * 7777);
    if (m->explicit_head) add_matrix(w, "output.weight", m->type, m->vocabulary, m->embedding, m->seed * 7777);
    add_vector(w, "output_norm.weight", m->embedding, 0.5f, 1.0f, m->seed * 7778);
    if (m->rope_factors) add_vector(w, "rope_freqs.weight", m->key_dim / 2, 1.0f, 7.0f, m->seed * 7779);
    for (uint32_t i = 0; i < m->layers; i++) add_layer(m, w, i);
}

uint8_t *tiny_model_file(const tiny_model *m, size_t *size) {
    gguf_writer w = {0};
    tiny_model_keys(m, &w);
    tiny_model_tensors(m, &w);
    uint8_t *file = gguf_writer_finish(&w, size);
    gguf_writer_deinit(&w);
    return file;
}

void write_temporary(const void *data, size_t size, char path[32]) {
    (void)snprintf(path, 32, "/tmp/quire-test-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd)) abort();
}

quire_model *tiny_model_open(const tiny_model *m, const quire_model_options *options) {
    size_t size;
    char path[32];
    quire_model *model = NULL;
    quire_error error;
    uint8_t *file = tiny_model_file(m, &size);
    write_temporary(file, size, path);
    free(file);
    quire_status status = quire_model_open(path, options, &model, &error);
    unlink(path);
    if (status == QUIRE_OK) return model;
    fprintf(stderr, "%s: %s\n", error.source, error.text);
    abort();
}
