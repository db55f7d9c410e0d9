/* matmul_paths.c - every vector path against the scalar definition, by memcmp (docs/NUMERICS.md). */
#include <criterion/criterion.h>

#include "tests/support/matmul_cases.h"

/* Columns past n hold this and must keep it. */
static const float UNTOUCHED = 12345.0f;

static float *fresh(size_t count) {
    float *y = malloc(count * sizeof *y);
    for (size_t i = 0; i < count; i++) y[i] = UNTOUCHED;
    return y;
}

static void check_company(const qr_ops_path *path, const qr_matrix *w, uint32_t m, const float *x, const float *expected,
                          size_t ldy) {
    float *one = fresh(ldy);
    for (uint32_t row = 0; row<m; row += m> 8 ? 5 : 1) {
        case_product(path, w, 1, x + (size_t)row * w->k, one, ldy);
        cr_assert_eq(case_differences(one, expected + row * ldy, ldy), 0, "%s %s: row %u of %u differs when alone", path->name,
                     qr_weight_type_name(w->type), row, m);
    }
    free(one);
}

static void check_case(qr_weight_type type, uint32_t n, uint32_t k, uint32_t m, case_rows kind, int fill) {
    qr_random r = {n * 31 + k * 7 + m + kind};
    case_matrix c = case_matrix_make(type, n, k, fill, &r);
    float *x = case_x(m, k, kind, &r);
    size_t ldy = n + 5, count = m * ldy;
    float *expected = fresh(count);
    const qr_ops_path *paths[CASE_PATHS_MAX];
    int path_count = case_paths(paths);
    case_product(paths[0], &c.matrix, m, x, expected, ldy);
    for (int i = 1; i < path_count; i++) {
        float *y = fresh(count);
        case_product(paths[i], &c.matrix, m, x, y, ldy);
        cr_assert_eq(case_differences(y, expected, count), 0, "%s %s n=%u k=%u m=%u rows %d fill %d: %zu of %zu differ",
                     paths[i]->name, qr_weight_type_name(type), n, k, m, kind, fill, case_differences(y, expected, count),
                     count);
        check_company(paths[i], &c.matrix, m, x, expected, ldy);
        free(y);
    }
    free(expected);
    free(x);
    case_matrix_free(&c);
}

static uint32_t k_for(qr_weight_type type, uint32_t k) {
    uint32_t block = qr_weight_block_elements(type);
    return (k + block - 1) / block * block;
}

Test(model_cpu_matmul_paths, every_format_gives_the_bits_of_the_definition_for_any_number_of_rows) {
    static const uint32_t ms[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64};
    for (int type = 0; type < QR_WEIGHT_TYPE_COUNT; type++)
        for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
            check_case((qr_weight_type)type, 40, k_for((qr_weight_type)type, 160), ms[i], CASE_ORDINARY, -1);
}

Test(model_cpu_matmul_paths, extreme_rows_give_the_bits_of_the_definition) {
    static const uint32_t ms[] = {1, 3, 8, 21};
    for (int type = 0; type < QR_WEIGHT_TYPE_COUNT; type++)
        for (int kind = 0; kind < CASE_ROWS_COUNT; kind++)
            for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
                check_case((qr_weight_type)type, 16, k_for((qr_weight_type)type, 320), ms[i], (case_rows)kind, -1);
}

/* All codes at an end of their range against all q at an end of theirs: where int16 sums would saturate. */
Test(model_cpu_matmul_paths, largest_sums_do_not_saturate) {
    static const int fills[] = {0x00, 0x7f, 0x80, 0xff};
    for (int type = QR_WEIGHT_Q8_0; type < QR_WEIGHT_TYPE_COUNT; type++)
        for (size_t i = 0; i < sizeof fills / sizeof *fills; i++)
            for (int kind = CASE_ONES; kind <= CASE_ALTERNATE; kind++)
                for (uint32_t m = 1; m <= 13; m += 6) check_case((qr_weight_type)type, 16, 512, m, (case_rows)kind, fills[i]);
}

Test(model_cpu_matmul_paths, any_number_of_outputs_leaves_other_columns_alone) {
    for (int type = 0; type < QR_WEIGHT_TYPE_COUNT; type++)
        for (uint32_t n = 1; n <= 34; n++)
            check_case((qr_weight_type)type, n, k_for((qr_weight_type)type, 32), 1 + n % 9, CASE_ORDINARY, -1);
}

Test(model_cpu_matmul_paths, shapes_of_a_real_model) {
    check_case(QR_WEIGHT_Q4_1, 576, 576, 3, CASE_ORDINARY, -1);
    check_case(QR_WEIGHT_Q4_1, 48, 1536, 40, CASE_ORDINARY, -1);
    check_case(QR_WEIGHT_Q8_0, 2048, 576, 1, CASE_ORDINARY, -1);
    check_case(QR_WEIGHT_Q6_K, 64, 4096, 17, CASE_ORDINARY, -1);
    for (int type = 0; type < QR_WEIGHT_TYPE_COUNT; type++)
        check_case((qr_weight_type)type, 24, k_for((qr_weight_type)type, 96), 512, CASE_ORDINARY, -1);
}

Test(model_cpu_matmul_paths, float_rows_of_any_length) {
    for (int type = QR_WEIGHT_F32; type <= QR_WEIGHT_BF16; type++)
        for (uint32_t k = 1; k <= 37; k++) check_case((qr_weight_type)type, 20, k, 1 + k % 11, CASE_ORDINARY, -1);
}

Test(model_cpu_matmul_paths, unknown_paths_and_missing_instructions_are_refused) {
    const qr_cpu_features none = {0};
    cr_assert_null(qr_ops_path_find("avx2", &none));
    cr_assert_null(qr_ops_path_find("avx512vnni", &none));
    cr_assert_null(qr_ops_path_find("amx", &none));
    cr_assert_null(qr_ops_path_find("", &none));
    cr_assert_str_eq(qr_ops_path_find("scalar", &none)->name, "scalar");
}

/* Pieces of panels, as threads take them, are the same as all at once. */
Test(model_cpu_matmul_paths, pieces_of_panels_and_of_quantised_rows_are_the_whole) {
    enum { N = 100, K = 256, M = 11 };
    qr_random r = {5};
    const qr_ops_path *paths[CASE_PATHS_MAX];
    int path_count = case_paths(paths);
    case_matrix c = case_matrix_make(QR_WEIGHT_Q4_K, N, K, -1, &r);
    float *x = case_x(M, K, CASE_ORDINARY, &r), whole[M * N], pieces[M * N];
    uint8_t *memory = qr_alloc_zero(qr_acts_bytes(M, K), 1), *scratch = qr_alloc_zero(qr_matmul_scratch_bytes(K), 1);
    for (int i = 0; i < path_count; i++) {
        case_product(paths[i], &c.matrix, M, x, whole, N);
        qr_acts acts;
        qr_acts_init(&acts, M, K, x, K, memory);
        for (uint32_t row = 0; row < M; row += 4) paths[i]->quantize(&acts, row, row + 4 < M ? row + 4 : M);
        for (uint32_t p = 0; p < 7; p += 3) paths[i]->matmul(&c.matrix, &acts, pieces, N, p, p + 3 < 7 ? p + 3 : 7, scratch);
        cr_assert_eq(memcmp(whole, pieces, sizeof whole), 0);
    }
    free(x);
    free(memory);
    free(scratch);
    case_matrix_free(&c);
}
