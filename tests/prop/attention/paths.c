/* Random shapes and steps: every path, thread count, bound of partials and cut into steps gives the scalar bits of each
 * row alone. The seed of a failure is printed; QUIRE_SEED is the first. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/unit/attention/scene.h"

enum { CASES = 100, FMA_MAX = 6000000 }; /* the scalar definition does some 300 million a second */

static const char *const paths[] = {"scalar", "avx2", "avx512"};

static uint32_t pick(scene *s, const uint32_t *from, uint32_t count) { return from[qr_random_below(&s->random, count)]; }

static qr_attn_shape random_shape(qr_random *random) {
    static const uint32_t dims[] = {16, 32, 48, 64, 64, 80, 96, 128, 192, 256}, groups[] = {1, 2, 3, 4, 5, 7, 8, 16, 25};
    static const quire_kv_type types[] = {QUIRE_KV_F32, QUIRE_KV_F16, QUIRE_KV_BF16};
    uint32_t kv_heads = 1 + qr_random_below(random, 3), heads = kv_heads * groups[qr_random_below(random, 9)];
    return scene_shape(heads, kv_heads, dims[qr_random_below(random, 10)], dims[qr_random_below(random, 10)],
                       16u << qr_random_below(random, 4), types[qr_random_below(random, 3)], types[qr_random_below(random, 3)]);
}

/* Tokens that another sequence whose rows begin at `begin` may share with this one: whole blocks that are written all
 * through. The blocks of rows are private. */
static uint32_t shareable(const scene *s, uint32_t sequence, uint32_t begin) {
    uint32_t tokens = 0;
    for (uint32_t r = 0; r < s->row_count; r++) {
        if (s->row_sequence[r] != sequence) continue;
        if (s->row_first[r] > 0) return 0;
        tokens = s->row_position[r] + 1;
    }
    if (tokens > begin) tokens = begin;
    return tokens / s->shape.block_tokens * s->shape.block_tokens;
}

/* Sequences until the scalar path would take too long. */
static void random_step(scene *s) {
    static const uint32_t lengths[] = {1, 2, 15, 16, 17, 63, 200, 255, 256, 257, 500, 513, 900};
    static const uint32_t rows[] = {1, 1, 1, 1, 2, 3, 5, 8, 9, 24, 30, 70}, windows[] = {0, 0, 0, 1, 16, 33, 256, 300};
    uint64_t fma = 0, per_key = (uint64_t)s->shape.head_count * (s->shape.key_dim + s->shape.value_dim);
    while (s->sequence_count < 12) {
        uint32_t end = pick(s, lengths, 13), count = pick(s, rows, 12), window = pick(s, windows, 8), share = 0, shared = 0;
        if (count > end) count = end;
        fma += per_key * count * end;
        if (fma > FMA_MAX && s->sequence_count > 0) break;
        if (s->sequence_count > 0 && window == 0 && qr_random_below(&s->random, 3) > 0) {
            share = qr_random_below(&s->random, s->sequence_count);
            shared = shareable(s, share, end - count);
        }
        scene_add(s, end - count, end, share, shared, window);
    }
    scene_ready(s);
}

static void check_case(uint64_t seed) {
    qr_random random = {seed};
    qr_attn_shape shape = random_shape(&random);
    scene *s = scene_create(shape, 1000 * 16 / shape.block_tokens, seed);
    random_step(s);
    size_t row_floats = scene_row_count(s), bytes = scene_out_count(s) * sizeof(float);
    float *expect = malloc(bytes), *out = malloc(bytes);
    cr_assert(expect && out);
    for (uint32_t r = 0; r < s->row_count; r++) scene_run(s, "scalar", 1, UINT32_MAX, r, 1, expect + r * row_floats);
    double distance = scene_distance(s, expect, 5);
    cr_assert(distance <= scene_distance_max(s), "seed %llu: %g from double precision", (unsigned long long)seed, distance);
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        if (!scene_path(paths[p])) continue;
        int threads = 1 + (int)qr_random_below(&random, 3);
        uint32_t cells = qr_random_below(&random, 2) ? UINT32_MAX : qr_random_below(&random, 30);
        for (uint32_t r = 0, count; r < s->row_count; r += count) {
            count = 1 + qr_random_below(&random, s->row_count - r);
            scene_run(s, paths[p], threads, cells, r, count, out + r * row_floats);
        }
        cr_assert(memcmp(out, expect, bytes) == 0, "seed %llu: %s", (unsigned long long)seed, paths[p]);
    }
    free(expect);
    free(out);
    scene_destroy(s);
}

Test(attention_paths, any_step_has_the_bits_of_its_rows_alone) {
    const char *given = getenv("QUIRE_SEED");
    uint64_t first = given ? strtoull(given, NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + CASES; seed++) check_case(seed);
}
