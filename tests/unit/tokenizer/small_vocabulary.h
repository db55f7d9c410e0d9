/* small_vocabulary.h - tokenizers of a few hundred tokens for tests: all bytes, some merges, control and added tokens. */
#ifndef TESTS_SMALL_VOCABULARY_H
#define TESTS_SMALL_VOCABULARY_H

#include "runtime/model/tokenizer.h"

/* Ids 0 .. 255 are the bytes; then the results of the merges, then the control tokens, then the added ones. */
typedef struct small_vocabulary {
    const char *pre;
    const char *const *merges;  /* "left right" in the alphabet, NULL-terminated, or NULL */
    const char *const *control; /* NULL-terminated, or NULL */
    const char *const *added;   /* the same */
    const char *bos, *eos;      /* of the control tokens, or NULL */
    bool add_bos;
} small_vocabulary;

/* Aborts when it cannot be made. */
qr_tokenizer *small_tokenizer(const small_vocabulary *small);
#endif
