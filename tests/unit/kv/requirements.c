/* The requirements R01 to R07 on the manager's side, by their numbers (docs/REQUIREMENTS.md). */
#include <criterion/criterion.h>
#include <string.h>

#include "base/random.h"
#include "tests/unit/kv/kv_rig.h"

Test(kv_requirements, R01_a_cached_prompt_still_computes_its_last_token) {
    static const uint32_t lengths[] = {1, 15, 16, 17, 31, 32, 33};
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        quire_token tokens[40];
        uint32_t count = lengths[i], whole = (count - 1) / RIG_BLOCK;
        rig_count_up(tokens, count, (quire_token)(1000 * i));
        cr_assert_eq(rig_run(kv, 0, tokens, count, count - 1).token_count, 0);
        for (int again = 0; again < 2; again++) {
            quire_kv_match match = rig_run(kv, 0, tokens, count, count - 1);
            /* A prompt of whole blocks finds all of them and gives up one token; a partial block is never stored. */
            uint32_t expected = count % RIG_BLOCK == 0 ? count - 1 : whole * RIG_BLOCK;
            cr_assert(match.token_count == expected && match.block_count == whole && match.token_count < count);
        }
    }
    rig_destroy(kv);
}

Test(kv_requirements, R01_one_more_token_hits_all_whole_blocks) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[33];
    rig_count_up(tokens, 33, 1);
    rig_run(kv, 0, tokens, 32, 31);
    quire_kv_match match = rig_run(kv, 0, tokens, 33, 32);
    cr_assert(match.token_count == 32 && match.block_count == 2 && match.miss == QUIRE_KV_MISS_LIMIT);
    rig_destroy(kv);
}

Test(kv_requirements, R02_only_an_unbroken_prefix_is_reused) {
    quire_kv_config config = rig_config();
    config.block_tokens = 2;
    quire_kv *kv = rig_create(&config);
    static const quire_token cached[] = {10, 11, 12, 13, 14, 15, 16, 17, 18}, changed[] = {10, 11, 14, 15, 17, 18};
    rig_run(kv, 0, cached, 9, 8);
    quire_kv_match match = rig_match(kv, 0, changed, 6);
    cr_assert(match.token_count == 2 && match.tail_tokens == 0 && match.miss == QUIRE_KV_MISS_DIVERGED);
    rig_destroy(kv);
}

Test(kv_requirements, R03_namespaces_never_share) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_namespace_id a, b;
    quire_token tokens[64];
    rig_count_up(tokens, 64, 1);
    cr_assert_eq(quire_kv_namespace_open(kv, "a", 1, &a), QUIRE_OK);
    cr_assert_eq(quire_kv_namespace_open(kv, "b", 1, &b), QUIRE_OK);
    rig_run(kv, a, tokens, 64, 63);
    quire_kv_match match = rig_match(kv, b, tokens, 64);
    cr_assert(match.token_count == 0 && match.miss == QUIRE_KV_MISS_NAMESPACE);
    cr_assert_eq(rig_match(kv, 0, tokens, 64).token_count, 0);
    cr_assert_eq(rig_match(kv, a, tokens, 64).token_count, 64);
    rig_destroy(kv);
}

/* In the constant-hash build every lookup meets every node: only comparing tokens keeps 50 prompts apart. */
Test(kv_requirements, R03_fifty_prompts_stay_apart_whatever_the_hash) {
    quire_kv_config config = rig_config();
    config.block_count = 256;
    quire_kv *kv = rig_create(&config);
    quire_token tokens[48];
    for (quire_token i = 0; i < 50; i++) {
        rig_count_up(tokens, 48, 1);
        tokens[i % 48] = 1000 + i;
        quire_kv_match match = rig_run(kv, 0, tokens, 48, 47);
        cr_assert(match.token_count <= (uint32_t)i % 48 || i >= 48);
    }
    for (quire_token i = 0; i < 50; i++) {
        rig_count_up(tokens, 48, 1);
        tokens[i % 48] = 1000 + i;
        cr_assert_eq(rig_match(kv, 0, tokens, 48).token_count, 48);
        tokens[47] = -5;
        cr_assert_leq(rig_match(kv, 0, tokens, 48).token_count, 47);
    }
    rig_destroy(kv);
}

/* R04: a chunk that was reserved and never committed leaves nothing to match. */
Test(kv_requirements, R04_only_committed_tokens_can_be_matched) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[512];
    quire_seq_id seq;
    rig_count_up(tokens, 512, 1);
    cr_assert_eq(quire_kv_seq_open(kv, 0, &seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_reserve(kv, seq, 512), QUIRE_OK);
    cr_assert_eq(rig_match(kv, 0, tokens, 512).token_count, 0);
    cr_assert_eq(quire_kv_seq_commit(kv, seq, tokens, 128), QUIRE_OK);
    rig_close(kv, seq);
    cr_assert_eq(rig_match(kv, 0, tokens, 512).token_count, 128);
    cr_assert_eq(rig_stats(kv).block_cached, 8);
    rig_destroy(kv);
}

