/*
 * Law 1 on the device, bit for bit: what a row gives does not depend on its company. The same rows run as decode and as
 * part of a prefill chunk, alone and among 64, in chunks of any size, over shared blocks and over copies of them in other
 * places, forked and restored, on one CTA and on several, with partials and without. Only the bytes of K, V and q are the
 * same, and so must be the bytes of out.
 *
 * What a row must not see is different on purpose: in a decode step the tokens after it are NaN.
 *
 * --quick: one head dimension for each KV type; --head-dim N: that one. The four types meet the four block sizes even then.
 */
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/cuda/attention_world.h"

extern "C" {
#include "base/block_mover.h"
#include "base/cuda/device_cuda.h"
}

static int failed, compared;
static uint64_t digest;

static void expect_same(const world &w, const char *what, const uint16_t *a, const uint16_t *b, size_t rows) {
    compared++;
    const size_t size = (size_t)w.shape.head_count * w.shape.head_dim;
    for (size_t r = 0; r < rows; r++)
        if (memcmp(a + r * size, b + r * size, size * 2)) {
            failed++;
            printf("%s: %s head_dim %u heads %u/%u block %u: row %zu differs\n", what, world_type_name(w.shape.kv_type),
                   w.shape.head_dim, w.shape.head_count, w.shape.kv_head_count, w.shape.block_tokens, r);
            return;
        }
}

// One sequence of LENGTH tokens whose last ROWS rows are computed in every way; the copies hold the same tokens elsewhere.
enum { LENGTH = 560, ROWS = 70 };

struct law_world {
    world w;
    std::vector<uint32_t> free_blocks;
    std::vector<world_sequence> sequences;
    uint32_t window;

    law_world(const qr_cuda_shape &shape, uint32_t block_count, uint32_t of)
        : w(shape, block_count), free_blocks(world_free_blocks(w, 9)), window(of) {}
    uint32_t add(uint32_t length, uint64_t content) {
        sequences.push_back(world_add(w, free_blocks, length, content));
        return (uint32_t)sequences.size() - 1;
    }
    world_row row(uint32_t sequence, uint32_t position) const {
        return {sequence, position, window && position >= window ? position - window + 1 : 0};
    }
    std::vector<world_row> chunk(uint32_t sequence, uint32_t begin, uint32_t end) const {
        std::vector<world_row> rows;
        for (uint32_t p = begin; p < end; p++) rows.push_back(row(sequence, p));
        return rows;
    }
    std::vector<uint16_t> run(const std::vector<world_row> &rows, const world_run &how = {}) {
        std::vector<uint16_t> out = world_step(w, sequences, rows, how).out;
        digest = world_digest(digest, out.data(), out.size() * 2);
        return out;
    }
    size_t row_size() const { return (size_t)w.shape.head_count * w.shape.head_dim; }
};

// Every row's bits, from one wide step with its partials in cells.
static std::vector<uint16_t> whole(law_world &l, uint32_t sequence) {
    std::vector<uint16_t> out = l.run(l.chunk(sequence, LENGTH - ROWS, LENGTH));
    double error = world_error(l.w, l.sequences, l.chunk(sequence, LENGTH - ROWS, LENGTH), out);
    if (!(error <= world_error_bound(l.w.shape.kv_type))) failed++, printf("whole: relative error %.2e\n", error);
    return out;
}

static void decode_equals_prefill(law_world &l, uint32_t sequence, const std::vector<uint16_t> &bits) {
    for (uint32_t position = LENGTH - 1; position >= LENGTH - ROWS; position -= 23) {
        const uint32_t tokens = l.w.shape.block_tokens;
        for (uint32_t t = position + 1; t < LENGTH; t++) l.w.poison_token(l.sequences[sequence].ids[t / tokens], t % tokens);
        std::vector<uint16_t> out = l.run({l.row(sequence, position)});
        expect_same(l.w, "decode against prefill", out.data(), &bits[(position - (LENGTH - ROWS)) * l.row_size()], 1);
    }
    for (uint32_t t = LENGTH - ROWS; t < LENGTH; t++)
        l.w.write_token(l.sequences[sequence].ids[t / l.w.shape.block_tokens], t % l.w.shape.block_tokens,
                        world_hash(l.sequences[sequence].content, t, 3, 3));
}

static void chunks_equal_whole(law_world &l, uint32_t sequence, const std::vector<uint16_t> &bits) {
    for (uint32_t size : {7u, 33u}) {
        std::vector<uint16_t> out;
        for (uint32_t p = LENGTH - ROWS; p < LENGTH; p += size) {
            std::vector<uint16_t> piece = l.run(l.chunk(sequence, p, std::min<uint32_t>(p + size, LENGTH)));
            out.insert(out.end(), piece.begin(), piece.end());
        }
        expect_same(l.w, "chunks against whole", out.data(), bits.data(), ROWS);
    }
}

