#include <criterion/criterion.h>

#include "tests/unit/attention/scene.h"

static const char *const paths[] = {"scalar", "avx2", "avx512"};

/* Bit patterns of every kind: numbers of all sizes, infinities, NaNs, subnormals. */
static void fill_any(scene *s, float *x, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)(qr_random_u64(&s->random) >> 32);
        if (i % 3 == 0) bits = (bits & 0x80ffffffu) | 0x47000000u; /* around the largest f16 */
        if (i % 7 == 0) bits = (bits & 0x80ffffffu) | 0x38000000u; /* f16 subnormals */
        x[i] = qr_bits_f32(bits);
    }
}

Test(attention_store, paths_write_the_same_bytes_into_one_slot_only) {
    static const quire_kv_type types[] = {QUIRE_KV_F32, QUIRE_KV_F16, QUIRE_KV_BF16};
    static float key[2 * 80], value[2 * 48];
    for (int t = 0; t < 9; t++) {
        qr_attn_shape shape = scene_shape(2, 2, 80, 48, 32, types[t / 3], types[t % 3]);
        scene *s = scene_create(shape, 3, 5 + (uint64_t)t), *copy = scene_create(shape, 3, 5 + (uint64_t)t);
        for (uint32_t slot = 0; slot < 32; slot++) {
            fill_any(s, key, 160);
            fill_any(s, value, 96);
            for (size_t p = 1; p < sizeof paths / sizeof *paths; p++) {
                if (!scene_path(paths[p])) continue;
                uint64_t saturated = 0, expect = 0;
                qr_attn_store(&qr_attn_path_scalar, &shape, &s->memory, 1, 2, slot, key, value, &expect);
                qr_attn_store(scene_path(paths[p]), &shape, &copy->memory, 1, 2, slot, key, value, &saturated);
                cr_assert_eq(saturated, expect, "%s: %d", paths[p], t);
                cr_assert(memcmp(s->memory.base, copy->memory.base, 3 * s->memory.block_stride) == 0, "%s: %d", paths[p], t);
            }
        }
        for (size_t i = 0; i < 2 * s->memory.block_stride + s->memory.key_offset[2]; i++)
            cr_assert_eq(s->memory.base[i], 0xff, "byte %zu of another block or layer", i);
        scene_destroy(s);
        scene_destroy(copy);
    }
}

Test(attention_store, key_is_transposed_and_value_is_not) {
    qr_attn_shape shape = scene_shape(1, 1, 16, 32, 64, QUIRE_KV_F32, QUIRE_KV_BF16);
    scene *s = scene_create(shape, 2, 1);
    float key[16], value[32];
    uint64_t saturated = 0;
    for (int i = 0; i < 16; i++) key[i] = (float)i;
    for (int i = 0; i < 32; i++) value[i] = (float)-i;
    qr_attn_store(&qr_attn_path_scalar, &shape, &s->memory, 0, 1, 37, key, value, &saturated);
    const uint8_t *block = s->memory.base + s->memory.block_stride;
    for (uint32_t d = 0; d < 16; d++) cr_assert(memcmp(block + s->memory.key_offset[0] + (d * 64 + 37) * 4, &key[d], 4) == 0);
    for (uint32_t d = 0; d < 32; d++) {
        uint16_t half;
        memcpy(&half, block + s->memory.value_offset[0] + (37 * 32 + d) * 2, 2);
        cr_assert_eq(qr_bf16_to_f32(half), value[d]);
    }
    scene_destroy(s);
}

Test(attention_store, f16_saturates_and_counts) {
    const float values[] = {65504, 65505, 65519, 65520, 1e30f, INFINITY, -65504, -65520, -INFINITY, NAN, 0, 1, -1, 2, 3, 4};
    const float expect[] = {65504, 65504, 65504, 65504, 65504, 65504, -65504, -65504, -65504, NAN, 0, 1, -1, 2, 3, 4};
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        if (!scene_path(paths[p])) continue;
        uint16_t half[16];
        cr_assert_eq(scene_path(paths[p])->narrow(half, values, 16, QUIRE_KV_F16), 7, "%s", paths[p]);
        for (int i = 0; i < 16; i++) {
            float x = qr_f16_to_f32(half[i]);
            cr_assert(isnan(expect[i]) ? isnan(x) : x == expect[i], "%s: %g", paths[p], (double)values[i]);
        }
        cr_assert_eq(scene_path(paths[p])->narrow(half, values, 16, QUIRE_KV_BF16), 0);
    }
}
