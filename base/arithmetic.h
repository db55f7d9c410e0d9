/* arithmetic.h - the floating-point mode that the canonical arithmetic needs (docs/NUMERICS.md): round to nearest even,
 * subnormals kept. A thread inherits its creator's mode, and a program that was linked with -ffast-math flushes subnormals,
 * so every thread that computes sets its own.
 */
#ifndef QR_BASE_ARITHMETIC_H
#define QR_BASE_ARITHMETIC_H

#include <fenv.h>

static inline void qr_arithmetic_set_canonical(void) {
#if defined(__x86_64__)
    enum { MXCSR_DEFAULT = 0x1f80 };
    __builtin_ia32_ldmxcsr(MXCSR_DEFAULT);
#else
    (void)fesetenv(FE_DFL_ENV);
#endif
}
#endif
