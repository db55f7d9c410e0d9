/* The header's numbers: defaults, ranges, and features that are refused by name. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/model_shape.h"
#include "tests/support/tiny_model.h"

static quire_status read_shape(gguf_writer *w, qr_model_shape *shape, quire_error *error) {
    size_t size;
    qr_gguf *g;
    uint8_t *file = gguf_writer_finish(w, &size);
    memset(error, 0, sizeof *error);
    quire_status status = qr_gguf_open_memory("shape", file, size, &g, error);
    cr_assert_eq(status, QUIRE_OK, "%s", error->text);
    status = qr_model_shape_read(g, shape, error);
    qr_gguf_close(g);
    free(file);
    gguf_writer_deinit(w);
    return status;
}

/* The tiny model's keys without `key`. */
static gguf_writer without(const char *key) {
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q8_0);
    gguf_writer w = {.omit = key};
    tiny_model_keys(&tiny, &w);
    w.omit = NULL;
    return w;
}

static void expect_refusal(gguf_writer *w, quire_status expected, const char *word) {
    qr_model_shape shape;
    quire_error error;
    quire_status status = read_shape(w, &shape, &error);
    cr_assert_eq(status, expected, "%s: %s %s", word, quire_status_name(status), error.text);
    cr_assert_not_null(strstr(error.text, word), "\"%s\" not in \"%s\"", word, error.text);
    cr_assert_str_eq(error.source, "shape");
}

static void expect_number_refused(const char *key, uint32_t value, quire_status expected) {
    gguf_writer w = without(key);
    gguf_writer_u32(&w, key, value);
    expect_refusal(&w, expected, key);
}

Test(model_shape, a_full_header_is_read) {
    qr_model_shape s;
    quire_error error;
    gguf_writer w = without("");
    cr_assert_eq(read_shape(&w, &s, &error), QUIRE_OK, "%s", error.text);
    cr_assert_eq(s.layer_count, 2);
    cr_assert_eq(s.embedding_size, 64);
    cr_assert_eq(s.head_count, 4);
    cr_assert_eq(s.kv_head_count, 2);
    cr_assert_eq(s.key_dim, 16);
    cr_assert_eq(s.value_dim, 16);
    cr_assert_eq(s.feed_forward_size, 96);
    cr_assert_eq(s.context_length, 1024);
    cr_assert_eq(s.vocabulary_size, TINY_VOCABULARY);
    cr_assert_eq(s.rope_dims, 16);
    cr_assert_eq(s.rope_linear_scale, 1.0);
}

Test(model_shape, missing_lengths_fall_back) {
    qr_model_shape s;
    quire_error error;
    static const char *const keys[] = {"llama.attention.key_length", "llama.attention.value_length",
                                       "llama.attention.head_count_kv", "llama.rope.dimension_count", "llama.rope.freq_base"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        gguf_writer w = without(keys[i]);
        cr_assert_eq(read_shape(&w, &s, &error), QUIRE_OK, "%s", error.text);
        cr_assert_eq(s.key_dim, 16);
        cr_assert_eq(s.value_dim, 16);
        cr_assert_eq(s.rope_dims, 16);
        cr_assert_eq(s.rope_base, 10000.0);
        cr_assert_eq(s.kv_head_count, i == 2 ? 4 : 2);
    }
}

Test(model_shape, what_must_be_there_is_named_when_it_is_not) {
    static const char *const keys[] = {"general.architecture",
                                       "llama.block_count",
                                       "llama.embedding_length",
                                       "llama.feed_forward_length",
                                       "llama.context_length",
                                       "llama.attention.head_count",
                                       "llama.attention.layer_norm_rms_epsilon",
                                       "tokenizer.ggml.tokens"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        gguf_writer w = without(keys[i]);
        expect_refusal(&w, QUIRE_FORMAT, keys[i]);
    }
}

Test(model_shape, numbers_outside_their_range) {
    static const char *const keys[] = {
        "llama.block_count",          "llama.embedding_length",       "llama.feed_forward_length",
        "llama.context_length",       "llama.attention.head_count",   "llama.attention.head_count_kv",
        "llama.attention.key_length", "llama.attention.value_length", "llama.rope.dimension_count"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        expect_number_refused(keys[i], 0, QUIRE_FORMAT);
        expect_number_refused(keys[i], UINT32_MAX, QUIRE_FORMAT);
        expect_number_refused(keys[i], 1u << 25, QUIRE_FORMAT);
    }
    expect_number_refused("llama.block_count", QR_LAYERS_MAX + 1, QUIRE_FORMAT);
    expect_number_refused("llama.attention.key_length", 272, QUIRE_FORMAT);
    expect_number_refused("llama.rope.dimension_count", 18, QUIRE_FORMAT);   /* above key_length */
    expect_number_refused("llama.attention.head_count", 8192, QUIRE_FORMAT); /* x 16 is too wide */
}

