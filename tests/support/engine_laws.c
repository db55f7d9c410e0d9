#include "tests/support/engine_laws.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/random.h"

enum { COMPANY = 9 };

static quire_engine_config config_of(const engine_laws *laws) {
    return (quire_engine_config){.context_tokens = 2 * laws->prompt_tokens + laws->answer_tokens + 64,
                                 .block_tokens = 16,
                                 .kv_block_count = 400,
                                 .key_type = QUIRE_KV_F16,
                                 .value_type = QUIRE_KV_F16,
                                 .max_sequences = 12,
                                 .thread_count = 1,
                                 .seed = 1};
}

static quire_token *make_prompt(const engine_laws *laws, uint64_t seed, uint32_t shared, uint32_t count) {
    uint32_t vocabulary = quire_model_get_info(laws->model)->vocabulary_size;
    quire_token *prompt = malloc(count * sizeof *prompt);
    for (uint32_t i = 0; i < count; i++) {
        prompt[i] = (quire_token)(qr_mix64((i < shared ? 0 : seed * 1000003) + i) % (vocabulary - 20) + 20);
    }
    return prompt;
}

static quire_request request_of(const engine_laws *laws, uint64_t id, const quire_token *prompt, uint32_t count) {
    return (quire_request){
        .id = id,
        .prompt = prompt,
        .prompt_count = count,
        .choice_count = 1,
        .max_tokens = laws->answer_tokens,
        .ignore_eos = true,
        .logits_digest = true,
        .sampling = {.temperature = 1, .top_p = 0.9f, .repetition_penalty = 1.1f, .seeded = true, .seed = 7}};
}

/* Alone in an engine of its own, nothing cached. */
static void solo(const engine_laws *laws, const quire_request *request, client_answer *answer) {
    engine_client client;
    quire_engine_config config = config_of(laws);
    quire_request alone = *request;
    alone.id = 0;
    config.cache_disabled = true;
    engine_client_init(&client, 1);
    engine_client_open(&client, &config, laws->model);
    if (engine_client_submit(&client, &alone, NULL) != QUIRE_OK) abort();
    engine_client_check_idle(&client);
    *answer = client.answers[0];
    engine_client_deinit(&client);
}

static int compare(const char *what, uint64_t which, const client_choice *a, const client_choice *b) {
    bool equal = a->count == b->count && a->finish == b->finish &&
                 memcmp(a->tokens, b->tokens, a->count * sizeof *a->tokens) == 0 &&
                 memcmp(a->digests, b->digests, a->count * sizeof *a->digests) == 0;
    uint32_t at = 0;
    while (at < a->count && at < b->count && a->digests[at] == b->digests[at]) at++;
    if (!equal) {
        fprintf(stderr, "%s %llu: %u and %u tokens, digests differ at %u\n", what, (unsigned long long)which, a->count,
                b->count, at);
    }
    return !equal;
}

static client_answer *answer_alloc(void) {
    client_answer *answer = calloc(1, sizeof *answer);
    if (!answer) abort();
    return answer;
}

/* The same prompt three times, then one that leaves it inside a block: whole blocks and tails come from the cache. */
int engine_laws_cached_equals_cold(const engine_laws *laws) {
    engine_client client;
    quire_engine_config config = config_of(laws);
    client_answer *alone = answer_alloc();
    int wrong = 0;
    engine_client_init(&client, 64);
    engine_client_open(&client, &config, laws->model);
    const uint32_t counts[] = {1, 15, 16, 17, 31, 32, 33, laws->prompt_tokens};
    uint64_t id = 0;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        quire_token *prompt = make_prompt(laws, 40 + k, 0, counts[k]), *tail = make_prompt(laws, 90 + k, 0, counts[k]);
        memcpy(tail, prompt, counts[k] * 2 / 3 * sizeof *tail);
        quire_request request = request_of(laws, 0, prompt, counts[k]), other = request_of(laws, 0, tail, counts[k]);
        for (int turn = 0; turn < 4; turn++, id++) {
            quire_request *mine = turn < 3 ? &request : &other;
            mine->id = id;
            if (engine_client_submit(&client, mine, NULL) != QUIRE_OK) abort();
            engine_client_wait(&client);
            solo(laws, mine, alone);
            wrong += compare("cached", id, &client.answers[id].choices[0], &alone->choices[0]);
            uint32_t cached = client.answers[id].match.token_count;
            bool hit = turn == 0  ? cached < counts[k]
                       : turn < 3 ? cached == (counts[k] - 1)
                                  : cached >= counts[k] * 2 / 3 / 16 * 16;
            if (!hit) fprintf(stderr, "prompt of %u, turn %d: %u cached\n", counts[k], turn, cached);
            wrong += !hit;
        }
        free(prompt);
        free(tail);
    }
    engine_client_check_idle(&client);
    engine_client_deinit(&client);
    free(alone);
    return wrong;
}

