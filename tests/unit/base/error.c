#include "base/error.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <string.h>

#include "base/random.h"

Test(base_error, fail_fills_every_field_and_returns_the_status) {
    quire_error error;
    cr_assert_eq(qr_fail(&error, QUIRE_FORMAT, "a.gguf", 42, "bad %s %d", "count", 7), QUIRE_FORMAT);
    cr_assert_eq(error.status, QUIRE_FORMAT);
    cr_assert_eq(error.offset, 42);
    cr_assert_str_eq(error.source, "a.gguf");
    cr_assert_str_eq(error.text, "bad count 7");
    cr_assert_eq(qr_fail(NULL, QUIRE_IO, NULL, 0, "nobody looks"), QUIRE_IO);
}

Test(base_error, clear_leaves_ok_and_no_offset) {
    quire_error error;
    memset(&error, 0xff, sizeof error);
    qr_error_clear(&error);
    cr_assert_eq(error.status, QUIRE_OK);
    cr_assert_eq(error.offset, QR_NO_OFFSET);
    cr_assert_str_empty(error.text);
    cr_assert_str_empty(error.source);
    qr_error_clear(NULL);
}

Test(base_error, control_characters_and_broken_utf8_become_question_marks) {
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"caf\xc3\xa9 \xf0\x9f\x98\x80", "caf\xc3\xa9 \xf0\x9f\x98\x80"},
        {"a\x1b[2Jb\n\x7f", "a?[2Jb??"},
        {"\xc2\x9b"
         "31m",
         "?31m"},                     /* C1 CSI */
        {"\xc0\xaf", "??"},           /* overlong slash */
        {"\xe0\x80\xaf", "???"},      /* overlong */
        {"\xed\xa0\x80", "???"},      /* surrogate */
        {"\xf4\x90\x80\x80", "????"}, /* past the end of Unicode */
        {"\xf0\x8f\xbf\xbf", "????"}, /* overlong */
        {"\xe2\x82", "??"},           /* cut character */
        {"\xff\xfe"
         "x",
         "??x"},
        {"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"}, /* the edges themselves */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        quire_error error;
        (void)qr_fail(&error, QUIRE_FORMAT, rows[i].in, 0, "%s", rows[i].in);
        cr_expect_str_eq(error.text, rows[i].out, "row %zu", i);
        cr_expect_str_eq(error.source, rows[i].out, "row %zu", i);
    }
}

Test(base_error, long_texts_end_at_a_whole_character) {
    for (size_t lead = 0; lead < 4; lead++) {
        char text[2000] = {0};
        memset(text, 'x', lead);
        for (size_t i = lead; i + 3 < sizeof text; i += 3) memcpy(text + i, "\xe2\x82\xac", 3);
        quire_error error;
        (void)qr_fail(&error, QUIRE_FORMAT, text, 0, "%s", text);
        cr_expect_eq((strlen(error.text) - lead) % 3, 0);
        cr_expect_gt(strlen(error.text), sizeof error.text - 5);
        cr_expect_eq((strlen(error.source) - lead) % 3, 0);
        cr_expect_null(strchr(error.text, '?'));
    }
}

static bool all_valid(const char *text, size_t size) {
    for (size_t i = 0; i < size;) {
        size_t length = qr_utf8_length(text + i, size - i);
        if (length == 0) return false;
        i += length;
    }
    return true;
}

Test(base_error, sanitised_random_bytes_are_always_valid) {
    qr_random random = {7};
    for (int round = 0; round < 20000; round++) {
        char in[24], out[16];
        size_t size = qr_random_below(&random, sizeof in);
        for (size_t i = 0; i < size; i++)
            in[i] = (char)(qr_random_below(&random, 3) ? 0x80 | qr_random_below(&random, 128) : 65);
        size_t written = qr_text_sanitize(out, 1 + qr_random_below(&random, sizeof out), in, size);
        cr_assert_eq(written, strlen(out));
        cr_assert(all_valid(out, written));
    }
}
