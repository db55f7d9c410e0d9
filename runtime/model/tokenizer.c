/* tokenizer.c - a vocabulary made ready for encoding and decoding.
 *
 * Texts of all tokens lie in one block of memory as the bytes that they stand for. Three groups, by kind:
 *   words     ordinary tokens: what merging can give, found by their bytes
 *   added     user-defined tokens: matched in any text before it is cut into pieces
 *   control   matched only on request, never the result of merging, whatever the merge list says
 * A byte that has no token of its own (SmolLM2 has none for U+0004) is left out, as the reference tokenizer does.
 */
#include "runtime/model/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/error.h"
#include "runtime/model/tokenizer_internal.h"

enum { SHOWN_BYTES_MAX = 60 }; /* of a token in an error text */

/* Tokens that end a reply, by text. */
static const char *const end_texts[] = {
    "<|im_end|>",      "<|eot_id|>",    "<|eom_id|>",      "<|endoftext|>", "<|end_of_text|>", "<|end|>",
    "<|end_of_turn|>", "<end_of_turn>", "<|endofprompt|>", "<|return|>",    "<|EOT|>",         "<EOT>",
};
/* With these they are control tokens even where a file says otherwise: user text must not be able to write a turn. */
static const char *const marker_texts[] = {
    "<|im_start|>", "<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>", "<|python_tag|>", "<start_of_turn>",
};

typedef struct builder {
    const qr_vocabulary *vocabulary;
    qr_tokenizer *tokenizer;
    qr_alphabet alphabet;
    quire_error *error;
} builder;

static qr_text text_of(const char *text) { return (qr_text){text, strlen(text)}; }

static bool is_one_of(qr_text text, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (text.size == strlen(list[i]) && memcmp(text.data, list[i], text.size) == 0) return true;
    }
    return false;
}

static int shown(qr_text text) { return (int)(text.size < SHOWN_BYTES_MAX ? text.size : SHOWN_BYTES_MAX); }

static quire_status format_error(builder *b, const char *what, uint32_t index, qr_text text) {
    return qr_fail(b->error, QUIRE_FORMAT, b->vocabulary->source, QR_NO_OFFSET, "%s %u ('%.*s')", what, index, shown(text),
                   text.data);
}

static quire_status check_id(builder *b, const char *name, quire_token id) {
    if (id >= -1 && (id < 0 || (uint32_t)id < b->vocabulary->token_count)) return QUIRE_OK;
    return qr_fail(b->error, QUIRE_FORMAT, b->vocabulary->source, QR_NO_OFFSET,
                   "the %s token id %d is outside the vocabulary of %u tokens", name, (int)id, b->vocabulary->token_count);
}

static quire_status check_head(builder *b) {
    const qr_vocabulary *v = b->vocabulary;
    qr_tokenizer *t = b->tokenizer;
    if (!v->model || strcmp(v->model, "gpt2") != 0) {
        return qr_fail(b->error, QUIRE_UNSUPPORTED, v->source, QR_NO_OFFSET,
                       "tokenizer model '%s': only byte-level BPE ('gpt2') is supported", v->model ? v->model : "(none)");
    }
    if (!v->pre || !qr_pre_tokenizer_find(v->pre, &t->pre)) {
        return qr_fail(b->error, QUIRE_UNSUPPORTED, v->source, QR_NO_OFFSET,
                       "pre-tokenizer '%s': only gpt-2, smollm, llama-bpe and qwen2 are supported", v->pre ? v->pre : "(none)");
    }
    if (v->token_count == 0 || v->token_count >= INT32_MAX / 4 || v->merge_count >= INT32_MAX / 4) {
        return qr_fail(b->error, QUIRE_FORMAT, v->source, QR_NO_OFFSET, "%u tokens and %u merges cannot be a vocabulary",
                       v->token_count, v->merge_count);
    }
    quire_status status = check_id(b, "start", v->bos);
    if (!status) status = check_id(b, "end", v->eos);
    if (!status) status = check_id(b, "end-of-turn", v->eot);
    if (!status) status = check_id(b, "unknown", v->unknown);
    return status;
}

