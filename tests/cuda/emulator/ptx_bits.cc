// PTX logic, shifts and bit fields.
#include "tests/cuda/emulator/ptx_program.h"

static uint64_t width_mask(ptx_type t) {
    unsigned bits = t == PTX_PREDICATE ? 1 : 8 * ptx_types[t].bytes;
    return bits == 64 ? ~0ull : (1ull << bits) - 1;
}

enum { AND, OR, XOR };
template <int KIND> static void logic(ptx_exec &e, const ptx_instruction &i) {
    uint64_t a = e.registers[i.operands[1].slot] ^ (i.operands[1].negated ? ~0ull : 0);
    uint64_t b = e.registers[i.operands[2].slot] ^ (i.operands[2].negated ? ~0ull : 0);
    e.put<uint64_t>(i, (KIND == AND ? a & b : KIND == OR ? a | b : a ^ b) & width_mask(i.type));
}
template <int KIND> static ptx_operation select_logic(ptx_instruction &) { return logic<KIND>; }

static void bitwise_not(ptx_exec &e, const ptx_instruction &i) {
    e.put<uint64_t>(i, ~e.get<uint64_t>(i, 1) & width_mask(i.type));
}
static ptx_operation select_not(ptx_instruction &) { return bitwise_not; }

template <class T> struct op_shl {
    static void run(ptx_exec &e, const ptx_instruction &i) {
        uint32_t n = e.get<uint32_t>(i, 2);
        e.put<T>(i, n >= 8 * sizeof(T) ? (T)0 : (T)(e.get<T>(i, 1) << n));
    }
};
// Signed values keep their sign however far they are shifted.
template <class T> struct op_shr {
    static void run(ptx_exec &e, const ptx_instruction &i) {
        uint32_t n = e.get<uint32_t>(i, 2), bits = 8 * sizeof(T);
        bool far = n >= bits;
        if (std::is_signed<T>::value) n = far ? bits - 1 : n;
        e.put<T>(i, far && !std::is_signed<T>::value ? (T)0 : (T)(e.get<T>(i, 1) >> n));
    }
};

// Funnel shift of the 64 bits high:low.
static void funnel(ptx_exec &e, const ptx_instruction &i) {
    uint64_t both = (uint64_t)e.get<uint32_t>(i, 2) << 32 | e.get<uint32_t>(i, 1);
    uint32_t n = e.get<uint32_t>(i, 3);
    n = i.has("wrap") ? n & 31 : n > 32 ? 32 : n;
    e.put<uint32_t>(i, (uint32_t)(i.has("l") ? (both << n) >> 32 : both >> n));
}
static ptx_operation select_shf(ptx_instruction &) { return funnel; }

static uint64_t low_bits(unsigned n) { return n >= 64 ? ~0ull : (1ull << n) - 1; }
static uint64_t shift_left(uint64_t v, unsigned n) { return n >= 64 ? 0 : v << n; }

// bfi d, inserted, base, position, length
static void insert_field(ptx_exec &e, const ptx_instruction &i) {
    unsigned position = e.get<uint8_t>(i, 3), length = e.get<uint8_t>(i, 4);
    uint64_t field = shift_left(low_bits(length), position);
    uint64_t v = (e.get<uint64_t>(i, 2) & ~field) | (shift_left(e.get<uint64_t>(i, 1), position) & field);
    e.put<uint64_t>(i, v & width_mask(i.type));
}
static ptx_operation select_bfi(ptx_instruction &) { return insert_field; }

// bfe d, value, position, length; the sign bit of the field fills the rest for signed types
template <class T> struct op_bfe {
    static void run(ptx_exec &e, const ptx_instruction &i) {
        typedef typename std::make_unsigned<T>::type bits;
        unsigned position = e.get<uint8_t>(i, 2), length = e.get<uint8_t>(i, 3), width = 8 * sizeof(T);
        uint64_t v = position >= width ? 0 : (uint64_t)e.get<bits>(i, 1) >> position;
        unsigned top = position + length > width ? width - 1 : position + length - 1;
        bool negative = std::is_signed<T>::value && length && (e.get<bits>(i, 1) >> top & 1);
        v &= low_bits(length);
        if (negative) v |= ~low_bits(top + 1 > position ? top + 1 - position : 0);
        e.put<T>(i, (T)v);
    }
};

// Unlike __byte_perm, the top bit of a selector replicates the byte's sign.
static void permute_bytes(ptx_exec &e, const ptx_instruction &i) {
    uint64_t bytes = (uint64_t)e.get<uint32_t>(i, 2) << 32 | e.get<uint32_t>(i, 1);
    uint32_t selectors = e.get<uint32_t>(i, 3), result = 0;
    for (int k = 0; k < 4; k++) {
        uint32_t selector = selectors >> 4 * k, byte = bytes >> 8 * (selector & 7) & 0xff;
        result |= (selector & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << 8 * k;
    }
    e.put<uint32_t>(i, result);
}
static ptx_operation select_prmt(ptx_instruction &) { return permute_bytes; }

// Any function of three bits; its value for (a, b, c) is bit 4a + 2b + c of the table.
static void lookup3(ptx_exec &e, const ptx_instruction &i) {
    uint32_t a = e.get<uint32_t>(i, 1), b = e.get<uint32_t>(i, 2), c = e.get<uint32_t>(i, 3), table = e.get<uint32_t>(i, 4);
    uint32_t result = 0;
    for (int k = 0; k < 8; k++)
        if (table >> k & 1) result |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    e.put<uint32_t>(i, result);
}
static ptx_operation select_lop3(ptx_instruction &) { return lookup3; }

template <class T> struct op_popc {
    static void run(ptx_exec &e, const ptx_instruction &i) {
        typedef typename std::make_unsigned<T>::type bits;
        e.put<uint32_t>(i, (uint32_t)__builtin_popcountll(e.get<bits>(i, 1)));
    }
};
template <class T> struct op_clz {
    static void run(ptx_exec &e, const ptx_instruction &i) {
        typedef typename std::make_unsigned<T>::type bits;
        uint64_t v = e.get<bits>(i, 1);
        e.put<uint32_t>(i, v ? (uint32_t)__builtin_clzll(v) - (64 - 8 * (uint32_t)sizeof(T)) : 8 * (uint32_t)sizeof(T));
    }
};
template <class T> struct op_brev {
    static void run(ptx_exec &e, const ptx_instruction &i) {
        T v = e.get<T>(i, 1), reversed = 0;
        for (unsigned bit = 0; bit < 8 * sizeof(T); bit++) reversed |= (T)((v >> bit & 1) << (8 * sizeof(T) - 1 - bit));
        e.put<T>(i, reversed);
    }
};

template <template <class> class Op> static ptx_operation select_integer(ptx_instruction &i) {
    return ptx_for_integer<Op>(i.type);
}

static const ptx_opcode rows[] = {
    {"and", "", select_logic<AND>},
    {"or", "", select_logic<OR>},
    {"xor", "", select_logic<XOR>},
    {"not", "", select_not},
    {"shl", "", select_integer<op_shl>},
    {"shr", "", select_integer<op_shr>},
    {"shf", "l r wrap clamp", select_shf},
    {"bfi", "", select_bfi},
    {"bfe", "", select_integer<op_bfe>},
    {"prmt", "", select_prmt},
    {"lop3", "", select_lop3},
    {"popc", "", select_integer<op_popc>},
    {"clz", "", select_integer<op_clz>},
    {"brev", "", select_integer<op_brev>},
};
ptx_opcode_table ptx_bit_opcodes() { return {rows, sizeof rows / sizeof rows[0]}; }