static void check_eviction_from_the_tail(quire_kv_policy policy, uint32_t chunk) {
    quire_kv_config config = rig_config();
    config.block_count = 3;
    config.policy = policy;
    quire_kv *kv = rig_create(&config);
    quire_token tokens[48];
    quire_seq_id seq, other;
    rig_count_up(tokens, 48, 1);
    cr_assert_eq(quire_kv_seq_open(kv, 0, &seq), QUIRE_OK);
    for (uint32_t done = 0; done < 48; done += chunk) {
        cr_assert_eq(quire_kv_seq_reserve(kv, seq, done + chunk), QUIRE_OK);
        cr_assert_eq(quire_kv_seq_commit(kv, seq, tokens + done, chunk), QUIRE_OK);
    }
    rig_close(kv, seq);
    cr_assert_eq(quire_kv_seq_open(kv, 0, &other), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_reserve(kv, other, 1), QUIRE_OK);
    quire_kv_match match = rig_match(kv, 0, tokens, 48);
    cr_assert(match.block_count == 2 && match.miss == QUIRE_KV_MISS_EVICTED);
    rig_destroy(kv);
}

Test(kv_requirements, R05_the_tail_of_a_chain_goes_first) {
    check_eviction_from_the_tail(QUIRE_KV_LRU, 48);
    check_eviction_from_the_tail(QUIRE_KV_LRU, 16);
    check_eviction_from_the_tail(QUIRE_KV_LRU, 8);
    check_eviction_from_the_tail(QUIRE_KV_DLFU, 48);
    check_eviction_from_the_tail(QUIRE_KV_DLFU, 16);
}

Test(kv_requirements, R05_an_attached_path_survives_evicting_everything) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[64], other[64];
    quire_seq_id seq;
    quire_kv_match match;
    rig_count_up(tokens, 64, 1);
    rig_count_up(other, 64, 900);
    rig_run(kv, 0, tokens, 64, 63);
    rig_run(kv, 0, other, 64, 63);
    cr_assert_eq(quire_kv_seq_open(kv, 0, &seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_attach(kv, seq, tokens, 64, 64, &match), QUIRE_OK);
    cr_assert_eq(quire_kv_evict(kv, UINT32_MAX), 4);
    cr_assert_eq(rig_match(kv, 0, tokens, 64).block_count, 4);
    cr_assert_eq(rig_match(kv, 0, other, 64).block_count, 0);
    rig_destroy(kv);
}

/* R05: a hit is what attach says when it runs, never what a match said before. */
Test(kv_requirements, R05_an_old_match_promises_nothing) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[64];
    rig_count_up(tokens, 64, 1);
    rig_run(kv, 0, tokens, 64, 63);
    cr_assert_eq(rig_match(kv, 0, tokens, 64).token_count, 64);
    quire_kv_evict(kv, UINT32_MAX);
    quire_kv_match match = rig_run(kv, 0, tokens, 64, 63);
    cr_assert(match.token_count == 0 && match.miss == QUIRE_KV_MISS_EVICTED);
    rig_destroy(kv);
}

Test(kv_requirements, R06_matches_end_on_blocks_plus_a_tail) {
    quire_kv_config config = rig_config();
    config.block_tokens = 4;
    quire_kv *kv = rig_create(&config);
    static const quire_token stored[] = {1, 2, 3, 4, 5, 6, 7, 8}, wanted[] = {1, 2, 3, 4, 5, 6, 99};
    rig_run(kv, 0, stored, 8, 8);
    quire_kv_match match = rig_match(kv, 0, wanted, 7);
    cr_assert(match.block_count == 1 && match.tail_tokens == 2 && match.token_count == 6);
    match = rig_match(kv, 0, stored, 8);
    cr_assert(match.block_count == 2 && match.tail_tokens == 0, "an exact multiple has a full last block");
    rig_destroy(kv);
    kv = rig_create(&config);
    rig_run(kv, 0, stored, 3, 3);
    cr_assert_eq(rig_match(kv, 0, stored, 3).token_count, 0, "three tokens fill no block of four");
    rig_destroy(kv);
}

Test(kv_requirements, R06_a_recycled_block_is_not_found_under_its_old_tokens) {
    quire_kv_config config = rig_config();
    config.block_count = 2;
    quire_kv *kv = rig_create(&config);
    quire_token old[32], new[32];
    rig_count_up(old, 32, 1);
    rig_count_up(new, 32, 500);
    rig_run(kv, 0, old, 32, 32);
    rig_run(kv, 0, new, 32, 32);
    cr_assert_eq(rig_match(kv, 0, old, 32).token_count, 0);
    cr_assert_eq(rig_match(kv, 0, new, 32).token_count, 32);
    rig_destroy(kv);
}