static int company_under(const engine_laws *laws, const quire_engine_config *config, const char *what, uint64_t *pauses) {
    engine_client client;
    quire_engine_stats stats;
    client_answer *alone = answer_alloc();
    quire_token *prompts[COMPANY];
    quire_request requests[COMPANY];
    int wrong = 0;
    engine_client_init(&client, COMPANY);
    engine_client_open(&client, config, laws->model);
    for (uint64_t i = 0; i < COMPANY; i++) {
        uint32_t count = laws->prompt_tokens - (uint32_t)i * laws->prompt_tokens / (2 * COMPANY);
        prompts[i] = make_prompt(laws, i + 1, i % 3 ? laws->prompt_tokens / 2 : 3, count);
        requests[i] = request_of(laws, i, prompts[i], count);
        if (engine_client_submit(&client, &requests[i], NULL) != QUIRE_OK) abort();
    }
    engine_client_check_idle(&client);
    for (uint64_t i = 0; i < COMPANY; i++) {
        solo(laws, &requests[i], alone);
        wrong += compare(what, i, &client.answers[i].choices[0], &alone->choices[0]);
        free(prompts[i]);
    }
    quire_engine_get_stats(client.engine, &stats);
    if (pauses) *pauses = stats.preemptions_total;
    engine_client_deinit(&client);
    free(alone);
    return wrong;
}

int engine_laws_company(const engine_laws *laws) {
    quire_engine_config config = config_of(laws);
    return company_under(laws, &config, "company", NULL);
}

int engine_laws_threads_and_steps(const engine_laws *laws) {
    quire_engine_config config = config_of(laws);
    int wrong = 0;
    config.thread_count = 2;
    wrong += company_under(laws, &config, "two threads", NULL);
    config.step_us = 1; /* the smallest chunks */
    wrong += company_under(laws, &config, "small steps", NULL);
    config.block_tokens = 64;
    config.kv_block_count = 100;
    return wrong + company_under(laws, &config, "blocks of 64", NULL);
}

/* A pool that holds the prompts and not the answers. */
int engine_laws_pauses(const engine_laws *laws) {
    quire_engine_config config = config_of(laws);
    uint64_t pauses = 0;
    uint32_t longest = (laws->prompt_tokens + laws->answer_tokens + 15) / 16;
    config.kv_block_count = longest + longest / 2 + 2;
    int wrong = company_under(laws, &config, "paused", &pauses);
    if (pauses == 0) fprintf(stderr, "nobody was paused\n");
    return wrong + (pauses == 0);
}

/* n choices: one prefill, each choice what it is when n is another number. */
int engine_laws_forks(const engine_laws *laws) {
    engine_client client;
    quire_engine_config config = config_of(laws);
    client_answer *alone = answer_alloc();
    quire_token *prompt = make_prompt(laws, 77, 0, 21);
    quire_request request = request_of(laws, 0, prompt, 21);
    int wrong = 0;
    request.choice_count = 3;
    solo(laws, &request, alone);
    engine_client_init(&client, COMPANY);
    engine_client_open(&client, &config, laws->model);
    for (uint64_t id = 0; id < 4; id++) {
        request.id = id;
        request.choice_count = (uint32_t)(id == 3 ? 1 : 3);
        if (engine_client_submit(&client, &request, NULL) != QUIRE_OK) abort();
    }
    engine_client_check_idle(&client);
    for (uint64_t id = 0; id < 4; id++) {
        for (uint32_t i = 0; i < (id == 3 ? 1 : 3); i++) {
            wrong += compare("fork", id * 10 + i, &client.answers[id].choices[i], &alone->choices[i]);
        }
    }
    wrong += memcmp(alone->choices[0].tokens, alone->choices[1].tokens, 8 * sizeof(quire_token)) == 0;
    engine_client_deinit(&client);
    free(prompt);
    free(alone);
    return wrong;
}