static quire_status take_kind(builder *b, uint32_t id) {
    const qr_vocabulary *v = b->vocabulary;
    int32_t kind = v->kinds ? v->kinds[id] : QR_TOKEN_NORMAL;
    if (kind < QR_TOKEN_NORMAL || kind > QR_TOKEN_UNUSED) return format_error(b, "impossible type of token", id, v->tokens[id]);
    quire_token token = (quire_token)id;
    bool named = token == v->bos || token == v->eos || token == v->eot || token == v->unknown;
    bool known = is_one_of(v->tokens[id], end_texts, sizeof end_texts / sizeof end_texts[0]) ||
                 is_one_of(v->tokens[id], marker_texts, sizeof marker_texts / sizeof marker_texts[0]);
    if (kind == QR_TOKEN_UNKNOWN || (kind != QR_TOKEN_UNUSED && (named || known))) kind = QR_TOKEN_CONTROL;
    b->tokenizer->kinds[id] = (uint8_t)kind;
    return QUIRE_OK;
}

/* Ordinary tokens as bytes; the others, and those with characters outside the alphabet, as they are written. */
static bool take_text(builder *b, uint32_t id, char *to) {
    qr_text text = b->vocabulary->tokens[id];
    size_t size;
    bool word =
        b->tokenizer->kinds[id] == QR_TOKEN_NORMAL && text.size > 0 && qr_alphabet_decode(&b->alphabet, text, to, &size);
    if (!word) {
        if (text.size > 0) memcpy(to, text.data, text.size);
        size = text.size;
    }
    b->tokenizer->texts[id] = (qr_text){to, size};
    return word;
}

static quire_status take_tokens(builder *b) {
    const qr_vocabulary *v = b->vocabulary;
    qr_tokenizer *t = b->tokenizer;
    size_t total = 1;
    for (uint32_t i = 0; i < v->token_count; i++) total += v->tokens[i].size;
    t->bytes = malloc(total);
    t->texts = calloc(v->token_count, sizeof *t->texts);
    t->kinds = calloc(v->token_count, 1);
    if (!t->bytes || !t->texts || !t->kinds) return QUIRE_NO_MEMORY;
    if (!qr_token_table_init(&t->words, t->texts, v->token_count)) return QUIRE_NO_MEMORY;
    if (!qr_token_table_init(&t->named, t->texts, v->token_count)) return QUIRE_NO_MEMORY;
    t->token_count = v->token_count;
    char *to = t->bytes;
    for (uint32_t i = 0; i < v->token_count; i++) {
        quire_status status = take_kind(b, i);
        if (status) return status;
        bool word = take_text(b, i, to);
        to += t->texts[i].size;
        if (t->texts[i].size > t->longest_bytes) t->longest_bytes = t->texts[i].size;
        if (word) qr_token_table_insert(&t->words, (quire_token)i);
        if (t->kinds[i] == QR_TOKEN_CONTROL || t->kinds[i] == QR_TOKEN_USER_DEFINED) {
            qr_token_table_insert(&t->named, (quire_token)i);
        }
    }
    return QUIRE_OK;
}

static void take_byte_tokens(qr_tokenizer *t) {
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        t->byte_tokens[byte] = qr_token_table_find(&t->words, (qr_text){&c, 1});
    }
}

static bool in_added_set(const qr_tokenizer *t, uint32_t id, bool with_control) {
    if (t->texts[id].size == 0) return false;
    return t->kinds[id] == QR_TOKEN_USER_DEFINED || (with_control && t->kinds[id] == QR_TOKEN_CONTROL);
}

static quire_status take_added(builder *b, qr_added_set *set, bool with_control) {
    qr_tokenizer *t = b->tokenizer;
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->token_count; i++) {
        if (!in_added_set(t, i, with_control)) continue;
        if (t->texts[i].size > QR_ADDED_TOKEN_BYTES_MAX) return format_error(b, "too long an added token", i, t->texts[i]);
        count++;
    }
    qr_added_token *tokens = malloc((count + 1) * sizeof *tokens);
    if (!tokens) return QUIRE_NO_MEMORY;
    uint32_t at = 0;
    for (uint32_t i = 0; i < t->token_count; i++) {
        if (in_added_set(t, i, with_control)) tokens[at++] = (qr_added_token){t->texts[i], (quire_token)i};
    }
    qr_added_set_init(set, tokens, count);
    return QUIRE_OK;
}

