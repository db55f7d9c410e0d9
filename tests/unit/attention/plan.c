#include <criterion/criterion.h>

#include "tests/unit/attention/scene.h"

static const qr_attn_shape good = {9, 3, 64, 64, 16, QUIRE_KV_F16, QUIRE_KV_F16};

Test(attention_plan, shapes_without_kernels_are_refused_by_name) {
    static const struct {
        qr_attn_shape shape;
        const char *source;
    } bad[] = {
        {{9, 0, 64, 64, 16, QUIRE_KV_F16, QUIRE_KV_F16}, "head_count"},
        {{0, 3, 64, 64, 16, QUIRE_KV_F16, QUIRE_KV_F16}, "head_count"},
        {{8, 3, 64, 64, 16, QUIRE_KV_F16, QUIRE_KV_F16}, "head_count"},
        {{9, 3, 72, 64, 16, QUIRE_KV_F16, QUIRE_KV_F16}, "key_dim"},
        {{9, 3, 64, 0, 16, QUIRE_KV_F16, QUIRE_KV_F16}, "key_dim"},
        {{9, 3, 272, 64, 16, QUIRE_KV_F16, QUIRE_KV_F16}, "key_dim"},
        {{9, 3, 64, 64, 24, QUIRE_KV_F16, QUIRE_KV_F16}, "block_tokens"},
        {{9, 3, 64, 64, 256, QUIRE_KV_F16, QUIRE_KV_F16}, "block_tokens"},
        {{9, 3, 64, 64, 16, QUIRE_KV_INT8, QUIRE_KV_F16}, "kv_type"},
        {{9, 3, 64, 64, 16, QUIRE_KV_F16, QUIRE_KV_FP8_E4M3}, "kv_type"},
    };
    qr_attn_limits limits = {8, 8, 100, 2};
    cr_assert_eq(qr_attn_shape_check(&good, NULL), QUIRE_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        quire_error error;
        qr_attn_plan *plan;
        cr_assert_eq(qr_attn_plan_create(&bad[i].shape, &limits, &plan, &error), QUIRE_UNSUPPORTED);
        cr_assert_null(plan);
        cr_assert_str_eq(error.source, bad[i].source);
        cr_assert_eq(qr_attn_plan_bytes(&bad[i].shape, &limits), 0);
    }
}

Test(attention_plan, limits_must_be_sensible) {
    static const qr_attn_limits bad[] = {{0, 1, 1, 1}, {1, 0, 1, 1}, {1, 1, 0, 1}, {1, 1, 1, 0}, {1, 1, 1, 100000}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        qr_attn_plan *plan;
        cr_assert_eq(qr_attn_plan_create(&good, &bad[i], &plan, NULL), QUIRE_INVALID);
        cr_assert_eq(qr_attn_plan_bytes(&good, &bad[i]), 0);
    }
}

/* 512 decode rows of 100,000 tokens would need 200,000 cells if every span were stored. */
Test(attention_plan, memory_is_bounded_whatever_the_context) {
    qr_attn_limits limits = {512, 512, 100000, 2};
    uint64_t cell = 9 * (64 + 64 * 4);
    cr_assert_lt(qr_attn_plan_bytes(&good, &limits), 2048 * cell + (2u << 20));
    limits.tokens_max = 1000; /* short contexts: no more than there can be */
    limits.rows_max = 4;
    cr_assert_lt(qr_attn_plan_bytes(&good, &limits), 16 * cell + (1u << 18));
}

Test(attention_plan, takes_what_it_says) {
    qr_attn_limits limits = {64, 64, 8192, 3};
    qr_attn_plan *plan;
    cr_assert_eq(qr_attn_plan_create(&good, &limits, &plan, NULL), QUIRE_OK);
    uint64_t taken = plan->region.size_bytes + sizeof *plan, said = qr_attn_plan_bytes(&good, &limits);
    cr_assert(taken >= said && taken - said < 4u << 20, "said %llu, took %llu", (unsigned long long)said,
              (unsigned long long)taken); /* a region is rounded up to pages */
    qr_attn_plan_destroy(plan);
    qr_attn_plan_destroy(NULL);
}
