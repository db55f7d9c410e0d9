/* matmul_scalar.c - the definition itself: quantised rows, the order of roundings, and its distance from exact products. */
#include <criterion/criterion.h>

#include "runtime/model/cpu/panel.h"
#include "tests/support/matmul_cases.h"

static const qr_ops_path *scalar(void) {
    const qr_cpu_features none = {0};
    return qr_ops_path_find("scalar", &none);
}

/* One row of one group, quantised. */
typedef struct quantised {
    int8_t q[QR_GROUP];
    float scale, bias;
    int32_t n128, n128_low;
} quantised;

static quantised quantise_one(const qr_ops_path *path, const float x[QR_GROUP]) {
    _Alignas(64) uint8_t memory[QR_TILE_GROUP_BYTES + sizeof(qr_act_scales)];
    qr_acts acts;
    quantised out;
    cr_assert_leq(qr_acts_bytes(1, QR_GROUP), sizeof memory);
    qr_acts_init(&acts, 1, QR_GROUP, x, QR_GROUP, memory);
    path->quantize(&acts, 0, 1);
    const qr_act_scales *s = qr_act_scales_at(&acts, 0, 0);
    memcpy(out.q, qr_act_codes(&acts, 0, 0), sizeof out.q);
    out.scale = s->scale[0], out.bias = s->bias[0], out.n128 = s->n128[0], out.n128_low = s->n128_low[0];
    return out;
}

/* Quantising has edges that random rows do not meet, so these tests take every path. */
typedef void path_check(const qr_ops_path *path);
static void each_path(path_check *check) {
    const qr_ops_path *paths[CASE_PATHS_MAX];
    int count = case_paths(paths);
    for (int i = 0; i < count; i++) check(paths[i]);
}

static void check_rounding(const qr_ops_path *path) {
    float x[QR_GROUP] = {127.0f, -127.0f, 0.5f, 1.5f, -2.5f, 63.49f};
    x[20] = 5.0f;
    quantised g = quantise_one(path, x);
    const int8_t expected[6] = {127, -127, 0, 2, -2, 63};
    cr_assert_eq(memcmp(g.q, expected, sizeof expected), 0, "%s", path->name);
    cr_assert_eq(g.scale, 127.0f * 0x1.020408p-7f, "%s", path->name);
    cr_assert_eq(g.n128_low, -128 * 63, "%s", path->name);
    cr_assert_eq(g.n128, -128 * 68, "%s", path->name);
    cr_assert_eq(g.bias, g.scale * 68.0f, "%s", path->name);
}

Test(model_cpu_matmul_scalar, quantising_rounds_to_nearest_even_with_steps_of_a_127th) { each_path(check_rounding); }

static void check_edges(const qr_ops_path *path) {
    static const float broken[] = {NAN, INFINITY, -INFINITY, -NAN};
    for (int at = 0; at < QR_GROUP; at++) {
        float x[QR_GROUP] = {0};
        cr_assert_eq(quantise_one(path, x).scale, 0.0f, "%s", path->name);
        x[at] = -0x1.fffffep-65f; /* just below 2^-64 */
        quantised tiny = quantise_one(path, x);
        cr_assert(tiny.scale == 0.0f && tiny.q[at] == 0, "%s", path->name);
        x[at] = 0x1p-64f;
        cr_assert_eq(quantise_one(path, x).q[at], 127, "%s", path->name);
        x[at] = -0x1.fffffep127f;
        cr_assert_eq(quantise_one(path, x).q[at], -127, "%s", path->name);
        for (int i = 0; i < 4; i++) {
            x[at] = broken[i];
            quantised g = quantise_one(path, x);
            cr_assert(isnan(g.scale) && isnan(g.bias) && g.q[at] == 0 && g.n128 == 0 && g.n128_low == 0, "%s", path->name);
        }
    }
}

Test(model_cpu_matmul_scalar, groups_without_amplitude_are_zero_and_broken_ones_are_nan) { each_path(check_edges); }

static void check_range(const qr_ops_path *path) {
    qr_random r = {4};
    float x[QR_GROUP];
    for (int i = 0; i < 20000; i++) {
        float amplitude = qr_bits_f32(QR_ACT_TINY_BITS + qr_random_below(&r, QR_ACT_INFINITY_BITS - QR_ACT_TINY_BITS));
        for (int k = 0; k < QR_GROUP; k++) x[k] = k % 5 ? case_unit(&r) * amplitude : k % 2 ? amplitude : -amplitude;
        quantised g = quantise_one(path, x);
        for (int k = 0; k < QR_GROUP; k++) cr_assert(g.q[k] >= -127, "%s amplitude %a", path->name, (double)amplitude);
        cr_assert_eq(g.q[5], 127, "%s", path->name);
        cr_assert(isfinite(g.scale), "%s", path->name);
    }
}

