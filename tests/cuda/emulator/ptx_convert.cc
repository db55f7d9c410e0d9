// PTX moves and conversions.
#include <cmath>

#include "tests/cuda/emulator/emu_core.h"
#include "tests/cuda/emulator/emu_formats.h"
#include "tests/cuda/emulator/ptx_program.h"

// ---- mov ----

static void move(ptx_exec &e, const ptx_instruction &i) { e.put<uint64_t>(i, e.get<uint64_t>(i, 1)); }

static unsigned part_bits(ptx_type t, size_t count) { return 8 * ptx_types[t].bytes / (unsigned)count; }

// mov.b32 {a, b}, r: the lowest bits go to a
static void unpack(ptx_exec &e, const ptx_instruction &i) {
    const std::vector<int> &parts = i.operands[0].elements;
    unsigned bits = part_bits(i.type, parts.size());
    uint64_t v = e.get<uint64_t>(i, 1);
    for (size_t k = 0; k < parts.size(); k++) e.set<uint64_t>(parts[k], v >> bits * k & ((1ull << bits) - 1));
}
static void pack(ptx_exec &e, const ptx_instruction &i) {
    const std::vector<int> &parts = i.operands[1].elements;
    unsigned bits = part_bits(i.type, parts.size());
    uint64_t v = 0;
    for (size_t k = 0; k < parts.size(); k++) v |= (e.value<uint64_t>(parts[k]) & ((1ull << bits) - 1)) << bits * k;
    e.put<uint64_t>(i, v);
}
static ptx_operation select_mov(ptx_instruction &i) {
    return !i.operands[0].elements.empty() ? unpack : !i.operands[1].elements.empty() ? pack : move;
}

// ---- cvt ----

static bool is_float(ptx_type t) { return t == PTX_F16 || t == PTX_BF16 || t == PTX_F32 || t == PTX_F64; }

static double as_double(const ptx_exec &e, const ptx_instruction &i) {
    switch (i.type2) {
    case PTX_F16: return emu_f16_to_f32(e.get<uint16_t>(i, 1));
    case PTX_BF16: return emu_bf16_to_f32(e.get<uint16_t>(i, 1));
    case PTX_F32: return e.get<float>(i, 1);
    default: return e.get<double>(i, 1);
    }
}

static double to_integral(const ptx_instruction &i, double x) {
    return i.has("rzi") ? trunc(x) : i.has("rni") ? nearbyint(x) : i.has("rmi") ? floor(x) : i.has("rpi") ? ceil(x) : x;
}

static void put_float(ptx_exec &e, const ptx_instruction &i, double x) {
    switch (i.type) {
    case PTX_F16: return e.put<uint16_t>(i, emu_f32_to_f16((float)x));
    case PTX_BF16: return e.put<uint16_t>(i, emu_f32_to_bf16((float)x));
    case PTX_F32: return e.put<float>(i, (float)x);
    default: return e.put<double>(i, x);
    }
}

static void float_to_float(ptx_exec &e, const ptx_instruction &i) { put_float(e, i, to_integral(i, as_double(e, i))); }

// An integer register or memory word of type t, widened to 64 bits.
static uint64_t widened(uint64_t v, ptx_type t) {
    unsigned unused = 64 - 8 * ptx_types[t].bytes;
    return ptx_types[t].is_signed ? (uint64_t)((int64_t)(v << unused) >> unused) : v << unused >> unused;
}

static void integer_to_integer(ptx_exec &e, const ptx_instruction &i) {
    e.put<uint64_t>(i, widened(widened(e.get<uint64_t>(i, 1), i.type2), i.type));
}

static void integer_to_float(ptx_exec &e, const ptx_instruction &i) {
    uint64_t v = widened(e.get<uint64_t>(i, 1), i.type2);
    bool negative = ptx_types[i.type2].is_signed;
    if (i.type == PTX_F32) e.put<float>(i, negative ? (float)(int64_t)v : (float)v); // one rounding, not two
    else put_float(e, i, negative ? (double)(int64_t)v : (double)v);
}

