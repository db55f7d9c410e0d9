#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/unit/kv/kv_rig.h"

Test(kv_match, every_cause_has_a_name) {
    for (int i = 0; i < QUIRE_KV_MISS_COUNT; i++) cr_assert_not_null(quire_kv_miss_name((quire_kv_miss)i));
    cr_assert_str_eq(quire_kv_miss_name(QUIRE_KV_MISS_NAMESPACE), "other_namespace");
    cr_assert_str_eq(quire_kv_miss_name((quire_kv_miss)99), "unknown");
}

Test(kv_match, says_why_it_ends) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[64], other[64];
    rig_count_up(tokens, 64, 1);
    rig_count_up(other, 64, 1);
    cr_assert_eq(rig_match(kv, 0, tokens, 64).miss, QUIRE_KV_MISS_NEVER_STORED);
    cr_assert_eq(rig_match(kv, 0, NULL, 0).miss, QUIRE_KV_MISS_NONE);
    rig_run(kv, 0, tokens, 48, 48);
    cr_assert_eq(rig_match(kv, 0, tokens, 48).miss, QUIRE_KV_MISS_NONE);
    cr_assert_eq(rig_match(kv, 0, tokens, 64).miss, QUIRE_KV_MISS_NEVER_STORED);
    other[40] = -1;
    cr_assert_eq(rig_match(kv, 0, other, 64).miss, QUIRE_KV_MISS_DIVERGED);
    other[0] = -1;
    cr_assert_eq(rig_match(kv, 0, other, 64).miss, QUIRE_KV_MISS_NEVER_STORED, "nothing in common is no divergence");
    cr_assert_eq(quire_kv_evict(kv, 1), 1);
    quire_kv_match match = rig_match(kv, 0, tokens, 64);
    cr_assert(match.miss == QUIRE_KV_MISS_EVICTED && match.block_count == 2);
    cr_assert_eq(rig_match(kv, 17, tokens, 64).token_count, 0, "an unknown namespace has nothing");
    rig_destroy(kv);
}

/* The child with the longest common beginning is found among thousands, and it is the longest. */
Test(kv_match, the_longest_tail_among_many_children) {
    enum { CHILDREN = 2000 };
    quire_kv_config config = rig_config();
    config.block_count = CHILDREN + 1;
    quire_kv *kv = rig_create(&config);
    quire_token tokens[32];
    rig_count_up(tokens, 32, 1);
    srand(3);
    for (int i = 0; i < CHILDREN; i++) {
        for (int k = 16; k < 32; k++) tokens[k] = 5 + rand() % 2;
        rig_run(kv, 0, tokens, 32, 32);
    }
    for (int run = 0; run < 16; run++) {
        quire_seq_id seq;
        for (int k = 16; k < 32; k++) tokens[k] = 9;
        rig_start(kv, 0, tokens, 32, 16, &seq);
        for (int k = 16; k < 16 + run; k++) tokens[k] = 9;
        for (int k = 16 + run; k < 32; k++) tokens[k] = 10;
        quire_kv_match match = rig_match(kv, 0, tokens, 32);
        cr_assert(match.block_count == 1 && match.tail_tokens == (uint32_t)run);
        rig_close(kv, seq);
    }
    rig_destroy(kv);
}

Test(kv_match, reads_without_changing_what_goes_next) {
    quire_kv_config config = rig_config();
    config.block_count = 2;
    quire_kv *kv = rig_create(&config);
    quire_token old[16], new[16], more[16];
    rig_count_up(old, 16, 1);
    rig_count_up(new, 16, 100);
    rig_count_up(more, 16, 200);
    rig_run(kv, 0, old, 16, 16);
    rig_run(kv, 0, new, 16, 16);
    for (int i = 0; i < 100; i++) rig_match(kv, 0, old, 16);
    rig_run(kv, 0, more, 16, 16);
    cr_assert_eq(rig_match(kv, 0, old, 16).token_count, 0, "looking is not using");
    cr_assert_eq(rig_match(kv, 0, new, 16).token_count, 16);
    rig_destroy(kv);
}
