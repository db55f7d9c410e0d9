/* rope_table.c - cosines and sines of positions, by our own routines in double.
 *
 * glibc picks variants of sin, cos and pow by processor, so their last bits differ between machines. These use only +, -,
 * *, / and fma, which IEEE 754 defines to the bit. Errors are below 1e-13 before the one rounding to fp32, for angles up to
 * 2^32 (docs/NUMERICS.md).
 */
#include <math.h>
#include <string.h>

#include "base/assertion.h"
#include "runtime/model/cpu/matmul.h"

/* Nearest integer, even on ties, for |x| < 2^51. */
static double nearest(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

/* ---- sine and cosine ---- */

/* pi/2 in three parts of 53 bits each. */
#define HALF_PI_1 0x1.921fb54442d18p+0
#define HALF_PI_2 0x1.1a62633145c07p-54
#define HALF_PI_3 -0x1.f1976b7ed8fbcp-110
#define TWO_OVER_PI 0x1.45f306dc9c883p-1

/* Taylor on |r| <= pi/4: the first term left out is below 5e-17. */
static double sine_near_zero(double r) {
    double s = r * r, p = -1.0 / 1307674368000.0;
    p = fma(p, s, 1.0 / 6227020800.0);
    p = fma(p, s, -1.0 / 39916800.0);
    p = fma(p, s, 1.0 / 362880.0);
    p = fma(p, s, -1.0 / 5040.0);
    p = fma(p, s, 1.0 / 120.0);
    p = fma(p, s, -1.0 / 6.0);
    return fma(r * s, p, r);
}

static double cosine_near_zero(double r) {
    double s = r * r, p = 1.0 / 20922789888000.0;
    p = fma(p, s, -1.0 / 87178291200.0);
    p = fma(p, s, 1.0 / 479001600.0);
    p = fma(p, s, -1.0 / 3628800.0);
    p = fma(p, s, 1.0 / 40320.0);
    p = fma(p, s, -1.0 / 720.0);
    p = fma(p, s, 1.0 / 24.0);
    p = fma(p, s, -1.0 / 2.0);
    return fma(p, s, 1.0);
}

/* angle >= 0. */
static void cosine_sine(double angle, double *cosine, double *sine) {
    double turns = nearest(angle * TWO_OVER_PI);
    double r = fma(-turns, HALF_PI_1, angle);
    r = fma(-turns, HALF_PI_2, r);
    r = fma(-turns, HALF_PI_3, r);
    double c = cosine_near_zero(r), s = sine_near_zero(r);
    switch ((uint64_t)turns % 4) {
    case 0: *cosine = c, *sine = s; break;
    case 1: *cosine = -s, *sine = c; break;
    case 2: *cosine = -c, *sine = -s; break;
    default: *cosine = s, *sine = -c; break;
    }
}

void qr_rope_row(float *table, uint32_t position, const double *inv_freq, uint32_t rotated) {
    for (uint32_t i = 0; i < rotated / 2; i++) {
        double cosine, sine;
        cosine_sine((double)position * inv_freq[i], &cosine, &sine);
        table[2 * i] = (float)cosine;
        table[2 * i + 1] = (float)sine;
    }
}

/* ---- powers ---- */

/* log2 of a positive normal number: exponent plus 2/ln 2 * atanh((m - 1) / (m + 1)) with m near 1. */
static double log2_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    double exponent = (double)(int64_t)(bits >> 52) - 1023.0;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 0x1.6a09e667f3bcdp+0) { /* sqrt 2 */
        m *= 0.5;
        exponent += 1.0;
    }
    double t = (m - 1.0) / (m + 1.0), s = t * t, p = 0.0;
    for (int i = 25; i >= 1; i -= 2) p = fma(p, s, 1.0 / i);
    return fma(t * p, 0x1.71547652b82fep+1, exponent);
}

/* 2^x for -1000 < x < 1000. */
static double exp2_of(double x) {
    double n = nearest(x), f = (x - n) * 0x1.62e42fefa39efp-1, p = 1.0;
    for (int i = 15; i >= 1; i--) p = fma(p, f / i, 1.0);
    uint64_t bits = (uint64_t)(1023 + (int64_t)n) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

void qr_rope_frequencies(double *inv_freq, uint32_t rotated, double base, double linear_scale, const float *factors) {
    QR_ASSERT(base >= 1.0 && base < 0x1p512 && linear_scale > 0.0);
    double octaves = log2_of(base);
    for (uint32_t i = 0; i < rotated / 2; i++) {
        double f = exp2_of(-(2.0 * i / rotated) * octaves) / linear_scale;
        inv_freq[i] = factors ? f / (double)factors[i] : f;
    }
}