// Out of range becomes the nearest value, NaN becomes 0.
static void float_to_integer(ptx_exec &e, const ptx_instruction &i) {
    double x = to_integral(i, as_double(e, i));
    unsigned bits = 8 * ptx_types[i.type].bytes;
    bool is_signed = ptx_types[i.type].is_signed;
    double low = is_signed ? -ldexp(1, (int)bits - 1) : 0, above = ldexp(1, (int)bits - is_signed);
    uint64_t largest = is_signed ? (1ull << (bits - 1)) - 1 : bits == 64 ? ~0ull : (1ull << bits) - 1;
    if (x != x) e.put<uint64_t>(i, 0);
    else if (x >= above) e.put<uint64_t>(i, largest);
    else if (x < low) e.put<uint64_t>(i, is_signed ? widened(1ull << (bits - 1), i.type) : 0);
    else e.put<uint64_t>(i, is_signed ? (uint64_t)(int64_t)x : (uint64_t)x);
}

// Two floats to a pair: cvt d, high, low
template <uint16_t (*F)(float)> static void floats_to_pair(ptx_exec &e, const ptx_instruction &i) {
    e.put<uint32_t>(i, (uint32_t)F(e.get<float>(i, 1)) << 16 | F(e.get<float>(i, 2)));
}
static void floats_to_e4m3x2(ptx_exec &e, const ptx_instruction &i) {
    e.put<uint16_t>(i, (uint16_t)(emu_f32_to_e4m3(e.get<float>(i, 1)) << 8 | emu_f32_to_e4m3(e.get<float>(i, 2))));
}
static void e4m3x2_to_f16x2(ptx_exec &e, const ptx_instruction &i) {
    uint32_t v = e.get<uint16_t>(i, 1);
    e.put<uint32_t>(i, (uint32_t)emu_f32_to_f16(emu_e4m3_to_f32((uint8_t)(v >> 8))) << 16 |
                           emu_f32_to_f16(emu_e4m3_to_f32((uint8_t)v)));
}

static ptx_operation select_cvt(ptx_instruction &i) {
    if (i.type2 == PTX_F32 && i.operands.size() == 3) {
        if (i.type == PTX_F16X2) return floats_to_pair<emu_f32_to_f16>;
        if (i.type == PTX_BF16X2) return floats_to_pair<emu_f32_to_bf16>;
        return i.type == PTX_E4M3X2 && i.has("satfinite") ? floats_to_e4m3x2 : nullptr;
    }
    if (i.type == PTX_F16X2 && i.type2 == PTX_E4M3X2) return e4m3x2_to_f16x2;
    if (ptx_types[i.type].bytes == 0 || i.type2 == PTX_NO_TYPE || i.has("satfinite")) return nullptr;
    if (is_float(i.type2)) return is_float(i.type) ? float_to_float : float_to_integer;
    return is_float(i.type) ? integer_to_float : integer_to_integer;
}

// ---- cvta: generic addresses are the host's, shared addresses begin at 0 ----

static void shared_to_generic(ptx_exec &e, const ptx_instruction &i) {
    e.put<uint64_t>(i, e.get<uint64_t>(i, 1) + (uintptr_t)emu_shared);
}
static void generic_to_shared(ptx_exec &e, const ptx_instruction &i) {
    e.put<uint64_t>(i, e.get<uint64_t>(i, 1) - (uintptr_t)emu_shared);
}
static ptx_operation select_cvta(ptx_instruction &i) {
    if (i.has("global")) return move;
    return i.has("to") ? generic_to_shared : shared_to_generic;
}

static const ptx_opcode rows[] = {
    {"mov", "", select_mov},
    {"cvt", "rn rz rzi rni rmi rpi satfinite", select_cvt},
    {"cvta", "to global shared", select_cvta},
};
ptx_opcode_table ptx_convert_opcodes() { return {rows, sizeof rows / sizeof rows[0]}; }
