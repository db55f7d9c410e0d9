/* small_vocabulary.c - builds a qr_vocabulary from string lists. */
#include "small_vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/unicode_utf8.h"

enum { TOKENS_MAX = 1024, TEXT_MAX = 64 };

typedef struct store {
    char bytes[TOKENS_MAX][TEXT_MAX];
    qr_text tokens[TOKENS_MAX], merges[TOKENS_MAX];
    int32_t kinds[TOKENS_MAX];
    uint32_t count, merge_count;
} store;

static qr_text text_of(const char *text) { return (qr_text){text, strlen(text)}; }

static void add(store *s, const char *text, size_t size, int32_t kind) {
    memcpy(s->bytes[s->count], text, size);
    s->tokens[s->count] = (qr_text){s->bytes[s->count], size};
    s->kinds[s->count++] = kind;
}

/* GPT-2's alphabet, written out a second time on purpose. */
static void add_bytes(store *s) {
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        char text[4];
        add(s, text, qr_utf8_write(printable ? byte : next++, text), QR_TOKEN_NORMAL);
    }
}

static void add_merges(store *s, const char *const *merges) {
    for (; merges && *merges; merges++) {
        char joined[TEXT_MAX];
        const char *space = strchr(*merges, ' ');
        snprintf(joined, sizeof joined, "%.*s%s", (int)(space - *merges), *merges, space + 1);
        s->merges[s->merge_count++] = text_of(*merges);
        add(s, joined, strlen(joined), QR_TOKEN_NORMAL);
    }
}

static void add_list(store *s, const char *const *list, int32_t kind) {
    for (; list && *list; list++) add(s, *list, strlen(*list), kind);
}

static quire_token find(const store *s, const char *text) {
    for (uint32_t i = 0; text && i < s->count; i++) {
        if (s->tokens[i].size == strlen(text) && memcmp(s->tokens[i].data, text, s->tokens[i].size) == 0) return (quire_token)i;
    }
    return -1;
}

qr_tokenizer *small_tokenizer(const small_vocabulary *small) {
    store *s = calloc(1, sizeof *s);
    if (!s) abort();
    add_bytes(s);
    add_merges(s, small->merges);
    add_list(s, small->control, QR_TOKEN_CONTROL);
    add_list(s, small->added, QR_TOKEN_USER_DEFINED);
    qr_vocabulary vocabulary = {
        .source = "small",
        .model = "gpt2",
        .pre = small->pre,
        .token_count = s->count,
        .tokens = s->tokens,
        .kinds = s->kinds,
        .merge_count = s->merge_count,
        .merges = s->merges,
        .bos = find(s, small->bos),
        .eos = find(s, small->eos),
        .eot = -1,
        .unknown = -1,
        .add_bos = small->add_bos,
    };
    qr_tokenizer *tokenizer;
    quire_error error = {0};
    if (qr_tokenizer_create(&vocabulary, &tokenizer, &error)) {
        fprintf(stderr, "small_tokenizer: %s\n", error.text);
        abort();
    }
    free(s);
    return tokenizer;
}
