/* What holds for any vocabulary: special tokens, start tokens, ends, bytes, refusals, time and stack on long runs. */
#include "runtime/model/tokenizer.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "small_vocabulary.h"

TestSuite(tokenizer_tokenizer);

static const char *const merges[] = {"a a", "aa aa", "aaaa aaaa", "a b", "ab ab", "\xc4\xa0 \xc4\xa0", "\xc4\xa0 a", NULL};
static const char *const control[] = {"<s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", NULL};
static const char *const added[] = {"<x>", "<x><y>", "<y>", NULL};

static qr_tokenizer *make_tokenizer(const char *pre, bool add_bos) {
    return small_tokenizer(&(small_vocabulary){.pre = pre,
                                               .merges = merges,
                                               .control = control,
                                               .added = added,
                                               .bos = "<s>",
                                               .eos = "<|im_end|>",
                                               .add_bos = add_bos});
}

static quire_token id_of(const qr_tokenizer *t, const char *text) { return qr_tokenizer_find(t, text, strlen(text)); }

static void encode(const qr_tokenizer *t, const char *text, unsigned flags, qr_token_buffer *out) {
    out->count = 0;
    cr_assert_eq(qr_tokenizer_encode(t, text, strlen(text), flags, out), QUIRE_OK);
}

static size_t control_count(const qr_tokenizer *t, const qr_token_buffer *ids) {
    size_t count = 0;
    for (size_t i = 0; i < ids->count; i++) count += qr_tokenizer_is_control(t, ids->tokens[i]);
    return count;
}

Test(tokenizer_tokenizer, control_tokens_come_only_on_request) {
    qr_tokenizer *t = make_tokenizer("llama-bpe", false);
    qr_token_buffer ids = {0};
    const char *text = "a<|im_start|>b<|im_end|><s>";
    encode(t, text, 0, &ids);
    cr_expect_eq(control_count(t, &ids), 0);
    encode(t, text, QR_ENCODE_SPECIAL, &ids);
    cr_expect_eq(control_count(t, &ids), 3);
    cr_expect_eq(ids.count, 5);
    for (const char *const *name = control; *name; name++) {
        encode(t, *name, 0, &ids);
        cr_expect_eq(control_count(t, &ids), 0, "%s", *name);
    }
    qr_token_buffer_deinit(&ids);
    qr_tokenizer_destroy(t);
}

Test(tokenizer_tokenizer, added_tokens_match_leftmost_and_longest) {
    qr_tokenizer *t = make_tokenizer("gpt-2", false);
    qr_token_buffer ids = {0};
    encode(t, "<<x><y><y><x><", 0, &ids);
    const quire_token expected[] = {id_of(t, "<"), id_of(t, "<x><y>"), id_of(t, "<y>"), id_of(t, "<x>"), id_of(t, "<")};
    cr_expect(ids.count == 5 && memcmp(ids.tokens, expected, sizeof expected) == 0);
    qr_token_buffer_deinit(&ids);
    qr_tokenizer_destroy(t);
}

Test(tokenizer_tokenizer, one_start_token_however_asked) {
    qr_tokenizer *asks = make_tokenizer("gpt-2", true), *does_not = make_tokenizer("gpt-2", false);
    qr_token_buffer ids = {0};
    encode(asks, "<s>a", QR_ENCODE_BOS | QR_ENCODE_SPECIAL, &ids);
    cr_expect(ids.count == 2 && ids.tokens[0] == qr_tokenizer_bos(asks));
    encode(asks, "a", QR_ENCODE_BOS, &ids);
    cr_expect(ids.count == 2 && ids.tokens[0] == qr_tokenizer_bos(asks));
    encode(asks, "<s>a", QR_ENCODE_BOS, &ids);
    cr_expect(ids.count == 5 && control_count(asks, &ids) == 1);
    encode(asks, "", QR_ENCODE_BOS, &ids);
    cr_expect(ids.count == 1);
    encode(does_not, "a", QR_ENCODE_BOS, &ids);
    cr_expect(ids.count == 1 && control_count(does_not, &ids) == 0);
    qr_token_buffer_deinit(&ids);
    qr_tokenizer_destroy(asks);
    qr_tokenizer_destroy(does_not);
}

Test(tokenizer_tokenizer, ends_are_known_by_id_and_by_text) {
    qr_tokenizer *t = make_tokenizer("gpt-2", false);
    const quire_token *ends;
    cr_expect_eq(qr_tokenizer_end_tokens(t, &ends), 2);
    cr_expect(qr_tokenizer_is_end(t, id_of(t, "<|im_end|>")) && qr_tokenizer_is_end(t, id_of(t, "<|endoftext|>")));
    cr_expect(!qr_tokenizer_is_end(t, id_of(t, "<|im_start|>")) && !qr_tokenizer_is_end(t, -1));
    qr_tokenizer_destroy(t);
}