/* The side of a merge as token id; its bytes go to `to`. -1: no ordinary token; *named tells a control or added one. */
static quire_token merge_side(builder *b, qr_text side, char *to, size_t *size, bool *named) {
    quire_token token = -1;
    if (qr_alphabet_decode(&b->alphabet, side, to, size))
        token = qr_token_table_find(&b->tokenizer->words, (qr_text){to, *size});
    if (token < 0 && qr_token_table_find(&b->tokenizer->named, side) >= 0) *named = true;
    return token;
}

static quire_status take_merge(builder *b, uint32_t rank, char *scratch) {
    qr_text merge = b->vocabulary->merges[rank];
    const char *space = merge.size > 0 ? memchr(merge.data, ' ', merge.size) : NULL;
    size_t left_size = space ? (size_t)(space - merge.data) : 0;
    if (left_size == 0 || left_size + 1 == merge.size) return format_error(b, "no two sides in merge", rank, merge);
    qr_text left = {merge.data, left_size}, right = {space + 1, merge.size - left_size - 1};
    size_t left_bytes = 0, right_bytes = 0;
    bool named = false;
    quire_token left_id = merge_side(b, left, scratch, &left_bytes, &named);
    quire_token right_id = merge_side(b, right, scratch + left_bytes, &right_bytes, &named);
    quire_token result = -1;
    if (left_id >= 0 && right_id >= 0) {
        qr_text joined = {scratch, left_bytes + right_bytes};
        result = qr_token_table_find(&b->tokenizer->words, joined);
        if (result < 0) named = qr_token_table_find(&b->tokenizer->named, joined) >= 0;
    }
    if (result < 0) return named ? QUIRE_OK : format_error(b, "a side or the result is no token in merge", rank, merge);
    qr_merge_table_insert(&b->tokenizer->merges,
                          &(qr_merge_rule){(uint32_t)left_id, (uint32_t)right_id, rank, (uint32_t)result});
    return QUIRE_OK;
}

static quire_status take_merges(builder *b) {
    const qr_vocabulary *v = b->vocabulary;
    size_t longest = 1;
    for (uint32_t i = 0; i < v->merge_count; i++) {
        if (v->merges[i].size > longest) longest = v->merges[i].size;
    }
    if (!qr_merge_table_init(&b->tokenizer->merges, v->merge_count)) return QUIRE_NO_MEMORY;
    char *scratch = malloc(longest);
    if (!scratch) return QUIRE_NO_MEMORY;
    quire_status status = QUIRE_OK;
    for (uint32_t i = 0; i < v->merge_count && !status; i++) status = take_merge(b, i, scratch);
    free(scratch);
    return status;
}

static void add_end(qr_tokenizer *t, quire_token token) {
    if (token < 0 || qr_tokenizer_is_end(t, token)) return;
    QR_ASSERT(t->end_count < QR_END_TOKENS_MAX);
    t->ends[t->end_count++] = token;
}

static void take_ends(qr_tokenizer *t, const qr_vocabulary *v) {
    _Static_assert(sizeof end_texts / sizeof end_texts[0] + 2 <= QR_END_TOKENS_MAX, "room for all");
    add_end(t, v->eos);
    add_end(t, v->eot);
    for (size_t i = 0; i < sizeof end_texts / sizeof end_texts[0]; i++) {
        add_end(t, qr_token_table_find(&t->named, text_of(end_texts[i])));
    }
}

static quire_status build(builder *b) {
    qr_tokenizer *t = b->tokenizer;
    quire_status status = check_head(b);
    if (!status) status = take_tokens(b);
    if (!status) status = take_added(b, &t->added, false);
    if (!status) status = take_added(b, &t->added_and_control, true);
    if (!status) status = take_merges(b);
    if (status) return status;
    take_byte_tokens(t);
    take_ends(t, b->vocabulary);
    t->bos = b->vocabulary->bos;
    t->eos = b->vocabulary->eos;
    t->add_bos = b->vocabulary->add_bos && t->bos >= 0;
    return QUIRE_OK;
}

