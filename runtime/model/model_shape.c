/* model_shape.c - reading and checking the numbers of a `llama` model.
 *
 * What the header can ask for and this program does not do is refused by name, never ignored: a model that runs gives
 * the logits that its file defines.
 */
#include "runtime/model/model_shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/attention.h"
#include "base/error.h"

typedef struct reader {
    const qr_gguf *gguf;
    quire_error *error;
} reader;

static quire_status refuse(const reader *r, quire_status status, const char *key, const char *what) {
    return qr_fail(r->error, status, qr_gguf_path(r->gguf), QR_NO_OFFSET, "%s: %s", key, what);
}

static quire_status check_range(const reader *r, const char *key, uint64_t value, uint64_t least, uint64_t most) {
    if (value >= least && value <= most) return QUIRE_OK;
    return qr_fail(r->error, QUIRE_FORMAT, qr_gguf_path(r->gguf), QR_NO_OFFSET, "%s: %llu is outside %llu to %llu", key,
                   (unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
}

/* An array of one number per layer, all equal. */
static quire_status read_uniform(const reader *r, const char *key, uint32_t layer_count, uint64_t *value) {
    int32_t *numbers;
    uint64_t count;
    quire_status status = qr_gguf_get_i32s(r->gguf, key, &numbers, &count, r->error);
    if (status) return status;
    if (count != layer_count) status = refuse(r, QUIRE_FORMAT, key, "it does not have one number per layer");
    for (uint64_t i = 0; !status && i < count; i++) {
        if (numbers[i] < 0) status = refuse(r, QUIRE_FORMAT, key, "it must not be negative");
        else if (numbers[i] != numbers[0])
            status = refuse(r, QUIRE_UNSUPPORTED, key, "layers of different shapes are not supported");
    }
    if (!status) *value = (uint64_t)numbers[0];
    free(numbers);
    return status;
}

/* A count from 1 to `most`; absent: `fallback`, or an error when that is 0. shape->layer_count must be known for arrays. */
static quire_status read_count(const reader *r, const qr_model_shape *shape, const char *key, uint32_t fallback, uint32_t most,
                               uint32_t *out) {
    uint64_t value = fallback;
    quire_status status = qr_gguf_is_array(r->gguf, key) ? read_uniform(r, key, shape->layer_count, &value)
                                                         : qr_gguf_get_u64(r->gguf, key, &value, r->error);
    if (status == QUIRE_NOT_FOUND) {
        if (!fallback) return refuse(r, QUIRE_FORMAT, key, "the key is missing");
        value = fallback;
        status = QUIRE_OK;
    }
    if (!status) status = check_range(r, key, value, 1, most);
    if (!status) *out = (uint32_t)value;
    return status;
}

static quire_status read_float(const reader *r, const char *key, double fallback, double *out) {
    quire_status status = qr_gguf_get_f64(r->gguf, key, out, r->error);
    if (status != QUIRE_NOT_FOUND) return status;
    *out = fallback;
    return QUIRE_OK;
}

static quire_status read_dims(const reader *r, qr_model_shape *s) {
    enum { WIDE = QR_MATMUL_K_MAX };
    quire_status status;
    if ((status = read_count(r, s, "llama.block_count", 0, QR_LAYERS_MAX, &s->layer_count)) ||
        (status = read_count(r, s, "llama.embedding_length", 0, WIDE, &s->embedding_size)) ||
        (status = read_count(r, s, "llama.feed_forward_length", 0, WIDE, &s->feed_forward_size)) ||
        (status = read_count(r, s, "llama.context_length", 0, QR_CONTEXT_MAX, &s->context_length)) ||
        (status = read_count(r, s, "llama.attention.head_count", 0, WIDE, &s->head_count)) ||
        (status = read_count(r, s, "llama.attention.head_count_kv", s->head_count, WIDE, &s->kv_head_count)))
        return status;
    uint32_t head_dim = s->embedding_size / s->head_count; /* 0 when nonsense, and then the lengths must be given */
    if ((status = read_count(r, s, "llama.attention.key_length", head_dim, QR_ATTN_HEAD_DIM_MAX, &s->key_dim)) ||
        (status = read_count(r, s, "llama.attention.value_length", head_dim, QR_ATTN_HEAD_DIM_MAX, &s->value_dim)))
        return status;
    return read_count(r, s, "llama.rope.dimension_count", s->key_dim, s->key_dim, &s->rope_dims);
}

static quire_status check_multiple(const reader *r, const char *key, uint32_t value, uint32_t of) {
    if (value % of == 0) return QUIRE_OK;
    return qr_fail(r->error, QUIRE_UNSUPPORTED, qr_gguf_path(r->gguf), QR_NO_OFFSET, "%s: %u is not a multiple of %u", key,
                   value, of);
}

static quire_status check_dims(const reader *r, const qr_model_shape *s) {
    quire_status status;
    if (s->head_count % s->kv_head_count)
        return refuse(r, QUIRE_FORMAT, "llama.attention.head_count", "it is not a multiple of head_count_kv");
    if ((status = check_multiple(r, "llama.embedding_length", s->embedding_size, 16)) ||
        (status = check_multiple(r, "llama.feed_forward_length", s->feed_forward_size, 16)) ||
        (status = check_multiple(r, "llama.attention.key_length", s->key_dim, 16)) ||
        (status = check_multiple(r, "llama.attention.value_length", s->value_dim, 16)) ||
        (status = check_multiple(r, "llama.rope.dimension_count", s->rope_dims, 2)))
        return status;
    uint32_t widest = s->key_dim > s->value_dim ? s->key_dim : s->value_dim;
    return check_range(r, "llama.attention.head_count", (uint64_t)s->head_count * widest, 1, QR_MATMUL_K_MAX);
}

static quire_status read_rope_scaling(const reader *r, qr_model_shape *s) {
    qr_text type;
    s->rope_linear_scale = 1;
    quire_status status = qr_gguf_get_text(r->gguf, "llama.rope.scaling.type", &type, r->error);
    if (status == QUIRE_NOT_FOUND) return read_float(r, "llama.rope.scale_linear", 1, &s->rope_linear_scale); /* the old key */
    if (status) return status;
    if (type.size == 4 && !memcmp(type.data, "none", 4)) return QUIRE_OK;
    if (type.size == 6 && !memcmp(type.data, "linear", 6))
        return read_float(r, "llama.rope.scaling.factor", 1, &s->rope_linear_scale);
    return refuse(r, QUIRE_UNSUPPORTED, "llama.rope.scaling.type", "only none and linear are supported");
}

static quire_status read_floats(const reader *r, qr_model_shape *s) {
    double eps;
    quire_status status;
    if ((status = read_float(r, "llama.attention.layer_norm_rms_epsilon", -1, &eps)) ||
        (status = read_float(r, "llama.rope.freq_base", 10000, &s->rope_base)) || (status = read_rope_scaling(r, s)))
        return status;
    if (!(eps > 0 && eps < 1))
        return refuse(r, QUIRE_FORMAT, "llama.attention.layer_norm_rms_epsilon", "it must be there and between 0 and 1");
    if (!(s->rope_base >= 1 && s->rope_base <= 1e12))
        return refuse(r, QUIRE_FORMAT, "llama.rope.freq_base", "it is outside 1 to 1e12");
    if (!(s->rope_linear_scale >= 1e-3 && s->rope_linear_scale <= 1e6))
        return refuse(r, QUIRE_FORMAT, "llama.rope.scaling.factor", "it is outside 0.001 to 1e6");
    s->norm_eps = (float)eps;
    return QUIRE_OK;
}

/* Features of the key set that change logits and that this program does not compute. */
static quire_status refuse_features(const reader *r, const qr_model_shape *s) {
    uint64_t value;
    bool causal;
    quire_status status = qr_gguf_get_u64(r->gguf, "llama.expert_count", &value, r->error);
    if (!status && value) return refuse(r, QUIRE_UNSUPPORTED, "llama.expert_count", "mixtures of experts are not supported");
    if (status && status != QUIRE_NOT_FOUND) return status;
    status = qr_gguf_get_u64(r->gguf, "llama.attention.sliding_window", &value, r->error);
    if (!status && value && value < s->context_length)
        return refuse(r, QUIRE_UNSUPPORTED, "llama.attention.sliding_window", "sliding windows are not supported");
    if (status && status != QUIRE_NOT_FOUND) return status;
    status = qr_gguf_get_bool(r->gguf, "llama.attention.causal", &causal, r->error);
    if (!status && !causal) return refuse(r, QUIRE_UNSUPPORTED, "llama.attention.causal", "only causal attention is supported");
    return status == QUIRE_NOT_FOUND ? QUIRE_OK : status;
}

static quire_status check_architecture(const reader *r) {
    qr_text name;
    quire_status status = qr_gguf_get_text(r->gguf, "general.architecture", &name, r->error);
    if (status == QUIRE_NOT_FOUND) return refuse(r, QUIRE_FORMAT, "general.architecture", "the key is missing");
    if (status) return status;
    if (name.size == 5 && !memcmp(name.data, "llama", 5)) return QUIRE_OK;
    return qr_fail(r->error, QUIRE_UNSUPPORTED, qr_gguf_path(r->gguf), QR_NO_OFFSET,
                   "general.architecture: \"%.*s\" is not supported (llama is)", name.size < 64 ? (int)name.size : 64,
                   name.data);
}

static quire_status read_vocabulary_size(const reader *r, qr_model_shape *s) {
    qr_text *tokens;
    uint64_t count;
    quire_status status = qr_gguf_get_texts(r->gguf, "tokenizer.ggml.tokens", &tokens, &count, r->error);
    if (status == QUIRE_NOT_FOUND) return refuse(r, QUIRE_FORMAT, "tokenizer.ggml.tokens", "the key is missing");
    if (status) return status;
    free(tokens);
    s->vocabulary_size = (uint32_t)count;
    return check_range(r, "tokenizer.ggml.tokens", count, 1, QR_VOCABULARY_MAX);
}

quire_status qr_model_shape_read(const qr_gguf *gguf, qr_model_shape *shape, quire_error *error) {
    const reader r = {gguf, error};
    quire_status status;
    memset(shape, 0, sizeof *shape);
    if ((status = check_architecture(&r)) || (status = read_dims(&r, shape)) || (status = check_dims(&r, shape)) ||
        (status = read_floats(&r, shape)) || (status = refuse_features(&r, shape)))
        return status;
    return read_vocabulary_size(&r, shape);
}
