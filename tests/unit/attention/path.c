#include <criterion/criterion.h>

#include "attention/span.h"
#include "base/cpu_features.h"

Test(attention_path, found_by_name_when_the_machine_has_it) {
    qr_cpu_features all = {.avx2 = true, .avx512 = true}, none = {.avx2 = false};
    cr_assert_eq(qr_attn_path_find("scalar", &none), &qr_attn_path_scalar);
    cr_assert_null(qr_attn_path_find("avx2", &none));
    cr_assert_null(qr_attn_path_find("avx512", &none));
    cr_assert_null(qr_attn_path_find("AVX2", &all));
    cr_assert_null(qr_attn_path_find("", &all));
    static const char *const names[] = {"avx2", "avx512"};
    for (int i = 0; i < 2; i++) {
        const qr_attn_path *path = qr_attn_path_find(names[i], &all); /* NULL on another architecture */
        if (path) cr_assert_str_eq(qr_attn_path_name(path), names[i]);
    }
}
