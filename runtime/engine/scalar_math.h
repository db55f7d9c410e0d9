/* scalar_math.h - a logarithm in double precision from IEEE basic operations only.
 *
 * The C library picks variants of its own by processor; log-probabilities must have the same bits everywhere (law 1).
 * Relative error below 1e-13. */
#ifndef QR_ENGINE_SCALAR_MATH_H
#define QR_ENGINE_SCALAR_MATH_H

#include <stdint.h>
#include <string.h>

/* ln x for finite normal x > 0: x = 2^e m with m in [sqrt(1/2), sqrt 2), ln m = 2 atanh(s), s = (m-1)/(m+1). */
static inline double qr_log_positive(double x) {
    const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    uint64_t bits;
    double m;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&m, &bits, sizeof m);
    if (m > 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        exponent++;
    }
    double s = (m - 1.0) / (m + 1.0), z = s * s, p = 0.0;
    for (int k = 21; k >= 3; k -= 2) p = (p + 1.0 / k) * z;
    double log_m = 2.0 * s + 2.0 * s * p;
    return exponent * ln2_high + (exponent * ln2_low + log_m);
}
#endif
