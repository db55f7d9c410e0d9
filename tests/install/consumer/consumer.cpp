// The same from C++, where the headers must be valid too.
#include <quire/kv.h>
#include <quire/status.h>
#include <quire/types.h>

#include <cstdio>
#include <vector>

int main() {
    quire_kv_config config = {};
    config.block_tokens = 4;
    config.group_count = 1;
    config.block_count = 8;
    config.max_sequences = 2;
    config.max_sequence_tokens = 32;
    config.storage = QUIRE_KV_STORAGE_NONE;
    const std::vector<quire_token> tokens = {1, 2, 3, 4, 5};
    quire_kv *kv = nullptr;
    quire_seq_id seq;
    quire_kv_match match;
    if (quire_kv_create(&config, &kv, nullptr) != QUIRE_OK) return 1;
    bool ok = quire_kv_seq_open(kv, 0, &seq) == QUIRE_OK && quire_kv_seq_reserve(kv, seq, 5) == QUIRE_OK &&
              quire_kv_seq_commit(kv, seq, tokens.data(), 5) == QUIRE_OK && quire_kv_seq_close(kv, seq) == QUIRE_OK;
    quire_kv_match_prefix(kv, 0, tokens.data(), 5, 5, &match);
    std::printf("%u tokens cached, then %s\n", match.token_count, quire_kv_miss_name(match.miss));
    ok = ok && match.token_count == 4 && quire_kv_check(kv, nullptr) == QUIRE_OK;
    quire_kv_destroy(kv);
    return ok ? 0 : 1;
}
