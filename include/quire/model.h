/* model.h - a language model read from a GGUF file: weights, tokenizer, chat template.
 *
 * Thread: a model is read-only after open and may be shared by threads.
 */
#ifndef QUIRE_MODEL_H
#define QUIRE_MODEL_H

#include <quire/kv.h>
#include <quire/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_model quire_model;

typedef struct quire_model_options {
    bool header_only;       /* no weights: what `quire plan` needs */
    bool exact_activations; /* weights widened to fp32 and activations not quantised: slow, for golden tests */
    const char *cpu_path;   /* NULL = best of this machine; "scalar", "avx2", "avx512" */
    int thread_count;       /* for repacking; 0 = all cores */
    /* A folder of this user's that remembers fingerprints of files, so that an unchanged file is not hashed at every load;
     * made when missing. NULL = hash. */
    const char *fingerprint_folder;
} quire_model_options;

typedef struct quire_model_info {
    char name[128]; /* general.name, or the file's base name */
    char architecture[32];
    char quantization[32]; /* the type that most weight bytes have, e.g. "Q4_1" */
    char path[256];
    uint64_t file_bytes;
    uint64_t parameter_count;
    uint64_t weight_bytes; /* memory that loaded weights take (packed), computed also for header_only */
    uint64_t mapped_bytes; /* file pages that stay in use after load */
    uint32_t layer_count, embedding_size, head_count, kv_head_count, key_dim, value_dim, feed_forward_size;
    uint32_t vocabulary_size, context_length;
    uint64_t fingerprint;   /* of everything that changes logits: header and weights; 0 for header_only */
    bool has_chat_template; /* a template that this program can render */
} quire_model_info;

/* Errors: IO, FORMAT (path, field, offset named), UNSUPPORTED (what is named), NO_MEMORY. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_model_open(const char *path, const quire_model_options *options,
                                                         quire_model **model, quire_error *error);
QUIRE_API void quire_model_close(quire_model *model);
QUIRE_API const quire_model_info *quire_model_get_info(const quire_model *model);
/* Fills groups and group_count of a KV config for this model. */
QUIRE_API void quire_model_kv_groups(const quire_model *model, quire_kv_type key_type, quire_kv_type value_type,
                                     quire_kv_config *config);

#ifdef __cplusplus
}
#endif
#endif
