/* weights_internal.h - the list of a model's parts; made by weights.c, filled with bytes by weights_load.c. */
#ifndef QR_MODEL_WEIGHTS_INTERNAL_H
#define QR_MODEL_WEIGHTS_INTERNAL_H

#include "base/memory.h"
#include "runtime/model/weights.h"

enum { WEIGHT_FUSED_MAX = 3, WEIGHT_PART_ALIGNMENT = 128 };

/* A packed matrix made of one to three tensors of one type stacked by rows, or an F32 vector. */
typedef struct weight_part {
    const qr_gguf_tensor *tensors[WEIGHT_FUSED_MAX];
    uint32_t tensor_count;
    uint32_t n, k;
    qr_weight_type type;  /* as packed */
    qr_matrix *matrix;    /* or */
    const float **vector; /* [k] */
    size_t offset;        /* in the region */
} weight_part;

struct qr_weight_store {
    const qr_gguf *gguf;
    bool exact;
    qr_weights weights;
    qr_layer *layers;
    double *rope_inv_freq;
    weight_part *parts;
    uint32_t part_count, part_capacity;
    bool *tensor_used; /* [tensors of the file] */
    size_t bytes;
    uint64_t parameter_count;
    uint64_t type_bytes[QR_WEIGHT_TYPE_COUNT];
    qr_region region;
    uint64_t fingerprint;
};
#endif
