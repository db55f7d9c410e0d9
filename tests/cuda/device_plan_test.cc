/*
 * The host plan over random steps: every position that a row sees is in exactly one item of the row, partials are in span
 * order in the row's cells, items other than a row's first are inside one span, and the lists stay within what was taken at
 * create, however few cells there are.
 *
 * Before it: which shapes are refused, and with what words; limits that no plan can have.
 *
 * Prints the seed of a failing step; device_plan_test SEED runs that one alone.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/cuda/attention_world.h"

extern "C" {
#include "base/error.h"
}

namespace {
struct random_step {
    std::vector<uint32_t> sequence, position, first, table_begin, ids;
    qr_attn_batch batch;
    uint64_t seed, turn = 0;
    uint32_t below(uint32_t n) { return (uint32_t)(world_hash(seed, turn++, 7, 7) % n); }
    random_step(uint64_t of, const qr_cuda_shape &shape, uint32_t tokens_max, uint32_t sequences);
};

// Tables share leading blocks of a few common ones; rows are decode rows or chunks, with windows or without.
random_step::random_step(uint64_t of, const qr_cuda_shape &shape, uint32_t tokens_max, uint32_t sequences) : seed(of) {
    const bool windows = below(3) == 0;
    for (uint32_t s = 0; s < sequences; s++) {
        table_begin.push_back((uint32_t)ids.size());
        uint32_t length = 1 + below(tokens_max), blocks = (length + shape.block_tokens - 1) / shape.block_tokens;
        uint32_t family = below(3), common = below(2) ? below(blocks + 1) : blocks;
        for (uint32_t b = 0; b < blocks; b++) ids.push_back(b < common ? family * 100000 + b : 1000000 + s * 1000 + b);
        uint32_t rows = below(3) ? 1 : 1 + below(std::min(length, 100u)), window = windows ? 1 + below(500) : tokens_max;
        for (uint32_t p = length - rows; p < length; p++) {
            sequence.push_back(s), position.push_back(p), first.push_back(p + 1 > window ? p + 1 - window : 0);
        }
    }
    table_begin.push_back((uint32_t)ids.size());
    batch = {(uint32_t)sequence.size(), sequences, sequence.data(), position.data(), first.data(),
             table_begin.data(),        ids.data()};
}

struct piece { // of one (row, head of the group): an item's part of it
    uint32_t cell, direct;
    int32_t first, limit;
};
} // namespace

static int failed;
static void expect(bool ok, uint64_t seed, const char *what) {
    if (!ok && failed++ < 10) printf("seed %llu: %s\n", (unsigned long long)seed, what);
}

// Adds what the items give each (row, head) and checks the items themselves.
static void collect(const qr_cuda_shape &shape, const random_step &step, const qr_cuda_plan_lists &l, bool wide,
                    std::vector<std::vector<piece>> &pieces) {
    const uint32_t group = shape.head_count / shape.kv_head_count;
    for (uint32_t i = 0; i < (wide ? l.wide_count : l.narrow_count); i++) {
        const qr_cuda_item &item = (wide ? l.wide : l.narrow)[i];
        expect(item.packed_count >= 1 && item.packed_count <= (wide ? QR_CUDA_WIDE_ROWS : QR_CUDA_ROW_TILE), step.seed, "size");
        expect(item.first >= 0 && item.first < item.limit, step.seed, "range");
        for (uint32_t p = item.packed_begin; p < item.packed_begin + item.packed_count; p++) {
            expect(item.row + p / group < l.row_count, step.seed, "entry");
            const qr_cuda_item_row &entry = l.rows[item.row + p / group];
            expect(entry.first >= item.first && entry.limit <= item.limit, step.seed, "entry inside its item");
            const uint32_t begin = step.table_begin[step.sequence[entry.row]];
            for (int32_t t = entry.first; t < entry.limit; t += 1 + (int)shape.block_tokens / 3)
                expect(step.ids[item.table + (uint32_t)t / shape.block_tokens] ==
                           step.ids[begin + (uint32_t)t / shape.block_tokens],
                       step.seed, "the row's own blocks");
            pieces[entry.row * group + p % group].push_back({entry.cell, entry.direct, entry.first, entry.limit});
        }
    }
}

static void check_row(const random_step &step, uint32_t row, std::vector<piece> &pieces, uint32_t cell, uint32_t count,
                      std::vector<uint32_t> &cells) {
    std::sort(pieces.begin(), pieces.end(), [](const piece &a, const piece &b) { return a.first < b.first; });
    expect(pieces.size() == count, step.seed, "as many items as cells");
    if (pieces.size() != count) return;
    int32_t at = (int32_t)step.first[row];
    for (uint32_t i = 0; i < count; i++) {
        const piece &p = pieces[i];
        expect(p.first == at, step.seed, "no gap and no overlap");
        expect(p.direct == (count == 1), step.seed, "direct when alone");
        expect(count == 1 || p.cell == cell + i, step.seed, "cells in span order");
        expect(i == 0 || p.first / QR_CUDA_SPAN_TOKENS == (p.limit - 1) / QR_CUDA_SPAN_TOKENS, step.seed, "one span");
        expect(i == 0 || p.first % QR_CUDA_SPAN_TOKENS == 0, step.seed, "cut at spans");
        if (p.cell < cells.size()) cells[p.cell]++;
        else expect(false, step.seed, "cell number");
        at = p.limit;
    }
    expect(at == (int32_t)step.position[row] + 1, step.seed, "up to the row itself");
}

static void check_step(uint64_t seed) {
    static const uint32_t heads[][2] = {{4, 1}, {8, 8}, {6, 2}, {71, 1}, {32, 1}, {3, 1}};
    const uint32_t *h = heads[seed % 6];
    qr_cuda_shape shape = {h[0], h[1], 128, 16u << seed % 4, QUIRE_KV_F16};
    random_step step(seed, shape, seed % 2 ? 3000 : 300, 1 + (uint32_t)(world_hash(seed, 1, 2, 3) % 12));
    const uint32_t rows = step.batch.row_count, spare = seed % 3 ? 100000 : seed % 5;
    qr_cuda_launch launch = {1 + (uint32_t)seed % 7, 4, 1 + (uint32_t)seed % 5};
    qr_cuda_plan_limits limits = {rows, step.batch.sequence_count, 3000, rows + spare};
    qr_cuda_plan *plan;
    WORLD_CHECK(qr_cuda_plan_create(&shape, &limits, &launch, &plan, nullptr));
    qr_cuda_plan_lists l;
    for (int again = 0; again < 2; again++) qr_cuda_plan_make(plan, &step.batch, &l);
    const uint32_t group = h[0] / h[1];
    std::vector<std::vector<piece>> pieces((size_t)rows * group);
    collect(shape, step, l, false, pieces), collect(shape, step, l, true, pieces);
    std::vector<uint32_t> cell(rows, UINT32_MAX), count(rows, 1), cells(l.cell_count, 0);
    for (uint32_t i = 0; i < l.fold_count; i++)
        cell[l.fold_rows[i].row] = l.fold_rows[i].cell, count[l.fold_rows[i].row] = l.fold_rows[i].count;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t g = 0; g < group; g++) check_row(step, r, pieces[r * group + g], cell[r], count[r], cells);
    expect(l.cell_count <= rows + spare, seed, "cells within the limit");
    expect(std::all_of(cells.begin(), cells.end(), [=](uint32_t n) { return n == group; }), seed, "each cell written once");
    for (uint32_t i = 1; i < l.wide_count; i++)
        expect(l.wide[i - 1].limit - l.wide[i - 1].first >= l.wide[i].limit - l.wide[i].first, seed, "longest first");
    qr_cuda_plan_destroy(plan);
}

// 64 sequences of 1,100 tokens, of which the first 1,024 lie in the same blocks: they are read four times, by 64 packed rows
// each, and not 64 times.
static void check_sharing() {
    qr_cuda_shape shape = {32, 8, 128, 16, QUIRE_KV_F16};
    qr_cuda_launch launch = {264, 4, 264};
    qr_cuda_plan_limits limits = {64, 64, 1100, 4096};
    std::vector<uint32_t> sequence, position, table_begin, ids;
    for (uint32_t s = 0; s < 64; s++) {
        sequence.push_back(s), position.push_back(1099), table_begin.push_back((uint32_t)ids.size());
        for (uint32_t b = 0; b < 69; b++) ids.push_back(b < 64 ? b : 1000 + 10 * s + b);
    }
    table_begin.push_back((uint32_t)ids.size());
    qr_attn_batch batch = {64, 64, sequence.data(), position.data(), nullptr, table_begin.data(), ids.data()};
    qr_cuda_plan *plan;
    qr_cuda_plan_lists l;
    WORLD_CHECK(qr_cuda_plan_create(&shape, &limits, &launch, &plan, nullptr));
    qr_cuda_plan_make(plan, &batch, &l);
    expect(l.wide_count == 4 * 4 && l.narrow_count == 64 && l.fold_count == 64 && l.cell_count == 64 * 5, 0, "shared prefix");
    for (uint32_t i = 0; i < l.wide_count; i++) expect(l.wide[i].packed_count == 64, 0, "full items over a shared prefix");
    qr_cuda_plan_destroy(plan);
}

static bool listed(uint32_t x, std::initializer_list<uint32_t> list) {
    return std::find(list.begin(), list.end(), x) != list.end();
}

// Supported, or refused by a text that says `number`.
static void check_shape(const qr_cuda_shape &shape, bool supported, const char *source, uint32_t number) {
    quire_error error = {};
    const quire_status status = qr_cuda_shape_check(&shape, &error);
    const std::string text = std::to_string(number);
    expect(status == (supported ? QUIRE_OK : QUIRE_UNSUPPORTED), number, "shape check");
    expect(qr_cuda_shape_check(&shape, nullptr) == status, number, "shape check without an error");
    if (!supported) expect(!strcmp(error.source, source) && strstr(error.text, text.c_str()), number, source);
}

// Every number around the lists, not only those that somebody thought of.
static void check_shapes() {
    const qr_cuda_shape good = {8, 2, 64, 16, QUIRE_KV_F16};
    for (uint32_t x : {0u,  1u,  2u,   15u,  16u,  17u,  32u,  48u,  63u,  64u,  65u,         79u,
                       80u, 96u, 112u, 128u, 160u, 192u, 255u, 256u, 257u, 512u, 0x80000000u, UINT32_MAX}) {
        qr_cuda_shape shape = good;
        shape.head_dim = x;
        check_shape(shape,
                    listed(x,
                           {
#define VALUE(dim) dim,
                               QR_CUDA_HEAD_DIMS(VALUE)
#undef VALUE
                           }),
                    "head_dim", x);
        shape = good, shape.block_tokens = x;
        check_shape(shape, listed(x, {16, 32, 64, 128}), "block_tokens", x);
        shape = good, shape.kv_head_count = x;
        check_shape(shape, listed(x, {1, 2}), "head_count", x);
        shape = good, shape.head_count = x;
        check_shape(shape, x && x % 2 == 0, "head_count", x);
    }
    quire_error error = {};
    for (uint32_t type : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 1000u, UINT32_MAX}) {
        qr_cuda_shape shape = good;
        memcpy(&shape.kv_type, &type, sizeof type); // what a broken file may hold
        const bool supported = listed(type, {QUIRE_KV_F16, QUIRE_KV_BF16, QUIRE_KV_INT8, QUIRE_KV_FP8_E4M3});
        expect(qr_cuda_shape_check(&shape, &error) == (supported ? QUIRE_OK : QUIRE_UNSUPPORTED), type, "KV type");
        if (!supported) expect(!strcmp(error.source, "kv_type"), type, "which part of the shape");
    }
}

static void check_limits() {
    const qr_cuda_shape shape = {8, 2, 64, 16, QUIRE_KV_F16};
    const qr_cuda_launch launch = {2, 4, 2};
    const qr_cuda_plan_limits good = {4, 4, 1000, 4};
    for (uint32_t which = 0; which < 5; which++) {
        qr_cuda_plan_limits limits = good;
        if (which == 0) limits.rows_max = 0;
        if (which == 1) limits.sequences_max = 0;
        if (which == 2) limits.tokens_max = 0;
        if (which == 3) limits.cells_max = 3;
        qr_cuda_plan *plan = (qr_cuda_plan *)&limits;
        quire_error error = {};
        const quire_status status = qr_cuda_plan_create(&shape, &limits, &launch, &plan, &error);
        expect(status == (which < 4 ? QUIRE_INVALID : QUIRE_OK), which, "limits");
        expect((plan == nullptr) == (which < 4) && (which == 4 || error.text[0]), which, "what a refused plan leaves");
        qr_cuda_plan_destroy(plan);
    }
}

int main(int argc, char **argv) {
    check_shapes();
    check_limits();
    check_sharing();
    if (argc > 1) check_step(strtoull(argv[1], nullptr, 10));
    else
        for (uint64_t seed = 0; seed < 600; seed++) check_step(seed);
    printf(failed ? "%d FAILED\n" : "passed\n", failed);
    return failed != 0;
}
