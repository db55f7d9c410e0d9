/* Tensors: all present, of the right shape, all used; repacked alike by any number of threads; counted alike in planning. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/float16.h"
#include "runtime/model/weights.h"
#include "tests/support/tiny_model.h"

typedef struct fixture {
    uint8_t *file;
    size_t size;
    qr_gguf *gguf;
    qr_model_shape shape;
    qr_weight_store *store;
} fixture;

static quire_status open_writer(fixture *f, gguf_writer *w, bool exact, quire_error *error) {
    memset(f, 0, sizeof *f);
    f->file = gguf_writer_finish(w, &f->size);
    gguf_writer_deinit(w);
    cr_assert_eq(qr_gguf_open_memory("weights", f->file, f->size, &f->gguf, error), QUIRE_OK, "%s", error->text);
    cr_assert_eq(qr_model_shape_read(f->gguf, &f->shape, error), QUIRE_OK, "%s", error->text);
    return qr_weight_store_create(f->gguf, &f->shape, exact, &f->store, error);
}

static void close_fixture(fixture *f) {
    qr_weight_store_destroy(f->store);
    qr_gguf_close(f->gguf);
    free(f->file);
}

static gguf_writer write_model(const tiny_model *tiny, const char *omit) {
    gguf_writer w = {.omit = omit};
    tiny_model_keys(tiny, &w);
    tiny_model_tensors(tiny, &w);
    w.omit = NULL;
    return w;
}

static void open_tiny(fixture *f, const tiny_model *tiny, bool exact) {
    quire_error error = {0};
    gguf_writer w = write_model(tiny, NULL);
    cr_assert_eq(open_writer(f, &w, exact, &error), QUIRE_OK, "%s", error.text);
}

static void load(fixture *f, int threads) {
    qr_compute_pool *pool;
    cr_assert_eq(qr_compute_pool_create(threads, 0, &pool, NULL), QUIRE_OK);
    cr_assert_eq(qr_weight_store_load(f->store, pool, NULL), QUIRE_OK);
    qr_compute_pool_destroy(pool);
}

static void expect_refusal(gguf_writer *w, quire_status expected, const char *word) {
    fixture f;
    quire_error error = {0};
    quire_status status = open_writer(&f, w, false, &error);
    cr_assert_eq(status, expected, "%s %s", quire_status_name(status), error.text);
    cr_assert_null(f.store);
    cr_assert_not_null(strstr(error.text, word), "\"%s\" not in \"%s\"", word, error.text);
    close_fixture(&f);
}

static const char *const tensor_names[] = {
    "token_embd.weight",     "output_norm.weight",  "blk.0.attn_norm.weight",   "blk.1.attn_q.weight",
    "blk.0.attn_k.weight",   "blk.1.attn_v.weight", "blk.0.attn_output.weight", "blk.1.ffn_norm.weight",
    "blk.0.ffn_gate.weight", "blk.1.ffn_up.weight", "blk.0.ffn_down.weight",
};

Test(model_weights, a_missing_or_misshapen_tensor_is_named) {
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_F32);
    static const float zeros[64 * 1024];
    for (size_t i = 0; i < sizeof tensor_names / sizeof *tensor_names; i++) {
        gguf_writer w = write_model(&tiny, tensor_names[i]);
        expect_refusal(&w, QUIRE_FORMAT, tensor_names[i]);
        const uint64_t shapes[][4] = {{64, 63, 1, 1}, {63, 64, 1, 1}, {64, 64, 2, 1}, {1, 1, 1, 1}, {192, 64, 1, 1}};
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            w = write_model(&tiny, tensor_names[i]);
            size_t bytes = shapes[s][0] * shapes[s][1] * shapes[s][2] * 4;
            gguf_writer_tensor(&w, tensor_names[i], 0, shapes[s], 4, zeros, bytes);
            expect_refusal(&w, QUIRE_FORMAT, tensor_names[i]);
        }
    }
}

Test(model_weights, an_output_matrix_of_the_wrong_shape_is_refused) {
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_F32);
    static const float zeros[64 * TINY_VOCABULARY];
    gguf_writer w = write_model(&tiny, NULL);
    gguf_writer_tensor(&w, "output.weight", 0, (uint64_t[]){64, TINY_VOCABULARY - 1}, 2, zeros, 64 * 511 * 4);
    expect_refusal(&w, QUIRE_FORMAT, "output.weight");
}

Test(model_weights, a_tensor_that_nothing_uses_is_refused) {
    static const char *const extras[] = {"blk.0.attn_q.bias", "blk.2.attn_norm.weight", "blk.0.attn_q_norm.weight", "rubbish"};
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q8_0);
    static const float zeros[64];
    for (size_t i = 0; i < 4; i++) {
        gguf_writer w = write_model(&tiny, NULL);
        gguf_writer_tensor(&w, extras[i], 0, (uint64_t[]){64}, 1, zeros, sizeof zeros);
        expect_refusal(&w, QUIRE_UNSUPPORTED, extras[i]);
    }
}

Test(model_weights, absurd_layer_counts_end_at_the_first_missing_tensor) {
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q8_0);
    gguf_writer w = {.omit = "llama.block_count"};
    tiny_model_keys(&tiny, &w);
    tiny_model_tensors(&tiny, &w);
    w.omit = NULL;
    gguf_writer_u32(&w, "llama.block_count", QR_LAYERS_MAX);
    expect_refusal(&w, QUIRE_FORMAT, "blk.2.attn_norm.weight");
}

Test(model_weights, tied_embeddings_are_stored_and_counted_once) {
    tiny_model tiny = tiny_model_of(QR_WEIGHT_Q8_0);
    fixture tied, untied;
    open_tiny(&tied, &tiny, false);
    tiny.explicit_head = true;
    open_tiny(&untied, &tiny, false);
    uint64_t matrix = qr_matrix_packed_bytes(QR_WEIGHT_Q8_0, TINY_VOCABULARY, 64);
    cr_assert_eq(qr_weight_store_bytes(untied.store) - qr_weight_store_bytes(tied.store), (matrix + 127) / 128 * 128);
    cr_assert_eq(qr_weight_store_parameters(untied.store) - qr_weight_store_parameters(tied.store), TINY_VOCABULARY * 64);
    load(&tied, 1);
    load(&untied, 1);
    const qr_weights *t = qr_weight_store_weights(tied.store), *u = qr_weight_store_weights(untied.store);
    cr_assert(t->tied);
    cr_assert_not(u->tied);
    cr_assert_eq(t->head.panels, t->embedding.panels);
    cr_assert_neq(u->head.panels, u->embedding.panels);
    cr_assert_eq(memcmp(u->head.panels, t->head.panels, matrix), 0);
    close_fixture(&tied);
    close_fixture(&untied);
}

Test(model_weights, products_are_fused_where_types_agree) {
    fixture f;
    tiny_model tiny = tiny_model_of(QR_WEIGHT_Q4_1);
    open_tiny(&f, &tiny, false);
    load(&f, 2);
    const qr_layer *l = &qr_weight_store_weights(f.store)->layers[1];
    cr_assert_eq(l->qkv.n, 64 + 32 + 32);
    cr_assert_eq(l->q.n, 0);
    cr_assert_eq(l->gate_up.n, 2 * 96);
    close_fixture(&f);
    tiny.mixed = true;
    open_tiny(&f, &tiny, false);
    load(&f, 2);
    l = &qr_weight_store_weights(f.store)->layers[1];
    cr_assert_eq(l->qkv.n, 0);
    cr_assert_eq(l->q.n, 64);
    cr_assert_eq(l->v.type, QR_WEIGHT_F16);
    cr_assert_eq(l->gate_up.n, 0);
    cr_assert_eq(l->up.type, QR_WEIGHT_Q8_0);
    close_fixture(&f);
    open_tiny(&f, &tiny, true); /* widened: all one type again */
    load(&f, 2);
    l = &qr_weight_store_weights(f.store)->layers[1];
    cr_assert_eq(l->qkv.n, 128);
    cr_assert_eq(l->qkv.type, QR_WEIGHT_F32);
    close_fixture(&f);
}

