/* Stop strings: what is refused, and what a set says of its strings. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/model/stop_set.h"

TestSuite(tokenizer_stop_set);

static qr_text text_of(const char *text) { return (qr_text){text, strlen(text)}; }

static void refuses(const qr_text *stops, uint32_t count, const char *why) {
    qr_stop_set *set;
    cr_expect_eq(qr_stop_set_create(stops, count, &set), QUIRE_INVALID, "%s", why);
    cr_expect_null(set, "%s", why);
}

Test(tokenizer_stop_set, refuses_strings_that_cannot_be_met) {
    static char longest[QR_STOP_BYTES_MAX + 1];
    memset(longest, 'x', sizeof longest);
    qr_text many[QR_STOP_STRINGS_MAX + 1];
    for (size_t i = 0; i < QR_STOP_STRINGS_MAX + 1; i++) many[i] = text_of("x");
    refuses(&(qr_text){"", 0}, 1, "empty");
    refuses((qr_text[]){text_of("a"), text_of("\x80")}, 2, "not UTF-8");
    refuses(many, QR_STOP_STRINGS_MAX + 1, "too many");
    refuses(&(qr_text){longest, sizeof longest}, 1, "longer than any reply's memory should pay for");
    qr_stop_set *set;
    cr_assert_eq(qr_stop_set_create(&(qr_text){longest, QR_STOP_BYTES_MAX}, 1, &set), QUIRE_OK);
    qr_stop_set_destroy(set);
}

Test(tokenizer_stop_set, knows_its_strings) {
    qr_text stops[] = {text_of("ab"), text_of("abcde"), {"\0", 1}};
    qr_stop_set *set;
    cr_assert_eq(qr_stop_set_create(stops, 3, &set), QUIRE_OK);
    cr_expect_eq(qr_stop_set_count(set), 3);
    cr_expect_eq(qr_stop_set_longest(set), 5);
    cr_expect_eq(qr_stop_set_size(set, 2), 1);
    cr_expect(qr_stop_set_has(set, stops[2]) && qr_stop_set_has(set, text_of("ab")) && !qr_stop_set_has(set, text_of("abc")));
    qr_stop_set_destroy(set);
}

Test(tokenizer_stop_set, falls_back_to_the_longest_prefix_that_still_matches) {
    qr_text stop = text_of("aabaaab");
    qr_stop_set *set;
    cr_assert_eq(qr_stop_set_create(&stop, 1, &set), QUIRE_OK);
    const char *text = "aabaabaaab";
    const size_t matched[] = {1, 2, 3, 4, 5, 3, 4, 5, 6, 7};
    size_t at = 0;
    for (size_t i = 0; text[i]; i++) {
        at = qr_stop_set_advance(set, 0, at, text[i]);
        cr_expect_eq(at, matched[i], "after %zu bytes: %zu", i + 1, at);
    }
    qr_stop_set_destroy(set);
}
