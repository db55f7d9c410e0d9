/* Law 1 on small models of every tensor type: the bits of a row's logits do not depend on chunking, company, threads or
 * instruction set. KV memory begins as NaN. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "runtime/model/model.h"
#include "runtime/model/model_cpu_path.h"
#include "tests/support/forward_rig.h"
#include "tests/support/tiny_model.h"

static quire_model *open_tiny(const tiny_model *tiny, bool exact) {
    return tiny_model_open(tiny, &(quire_model_options){.exact_activations = exact, .thread_count = 2});
}

static void random_tokens(quire_token *tokens, uint32_t count, uint64_t seed) {
    qr_random r = {seed};
    for (uint32_t i = 0; i < count; i++) tokens[i] = (quire_token)qr_random_below(&r, TINY_VOCABULARY);
}

static float *logits_of(uint32_t rows) {
    float *logits = malloc((size_t)rows * TINY_VOCABULARY * sizeof *logits);
    cr_assert_not_null(logits);
    return logits;
}

static bool same(const float *a, const float *b, uint32_t rows) {
    return !memcmp(a, b, (size_t)rows * TINY_VOCABULARY * sizeof *a);
}

/* Logits that say something: finite, and different from row to row. */
static void check_meaning(const float *logits, uint32_t rows) {
    for (size_t i = 0; i < (size_t)rows * TINY_VOCABULARY; i++) cr_assert(isfinite(logits[i]));
    for (uint32_t row = 1; row < rows; row++) cr_assert_not(same(logits, logits + (size_t)row * TINY_VOCABULARY, 1));
    double mean = 0, square = 0;
    for (uint32_t i = 0; i < TINY_VOCABULARY; i++) {
        mean += (double)logits[i] / TINY_VOCABULARY;
        square += (double)logits[i] * (double)logits[i] / TINY_VOCABULARY;
    }
    double spread = sqrt(square - mean * mean);
    cr_assert(spread > 0.05 && spread < 50, "spread of logits %g", spread);
}

#ifdef QR_DEBUG
enum { CHUNK_STEP = 17, CHUNKINGS = 2 }; /* unoptimised and under sanitizers all 512 would take minutes */
#else
enum { CHUNK_STEP = 1, CHUNKINGS = 4 };
#endif

Test(model_forward, every_chunking_from_1_to_512_gives_the_same_bits, .timeout = 120) {
    enum { COUNT = 512 };
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q4_1);
    quire_model *model = open_tiny(&tiny, false);
    quire_token tokens[COUNT];
    float *expected = logits_of(COUNT), *got = logits_of(COUNT);
    forward_rig rig;
    forward_rig_open(&rig, model, &(rig_options){.key_type = QUIRE_KV_F16, .value_type = QUIRE_KV_F16, .threads = 2});
    random_tokens(tokens, COUNT, 1);
    forward_rig_prompt(&rig, tokens, COUNT, COUNT, 0, expected);
    check_meaning(expected, COUNT);
    for (uint32_t chunk = 1; chunk < COUNT; chunk += CHUNK_STEP) {
        forward_rig_forget(&rig);
        forward_rig_prompt(&rig, tokens, COUNT, chunk, 0, got);
        cr_assert(same(expected, got, COUNT), "chunks of %u", chunk);
    }
    forward_rig_close(&rig);
    quire_model_close(model);
    free(expected);
    free(got);
}

static void check_paths(const quire_model *model, const char *what, quire_kv_type kv) {
    enum { COUNT = 67 };
    static const char *const paths[] = {"scalar", "avx2", "avx512"};
    quire_token tokens[COUNT];
    float *expected = logits_of(COUNT), *got = logits_of(COUNT);
    random_tokens(tokens, COUNT, 2);
    for (size_t p = 0; p < 3; p++) {
        qr_cpu_path path;
        if (qr_cpu_path_find(paths[p], &path, NULL)) continue; /* not this machine's */
        for (int threads = 1; threads <= 3; threads++) {
            static const uint32_t chunks[] = {67, 1, 16, 23};
            forward_rig rig;
            forward_rig_open(&rig, model,
                             &(rig_options){.key_type = kv, .value_type = kv, .threads = threads, .cpu_path = paths[p]});
            for (size_t c = 0; c < CHUNKINGS; c++) {
                forward_rig_forget(&rig);
                bool first = p == 0 && threads == 1 && c == 0;
                forward_rig_prompt(&rig, tokens, COUNT, chunks[c], 0, first ? expected : got);
                if (first) check_meaning(expected, COUNT);
                else
                    cr_assert(same(expected, got, COUNT), "%s: path %s, %d threads, chunks of %u", what, paths[p], threads,
                              chunks[c]);
            }
            forward_rig_close(&rig);
        }
    }
    free(expected);
    free(got);
}

