/* What a request must be before the scheduler sees it. Pure; runs on the submitting thread. Every refusal names the field. */
#include <math.h>

#include "base/error.h"
#include "runtime/engine/scheduler.h"

static quire_status refuse(quire_error *error, const char *field, const char *rule) {
    return qr_fail(error, QUIRE_INVALID, field, QR_NO_OFFSET, "%s %s", field, rule);
}

static quire_status check_tokens(const quire_token *tokens, uint32_t count, uint32_t vocabulary, const char *field,
                                 quire_error *error) {
    for (uint32_t i = 0; i < count; i++) {
        if (tokens[i] >= 0 && (uint32_t)tokens[i] < vocabulary) continue;
        return qr_fail(error, QUIRE_INVALID, field, i, "%s[%u] = %d is not a token of the vocabulary of %u", field, i,
                       (int)tokens[i], vocabulary);
    }
    return QUIRE_OK;
}

static bool in_range(float value, float low, float high) { return value >= low && value <= high; }

static quire_status check_bias(const quire_sampling *s, uint32_t vocabulary, quire_error *error) {
    if (s->bias_count > QUIRE_BIAS_MAX) return refuse(error, "logit_bias", "has too many entries");
    for (uint32_t i = 0; i < s->bias_count; i++) {
        if (check_tokens(&s->bias[i].token, 1, vocabulary, "logit_bias", error) != QUIRE_OK) return QUIRE_INVALID;
        if (!isfinite(s->bias[i].bias)) return refuse(error, "logit_bias", "must be finite");
    }
    return QUIRE_OK;
}

static quire_status check_sampling(const quire_sampling *s, uint32_t vocabulary, quire_error *error) {
    if (!(s->temperature >= 0 && isfinite(s->temperature))) return refuse(error, "temperature", "must be 0 or more");
    if (!in_range(s->top_p, 0, 1)) return refuse(error, "top_p", "must be within 0 and 1");
    if (!in_range(s->min_p, 0, 1)) return refuse(error, "min_p", "must be within 0 and 1");
    if (s->top_k < -1) return refuse(error, "top_k", "must be -1 or more");
    if (!isfinite(s->presence_penalty)) return refuse(error, "presence_penalty", "must be finite");
    if (!isfinite(s->frequency_penalty)) return refuse(error, "frequency_penalty", "must be finite");
    if (!(s->repetition_penalty > 0 && isfinite(s->repetition_penalty))) {
        return refuse(error, "repetition_penalty", "must be above 0");
    }
    return check_bias(s, vocabulary, error);
}

static quire_status check_size(uint32_t context, uint32_t capacity, const quire_request *r, quire_error *error) {
    if (r->prompt_count < capacity) return QUIRE_OK;
    if (capacity < context) {
        return qr_fail(error, QUIRE_TOO_LARGE, "prompt", capacity,
                       "the prompt has %u tokens and the KV pool holds %u, one of them for the answer", r->prompt_count,
                       capacity);
    }
    return qr_fail(error, QUIRE_TOO_LARGE, "prompt", capacity,
                   "the prompt has %u tokens and the context holds %u, one of them for the answer", r->prompt_count, capacity);
}

quire_status qr_scheduler_validate(const qr_scheduler_config *config, uint32_t block_total, uint32_t block_tokens,
                                   const quire_request *r, quire_error *error) {
    uint32_t vocabulary = config->limits.vocabulary_size;
    uint32_t choices_max = config->max_sequences < QUIRE_CHOICES_MAX ? config->max_sequences : QUIRE_CHOICES_MAX;
    if (r->prompt_count == 0) return refuse(error, "prompt", "must have at least one token");
    if (r->choice_count == 0 || r->choice_count > choices_max) {
        return qr_fail(error, QUIRE_INVALID, "n", QR_NO_OFFSET, "n is %u and must be within 1 and %u", r->choice_count,
                       choices_max);
    }
    if (r->stop_token_count > QUIRE_STOP_TOKENS_MAX) return refuse(error, "stop_token_ids", "has too many entries");
    if (r->namespace_bytes > QUIRE_NAMESPACE_KEY_MAX) return refuse(error, "namespace_key", "is too long");
    if (r->top_logprobs < -1 || r->top_logprobs > QUIRE_TOP_LOGPROBS_MAX)
        return refuse(error, "top_logprobs", "must be within 0 and 20");
    quire_status status =
        check_size(config->context_tokens, qr_scheduler_capacity(config, block_total, block_tokens), r, error);
    if (status == QUIRE_OK) status = check_tokens(r->prompt, r->prompt_count, vocabulary, "prompt", error);
    if (status == QUIRE_OK) status = check_tokens(r->stop_tokens, r->stop_token_count, vocabulary, "stop_token_ids", error);
    if (status == QUIRE_OK) status = check_sampling(&r->sampling, vocabulary, error);
    return status;
}
