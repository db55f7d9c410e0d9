/* pre_tokenizer.h - cuts text into the pieces that BPE works on.
 *
 * State machines over code points that split exactly as the regular expressions of the reference tokenizers do:
 *   gpt-2      's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *   smollm     every number alone, then gpt-2 on what lies between
 *   llama-bpe  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
 *              \s+(?!\S)|\s+
 *   qwen2      the same with \p{N}; its text is brought to NFC first (unicode_nfc.h)
 * Each byte is looked at a bounded number of times, with no stack. A byte that is not UTF-8 counts as a code point that is
 * neither letter, number nor space.
 */
#ifndef QR_MODEL_PRE_TOKENIZER_H
#define QR_MODEL_PRE_TOKENIZER_H

#include <stdbool.h>

#include "runtime/model/tokenizer.h"

typedef enum qr_pre_tokenizer_kind {
    QR_PRE_GPT2,
    QR_PRE_SMOLLM,
    QR_PRE_LLAMA3,
    QR_PRE_QWEN2,
} qr_pre_tokenizer_kind;

/* By the names that GGUF files use. Only names whose tokenizer splits exactly so: "default" and others are refused. */
bool qr_pre_tokenizer_find(const char *name, qr_pre_tokenizer_kind *kind);

typedef struct qr_pre_tokenizer {
    qr_pre_tokenizer_kind kind;
    const char *text;
    size_t size, at;
    size_t part_end; /* smollm: end of the run without numbers that `at` is in */
} qr_pre_tokenizer;

void qr_pre_tokenizer_init(qr_pre_tokenizer *pre, qr_pre_tokenizer_kind kind, const char *text, size_t size);
/* The next piece, never empty; false at the end. */
bool qr_pre_tokenizer_next(qr_pre_tokenizer *pre, qr_text *piece);
#endif
