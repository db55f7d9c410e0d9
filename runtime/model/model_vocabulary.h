/* model_vocabulary.h - from a GGUF header to a tokenizer and a chat template. */
#ifndef QR_MODEL_MODEL_VOCABULARY_H
#define QR_MODEL_MODEL_VOCABULARY_H

#include "runtime/model/chat_template.h"
#include "runtime/model/gguf.h"

/* Errors: FORMAT (key named), UNSUPPORTED, NO_MEMORY. Nothing of the file is kept. */
QUIRE_MUST_CHECK quire_status qr_model_vocabulary_read(const qr_gguf *gguf, qr_tokenizer **tokenizer, quire_error *error);
/* template_text gets a copy of the template's text (the caller frees it) that lives as long as the chat template. */
QUIRE_MUST_CHECK quire_status qr_model_chat_template_read(const qr_gguf *gguf, const qr_tokenizer *tokenizer,
                                                          char **template_text, qr_chat_template **chat, quire_error *error);
#endif
