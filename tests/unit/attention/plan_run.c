/* Every path against the scalar definition, rows in company against the same rows alone, and the definition against
 * double precision. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/attention/scene.h"

static const char *const paths[] = {"scalar", "avx2", "avx512"};

static float *rows_buffer(const scene *s) {
    float *out = malloc(scene_out_count(s) * sizeof *out);
    cr_assert(out);
    return out;
}

static bool same_rows(const scene *s, const float *a, const float *b, uint32_t count) {
    return memcmp(a, b, count * scene_row_count(s) * sizeof *a) == 0;
}

/* All paths, threads and bounds of stored partials give `expect`. */
static void check_paths(const scene *s, const char *name, const float *expect) {
    static const uint32_t cells[] = {UINT32_MAX, 0, 7};
    float *out = rows_buffer(s);
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        if (!scene_path(paths[p])) continue;
        for (int threads = p == 0 ? 3 : 1; threads <= 3; threads++)
            for (size_t c = 0; c < sizeof cells / sizeof *cells; c++) {
                if (p == 0 && c > 0) continue;
                scene_run(s, paths[p], threads, cells[c], 0, s->row_count, out);
                cr_assert(same_rows(s, out, expect, s->row_count), "%s: %s, %d threads, %u cells", name, paths[p], threads,
                          cells[c]);
            }
    }
    free(out);
}

/* Rows in groups of `size`, one group at a time. */
static void check_cut(const scene *s, const char *name, const char *path, uint32_t size, uint32_t stride, const float *expect) {
    float *out = rows_buffer(s);
    for (uint32_t r = 0; r < s->row_count; r += stride) {
        uint32_t count = s->row_count - r < size ? s->row_count - r : size;
        scene_run(s, path, 2, UINT32_MAX, r, count, out);
        cr_assert(same_rows(s, out, expect + r * scene_row_count(s), count), "%s: %s, %u rows from %u", name, path, count, r);
    }
    free(out);
}

static void check_scene(scene *s, const char *name) {
    scene_ready(s);
    float *expect = rows_buffer(s);
    scene_run(s, "scalar", 1, UINT32_MAX, 0, s->row_count, expect);
    double distance = scene_distance(s, expect, s->row_count > 20 ? 7 : 1);
    cr_assert(distance <= scene_distance_max(s), "%s: %g from double precision", name, distance);
    check_paths(s, name, expect);
    const char *fast = scene_path("avx512") ? "avx512" : scene_path("avx2") ? "avx2" : "scalar";
    check_cut(s, name, fast, 1, s->row_count > 40 ? 37 : 1, expect);
    check_cut(s, name, fast, 16, 16, expect);
    check_cut(s, name, fast, 7, 7, expect);
    free(expect);
    scene_destroy(s);
}

static scene *smollm(uint32_t blocks, uint64_t seed) {
    return scene_create(scene_shape(9, 3, 64, 64, 16, QUIRE_KV_F16, QUIRE_KV_F16), blocks, seed);
}

Test(attention_plan_run, decode_at_every_short_length) {
    for (uint32_t length = 1; length < 40; length++) {
        scene *s = smollm(8, length);
        scene_add(s, length - 1, length, 0, 0, 0);
        check_scene(s, "short");
    }
}

Test(attention_plan_run, decode_around_span_ends_and_far_out) {
    static const uint32_t lengths[] = {255, 256, 257, 511, 512, 513, 2048, 4097};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        scene *s = smollm(300, lengths[i]);
        scene_add(s, lengths[i] - 1, lengths[i], 0, 0, 0);
        check_scene(s, "decode");
    }
}

Test(attention_plan_run, sixteen_sequences_of_their_own) {
    scene *s = smollm(16 * 17, 16);
    for (int i = 0; i < 16; i++) scene_add(s, 271, 272, 0, 0, 0);
    check_scene(s, "16 x 272");
}

Test(attention_plan_run, shared_prefixes_that_branch) {
    scene *s = smollm(900, 21);
    scene_add(s, 1100, 1101, 0, 0, 0);
    for (uint32_t i = 0; i < 12; i++) scene_add(s, 1024 + i * 13, 1025 + i * 13, 0, 1024, 0);
    for (uint32_t i = 0; i < 6; i++) scene_add(s, 900 + i, 901 + i, 3, 512 + i * 40, 0);
    for (uint32_t i = 0; i < 3; i++) scene_add(s, 700, 701, 15, 256, 0);
    check_scene(s, "shared");
}

Test(attention_plan_run, prefill_from_the_start_and_onto_a_prefix) {
    scene *s = smollm(200, 31);
    scene_add(s, 0, 300, 0, 0, 0);
    check_scene(s, "prefill 300 at 0");
    s = smollm(200, 32);
    scene_add(s, 500, 630, 0, 0, 0);
    check_scene(s, "prefill 130 at 500");
}

