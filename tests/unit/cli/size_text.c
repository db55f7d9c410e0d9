#include "runtime/cli/size_text.h"

#include <criterion/criterion.h>

Test(cli_size_text, sizes_are_powers_of_1024) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } rows[] = {
        {"0", 0},
        {"1", 1},
        {"4096", 4096},
        {"4096B", 4096},
        {"1K", 1024},
        {"64m", 64u << 20},
        {"80G", (uint64_t)80 << 30},
        {"80GiB", (uint64_t)80 << 30},
        {"1.5G", (uint64_t)3 << 29},
        {"0.25K", 256},
        {"2T", (uint64_t)2 << 40},
        {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t bytes = 1;
        cr_expect_eq(qr_size_parse(rows[i].text, &bytes), QUIRE_OK, "%s", rows[i].text);
        cr_expect_eq(bytes, rows[i].bytes, "%s gives %llu", rows[i].text, (unsigned long long)bytes);
    }
}

Test(cli_size_text, anything_else_is_refused_and_leaves_zero) {
    const char *rows[] = {"",           " 1",
                          "1 ",         "-1",
                          "+1",         "G",
                          "1KB",        "1 G",
                          "1X",         "1.",
                          "1.5",        "1e9",
                          "0x10",       "1GiBs",
                          "1.1234567G", "18446744073709551616",
                          "16777216T",  "99999999999999999999G"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t bytes = 1;
        cr_expect_eq(qr_size_parse(rows[i], &bytes), QUIRE_INVALID, "%s", rows[i]);
        cr_expect_eq(bytes, 0, "%s", rows[i]);
    }
}

Test(cli_size_text, sizes_are_shown_with_their_unit) {
    char text[QR_SIZE_TEXT_BYTES];
    cr_assert_str_eq(qr_size_format(0, text), "0 B");
    cr_assert_str_eq(qr_size_format(512, text), "512 B");
    cr_assert_str_eq(qr_size_format(131072, text), "128 KiB");
    cr_assert_str_eq(qr_size_format((uint64_t)9 << 29, text), "4.50 GiB");
    cr_assert_str_eq(qr_size_format(UINT64_MAX, text), "16 EiB");
}
