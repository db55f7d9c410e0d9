#include "runtime/engine/sampler.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "base/random.h"

enum { SMALL = 3, VOCABULARY = 1000 };

static quire_sampling neutral(float temperature) {
    return (quire_sampling){.temperature = temperature, .top_p = 1, .repetition_penalty = 1};
}

static qr_step_sample sample_of(const quire_sampling *sampling, uint64_t seed, uint64_t index) {
    return (qr_step_sample){.kind = QR_SAMPLE_DRAW, .top_logprobs = 0, .sampling = sampling, .seed = seed, .draw_index = index};
}

static quire_token run(qr_sampler *s, const float *logits, const qr_step_sample *sample) {
    qr_sample_result result;
    qr_sampler_run(s, logits, sample, QR_TOKEN_SAMPLED, &result);
    cr_assert_eq(result.status, QUIRE_OK);
    return result.token;
}

/* How often each token of a small vocabulary is drawn in 2,000 draws. */
static void tally(const float *logits, uint32_t count, const quire_sampling *sampling, uint32_t *out) {
    qr_sampler *s = qr_sampler_create(count, NULL, 0);
    for (uint32_t i = 0; i < count; i++) out[i] = 0;
    for (uint64_t i = 0; i < 2000; i++) {
        qr_step_sample sample = sample_of(sampling, 5, i);
        out[run(s, logits, &sample)]++;
    }
    qr_sampler_destroy(s);
}

/* R18: temperature comes before top_p: at 0.5 the best of [3, 2, 1] has 0.867 and stands alone; at 1 it has 0.665. */
Test(engine_sampler, temperature_comes_before_top_p) {
    float logits[SMALL] = {3, 2, 1};
    uint32_t n[SMALL];
    quire_sampling p = neutral(0.5f);
    p.top_p = 0.8f;
    tally(logits, SMALL, &p, n);
    cr_assert_eq(n[0], 2000);
    p.temperature = 1;
    tally(logits, SMALL, &p, n);
    cr_assert(n[1] > 400 && n[2] == 0, "0.665 and 0.245 reach 0.8 together");
}

/* top_k renormalises before top_p: of [3, 2, 1] k = 2 leaves 0.731 and 0.269. */
Test(engine_sampler, top_k_comes_before_top_p_and_min_p_last) {
    float logits[SMALL] = {3, 2, 1};
    uint32_t n[SMALL];
    quire_sampling p = neutral(1);
    p.top_k = 2;
    p.top_p = 0.7f;
    tally(logits, SMALL, &p, n);
    cr_assert_eq(n[0], 2000, "0.731 of the two reaches 0.7; 0.665 of the three would not");
    p = neutral(1);
    p.min_p = 0.3f; /* e^-1 = 0.37, e^-2 = 0.14 */
    tally(logits, SMALL, &p, n);
    cr_assert(n[1] > 0 && n[2] == 0);
}

Test(engine_sampler, extremes_keep_exactly_the_best) {
    float logits[4] = {1, 5, 5, 2};
    uint32_t n[4];
    quire_sampling p[4] = {neutral(0), neutral(1), neutral(1), neutral(1)};
    p[1].top_p = 0;
    p[2].min_p = 1;
    p[3].top_k = 1;
    for (int i = 0; i < 4; i++) {
        tally(logits, 4, &p[i], n);
        cr_assert_eq(n[1], 2000, "case %d: the lower id of the two best", i);
    }
    quire_sampling all = neutral(1);
    all.top_k = 4;
    tally(logits, 4, &all, n);
    cr_assert(n[0] > 0 && n[3] > 0, "top_k at the vocabulary means all");
}

Test(engine_sampler, frequencies_follow_the_softmax) {
    float logits[4] = {0, 0.6931472f, 1.0986123f, 1.3862944f}; /* 1 : 2 : 3 : 4 */
    uint32_t n[4];
    quire_sampling plain = neutral(1), filtered = neutral(1);
    filtered.top_p = 0.9999999f;
    tally(logits, 4, &plain, n);
    for (int i = 0; i < 4; i++) cr_assert(abs((int)n[i] - 200 * (i + 1)) < 70, "token %d drawn %u times", i, n[i]);
    tally(logits, 4, &filtered, n);
    for (int i = 0; i < 4; i++) cr_assert(abs((int)n[i] - 200 * (i + 1)) < 70, "token %d drawn %u times", i, n[i]);
}

/* The filters' shortcut (likely candidates first) never changes their answer: a plain full sort is the model. */
typedef struct ranked {
    float logit;
    int id;
} ranked;

static int by_rank(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id - y->id;
}