Test(attention_plan_run, decode_chunks_and_drafts_in_one_step) {
    scene *s = smollm(400, 41);
    scene_add(s, 700, 701, 0, 0, 0);
    scene_add(s, 200, 330, 0, 8 * 16, 0);
    scene_add(s, 500, 505, 0, 31 * 16, 0);
    scene_add(s, 508, 516, 0, 31 * 16, 0);
    scene_add(s, 14, 18, 0, 0, 0);
    scene_add(s, 500, 501, 0, 31 * 16, 0);
    check_scene(s, "mixed");
}

Test(attention_plan_run, windows_hide_what_lies_before_them) {
    static const uint32_t windows[] = {1, 5, 16, 100, 256, 300, 700};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        scene *s = smollm(400, 50 + i);
        scene_add(s, 890, 891, 0, 0, windows[i]);
        scene_add(s, 500, 540, 0, 0, windows[i]);
        scene_add(s, 890, 893, 0, 55 * 16, windows[i]);
        scene_add(s, 0, 20, 0, 0, 0);
        check_scene(s, "window");
    }
}

/* heads, KV heads, key_dim, value_dim, block_tokens, key and value type */
static const qr_attn_shape shapes[] = {
    {9, 3, 64, 64, 32, QUIRE_KV_F16, QUIRE_KV_F16},    {9, 3, 64, 64, 64, QUIRE_KV_F16, QUIRE_KV_F16},
    {9, 3, 64, 64, 128, QUIRE_KV_F16, QUIRE_KV_F16},   {4, 4, 80, 80, 16, QUIRE_KV_F16, QUIRE_KV_F16},
    {8, 2, 96, 96, 16, QUIRE_KV_BF16, QUIRE_KV_BF16},  {8, 1, 128, 128, 32, QUIRE_KV_F32, QUIRE_KV_F32},
    {14, 2, 64, 64, 16, QUIRE_KV_F16, QUIRE_KV_BF16},  {4, 1, 256, 256, 16, QUIRE_KV_F16, QUIRE_KV_F16},
    {4, 2, 192, 128, 16, QUIRE_KV_BF16, QUIRE_KV_F32}, {2, 2, 16, 16, 128, QUIRE_KV_F32, QUIRE_KV_F16},
    {5, 1, 48, 112, 64, QUIRE_KV_F32, QUIRE_KV_BF16},  {30, 1, 32, 32, 16, QUIRE_KV_BF16, QUIRE_KV_F16},
    {71, 1, 64, 64, 16, QUIRE_KV_F16, QUIRE_KV_F16},   {6, 3, 64, 240, 16, QUIRE_KV_F16, QUIRE_KV_F32},
};

Test(attention_plan_run, every_kind_of_shape) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char name[64];
        scene *s = scene_create(shapes[i], 100, 60 + i);
        scene_add(s, 300, 301, 0, 0, 0);
        scene_add(s, 280, 284, 0, 256, 0);
        scene_add(s, 290, 291, 0, 256, 0);
        scene_add(s, 35, 64, 0, 0, 20);
        snprintf(name, sizeof name, "shape %zu", i);
        check_scene(s, name);
    }
}

/* Every row count of a call, so every register tile, with ragged limits. */
Test(attention_plan_run, every_number_of_rows_in_a_call) {
    for (uint32_t heads = 1; heads <= 26; heads++) {
        scene *s = scene_create(scene_shape(heads, 1, 32, 48, 16, QUIRE_KV_F16, QUIRE_KV_F16), 20, 80 + heads);
        scene_add(s, 40, 41, 0, 0, 0);
        scene_add(s, 17, 42, 0, 0, 0);
        check_scene(s, "rows");
    }
}

/* A value that a row sees is multiplied in even with weight 0, one that it does not see never is. */
Test(attention_plan_run, nan_spoils_exactly_the_rows_that_see_it) {
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        if (!scene_path(paths[p])) continue;
        for (uint32_t bad = 0; bad < 60; bad += 7) {
            scene *s = smollm(8, 90);
            scene_add(s, 0, 60, 0, 0, 20);
            scene_ready(s);
            uint16_t *value = (uint16_t *)(void *)(s->memory.base + s->ids[bad / 16] * s->memory.block_stride +
                                                   s->memory.value_offset[3 * SCENE_LAYER]);
            for (uint32_t d = 0; d < 64; d++) value[bad % 16 * 64 + d] = 0x7e00;
            float *out = rows_buffer(s);
            scene_run(s, paths[p], 1, UINT32_MAX, 0, 60, out);
            for (uint32_t r = 0; r < 60; r++)
                for (uint32_t i = 0; i < 9 * 64; i++) {
                    bool sees = i < 3 * 64 && bad <= r && bad + 20 > r;
                    cr_assert_eq(isnan(out[r * 9 * 64 + i]), sees, "%s: token %u, row %u", paths[p], bad, r);
                }
            free(out);
            scene_destroy(s);
        }
    }
}
