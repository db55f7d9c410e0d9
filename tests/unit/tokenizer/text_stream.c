/* Text that may be sent: characters, stop strings, and the whole equal to the sum. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/random.h"
#include "runtime/model/text_stream.h"
#include "small_vocabulary.h"

TestSuite(tokenizer_text_stream);

static const char *const merges[] = {"a b", "ab c", "b c", "c a", NULL};
static const char *const control[] = {"<|end|>", "<|tool|>", NULL};

static qr_tokenizer *make_tokenizer(void) {
    return small_tokenizer(&(small_vocabulary){.pre = "gpt-2", .merges = merges, .control = control, .eos = "<|end|>"});
}

static qr_text text_of(const char *text) { return (qr_text){text, strlen(text)}; }

/* What a stream gave in all. */
typedef struct reply {
    char text[4096];
    size_t size;
    bool stopped;
} reply;

static void take(reply *r, qr_text text) {
    cr_assert(qr_text_is_utf8(text.data, text.size), "every piece is whole characters");
    memcpy(r->text + r->size, text.data, text.size);
    r->size += text.size;
}

static void run(const qr_tokenizer *t, const qr_text *stops, uint32_t stop_count, const quire_token *tokens, size_t count,
                reply *r) {
    qr_text_stream *stream;
    qr_text text;
    *r = (reply){.size = 0};
    qr_stop_set *set;
    cr_assert_eq(qr_stop_set_create(stops, stop_count, &set), QUIRE_OK);
    cr_assert_eq(qr_text_stream_create(t, set, false, &stream), QUIRE_OK);
    for (size_t i = 0; i < count && !r->stopped; i++) {
        r->stopped = qr_text_stream_push(stream, tokens[i], &text);
        take(r, text);
    }
    if (!r->stopped) {
        qr_text_stream_finish(stream, &text);
        take(r, text);
    }
    cr_assert_eq(qr_text_stream_given_bytes(stream), r->size);
    qr_text_stream_destroy(stream);
    qr_stop_set_destroy(set);
}

static void expect(const char *bytes, const char *const *stops, bool stopped, const char *text) {
    qr_tokenizer *t = make_tokenizer();
    quire_token tokens[256];
    qr_text list[4];
    uint32_t count = 0;
    for (size_t i = 0; bytes[i]; i++) tokens[i] = qr_tokenizer_find(t, bytes + i, 1);
    for (; stops[count]; count++) list[count] = text_of(stops[count]);
    reply r;
    run(t, list, count, tokens, strlen(bytes), &r);
    cr_expect_eq(r.stopped, stopped, "%s", bytes);
    cr_expect(r.size == strlen(text) && memcmp(r.text, text, r.size) == 0, "%s gave %.*s", bytes, (int)r.size, r.text);
    qr_tokenizer_destroy(t);
}

#define STOPS(...) ((const char *const[]){__VA_ARGS__, NULL})

Test(tokenizer_text_stream, ends_before_a_stop_wherever_it_falls) {
    expect("one STOP two", STOPS("STOP"), true, "one ");
    expect("one STO", STOPS("STOP"), false, "one STO");
    expect("SSTOP", STOPS("STOP"), true, "S");
    expect("STSTOP", STOPS("STOP"), true, "ST");
    expect("xabc", STOPS("ab", "abc"), true, "x");
    expect("xabc", STOPS("abc", "ab"), true, "x");
    expect("abcd", STOPS("bcd", "c"), true, "ab");
    expect("abcd", STOPS("bcd", "d"), true, "a");
    expect("\xe4\xbd\xa0\xe5\xa5\xbd!", STOPS("\xe5\xa5\xbd"), true, "\xe4\xbd\xa0");
    expect("\n\nUser:", STOPS("\nUser:"), true, "\n");
}

Test(tokenizer_text_stream, withholds_only_the_longest_tail_that_could_begin_a_stop) {
    qr_tokenizer *t = make_tokenizer();
    qr_text_stream *stream;
    qr_text text, stops[] = {text_of("abcabd"), text_of("bx")};
    qr_stop_set *set;
    cr_assert_eq(qr_stop_set_create(stops, 2, &set), QUIRE_OK);
    cr_assert_eq(qr_text_stream_create(t, set, false, &stream), QUIRE_OK);
    const char *bytes = "xabcabcab";
    const size_t given[] = {1, 0, 0, 0, 0, 0, 3, 0, 0};
    for (size_t i = 0; bytes[i]; i++) {
        cr_assert_not(qr_text_stream_push(stream, qr_tokenizer_find(t, bytes + i, 1), &text));
        cr_expect_eq(text.size, given[i], "byte %zu gave %zu", i, text.size);
    }
    qr_text_stream_destroy(stream);
    qr_stop_set_destroy(set);
    qr_tokenizer_destroy(t);
}

