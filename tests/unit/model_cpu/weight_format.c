/* weight_format.c - GGUF blocks to values, against the gguf package (tests/golden/make_dequantize.py). */
#include <criterion/criterion.h>
#include <stdio.h>

#include "runtime/model/cpu/weight_format.h"
#include "tests/support/matmul_cases.h"

typedef struct golden_record {
    char name[9];
    uint8_t *blocks;
    float *values;
    uint32_t block_bytes, value_count;
} golden_record;

static bool read_record(FILE *f, golden_record *r) {
    *r = (golden_record){0};
    if (fread(r->name, 8, 1, f) != 1) return false;
    cr_assert_eq(fread(&r->block_bytes, 4, 1, f), 1);
    cr_assert_eq(fread(&r->value_count, 4, 1, f), 1);
    r->blocks = malloc(r->block_bytes);
    r->values = malloc(r->value_count * sizeof(float));
    cr_assert_eq(fread(r->blocks, 1, r->block_bytes, f), r->block_bytes);
    cr_assert_eq(fread(r->values, sizeof(float), r->value_count, f), r->value_count);
    return true;
}

static qr_weight_type type_named(const char *name) {
    for (int t = 0; t < QR_WEIGHT_TYPE_COUNT; t++)
        if (strcmp(qr_weight_type_name((qr_weight_type)t), name) == 0) return (qr_weight_type)t;
    cr_assert_fail("no type %s", name);
    return QR_WEIGHT_F32;
}

static void check_record(const golden_record *r) {
    qr_weight_type type = type_named(r->name);
    cr_assert_eq(r->value_count / qr_weight_block_elements(type) * qr_weight_block_bytes(type), r->block_bytes, "%s", r->name);
    float *out = malloc(r->value_count * sizeof *out);
    qr_weight_dequantize(type, r->blocks, r->value_count, out);
    for (uint32_t i = 0; i < r->value_count; i++)
        cr_assert_eq(out[i], r->values[i], "%s element %u: %a, not %a", r->name, i, (double)out[i], (double)r->values[i]);
    free(out);
}

Test(model_cpu_weight_format, values_are_those_of_the_gguf_package) {
    FILE *f = fopen(QR_TEST_DATA "/dequantize.bin", "rb");
    cr_assert_not_null(f, "tests/golden/data/dequantize.bin");
    golden_record r;
    int records = 0;
    for (; read_record(f, &r); records++) {
        check_record(&r);
        free(r.blocks);
        free(r.values);
    }
    fclose(f);
    cr_assert_eq(records, QR_WEIGHT_TYPE_COUNT - 1, "every type but F32");
}

Test(model_cpu_weight_format, f32_is_copied) {
    const float in[3] = {1.5f, -0.0f, 0x1p-149f};
    float out[3];
    qr_weight_dequantize(QR_WEIGHT_F32, in, 3, out);
    cr_assert_eq(memcmp(in, out, sizeof in), 0);
}

/* What docs/NUMERICS.md claims: the scale that multiplies codes, and the minimum, are exact products. */
Test(model_cpu_weight_format, scales_and_minima_are_exact) {
    qr_random r = {9};
    for (int type = QR_WEIGHT_Q8_0; type < QR_WEIGHT_TYPE_COUNT; type++)
        for (int i = 0; i < 20000; i++) {
            qr_weight_group g = {.d = (uint16_t)(qr_random_u64(&r) % 0x7c00), .m = (uint16_t)(qr_random_u64(&r) % 0x7c00)};
            bool q6 = type == QR_WEIGHT_Q6_K;
            g.sub[0] = (uint8_t)qr_random_below(&r, q6 ? 256 : 64);
            g.sub[1] = (uint8_t)qr_random_below(&r, q6 ? 256 : 64);
            int small = q6 ? (int8_t)g.sub[0] : qr_weight_is_k((qr_weight_type)type) ? g.sub[0] : 1;
            cr_assert_eq((double)qr_weight_scale((qr_weight_type)type, &g, 0), (double)qr_f16_to_f32(g.d) * small);
            if (!qr_weight_has_minimum((qr_weight_type)type)) continue;
            double minimum = (double)qr_f16_to_f32(g.m) * (qr_weight_is_k((qr_weight_type)type) ? -(int)g.sub[1] : 1);
            cr_assert_eq((double)qr_weight_minimum((qr_weight_type)type, &g), minimum);
        }
}

Test(model_cpu_weight_format, names_and_block_sizes) {
    cr_assert_str_eq(qr_weight_type_name(QR_WEIGHT_Q6_K), "Q6_K");
    cr_assert_eq(qr_weight_block_bytes(QR_WEIGHT_Q6_K), 210);
    for (int t = 0; t < QR_WEIGHT_TYPE_COUNT; t++) {
        bool is_float = t <= QR_WEIGHT_BF16;
        cr_assert_eq(qr_weight_is_float((qr_weight_type)t), is_float);
        cr_assert_eq(qr_weight_code_bits((qr_weight_type)t) == QR_CODE_BITS_FLOAT, is_float);
    }
}
