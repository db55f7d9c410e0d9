#include "runtime/engine/logits.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base/cpu_features.h"
#include "base/random.h"
#include "runtime/engine/scalar_math.h"

static bool summarize(const float *logits, uint32_t count, qr_logits_summary *summary) {
    qr_cpu_features features;
    float sums[64];
    qr_cpu_features_detect(&features);
    return qr_logits_summarize(qr_softmax_best(&features), logits, count, sums, summary);
}

Test(engine_logits, log_agrees_with_the_c_library) {
    for (double x = 1; x < 1e9; x *= 1.0123) cr_assert(fabs(qr_log_positive(x) - log(x)) <= 1e-13 * (1 + log(x)), "log(%g)", x);
    cr_assert_eq(qr_log_positive(1.0), 0.0);
}

Test(engine_logits, a_weight_is_the_exponential) {
    const qr_softmax_scale scale = {2.0f, QR_LOG2_E};
    for (int i = 0; i < 4000; i++) {
        float logit = 2.0f - (float)i * 0.01f;
        double want = exp((double)logit - 2.0);
        cr_assert(fabs((double)qr_softmax_weight(logit, scale) - want) <= 4e-6 * want, "e^%g", (double)logit - 2.0);
    }
    cr_assert_eq(qr_softmax_weight(2.0f, scale), 1.0f);
    cr_assert_eq(qr_softmax_weight(-80.0f, scale), 0.0f);
    cr_assert_eq(qr_softmax_weight(-INFINITY, scale), 0.0f);
    cr_assert_eq(qr_softmax_weight(NAN, scale), 0.0f);
}

/* Law 1: every instruction set gives the same bits, at every length. */
Test(engine_logits, every_path_gives_the_same_bits) {
    static const char *const names[] = {"avx2", "avx512"};
    qr_cpu_features features;
    qr_cpu_features_detect(&features);
    const qr_softmax_path *scalar = qr_softmax_find("scalar", &features);
    qr_random r = {5};
    for (int n = 0; n < 2; n++) {
        const qr_softmax_path *path = qr_softmax_find(names[n], &features);
        for (uint32_t count = 1; path && count < 700; count++) {
            float logits[700], a[11], b[11];
            for (uint32_t i = 0; i < count; i++) {
                logits[i] = (float)(qr_random_unit(&r) * 60 - 40);
                if (qr_random_below(&r, 50) == 0) logits[i] = qr_random_below(&r, 2) ? NAN : -INFINITY;
            }
            float max = scalar->max(logits, count), other = path->max(logits, count);
            cr_assert_eq(memcmp(&max, &other, sizeof max), 0);
            if (max == -INFINITY) continue;
            qr_softmax_scale scale = {max, QR_LOG2_E / (0.1f + (float)qr_random_unit(&r))};
            scalar->block_sums(logits, count, scale, a);
            path->block_sums(logits, count, scale, b);
            cr_assert_eq(memcmp(a, b, qr_softmax_blocks(count) * sizeof *a), 0, "%s, %u logits", names[n], count);
        }
    }
}

Test(engine_logits, logprobs_are_the_log_softmax) {
    qr_random r = {7};
    float logits[1000];
    double sum = 0;
    for (int i = 0; i < 1000; i++) logits[i] = (float)(qr_random_unit(&r) * 40 - 20);
    for (int i = 0; i < 1000; i++) sum += exp((double)logits[i]);
    qr_logits_summary s;
    cr_assert(summarize(logits, 1000, &s));
    for (int i = 0; i < 1000; i++) cr_assert_float_eq(qr_logits_logprob(&s, logits[i]), logits[i] - log(sum), 1e-5);
}

