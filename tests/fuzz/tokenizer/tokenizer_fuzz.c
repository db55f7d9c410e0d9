/* tokenizer_fuzz.c - any text through every pre-tokenizer, the text stream and the template reader.
 *
 * Holds: encoding with and without special tokens succeeds; without them no control token appears; decoding gives the bytes
 * back (but for qwen2, which normalises); a stream gives the same text as the whole; a template is taken or refused.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "runtime/model/chat_template.h"
#include "runtime/model/text_stream.h"
#include "tests/unit/tokenizer/small_vocabulary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const merges[] = {"a b", "ab ab", "\xc4\xa0 a", "\xc3\x83 \xc2\xa9", NULL};
static const char *const control[] = {"<|im_start|>", "<|im_end|>", NULL};
static const char *const added[] = {"<x>", "<x><y>", NULL};
static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};

static void check_round_trip(const qr_tokenizer *t, const char *text, size_t size, bool lossless) {
    qr_token_buffer ids = {0};
    char *bytes;
    size_t decoded, bad;
    QR_ASSERT(qr_tokenizer_encode(t, text, size, QR_ENCODE_SPECIAL, &ids) == QUIRE_OK);
    ids.count = 0;
    QR_ASSERT(qr_tokenizer_encode(t, text, size, 0, &ids) == QUIRE_OK);
    for (size_t i = 0; i < ids.count; i++) QR_ASSERT(!qr_tokenizer_is_control(t, ids.tokens[i]));
    QR_ASSERT(qr_tokenizer_decode(t, ids.tokens, ids.count, false, &bytes, &decoded, &bad) == QUIRE_OK);
    if (lossless) QR_ASSERT(decoded == size && memcmp(bytes, text, size) == 0);
    free(bytes);
    qr_token_buffer_deinit(&ids);
}

static void check_stream(const qr_tokenizer *t, const char *text, size_t size) {
    const qr_text stop = {"\x7f\x7f stop", 7};
    qr_text_stream *stream;
    qr_text given;
    size_t whole_size, at = 0;
    char *whole = qr_text_to_utf8(text, size, &whole_size);
    qr_stop_set *stops;
    QR_ASSERT(whole && qr_stop_set_create(&stop, 1, &stops) == QUIRE_OK);
    QR_ASSERT(qr_text_stream_create(t, stops, false, &stream) == QUIRE_OK);
    bool stopped = false;
    for (size_t i = 0; i <= size && !stopped; i++) {
        if (i < size) stopped = qr_text_stream_push(stream, qr_tokenizer_find(t, text + i, 1), &given);
        else qr_text_stream_finish(stream, &given);
        QR_ASSERT(at + given.size <= whole_size && memcmp(whole + at, given.data, given.size) == 0);
        at += given.size;
    }
    QR_ASSERT(stopped || at == whole_size);
    qr_text_stream_destroy(stream);
    qr_stop_set_destroy(stops);
    free(whole);
}

static void check_template(const qr_tokenizer *t, const char *text, size_t size) {
    qr_chat_template *chat;
    QR_ASSERT(qr_chat_template_create(text, size, t, &chat) == QUIRE_OK);
    QR_ASSERT(qr_chat_template_supported(chat) == (*qr_chat_template_reason(chat) == 0));
    qr_chat_template_destroy(chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (size_t p = 0; p < sizeof pres / sizeof pres[0]; p++) {
        qr_tokenizer *t =
            small_tokenizer(&(small_vocabulary){.pre = pres[p], .merges = merges, .control = control, .added = added});
        check_round_trip(t, (const char *)data, size, strcmp(pres[p], "qwen2") != 0);
        if (p == 0) check_stream(t, (const char *)data, size);
        if (p == 0) check_template(t, (const char *)data, size);
        qr_tokenizer_destroy(t);
    }
    return 0;
}
