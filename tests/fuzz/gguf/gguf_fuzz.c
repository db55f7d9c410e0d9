/* gguf_fuzz.c - any bytes as a GGUF file: the header's checks, every accessor, the model's shape and its tensor list.
 * What passes must then be readable to the last byte. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "runtime/model/gguf.h"
#include "runtime/model/model_shape.h"
#include "runtime/model/model_vocabulary.h"
#include "runtime/model/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink;

static void touch(const void *bytes, size_t size) {
    uint8_t sum = 0;
    for (size_t i = 0; i < size; i++) sum ^= ((const uint8_t *)bytes)[i];
    sink = sum;
}

static void touch_tensors(const qr_gguf *g) {
    for (uint64_t i = 0; i < qr_gguf_tensor_count(g); i++) {
        const qr_gguf_tensor *t = qr_gguf_tensor_at(g, i);
        touch(t->data, t->size_bytes);
        touch(t->name.data, t->name.size);
        char name[80];
        (void)snprintf(name, sizeof name, "%.*s", (int)t->name.size, t->name.data);
        if (strlen(name) == t->name.size) QR_ASSERT(qr_gguf_find_tensor(g, name) == t);
    }
}

static void touch_values(const qr_gguf *g) {
    static const char *const keys[] = {"general.architecture",
                                       "general.alignment",
                                       "llama.block_count",
                                       "llama.rope.freq_base",
                                       "llama.attention.head_count",
                                       "tokenizer.ggml.tokens",
                                       "tokenizer.ggml.token_type",
                                       "tokenizer.ggml.add_bos_token",
                                       "k"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        uint64_t count;
        double number;
        bool flag;
        qr_text text, *texts;
        int32_t *numbers;
        quire_error error;
        (void)!qr_gguf_get_u64(g, keys[i], &count, &error);
        (void)!qr_gguf_get_f64(g, keys[i], &number, &error);
        (void)!qr_gguf_get_bool(g, keys[i], &flag, &error);
        if (!qr_gguf_get_text(g, keys[i], &text, &error)) touch(text.data, text.size);
        if (!qr_gguf_get_texts(g, keys[i], &texts, &count, &error))
            for (uint64_t j = 0; j < count; j++) touch(texts[j].data, texts[j].size);
        free(texts);
        (void)!qr_gguf_get_i32s(g, keys[i], &numbers, &count, &error);
        free(numbers);
    }
}

static void open_parts(const qr_gguf *g) {
    qr_model_shape shape;
    qr_weight_store *store;
    qr_tokenizer *tokenizer;
    quire_error error;
    if (qr_model_shape_read(g, &shape, &error)) return;
    for (int exact = 0; exact < 2; exact++)
        if (!qr_weight_store_create(g, &shape, exact, &store, &error)) qr_weight_store_destroy(store);
    if (!qr_model_vocabulary_read(g, &tokenizer, &error)) qr_tokenizer_destroy(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    qr_gguf *g;
    quire_error error = {0};
    quire_status status = qr_gguf_open_memory("fuzz", data, size, &g, &error);
    if (status) {
        QR_ASSERT(!g && error.status == status && error.text[0] && error.source[0]);
        return 0;
    }
    touch_tensors(g);
    touch_values(g);
    open_parts(g);
    qr_gguf_close(g);
    return 0;
}
