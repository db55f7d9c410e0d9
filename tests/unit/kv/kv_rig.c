#include "tests/unit/kv/kv_rig.h"

#include <criterion/criterion.h>

quire_kv_config rig_config(void) {
    return (quire_kv_config){.block_tokens = RIG_BLOCK,
                             .group_count = 1,
                             .groups = {{1, 1, 1, 1, QUIRE_KV_F32, QUIRE_KV_F32}},
                             .block_count = 64,
                             .max_sequences = 8,
                             .max_sequence_tokens = RIG_TOKENS,
                             .max_namespaces = 4,
                             .policy = QUIRE_KV_LRU,
                             .storage = QUIRE_KV_STORAGE_HOST};
}

quire_kv *rig_create(const quire_kv_config *config) {
    quire_kv *kv;
    quire_error error;
    cr_assert_eq(quire_kv_create(config, &kv, &error), QUIRE_OK, "%s", error.text);
    return kv;
}

void rig_destroy(quire_kv *kv) {
    quire_error error;
    cr_assert_eq(quire_kv_check(kv, &error), QUIRE_OK, "%s", error.text);
    quire_kv_destroy(kv);
}

void rig_count_up(quire_token *tokens, uint32_t count, quire_token first) {
    for (uint32_t i = 0; i < count; i++) tokens[i] = first + (quire_token)i;
}

quire_kv_match rig_start(quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count, uint32_t limit,
                         quire_seq_id *seq) {
    quire_kv_match match;
    cr_assert_eq(quire_kv_seq_open(kv, ns, seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_attach(kv, *seq, tokens, count, limit, &match), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_reserve(kv, *seq, count), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_commit(kv, *seq, tokens + match.token_count, count - match.token_count), QUIRE_OK);
    return match;
}

quire_kv_match rig_run(quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count, uint32_t limit) {
    quire_seq_id seq;
    quire_kv_match match = rig_start(kv, ns, tokens, count, limit, &seq);
    rig_close(kv, seq);
    return match;
}

quire_kv_match rig_match(const quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count) {
    quire_kv_match match;
    quire_kv_match_prefix(kv, ns, tokens, count, count, &match);
    return match;
}

quire_kv_stats rig_stats(const quire_kv *kv) {
    quire_kv_stats stats;
    quire_kv_get_stats(kv, &stats);
    return stats;
}

void rig_close(quire_kv *kv, quire_seq_id seq) { cr_assert_eq(quire_kv_seq_close(kv, seq), QUIRE_OK); }