Test(model_shape, numbers_that_do_not_fit_each_other) {
    gguf_writer w = without("llama.attention.head_count_kv");
    gguf_writer_u32(&w, "llama.attention.head_count_kv", 3);
    expect_refusal(&w, QUIRE_FORMAT, "head_count_kv");
    expect_number_refused("llama.embedding_length", 72, QUIRE_UNSUPPORTED);
    expect_number_refused("llama.feed_forward_length", 100, QUIRE_UNSUPPORTED);
    expect_number_refused("llama.attention.key_length", 20, QUIRE_UNSUPPORTED);
    expect_number_refused("llama.attention.value_length", 24, QUIRE_UNSUPPORTED);
    expect_number_refused("llama.rope.dimension_count", 15, QUIRE_UNSUPPORTED);
}

Test(model_shape, head_counts_as_arrays) {
    qr_model_shape s;
    quire_error error;
    gguf_writer w = without("llama.attention.head_count_kv");
    gguf_writer_i32s(&w, "llama.attention.head_count_kv", (int32_t[]){2, 2}, 2);
    cr_assert_eq(read_shape(&w, &s, &error), QUIRE_OK, "%s", error.text);
    cr_assert_eq(s.kv_head_count, 2);
    const struct {
        int32_t values[3];
        uint64_t count;
        quire_status status;
    } bad[] = {{{2, 1}, 2, QUIRE_UNSUPPORTED}, {{2, 2, 2}, 3, QUIRE_FORMAT}, {{2}, 1, QUIRE_FORMAT},
               {{0}, 0, QUIRE_FORMAT},         {{-1, -1}, 2, QUIRE_FORMAT},  {{0, 0}, 2, QUIRE_FORMAT}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        w = without("llama.attention.head_count_kv");
        gguf_writer_i32s(&w, "llama.attention.head_count_kv", bad[i].values, bad[i].count);
        expect_refusal(&w, bad[i].status, "head_count_kv");
    }
}

Test(model_shape, rope_scaling) {
    qr_model_shape s;
    quire_error error;
    gguf_writer w = without("");
    gguf_writer_text(&w, "llama.rope.scaling.type", "linear");
    gguf_writer_f32(&w, "llama.rope.scaling.factor", 4);
    cr_assert_eq(read_shape(&w, &s, &error), QUIRE_OK);
    cr_assert_eq(s.rope_linear_scale, 4.0);
    w = without("");
    gguf_writer_f32(&w, "llama.rope.scale_linear", 2);
    cr_assert_eq(read_shape(&w, &s, &error), QUIRE_OK);
    cr_assert_eq(s.rope_linear_scale, 2.0);
    w = without("");
    gguf_writer_text(&w, "llama.rope.scaling.type", "none");
    cr_assert_eq(read_shape(&w, &s, &error), QUIRE_OK);
    cr_assert_eq(s.rope_linear_scale, 1.0);
    w = without("");
    gguf_writer_text(&w, "llama.rope.scaling.type", "yarn");
    expect_refusal(&w, QUIRE_UNSUPPORTED, "rope.scaling.type");
    w = without("");
    gguf_writer_text(&w, "llama.rope.scaling.type", "linear");
    gguf_writer_f32(&w, "llama.rope.scaling.factor", 0);
    expect_refusal(&w, QUIRE_FORMAT, "rope.scaling.factor");
}

Test(model_shape, floats_out_of_range) {
    static const float epsilons[] = {0, -1e-5f, 1, 2};
    for (size_t i = 0; i < 4; i++) {
        gguf_writer w = without("llama.attention.layer_norm_rms_epsilon");
        gguf_writer_f32(&w, "llama.attention.layer_norm_rms_epsilon", epsilons[i]);
        expect_refusal(&w, QUIRE_FORMAT, "epsilon");
    }
    gguf_writer w = without("llama.rope.freq_base");
    gguf_writer_f32(&w, "llama.rope.freq_base", 0);
    expect_refusal(&w, QUIRE_FORMAT, "freq_base");
}

Test(model_shape, features_that_would_change_logits) {
    gguf_writer w = without("");
    gguf_writer_u32(&w, "llama.expert_count", 8);
    expect_refusal(&w, QUIRE_UNSUPPORTED, "expert_count");
    w = without("");
    gguf_writer_u32(&w, "llama.attention.sliding_window", 512);
    expect_refusal(&w, QUIRE_UNSUPPORTED, "sliding_window");
    w = without("");
    gguf_writer_bool(&w, "llama.attention.causal", false);
    expect_refusal(&w, QUIRE_UNSUPPORTED, "causal");
    w = without("general.architecture");
    gguf_writer_text(&w, "general.architecture", "gemma3");
    expect_refusal(&w, QUIRE_UNSUPPORTED, "gemma3");
}
