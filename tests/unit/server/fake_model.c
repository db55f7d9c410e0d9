/* fake_model.c - see fake_model.h. */
#include "tests/unit/server/fake_model.h"

#include "base/assertion.h"
#include "runtime/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct quire_model {
    quire_model_info info;
    qr_tokenizer *tokenizer;
    qr_chat_template *chat;
};

static const char chatml[] = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
                             "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
                             "}}{% endif %}";

/* The byte-level alphabet of GPT-2: printable bytes stand for themselves, the rest for characters from U+0100 on. */
static size_t alphabet(int byte, char *out) {
    bool own = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
    int code = byte;
    if (!own) {
        code = 256;
        for (int b = 0; b < byte; b++) code += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255));
    }
    if (code < 128) return out[0] = (char)code, 1;
    out[0] = (char)(0xc0 | (code >> 6));
    out[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

static qr_tokenizer *tokenizer_create(void) {
    static const char *const names[] = {"<|im_start|>", "<|im_end|>", "<|endoftext|>"};
    char storage[256][2];
    qr_text tokens[FAKE_VOCABULARY];
    int32_t kinds[FAKE_VOCABULARY];
    for (int i = 0; i < 256; i++) {
        tokens[i] = (qr_text){storage[i], alphabet(i, storage[i])};
        kinds[i] = QR_TOKEN_NORMAL;
    }
    for (int i = 256; i < FAKE_VOCABULARY; i++) {
        tokens[i] = (qr_text){names[i - 256], strlen(names[i - 256])};
        kinds[i] = QR_TOKEN_CONTROL;
    }
    qr_vocabulary vocabulary = {.source = "fake",
                                .model = "gpt2",
                                .pre = "gpt-2",
                                .token_count = FAKE_VOCABULARY,
                                .tokens = tokens,
                                .kinds = kinds,
                                .bos = -1,
                                .eos = FAKE_IM_END,
                                .eot = -1,
                                .unknown = -1};
    qr_tokenizer *tokenizer;
    quire_error error = {0};
    quire_status status = qr_tokenizer_create(&vocabulary, &tokenizer, &error);
    if (status != QUIRE_OK) fprintf(stderr, "%s\n", error.text);
    QR_ASSERT(status == QUIRE_OK);
    return tokenizer;
}

quire_model *fake_model_create(bool with_template) {
    quire_model *model = calloc(1, sizeof *model);
    QR_ASSERT(model);
    snprintf(model->info.name, sizeof model->info.name, "odd \"name\"\\ %%");
    snprintf(model->info.quantization, sizeof model->info.quantization, "F32");
    model->info.vocabulary_size = FAKE_VOCABULARY;
    model->tokenizer = tokenizer_create();
    QR_ASSERT(qr_chat_template_create(with_template ? chatml : NULL, with_template ? sizeof chatml - 1 : 0, model->tokenizer,
                                      &model->chat) == QUIRE_OK);
    return model;
}

void fake_model_destroy(quire_model *model) {
    qr_chat_template_destroy(model->chat);
    qr_tokenizer_destroy(model->tokenizer);
    free(model);
}

const quire_model_info *quire_model_get_info(const quire_model *model) { return &model->info; }
const qr_tokenizer *qr_model_tokenizer(const quire_model *model) { return model->tokenizer; }
const qr_chat_template *qr_model_chat_template(const quire_model *model) { return model->chat; }
