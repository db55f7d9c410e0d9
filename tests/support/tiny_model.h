/* tiny_model.h - llama models of a few hundred KiB with random weights, for every tensor type. */
#ifndef QR_TESTS_TINY_MODEL_H
#define QR_TESTS_TINY_MODEL_H

#include <quire/model.h>

#include "runtime/model/cpu/matmul.h"
#include "tests/support/gguf_writer.h"

typedef struct tiny_model {
    qr_weight_type type; /* of all matrices, but: */
    bool mixed;          /* v, up and output get other types, so nothing can be fused */
    bool explicit_head;  /* output.weight holds a copy of the embedding */
    bool rope_factors;   /* rope_freqs.weight */
    uint32_t layers, heads, kv_heads, key_dim, value_dim, embedding, feed_forward, vocabulary, context;
    float linear_scale; /* 0: no rope.scaling */
    uint64_t seed;
} tiny_model;

enum { TINY_VOCABULARY = 512 };

/* 2 layers, 4 heads, 2 KV heads, dimension 64 (256 for types with blocks of 256), vocabulary 512. */
tiny_model tiny_model_of(qr_weight_type type);
/* Keys and tensors; the caller may add more before finishing. */
void tiny_model_keys(const tiny_model *model, gguf_writer *writer);
void tiny_model_tensors(const tiny_model *model, gguf_writer *writer);
/* The whole file, malloc'd. */
uint8_t *tiny_model_file(const tiny_model *model, size_t *size);
/* The model of such a file, which is gone again. Aborts with the reason when it cannot be opened. */
quire_model *tiny_model_open(const tiny_model *model, const quire_model_options *options);
/* Writes bytes to a fresh file; path gets its name ("/tmp/quire-test-XXXXXX"). The caller unlinks it. */
void write_temporary(const void *data, size_t size, char path[32]);
#endif
