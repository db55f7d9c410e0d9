/* cuda_plan.c - what the host's plan of a CUDA step costs on the CPU (attention/cuda/device_plan.h): one JSON line per case.
 *
 * A decode step of Llama-3 8B (32 query heads, 8 KV heads of 128, blocks of 16 tokens) for the launch of an H100: the plan is
 * made once per step for all layers, on one thread, and needs no GPU. Blocks are scattered. Prefixes: none; one prefix of all
 * sequences up to their last 256 tokens; a tree, of which all share the first half, groups of eight three quarters, and the
 * rest is their own. Arguments: [repetitions] [only cases that contain this text].
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/cuda/device_plan.h"
#include "base/assertion.h"
#include "base/clock.h"
#include "base/random.h"

enum {
    BLOCK_TOKENS = 16,
    BATCH_MAX = 256,
    CONTEXT_MAX = 131072,
    CELLS_MAX = 1 << 17,
    OWN_TOKENS = 256,
    TREE_GROUP = 8,
    REPEATS_MAX = 999
};

/* 132 multiprocessors that hold two CTAs each. */
static const qr_cuda_launch h100 = {.narrow_ctas = 264, .narrow_warps = 4, .wide_ctas = 264};
static const qr_cuda_shape shape = {32, 8, 128, BLOCK_TOKENS, QUIRE_KV_F16};

typedef enum prefix_kind { PRIVATE, SHARED, TREE, PREFIX_COUNT } prefix_kind;
static const char *const prefix_names[PREFIX_COUNT] = {"private", "shared", "tree"};

typedef struct bench_step {
    qr_attn_batch batch;
    uint32_t row_sequence[BATCH_MAX], row_position[BATCH_MAX], table_begin[BATCH_MAX + 1];
    quire_block_id *ids; /* [BATCH_MAX * CONTEXT_MAX / BLOCK_TOKENS] */
} bench_step;

/* Blocks of sequence s that are those of sequence `owner` too. */
static uint32_t shared_tokens(prefix_kind kind, uint32_t context, uint32_t s, uint32_t *owner) {
    *owner = kind == TREE && s % TREE_GROUP ? s / TREE_GROUP * TREE_GROUP : 0;
    if (kind == PRIVATE || s == 0) return 0;
    if (kind == SHARED) return context - OWN_TOKENS;
    return *owner == 0 && s >= TREE_GROUP ? context / 2 : context / 4 * 3;
}

static void make_step(bench_step *step, prefix_kind kind, uint32_t batch, uint32_t context) {
    const uint32_t blocks = context / BLOCK_TOKENS;
    uint32_t next = 0, owner;
    for (uint32_t s = 0; s < batch; s++) {
        uint32_t common = shared_tokens(kind, context, s, &owner) / BLOCK_TOKENS;
        step->row_sequence[s] = s, step->row_position[s] = context - 1, step->table_begin[s] = s * blocks;
        for (uint32_t b = 0; b < blocks; b++) {
            quire_block_id own = next++ * 2654435761u; /* scattered; an odd factor keeps them different */
            step->ids[s * blocks + b] = b < common ? step->ids[owner * blocks + b] : own;
        }
    }
    step->table_begin[batch] = batch * blocks;
    step->batch = (qr_attn_batch){.row_count = batch,
                                  .sequence_count = batch,
                                  .row_sequence = step->row_sequence,
                                  .row_position = step->row_position,
                                  .table_begin = step->table_begin,
                                  .block_ids = step->ids};
}

static int order_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(bench_step *step, prefix_kind kind, uint32_t batch, uint32_t context, int repeats) {
    const qr_cuda_plan_limits limits = {BATCH_MAX, BATCH_MAX, CONTEXT_MAX, CELLS_MAX};
    qr_cuda_plan_lists lists;
    qr_cuda_plan *plan;
    double us[REPEATS_MAX];
    make_step(step, kind, batch, context);
    QR_ASSERT(qr_cuda_plan_create(&shape, &limits, &h100, &plan, NULL) == QUIRE_OK);
    qr_cuda_plan_make(plan, &step->batch, &lists); /* warm */
    for (int i = 0; i < repeats; i++) {
        uint64_t start = qr_clock_ns();
        qr_cuda_plan_make(plan, &step->batch, &lists);
        us[i] = (double)(qr_clock_ns() - start) * 1e-3;
    }
    qsort(us, (size_t)repeats, sizeof *us, order_doubles);
    size_t upload = (lists.narrow_count + lists.wide_count) * sizeof *lists.narrow + lists.row_count * sizeof *lists.rows +
                    lists.fold_count * sizeof *lists.fold_rows;
    printf("{\"bench\":\"cuda_plan\",\"case\":\"%s %u x %u\",\"min_us\":%.1f,\"median_us\":%.1f,\"narrow\":%u,\"wide\":%u,"
           "\"rows\":%u,\"cells\":%u,\"upload_bytes\":%zu,\"repeats\":%d}\n",
           prefix_names[kind], batch, context, us[0], us[repeats / 2], lists.narrow_count, lists.wide_count, lists.row_count,
           lists.cell_count, upload, repeats);
    qr_cuda_plan_destroy(plan);
}

int main(int argc, char **argv) {
    static const uint32_t batches[] = {1, 64, BATCH_MAX}, contexts[] = {1024, 32768, CONTEXT_MAX};
    static bench_step step;
    int repeats = argc > 1 ? atoi(argv[1]) : 15;
    if (repeats < 1 || repeats > REPEATS_MAX) return 64;
    step.ids = malloc((size_t)BATCH_MAX * CONTEXT_MAX / BLOCK_TOKENS * sizeof *step.ids);
    QR_ASSERT(step.ids);
    for (int kind = 0; kind < PREFIX_COUNT; kind++)
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
            for (size_t c = 0; c < sizeof contexts / sizeof *contexts; c++) {
                char name[64];
                snprintf(name, sizeof name, "%s %u x %u", prefix_names[kind], batches[b], contexts[c]);
                if (batches[b] == 1 && kind != PRIVATE) continue;
                if (argc <= 2 || strstr(name, argv[2])) measure(&step, (prefix_kind)kind, batches[b], contexts[c], repeats);
            }
    free(step.ids);
    return 0;
}