/* Every row of every matrix, as the file defines it. */
static void check_rows(const fixture *f, const char *name, const qr_matrix *m, uint32_t first) {
    const qr_gguf_tensor *t = qr_gguf_find_tensor(f->gguf, name);
    uint32_t k = (uint32_t)t->dims[0];
    float *expected = malloc(k * sizeof *expected), *got = malloc(k * sizeof *got);
    for (uint32_t row = 0; row < t->dims[1]; row++) {
        qr_weight_dequantize(t->type, t->data + t->size_bytes / t->dims[1] * row, k, expected);
        qr_matrix_row(m, first + row, got);
        cr_assert_eq(memcmp(expected, got, k * sizeof *got), 0, "%s row %u", name, row);
    }
    free(expected);
    free(got);
}

Test(model_weights, every_row_is_where_it_belongs) {
    for (int type = 0; type < QR_WEIGHT_TYPE_COUNT; type++)
        for (int exact = 0; exact < 2; exact++) {
            fixture f;
            const tiny_model tiny = tiny_model_of((qr_weight_type)type);
            open_tiny(&f, &tiny, exact);
            load(&f, 3);
            const qr_weights *w = qr_weight_store_weights(f.store);
            const qr_layer *l = &w->layers[1];
            uint32_t q = 4 * tiny.key_dim, k = 2 * tiny.key_dim;
            check_rows(&f, "token_embd.weight", &w->embedding, 0);
            check_rows(&f, "blk.1.attn_q.weight", &l->qkv, 0);
            check_rows(&f, "blk.1.attn_k.weight", &l->qkv, q);
            check_rows(&f, "blk.1.attn_v.weight", &l->qkv, q + k);
            check_rows(&f, "blk.1.attn_output.weight", &l->output, 0);
            check_rows(&f, "blk.1.ffn_up.weight", &l->gate_up, tiny.feed_forward);
            check_rows(&f, "blk.1.ffn_down.weight", &l->down, 0);
            const qr_gguf_tensor *norm = qr_gguf_find_tensor(f.gguf, "blk.1.ffn_norm.weight");
            cr_assert_eq(memcmp(norm->data, l->feed_forward_norm, norm->size_bytes), 0);
            close_fixture(&f);
        }
}