// Few cells: first items of several spans that fold as they go; one CTA against several.
static void launch_changes_nothing(law_world &l, uint32_t sequence, const std::vector<uint16_t> &bits) {
    std::vector<world_row> rows = l.chunk(sequence, LENGTH - ROWS, LENGTH);
    std::vector<uint16_t> out = l.run(rows, {1, 1, 1, ROWS});
    expect_same(l.w, "folding as it goes against cells", out.data(), bits.data(), ROWS);
    out = l.run({l.row(sequence, LENGTH - 1)}, {1, 1, 1, 1});
    expect_same(l.w, "decode folding as it goes", out.data(), &bits[(ROWS - 1) * l.row_size()], 1);
    out = l.run(rows, {3, 4, 5, 100000});
    expect_same(l.w, "more CTAs", out.data(), bits.data(), ROWS);
}

// The row alone, in the middle of 64 decode rows of other lengths, and beside a prefill chunk too.
static void company_changes_nothing(law_world &l, uint32_t sequence, const std::vector<uint16_t> &bits) {
    std::vector<world_row> rows;
    for (uint32_t i = 0; i < 63; i++) rows.push_back(l.row(l.add(1 + i % 5 * 61, 1000 + i), i % 5 * 61));
    rows.insert(rows.begin() + 31, l.row(sequence, LENGTH - 1));
    std::vector<uint16_t> alone = l.run({l.row(sequence, LENGTH - 1)}), batch = l.run(rows);
    expect_same(l.w, "batch of 64 against batch of 1", &batch[31 * l.row_size()], alone.data(), 1);
    expect_same(l.w, "batch of 1 against prefill", alone.data(), &bits[(ROWS - 1) * l.row_size()], 1);
    for (const world_row &r : l.chunk(l.add(40, 2000), 0, 40)) rows.push_back(r);
    std::vector<uint16_t> out = l.run(rows);
    expect_same(l.w, "one among many", &out[31 * l.row_size()], &bits[(ROWS - 1) * l.row_size()], 1);
}

// Sequences that share leading blocks by reference (forked at a block), or hold copies of them in other blocks.
static void sharing_changes_nothing(law_world &l, uint32_t sequence, const std::vector<uint16_t> &bits) {
    const uint32_t tokens = l.w.shape.block_tokens;
    std::vector<world_row> shared = {l.row(sequence, LENGTH - 1)}, apart = shared;
    const size_t first_new = l.sequences.size();
    for (uint32_t i = 0; i < 5; i++) {
        world_sequence fork = l.sequences[sequence];
        if (i >= 2) // its own last block, after the fork
            fork =
                world_add(l.w, l.free_blocks, LENGTH, 3000 + i, LENGTH / tokens * tokens - (i == 4 ? 300 / tokens * tokens : 0),
                          fork.content, &l.sequences[sequence]);
        fork.query_content = 4000 + i;
        l.sequences.push_back(fork);
    }
    for (uint32_t i = 0; i < 5; i++) {
        const world_sequence fork = l.sequences[first_new + i];
        world_sequence copy = world_add(l.w, l.free_blocks, LENGTH, 0); // other blocks, then the same bytes
        for (uint32_t t = 0; t < LENGTH; t++) {
            bool own = fork.ids[t / tokens] != l.sequences[sequence].ids[t / tokens];
            l.w.write_token(copy.ids[t / tokens], t % tokens,
                            world_hash(own ? fork.content : l.sequences[sequence].content, t, 3, 3));
        }
        copy.query_content = fork.query_content;
        l.sequences.push_back(copy);
        shared.push_back(l.row((uint32_t)(first_new + i), LENGTH - 1));
    }
    for (uint32_t i = 0; i < 5; i++) apart.push_back(l.row((uint32_t)(first_new + 5 + i), LENGTH - 1));
    std::vector<uint16_t> a = l.run(shared), b = l.run(apart);
    expect_same(l.w, "shared blocks against copies", a.data(), b.data(), shared.size());
    expect_same(l.w, "a sharer against the row alone", a.data(), &bits[(ROWS - 1) * l.row_size()], 1);
    b = l.run(shared, {1, 1, 1, (uint32_t)shared.size()}); // too few cells to share
    expect_same(l.w, "shared blocks, read apart", a.data(), b.data(), shared.size());
}

// The pool as the device seam knows it: blocks move as they do in the KV manager.
struct pool_mover {
    qr_device *device = nullptr;
    qr_block_mover mover;
    explicit pool_mover(const law_world &l) {
        WORLD_CHECK(qr_device_cuda_create(0, &device, nullptr));
        mover = {device, l.w.device_pool, l.w.block_stride, l.w.block_count, {0, 1, 2}};
    }
    ~pool_mover() { device->ops->destroy(device); }
    void wait(qr_device_event event) {
        while (!device->ops->poll(device, event)) continue;
    }
};

