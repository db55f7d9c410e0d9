/* bench_engine - what the scheduler and the sampler cost beside the model: JSON lines.
 *
 * scheduler_step: plan and complete of a step of 64 decodes over contexts of 1,000 tokens, backend time excluded.
 * sampler_*: one draw over a vocabulary of 49,152 on one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "runtime/engine/logits.h"
#include "runtime/engine/sampler.h"
#include "runtime/engine/scheduler.h"

enum { SEQUENCES = 64, PROMPT = 1000, STEPS = 400, BLOCK_TOKENS = 16, VOCABULARY = 49152, ROUNDS = 31 };

static void must(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "bench_engine: %s\n", what);
    exit(1);
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void report(const char *name, uint64_t *ns, int count) {
    qsort(ns, (size_t)count, sizeof *ns, by_value);
    printf("{\"bench\": \"%s\", \"us_min\": %.2f, \"us_median\": %.2f, \"us_p99\": %.2f}\n", name, (double)ns[0] / 1e3,
           (double)ns[count / 2] / 1e3, (double)ns[count * 99 / 100] / 1e3);
}

static void drop_event(void *context, const quire_event *event) {
    (void)context;
    (void)event;
}

static void bench_scheduler(void) {
    static qr_sample_result samples[SEQUENCES + 64];
    static quire_token prompt[PROMPT];
    static uint64_t ns[STEPS];
    quire_kv_config kv_config = {.block_tokens = BLOCK_TOKENS,
                                 .group_count = 1,
                                 .groups = {{30, 3, 64, 64, QUIRE_KV_F16, QUIRE_KV_F16}},
                                 .block_count = 8192,
                                 .max_sequences = SEQUENCES,
                                 .max_sequence_tokens = 2048};
    qr_scheduler_config config = {.context_tokens = 2048,
                                  .max_sequences = SEQUENCES,
                                  .max_waiting = 1024,
                                  .step_us = 50000,
                                  .limits = {.rows_max = 512 + SEQUENCES,
                                             .samples_max = SEQUENCES + 64,
                                             .sequences_max = SEQUENCES,
                                             .steps_in_flight = 1,
                                             .vocabulary_size = VOCABULARY}};
    quire_kv *kv;
    qr_scheduler *s;
    must(quire_kv_create(&kv_config, &kv, NULL) == QUIRE_OK, "KV manager");
    must(qr_scheduler_create(&config, kv, BLOCK_TOKENS, drop_event, NULL, &s) == QUIRE_OK, "scheduler");
    for (uint64_t id = 0; id < SEQUENCES; id++) {
        for (int i = 0; i < PROMPT; i++) prompt[i] = (quire_token)((id * 7919 + (uint64_t)i) % VOCABULARY);
        quire_request r = {.id = id,
                           .prompt = prompt,
                           .prompt_count = PROMPT,
                           .choice_count = 1,
                           .max_tokens = 1000,
                           .top_logprobs = -1,
                           .sampling = {.top_p = 1, .repetition_penalty = 1}};
        must(qr_scheduler_add(s, qr_job_create(&r, 2048), 0) == QUIRE_OK, "add");
    }
    for (uint64_t now = 1, measured = 0; measured < STEPS; now += 1000) {
        qr_step *step;
        uint64_t start = qr_clock_ns();
        must(qr_scheduler_plan(s, now, &step), "plan");
        uint64_t planned = qr_clock_ns();
        for (uint32_t i = 0; i < step->sample_count; i++) samples[i].token = (quire_token)((now + i) % VOCABULARY);
        qr_step_result result = {.id = step->id, .sample_count = step->sample_count, .samples = samples, .duration_us = 900};
        bool decodes = step->row_count == SEQUENCES;
        uint64_t computed = qr_clock_ns();
        qr_scheduler_complete(s, &result, now + 900);
        if (decodes) ns[measured++] = planned - start + (qr_clock_ns() - computed);
    }
    report("scheduler_step_64_decodes", ns, STEPS);
    qr_scheduler_destroy(s);
    quire_kv_destroy(kv);
}

static void bench_sampler(const char *name, const float *logits, const quire_sampling *sampling, int32_t top_logprobs,
                          bool digest) {
    uint64_t ns[ROUNDS];
    static quire_token generated[200];
    qr_sampler *s = qr_sampler_create(VOCABULARY, NULL, 0);
    must(s != NULL, "sampler");
    for (int i = 0; i < ROUNDS; i++) {
        qr_step_sample sample = {.sampling = sampling,
                                 .seed = 1,
                                 .draw_index = (uint64_t)i,
                                 .top_logprobs = top_logprobs,
                                 .digest = digest,
                                 .prompt = generated,
                                 .prompt_count = 200,
                                 .generated = generated,
                                 .generated_count = 200};
        qr_sample_result result;
        uint64_t start = qr_clock_ns();
        qr_sampler_run(s, logits, &sample, QR_TOKEN_SAMPLED, &result);
        ns[i] = qr_clock_ns() - start;
    }
    report(name, ns, ROUNDS);
    qr_sampler_destroy(s);
}

int main(void) {
    float *logits = malloc(VOCABULARY * sizeof *logits);
    must(logits != NULL, "memory");
    qr_random r = {1};
    for (int i = 0; i < VOCABULARY; i++) {
        double sum = 0;
        for (int k = 0; k < 6; k++) sum += qr_random_unit(&r) - 0.5;
        logits[i] = (float)(sum * 4);
    }
    quire_sampling plain = {.temperature = 1, .top_p = 1, .repetition_penalty = 1}, greedy = plain, top_p = plain, all = plain;
    greedy.temperature = 0;
    top_p.top_p = 0.9f;
    all.top_k = 40;
    all.top_p = 0.9f;
    all.min_p = 0.05f;
    all.repetition_penalty = 1.1f;
    bench_scheduler();
    bench_sampler("sampler_greedy", logits, &greedy, -1, false);
    bench_sampler("sampler_temperature", logits, &plain, -1, false);
    bench_sampler("sampler_top_p_flat_logits", logits, &top_p, -1, false);
    bench_sampler("sampler_top_k_top_p_min_p_repetition", logits, &all, -1, false);
    bench_sampler("sampler_greedy_top_20_logprobs", logits, &greedy, 20, false);
    bench_sampler("sampler_greedy_digest", logits, &greedy, -1, true);
    free(logits);
    return 0;
}
