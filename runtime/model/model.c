/* model.c - opening a model: header, vocabulary, weights, in that order, so that a bad file is refused before memory is
 * taken for it. The file is closed again when open returns: everything that is used later was copied or repacked. */
#include "runtime/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/hash.h"
#include "runtime/model/fingerprint_sidecar.h"
#include "runtime/model/gguf.h"
#include "runtime/model/model_cpu_path.h"
#include "runtime/model/model_shape.h"
#include "runtime/model/model_vocabulary.h"
#include "runtime/model/text_stream.h"
#include "runtime/model/weights.h"

struct quire_model {
    quire_model_info info;
    qr_model_shape shape;
    qr_weight_store *store;
    qr_tokenizer *tokenizer;
    char *template_text;
    qr_chat_template *chat_template;
    qr_cpu_path cpu_path;
};

/* ---- information ---- */

/* Copies text as valid UTF-8, cut at a character when too long. */
static void set_name(char *name, size_t size, const char *text, size_t text_size) {
    size_t length;
    char *clean = qr_text_to_utf8(text, text_size, &length);
    if (!clean) return;
    if (length >= size) {
        length = size - 1;
        while (length && ((unsigned char)clean[length] & 0xc0u) == 0x80u) length--;
    }
    memcpy(name, clean, length);
    name[length] = 0;
    free(clean);
}

static void describe(quire_model *m, const qr_gguf *gguf, bool header_only) {
    quire_model_info *info = &m->info;
    const qr_model_shape *s = &m->shape;
    const char *path = qr_gguf_path(gguf), *slash = strrchr(path, '/');
    qr_text name;
    set_name(info->path, sizeof info->path, path, strlen(path));
    if (qr_gguf_get_text(gguf, "general.name", &name, NULL) || !name.size) {
        const char *base = slash ? slash + 1 : path;
        name = (qr_text){base, strlen(base)};
    }
    set_name(info->name, sizeof info->name, name.data, name.size);
    (void)snprintf(info->architecture, sizeof info->architecture, "llama");
    (void)snprintf(info->quantization, sizeof info->quantization, "%s",
                   qr_weight_type_name(qr_weight_store_main_type(m->store)));
    info->file_bytes = qr_gguf_file_bytes(gguf);
    info->parameter_count = qr_weight_store_parameters(m->store);
    info->weight_bytes = qr_weight_store_bytes(m->store);
    info->layer_count = s->layer_count;
    info->embedding_size = s->embedding_size;
    info->head_count = s->head_count;
    info->kv_head_count = s->kv_head_count;
    info->key_dim = s->key_dim;
    info->value_dim = s->value_dim;
    info->feed_forward_size = s->feed_forward_size;
    info->vocabulary_size = s->vocabulary_size;
    info->context_length = s->context_length;
    info->fingerprint = header_only ? 0 : qr_weight_store_fingerprint(m->store);
    info->has_chat_template = qr_chat_template_supported(m->chat_template);
}

/* ---- opening ---- */

static quire_status repack_weights(quire_model *m, const qr_gguf *gguf, int thread_count, quire_error *error) {
    qr_compute_pool *pool;
    if (thread_count <= 0) thread_count = (int)qr_cpu_count();
    quire_status status = qr_compute_pool_create(thread_count, QR_COMPUTE_SPIN_NS, &pool, error);
    if (status) return status;
    status = qr_weight_store_load(m->store, pool, error);
    qr_compute_pool_destroy(pool);
    qr_gguf_drop_pages(gguf);
    return status;
}

/* A file that changes while it is read is none that was ever whole: a fingerprint that was remembered for it is not true, and
 * one that was computed is not remembered. */
static quire_status load_weights(quire_model *m, const qr_gguf *gguf, const quire_model_options *options, quire_error *error) {
    const char *folder = options->fingerprint_folder;
    qr_file_identity before, after;
    uint64_t known = 0;
    if (folder && !qr_file_identity_read(qr_gguf_fd(gguf), &before)) folder = NULL;
    if (folder) known = qr_fingerprint_sidecar_find(folder, &before, options->exact_activations);
    if (known) qr_weight_store_set_fingerprint(m->store, known);
    quire_status status = repack_weights(m, gguf, options->thread_count, error);
    if (status || !folder) return status;
    bool same = qr_file_identity_read(qr_gguf_fd(gguf), &after) && qr_file_identity_equal(&before, &after);
    if (known && !same) qr_weight_store_set_fingerprint(m->store, qr_mix64(known ^ qr_clock_ns()) | 1);
    if (!known && same)
        qr_fingerprint_sidecar_keep(folder, &before, options->exact_activations, qr_weight_store_fingerprint(m->store),
                                    (int64_t)qr_clock_wall_ms() * 1000000);
    return status;
}

static quire_status fill(quire_model *m, const qr_gguf *gguf, const quire_model_options *options, quire_error *error) {
    quire_status status;
    if ((status = qr_cpu_path_find(options->cpu_path, &m->cpu_path, error)) ||
        (status = qr_model_shape_read(gguf, &m->shape, error)) ||
        (status = qr_weight_store_create(gguf, &m->shape, options->exact_activations, &m->store, error)) ||
        (status = qr_model_vocabulary_read(gguf, &m->tokenizer, error)) ||
        (status = qr_model_chat_template_read(gguf, m->tokenizer, &m->template_text, &m->chat_template, error)))
        return status;
    if (!options->header_only && (status = load_weights(m, gguf, options, error))) return status;
    describe(m, gguf, options->header_only);
    return QUIRE_OK;
}

quire_status quire_model_open(const char *path, const quire_model_options *options, quire_model **model, quire_error *error) {
    static const quire_model_options defaults = {0};
    qr_gguf *gguf;
    *model = NULL;
    quire_status status = qr_gguf_open(path, &gguf, error);
    if (status) return status;
    quire_model *m = calloc(1, sizeof *m);
    if (m) status = fill(m, gguf, options ? options : &defaults, error);
    else status = qr_fail(error, QUIRE_NO_MEMORY, path, QR_NO_OFFSET, "no memory for the model");
    qr_gguf_close(gguf);
    if (status) quire_model_close(m);
    else *model = m;
    return status;
}

void quire_model_close(quire_model *m) {
    if (!m) return;
    qr_chat_template_destroy(m->chat_template);
    qr_tokenizer_destroy(m->tokenizer);
    qr_weight_store_destroy(m->store);
    free(m->template_text);
    free(m);
}

/* ---- access ---- */

const quire_model_info *quire_model_get_info(const quire_model *m) { return &m->info; }

void quire_model_kv_groups(const quire_model *m, quire_kv_type key_type, quire_kv_type value_type, quire_kv_config *config) {
    memset(config->groups, 0, sizeof config->groups);
    config->group_count = 1; /* every layer of a llama model keeps the same positions */
    config->groups[0] = (quire_kv_group){
        .layer_count = m->shape.layer_count,
        .kv_head_count = m->shape.kv_head_count,
        .key_dim = m->shape.key_dim,
        .value_dim = m->shape.value_dim,
        .key_type = key_type,
        .value_type = value_type,
    };
}

const qr_weights *qr_model_weights(const quire_model *m) { return qr_weight_store_weights(m->store); }
const qr_tokenizer *qr_model_tokenizer(const quire_model *m) { return m->tokenizer; }
const qr_chat_template *qr_model_chat_template(const quire_model *m) { return m->chat_template; }
const char *qr_model_cpu_path(const quire_model *m) { return m->cpu_path.name; }
