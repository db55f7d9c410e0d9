/* model.h - what a loaded model holds; the rest of the engine reads it through these calls. */
#ifndef QR_MODEL_MODEL_H
#define QR_MODEL_MODEL_H

#include "runtime/model/chat_template.h"
#include "runtime/model/cpu/matmul.h"
#include "runtime/model/tokenizer.h"
#include <quire/model.h>

typedef struct qr_layer {
    const float *attention_norm, *feed_forward_norm; /* [embedding] */
    qr_matrix qkv;                                   /* rows: q, k, v; one product when the three types agree, else three */
    qr_matrix q, k, v;                               /* set when qkv.n == 0 */
    qr_matrix output;
    qr_matrix gate_up; /* as qkv: gate rows then up rows */
    qr_matrix gate, up;
    qr_matrix down;
} qr_layer;

typedef struct qr_weights {
    qr_matrix embedding;
    qr_matrix head; /* the same storage as embedding when tied */
    bool tied;
    const float *output_norm;
    float norm_eps;
    uint32_t rope_dims;
    const double *rope_inv_freq; /* [rope_dims / 2] */
    const qr_layer *layers;
} qr_weights;

const qr_weights *qr_model_weights(const quire_model *model);
const qr_tokenizer *qr_model_tokenizer(const quire_model *model);
const qr_chat_template *qr_model_chat_template(const quire_model *model);
const char *qr_model_cpu_path(const quire_model *model); /* chosen at open */
#endif
