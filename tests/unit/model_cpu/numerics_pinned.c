/* numerics_pinned.c - digests of canonical results. A failure here means that docs/NUMERICS.md changed its meaning: stored KV
 * records and logits digests of earlier versions no longer agree, and the numerics version has to move with it.
 *
 * Inputs come from the project's own generator and integer-valued scaling, so no library function has a say in them. */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "tests/support/matmul_cases.h"

/* FNV-1a over the little-endian bytes. */
static uint64_t digest(const void *data, size_t size) {
    const uint8_t *p = data;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static void fill_exact(float *x, size_t n, qr_random *r) {
    for (size_t i = 0; i < n; i++) x[i] = (float)((int)qr_random_below(r, 20001) - 10000) / 4096.0f;
}

static void expect(const char *what, const char *path, uint64_t got, uint64_t pinned) {
    cr_assert_eq(got, pinned, "%s on %s: 0x%016" PRIx64 ", pinned 0x%016" PRIx64, what, path, got, pinned);
}

Test(model_cpu_numerics_pinned, products_of_every_format) {
    enum { N = 40, K = 768, M = 5 };
    static const uint64_t pinned[QR_WEIGHT_TYPE_COUNT] = {
        [QR_WEIGHT_F32] = 0x8ae0245cea236fbbu,  [QR_WEIGHT_F16] = 0x6f84d2f274451e00u,  [QR_WEIGHT_BF16] = 0x1efb55247ae5cdbdu,
        [QR_WEIGHT_Q8_0] = 0xe5ec2f8828a659acu, [QR_WEIGHT_Q4_0] = 0x6a28807e7cc866f9u, [QR_WEIGHT_Q4_1] = 0xb309c22348dd7164u,
        [QR_WEIGHT_Q5_0] = 0x5a059db0b7ab6ea8u, [QR_WEIGHT_Q5_1] = 0xabb1165f0f201b73u, [QR_WEIGHT_Q4_K] = 0x72389e9f00f21ff9u,
        [QR_WEIGHT_Q5_K] = 0x097ae8e343da0adau, [QR_WEIGHT_Q6_K] = 0xfb1c1b4e11fd23f4u};
    const qr_ops_path *paths[CASE_PATHS_MAX];
    int count = case_paths(paths);
    float x[M * K], y[M * N];
    for (int t = 0; t < QR_WEIGHT_TYPE_COUNT; t++) {
        qr_random r = {100 + (uint64_t)t};
        case_matrix c = case_matrix_make((qr_weight_type)t, N, K, -1, &r);
        fill_exact(x, M * K, &r);
        for (int p = 0; p < count; p++) {
            case_product(paths[p], &c.matrix, M, x, y, N);
            expect(qr_weight_type_name((qr_weight_type)t), paths[p]->name, digest(y, sizeof y), pinned[t]);
        }
        case_matrix_free(&c);
    }
}

Test(model_cpu_numerics_pinned, small_operations) {
    enum { N = 1000, HEAD = 100, ROTATED = 60 };
    const qr_ops_path *paths[CASE_PATHS_MAX];
    int count = case_paths(paths);
    float a[N], b[N], table[N], y[N], norm[N];
    qr_random r = {200};
    fill_exact(a, N, &r), fill_exact(b, N, &r), fill_exact(table, N, &r);
    for (int p = 0; p < count; p++) {
        for (uint32_t n = 1; n <= N; n++) { /* tails of every length */
            paths[p]->rmsnorm(norm, a, b, n, 1e-5f);
            y[n - 1] = norm[n - 1];
        }
        expect("rmsnorm", paths[p]->name, digest(y, sizeof y), 0x17c457203cd5be5fu);
        paths[p]->silu_mul(y, a, b, N);
        expect("silu_mul", paths[p]->name, digest(y, sizeof y), 0x633880496551cc16u);
        paths[p]->rope(y, a, table, N / HEAD, HEAD, ROTATED, 0.180336878f);
        expect("rope", paths[p]->name, digest(y, sizeof y), 0x3081d7232c4cb524u);
    }
}

Test(model_cpu_numerics_pinned, rope_tables) {
    enum { DIMS = 64, POSITIONS = 8192 };
    static float table[POSITIONS][DIMS];
    double frequencies[DIMS / 2];
    qr_rope_frequencies(frequencies, DIMS, 100000.0, 1.0, NULL);
    for (uint32_t p = 0; p < POSITIONS; p++) qr_rope_row(table[p], p * 7, frequencies, DIMS);
    expect("frequencies", "double", digest(frequencies, sizeof frequencies), 0x1b5ef093b78cfa96u);
    expect("tables", "double", digest(table, sizeof table), 0xe4a92e8550ddd9aau);
}
