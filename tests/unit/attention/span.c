/* Kernels on scores chosen by hand: at the edge where weights become 0, infinite, and NaN. */
#include <criterion/criterion.h>

#include "tests/unit/attention/scene.h"

enum { DIM = 16, TOKENS = 48 };

typedef struct hand_call {
    float key[TOKENS / 16][DIM][16], value[TOKENS][DIM];
    _Alignas(64) float q[QR_SPAN_STRIDE], weights[QR_SPAN_STRIDE];
    _Alignas(64) float part[(sizeof(qr_attn_part) / sizeof(float)) + DIM];
} hand_call;

/* Score t is score[t] exactly: q and keys are 0 but for element 0. */
static void run_hand(const qr_attn_path *path, const float *score, hand_call *hand) {
    memset(hand, 0, sizeof *hand);
    qr_span span = {.key_stride = 64, .value_stride = DIM * 4, .key_dim = DIM, .value_dim = DIM, .row_count = 1};
    for (uint32_t t = 0; t < TOKENS; t++) {
        hand->key[t / 16][0][t % 16] = score[t];
        for (int d = 0; d < DIM; d++) hand->value[t][d] = 1.0f / (float)(1 + t + (uint32_t)d);
    }
    for (uint32_t g = 0; g < TOKENS / 16; g++) {
        span.key[g] = (const uint8_t *)hand->key[g];
        span.value[g] = (const uint8_t *)hand->value[g * 16];
    }
    hand->q[0] = 1;
    span.limit[0] = TOKENS;
    span.q = hand->q;
    span.weights = hand->weights;
    span.part[0] = (qr_attn_part *)(void *)hand->part;
    path->span(&span);
}

static void check_scores(const float *score, const char *name) {
    static const char *const paths[] = {"avx2", "avx512"};
    static hand_call expect, got;
    run_hand(&qr_attn_path_scalar, score, &expect);
    for (size_t p = 0; p < 2; p++) {
        if (!scene_path(paths[p])) continue;
        run_hand(scene_path(paths[p]), score, &got);
        for (size_t i = 0; i < sizeof got.part / sizeof *got.part; i++) {
            bool same = isnan(expect.part[i]) ? isnan(got.part[i]) : qr_f32_bits(expect.part[i]) == qr_f32_bits(got.part[i]);
            cr_assert(same, "%s, %s: float %zu is %g, not %g", name, paths[p], i, (double)got.part[i], (double)expect.part[i]);
        }
    }
}

Test(attention_span, weights_end_at_exactly_minus_64) {
    float score[TOKENS];
    for (uint32_t t = 0; t < TOKENS; t++) score[t] = -63.0f - (float)t * 0x1p-5f;
    score[40] = nextafterf(-64, -65);
    score[17] = 0;
    check_scores(score, "edge");
    for (uint32_t t = 0; t < TOKENS; t++) score[t] = t == 5 ? 3 : -61; /* the smallest weight that counts */
    check_scores(score, "smallest");
    static hand_call hand;
    run_hand(&qr_attn_path_scalar, score, &hand);
    cr_assert_eq(hand.part[1], 1 + 0x1p-64f * (TOKENS - 1));
    cr_assert_eq(hand.weights[0], 0x1p-64f);
    const char *fast = scene_path("avx2") ? "avx2" : "scalar";
    run_hand(scene_path(fast), score, &hand);
    cr_assert_eq(hand.weights[0], 0x1p-64f, "a difference of exactly -64 has a weight");
}

Test(attention_span, odd_scores_are_odd_in_every_path) {
    static const float odd[] = {INFINITY, -INFINITY, NAN, 3e38f, -3e38f, 0x1p-149f};
    float score[TOKENS];
    for (size_t a = 0; a < sizeof odd / sizeof *odd; a++)
        for (size_t b = 0; b < sizeof odd / sizeof *odd; b++) {
            for (uint32_t t = 0; t < TOKENS; t++) score[t] = t % 16 == 3 ? odd[a] : t == 33 ? odd[b] : (float)t * 0.1f;
            check_scores(score, "odd");
            for (uint32_t t = 0; t < TOKENS; t++) score[t] = odd[a];
            check_scores(score, "all odd");
        }
}