Test(tokenizer_tokenizer, any_bytes_come_back) {
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe"};
    for (size_t p = 0; p < 3; p++) {
        qr_tokenizer *t = make_tokenizer(pres[p], false);
        qr_token_buffer ids = {0};
        char text[512], *bytes;
        size_t size, bad;
        for (int i = 0; i < 512; i++) text[i] = (char)(i * 37 + i / 256);
        cr_assert_eq(qr_tokenizer_encode(t, text, sizeof text, 0, &ids), QUIRE_OK);
        cr_assert_eq(qr_tokenizer_decode(t, ids.tokens, ids.count, false, &bytes, &size, &bad), QUIRE_OK);
        cr_expect(size == sizeof text && memcmp(bytes, text, size) == 0, "%s", pres[p]);
        free(bytes);
        quire_token beyond = (quire_token)qr_tokenizer_token_count(t);
        cr_expect_eq(qr_tokenizer_decode(t, &beyond, 1, false, &bytes, &size, &bad), QUIRE_NOT_FOUND);
        qr_token_buffer_deinit(&ids);
        qr_tokenizer_destroy(t);
    }
}

enum { LONG_BYTES = 1 << 20, STACK_BYTES = 256 << 10 };

static void *encode_long_runs(void *argument) {
    static const char *const units[] = {"a", " ", "\n", "7", "ab", "\xe4\xbd\xa0", "\xcc\x81\xcc\xa3", "<", "\xff"};
    const qr_tokenizer *t = argument;
    char *text = malloc(LONG_BYTES);
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        size_t unit = strlen(units[u]), count = LONG_BYTES / unit;
        for (size_t i = 0; i < count; i++) memcpy(text + i * unit, units[u], unit);
        qr_token_buffer ids = {0};
        uint64_t start = qr_clock_ns();
        cr_assert_eq(qr_tokenizer_encode(t, text, count * unit, 0, &ids), QUIRE_OK);
        double seconds = (double)(qr_clock_ns() - start) * 1e-9;
        cr_expect(ids.count > 0 && seconds < 5, "%s took %.2f s", units[u], seconds); /* 0.3 s here, without sanitizers */
        if (u == 0) cr_expect_eq(ids.count, LONG_BYTES / 8, "eights of a");
        if (u == 4) cr_expect_eq(ids.count, LONG_BYTES / 4, "pairs of ab");
        qr_token_buffer_deinit(&ids);
    }
    free(text);
    return NULL;
}

Test(tokenizer_tokenizer, long_runs_take_linear_time_and_a_small_stack) {
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
    for (size_t p = 0; p < 4; p++) {
        qr_tokenizer *t = make_tokenizer(pres[p], false);
        pthread_attr_t attributes;
        pthread_t thread;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, STACK_BYTES);
        cr_assert_eq(pthread_create(&thread, &attributes, encode_long_runs, t), 0);
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attributes);
        qr_tokenizer_destroy(t);
    }
}

static void refuse(qr_vocabulary vocabulary, quire_status expected, const char *word) {
    qr_tokenizer *t;
    quire_error error = {0};
    cr_expect_eq(qr_tokenizer_create(&vocabulary, &t, &error), expected, "%s", word);
    cr_expect_null(t);
    cr_expect(strstr(error.text, word), "'%s' names %s", error.text, word);
}

Test(tokenizer_tokenizer, refuses_what_is_no_vocabulary_it_knows) {
    qr_text tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}}, good[] = {{"a b", 3}}, bad[] = {{"ab", 2}}, missing[] = {{"b a", 3}};
    int32_t kinds[] = {1, 1, 9};
    qr_vocabulary v = {.source = "f",
                       .model = "gpt2",
                       .pre = "gpt-2",
                       .token_count = 3,
                       .tokens = tokens,
                       .merge_count = 1,
                       .merges = good,
                       .bos = -1,
                       .eos = -1,
                       .eot = -1,
                       .unknown = -1};
    qr_vocabulary x = v;
    x.model = "llama";
    refuse(x, QUIRE_UNSUPPORTED, "llama");
    x = v;
    x.pre = "default";
    refuse(x, QUIRE_UNSUPPORTED, "default");
    x = v;
    x.eos = 3;
    refuse(x, QUIRE_FORMAT, "end token id 3");
    x = v;
    x.merges = bad;
    refuse(x, QUIRE_FORMAT, "merge 0");
    x = v;
    x.merges = missing;
    refuse(x, QUIRE_FORMAT, "merge 0");
    x = v;
    x.kinds = kinds;
    refuse(x, QUIRE_FORMAT, "token 2");
}
