// The data movement and arithmetic of warp collectives. Runs in the last lane that arrives; the others sleep.
#include "tests/cuda/emulator/emu_collectives.h"

#include <cmath>
#include <cstring>

#include "tests/cuda/emulator/emu_formats.h"

template <class T> static T &argument(const emu_collective &op, int lane) { return *(T *)op.argument[lane]; }

static int first_lane(uint32_t mask) { return __builtin_ctz(mask); }

static void need_whole_warp(const emu_collective &op) {
    if (op.mask != ~0u) emu_fail(op.file, op.line, "needs the whole warp, got mask %08x", op.mask);
}

void emu_combine_sync(emu_collective &) {}

void emu_combine_shuffle(emu_collective &op) {
    for (uint32_t rest = op.mask; rest; rest &= rest - 1) {
        emu_shuffle &mine = argument<emu_shuffle>(op, first_lane(rest));
        if (!(op.mask >> mine.source_lane & 1))
            emu_fail(op.file, op.line, "shuffle reads lane %d, not in mask %08x", mine.source_lane, op.mask);
        mine.result = argument<emu_shuffle>(op, mine.source_lane).value;
    }
}

void emu_combine_vote(emu_collective &op) {
    uint32_t ballot = 0;
    for (uint32_t rest = op.mask; rest; rest &= rest - 1)
        if (argument<emu_vote>(op, first_lane(rest)).predicate) ballot |= rest & -rest;
    for (uint32_t rest = op.mask; rest; rest &= rest - 1) argument<emu_vote>(op, first_lane(rest)).result = ballot;
}

// ---- matrices of 8 x 8 b16: lane 4 r + c holds elements (r, 2c) and (r, 2c + 1) ----

typedef uint16_t matrix8[8][8];

static uint32_t fragment(const matrix8 &m, int lane, bool transposed) {
    int r = lane / 4, c = 2 * (lane % 4);
    uint16_t pair[2] = {transposed ? m[c][r] : m[r][c], transposed ? m[c + 1][r] : m[r][c + 1]};
    uint32_t packed;
    memcpy(&packed, pair, sizeof packed);
    return packed;
}

// A phase reads eight 16-byte rows at once; rows in the same 16 bytes of the 128 that the banks span collide.
static void count_conflicts(const emu_collective &op, int matrix) {
    unsigned used[8] = {}, worst = 0;
    for (int row = 0; row < 8; row++) {
        unsigned n = ++used[(uintptr_t)argument<emu_ldmatrix>(op, 8 * matrix + row).address >> 4 & 7];
        worst = n > worst ? n : worst;
    }
    emu_counted.ldmatrix_phases++;
    emu_counted.bank_conflicts += worst - 1;
}

void emu_combine_ldmatrix(emu_collective &op) {
    need_whole_warp(op);
    const emu_ldmatrix first = argument<emu_ldmatrix>(op, 0);
    for (int matrix = 0; matrix < first.matrix_count; matrix++) {
        matrix8 m;
        for (int row = 0; row < 8; row++) memcpy(m[row], &argument<emu_ldmatrix>(op, 8 * matrix + row).row, 16);
        count_conflicts(op, matrix);
        for (int lane = 0; lane < 32; lane++)
            argument<emu_ldmatrix>(op, lane).result[matrix] = fragment(m, lane, first.transposed);
    }
}

void emu_combine_movmatrix(emu_collective &op) {
    need_whole_warp(op);
    matrix8 m;
    for (int lane = 0; lane < 32; lane++) memcpy(&m[lane / 4][2 * (lane % 4)], &argument<emu_movmatrix>(op, lane).value, 4);
    for (int lane = 0; lane < 32; lane++) argument<emu_movmatrix>(op, lane).result = fragment(m, lane, true);
}

// ---- MMA ----

struct mma_operands {
    float a[16][16]; // [row][k]
    float b[16][8];  // [k][column]
};

static float element(uint32_t packed, bool bf16) {
    return bf16 ? emu_bf16_to_f32((uint16_t)packed) : emu_f16_to_f32((uint16_t)packed);
}

// a0: (r, c), a1: (r + 8, c), a2: (r, c + 8), a3: (r + 8, c + 8); b0: (k = c, r), b1: (k = c + 8, r); two elements each.
static void mma_unpack(const emu_collective &op, bool bf16, mma_operands &m) {
    for (int lane = 0; lane < 32; lane++) {
        const emu_mma &x = argument<emu_mma>(op, lane);
        int r = lane / 4, c = 2 * (lane % 4);
        for (int i = 0; i < 4; i++)
            for (int half = 0; half < 2; half++)
                m.a[r + 8 * (i & 1)][c + 8 * (i >> 1) + half] = element(x.a[i] >> 16 * half, bf16);
        for (int i = 0; i < 2; i++)
            for (int half = 0; half < 2; half++) m.b[c + 8 * i + half][r] = element(x.b[i] >> 16 * half, bf16);
    }
}

// Sum of products first, then the accumulator: eight columns side by side so that the compiler can vectorise without
// changing the order within a column.
static void mma_fma(const mma_operands &m, int row, float (&sum)[8]) {
    float s[8] = {};
    for (int k = 0; k < 16; k++)
        for (int column = 0; column < 8; column++) s[column] += m.a[row][k] * m.b[k][column];
    for (int column = 0; column < 8; column++) sum[column] += s[column];
}

// Tensor cores align all terms to the largest exponent, drop what lies below 2^-25 of it, add and truncate (published
// measurements; the exact widths differ by chip). Here so that tests pass under two different sums, hence under the
// device's third.
static float truncated_sum(const float *product, int count, float c) {
    float largest = fabsf(c);
    for (int i = 0; i < count; i++) largest = fmaxf(largest, fabsf(product[i]));
    if (!(largest > 0) || !std::isfinite(largest)) {
        for (int i = 0; i < count; i++) c += product[i];
        return c;
    }
    double unit = ldexp(1.0, ilogb(largest) - 25), sum = trunc(c / unit);
    for (int i = 0; i < count; i++) sum += trunc(product[i] / unit);
    double exact = sum * unit;
    float rounded = (float)exact;
    return fabs((double)rounded) > fabs(exact) ? nextafterf(rounded, 0.f) : rounded;
}

static void mma_truncate(const mma_operands &m, int row, float (&sum)[8]) {
    for (int column = 0; column < 8; column++) {
        float product[16];
        for (int k = 0; k < 16; k++) product[k] = m.a[row][k] * m.b[k][column];
        sum[column] = truncated_sum(product, 16, sum[column]);
    }
}

// c0, c1: (r, 2c), (r, 2c + 1); c2, c3: the same of row r + 8.
static void mma_row(const emu_collective &op, const mma_operands &m, int row) {
    float sum[8];
    int slot = row < 8 ? 0 : 2, lane0 = 4 * (row % 8);
    for (int i = 0; i < 8; i++) sum[i] = argument<emu_mma>(op, lane0 + i / 2).c[slot + i % 2];
    if (emu_opt.truncate_sums) mma_truncate(m, row, sum);
    else mma_fma(m, row, sum);
    for (int i = 0; i < 8; i++) argument<emu_mma>(op, lane0 + i / 2).c[slot + i % 2] = sum[i];
}

void emu_combine_mma(emu_collective &op) {
    need_whole_warp(op);
    emu_counted.mma++;
    mma_operands m;
    mma_unpack(op, argument<emu_mma>(op, 0).bf16, m);
    for (int row = 0; row < 16; row++) mma_row(op, m, row);
}
