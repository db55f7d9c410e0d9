#include "tests/unit/attention/scene.h"

#include <stdlib.h>

#include "base/assertion.h"
#include "base/checked.h"
#include "base/cpu_features.h"

qr_attn_shape scene_shape(uint32_t heads, uint32_t kv_heads, uint32_t key_dim, uint32_t value_dim, uint32_t block_tokens,
                          quire_kv_type key_type, quire_kv_type value_type) {
    return (qr_attn_shape){heads, kv_heads, key_dim, value_dim, block_tokens, key_type, value_type};
}

static void *take(size_t count, size_t size) {
    void *p = qr_alloc_zero(count, size);
    QR_ASSERT(p);
    return p;
}

/* Block: for each layer and head K, then V, each on a line of its own. */
static void lay_out(scene *s) {
    size_t parts = (size_t)SCENE_LAYERS * s->shape.kv_head_count, at = 0;
    size_t *key = take(parts, sizeof *key), *value = take(parts, sizeof *value);
    for (size_t i = 0; i < parts; i++) {
        key[i] = at;
        at += qr_align_up(s->shape.key_dim * s->shape.block_tokens * quire_kv_type_bytes(s->shape.key_type), 64);
        value[i] = at;
        at += qr_align_up(s->shape.value_dim * s->shape.block_tokens * quire_kv_type_bytes(s->shape.value_type), 64);
    }
    s->memory = (qr_attn_memory){take(s->block_count, at), at, key, value};
    memset(s->memory.base, 0xff, s->block_count * at);
}

scene *scene_create(qr_attn_shape shape, uint32_t block_count, uint64_t seed) {
    scene *s = take(1, sizeof *s);
    s->shape = shape;
    s->block_count = block_count;
    s->random.state = seed;
    s->shuffled = take(block_count, sizeof *s->shuffled);
    for (uint32_t i = 0; i < block_count; i++) {
        uint32_t j = qr_random_below(&s->random, i + 1);
        s->shuffled[i] = s->shuffled[j];
        s->shuffled[j] = i;
    }
    lay_out(s);
    return s;
}

void scene_destroy(scene *s) {
    free(s->memory.base);
    free((void *)(uintptr_t)s->memory.key_offset);
    free((void *)(uintptr_t)s->memory.value_offset);
    free(s->shuffled);
    free(s->q);
    free(s);
}

float scene_float(scene *s, float scale) { return scale * (float)(2 * qr_random_unit(&s->random) - 1); }
size_t scene_row_count(const scene *s) { return (size_t)s->shape.head_count * s->shape.value_dim; }
size_t scene_out_count(const scene *s) { return s->row_count * scene_row_count(s); }

static void write_token(scene *s, const quire_block_id *ids, uint32_t position) {
    float key[64 * QR_ATTN_HEAD_DIM_MAX], value[64 * QR_ATTN_HEAD_DIM_MAX];
    uint32_t heads = s->shape.kv_head_count, tokens = s->shape.block_tokens;
    QR_ASSERT(heads <= 64);
    for (uint32_t i = 0; i < heads * s->shape.key_dim; i++) key[i] = scene_float(s, 2);
    for (uint32_t i = 0; i < heads * s->shape.value_dim; i++) value[i] = scene_float(s, 2);
    qr_attn_store(&qr_attn_path_scalar, &s->shape, &s->memory, SCENE_LAYER, ids[position / tokens], position % tokens, key,
                  value, &s->saturated);
}

