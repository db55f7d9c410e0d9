// PTX arithmetic and comparison. Integer overflow wraps (this file is compiled with -fwrapv).
#include <cmath>

#include "tests/cuda/emulator/emu_formats.h"
#include "tests/cuda/emulator/ptx_program.h"

// Two halves in a word; each operation rounds each half once.
struct half2 {
    uint32_t bits;
};
template <class F> static half2 each_half(half2 a, half2 b, F f) {
    uint32_t result = 0;
    for (int shift = 0; shift < 32; shift += 16)
        result |= (uint32_t)emu_f32_to_f16(
                      f(emu_f16_to_f32((uint16_t)(a.bits >> shift)), emu_f16_to_f32((uint16_t)(b.bits >> shift))))
                  << shift;
    return {result};
}
static half2 operator+(half2 a, half2 b) {
    return each_half(a, b, [](float x, float y) { return x + y; });
}
static half2 operator-(half2 a, half2 b) {
    return each_half(a, b, [](float x, float y) { return x - y; });
}
static half2 operator*(half2 a, half2 b) {
    return each_half(a, b, [](float x, float y) { return x * y; });
}

#define PTX_UNARY(name, expression)                              \
    template <class T> struct name {                             \
        static void run(ptx_exec &e, const ptx_instruction &i) { \
            T a = e.get<T>(i, 1);                                \
            e.put<T>(i, (T)(expression));                        \
        }                                                        \
    };
#define PTX_BINARY(name, expression)                             \
    template <class T> struct name {                             \
        static void run(ptx_exec &e, const ptx_instruction &i) { \
            T a = e.get<T>(i, 1), b = e.get<T>(i, 2);            \
            e.put<T>(i, (T)(expression));                        \
        }                                                        \
    };

// fmin and fmax give the other operand for a NaN, as PTX does without .NaN.
static float smaller(float a, float b) { return fminf(a, b); }
static double smaller(double a, double b) { return fmin(a, b); }
template <class T> static T smaller(T a, T b) { return a < b ? a : b; }
static float larger(float a, float b) { return fmaxf(a, b); }
static double larger(double a, double b) { return fmax(a, b); }
template <class T> static T larger(T a, T b) { return a > b ? a : b; }

PTX_BINARY(op_add, a + b)
PTX_BINARY(op_sub, a - b)
PTX_BINARY(op_mul, a *b)
PTX_BINARY(op_div, a / b)
PTX_BINARY(op_rem, a % b)
PTX_BINARY(op_min, smaller(a, b))
PTX_BINARY(op_max, larger(a, b))
PTX_UNARY(op_neg, -a)
PTX_UNARY(op_abs, a < 0 ? -a : a)
PTX_UNARY(op_sqrt, std::sqrt(a))
PTX_UNARY(op_rcp, 1 / a)
PTX_UNARY(op_rsqrt, 1 / std::sqrt(a))

static void abs_f32(ptx_exec &e, const ptx_instruction &i) { e.put<float>(i, fabsf(e.get<float>(i, 1))); }

template <class T> struct op_fma {
    static void run(ptx_exec &e, const ptx_instruction &i) {
        e.put<T>(i, std::fma(e.get<T>(i, 1), e.get<T>(i, 2), e.get<T>(i, 3)));
    }
};

// The product of two T in twice the width: for .wide and .hi.
template <class T> struct twice;
template <> struct twice<uint16_t> { typedef uint32_t type; };
template <> struct twice<int16_t> { typedef int32_t type; };
template <> struct twice<uint32_t> { typedef uint64_t type; };
template <> struct twice<int32_t> { typedef int64_t type; };
template <> struct twice<uint64_t> { typedef unsigned __int128 type; };
template <> struct twice<int64_t> { typedef __int128 type; };

template <class T> static typename twice<T>::type product(const ptx_exec &e, const ptx_instruction &i) {
    return (typename twice<T>::type)e.get<T>(i, 1) * e.get<T>(i, 2);
}
template <class T> struct op_mul_high {
    static void run(ptx_exec &e, const ptx_instruction &i) { e.put<T>(i, (T)(product<T>(e, i) >> 8 * sizeof(T))); }
};
template <class T> struct op_mul_wide {
    static void run(ptx_exec &e, const ptx_instruction &i) { e.put(i, (typename twice<T>::type)product<T>(e, i)); }
};
template <class T> struct op_mad_low {
    static void run(ptx_exec &e, const ptx_instruction &i) {
        e.put<T>(i, (T)(e.get<T>(i, 1) * e.get<T>(i, 2) + e.get<T>(i, 3)));
    }
};
template <class T> struct op_mad_wide {
    static void run(ptx_exec &e, const ptx_instruction &i) {
        typedef typename twice<T>::type wide;
        e.put(i, (wide)(product<T>(e, i) + e.get<wide>(i, 3)));
    }
};

