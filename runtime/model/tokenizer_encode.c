/* tokenizer_encode.c - text to ids: added tokens, normalisation, pieces, merging. */
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "runtime/model/tokenizer_internal.h"
#include "runtime/model/unicode_nfc.h"

/* What encode keeps in qr_token_buffer.scratch between calls. */
typedef struct encode_scratch {
    qr_merge_work merge;
    qr_nfc nfc;
} encode_scratch;

void qr_token_buffer_deinit(qr_token_buffer *buffer) {
    encode_scratch *scratch = buffer->scratch;
    if (scratch) {
        qr_merge_work_deinit(&scratch->merge);
        qr_nfc_deinit(&scratch->nfc);
        free(scratch);
    }
    free(buffer->tokens);
    *buffer = (qr_token_buffer){0};
}

static quire_status reserve(qr_token_buffer *buffer, size_t more) {
    if (more <= buffer->capacity - buffer->count) return QUIRE_OK;
    size_t need = buffer->count + more;
    if (need < more || need > SIZE_MAX / (2 * sizeof(quire_token))) return QUIRE_NO_MEMORY;
    size_t capacity = need + need / 2;
    quire_token *tokens = realloc(buffer->tokens, capacity * sizeof *tokens);
    if (!tokens) return QUIRE_NO_MEMORY;
    buffer->tokens = tokens;
    buffer->capacity = capacity;
    return QUIRE_OK;
}

quire_status qr_token_buffer_append(qr_token_buffer *buffer, const quire_token *tokens, size_t count) {
    quire_status status = reserve(buffer, count);
    if (status) return status;
    if (count > 0) memcpy(buffer->tokens + buffer->count, tokens, count * sizeof *tokens);
    buffer->count += count;
    return QUIRE_OK;
}

static encode_scratch *get_scratch(qr_token_buffer *buffer) {
    if (!buffer->scratch) buffer->scratch = calloc(1, sizeof(encode_scratch));
    return buffer->scratch;
}

/* Llama 3's tokenizer takes a piece that is a token as that token, whatever the merges would give. */
static bool takes_whole_pieces(const qr_tokenizer *t) { return t->pre == QR_PRE_LLAMA3; }

static quire_status encode_piece(const qr_tokenizer *t, qr_text piece, qr_token_buffer *out) {
    quire_status status = reserve(out, piece.size);
    if (status) return status;
    quire_token whole = takes_whole_pieces(t) ? qr_token_table_find(&t->words, piece) : -1;
    if (whole >= 0) {
        out->tokens[out->count++] = whole;
        return QUIRE_OK;
    }
    quire_token *symbols = out->tokens + out->count;
    size_t count = 0;
    for (size_t i = 0; i < piece.size; i++) {
        quire_token token = t->byte_tokens[(unsigned char)piece.data[i]];
        if (token >= 0) symbols[count++] = token;
    }
    status = qr_merge_run(&t->merges, &get_scratch(out)->merge, symbols, &count);
    if (!status) out->count += count;
    return status;
}

/* Text without added tokens. */
static quire_status encode_plain(const qr_tokenizer *t, qr_text text, qr_token_buffer *out) {
    if (t->pre == QR_PRE_QWEN2 && !qr_nfc_normalize(&get_scratch(out)->nfc, text, &text)) return QUIRE_NO_MEMORY;
    qr_pre_tokenizer pre;
    qr_pre_tokenizer_init(&pre, t->pre, text.data, text.size);
    quire_status status = QUIRE_OK;
    for (qr_text piece; !status && qr_pre_tokenizer_next(&pre, &piece);) status = encode_piece(t, piece, out);
    return status;
}

static quire_status encode_text(const qr_tokenizer *t, qr_text text, const qr_added_set *set, qr_token_buffer *out) {
    for (size_t at = 0; at < text.size;) {
        size_t found_at;
        const qr_added_token *added = qr_added_set_find(set, text, at, &found_at);
        quire_status status = encode_plain(t, (qr_text){text.data + at, found_at - at}, out);
        if (!status && added) status = qr_token_buffer_append(out, &added->id, 1);
        if (status) return status;
        at = found_at + (added ? added->text.size : 0);
    }
    return QUIRE_OK;
}

/* Takes the start token out again where the text brought its own. */
static void keep_one_bos(const qr_tokenizer *t, size_t start, qr_token_buffer *out) {
    if (out->count < start + 2 || out->tokens[start + 1] != t->bos) return;
    out->count--;
    memmove(out->tokens + start, out->tokens + start + 1, (out->count - start) * sizeof *out->tokens);
}

quire_status qr_tokenizer_encode(const qr_tokenizer *t, const char *text, size_t size, unsigned flags, qr_token_buffer *out) {
    size_t start = out->count;
    bool bos = (flags & QR_ENCODE_BOS) && t->add_bos;
    if (!get_scratch(out)) return QUIRE_NO_MEMORY;
    quire_status status = bos ? qr_token_buffer_append(out, &t->bos, 1) : QUIRE_OK;
    const qr_added_set *set = flags & QR_ENCODE_SPECIAL ? &t->added_and_control : &t->added;
    if (!status) status = encode_text(t, (qr_text){text, size}, set, out);
    if (status) out->count = start;
    if (!status && bos) keep_one_bos(t, start, out);
    return status;
}