void scene_add(scene *s, uint32_t begin, uint32_t end, uint32_t share, uint32_t share_tokens, uint32_t window) {
    uint32_t tokens = s->shape.block_tokens, shared = share_tokens / tokens, blocks = (end - 1) / tokens + 1;
    quire_block_id *ids = s->ids + s->table_used;
    uint32_t low = window > 0 && begin + 1 > window ? begin + 1 - window : 0;
    QR_ASSERT(s->sequence_count < SCENE_SEQUENCES && s->table_used + blocks <= SCENE_IDS);
    for (uint32_t b = 0; b < blocks; b++) {
        bool own = b >= shared;
        QR_ASSERT(!own || s->blocks_used < s->block_count);
        ids[b] = own ? s->shuffled[s->blocks_used++] : s->ids[s->table_begin[share] + b];
    }
    for (uint32_t t = low > shared * tokens ? low : shared * tokens; t < end; t++) write_token(s, ids, t);
    for (uint32_t b = 0; b < low / tokens; b++) ids[b] = QUIRE_BLOCK_NONE;
    for (uint32_t p = begin; p < end; p++, s->row_count++) {
        QR_ASSERT(s->row_count < SCENE_ROWS);
        s->row_sequence[s->row_count] = s->sequence_count;
        s->row_position[s->row_count] = p;
        s->row_first[s->row_count] = window > 0 && p + 1 > window ? p + 1 - window : 0;
    }
    s->windows = s->windows || window > 0;
    s->table_used += blocks;
    s->table_begin[++s->sequence_count] = s->table_used;
}

void scene_ready(scene *s) {
    size_t count = (size_t)s->row_count * s->shape.head_count * s->shape.key_dim;
    s->q = take(count, sizeof *s->q);
    for (size_t i = 0; i < count; i++) s->q[i] = scene_float(s, 0.6f);
}

const qr_attn_path *scene_path(const char *name) {
    qr_cpu_features features;
    qr_cpu_features_detect(&features);
    return qr_attn_path_find(name, &features);
}

void scene_run(const scene *s, const char *path, int threads, uint32_t cells_max, uint32_t row, uint32_t count, float *out) {
    qr_attn_limits limits = {count, s->sequence_count, s->row_position[row], threads};
    qr_attn_plan *plan;
    qr_compute_pool *pool;
    for (uint32_t r = row; r < row + count; r++)
        if (s->row_position[r] >= limits.tokens_max) limits.tokens_max = s->row_position[r] + 1;
    QR_ASSERT(qr_attn_plan_create(&s->shape, &limits, &plan, NULL) == QUIRE_OK);
    QR_ASSERT(qr_compute_pool_create(threads, QR_COMPUTE_SPIN_NS, &pool, NULL) == QUIRE_OK);
    if (cells_max < plan->cells_max) plan->cells_max = cells_max;
    qr_attn_batch batch = {.row_count = count,
                           .sequence_count = s->sequence_count,
                           .row_sequence = s->row_sequence + row,
                           .row_position = s->row_position + row,
                           .row_first = s->windows ? s->row_first + row : NULL,
                           .table_begin = s->table_begin,
                           .block_ids = s->ids};
    memset(out, 0xff, count * scene_row_count(s) * sizeof *out);
    qr_alloc_guard_enter();
    qr_attn_plan_make(plan, &batch);
    qr_attn_plan_run(plan, scene_path(path), pool, &s->memory, SCENE_LAYER,
                     s->q + (size_t)row * s->shape.head_count * s->shape.key_dim, out);
    QR_ASSERT(qr_alloc_guard_leave() == 0);
    qr_compute_pool_destroy(pool);
    qr_attn_plan_destroy(plan);
}

double scene_distance(const scene *s, const float *out, uint32_t stride) {
    double *exact = take(scene_row_count(s), sizeof *exact), worst = 0;
    for (uint32_t r = 0; r < s->row_count; r += stride) {
        const float *q = s->q + (size_t)r * s->shape.head_count * s->shape.key_dim;
        qr_attn_reference(&s->shape, &s->memory, SCENE_LAYER, s->ids + s->table_begin[s->row_sequence[r]], s->row_first[r],
                          s->row_position[r], q, exact);
        for (size_t i = 0; i < scene_row_count(s); i++) {
            double distance = fabs(exact[i] - (double)out[r * scene_row_count(s) + i]);
            if (!(distance <= worst)) worst = distance; /* NaN is kept */
        }
    }
    free(exact);
    return worst;
}
