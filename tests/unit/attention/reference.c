#include <criterion/criterion.h>

#include "tests/unit/attention/scene.h"

/* Two tokens whose scores differ by 1: weights 2/3 and 1/3. */
Test(attention_reference, weighs_two_tokens_as_worked_out_by_hand) {
    scene *s = scene_create(scene_shape(2, 1, 16, 16, 16, QUIRE_KV_F32, QUIRE_KV_F32), 1, 1);
    float key[16] = {0}, value[16], q[32] = {0};
    quire_block_id id = 0;
    uint64_t saturated = 0;
    for (uint32_t t = 0; t < 2; t++) {
        key[3] = 2 + (float)t;
        for (int d = 0; d < 16; d++) value[d] = (float)(t == 0 ? 3 : 6 + d);
        qr_attn_store(&qr_attn_path_scalar, &s->shape, &s->memory, 1, id, t, key, value, &saturated);
    }
    q[3] = -1; /* head 0 prefers token 0; head 1 knows no difference */
    double out[32];
    qr_attn_reference(&s->shape, &s->memory, 1, &id, 0, 1, q, out);
    for (int d = 0; d < 16; d++) {
        cr_assert_float_eq(out[d], (2.0 * 3 + 6 + d) / 3, 1e-14);
        cr_assert_float_eq(out[16 + d], (3.0 + 6 + d) / 2, 1e-14);
    }
    qr_attn_reference(&s->shape, &s->memory, 1, &id, 1, 1, q, out);
    for (int d = 0; d < 16; d++) cr_assert_float_eq(out[d], 6 + d, 1e-14);
    scene_destroy(s);
}
