/* Uses an installed libquire-kv as its documentation says. */
#include <quire/kv.h>

#include <stdio.h>

static int fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    return 1;
}

int main(void) {
    quire_kv_config config = {.block_tokens = 4,
                              .group_count = 1,
                              .groups = {{1, 1, 8, 8, QUIRE_KV_F16, QUIRE_KV_F16}},
                              .block_count = 8,
                              .max_sequences = 2,
                              .max_sequence_tokens = 32,
                              .storage = QUIRE_KV_STORAGE_HOST};
    const quire_token tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    quire_kv *kv;
    quire_seq_id seq;
    quire_kv_match match;
    quire_error error;
    if (quire_kv_create(&config, &kv, &error) != QUIRE_OK) return fail(error.text);
    if (quire_kv_seq_open(kv, 0, &seq) != QUIRE_OK) return fail("open");
    if (quire_kv_seq_reserve(kv, seq, 8) != QUIRE_OK) return fail("reserve");
    if (quire_kv_seq_commit(kv, seq, tokens, 8) != QUIRE_OK) return fail("commit");
    if (quire_kv_seq_close(kv, seq) != QUIRE_OK) return fail("close");
    quire_kv_match_prefix(kv, 0, tokens, 8, 7, &match);
    if (match.token_count != 7 || match.block_count != 1 || match.miss != QUIRE_KV_MISS_LIMIT) return fail("match");
    if (quire_kv_check(kv, &error) != QUIRE_OK) return fail(error.text);
    quire_kv_destroy(kv);
    return 0;
}
