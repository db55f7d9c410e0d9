/* R18: everything is range-checked before the engine sees it, and the field is named. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "runtime/engine/scheduler.h"

enum { VOCABULARY = 1000 };

static const quire_token good_prompt[3] = {1, 2, 3}, bad_prompt[2] = {5, VOCABULARY}, negative[1] = {-1};

static quire_request good(void) {
    return (quire_request){.prompt = good_prompt,
                           .prompt_count = 3,
                           .choice_count = 1,
                           .max_tokens = 5,
                           .top_logprobs = -1,
                           .sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1}};
}

static quire_status validate(const quire_request *r, quire_error *error) {
    qr_scheduler_config config = {.context_tokens = 100,
                                  .max_sequences = 8,
                                  .max_waiting = 4,
                                  .step_us = 1000,
                                  .limits = {.vocabulary_size = VOCABULARY}};
    memset(error, 0, sizeof *error);
    return qr_scheduler_validate(&config, 100, 16, r, error);
}

static void refuses(const quire_request *r, const char *field) {
    quire_error error;
    cr_assert_eq(validate(r, &error), QUIRE_INVALID, "%s", field);
    cr_assert_str_eq(error.source, field);
    cr_assert(strlen(error.text) > strlen(field));
}

Test(engine_request_check, good_requests_pass_at_every_edge) {
    quire_error error;
    quire_request r = good();
    cr_assert_eq(validate(&r, &error), QUIRE_OK);
    r.sampling = (quire_sampling){.temperature = 0,
                                  .top_p = 0,
                                  .min_p = 1,
                                  .top_k = -1,
                                  .repetition_penalty = 0.01f,
                                  .presence_penalty = -2,
                                  .frequency_penalty = 2};
    r.top_logprobs = 20;
    r.choice_count = 8;
    r.max_tokens = 0;
    cr_assert_eq(validate(&r, &error), QUIRE_OK, "%s", error.text);
    r.max_tokens = UINT32_MAX;
    r.sampling.top_k = INT32_MAX;
    cr_assert_eq(validate(&r, &error), QUIRE_OK, "%s", error.text);
}

Test(engine_request_check, every_field_is_named_when_it_is_wrong) {
    const float bad[] = {-0.1f, NAN, INFINITY};
    quire_logit_bias outside = {VOCABULARY, 1}, infinite = {1, INFINITY};
    quire_request r;
    for (int i = 0; i < 3; i++) {
        r = good(), r.sampling.temperature = bad[i];
        refuses(&r, "temperature");
        r = good(), r.sampling.top_p = bad[i];
        refuses(&r, "top_p");
        r = good(), r.sampling.min_p = bad[i];
        refuses(&r, "min_p");
        r = good(), r.sampling.repetition_penalty = bad[i];
        refuses(&r, "repetition_penalty");
        if (i == 0) continue;
        r = good(), r.sampling.presence_penalty = bad[i];
        refuses(&r, "presence_penalty");
        r = good(), r.sampling.frequency_penalty = bad[i];
        refuses(&r, "frequency_penalty");
    }
    r = good(), r.sampling.top_p = 1.01f, refuses(&r, "top_p");
    r = good(), r.sampling.min_p = 1.01f, refuses(&r, "min_p");
    r = good(), r.sampling.repetition_penalty = 0, refuses(&r, "repetition_penalty");
    r = good(), r.sampling.top_k = -2, refuses(&r, "top_k");
    r = good(), r.top_logprobs = 21, refuses(&r, "top_logprobs");
    r = good(), r.top_logprobs = -2, refuses(&r, "top_logprobs");
    r = good(), r.choice_count = 0, refuses(&r, "n");
    r = good(), r.choice_count = 9, refuses(&r, "n");
    r = good(), r.prompt_count = 0, refuses(&r, "prompt");
    r = good(), r.namespace_bytes = QUIRE_NAMESPACE_KEY_MAX + 1, refuses(&r, "namespace_key");
    r = good(), r.prompt = bad_prompt, r.prompt_count = 2, refuses(&r, "prompt");
    r = good(), r.prompt = negative, r.prompt_count = 1, refuses(&r, "prompt");
    r = good(), r.stop_tokens = negative, r.stop_token_count = 1, refuses(&r, "stop_token_ids");
    r = good(), r.stop_token_count = QUIRE_STOP_TOKENS_MAX + 1, refuses(&r, "stop_token_ids");
    r = good(), r.sampling.bias = &outside, r.sampling.bias_count = 1, refuses(&r, "logit_bias");
    r = good(), r.sampling.bias = &infinite, r.sampling.bias_count = 1, refuses(&r, "logit_bias");
    r = good(), r.sampling.bias_count = QUIRE_BIAS_MAX + 1, refuses(&r, "logit_bias");
}
