#include <criterion/criterion.h>

#include <quire/types.h>

Test(base_types, every_kv_type_parses_back_from_its_name) {
    for (int t = 0; t < QUIRE_KV_TYPE_COUNT; t++) {
        quire_kv_type parsed = QUIRE_KV_TYPE_COUNT;
        cr_assert_eq(quire_kv_type_parse(quire_kv_type_name((quire_kv_type)t), &parsed), QUIRE_OK);
        cr_assert_eq((int)parsed, t);
    }
}

Test(base_types, other_words_are_refused_and_leave_zero) {
    const char *words[] = {"", "F16", "f16 ", "fp8", "q8_0", NULL};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        quire_kv_type type = QUIRE_KV_INT8;
        cr_assert_eq(quire_kv_type_parse(words[i], &type), QUIRE_INVALID);
        cr_assert_eq(type, 0);
    }
}

Test(base_types, element_sizes_are_those_of_the_formats) {
    cr_assert_eq(quire_kv_type_bytes(QUIRE_KV_F32), 4);
    cr_assert_eq(quire_kv_type_bytes(QUIRE_KV_F16), 2);
    cr_assert_eq(quire_kv_type_bytes(QUIRE_KV_BF16), 2);
    cr_assert_eq(quire_kv_type_bytes(QUIRE_KV_INT8), 1);
    cr_assert_eq(quire_kv_type_bytes(QUIRE_KV_FP8_E4M3), 1);
    cr_assert_eq(quire_kv_type_bytes((quire_kv_type)77), 0);
}