static ptx_operation select_add(ptx_instruction &i) {
    return i.type == PTX_F16X2 ? op_add<half2>::run : ptx_for_number<op_add>(i.type);
}
static ptx_operation select_sub(ptx_instruction &i) {
    return i.type == PTX_F16X2 ? op_sub<half2>::run : ptx_for_number<op_sub>(i.type);
}
template <template <class> class Op> static ptx_operation wide(ptx_type t) {
    return ptx_types[t].bytes == 8 ? nullptr
           : t == PTX_U16          ? Op<uint16_t>::run
           : t == PTX_S16          ? Op<int16_t>::run
           : t == PTX_U32          ? Op<uint32_t>::run
           : t == PTX_S32          ? Op<int32_t>::run
                                   : nullptr;
}
static ptx_operation select_mul(ptx_instruction &i) {
    if (i.has("hi")) return ptx_for_integer<op_mul_high>(i.type);
    if (i.has("wide")) return wide<op_mul_wide>(i.type);
    return i.type == PTX_F16X2 ? op_mul<half2>::run : ptx_for_number<op_mul>(i.type);
}
static ptx_operation select_mad(ptx_instruction &i) {
    return i.has("wide") ? wide<op_mad_wide>(i.type) : i.has("lo") ? ptx_for_integer<op_mad_low>(i.type) : nullptr;
}
static ptx_operation select_abs(ptx_instruction &i) { return i.type == PTX_F32 ? abs_f32 : ptx_for_integer<op_abs>(i.type); }
template <template <class> class Op> static ptx_operation select_number(ptx_instruction &i) {
    return ptx_for_number<Op>(i.type);
}
template <template <class> class Op> static ptx_operation select_integer(ptx_instruction &i) {
    return ptx_for_integer<Op>(i.type);
}
template <template <class> class Op> static ptx_operation select_float(ptx_instruction &i) { return ptx_for_float<Op>(i.type); }

// ---- approximations: exact here, within a few units in the last place on the device ----

static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.f, x) : x; }

template <float (*F)(float), bool FLUSH> static void approximate(ptx_exec &e, const ptx_instruction &i) {
    float x = e.get<float>(i, 1);
    e.put<float>(i, FLUSH ? flushed(F(flushed(x))) : F(x));
}
static float reciprocal(float x) { return 1.f / x; }
static float reciprocal_root(float x) { return 1.f / sqrtf(x); }

template <float (*F)(float)> static ptx_operation select_approximate(ptx_instruction &i) {
    if (i.type != PTX_F32) return nullptr;
    return i.has("ftz") ? approximate<F, true> : approximate<F, false>;
}
static ptx_operation select_rcp(ptx_instruction &i) {
    return i.has("approx") ? select_approximate<reciprocal>(i) : i.has("ftz") ? nullptr : ptx_for_float<op_rcp>(i.type);
}

// ---- comparison ----

enum { EQUAL = 1, LESS = 2, GREATER = 4, UNORDERED = 8 }; // outcomes that make the predicate true
struct comparison {
    const char *name;
    int outcomes;
};
static const comparison comparisons[] = {
    {"eq", EQUAL},
    {"ne", LESS | GREATER},
    {"lt", LESS},
    {"le", LESS | EQUAL},
    {"gt", GREATER},
    {"ge", GREATER | EQUAL},
    {"lo", LESS},
    {"ls", LESS | EQUAL},
    {"hi", GREATER},
    {"hs", GREATER | EQUAL},
    {"equ", EQUAL | UNORDERED},
    {"neu", LESS | GREATER | UNORDERED},
    {"ltu", LESS | UNORDERED},
    {"leu", LESS | EQUAL | UNORDERED},
    {"gtu", GREATER | UNORDERED},
    {"geu", GREATER | EQUAL | UNORDERED},
    {"num", LESS | EQUAL | GREATER},
    {"nan", UNORDERED},
};

template <class T> struct op_setp {
    static void run(ptx_exec &e, const ptx_instruction &i) {
        T a = e.get<T>(i, 1), b = e.get<T>(i, 2);
        int outcome = a == b ? EQUAL : a < b ? LESS : a > b ? GREATER : UNORDERED;
        bool holds = (i.choice & outcome) != 0;
        if (i.operands.size() > 3) {
            bool other = e.predicate(i.operands[3]);
            holds = i.has("and") ? holds && other : i.has("or") ? holds || other : holds != other;
        }
        e.put<uint32_t>(i, holds);
        if (i.operands[0].predicate >= 0) e.set<uint32_t>(i.operands[0].predicate, !holds);
    }
};

static ptx_operation select_setp(ptx_instruction &i) {
    for (const comparison &c : comparisons)
        if (i.modifiers[0] == c.name) i.choice = c.outcomes;
    return i.choice ? ptx_for_number<op_setp>(i.type) : nullptr;
}

static void selp(ptx_exec &e, const ptx_instruction &i) {
    e.put<uint64_t>(i, e.get<uint64_t>(i, e.predicate(i.operands[3]) ? 1 : 2));
}
static ptx_operation select_selp(ptx_instruction &) { return selp; }

#define COMPARE_MODIFIERS "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor"

static const ptx_opcode rows[] = {
    {"add", "rn", select_add},
    {"sub", "rn", select_sub},
    {"mul", "rn lo hi wide", select_mul},
    {"mad", "lo wide", select_mad},
    {"fma", "rn", select_float<op_fma>},
    {"div", "rn approx full", select_number<op_div>},
    {"rem", "", select_integer<op_rem>},
    {"min", "", select_number<op_min>},
    {"max", "", select_number<op_max>},
    {"neg", "", select_number<op_neg>},
    {"abs", "", select_abs},
    {"sqrt", "rn approx", select_float<op_sqrt>},
    {"rcp", "rn approx ftz", select_rcp},
    {"rsqrt", "approx ftz", select_approximate<reciprocal_root>},
    {"ex2", "approx ftz", select_approximate<exp2f>},
    {"lg2", "approx ftz", select_approximate<log2f>},
    {"sin", "approx", select_approximate<sinf>},
    {"cos", "approx", select_approximate<cosf>},
    {"setp", COMPARE_MODIFIERS, select_setp},
    {"selp", "", select_selp},
};
ptx_opcode_table ptx_arithmetic_opcodes() { return {rows, sizeof rows / sizeof rows[0]}; }
