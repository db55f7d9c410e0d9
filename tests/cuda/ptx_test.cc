/*
 * The PTX interpreter, one instruction at a time against values from the PTX manual, and that it stops at what it must not
 * run: unknown instructions and modifiers, wrong addresses.
 *
 * Whole kernels as nvcc writes them are prims_test and the attention tests with EMU_PTX.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "tests/cuda/emulator/emu_memory.h"
#include "tests/cuda/emulator/emu_schedule.h"
#include "tests/cuda/emulator/ptx_program.h"

// Inputs are in %a, %b, %c (32 bits) and %A, %B, %C (64 bits); the result is %x (32 bits) or %X (64 bits).
struct row {
    const char *code;
    uint64_t a, b, c, want;
};

static const uint64_t ONE = 0x3f800000, TWO = 0x40000000, HALF = 0x3f000000, NOT_A_NUMBER = 0x7fc00000, MINUS_ONE = 0xffffffff;

static const row rows[] = {
    {"add.s32 %x, %a, %b;", 0x7fffffff, 1, 0, 0x80000000},
    {"add.s64 %X, %A, -8;", 4, 0, 0, (uint64_t)-4},
    {"add.rn.f32 %x, %a, %b;", ONE, ONE, 0, TWO},
    {"add.f32 %x, %a, 0f40000000;", TWO, 0, 0, 0x40800000},
    {"sub.rn.f16x2 %x, %a, %b;", 0x40003c00, 0x3c003800, 0, 0x3c003800},
    {"sub.u32 %x, %a, %b;", 1, 2, 0, MINUS_ONE},
    {"mul.lo.s32 %x, %a, %b;", 0x10001, 0x10001, 0, 0x20001},
    {"mul.hi.u32 %x, %a, %b;", 0x80000000, 6, 0, 3},
    {"mul.hi.s32 %x, %a, %b;", MINUS_ONE, 2, 0, MINUS_ONE},
    {"mul.wide.s32 %X, %a, %b;", MINUS_ONE, 3, 0, (uint64_t)-3},
    {"mul.wide.u32 %X, %a, 4;", MINUS_ONE, 0, 0, 0x3fffffffc},
    {"mad.lo.s32 %x, %a, %b, %c;", 3, 4, 5, 17},
    {"mad.wide.u32 %X, %a, %b, %C;", 0x80000000, 2, 7, 0x100000007},
    {"fma.rn.f32 %x, %a, %b, %c;", 0x3f800001, 0x3f800001, 0xbf800002, 0x28800000}, // the exact product shows
    {"mul.rn.f32 %x, %a, %b;", HALF, TWO, 0, ONE},
    {"div.s32 %x, %a, %b;", (uint32_t)-7, 2, 0, (uint32_t)-3},
    {"div.u32 %x, %a, %b;", MINUS_ONE, 2, 0, 0x7fffffff},
    {"div.rn.f32 %x, %a, %b;", ONE, TWO, 0, HALF},
    {"rem.s32 %x, %a, %b;", (uint32_t)-7, 2, 0, MINUS_ONE},
    {"min.s32 %x, %a, %b;", MINUS_ONE, 1, 0, MINUS_ONE},
    {"min.u32 %x, %a, %b;", MINUS_ONE, 1, 0, 1},
    {"max.f32 %x, %a, %b;", NOT_A_NUMBER, ONE, 0, ONE},
    {"min.f32 %x, %a, %b;", 0xff800000, ONE, 0, 0xff800000},
    {"neg.s32 %x, %a;", 5, 0, 0, (uint32_t)-5},
    {"neg.f32 %x, %a;", ONE, 0, 0, 0xbf800000},
    {"abs.f32 %x, %a;", 0x80000000, 0, 0, 0},
    {"abs.s32 %x, %a;", (uint32_t)-9, 0, 0, 9},
    {"sqrt.rn.f32 %x, %a;", 0x40800000, 0, 0, TWO},
    {"rcp.approx.ftz.f32 %x, %a;", TWO, 0, 0, HALF},
    {"ex2.approx.ftz.f32 %x, %a;", 0xc2fe0000, 0, 0, 0}, // 2^-127 is subnormal
    {"ex2.approx.ftz.f32 %x, %a;", 0xff800000, 0, 0, 0},
    {"lg2.approx.f32 %x, %a;", TWO, 0, 0, ONE},
    {"and.b32 %x, %a, %b;", 0xff00ff, 0x0ff0f0, 0, 0x0f00f0},
    {"or.b64 %X, %A, %B;", 1ull << 40, 1, 0, 1ull << 40 | 1},
    {"xor.b32 %x, %a, -1;", 1, 0, 0, 0xfffffffe},
    {"not.b32 %x, %a;", 0, 0, 0, MINUS_ONE},
    {"shl.b32 %x, %a, %b;", 1, 31, 0, 0x80000000},
    {"shl.b32 %x, %a, %b;", 1, 32, 0, 0},
    {"shr.u32 %x, %a, %b;", 0x80000000, 31, 0, 1},
    {"shr.s32 %x, %a, %b;", 0x80000000, 99, 0, MINUS_ONE},
    {"shr.u64 %X, %A, %b;", 1ull << 63, 63, 0, 1},
    {"shf.l.wrap.b32 %x, %a, %b, %c;", 0x80000001, 0xf0000000, 36, 0x00000008},
    {"shf.r.clamp.b32 %x, %a, %b, %c;", 0x80000001, 0xf0000000, 40, 0xf0000000},
    {"bfi.b32 %x, %a, %b, 8, 4;", 0x5, MINUS_ONE, 0, 0xfffff5ff},
    {"bfe.u32 %x, %a, 8, 8;", 0x12345678, 0, 0, 0x56},
    {"bfe.s32 %x, %a, 4, 4;", 0x000000f8, 0, 0, MINUS_ONE},
    {"bfe.s32 %x, %a, 28, 8;", 0x80000000, 0, 0, 0xfffffff8},
    {"prmt.b32 %x, %a, %b, 29497;", 0x33221180, 0x77665544, 0, 0x77333300}, // selector 0x7339: sign of byte 1
    {"prmt.b32 %x, %a, %b, %c;", 0x33221180, 0x77665544, 0x0008, 0x808080ff},
    {"lop3.b32 %x, %a, %b, %c, 0xca;", 0xff00ff00, 0x12345678, 0x9abcdef0, 0x12bc56f0}, // a ? b : c
    {"popc.b32 %x, %a;", 0xf00f, 0, 0, 8},
    {"clz.b32 %x, %a;", 0x00010000, 0, 0, 15},
    {"clz.b32 %x, %a;", 0, 0, 0, 32},
    {"brev.b32 %x, %a;", 1, 0, 0, 0x80000000},
    {"setp.lt.s32 %p, %a, %b; selp.b32 %x, 1, 2, %p;", MINUS_ONE, 1, 0, 1},
    {"setp.lt.u32 %p, %a, %b; selp.b32 %x, 1, 2, %p;", MINUS_ONE, 1, 0, 2},
    {"setp.neu.f32 %p, %a, %b; selp.b32 %x, 1, 2, %p;", NOT_A_NUMBER, NOT_A_NUMBER, 0, 1},
    {"setp.gt.f32 %p, %a, %b; selp.b32 %x, 1, 2, %p;", NOT_A_NUMBER, ONE, 0, 2},
    {"setp.eq.s32 %q, %a, 7; setp.ne.or.s32 %p, %a, %b, %q; selp.b32 %x, 1, 2, %p;", 7, 7, 0, 1},
    {"setp.eq.s32 %q, %a, 7; and.pred %p, %q, !%q; selp.b32 %x, 1, 2, %p;", 7, 0, 0, 2},
    {"setp.eq.s32 %p, %a, 7; @%p mov.u32 %x, 3; @!%p mov.u32 %x, 4;", 7, 0, 0, 3},
    {"mov.b64 %X, {%a, %b};", 1, 2, 0, 0x200000001},
    {"mov.b64 {%x, %y}, %A; add.s32 %x, %x, %y;", 0x500000003, 0, 0, 8},
    {"mov.u32 %x, %tid.x; mov.u32 %y, %ntid.x; mad.lo.u32 %x, %y, 100, %x;", 0, 0, 0, 3231},
    {"cvt.u64.u32 %X, %a;", MINUS_ONE, 0, 0, MINUS_ONE},
    {"cvt.s64.s32 %X, %a;", MINUS_ONE, 0, 0, ~0ull},
    {"cvt.s32.s8 %x, %a;", 0x180, 0, 0, 0xffffff80},
    {"cvt.u32.u16 %x, %a;", 0x12345678, 0, 0, 0x5678},
    {"cvt.rn.f32.s32 %x, %a;", MINUS_ONE, 0, 0, 0xbf800000},
    {"cvt.rn.f32.u32 %x, %a;", 1, 0, 0, ONE},
    {"cvt.rni.s32.f32 %x, %a;", 0x40200000, 0, 0, 2}, // 2.5 to even
    {"cvt.rzi.s32.f32 %x, %a;", 0xc0200000, 0, 0, (uint32_t)-2},
    {"cvt.rzi.s32.f32 %x, %a;", 0x7f800000, 0, 0, 0x7fffffff},
    {"cvt.rzi.u32.f32 %x, %a;", 0xbf800000, 0, 0, 0},
    {"cvt.rni.s8.f32 %x, %a; cvt.s32.s8 %x, %x;", 0xc3480000, 0, 0, (uint32_t)-128},
    {"cvt.rn.f16x2.f32 %x, %a, %b;", TWO, ONE, 0, 0x40003c00},
    {"cvt.rn.bf16x2.f32 %x, %a, %b;", TWO, ONE, 0, 0x40003f80},
    {"cvt.f32.f16 %x, %a;", 0x3c00, 0, 0, ONE},
    {"cvt.rn.satfinite.e4m3x2.f32 %x, %a, %b;", 0x47000000, ONE, 0, 0x7e38},
    {"cvt.rn.f16x2.e4m3x2 %x, %a;", 0x4038, 0, 0, 0x40003c00},
    {"st.global.v2.u32 [%P+64], {%a, %b}; ld.global.u64 %X, [%P+64];", 5, 6, 0, 0x600000005},
    {"st.global.u8 [%P+64], %a; ld.global.s8 %x, [%P+64];", 0x1ff, 0, 0, MINUS_ONE},
    {"st.shared.u32 [%S+4], %a; bar.sync 0; ld.shared.u32 %x, [%S+4];", 77, 0, 0, 77},
    {"cvta.shared.u64 %X, %S; cvta.to.shared.u64 %X, %X;", 0, 0, 0, 0},
    {"atom.global.add.u32 %x, [%P+64], 1; bar.warp.sync -1; ld.global.u32 %x, [%P+64];", 0, 0, 0, 32},
    {"shfl.sync.down.b32 %x|%p, %a, 1, 31, -1; @!%p mov.u32 %x, 9;", 5, 0, 0, 5},
    {"vote.sync.ballot.b32 %x, %p, -1;", 0, 0, 0, 0},
    {"{ .reg .b32 t; mov.u32 t, 4; mov.u32 %x, t; }", 0, 0, 0, 4},
    {"mov.u32 %x, 0; mov.u32 %y, 0; AGAIN: add.s32 %x, %x, %y; add.s32 %y, %y, 1; setp.le.s32 %p, %y, 4; @%p bra AGAIN;", 0, 0,
     0, 10},
};

struct stop {
    const char *code, *message;
};
static const stop stops[] = {
    {"add.cc.u32 %x, %a, %b;", "not supported"},
    {"wgmma.fence.sync.aligned;", "not supported"},
    {"mov.u32 %x, nowhere;", "not supported"},
    {"ld.global.u32 %x, [%P+2];", "misaligned"},
    {"ld.shared.u32 %x, [%S+256];", "shared access"},
    {"ld.param.u64 %X, [p+8];", "outside of the parameters"},
    {"trap;", "trap"},
    {"setp.lt.u32 %p, %L, 3; @%p bar.sync 0;", "deadlock"},
};

static std::string kernel_text(const char *code) {
    std::string text = ".version 8.0\n.target sm_80\n.extern .shared .align 16 .b8 memory[];\n"
                       ".visible .entry one(.param .u64 p) // a comment; with { braces\n{\n"
                       ".reg .b64 %P, %A, %B, %C, %X, %S;\n.reg .b32 %a, %b, %c, %x, %y, %L;\n.reg .pred %p, %q;\n"
                       "ld.param.u64 %P, [p];\nmov.u64 %S, memory;\nmov.u32 %L, %laneid;\nmov.u32 %x, 0;\nmov.u64 %X, 0;\n"
                       "setp.ne.u64 %p, %X, %X;\n";
    const char *const loads[] = {"A", "B", "C"};
    for (int i = 0; i < 3; i++)
        text += "ld.global.u64 %" + std::string(loads[i]) + ", [%P+" + std::to_string(8 * i) + "];\n" + "cvt.u32.u64 %" +
                (char)(loads[i][0] + 32) + ", %" + loads[i] + ";\n";
    text += std::string(code) + "\n";
    if (strstr(code, "%x")) text += "cvt.u64.u32 %X, %x;\n";
    return text + "st.global.u64 [%P+24], %X;\nret;\n}\n";
}

// Runs the code in 32 threads; the last of them to finish leaves its result.
static uint64_t run(const char *code, uint64_t a, uint64_t b, uint64_t c) {
    char path[] = "/tmp/quire-ptx-XXXXXX";
    int file = mkstemp(path);
    std::string text = kernel_text(code);
    if (file < 0 || write(file, text.data(), text.size()) != (ssize_t)text.size()) return ~0ull;
    close(file);
    ptx_program program;
    ptx_parse_file(path, program);
    unlink(path);
    uint64_t *memory = (uint64_t *)emu_device_alloc(256);
    emu_memory_open();
    memset(memory, 0, 256);
    memory[0] = a, memory[1] = b, memory[2] = c;
    emu_run_grid(dim3(1), dim3(32), 256, [&] { ptx_run_thread(*program.at("one"), (const unsigned char *)&memory); });
    emu_memory_open();
    uint64_t result = memory[3];
    emu_device_free(memory);
    return result;
}

static bool row_holds(const row &r) {
    uint64_t got = run(r.code, r.a, r.b, r.c);
    if (got != r.want) printf("%s: got %llx, want %llx\n", r.code, (unsigned long long)got, (unsigned long long)r.want);
    return got == r.want;
}

// An error ends the process, so each runs in a child whose message is read back.
static std::string message_of(const char *code) {
    int ends[2];
    if (pipe(ends)) return "";
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        run(code, 0, 0, 0);
        _exit(0);
    }
    close(ends[1]);
    std::string message;
    char buffer[512];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) message.append(buffer, (size_t)n);
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return message;
}

static bool stop_holds(const stop &s) {
    std::string message = message_of(s.code);
    bool holds = message.find(s.message) != std::string::npos;
    if (!holds) printf("%s: message is '%s', want '%s'\n", s.code, message.c_str(), s.message);
    return holds;
}

int main() {
    int wrong = 0, count = 0;
    for (const row &r : rows) wrong += !row_holds(r), count++;
    for (const stop &s : stops) wrong += !stop_holds(s), count++;
    printf("PTX: %d checks, %d wrong\n", count, wrong);
    return wrong != 0;
}
