/* model_shape.h - the numbers of a `llama` model: read from the header, checked against each other and against what the
 * kernels can do, before any tensor is looked at. */
#ifndef QR_MODEL_MODEL_SHAPE_H
#define QR_MODEL_MODEL_SHAPE_H

#include "runtime/model/gguf.h"

enum {
    QR_LAYERS_MAX = 1024,     /* the largest published models have 126 */
    QR_CONTEXT_MAX = 1 << 24, /* positions are exact in the RoPE tables well beyond this */
    QR_VOCABULARY_MAX = 1 << 24,
};

typedef struct qr_model_shape {
    uint32_t layer_count, embedding_size, head_count, kv_head_count, key_dim, value_dim, feed_forward_size;
    uint32_t context_length;
    uint32_t vocabulary_size; /* from the vocabulary; the embedding must agree */
    uint32_t rope_dims;
    double rope_base, rope_linear_scale;
    float norm_eps;
} qr_model_shape;

/* Errors: FORMAT (key named), UNSUPPORTED (architecture, or a feature that would change logits, named). */
QUIRE_MUST_CHECK quire_status qr_model_shape_read(const qr_gguf *gguf, qr_model_shape *shape, quire_error *error);
#endif