/* Ends a sequence in one of the ways that a request can end. */
static void end_somehow(quire_kv *kv, qr_random *random, quire_seq_id seq, const quire_token *tokens) {
    quire_seq_id child;
    switch (qr_random_below(random, 4)) {
    case 0: break;                                                                     /* cancelled with room reserved */
    case 1: cr_assert_neq(quire_kv_seq_reserve(kv, seq, UINT32_MAX), QUIRE_OK); break; /* allocation failed */
    case 2:
        if (quire_kv_seq_fork(kv, seq, &child) != QUIRE_OK) break;
        rig_close(kv, child);
        cr_assert_eq(quire_kv_seq_close(kv, child), QUIRE_NOT_FOUND);
        break;
    default:
        if (quire_kv_seq_reserve(kv, seq, 60) == QUIRE_OK) cr_assert_eq(quire_kv_seq_commit(kv, seq, tokens + 40, 5), QUIRE_OK);
        cr_assert_eq(quire_kv_seq_truncate(kv, seq, qr_random_below(random, 40)), QUIRE_OK);
    }
    rig_close(kv, seq);
}

Test(kv_requirements, R07_a_thousand_mixed_endings_leave_no_used_block) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    qr_random random = {7};
    quire_token tokens[64];
    for (int i = 0; i < 1000; i++) {
        quire_seq_id seq;
        rig_count_up(tokens, 64, (quire_token)qr_random_below(&random, 50));
        rig_start(kv, 0, tokens, 40, 39, &seq);
        end_somehow(kv, &random, seq, tokens);
        cr_assert_eq(quire_kv_check(kv, NULL), QUIRE_OK);
    }
    quire_kv_stats stats = rig_stats(kv);
    cr_assert(stats.block_used == 0 && stats.sequence_count == 0);
    cr_assert_eq(stats.block_free + stats.block_cached, stats.block_total);
    rig_destroy(kv);
}

Test(kv_requirements, R07_failing_between_match_and_allocation_leaks_nothing) {
    quire_kv_config config = rig_config();
    config.block_count = 4;
    quire_kv *kv = rig_create(&config);
    quire_token tokens[64], other[64];
    quire_seq_id holder, seq;
    quire_kv_match match;
    rig_count_up(tokens, 64, 1);
    rig_count_up(other, 64, 700);
    rig_run(kv, 0, tokens, 32, 32);
    rig_start(kv, 0, other, 32, 32, &holder);
    cr_assert_eq(quire_kv_seq_open(kv, 0, &seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_attach(kv, seq, tokens, 64, 63, &match), QUIRE_OK);
    cr_assert_eq(match.token_count, 32);
    quire_kv_stats before = rig_stats(kv);
    cr_assert_eq(quire_kv_seq_reserve(kv, seq, 64), QUIRE_NO_BLOCKS);
    quire_kv_stats after = rig_stats(kv);
    cr_assert_arr_eq(&before, &after, sizeof before, "nothing changed");
    rig_close(kv, seq);
    rig_close(kv, holder);
    cr_assert_eq(rig_stats(kv).block_cached, 4);
    rig_destroy(kv);
}

Test(kv_requirements, R07_two_forks_free_cleanly_and_only_once) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[40];
    quire_seq_id parent, child;
    rig_count_up(tokens, 40, 1);
    rig_start(kv, 0, tokens, 40, 39, &parent);
    cr_assert_eq(quire_kv_seq_fork(kv, parent, &child), QUIRE_OK);
    cr_assert_eq(rig_stats(kv).block_used, 3, "all three blocks are shared, the part-filled one too");
    rig_close(kv, parent);
    cr_assert_eq(rig_stats(kv).block_used, 3);
    cr_assert_eq(quire_kv_seq_close(kv, parent), QUIRE_NOT_FOUND);
    rig_close(kv, child);
    cr_assert_eq(quire_kv_seq_close(kv, child), QUIRE_NOT_FOUND);
    quire_kv_stats stats = rig_stats(kv);
    cr_assert(stats.block_used == 0 && stats.block_cached == 2 && stats.block_free == 62);
    rig_destroy(kv);
}

Test(kv_requirements, R08_what_can_never_fit_is_told_from_what_does_not_fit_now) {
    quire_kv_config config = rig_config();
    config.max_sequence_tokens = 4096;
    quire_kv *kv = rig_create(&config);
    quire_seq_id a, b;
    cr_assert_eq(quire_kv_seq_open(kv, 0, &a), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_open(kv, 0, &b), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_reserve(kv, a, 64 * 16 + 1), QUIRE_TOO_LARGE);
    cr_assert_eq(quire_kv_seq_reserve(kv, a, 1000), QUIRE_OK); /* 63 blocks */
    cr_assert_eq(quire_kv_seq_reserve(kv, b, 17), QUIRE_NO_BLOCKS);
    cr_assert_eq(quire_kv_seq_reserve(kv, b, 16), QUIRE_OK);
    rig_destroy(kv);
}
