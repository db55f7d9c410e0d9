/* scalar_math.h - exp and log in double precision from IEEE basic operations only.
 *
 * The C library picks variants of its own by processor; sampling must give the same bits everywhere (law 1), so it uses
 * these. Both loops of callers and these bodies are free of branches, so compilers may run them in vector lanes: with
 * contraction off (-ffp-contract=off) that changes no bit. Relative error below 1e-13. */
#ifndef QR_ENGINE_SCALAR_MATH_H
#define QR_ENGINE_SCALAR_MATH_H

#include <stdint.h>
#include <string.h>

static inline double qr_double_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t qr_bits_of_double(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* e^x for x <= 0; exactly 1 at 0 and exactly 0 below -700, for -inf and for NaN. x = n ln 2 + r; the polynomial is e^r's Taylor
 * series to degree 11, |r| <= 0.347. */
static inline double qr_exp_negative(double x) {
    const double log2e = 0x1.71547652b82fep+0, ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    const double to_integer = 0x1.8p52;
    double y = x > -700.0 ? x : -700.0;
    double shifted = y * log2e + to_integer;
    double n = shifted - to_integer;
    double r = (y - n * ln2_high) - n * ln2_low;
    double p = 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    /* The low bits of `shifted` are n in two's complement; moved into the exponent field they add n to it. */
    double scale = qr_double_of_bits((qr_bits_of_double(shifted) << 52) + 0x3ff0000000000000u);
    return x >= -700.0 ? p * scale : 0.0;
}

/* ln x for finite normal x > 0: x = 2^e m with m in [sqrt(1/2), sqrt 2), ln m = 2 atanh(s), s = (m-1)/(m+1). */
static inline double qr_log_positive(double x) {
    const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    uint64_t bits = qr_bits_of_double(x);
    int exponent = (int)(bits >> 52) - 1023;
    double m = qr_double_of_bits((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
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
