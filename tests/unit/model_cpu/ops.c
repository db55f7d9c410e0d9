/* ops.c - norm, add, silu, rope and maximum: every path against the scalar one bit for bit, and that one against doubles. */
#include <criterion/criterion.h>

#include "tests/support/matmul_cases.h"

enum { LONGEST = 1601 };

static const uint32_t LENGTHS[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 100, 576, 1536, LONGEST};
enum { LENGTH_COUNT = sizeof LENGTHS / sizeof *LENGTHS };

/* Values of all magnitudes; kind 1 adds infinities and NaN, kind 2 zeros of both signs. */
static void fill(float *x, uint32_t n, int kind, qr_random *r) {
    static const float odd[] = {INFINITY, -INFINITY, NAN, 0x1p-149f, -0x1p127f};
    for (uint32_t i = 0; i < n; i++) {
        x[i] = case_unit(r) * expf(6.0f * case_unit(r));
        if (kind == 1 && qr_random_below(r, 8) == 0) x[i] = odd[qr_random_below(r, 5)];
        if (kind == 2 && qr_random_below(r, 3) == 0) x[i] = qr_random_below(r, 2) ? 0.0f : -0.0f;
    }
}

typedef struct inputs {
    float a[LONGEST], b[LONGEST], expected[LONGEST], got[LONGEST];
} inputs;

static void check_same(const inputs *in, uint32_t n, const char *what, const qr_ops_path *path) {
    cr_assert_eq(case_differences(in->expected, in->got, n), 0, "%s on %s, n=%u", what, path->name, n);
}

static void check_elementwise(const qr_ops_path *base, const qr_ops_path *path, inputs *in, uint32_t n) {
    base->rmsnorm(in->expected, in->a, in->b, n, 1e-5f);
    path->rmsnorm(in->got, in->a, in->b, n, 1e-5f);
    check_same(in, n, "rmsnorm", path);
    base->silu_mul(in->expected, in->a, in->b, n);
    path->silu_mul(in->got, in->a, in->b, n);
    check_same(in, n, "silu_mul", path);
    memcpy(in->expected, in->a, n * sizeof(float));
    memcpy(in->got, in->a, n * sizeof(float));
    base->add(in->expected, in->b, n);
    path->add(in->got, in->b, n);
    check_same(in, n, "add", path);
    in->expected[0] = base->max(in->a, n);
    in->got[0] = path->max(in->a, n);
    check_same(in, 1, "max", path);
}

Test(model_cpu_ops, every_path_gives_the_same_bits) {
    static inputs in;
    const qr_ops_path *paths[CASE_PATHS_MAX];
    int count = case_paths(paths);
    qr_random r = {11};
    for (int p = 1; p < count; p++)
        for (int kind = 0; kind < 3; kind++)
            for (int i = 0; i < LENGTH_COUNT; i++) {
                fill(in.a, LENGTHS[i], kind, &r);
                fill(in.b, LENGTHS[i], kind, &r);
                check_elementwise(paths[0], paths[p], &in, LENGTHS[i]);
            }
}

Test(model_cpu_ops, output_may_be_the_input) {
    static inputs in;
    const qr_ops_path *paths[CASE_PATHS_MAX];
    int count = case_paths(paths);
    qr_random r = {12};
    fill(in.a, 100, 0, &r);
    fill(in.b, 100, 0, &r);
    for (int p = 0; p < count; p++) {
        paths[p]->silu_mul(in.expected, in.a, in.b, 100);
        memcpy(in.got, in.a, 100 * sizeof(float));
        paths[p]->silu_mul(in.got, in.got, in.b, 100);
        check_same(&in, 100, "silu_mul in place", paths[p]);
        paths[p]->rmsnorm(in.expected, in.a, in.b, 100, 1e-6f);
        memcpy(in.got, in.a, 100 * sizeof(float));
        paths[p]->rmsnorm(in.got, in.got, in.b, 100, 1e-6f);
        check_same(&in, 100, "rmsnorm in place", paths[p]);
    }
}