Test(model_cpu_matmul_scalar, no_code_leaves_its_range) { each_path(check_range); }

/* The steps of docs/NUMERICS.md, straight from GGUF bytes. */
static float defined_product(qr_weight_type type, const uint8_t *row, uint32_t k, const float *x) {
    float y = 0.0f;
    for (uint32_t g = 0; g < k / QR_GROUP; g++) {
        quantised a = quantise_one(scalar(), x + g * QR_GROUP);
        qr_weight_group w;
        qr_weight_read_group(type, row, g, &w);
        int64_t dot[2] = {0, 0};
        for (int i = 0; i < QR_GROUP; i++) dot[i / 16] += (int64_t)qr_weight_integer(type, &w, i) * a.q[i];
        int64_t sum = dot[0] + dot[1];
        if (type == QR_WEIGHT_Q6_K) sum = dot[0] * (int8_t)w.sub[0] + dot[1] * (int8_t)w.sub[1];
        cr_assert_lt(llabs(sum), 1 << 24);
        float d = type == QR_WEIGHT_Q6_K ? qr_f16_to_f32(w.d) : qr_weight_scale(type, &w, 0);
        y = fmaf((float)sum, d * a.scale, y);
        if (qr_weight_has_minimum(type)) y = fmaf(qr_weight_minimum(type, &w), a.bias, y);
    }
    return y;
}

Test(model_cpu_matmul_scalar, products_follow_the_defined_steps) {
    enum { N = 19, K = 768, M = 3 };
    qr_random r = {6};
    float y[M * N];
    for (int t = QR_WEIGHT_Q8_0; t < QR_WEIGHT_TYPE_COUNT; t++) {
        qr_weight_type type = (qr_weight_type)t;
        case_matrix c = case_matrix_make(type, N, K, -1, &r);
        float *x = case_x(M, K, CASE_ORDINARY, &r);
        case_product(scalar(), &c.matrix, M, x, y, N);
        size_t row_bytes = (size_t)(K / qr_weight_block_elements(type)) * qr_weight_block_bytes(type);
        for (uint32_t row = 0; row < M; row++)
            for (uint32_t n = 0; n < N; n++) {
                float expected = defined_product(type, c.raw + n * row_bytes, K, x + row * K);
                cr_assert_eq(y[row * N + n], expected, "%s row %u output %u", qr_weight_type_name(type), row, n);
            }
        free(x);
        case_matrix_free(&c);
    }
}

/* |error| <= sum over groups of |weights| * half a step, plus fp32 roundings; floats have only the roundings. */
static double error_bound(bool is_float, const float *w, const float *x, uint32_t k) {
    double bound = 0.0, magnitude = 0.0;
    for (uint32_t i = 0; i < k; i++) {
        float top = 0.0f;
        for (uint32_t j = i / QR_GROUP * QR_GROUP; j < k && j < (i / QR_GROUP + 1) * QR_GROUP; j++)
            top = fmaxf(top, fabsf(x[j]));
        if (!is_float) bound += fabs((double)w[i]) * (double)top / 127.0 * 0.5001;
        magnitude += fabs((double)w[i] * (double)x[i]);
    }
    /* With a minimum, d * sum and m * bias cancel: their roundings are relative to terms up to 16 times the value. */
    return bound + (magnitude + 16.0 * bound) * 16.0 * (k + 8) * 0x1p-24 + 1e-30;
}

Test(model_cpu_matmul_scalar, products_are_within_half_a_step_of_exact_ones) {
    enum { N = 20, K = 512, M = 4 };
    qr_random r = {7};
    float y[M * N], w[K];
    for (int t = 0; t < QR_WEIGHT_TYPE_COUNT; t++) {
        qr_weight_type type = (qr_weight_type)t;
        case_matrix c = case_matrix_make(type, N, K, -1, &r);
        float *x = case_x(M, K, CASE_ORDINARY, &r);
        case_product(scalar(), &c.matrix, M, x, y, N);
        for (uint32_t n = 0; n < N; n++) {
            qr_matrix_row(&c.matrix, n, w);
            for (uint32_t row = 0; row < M; row++) {
                double exact = 0.0, bound = error_bound(qr_weight_is_float(type), w, x + row * K, K);
                for (uint32_t i = 0; i < K; i++) exact += (double)w[i] * (double)x[row * K + i];
                double error = fabs((double)y[row * N + n] - exact);
                cr_assert_leq(error, bound, "%s: error %g over %g", qr_weight_type_name(type), error, bound);
            }
        }
        free(x);
        case_matrix_free(&c);
    }
}
