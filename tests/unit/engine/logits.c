#include "runtime/engine/logits.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "runtime/engine/scalar_math.h"

Test(engine_logits, exp_and_log_agree_with_the_c_library) {
    for (int i = 0; i < 70000; i++) {
        double x = -i * 0.01, mine = qr_exp_negative(x), ref = exp(x);
        cr_assert(fabs(mine - ref) <= 1e-13 * ref, "exp(%g)", x);
    }
    cr_assert_eq(qr_exp_negative(0), 1.0);
    cr_assert_eq(qr_exp_negative(-701), 0.0);
    cr_assert_eq(qr_exp_negative(-INFINITY), 0.0);
    cr_assert_eq(qr_exp_negative(NAN), 0.0);
    for (double x = 1; x < 1e9; x *= 1.0123) cr_assert(fabs(qr_log_positive(x) - log(x)) <= 1e-13 * (1 + log(x)), "log(%g)", x);
    cr_assert_eq(qr_log_positive(1.0), 0.0);
}

Test(engine_logits, logprobs_are_the_log_softmax) {
    qr_random r = {7};
    float logits[1000];
    double sum = 0;
    for (int i = 0; i < 1000; i++) logits[i] = (float)(qr_random_unit(&r) * 40 - 20);
    for (int i = 0; i < 1000; i++) sum += exp((double)logits[i]);
    qr_logits_summary s;
    cr_assert(qr_logits_summarize(logits, 1000, &s));
    for (int i = 0; i < 1000; i++) cr_assert_float_eq(qr_logits_logprob(&s, logits[i]), logits[i] - log(sum), 1e-5);
}

/* R20: every row of logits has a defined meaning. */
Test(engine_logits, unusable_and_infinite_logits_are_defined) {
    qr_logits_summary s;
    float all_nan[5] = {NAN, NAN, NAN, NAN, NAN}, none[3] = {-INFINITY, NAN, -INFINITY};
    cr_assert_not(qr_logits_summarize(all_nan, 5, &s));
    cr_assert_not(qr_logits_summarize(none, 3, &s));
    float one_nan[3] = {1, NAN, 1};
    cr_assert(qr_logits_summarize(one_nan, 3, &s));
    cr_assert_float_eq(qr_logits_logprob(&s, one_nan[0]), -logf(2), 1e-6);
    cr_assert_eq(qr_logits_logprob(&s, one_nan[1]), QR_LOGPROB_FLOOR);
    float one_inf[3] = {1, INFINITY, 3};
    cr_assert(qr_logits_summarize(one_inf, 3, &s));
    cr_assert_eq(qr_logits_logprob(&s, one_inf[1]), 0.0f);
    cr_assert_eq(qr_logits_logprob(&s, one_inf[2]), QR_LOGPROB_FLOOR);
    float two_inf[4] = {INFINITY, 0, INFINITY, NAN};
    cr_assert(qr_logits_summarize(two_inf, 4, &s));
    cr_assert_float_eq(qr_logits_logprob(&s, INFINITY), -logf(2), 1e-6);
    float huge[2] = {3e38f, -3e38f};
    cr_assert(qr_logits_summarize(huge, 2, &s));
    cr_assert_eq(qr_logits_logprob(&s, huge[0]), 0.0f);
    cr_assert_eq(qr_logits_logprob(&s, huge[1]), QR_LOGPROB_FLOOR);
}

Test(engine_logits, top_is_sorted_with_ties_by_lower_id) {
    float logits[9] = {1, 3, 2, 3, NAN, -INFINITY, 2, 0, 3};
    const quire_token want[9] = {1, 3, 8, 2, 6, 0, 7, 4, 5};
    qr_logits_summary s;
    quire_token_logprob top[QUIRE_TOP_LOGPROBS_MAX];
    cr_assert(qr_logits_summarize(logits, 9, &s));
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
        cr_assert(qr_logits_summarize(logits, 300, &s));
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
