/* scene.h - KV memory, sequences and rows for attention tests.
 *
 * KV memory starts as NaN everywhere and only tokens that some row may see are written, so whatever reads a slot that it
 * must not read shows. Two layers: rows attend to layer 1, layer 0 stays NaN.
 */
#ifndef SCENE_H
#define SCENE_H

#include "attention/plan_internal.h"
#include "base/random.h"

enum { SCENE_LAYERS = 2, SCENE_LAYER = 1, SCENE_ROWS = 600, SCENE_SEQUENCES = 64, SCENE_IDS = 1 << 16 };

typedef struct scene {
    qr_attn_shape shape;
    qr_attn_memory memory;
    uint32_t block_count, blocks_used, table_used, row_count, sequence_count;
    bool windows; /* some row has a lower bound */
    uint32_t row_sequence[SCENE_ROWS], row_position[SCENE_ROWS], row_first[SCENE_ROWS];
    uint32_t table_begin[SCENE_SEQUENCES + 1];
    quire_block_id ids[SCENE_IDS], *shuffled; /* [block_count] */
    float *q;                                 /* [row_count][head_count][key_dim] */
    uint64_t saturated;
    qr_random random;
} scene;

qr_attn_shape scene_shape(uint32_t heads, uint32_t kv_heads, uint32_t key_dim, uint32_t value_dim, uint32_t block_tokens,
                          quire_kv_type key_type, quire_kv_type value_type);
scene *scene_create(qr_attn_shape shape, uint32_t block_count, uint64_t seed);
void scene_destroy(scene *s);

/* A sequence of `end` tokens whose rows are the positions begin .. end-1. It shares the whole blocks of the first
 * share_tokens tokens of sequence `share` (no sharing: share_tokens 0). window > 0: a row sees at most so many tokens; blocks
 * that no row sees have no id. */
void scene_add(scene *s, uint32_t begin, uint32_t end, uint32_t share, uint32_t share_tokens, uint32_t window);
/* Random queries for all rows; after the last scene_add. */
void scene_ready(scene *s);

float scene_float(scene *s, float scale); /* in [-scale, scale) */
size_t scene_out_count(const scene *s);   /* floats of all rows' results */
size_t scene_row_count(const scene *s);   /* floats of one row's result */

/* Attention of the rows [row, row + count), results to out [count][head_count][value_dim]. cells_max bounds the stored
 * partials (UINT32_MAX: the plan's own bound). The output is filled with NaN first. */
void scene_run(const scene *s, const char *path, int threads, uint32_t cells_max, uint32_t row, uint32_t count, float *out);
/* Largest distance of `out` from double precision over every stride-th row. */
double scene_distance(const scene *s, const float *out, uint32_t stride);
/* Its bound. Values are within 2; the error is that of the scores, so it grows with key_dim: in 1,500 random steps it was at
 * most 4.8e-8 * key_dim. A token dropped or doubled gives 1e-3. */
static inline double scene_distance_max(const scene *s) { return 5e-7 + 6e-8 * s->shape.key_dim; }

const qr_attn_path *scene_path(const char *name); /* NULL when this machine has it not */
#endif