Test(model_forward, paths_and_threads_give_the_same_bits_for_every_type, .timeout = 120) {
    static const quire_kv_type kv[] = {QUIRE_KV_F16, QUIRE_KV_F32, QUIRE_KV_BF16};
    for (int type = 0; type < QR_WEIGHT_TYPE_COUNT; type++) {
        tiny_model tiny = tiny_model_of((qr_weight_type)type);
        quire_model *model = open_tiny(&tiny, false);
        check_paths(model, qr_weight_type_name((qr_weight_type)type), kv[type % 3]);
        quire_model_close(model);
    }
}

Test(model_forward, unfused_tied_scaled_and_exact_models_too, .timeout = 120) {
    tiny_model tiny = tiny_model_of(QR_WEIGHT_Q5_0);
    tiny.mixed = tiny.explicit_head = tiny.rope_factors = true;
    tiny.linear_scale = 4;
    for (int exact = 0; exact < 2; exact++) {
        quire_model *model = open_tiny(&tiny, exact);
        cr_assert_eq(qr_model_weights(model)->layers[0].qkv.n == 0, !exact);
        check_paths(model, exact ? "exact" : "mixed", QUIRE_KV_F16);
        quire_model_close(model);
    }
    tiny = tiny_model_of(QR_WEIGHT_Q8_0);
    tiny.key_dim = 32; /* not embedding / heads, and another value length */
    tiny.value_dim = 48;
    quire_model *model = open_tiny(&tiny, false);
    check_paths(model, "key 32, value 48", QUIRE_KV_F16);
    quire_model_close(model);
}

Test(model_forward, alone_or_beside_eight_others_gives_the_same_bits, .timeout = 60) {
    enum { COUNT = 40, OTHERS = 8 };
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q4_K);
    quire_model *model = open_tiny(&tiny, false);
    quire_token tokens[1 + OTHERS][COUNT];
    float *expected = logits_of(COUNT), *got = logits_of(1 + OTHERS);
    forward_rig rig;
    forward_rig_open(&rig, model,
                     &(rig_options){.sequences_max = 1 + OTHERS, .tokens_max = 64, .threads = 2, .key_type = QUIRE_KV_F16});
    for (uint32_t s = 0; s <= OTHERS; s++) random_tokens(tokens[s], COUNT, 10 + s % 5); /* some are equal */
    forward_rig_prompt(&rig, tokens[0], COUNT, COUNT, 0, expected);
    for (uint32_t place = 0; place <= OTHERS; place++) {
        forward_rig_forget(&rig);
        for (uint32_t at = 0; at < COUNT; at++) {
            rig_chunk chunks[1 + OTHERS];
            for (uint32_t i = 0; i <= OTHERS; i++) {
                uint32_t s = (i + place) % (1 + OTHERS);
                chunks[i] = (rig_chunk){s, at, 1, &tokens[s][at], s ? UINT32_MAX : 0};
            }
            forward_rig_step(&rig, chunks, 1 + OTHERS, got);
            cr_assert(same(expected + (size_t)at * TINY_VOCABULARY, got, 1), "position %u, place %u", at, place);
        }
    }
    forward_rig_close(&rig);
    quire_model_close(model);
    free(expected);
    free(got);
}

/* The embedding as an explicit head gives the logits of the tied model (R38). */
Test(model_forward, tied_equals_an_explicit_copy) {
    enum { COUNT = 20 };
    tiny_model tiny = tiny_model_of(QR_WEIGHT_Q6_K);
    quire_token tokens[COUNT];
    float *logits[2] = {logits_of(COUNT), logits_of(COUNT)};
    random_tokens(tokens, COUNT, 3);
    for (int explicit_head = 0; explicit_head < 2; explicit_head++) {
        forward_rig rig;
        tiny.explicit_head = explicit_head;
        quire_model *model = open_tiny(&tiny, false);
        forward_rig_open(&rig, model, &(rig_options){.rows_max = COUNT});
        forward_rig_prompt(&rig, tokens, COUNT, COUNT, 0, logits[explicit_head]);
        forward_rig_close(&rig);
        quire_model_close(model);
    }
    cr_assert(same(logits[0], logits[1], COUNT));
    free(logits[0]);
    free(logits[1]);
}