static uint64_t fingerprint_of(const uint8_t *file, size_t size, int threads, bool exact) {
    fixture f = {0};
    cr_assert_eq(qr_gguf_open_memory("w", file, size, &f.gguf, NULL), QUIRE_OK);
    cr_assert_eq(qr_model_shape_read(f.gguf, &f.shape, NULL), QUIRE_OK);
    cr_assert_eq(qr_weight_store_create(f.gguf, &f.shape, exact, &f.store, NULL), QUIRE_OK);
    cr_assert_eq(qr_weight_store_fingerprint(f.store), 0);
    load(&f, threads);
    uint64_t fingerprint = qr_weight_store_fingerprint(f.store);
    close_fixture(&f);
    return fingerprint;
}

#ifndef QR_CONSTANT_HASH
Test(model_weights, the_fingerprint_knows_every_byte_but_not_the_threads) {
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q5_1);
    size_t size;
    uint8_t *file = tiny_model_file(&tiny, &size);
    uint64_t expected = fingerprint_of(file, size, 1, false);
    cr_assert_neq(expected, 0);
    cr_assert_eq(fingerprint_of(file, size, 3, false), expected);
    cr_assert_neq(fingerprint_of(file, size, 1, true), expected);
    qr_gguf *g;
    cr_assert_eq(qr_gguf_open_memory("w", file, size, &g, NULL), QUIRE_OK);
    for (uint64_t i = 0; i < qr_gguf_tensor_count(g); i++) { /* the first and the last byte of each tensor */
        const qr_gguf_tensor *t = qr_gguf_tensor_at(g, i);
        size_t ends[2] = {(size_t)(t->data - file), (size_t)(t->data - file) + t->size_bytes - 1};
        for (int e = 0; e < 2; e++) {
            file[ends[e]] ^= 1;
            cr_assert_neq(fingerprint_of(file, size, 2, false), expected);
            file[ends[e]] ^= 1;
        }
    }
    qr_gguf_close(g);
    free(file);
}
#endif

Test(model_weights, rope_factors_divide_the_frequencies) {
    tiny_model tiny = tiny_model_of(QR_WEIGHT_F16);
    fixture plain, scaled;
    open_tiny(&plain, &tiny, false);
    tiny.rope_factors = true;
    open_tiny(&scaled, &tiny, false);
    const double *a = qr_weight_store_weights(plain.store)->rope_inv_freq,
                 *b = qr_weight_store_weights(scaled.store)->rope_inv_freq;
    const float *factors = (const float *)(const void *)qr_gguf_find_tensor(scaled.gguf, "rope_freqs.weight")->data;
    cr_assert_float_eq(a[0], 1.0, 1e-12);
    for (uint32_t i = 0; i < tiny.key_dim / 2; i++) cr_assert_float_eq(b[i], a[i] / (double)factors[i], 1e-12);
    close_fixture(&plain);
    close_fixture(&scaled);
    static const float bad[8] = {1, 1, 0, 1, 1, 1, 1, 1};
    gguf_writer w = write_model(&tiny, "rope_freqs.weight");
    gguf_writer_tensor(&w, "rope_freqs.weight", 0, (uint64_t[]){8}, 1, bad, sizeof bad);
    expect_refusal(&w, QUIRE_FORMAT, "rope_freqs.weight");
    w = write_model(&tiny, "rope_freqs.weight");
    gguf_writer_tensor(&w, "rope_freqs.weight", 0, (uint64_t[]){4}, 1, bad, 16);
    expect_refusal(&w, QUIRE_FORMAT, "rope_freqs.weight");
}