static uint32_t naive_kept(const float *logits, const quire_sampling *p, ranked *list) {
    double total = 0, sum = 0;
    for (int i = 0; i < VOCABULARY; i++) list[i] = (ranked){logits[i], i};
    qsort(list, VOCABULARY, sizeof *list, by_rank);
    uint32_t kept = p->top_k > 0 ? (uint32_t)p->top_k : VOCABULARY, n = 0;
    for (uint32_t i = 0; i < kept; i++) total += exp((list[i].logit - list[0].logit) / (double)p->temperature);
    while (n < kept && (n == 0 || sum < (double)p->top_p * total)) {
        sum += exp((list[n++].logit - list[0].logit) / (double)p->temperature);
    }
    kept = n;
    for (n = 1; n < kept && exp((list[n].logit - list[0].logit) / (double)p->temperature) >= (double)p->min_p;) n++;
    return n;
}

Test(engine_sampler, filters_equal_a_full_sort) {
    qr_random r = {3};
    qr_sampler *s = qr_sampler_create(VOCABULARY, NULL, 0);
    for (int round = 0; round < 300; round++) {
        float logits[VOCABULARY], spread = (float)(1 + qr_random_below(&r, 60));
        ranked list[VOCABULARY];
        for (int i = 0; i < VOCABULARY; i++) logits[i] = spread * (float)qr_random_unit(&r);
        quire_sampling p = neutral(0.2f + 2 * (float)qr_random_unit(&r));
        if (qr_random_below(&r, 2)) p.top_k = (int32_t)(1 + qr_random_below(&r, VOCABULARY - 1));
        if (qr_random_below(&r, 2)) p.top_p = (float)qr_random_unit(&r);
        if (qr_random_below(&r, 2)) p.min_p = (float)qr_random_unit(&r) * 0.5f;
        uint32_t kept = naive_kept(logits, &p, list);
        bool drawn[VOCABULARY] = {0};
        for (uint64_t i = 0; i < 200; i++) {
            qr_step_sample sample = sample_of(&p, (uint64_t)round, i);
            drawn[run(s, logits, &sample)] = true;
        }
        for (uint32_t i = kept; i < VOCABULARY; i++) cr_assert_not(drawn[list[i].id], "round %d rank %u of %u", round, i, kept);
        if (kept <= 4) {
            for (uint32_t i = 0; i < kept; i++) {
                double share = exp((list[i].logit - list[0].logit) / (double)p.temperature);
                if (share > 0.3) cr_assert(drawn[list[i].id], "round %d rank %u of %u never drawn", round, i, kept);
            }
        }
    }
    qr_sampler_destroy(s);
}

/* R20, through the sampler: one bad row is an answer or a named refusal, never a default token. */
Test(engine_sampler, unusable_logits_are_refused_and_infinite_ones_win) {
    qr_sampler *s = qr_sampler_create(4, NULL, 0);
    float rows[6][4] = {{NAN, NAN, NAN, NAN},
                        {-INFINITY, -INFINITY, -INFINITY, -INFINITY},
                        {NAN, 1, 2, 0},
                        {0, INFINITY, 9, 1},
                        {0, INFINITY, 9, INFINITY},
                        {-INFINITY, -INFINITY, -5, NAN}};
    for (int hot = 0; hot < 2; hot++) {
        quire_sampling p = neutral((float)hot);
        bool seen[6][4] = {{0}};
        for (uint64_t i = 0; i < 200; i++) {
            for (int row = 0; row < 6; row++) {
                qr_step_sample sample = sample_of(&p, 1, i);
                qr_sample_result result;
                sample.top_logprobs = (int32_t)(i % 3) - 1; /* without scores as with them */
                qr_sampler_run(s, rows[row], &sample, QR_TOKEN_SAMPLED, &result);
                cr_assert_eq(result.status, row < 2 ? QUIRE_BAD_LOGITS : QUIRE_OK);
                if (row >= 2) {
                    seen[row][result.token] = true;
                    cr_assert(isfinite(result.logprob));
                }
            }
        }
        cr_assert_not(seen[2][0], "NaN is never drawn");
        cr_assert(!seen[3][0] && seen[3][1] && !seen[3][2], "one +inf wins");
        cr_assert(!seen[4][0] && seen[4][1] && !seen[4][2] && seen[4][3] == (hot == 1), "two share");
        cr_assert(seen[5][2] && !seen[5][3]);
    }
    qr_sampler_destroy(s);
}

