/* unroll.h - full unrolling of the short loops that index register tiles. Without it accumulators live in memory. */
#ifndef QR_ATTENTION_CPU_UNROLL_H
#define QR_ATTENTION_CPU_UNROLL_H

#define QR_PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define QR_UNROLL(n) QR_PRAGMA(clang loop unroll(full))
#else
#define QR_UNROLL(n) QR_PRAGMA(GCC unroll n)
#endif
#endif
