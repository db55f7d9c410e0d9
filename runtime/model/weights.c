/* weights.c - which tensors a `llama` model has, what shapes they must have and where each goes.
 *
 * Parts lie in the region in the order in which a step reads them, so that the read stream of one product runs into the
 * next. Every tensor of the file must be used: one that is not would mean logits other than the file defines.
 */
#include "runtime/model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/checked.h"
#include "base/error.h"
#include "runtime/model/weights_internal.h"

/* What create works with. */
typedef struct builder {
    qr_weight_store *store;
    const qr_model_shape *shape;
    quire_error *error;
} builder;

/* ---- tensors ---- */

static quire_status bad_tensor(const builder *b, quire_status status, const char *name, const char *what) {
    return qr_fail(b->error, status, qr_gguf_path(b->store->gguf), QR_NO_OFFSET, "tensor %s %s", name, what);
}

static void use_tensor(qr_weight_store *store, const qr_gguf_tensor *t) {
    store->tensor_used[t - qr_gguf_tensor_at(store->gguf, 0)] = true;
    store->parameter_count += t->element_count;
    store->type_bytes[t->type] += t->size_bytes;
}

/* The tensor [n][k], or an error that names it. */
static quire_status take_tensor(const builder *b, const char *name, uint32_t n, uint32_t k, const qr_gguf_tensor **tensor) {
    const qr_gguf_tensor *t = qr_gguf_find_tensor(b->store->gguf, name);
    if (!t) return bad_tensor(b, QUIRE_FORMAT, name, "is missing");
    if (t->dims[0] != k || t->dims[1] != n || t->dims[2] != 1 || t->dims[3] != 1) {
        char what[160];
        (void)snprintf(what, sizeof what, "has shape [%llu, %llu, %llu, %llu] where [%u, %u] is needed",
                       (unsigned long long)t->dims[0], (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
                       (unsigned long long)t->dims[3], k, n);
        return bad_tensor(b, QUIRE_FORMAT, name, what);
    }
    use_tensor(b->store, t);
    *tensor = t;
    return QUIRE_OK;
}

static const char *layer_name(char *buffer, size_t size, uint32_t layer, const char *what) {
    (void)snprintf(buffer, size, "blk.%u.%s.weight", layer, what);
    return buffer;
}

/* ---- parts ---- */

static quire_status place(const builder *b, weight_part part, size_t bytes) {
    qr_weight_store *s = b->store;
    QR_ASSERT(s->part_count < s->part_capacity);
    const char *name = part.tensors[0]->name.data;
    int shown = (int)part.tensors[0]->name.size;
    part.offset = s->bytes;
    if (!bytes || bytes > SIZE_MAX / 4 || !qr_add_size(s->bytes, qr_align_up(bytes, WEIGHT_PART_ALIGNMENT), &s->bytes))
        return qr_fail(b->error, QUIRE_UNSUPPORTED, qr_gguf_path(s->gguf), QR_NO_OFFSET,
                       "tensor %.*s: no product for type %s and %u x %u", shown, name, qr_weight_type_name(part.type), part.n,
                       part.k);
    s->parts[s->part_count++] = part;
    return QUIRE_OK;
}

/* Stacks `count` tensors of one type as one matrix. */
static quire_status place_matrix(const builder *b, const qr_gguf_tensor *const *tensors, uint32_t count, qr_matrix *matrix) {
    weight_part part = {.tensor_count = count, .matrix = matrix, .k = (uint32_t)tensors[0]->dims[0]};
    for (uint32_t i = 0; i < count; i++) {
        part.tensors[i] = tensors[i];
        part.n += (uint32_t)tensors[i]->dims[1];
    }
    part.type = b->store->exact ? QR_WEIGHT_F32 : tensors[0]->type;
    return place(b, part, qr_matrix_packed_bytes(part.type, part.n, part.k));
}

static quire_status place_vector(const builder *b, const char *name, uint32_t k, const float **vector) {
    weight_part part = {.tensor_count = 1, .n = 1, .k = k, .type = QR_WEIGHT_F32, .vector = vector};
    quire_status status = take_tensor(b, name, 1, k, &part.tensors[0]);
    if (status) return status;
    if (!qr_weight_is_float(part.tensors[0]->type)) return bad_tensor(b, QUIRE_UNSUPPORTED, name, "must be of a float type");
    return place(b, part, (size_t)k * sizeof(float));
}

static quire_status take_and_place(const builder *b, const char *name, uint32_t n, uint32_t k, qr_matrix *matrix) {
    const qr_gguf_tensor *tensor;
    quire_status status = take_tensor(b, name, n, k, &tensor);
    return status ? status : place_matrix(b, &tensor, 1, matrix);
}

/* One product when the types agree, else one each. */
static quire_status place_fused(const builder *b, const qr_gguf_tensor *const *tensors, uint32_t count, qr_matrix *fused,
                                qr_matrix *const *single) {
    bool same = true;
    for (uint32_t i = 1; i < count; i++) same = same && tensors[i]->type == tensors[0]->type;
    if (same || b->store->exact) return place_matrix(b, tensors, count, fused);
    quire_status status = QUIRE_OK;
    for (uint32_t i = 0; !status && i < count; i++) status = place_matrix(b, &tensors[i], 1, single[i]);
    return status;
}

static quire_status place_qkv(const builder *b, uint32_t index, qr_layer *layer) {
    const qr_model_shape *s = b->shape;
    const qr_gguf_tensor *t[3];
    char name[64];
    quire_status status;
    uint32_t q = s->head_count * s->key_dim, k = s->kv_head_count * s->key_dim, v = s->kv_head_count * s->value_dim;
    if ((status = take_tensor(b, layer_name(name, sizeof name, index, "attn_q"), q, s->embedding_size, &t[0])) ||
        (status = take_tensor(b, layer_name(name, sizeof name, index, "attn_k"), k, s->embedding_size, &t[1])) ||
        (status = take_tensor(b, layer_name(name, sizeof name, index, "attn_v"), v, s->embedding_size, &t[2])))
        return status;
    return place_fused(b, t, 3, &layer->qkv, (qr_matrix *[]){&layer->q, &layer->k, &layer->v});
}

static quire_status place_gate_up(const builder *b, uint32_t index, qr_layer *layer) {
    const qr_model_shape *s = b->shape;
    const qr_gguf_tensor *t[2];
    char name[64];
    quire_status status;
    if ((status = take_tensor(b, layer_name(name, sizeof name, index, "ffn_gate"), s->feed_forward_size, s->embedding_size,
                              &t[0])) ||
        (status =
             take_tensor(b, layer_name(name, sizeof name, index, "ffn_up"), s->feed_forward_size, s->embedding_size, &t[1])))
        return status;
    return place_fused(b, t, 2, &layer->gate_up, (qr_matrix *[]){&layer->gate, &layer->up});
}

static quire_status place_layer(const builder *b, uint32_t index, qr_layer *layer) {
    const qr_model_shape *s = b->shape;
    char name[64];
    quire_status status;
    if ((status =
             place_vector(b, layer_name(name, sizeof name, index, "attn_norm"), s->embedding_size, &layer->attention_norm)) ||
        (status = place_qkv(b, index, layer)) ||
        (status = take_and_place(b, layer_name(name, sizeof name, index, "attn_output"), s->embedding_size,
                                 s->head_count * s->value_dim, &layer->output)) ||
        (status =
             place_vector(b, layer_name(name, sizeof name, index, "ffn_norm"), s->embedding_size, &layer->feed_forward_norm)) ||
        (status = place_gate_up(b, index, layer)))
        return status;
    return take_and_place(b, layer_name(name, sizeof name, index, "ffn_down"), s->embedding_size, s->feed_forward_size,
                          &layer->down);
}

/* Without output.weight the embedding is the head too, stored once (R38). */
static quire_status place_ends(const builder *b) {
    qr_weight_store *s = b->store;
    uint32_t n = b->shape->vocabulary_size, k = b->shape->embedding_size;
    quire_status status = place_vector(b, "output_norm.weight", k, &s->weights.output_norm);
    if (status) return status;
    s->weights.tied = !qr_gguf_find_tensor(s->gguf, "output.weight");
    if (!s->weights.tied && (status = take_and_place(b, "output.weight", n, k, &s->weights.head))) return status;
    return take_and_place(b, "token_embd.weight", n, k, &s->weights.embedding);
}

/* ---- RoPE ---- */

static quire_status take_rope_factors(const builder *b, float **factors) {
    const qr_gguf_tensor *t;
    *factors = NULL;
    if (!qr_gguf_find_tensor(b->store->gguf, "rope_freqs.weight")) return QUIRE_OK;
    uint32_t count = b->shape->rope_dims / 2;
    quire_status status = take_tensor(b, "rope_freqs.weight", 1, count, &t);
    if (status) return status;
    if (t->type != QR_WEIGHT_F32) return bad_tensor(b, QUIRE_UNSUPPORTED, "rope_freqs.weight", "must be F32");
    *factors = calloc(count, sizeof **factors);
    if (!*factors) return QUIRE_NO_MEMORY;
    memcpy(*factors, t->data, count * sizeof **factors);
    for (uint32_t i = 0; i < count; i++)
        if (!((*factors)[i] >= 1e-6f && (*factors)[i] <= 1e6f))
            return bad_tensor(b, QUIRE_FORMAT, "rope_freqs.weight", "has a factor outside 1e-6 to 1e6");
    return QUIRE_OK;
}

static quire_status make_rope(const builder *b) {
    const qr_model_shape *s = b->shape;
    float *factors;
    quire_status status = take_rope_factors(b, &factors);
    if (!status) {
        qr_rope_frequencies(b->store->rope_inv_freq, s->rope_dims, s->rope_base, s->rope_linear_scale, factors);
        b->store->weights.rope_dims = s->rope_dims;
        b->store->weights.rope_inv_freq = b->store->rope_inv_freq;
    }
    free(factors);
    return status;
}

/* ---- the whole ---- */

static quire_status check_all_used(const builder *b) {
    const qr_weight_store *s = b->store;
    for (uint64_t i = 0; i < qr_gguf_tensor_count(s->gguf); i++) {
        const qr_gguf_tensor *t = qr_gguf_tensor_at(s->gguf, i);
        if (s->tensor_used[i]) continue;
        return qr_fail(b->error, QUIRE_UNSUPPORTED, qr_gguf_path(s->gguf), QR_NO_OFFSET,
                       "tensor %.*s is not part of the llama models that this program runs", (int)t->name.size, t->name.data);
    }
    return QUIRE_OK;
}

static quire_status build(const builder *b) {
    qr_weight_store *s = b->store;
    quire_status status = QUIRE_OK;
    for (uint32_t i = 0; !status && i < b->shape->layer_count; i++) status = place_layer(b, i, &s->layers[i]);
    if (!status) status = place_ends(b);
    if (!status) status = make_rope(b);
    if (!status) status = check_all_used(b);
    s->weights.layers = s->layers;
    s->weights.norm_eps = b->shape->norm_eps;
    return status;
}

static bool take_tables(qr_weight_store *s, const qr_model_shape *shape) {
    enum { PARTS_PER_LAYER = 9, PARTS_BESIDES = 3 };
    uint64_t tensors = qr_gguf_tensor_count(s->gguf);
    s->part_capacity = shape->layer_count * PARTS_PER_LAYER + PARTS_BESIDES;
    s->parts = calloc(s->part_capacity, sizeof *s->parts);
    s->layers = calloc(shape->layer_count, sizeof *s->layers);
    s->rope_inv_freq = calloc(shape->rope_dims, sizeof *s->rope_inv_freq);
    s->tensor_used = calloc(tensors ? (size_t)tensors : 1, sizeof *s->tensor_used);
    return s->parts && s->layers && s->rope_inv_freq && s->tensor_used;
}

quire_status qr_weight_store_create(const qr_gguf *gguf, const qr_model_shape *shape, bool exact, qr_weight_store **out,
                                    quire_error *error) {
    *out = NULL;
    qr_weight_store *s = calloc(1, sizeof *s);
    quire_status status = QUIRE_NO_MEMORY;
    if (s) {
        const builder b = {s, shape, error};
        s->gguf = gguf;
        s->exact = exact;
        if (take_tables(s, shape)) status = build(&b);
    }
    if (status == QUIRE_NO_MEMORY)
        (void)qr_fail(error, status, qr_gguf_path(gguf), QR_NO_OFFSET, "no memory for the list of tensors");
    if (status) qr_weight_store_destroy(s);
    else *out = s;
    return status;
}

void qr_weight_store_destroy(qr_weight_store *s) {
    if (!s) return;
    qr_region_free(&s->region);
    free(s->parts);
    free(s->layers);
    free(s->rope_inv_freq);
    free(s->tensor_used);
    free(s);
}

const qr_weights *qr_weight_store_weights(const qr_weight_store *s) { return &s->weights; }
uint64_t qr_weight_store_bytes(const qr_weight_store *s) { return s->bytes + QR_MATRIX_READ_AHEAD; }
uint64_t qr_weight_store_parameters(const qr_weight_store *s) { return s->parameter_count; }
void qr_weight_store_set_fingerprint(qr_weight_store *s, uint64_t fingerprint) { s->fingerprint = fingerprint; }
uint64_t qr_weight_store_fingerprint(const qr_weight_store *s) { return s->fingerprint; }

qr_weight_type qr_weight_store_main_type(const qr_weight_store *s) {
    qr_weight_type best = QR_WEIGHT_F32;
    for (int i = 0; i < QR_WEIGHT_TYPE_COUNT; i++)
        if (s->type_bytes[i] > s->type_bytes[best]) best = (qr_weight_type)i;
    return best;
}