Test(model_forward, running_allocates_nothing) {
    enum { COUNT = 48 };
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q4_0);
    quire_model *model = open_tiny(&tiny, false);
    quire_token tokens[COUNT];
    float *logits = logits_of(COUNT);
    forward_rig rig;
    forward_rig_open(&rig, model, &(rig_options){.rows_max = COUNT, .threads = 2});
    random_tokens(tokens, COUNT, 4);
    qr_alloc_guard_enter();
    forward_rig_prompt(&rig, tokens, COUNT, 7, 0, logits);
    cr_assert_eq(qr_alloc_guard_leave(), 0);
    forward_rig_close(&rig);
    quire_model_close(model);
    free(logits);
}

Test(model_forward, values_beyond_f16_are_counted) {
    enum { COUNT = 4 };
    tiny_model tiny = tiny_model_of(QR_WEIGHT_F32);
    gguf_writer w = {.omit = "blk.1.attn_v.weight"};
    float *huge = malloc(sizeof *huge * 32 * 64);
    for (int i = 0; i < 32 * 64; i++) huge[i] = i % 2 ? 1e6f : -1e5f;
    tiny_model_keys(&tiny, &w);
    tiny_model_tensors(&tiny, &w);
    w.omit = NULL;
    gguf_writer_tensor(&w, "blk.1.attn_v.weight", 0, (uint64_t[]){64, 32}, 2, huge, sizeof *huge * 32 * 64);
    size_t size;
    char path[32];
    uint8_t *file = gguf_writer_finish(&w, &size);
    write_temporary(file, size, path);
    quire_model *model;
    cr_assert_eq(quire_model_open(path, NULL, &model, NULL), QUIRE_OK);
    unlink(path);
    quire_token tokens[COUNT];
    random_tokens(tokens, COUNT, 5);
    float *logits = logits_of(COUNT);
    forward_rig rig;
    forward_rig_open(&rig, model, &(rig_options){.key_type = QUIRE_KV_F16, .value_type = QUIRE_KV_F16});
    forward_rig_prompt(&rig, tokens, COUNT, COUNT, 0, logits);
    cr_assert_gt(qr_forward_saturated(rig.forward), 0);
    for (size_t i = 0; i < (size_t)COUNT * TINY_VOCABULARY; i++) cr_assert(isfinite(logits[i]));
    forward_rig_close(&rig);
    quire_model_close(model);
    gguf_writer_deinit(&w);
    free(file);
    free(huge);
    free(logits);
}

Test(model_forward, create_takes_the_bytes_it_says_and_refuses_bad_limits) {
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q8_0);
    quire_model *model = open_tiny(&tiny, false);
    qr_compute_pool *pool;
    cr_assert_eq(qr_compute_pool_create(1, 0, &pool, NULL), QUIRE_OK);
    const qr_forward_config good = {.rows_max = 8,
                                    .sequences_max = 2,
                                    .logit_rows_max = 2,
                                    .tokens_max = 64,
                                    .block_tokens = 16,
                                    .key_type = QUIRE_KV_F16,
                                    .value_type = QUIRE_KV_F16};
    cr_assert_gt(qr_forward_bytes(model, &good, 1), 8 * 64 * sizeof(float) * 3);
    cr_assert_gt(qr_forward_bytes(model, &good, 2), qr_forward_bytes(model, &good, 1));
    qr_forward_config bad[4] = {good, good, good, good};
    bad[0].rows_max = 0;
    bad[1].block_tokens = 17;
    bad[2].key_type = QUIRE_KV_TYPE_COUNT;
    bad[3].cpu_path = "z80";
    for (int i = 0; i < 4; i++) {
        qr_forward *forward;
        quire_error error = {0};
        cr_assert_neq(qr_forward_create(model, &bad[i], pool, &forward, &error), QUIRE_OK);
        cr_assert_null(forward);
        cr_assert_neq(error.text[0], 0);
    }
    qr_compute_pool_destroy(pool);
    quire_model_close(model);
}