/* R21: presence and frequency look at the answer only, repetition at the prompt too. */
Test(engine_sampler, penalties_count_what_they_say) {
    qr_sampler *s = qr_sampler_create(SMALL, NULL, 0);
    float logits[SMALL] = {3, 2.5f, -1};
    quire_token prompt[50] = {0}, generated[2] = {0, 0};
    quire_sampling p = neutral(0);
    p.presence_penalty = 2;
    qr_step_sample sample = sample_of(&p, 0, 0);
    sample.prompt = prompt;
    sample.prompt_count = 50;
    cr_assert_eq(run(s, logits, &sample), 0, "the prompt has no presence");
    sample.generated = generated;
    sample.generated_count = 1;
    cr_assert_eq(run(s, logits, &sample), 1);
    p = neutral(0);
    p.frequency_penalty = 0.3f;
    cr_assert_eq(run(s, logits, &sample), 0, "once costs 0.3");
    sample.generated_count = 2;
    cr_assert_eq(run(s, logits, &sample), 1, "twice costs 0.6");
    p = neutral(0);
    p.repetition_penalty = 1.3f;
    sample.generated_count = 0;
    cr_assert_eq(run(s, logits, &sample), 1, "3 / 1.3 < 2.5: the prompt repeats");
    p.repetition_penalty = 1.001f;
    p.presence_penalty = 2;
    p.frequency_penalty = 2;
    cr_assert_eq(run(s, logits, &sample), 0, "also when repetition looks at the prompt, presence and frequency do not");
    qr_sampler_destroy(s);
}

Test(engine_sampler, a_token_fed_in_flight_counts_as_generated) {
    qr_sampler *s = qr_sampler_create(SMALL, NULL, 0);
    float logits[SMALL] = {3, 2.5f, -1};
    quire_token generated[1] = {0};
    quire_sampling p = neutral(0);
    p.frequency_penalty = 0.3f;
    qr_step_sample sample = sample_of(&p, 0, 2);
    sample.generated = generated;
    sample.generated_count = 1;
    qr_sample_result result;
    qr_sampler_run(s, logits, &sample, 0, &result);
    cr_assert_eq(result.token, 1);
    cr_assert_eq(run(s, logits, &sample), 0, "nothing is left over from the call before");
    qr_sampler_destroy(s);
}

Test(engine_sampler, logprobs_are_raw_whatever_is_asked) {
    qr_sampler *s = qr_sampler_create(SMALL, NULL, 0);
    float logits[SMALL] = {3, 2, 1};
    quire_logit_bias bias[1] = {{2, 100}};
    quire_sampling p = neutral(0);
    p.bias = bias;
    p.bias_count = 1;
    qr_step_sample sample = sample_of(&p, 0, 0);
    sample.top_logprobs = 2;
    qr_sample_result result;
    qr_sampler_run(s, logits, &sample, QR_TOKEN_SAMPLED, &result);
    cr_assert_eq(result.token, 2);
    cr_assert_float_eq(result.logprob, 1 - log(exp(3) + exp(2) + exp(1)), 1e-6);
    cr_assert(result.top_count == 2 && result.top[0].token == 0 && result.top[1].token == 1);
    qr_sampler_destroy(s);
}

Test(engine_sampler, masked_end_and_stop_tokens_are_never_drawn) {
    quire_token end[1] = {0}, stop[1] = {1};
    qr_sampler *s = qr_sampler_create(SMALL, end, 1);
    float logits[SMALL] = {9, 8, 1};
    quire_sampling p = neutral(0);
    qr_step_sample sample = sample_of(&p, 0, 0);
    cr_assert_eq(run(s, logits, &sample), 0);
    sample.mask_end = true;
    cr_assert_eq(run(s, logits, &sample), 1, "ignore_eos masks end tokens only");
    sample.stop_tokens = stop;
    sample.stop_token_count = 1;
    cr_assert_eq(run(s, logits, &sample), 2);
    qr_sampler_destroy(s);
}

/* R22: a draw hangs on (seed, index) only. */
Test(engine_sampler, draws_depend_on_seed_and_index_only) {
    qr_sampler *a = qr_sampler_create(VOCABULARY, NULL, 0), *b = qr_sampler_create(VOCABULARY, NULL, 0);
    float logits[VOCABULARY];
    for (int i = 0; i < VOCABULARY; i++) logits[i] = (float)(i % 7);
    quire_sampling p = neutral(1), q = neutral(1);
    q.top_p = 0.5f;
    int differ = 0;
    for (uint64_t i = 0; i < 200; i++) {
        qr_step_sample one = sample_of(&p, 42, i), other = sample_of(&q, 42, i), stranger = sample_of(&p, 43, i);
        quire_token token = run(a, logits, &one);
        run(b, logits, &other);
        cr_assert_eq(run(b, logits, &one), token);
        differ += run(b, logits, &stranger) != token;
    }
    cr_assert(differ > 150);
    qr_sampler_destroy(a);
    qr_sampler_destroy(b);
}