Test(tokenizer_text_stream, a_stop_that_is_a_control_tokens_name_is_met_by_the_token) {
    qr_tokenizer *t = make_tokenizer();
    quire_token tool = qr_tokenizer_find(t, "<|tool|>", 8), end = qr_tokenizer_find(t, "<|end|>", 7);
    quire_token tokens[] = {'x' - '!' + 33, end, tool, 'y' - '!' + 33};
    qr_text stop = text_of("<|tool|>");
    reply r;
    run(t, &stop, 1, tokens, 4, &r);
    cr_expect(r.stopped && r.size == 1 && r.text[0] == 'x');
    run(t, NULL, 0, tokens, 4, &r);
    cr_expect(!r.stopped && r.size == 2 && memcmp(r.text, "xy", 2) == 0);
    qr_tokenizer_destroy(t);
}

Test(tokenizer_text_stream, a_reply_that_ends_inside_a_character_is_still_text) {
    expect("\xf0", STOPS("q"), false, "\xef\xbf\xbd");
    expect("a\xf0\x9f\x98", STOPS("q"), false, "a\xef\xbf\xbd");
    expect("\xf0\x9f\x98\x80", STOPS("q"), false, "\xf0\x9f\x98\x80");
    expect("\xe4\xbd"
           "A\xff\x80"
           "B",
           STOPS("q"), false,
           "\xef\xbf\xbd"
           "A\xef\xbf\xbd\xef\xbf\xbd"
           "B");
}

/* The rule, told naively: the first place where a stop ends; of those that end there the longest. */
static size_t find_stop(const char *text, size_t size, const qr_text *stops, uint32_t stop_count, bool *found) {
    for (size_t end = 1; end <= size; end++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < stop_count; i++) {
            size_t length = stops[i].size;
            if (length <= end && memcmp(text + end - length, stops[i].data, length) == 0 && length > longest) longest = length;
        }
        *found = longest > 0;
        if (*found) return end - longest;
    }
    return size;
}

Test(tokenizer_text_stream, agrees_with_a_search_over_the_whole_text) {
    qr_tokenizer *t = make_tokenizer();
    qr_random random = {7};
    static const char *const parts[] = {"a", "b", "c", "ab", "abc", "bc", "ca", "\xc3", "\xa9", "\xf0", "\x9f", "\x98", "\x80"};
    static const char *const stop_parts[] = {"a", "b", "c", "\xc3\xa9", "\xf0\x9f\x98\x80"};
    for (int round = 0; round < 20000; round++) {
        quire_token tokens[24];
        char stop_bytes[4][32];
        qr_text stops[4];
        size_t count = qr_random_below(&random, 24), bad, size, text_size;
        uint32_t stop_count = qr_random_below(&random, 5);
        for (size_t i = 0; i < count; i++) {
            const char *part = parts[qr_random_below(&random, sizeof parts / sizeof parts[0])];
            tokens[i] = qr_tokenizer_find(t, part, strlen(part));
        }
        for (uint32_t i = 0; i < stop_count; i++) {
            stop_bytes[i][0] = 0;
            for (uint32_t k = 0, n = 1 + qr_random_below(&random, 5); k < n; k++) {
                strcat(stop_bytes[i], stop_parts[qr_random_below(&random, 5)]);
            }
            stops[i] = text_of(stop_bytes[i]);
        }
        reply r;
        run(t, stops, stop_count, tokens, count, &r);
        char *bytes;
        cr_assert_eq(qr_tokenizer_decode(t, tokens, count, false, &bytes, &size, &bad), QUIRE_OK);
        char *text = qr_text_to_utf8(bytes, size, &text_size);
        bool found = false;
        size_t expected = find_stop(text, text_size, stops, stop_count, &found);
        cr_assert(r.stopped == found && r.size == expected && memcmp(r.text, text, expected) == 0, "round %d", round);
        free(text);
        free(bytes);
    }
    qr_tokenizer_destroy(t);
}