Test(model_cpu_ops, values_are_close_to_exact_ones) {
    static inputs in;
    const qr_ops_path *paths[CASE_PATHS_MAX];
    (void)case_paths(paths);
    qr_random r = {13};
    for (int i = 0; i < LENGTH_COUNT; i++) {
        uint32_t n = LENGTHS[i];
        fill(in.a, n, 0, &r);
        fill(in.b, n, 0, &r);
        double squares = 0.0;
        for (uint32_t j = 0; j < n; j++) squares += (double)in.a[j] * in.a[j];
        paths[0]->rmsnorm(in.got, in.a, in.b, n, 1e-5f);
        for (uint32_t j = 0; j < n; j++) {
            double exact = in.a[j] / sqrt(squares / n + (double)1e-5f) * in.b[j];
            cr_assert_leq(fabs(in.got[j] - exact), fabs(exact) * 1e-5, "n=%u: %g, not %g", n, (double)in.got[j], exact);
        }
        paths[0]->silu_mul(in.got, in.a, in.b, n);
        for (uint32_t j = 0; j < n; j++) {
            double exact = in.a[j] / (1.0 + exp(-(double)in.a[j])) * in.b[j];
            /* Below -44 the sigmoid is exactly 0: exp2 ends at -64. */
            cr_assert_leq(fabs(in.got[j] - exact), fabs(exact) * 6e-6 + fabs(in.a[j] * in.b[j]) * 0x1p-63, "silu(%g)",
                          (double)in.a[j]);
        }
    }
}

Test(model_cpu_ops, silu_of_infinities_and_zero) {
    const qr_ops_path *paths[CASE_PATHS_MAX];
    int count = case_paths(paths);
    float gate[4] = {INFINITY, 0.0f, -100.0f, NAN}, up[4] = {1.0f, 5.0f, 1.0f, 1.0f}, y[4];
    for (int p = 0; p < count; p++) {
        paths[p]->silu_mul(y, gate, up, 4);
        cr_assert(y[0] == INFINITY && y[1] == 0.0f && y[2] == 0.0f && isnan(y[3]), "%s", paths[p]->name);
    }
}

Test(model_cpu_ops, maximum_is_exact_and_a_nan_anywhere_shows) {
    const qr_ops_path *paths[CASE_PATHS_MAX];
    int count = case_paths(paths);
    float x[70];
    for (int p = 0; p < count; p++)
        for (uint32_t n = 1; n <= 70; n++)
            for (uint32_t at = 0; at < n; at++) {
                for (uint32_t i = 0; i < n; i++) x[i] = -5.0f - (float)i;
                x[at] = -1.5f;
                cr_assert_eq(paths[p]->max(x, n), -1.5f);
                x[at] = -NAN;
                cr_assert(isnan(paths[p]->max(x, n)));
            }
    const float zeros[2] = {-0.0f, 0.0f};
    for (int p = 0; p < count; p++) cr_assert(!signbit(paths[p]->max(zeros, 2)), "+0 is above -0");
}

/* ---- rope ---- */

enum { HEADS = 3, DIM_MAX = 128 };

static void check_rope(const qr_ops_path *const *paths, int count, uint32_t dim, uint32_t rotated, qr_random *r) {
    float x[HEADS * DIM_MAX], expected[HEADS * DIM_MAX], got[HEADS * DIM_MAX], table[DIM_MAX];
    fill(x, HEADS * dim, 0, r);
    for (uint32_t i = 0; i < rotated; i += 2) {
        double angle = 7.0 * case_unit(r);
        table[i] = (float)cos(angle), table[i + 1] = (float)sin(angle);
    }
    paths[0]->rope(expected, x, table, HEADS, dim, rotated, 0.25f);
    for (uint32_t i = 0; i < HEADS * dim; i += 2) {
        uint32_t j = i % dim;
        double c = j < rotated ? table[j] : 1.0, s = j < rotated ? table[j + 1] : 0.0, a = x[i], b = x[i + 1];
        cr_assert_leq(fabs(expected[i] - (a * c - b * s) * 0.25), (fabs(a) + fabs(b)) * 1e-7);
        cr_assert_leq(fabs(expected[i + 1] - (a * s + b * c) * 0.25), (fabs(a) + fabs(b)) * 1e-7);
    }
    for (int p = 1; p < count; p++) {
        memcpy(got, x, sizeof x);
        paths[p]->rope(got, got, table, HEADS, dim, rotated, 0.25f);
        cr_assert_eq(memcmp(got, expected, HEADS * dim * sizeof *got), 0, "%s dim %u of which %u turned", paths[p]->name, dim,
                     rotated);
    }
}

Test(model_cpu_ops, rope_turns_the_first_elements_of_each_head_and_scales_all) {
    static const uint32_t dims[] = {16, 48, 64, 80, 128};
    const qr_ops_path *paths[CASE_PATHS_MAX];
    int count = case_paths(paths);
    qr_random r = {14};
    for (int i = 0; i < 5; i++)
        for (uint32_t rotated = 0; rotated <= dims[i]; rotated += 2) check_rope(paths, count, dims[i], rotated, &r);
}
