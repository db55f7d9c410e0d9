/*
 * A small world for attention tests: a pool of blocks whose unused memory is NaN, sequences with block tables, and steps of
 * rows run through plan, kernels and fold on the device. Formats are converted here once more, by arithmetic, and share no
 * code with the emulator or the kernels.
 */
#pragma once
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "attention/cuda/device_plan.h"

// ---- formats ----

uint16_t world_to_f16(double x); // nearest even, no overflow
double world_from_f16(uint16_t bits);
uint16_t world_to_bf16(double x);
double world_from_bf16(uint16_t bits);
uint8_t world_to_e4m3(double x); // nearest of all codes, ties to the even one, +-448 at most
double world_from_e4m3(uint8_t bits);
const char *world_type_name(quire_kv_type type);

uint64_t world_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d);
double world_gauss(uint64_t key); // the same number for the same key

// ---- memory ----

struct world {
    qr_cuda_shape shape;
    uint32_t layers = 2, layer = 1; // the layer under test is not the first
    uint32_t block_count;
    uint64_t block_stride;
    std::vector<qr_cuda_part> parts; // [layers][kv_head]
    std::vector<uint8_t> pool;
    std::vector<double> key, value; // as stored: [block][kv_head][slot][head_dim]
    uint8_t *device_pool = nullptr;
    qr_cuda_part *device_parts = nullptr;
    bool device_stale = true;

    world(const qr_cuda_shape &shape, uint32_t block_count);
    ~world();
    world(const world &) = delete;

    bool eight_bit() const { return shape.kv_type == QUIRE_KV_INT8 || shape.kv_type == QUIRE_KV_FP8_E4M3; }
    size_t place(uint32_t block, uint32_t kv_head, uint32_t slot) const;
    // The token that `content` names, whatever block it lies in: equal contents are equal bytes.
    void write_token(uint32_t block, uint32_t slot, uint64_t content);
    void poison_token(uint32_t block, uint32_t slot); // NaN codes and NaN scales
    void upload();
};

// ---- sequences and steps ----

struct world_sequence {
    uint64_t content;          // of its tokens: token i is (content of i's prefix owner, i)
    uint32_t length;           // tokens in memory
    std::vector<uint32_t> ids; // block table
    uint64_t query_content;
    double query_mean = 0; // of a query's dims, before scaling; their deviation is 1
};

// New sequence of `length` tokens in the next free blocks of a shuffled order; its first `shared` tokens are of content
// `prefix` and the rest of `content`. `from`: takes whole shared blocks by reference from that sequence, else copies.
world_sequence world_add(world &w, std::vector<uint32_t> &free_blocks, uint32_t length, uint64_t content, uint32_t shared = 0,
                         uint64_t prefix = 0, const world_sequence *from = nullptr);
std::vector<uint32_t> world_free_blocks(const world &w, uint64_t seed);

struct world_row {
    uint32_t sequence, position, first;
};

struct world_run {
    uint32_t narrow_ctas = 2, narrow_warps = 2, wide_ctas = 2;
    uint32_t cells_max = 100000;
};

struct world_result {
    std::vector<uint16_t> out; // [rows][head_count][head_dim]
    qr_cuda_plan_lists lists;  // counts only
};

// Query of (sequence, position): the same in every step.
double world_query(const world &w, const world_sequence &s, uint32_t position, uint32_t head, uint32_t dim);

world_result world_step(world &w, const std::vector<world_sequence> &sequences, const std::vector<world_row> &rows,
                        const world_run &run = {});

// Relative L2 error of the worst row against softmax(q k) v in double.
double world_error(const world &w, const std::vector<world_sequence> &sequences, const std::vector<world_row> &rows,
                   const std::vector<uint16_t> &out);

// The head dimension that the arguments name: --quick the first one, --head-dim N that one; 0: all.
uint32_t world_only_head_dim(int argc, char **argv, uint32_t first);

// The stated bounds, by KV type (docs/CUDA.md).
double world_error_bound(quire_kv_type type);

// Of what kernels wrote so far and of more: programs print it, and two runs must print the same (scripts/gpu-check).
uint64_t world_digest(uint64_t digest, const void *data, size_t bytes);

#define WORLD_CHECK(call)                                            \
    do {                                                             \
        int status_ = (int)(call);                                   \
        if (status_) world_fail(__FILE__, __LINE__, #call, status_); \
    } while (0)
[[noreturn]] void world_fail(const char *file, int line, const char *call, int status);
