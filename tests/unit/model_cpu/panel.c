/* panel.c - packing GGUF rows into panels and getting them back. */
#include <criterion/criterion.h>

#include "runtime/model/cpu/panel.h"
#include "tests/support/matmul_cases.h"

static uint32_t some_k(qr_weight_type type) { return qr_weight_is_float(type) ? 33 : 512; }

Test(model_cpu_panel, rows_come_back_as_the_values_of_the_format) {
    enum { N = 37 };
    qr_random r = {1};
    float expected[512], row[512];
    for (int t = 0; t < QR_WEIGHT_TYPE_COUNT; t++) {
        qr_weight_type type = (qr_weight_type)t;
        uint32_t k = some_k(type);
        case_matrix c = case_matrix_make(type, N, k, -1, &r);
        size_t row_bytes = (size_t)(k / qr_weight_block_elements(type)) * qr_weight_block_bytes(type);
        for (uint32_t i = 0; i < N; i++) {
            qr_weight_dequantize(type, c.raw + i * row_bytes, k, expected);
            qr_matrix_row(&c.matrix, i, row);
            cr_assert_eq(memcmp(expected, row, k * sizeof *row), 0, "%s row %u", qr_weight_type_name(type), i);
        }
        case_matrix_free(&c);
    }
}

/* q, k and v are fused this way: their rows need not begin at a panel. */
Test(model_cpu_panel, rows_may_be_packed_in_parts) {
    enum { N = 45 };
    static const uint32_t cuts[] = {0, 1, 17, 20, 45};
    qr_random r = {2};
    for (int t = 0; t < QR_WEIGHT_TYPE_COUNT; t++) {
        qr_weight_type type = (qr_weight_type)t;
        uint32_t k = some_k(type);
        case_matrix c = case_matrix_make(type, N, k, -1, &r);
        size_t bytes = qr_matrix_packed_bytes(type, N, k),
               row_bytes = (size_t)(k / qr_weight_block_elements(type)) * qr_weight_block_bytes(type);
        uint8_t *parts = qr_alloc_zero(bytes, 1);
        for (int i = 0; i < 4; i++)
            qr_matrix_pack(&c.matrix, parts, cuts[i], cuts[i + 1] - cuts[i], c.raw + cuts[i] * row_bytes);
        cr_assert_eq(memcmp(parts, c.packed, bytes), 0, "%s", qr_weight_type_name(type));
        free(parts);
        case_matrix_free(&c);
    }
}

Test(model_cpu_panel, packed_size_is_that_of_the_file_or_little_more) {
    for (int t = 0; t < QR_WEIGHT_TYPE_COUNT; t++) {
        qr_weight_type type = (qr_weight_type)t;
        size_t file = (size_t)576 * 4096 / qr_weight_block_elements(type) * qr_weight_block_bytes(type);
        size_t packed = qr_matrix_packed_bytes(type, 576, 4096);
        cr_assert(packed >= file && packed <= file + file / 32, "%s: %zu of %zu", qr_weight_type_name(type), packed, file);
    }
}

Test(model_cpu_panel, impossible_shapes_have_no_size) {
    cr_assert_eq(qr_matrix_packed_bytes(QR_WEIGHT_Q4_1, 16, 33), 0);
    cr_assert_eq(qr_matrix_packed_bytes(QR_WEIGHT_Q6_K, 16, 128), 0);
    cr_assert_eq(qr_matrix_packed_bytes(QR_WEIGHT_F32, 0, 32), 0);
    cr_assert_eq(qr_matrix_packed_bytes(QR_WEIGHT_F32, 32, 0), 0);
    cr_assert_eq(qr_matrix_packed_bytes(QR_WEIGHT_F16, 1, 1), 64);
    cr_assert_neq(qr_matrix_packed_bytes(QR_WEIGHT_F32, UINT32_MAX, 1u << 20), 0);
}

/* Rows past n are zero rows, so that a path may compute them. */
Test(model_cpu_panel, padding_rows_are_zero) {
    qr_random r = {3};
    for (int t = QR_WEIGHT_Q8_0; t < QR_WEIGHT_TYPE_COUNT; t++) {
        case_matrix c = case_matrix_make((qr_weight_type)t, 3, 256, -1, &r);
        for (uint32_t lane = 3; lane < QR_PANEL_ROWS; lane++) {
            qr_weight_group group, zero;
            memset(&zero, 0, sizeof zero);
            qr_panel_get_group(c.matrix.type, 256, c.packed, lane, 5, &group);
            cr_assert_eq(memcmp(&group, &zero, sizeof zero), 0);
        }
        case_matrix_free(&c);
    }
}
