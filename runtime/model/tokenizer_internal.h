/* tokenizer_internal.h - the tokenizer's own fields, shared by tokenizer.c (create, decode) and tokenizer_encode.c. */
#ifndef QR_MODEL_TOKENIZER_INTERNAL_H
#define QR_MODEL_TOKENIZER_INTERNAL_H

#include "runtime/model/pre_tokenizer.h"
#include "runtime/model/tokenizer_added.h"
#include "runtime/model/tokenizer_merge.h"
#include "runtime/model/tokenizer_table.h"

enum { QR_END_TOKENS_MAX = 16 };

struct qr_tokenizer {
    qr_pre_tokenizer_kind pre;
    uint32_t token_count;
    qr_text *texts; /* [token_count] in bytes */
    char *bytes;
    size_t longest_bytes;         /* of a token */
    uint8_t *kinds;               /* [token_count] qr_token_kind */
    qr_token_table words;         /* ordinary tokens */
    qr_token_table named;         /* control and user-defined tokens */
    quire_token byte_tokens[256]; /* -1: the byte has no token */
    qr_merge_table merges;
    qr_added_set added;             /* user-defined tokens */
    qr_added_set added_and_control; /* the same and the control tokens */
    quire_token bos, eos;
    bool add_bos;
    quire_token ends[QR_END_TOKENS_MAX];
    uint32_t end_count;
};
#endif
