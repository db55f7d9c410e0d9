// PTX control flow, barriers and warp collectives: thin calls into the scheduler that the C++ kernels use too.
#include "tests/cuda/emulator/emu_collectives.h"
#include "tests/cuda/emulator/ptx_memory.h"
#include "tests/cuda/emulator/ptx_program.h"

static void gather(const ptx_exec &e, const ptx_instruction &i, uint32_t mask, void (*combine)(emu_collective &),
                   void *argument) {
    emu_gather(mask, combine, argument, false, e.site(), i.line);
}

// ---- control ----

static void branch(ptx_exec &e, const ptx_instruction &i) { e.next = i.target; }
static void leave(ptx_exec &e, const ptx_instruction &) { e.done = true; }
static void trap(ptx_exec &e, const ptx_instruction &i) { emu_fail(e.site(), i.line, "trap"); }
static ptx_operation select_branch(ptx_instruction &) { return branch; }
static ptx_operation select_leave(ptx_instruction &) { return leave; }
static ptx_operation select_trap(ptx_instruction &) { return trap; }

// ---- barriers and fences ----

static void sync_warp(ptx_exec &e, const ptx_instruction &i) {
    emu_gather(e.get<uint32_t>(i, 0), emu_combine_sync, nullptr, true, e.site(), i.line);
}
static void sync_cta(ptx_exec &e, const ptx_instruction &i) {
    emu_barrier(e.get<uint32_t>(i, 0), i.operands.size() > 1 ? e.get<uint32_t>(i, 1) : 0, e.site(), i.line);
}
static ptx_operation select_bar(ptx_instruction &i) { return !i.has("sync") ? nullptr : i.has("warp") ? sync_warp : sync_cta; }

static void fence(ptx_exec &, const ptx_instruction &) { emu_fence(); }
static ptx_operation select_fence(ptx_instruction &) { return fence; }

// ---- shuffles and votes ----

enum { SHUFFLE_INDEX, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR };

// shfl.sync.mode d|p, value, b, c, mask: c holds the last lane of a segment and the mask of segments (PTX manual).
static void shuffle(ptx_exec &e, const ptx_instruction &i) {
    int lane = (int)emu_current->lane, b = e.get<int>(i, 2) & 31, c = e.get<int>(i, 3), clamp = c & 31, segment = c >> 8 & 31;
    int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
    int source = i.choice == SHUFFLE_UP     ? lane - b
                 : i.choice == SHUFFLE_DOWN ? lane + b
                 : i.choice == SHUFFLE_XOR  ? lane ^ b
                                            : first | (b & ~segment);
    bool inside = i.choice == SHUFFLE_UP ? source >= last : source <= last;
    emu_shuffle s = {e.get<uint32_t>(i, 1), 0, inside ? source : lane};
    gather(e, i, e.get<uint32_t>(i, 4), emu_combine_shuffle, &s);
    e.put<uint32_t>(i, s.result);
    if (i.operands[0].predicate >= 0) e.set<uint32_t>(i.operands[0].predicate, inside);
}
static ptx_operation select_shfl(ptx_instruction &i) {
    i.choice = i.has("up") ? SHUFFLE_UP : i.has("down") ? SHUFFLE_DOWN : i.has("bfly") ? SHUFFLE_XOR : SHUFFLE_INDEX;
    return i.has("sync") ? shuffle : nullptr;
}

enum { VOTE_BALLOT, VOTE_ANY, VOTE_ALL };
static void vote(ptx_exec &e, const ptx_instruction &i) {
    uint32_t mask = e.get<uint32_t>(i, 2);
    emu_vote v = {e.predicate(i.operands[1]), 0};
    gather(e, i, mask, emu_combine_vote, &v);
    e.put<uint32_t>(i, i.choice == VOTE_BALLOT ? v.result : i.choice == VOTE_ANY ? v.result != 0 : v.result == mask);
}
static ptx_operation select_vote(ptx_instruction &i) {
    i.choice = i.has("ballot") ? VOTE_BALLOT : i.has("any") ? VOTE_ANY : VOTE_ALL;
    return i.has("sync") ? vote : nullptr;
}

// ---- matrices ----

static void load_matrices(ptx_exec &e, const ptx_instruction &i) {
    emu_ldmatrix x = {};
    x.matrix_count = i.choice, x.transposed = i.has("trans");
    if ((int)emu_current->lane < 8 * i.choice) {
        x.address = ptx_shared_pointer(e, i, i.operands[1], 16);
        if ((uintptr_t)x.address % 16) emu_fail(e.site(), i.line, "misaligned row at %p: %s", x.address, i.text.c_str());
        memcpy(&x.row, x.address, 16);
    }
    gather(e, i, ~0u, emu_combine_ldmatrix, &x);
    const ptx_operand &to = i.operands[0];
    for (int k = 0; k < i.choice; k++) e.set<uint32_t>(to.elements.empty() ? to.slot : to.elements[(size_t)k], x.result[k]);
}
static ptx_operation select_ldmatrix(ptx_instruction &i) {
    i.choice = i.has("x4") ? 4 : i.has("x2") ? 2 : 1;
    return i.has("m8n8") && i.has("shared") ? load_matrices : nullptr;
}

static void move_matrix(ptx_exec &e, const ptx_instruction &i) {
    emu_movmatrix x = {e.get<uint32_t>(i, 1), 0};
    gather(e, i, ~0u, emu_combine_movmatrix, &x);
    e.put<uint32_t>(i, x.result);
}
static ptx_operation select_movmatrix(ptx_instruction &i) { return i.has("trans") ? move_matrix : nullptr; }

static void multiply(ptx_exec &e, const ptx_instruction &i) {
    emu_mma x;
    for (size_t k = 0; k < 4; k++) {
        x.a[k] = e.value<uint32_t>(i.operands[1].elements[k]);
        x.c[k] = e.value<float>(i.operands[3].elements[k]);
    }
    for (size_t k = 0; k < 2; k++) x.b[k] = e.value<uint32_t>(i.operands[2].elements[k]);
    x.bf16 = i.type2 == PTX_BF16;
    gather(e, i, ~0u, emu_combine_mma, &x);
    for (size_t k = 0; k < 4; k++) e.set<float>(i.operands[0].elements[k], x.c[k]);
}
static ptx_operation select_mma(ptx_instruction &i) {
    bool known = i.has("m16n8k16") && i.has("row") && i.has("col") && i.type == PTX_F32;
    return known && (i.type2 == PTX_F16 || i.type2 == PTX_BF16) ? multiply : nullptr;
}

static const ptx_opcode rows[] = {
    {"bra", "uni", select_branch},
    {"ret", "uni", select_leave},
    {"exit", "", select_leave},
    {"trap", "", select_trap},
    {"bar", "sync warp", select_bar},
    {"barrier", "sync", select_bar},
    {"membar", "gl cta", select_fence},
    {"fence", "acq_rel sc gpu cta", select_fence},
    {"shfl", "sync idx up down bfly", select_shfl},
    {"vote", "sync ballot any all", select_vote},
    {"ldmatrix", "sync aligned m8n8 x1 x2 x4 trans shared", select_ldmatrix},
    {"movmatrix", "sync aligned m8n8 trans", select_movmatrix},
    {"mma", "sync aligned m16n8k16 row col", select_mma},
};
ptx_opcode_table ptx_warp_opcodes() { return {rows, sizeof rows / sizeof rows[0]}; }
