/*
 * The span kernel, wide and narrow, and the fold against a double-precision reference, over the supported-shape list.
 *
 * Each KV type and each head dimension meets every block size and every grouping of heads. --blocks: each pair of them meets
 * every block size. --quick: one head dimension; --head-dim N: that one. Prints the worst relative L2 error of a row by KV
 * type.
 */
#include <cstdio>
#include <cstring>

#include "tests/cuda/attention_world.h"

static int failed;
static uint64_t digest;
static double worst[QUIRE_KV_TYPE_COUNT];

static void expect_near(world &w, const char *what, const std::vector<world_sequence> &sequences,
                        const std::vector<world_row> &rows, const world_run &run = {}) {
    world_result result = world_step(w, sequences, rows, run);
    digest = world_digest(digest, result.out.data(), result.out.size() * 2);
    double error = world_error(w, sequences, rows, result.out);
    if (!(error <= worst[w.shape.kv_type])) worst[w.shape.kv_type] = error;
    if (error <= world_error_bound(w.shape.kv_type)) return;
    failed++;
    printf("%s %s head_dim %u heads %u/%u block %u: relative error %.2e\n", what, world_type_name(w.shape.kv_type),
           w.shape.head_dim, w.shape.head_count, w.shape.kv_head_count, w.shape.block_tokens, error);
}

static std::vector<world_row> chunk(uint32_t sequence, uint32_t begin, uint32_t end, uint32_t window = 0) {
    std::vector<world_row> rows;
    for (uint32_t p = begin; p < end; p++) rows.push_back({sequence, p, window && p >= window ? p - window + 1 : 0});
    return rows;
}

static void decode(const qr_cuda_shape &shape) {
    world w(shape, 200);
    auto free_blocks = world_free_blocks(w, 1);
    std::vector<world_sequence> sequences;
    std::vector<world_row> rows;
    for (uint32_t length : {1u, 77u, 300u, 16u, 257u}) {
        rows.push_back({(uint32_t)sequences.size(), length - 1, 0});
        sequences.push_back(world_add(w, free_blocks, length, length));
    }
    expect_near(w, "decode", sequences, rows);
    sequences.push_back(world_add(w, free_blocks, 520, 520)); // three spans: the one between replaces the fold that it reads
    expect_near(w, "decode, folding as it goes", sequences, {{(uint32_t)sequences.size() - 1, 519, 0}}, {.cells_max = 1});
}

// Queries of one sign, whose dims sum to a large number: what is constant in a converted key must go before it is summed.
static void one_sided(const qr_cuda_shape &shape) {
    world w(shape, 200);
    auto free_blocks = world_free_blocks(w, 5);
    std::vector<world_sequence> sequences;
    for (uint32_t length : {20u, 40u, 300u}) {
        sequences.push_back(world_add(w, free_blocks, length, length));
        sequences.back().query_mean = 5;
    }
    expect_near(w, "one-sided queries", sequences, {{0, 19, 0}, {1, 39, 0}, {2, 299, 0}});
}

static void prefill(const qr_cuda_shape &shape) {
    world w(shape, 200);
    auto free_blocks = world_free_blocks(w, 2);
    std::vector<world_sequence> sequences = {world_add(w, free_blocks, 290, 5), world_add(w, free_blocks, 30, 6)};
    std::vector<world_row> rows = chunk(0, 250, 290), more = chunk(1, 0, 30);
    rows.insert(rows.end(), more.begin(), more.end());
    expect_near(w, "prefill", sequences, rows, {.cells_max = (uint32_t)rows.size()});
}

static void window(const qr_cuda_shape &shape) {
    world w(shape, 200);
    auto free_blocks = world_free_blocks(w, 3);
    std::vector<world_sequence> sequences = {world_add(w, free_blocks, 600, 7), world_add(w, free_blocks, 400, 8)};
    for (uint32_t t = 0; t < 502; t++) w.poison_token(sequences[0].ids[t / shape.block_tokens], t % shape.block_tokens);
    std::vector<world_row> rows = {{0, 599, 502}}, more = chunk(1, 320, 340, 51);
    rows.insert(rows.end(), more.begin(), more.end());
    expect_near(w, "window", sequences, rows);
}

static void shared_prefix(const qr_cuda_shape &shape) {
    world w(shape, 200);
    auto free_blocks = world_free_blocks(w, 4);
    std::vector<world_sequence> sequences = {world_add(w, free_blocks, 280, 9)};
    std::vector<world_row> rows = {{0, 279, 0}};
    for (uint32_t i = 1; i < 7; i++) {
        sequences.push_back(world_add(w, free_blocks, 260 + i, 20 + i, 256, 9, &sequences[0]));
        rows.push_back({i, 259 + i, 0});
    }
    expect_near(w, "shared", sequences, rows);
}

static void all(const qr_cuda_shape &shape) {
    decode(shape), one_sided(shape), prefill(shape), window(shape), shared_prefix(shape);
}

static const struct { uint32_t heads, kv_heads; } groupings[] = {{4, 1}, {2, 2}, {6, 2}, {20, 1}};
static const uint32_t block_sizes[] = {
#define VALUE(x) x,
    QR_CUDA_BLOCK_TOKENS(VALUE)
#undef VALUE
};
static const uint32_t dims[] = {
#define VALUE(x) x,
    QR_CUDA_HEAD_DIMS(VALUE)
#undef VALUE
};
static const uint32_t GROUPINGS = sizeof groupings / sizeof *groupings, BLOCK_SIZES = sizeof block_sizes / sizeof *block_sizes;

// Case number `turn` of a KV type, the place of which in the list is `type`.
static void run_case(quire_kv_type kv, uint32_t type, uint32_t dim, uint32_t turn) {
    const auto &heads = groupings[(turn + type + 1) % GROUPINGS];
    all({heads.heads, heads.kv_heads, dim, block_sizes[(turn + 3 * type + 1) % BLOCK_SIZES], kv});
}

int main(int argc, char **argv) {
    const bool blocks = argc > 1 && !strcmp(argv[1], "--blocks");
    const uint32_t only = world_only_head_dim(argc, argv, dims[0]);
    uint32_t type = 0;
#define CASES(kv, stem)                                                          \
    for (uint32_t d = 0; d < sizeof dims / sizeof *dims; d++)                    \
        for (uint32_t more = 0; more < (blocks ? BLOCK_SIZES : 1); more++)       \
            if (!only || dims[d] == only) run_case(kv, type, dims[d], d + more); \
    type++;
    QR_CUDA_KV_TYPES(CASES)
#define SHOW(kv, stem) printf(#stem " worst %.2e (bound %.0e)\n", worst[kv], world_error_bound(kv));
    QR_CUDA_KV_TYPES(SHOW)
    printf("digest %016llx\n", (unsigned long long)digest);
    printf(failed ? "%d FAILED\n" : "passed\n", failed);
    return failed != 0;
}
