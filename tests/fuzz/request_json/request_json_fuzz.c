/* request_json_fuzz.c - any bytes as the body of every endpoint that takes one, with a model whose tokens are bytes.
 * Whatever comes out, refusal or answer, must be valid JSON. The first byte chooses the endpoint. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/assertion.h"
#include "runtime/server/endpoints.h"
#include "runtime/server/generation.h"
#include "tests/unit/server/fake_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_json(const qr_bytes *text) {
    json_t *root = json_loadb(text->data, text->size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    QR_ASSERT(root);
    json_decref(root);
}

static void check_generation(const qr_generation *g) {
    QR_ASSERT(g->prompt_count >= 1 && g->n >= 1 && g->n <= QUIRE_CHOICES_MAX && (!g->stops || qr_stop_set_count(g->stops) > 0));
    QR_ASSERT(g->request.stop_token_count <= QUIRE_STOP_TOKENS_MAX && g->request.top_logprobs <= QUIRE_TOP_LOGPROBS_MAX);
    for (uint32_t i = 0; i < g->prompt_count; i++) {
        const qr_token_buffer *tokens = &g->prompts[i].tokens;
        QR_ASSERT(tokens->count >= 1 && tokens->count + g->prompts[i].max_tokens <= 512);
        for (size_t k = 0; k < tokens->count; k++) QR_ASSERT(tokens->tokens[k] >= 0 && tokens->tokens[k] < FAKE_VOCABULARY);
    }
}

static void check_result(const qr_task *task) {
    QR_ASSERT((task->error.status != 0) + (task->generation != NULL) + (task->answer.size != 0) == 1);
    if (task->generation) check_generation(task->generation);
    if (task->answer.size) expect_json(&task->answer);
    if (!task->error.status) return;
    qr_bytes text = {0};
    qr_http_error_write(&task->error, &text);
    expect_json(&text);
    qr_bytes_deinit(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const handlers[])(qr_task *) = {qr_chat_handle, qr_completions_handle, qr_tokenize_handle,
                                                  qr_detokenize_handle, qr_apply_template_handle};
    if (size < 1) return 0;
    quire_model *model = fake_model_create(true);
    qr_task task = {.model = model, .context_tokens = 512, .pool_tokens = 512, .fingerprint = "fuzz"};
    qr_bytes_append(&task.body, data + 1, size - 1);
    handlers[data[0] % (sizeof handlers / sizeof *handlers)](&task);
    check_result(&task);
    qr_generation_destroy(task.generation);
    qr_bytes_deinit(&task.answer);
    qr_bytes_deinit(&task.body);
    fake_model_destroy(model);
    return 0;
}
