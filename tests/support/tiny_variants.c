/* tiny_variants.c - see tiny_variants.h. */
#include "tests/support/tiny_variants.h"

/* Chosen so that no activation of the golden text lies so near a tie that fp32 and float64 round it to different codes:
 * one such code moves every later row by some 0.01, which is as much as an error would. */
static const uint64_t seeds[TINY_VARIANTS] = {1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 1, 1, 1, 8, 1};

static const char *variant(int index, tiny_model *model) {
    if (index < QR_WEIGHT_TYPE_COUNT) {
        *model = tiny_model_of((qr_weight_type)index);
        return qr_weight_type_name((qr_weight_type)index);
    }
    switch (index - QR_WEIGHT_TYPE_COUNT) {
    case 0: /* nothing can be fused */
        *model = tiny_model_of(QR_WEIGHT_Q5_0);
        model->mixed = model->explicit_head = true;
        return "mixed";
    case 1: /* RoPE scaling of both kinds */
        *model = tiny_model_of(QR_WEIGHT_Q8_0);
        model->rope_factors = true;
        model->linear_scale = 4;
        return "scaled";
    case 2: /* head lengths that are not embedding / heads */
        *model = tiny_model_of(QR_WEIGHT_Q4_1);
        model->key_dim = 32;
        model->value_dim = 48;
        return "lengths";
    default: /* deeper, one KV head for all */
        *model = tiny_model_of(QR_WEIGHT_Q6_K);
        model->layers = 4;
        model->kv_heads = 1;
        return "deep";
    }
}

const char *tiny_variant(int index, tiny_model *model) {
    const char *name = variant(index, model);
    model->seed = seeds[index];
    return name;
}