quire_status qr_tokenizer_create(const qr_vocabulary *vocabulary, qr_tokenizer **tokenizer, quire_error *error) {
    *tokenizer = NULL;
    builder b = {.vocabulary = vocabulary, .tokenizer = calloc(1, sizeof(qr_tokenizer)), .error = error};
    qr_alphabet_init(&b.alphabet);
    quire_status status = b.tokenizer ? build(&b) : QUIRE_NO_MEMORY;
    if (status) {
        qr_tokenizer_destroy(b.tokenizer);
        if (status == QUIRE_NO_MEMORY) return qr_fail(error, status, vocabulary->source, QR_NO_OFFSET, "out of memory");
        return status;
    }
    *tokenizer = b.tokenizer;
    return QUIRE_OK;
}

void qr_tokenizer_destroy(qr_tokenizer *t) {
    if (!t) return;
    qr_merge_table_deinit(&t->merges);
    qr_added_set_deinit(&t->added);
    qr_added_set_deinit(&t->added_and_control);
    qr_token_table_deinit(&t->words);
    qr_token_table_deinit(&t->named);
    free(t->texts);
    free(t->kinds);
    free(t->bytes);
    free(t);
}

static bool in_range(const qr_tokenizer *t, quire_token token) { return token >= 0 && (uint32_t)token < t->token_count; }

uint32_t qr_tokenizer_token_count(const qr_tokenizer *t) { return t->token_count; }
quire_token qr_tokenizer_bos(const qr_tokenizer *t) { return t->bos; }
quire_token qr_tokenizer_eos(const qr_tokenizer *t) { return t->eos; }
bool qr_tokenizer_add_bos(const qr_tokenizer *t) { return t->add_bos; }

bool qr_tokenizer_is_end(const qr_tokenizer *t, quire_token token) {
    for (uint32_t i = 0; i < t->end_count; i++) {
        if (t->ends[i] == token) return true;
    }
    return false;
}

uint32_t qr_tokenizer_end_tokens(const qr_tokenizer *t, const quire_token **tokens) {
    *tokens = t->ends;
    return t->end_count;
}

bool qr_tokenizer_is_control(const qr_tokenizer *t, quire_token token) {
    return in_range(t, token) && t->kinds[token] == QR_TOKEN_CONTROL;
}

quire_token qr_tokenizer_find(const qr_tokenizer *t, const char *text, size_t size) {
    quire_token token = qr_token_table_find(&t->named, (qr_text){text, size});
    return token >= 0 ? token : qr_token_table_find(&t->words, (qr_text){text, size});
}

quire_token qr_tokenizer_find_control(const qr_tokenizer *t, const char *text, size_t size, size_t at, size_t *found_at) {
    for (;;) {
        const qr_added_token *found = qr_added_set_find(&t->added_and_control, (qr_text){text, size}, at, found_at);
        if (!found) return -1;
        if (qr_tokenizer_is_control(t, found->id)) return found->id;
        at = *found_at + found->text.size;
    }
}

qr_text qr_tokenizer_bytes(const qr_tokenizer *t, quire_token token) {
    return in_range(t, token) ? t->texts[token] : (qr_text){"", 0};
}

size_t qr_tokenizer_longest_bytes(const qr_tokenizer *t) { return t->longest_bytes; }

quire_status qr_tokenizer_decode(const qr_tokenizer *t, const quire_token *tokens, size_t count, bool show_control,
                                 char **bytes, size_t *size, size_t *bad) {
    *bytes = NULL;
    *size = 0;
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        if (!in_range(t, tokens[i])) {
            *bad = i;
            return QUIRE_NOT_FOUND;
        }
        if (show_control || !qr_tokenizer_is_control(t, tokens[i])) total += t->texts[tokens[i]].size;
    }
    char *to = *bytes = malloc(total + 1);
    if (!to) return QUIRE_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        qr_text text = t->texts[tokens[i]];
        if (!show_control && qr_tokenizer_is_control(t, tokens[i])) continue;
        if (text.size > 0) memcpy(to, text.data, text.size);
        to += text.size;
    }
    *to = 0;
    *size = total;
    return QUIRE_OK;
}