// A fork whose last block is copied in the pool; the rest is shared.
static void forking_changes_nothing(law_world &l, uint32_t sequence, const std::vector<uint16_t> &bits) {
    world_sequence fork = l.sequences[sequence];
    const qr_block_copy copy = {fork.ids.back(), l.free_blocks.back()};
    l.w.upload();
    pool_mover pool(l);
    qr_device_event copied;
    WORLD_CHECK(qr_block_mover_copy(&pool.mover, &copy, 1, qr_device_event{0}, &copied));
    pool.wait(copied);
    fork.ids.back() = copy.to;
    l.sequences.push_back(fork);
    const uint32_t forked = (uint32_t)l.sequences.size() - 1;
    std::vector<uint16_t> out = l.run({l.row(sequence, LENGTH - 1), l.row(forked, LENGTH - 1)});
    for (size_t i = 0; i < 2; i++) expect_same(l.w, "forked", &out[i * l.row_size()], &bits[(ROWS - 1) * l.row_size()], 1);
    out = l.run(l.chunk(forked, LENGTH - ROWS, LENGTH));
    expect_same(l.w, "prefill of the forked", out.data(), bits.data(), ROWS);
    l.w.device_stale = true; // the world's own copy never moved
}

// The sequence's blocks go to pinned host memory and come back into other blocks, through the device seam.
static void move_through_host(law_world &l, const std::vector<uint32_t> &from, const std::vector<uint32_t> &to) {
    std::vector<uint8_t> host(from.size() * l.w.block_stride);
    pool_mover pool(l);
    qr_device_event saved, loaded;
    const uint32_t count = (uint32_t)from.size();
    WORLD_CHECK(pool.device->ops->host_register(pool.device, host.data(), host.size(), nullptr));
    WORLD_CHECK(qr_block_mover_gather_run(&pool.mover, from.data(), count, host.data(), qr_device_event{0}, &saved));
    WORLD_CHECK(qr_block_mover_scatter_run(&pool.mover, to.data(), count, host.data(), saved, &loaded));
    pool.wait(loaded);
    pool.device->ops->host_unregister(pool.device, host.data());
}

static void restoring_changes_nothing(law_world &l, uint32_t sequence, const std::vector<uint16_t> &bits) {
    const std::vector<uint32_t> before = l.sequences[sequence].ids;
    std::vector<uint32_t> after(l.free_blocks.end() - (ptrdiff_t)before.size(), l.free_blocks.end());
    l.w.upload();
    move_through_host(l, before, after);
    const std::vector<uint8_t> lost(l.w.block_stride, 0xff);
    for (uint32_t block : before)
        WORLD_CHECK(cudaMemcpy(l.w.device_pool + block * l.w.block_stride, lost.data(), lost.size(), cudaMemcpyHostToDevice));
    l.sequences[sequence].ids = after;
    std::vector<uint16_t> out = l.run(l.chunk(sequence, LENGTH - ROWS, LENGTH));
    expect_same(l.w, "restored from host memory", out.data(), bits.data(), ROWS);
    out = l.run({l.row(sequence, LENGTH - 1)});
    expect_same(l.w, "decode of the restored", out.data(), &bits[(ROWS - 1) * l.row_size()], 1);
    l.sequences[sequence].ids = before;
    l.w.device_stale = true; // the world's own copy never moved
}

static void law(const qr_cuda_shape &shape, uint32_t window) {
    law_world l(shape, 64 + 16384 / shape.block_tokens, window);
    uint32_t sequence = l.add(LENGTH, 42);
    std::vector<uint16_t> bits = whole(l, sequence);
    decode_equals_prefill(l, sequence, bits);
    chunks_equal_whole(l, sequence, bits);
    launch_changes_nothing(l, sequence, bits);
    sharing_changes_nothing(l, sequence, bits);
    forking_changes_nothing(l, sequence, bits);
    restoring_changes_nothing(l, sequence, bits);
    company_changes_nothing(l, sequence, bits);
}

int main(int argc, char **argv) {
    static const uint32_t dims[] = {
#define VALUE(x) x,
        QR_CUDA_HEAD_DIMS(VALUE)
#undef VALUE
    };
    static const uint32_t blocks[] = {
#define VALUE(x) x,
        QR_CUDA_BLOCK_TOKENS(VALUE)
#undef VALUE
    };
    const uint32_t only = world_only_head_dim(argc, argv, dims[0]);
    uint32_t turn = 0;
#define CASES(kv, stem)                                                                                                      \
    for (uint32_t dim : dims) {                                                                                              \
        if (only && dim != only) continue;                                                                                   \
        law({turn % 3 == 2 ? 2u : 3u, turn % 3 == 2 ? 2u : 1u, dim, blocks[(turn + turn / 4) % 4], kv}, turn % 2 ? 300 : 0); \
        turn++;                                                                                                              \
    }
    QR_CUDA_KV_TYPES(CASES)
    printf("digest %016llx\n", (unsigned long long)digest);
    printf(failed ? "%d comparisons, %d FAILED\n" : "%d comparisons, all equal\n", compared, failed);
    return failed != 0;
}
