/*
 * PTX in a form that can be run: what ptx_parse makes and the opcode files execute.
 *
 * Every value is a register slot: immediates are slots that hold their value from the start, special registers such as
 * %tid.x are slots that are set when a thread starts. So executing an operand is one array access.
 */
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

enum ptx_type {
    PTX_U8,
    PTX_S8,
    PTX_B8,
    PTX_U16,
    PTX_S16,
    PTX_B16,
    PTX_F16,
    PTX_BF16,
    PTX_U32,
    PTX_S32,
    PTX_B32,
    PTX_F32,
    PTX_F16X2,
    PTX_BF16X2,
    PTX_E4M3X2,
    PTX_U64,
    PTX_S64,
    PTX_B64,
    PTX_F64,
    PTX_PREDICATE,
    PTX_NO_TYPE
};
struct ptx_type_info {
    const char *name;
    unsigned bytes;
    bool is_signed;
};
extern const ptx_type_info ptx_types[PTX_NO_TYPE + 1];
ptx_type ptx_type_by_name(const std::string &name); // PTX_NO_TYPE if it is none

struct ptx_operand {
    int slot = -1;             // value, or base of an address; -1: an address without base
    int64_t offset = 0;        // of an address
    bool negated = false;      // !%p
    int predicate = -1;        // second destination, as in %r1|%p1
    std::vector<int> elements; // slots of {a, b, ...}
};

struct ptx_exec;
struct ptx_instruction;
typedef void (*ptx_operation)(ptx_exec &, const ptx_instruction &);

struct ptx_instruction {
    ptx_operation run = nullptr;
    std::vector<ptx_operand> operands;
    int guard = -1; // predicate slot of @%p
    bool guard_negated = false;
    int choice = 0; // set by select functions: a comparison, a count, a flag
    size_t target = 0;
    ptx_type type = PTX_NO_TYPE, type2 = PTX_NO_TYPE; // first and second type in the opcode
    int line = 0;
    std::string text, opcode, label;
    std::vector<std::string> modifiers;

    bool has(const char *modifier) const {
        for (const std::string &m : modifiers)
            if (m == modifier) return true;
        return false;
    }
};

struct ptx_kernel {
    std::string name;
    std::vector<ptx_instruction> code;
    std::vector<uint64_t> registers; // what a thread's registers hold at its start
    size_t parameter_bytes = 0;
};

// Slots 0 .. of every kernel, in this order.
enum ptx_special {
    PTX_TID_X,
    PTX_TID_Y,
    PTX_TID_Z,
    PTX_CTAID_X,
    PTX_CTAID_Y,
    PTX_CTAID_Z,
    PTX_NTID_X,
    PTX_NTID_Y,
    PTX_NTID_Z,
    PTX_NCTAID_X,
    PTX_NCTAID_Y,
    PTX_NCTAID_Z,
    PTX_LANEID,
    PTX_WARPID,
    PTX_SINK,
    PTX_SPECIAL_COUNT
};

// Parameters have addresses of their own, which mov may put into a register.
static const uint64_t PTX_PARAMETER_BASE = 0x7fee000000000000ull;

typedef std::map<std::string, std::unique_ptr<ptx_kernel>> ptx_program;
// Adds the kernels of a PTX file. Ends the process where the file is malformed.
void ptx_parse_file(const char *path, ptx_program &program);

// The whole life of the running emulated thread; parameters are laid out as the kernel's declaration says.
void ptx_run_thread(const ptx_kernel &kernel, const unsigned char *parameters);

// One thread of one kernel.
struct ptx_exec {
    const ptx_kernel &kernel;
    uint64_t *registers;
    const unsigned char *parameters;
    size_t next; // instruction
    bool done;

    template <class T> T value(int slot) const {
        T v;
        memcpy(&v, &registers[slot], sizeof v);
        return v;
    }
    template <class T> T get(const ptx_instruction &i, size_t operand) const { return value<T>(i.operands[operand].slot); }
    bool predicate(const ptx_operand &o) const { return (registers[o.slot] & 1) != (uint64_t)o.negated; }
    template <class T> void set(int slot, T v) {
        if constexpr (std::is_integral<T>::value) {
            registers[slot] = (uint64_t)(int64_t)v;
            if constexpr (std::is_unsigned<T>::value) registers[slot] = (uint64_t)v;
        } else {
            registers[slot] = 0;
            memcpy(&registers[slot], &v, sizeof v);
        }
    }
    template <class T> void put(const ptx_instruction &i, T v) { set<T>(i.operands[0].slot, v); }
    uint64_t address(const ptx_operand &o) const { return (o.slot < 0 ? 0 : registers[o.slot]) + (uint64_t)o.offset; }
    const char *site() const { return kernel.name.c_str(); }
};

// ---- opcodes: one row each ----

struct ptx_opcode {
    const char *name;
    const char *modifiers;                      // that are understood or change nothing, separated by blanks
    ptx_operation (*select)(ptx_instruction &); // null: this form is not supported
};
struct ptx_opcode_table {
    const ptx_opcode *rows;
    size_t count;
};
ptx_opcode_table ptx_arithmetic_opcodes();
ptx_opcode_table ptx_bit_opcodes();
ptx_opcode_table ptx_convert_opcodes();
ptx_opcode_table ptx_memory_opcodes();
ptx_opcode_table ptx_warp_opcodes();
// Sets run; an instruction of no known form stops with its text when it is reached, not before.
void ptx_select(ptx_instruction &instruction);

// The template Op<T>::run for an integer type; null for others.
template <template <class> class Op> ptx_operation ptx_for_integer(ptx_type t) {
    switch (t) {
    case PTX_U16:
    case PTX_B16: return Op<uint16_t>::run;
    case PTX_S16: return Op<int16_t>::run;
    case PTX_U32:
    case PTX_B32: return Op<uint32_t>::run;
    case PTX_S32: return Op<int32_t>::run;
    case PTX_U64:
    case PTX_B64: return Op<uint64_t>::run;
    case PTX_S64: return Op<int64_t>::run;
    default: return nullptr;
    }
}
template <template <class> class Op> ptx_operation ptx_for_float(ptx_type t) {
    return t == PTX_F32 ? Op<float>::run : t == PTX_F64 ? Op<double>::run : nullptr;
}
template <template <class> class Op> ptx_operation ptx_for_number(ptx_type t) {
    ptx_operation integer = ptx_for_integer<Op>(t);
    return integer ? integer : ptx_for_float<Op>(t);
}
