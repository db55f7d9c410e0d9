/* generation.c - see generation.h: life, prompts and limits. generation_fields.c reads the fields. */
#include "runtime/server/generation.h"

#include <stdlib.h>

qr_generation *qr_generation_create(void) {
    qr_generation *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->n = 1;
    g->max_tokens = -1;
    g->request.top_logprobs = -1;
    g->request.sampling = (quire_sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    return g;
}

void qr_generation_destroy(qr_generation *g) {
    if (!g) return;
    for (uint32_t i = 0; i < g->prompt_count; i++) {
        qr_token_buffer_deinit(&g->prompts[i].tokens);
        free(g->prompts[i].text);
    }
    qr_stop_set_destroy(g->stops);
    free(g->prompts);
    free(g->bias);
    qr_token_buffer_deinit(&g->stop_tokens);
    qr_bytes_deinit(&g->namespace_key);
    free(g);
}

qr_prompt *qr_generation_add_prompt(qr_generation *g, qr_http_error *error) {
    if (g->prompt_count == QR_PROMPTS_MAX) {
        qr_http_refuse(error, 400, "prompt", "more than %d prompts in one request", QR_PROMPTS_MAX);
        return NULL;
    }
    qr_prompt *prompts = realloc(g->prompts, (g->prompt_count + 1) * sizeof *prompts);
    if (!prompts) {
        qr_http_refuse(error, 503, NULL, "out of memory");
        return NULL;
    }
    g->prompts = prompts;
    g->prompts[g->prompt_count] = (qr_prompt){0};
    return &g->prompts[g->prompt_count++];
}

static bool prompt_too_long(uint64_t prompt_tokens, uint64_t limit, const char *what, const char *field, qr_http_error *error) {
    qr_http_refuse(error, 400, field,
                   "the prompt has %llu tokens; %s holds %llu tokens, of which at least one is for the reply",
                   (unsigned long long)prompt_tokens, what, (unsigned long long)limit);
    error->type = "exceed_context_size_error";
    error->code = "context_length_exceeded";
    error->prompt_tokens = (uint32_t)prompt_tokens;
    error->context_tokens = (uint32_t)limit;
    return false;
}

/* One rule at the edge: a prompt must leave room for one token. A reply that would pass the limit ends there. */
static bool prompt_limit(const qr_generation *g, qr_prompt *prompt, const qr_task *task, qr_http_error *error) {
    uint64_t count = prompt->tokens.count, limit = task->context_tokens;
    const char *field = g->chat ? "messages" : "prompt";
    if (count == 0) return qr_http_refuse(error, 400, field, "%s gives no token, and this model has no start token", field);
    if (count >= limit) return prompt_too_long(count, limit, "the context", field, error);
    if (task->pool_tokens < limit) limit = task->pool_tokens;
    if (count >= limit) return prompt_too_long(count, limit, "the KV pool", field, error);
    uint64_t room = limit - count;
    prompt->max_tokens = g->max_tokens >= 0 && (uint64_t)g->max_tokens < room ? (uint32_t)g->max_tokens : (uint32_t)room;
    return true;
}

bool qr_generation_finish(qr_generation *g, const qr_task *task, qr_http_error *error) {
    if ((uint64_t)g->prompt_count * g->n > QR_TOTAL_CHOICES_MAX)
        return qr_http_refuse(error, 400, "n", "%u prompts with n = %u are more than %d choices", g->prompt_count, g->n,
                              QR_TOTAL_CHOICES_MAX);
    for (uint32_t i = 0; i < g->prompt_count; i++)
        if (!prompt_limit(g, &g->prompts[i], task, error)) return false;
    quire_request *request = &g->request;
    request->choice_count = g->n;
    request->stop_tokens = g->stop_tokens.tokens;
    request->stop_token_count = (uint32_t)g->stop_tokens.count;
    request->sampling.bias = g->bias;
    request->namespace_key = g->namespace_key.data;
    request->namespace_bytes = g->namespace_key.size;
    request->prompt_logprobs = g->echo && g->logprobs;
    request->progress = g->return_progress && g->stream;
    return !g->namespace_key.failed || qr_http_refuse(error, 503, NULL, "out of memory");
}
