// PTX loads, stores, cp.async and atomics. Every access is checked for alignment, shared ones for the size of shared memory.
#include <algorithm>

#include "tests/cuda/emulator/emu_async.h"
#include "tests/cuda/emulator/emu_intrinsics.h"
#include "tests/cuda/emulator/ptx_memory.h"
#include "tests/cuda/emulator/ptx_program.h"

void *ptx_shared_pointer(const ptx_exec &e, const ptx_instruction &i, const ptx_operand &o, size_t bytes) {
    uint64_t address = (uint32_t)e.address(o);
    if (address + bytes > emu_shared_bytes)
        emu_fail(e.site(), i.line, "shared access of %zu bytes at %llu, size %zu: %s", bytes, (unsigned long long)address,
                 emu_shared_bytes, i.text.c_str());
    return emu_shared + address;
}

static const unsigned char *parameter_pointer(const ptx_exec &e, const ptx_instruction &i, const ptx_operand &o, size_t bytes) {
    uint64_t offset = e.address(o) - PTX_PARAMETER_BASE;
    if (offset + bytes > e.kernel.parameter_bytes) emu_fail(e.site(), i.line, "outside of the parameters: %s", i.text.c_str());
    return e.parameters + offset;
}

static void *pointer(const ptx_exec &e, const ptx_instruction &i, const ptx_operand &o, size_t bytes) {
    void *p = i.has("shared")  ? ptx_shared_pointer(e, i, o, bytes)
              : i.has("param") ? (void *)parameter_pointer(e, i, o, bytes)
                               : (void *)e.address(o);
    if ((uintptr_t)p % bytes && !i.has("param"))
        emu_fail(e.site(), i.line, "misaligned access of %zu bytes at %p: %s", bytes, p, i.text.c_str());
    return p;
}

static size_t element_count(const ptx_operand &o) { return o.elements.empty() ? 1 : o.elements.size(); }
static int element(const ptx_operand &o, size_t k) { return o.elements.empty() ? o.slot : o.elements[k]; }

// ---- ld, st: T is one element ----

template <class T> struct op_load {
    static void run(ptx_exec &e, const ptx_instruction &i) {
        const ptx_operand &to = i.operands[0];
        size_t count = element_count(to);
        T value[4];
        memcpy(value, pointer(e, i, i.operands[1], count * sizeof(T)), count * sizeof(T));
        if (i.has("global")) emu_count_read(count * sizeof(T));
        for (size_t k = 0; k < count; k++) e.set<T>(element(to, k), value[k]);
    }
};
template <class T> struct op_store {
    static void run(ptx_exec &e, const ptx_instruction &i) {
        const ptx_operand &from = i.operands[1];
        size_t count = element_count(from);
        T value[4];
        for (size_t k = 0; k < count; k++) value[k] = e.value<T>(element(from, k));
        memcpy(pointer(e, i, i.operands[0], count * sizeof(T)), value, count * sizeof(T));
    }
};

template <template <class> class Op> static ptx_operation select_access(ptx_instruction &i) {
    switch (i.type) {
    case PTX_U8:
    case PTX_B8: return Op<uint8_t>::run;
    case PTX_S8: return Op<int8_t>::run;
    case PTX_F16:
    case PTX_BF16: return Op<uint16_t>::run;
    default: return ptx_for_number<Op>(i.type);
    }
}

// ---- cp.async ----

static void copy_issue(ptx_exec &e, const ptx_instruction &i) {
    uint32_t size = e.get<uint32_t>(i, 2), valid = i.operands.size() > 3 ? e.get<uint32_t>(i, 3) : size;
    void *to = ptx_shared_pointer(e, i, i.operands[0], size);
    emu_copy_issue(to, (const void *)e.address(i.operands[1]), size, valid, e.site(), i.line);
}
static void copy_commit(ptx_exec &e, const ptx_instruction &i) { emu_copy_commit(e.site(), i.line); }
static void copy_wait(ptx_exec &e, const ptx_instruction &i) { emu_copy_wait(e.get<uint32_t>(i, 0)); }
static void copy_wait_all(ptx_exec &, const ptx_instruction &) { emu_copy_wait_all(); }

static ptx_operation select_cp(ptx_instruction &i) {
    if (!i.has("async")) return nullptr;
    if (i.has("commit_group")) return copy_commit;
    if (i.has("wait_group")) return copy_wait;
    if (i.has("wait_all")) return copy_wait_all;
    return i.has("shared") && i.has("global") ? copy_issue : nullptr;
}

// ---- atom, red ----

static uint32_t changed(const ptx_instruction &i, uint32_t old, uint32_t a, uint32_t b) {
    bool is_signed = ptx_types[i.type].is_signed;
    if (i.has("add")) return old + a;
    if (i.has("exch")) return a;
    if (i.has("cas")) return old == a ? b : old;
    if (i.has("max")) return is_signed ? (uint32_t)std::max((int32_t)old, (int32_t)a) : std::max(old, a);
    return is_signed ? (uint32_t)std::min((int32_t)old, (int32_t)a) : std::min(old, a);
}

// red has no destination, so its address comes first.
static void atomic_word(ptx_exec &e, const ptx_instruction &i) {
    size_t at = i.opcode == "atom";
    uint32_t *address = (uint32_t *)pointer(e, i, i.operands[at], 4);
    uint32_t a = e.get<uint32_t>(i, at + 1), b = i.operands.size() > at + 2 ? e.get<uint32_t>(i, at + 2) : 0;
    uint32_t old = emu_atomic(address, [&](uint32_t v) { return changed(i, v, a, b); });
    if (at) e.put<uint32_t>(i, old);
}
static void atomic_add_f32(ptx_exec &e, const ptx_instruction &i) {
    size_t at = i.opcode == "atom";
    float a = e.get<float>(i, at + 1);
    float old = atomicAdd((float *)pointer(e, i, i.operands[at], 4), a);
    if (at) e.put<float>(i, old);
}
static ptx_operation select_atomic(ptx_instruction &i) {
    if (i.type == PTX_F32) return i.has("add") ? atomic_add_f32 : nullptr;
    return ptx_types[i.type].bytes == 4 ? atomic_word : nullptr;
}

#define CACHE_MODIFIERS "global shared param nc ca cg cs L1::no_allocate L2::128B v2 v4 volatile relaxed gpu cta"

static const ptx_opcode rows[] = {
    {"ld", CACHE_MODIFIERS, select_access<op_load>},
    {"st", CACHE_MODIFIERS, select_access<op_store>},
    {"cp", "async ca cg shared global L2::128B commit_group wait_group wait_all", select_cp},
    {"atom", "global shared relaxed gpu cta add exch cas max min", select_atomic},
    {"red", "global shared relaxed gpu cta add max min", select_atomic},
};
ptx_opcode_table ptx_memory_opcodes() { return {rows, sizeof rows / sizeof rows[0]}; }