/* R20: every row of logits has a defined meaning. */
Test(engine_logits, unusable_and_infinite_logits_are_defined) {
    qr_logits_summary s;
    float all_nan[5] = {NAN, NAN, NAN, NAN, NAN}, none[3] = {-INFINITY, NAN, -INFINITY};
    cr_assert_not(summarize(all_nan, 5, &s));
    cr_assert_not(summarize(none, 3, &s));
    float one_nan[3] = {1, NAN, 1};
    cr_assert(summarize(one_nan, 3, &s));
    cr_assert_float_eq(qr_logits_logprob(&s, one_nan[0]), -logf(2), 1e-6);
    cr_assert_eq(qr_logits_logprob(&s, one_nan[1]), QR_LOGPROB_FLOOR);
    float one_inf[3] = {1, INFINITY, 3};
    cr_assert(summarize(one_inf, 3, &s));
    cr_assert_eq(qr_logits_logprob(&s, one_inf[1]), 0.0f);
    cr_assert_eq(qr_logits_logprob(&s, one_inf[2]), QR_LOGPROB_FLOOR);
    float two_inf[4] = {INFINITY, 0, INFINITY, NAN};
    cr_assert(summarize(two_inf, 4, &s));
    cr_assert_float_eq(qr_logits_logprob(&s, INFINITY), -logf(2), 1e-6);
    float huge[2] = {3e38f, -3e38f};
    cr_assert(summarize(huge, 2, &s));
    cr_assert_eq(qr_logits_logprob(&s, huge[0]), 0.0f);
    cr_assert_eq(qr_logits_logprob(&s, huge[1]), QR_LOGPROB_FLOOR);
}

Test(engine_logits, top_is_sorted_with_ties_by_lower_id) {
    float logits[9] = {1, 3, 2, 3, NAN, -INFINITY, 2, 0, 3};
    const quire_token want[9] = {1, 3, 8, 2, 6, 0, 7, 4, 5};
    qr_logits_summary s;
    quire_token_logprob top[QUIRE_TOP_LOGPROBS_MAX];
    cr_assert(summarize(logits, 9, &s));
    for (uint32_t k = 0; k <= 20; k++) {
        uint32_t count = qr_logits_top(&s, logits, 9, k, top);
        cr_assert_eq(count, k < 9 ? k : 9);
        for (uint32_t i = 0; i < count; i++) {
            cr_assert_eq(top[i].token, want[i], "k %u place %u", k, i);
            cr_assert(isfinite(top[i].logprob));
        }
    }
}

Test(engine_logits, top_equals_a_full_sort) {
    qr_random r = {11};
    for (int round = 0; round < 200; round++) {
        float logits[300];
        for (int i = 0; i < 300; i++) logits[i] = (float)qr_random_below(&r, 40);
        qr_logits_summary s;
        quire_token_logprob top[QUIRE_TOP_LOGPROBS_MAX];
        cr_assert(summarize(logits, 300, &s));
        uint32_t k = 1 + qr_random_below(&r, 20);
        cr_assert_eq(qr_logits_top(&s, logits, 300, k, top), k);
        for (uint32_t i = 0; i < k; i++) {
            uint32_t rank = 0;
            for (int j = 0; j < 300; j++) {
                float mine = logits[top[i].token];
                rank += logits[j] > mine || (logits[j] == mine && j < top[i].token);
            }
            cr_assert_eq(rank, i);
        }
    }
}

Test(engine_logits, digest_follows_its_definition) {
    float a[2] = {0.0f, 1.0f}, b[2] = {-0.0f, 1.0f}, c[2] = {1.0f, 0.0f}, d[1], e[1];
    cr_assert_eq(qr_logits_digest(a, 2), qr_logits_digest(b, 2));
    cr_assert_neq(qr_logits_digest(a, 2), qr_logits_digest(c, 2));
    uint32_t bits = 0xffc12345u;
    memcpy(d, &bits, 4);
    e[0] = NAN;
    cr_assert_eq(qr_logits_digest(d, 1), qr_logits_digest(e, 1));
    /* splitmix64's finaliser of 2^32 + bits(1.0f), worked out by hand in Python; mix64(0) = 0. */
    cr_assert_eq(qr_logits_digest(a, 2), 0xc5b96149f04312bau);
}
