/* kv_prefix_reuse.c - Quire's KV manager inside another engine.
 *
 * The engine here is a stand-in: instead of running a model it "computes" the K and V of a token by writing numbers that
 * depend on the token and its position. Everything around it is what a real engine does: two chats share a system
 * prompt, the second finds it cached and computes only its own question, and both read exactly the bytes that a cold
 * run would have written.
 *
 *   cc kv_prefix_reuse.c $(pkg-config --cflags --libs quire-kv) && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>

#include <quire/kv.h>

enum { BLOCK_TOKENS = 16, LAYERS = 2, KV_HEADS = 2, HEAD_DIM = 8, SYSTEM_TOKENS = 70, QUESTION_TOKENS = 20 };

static void must(quire_status status, const char *what) {
    if (status == QUIRE_OK) return;
    fprintf(stderr, "%s: %s\n", what, quire_status_message(status));
    exit(1);
}

static quire_kv *create_manager(void) {
    quire_kv_config config = {
        .block_tokens = BLOCK_TOKENS,
        .group_count = 1,
        .groups = {{.layer_count = LAYERS,
                    .kv_head_count = KV_HEADS,
                    .key_dim = HEAD_DIM,
                    .value_dim = HEAD_DIM,
                    .key_type = QUIRE_KV_F32,
                    .value_type = QUIRE_KV_F32}},
        .block_count = 64,
        .max_sequences = 8,
        .max_sequence_tokens = 512,
        .policy = QUIRE_KV_DLFU,
        .storage = QUIRE_KV_STORAGE_HOST,
    };
    quire_kv *kv;
    quire_error error;
    if (quire_kv_create(&config, &kv, &error) != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", error.source, error.text);
        exit(1);
    }
    printf("KV memory: %llu bytes, %llu per token\n", (unsigned long long)quire_kv_memory_bytes(&config),
           (unsigned long long)quire_kv_token_bytes(&config));
    return kv;
}

/* Keys lie [head_dim][block_tokens], values [block_tokens][head_dim]. */
static float *element(quire_kv *kv, quire_seq_id seq, uint32_t layer, uint32_t head, quire_kv_part part, uint32_t position,
                      uint32_t dim) {
    size_t stride;
    uint32_t count, slot = position % BLOCK_TOKENS;
    char *base = quire_kv_pool_base(kv, 0, &stride);
    const quire_block_id *table = quire_kv_seq_table(kv, seq, 0, &count);
    float *data =
        (float *)(void *)(base + table[position / BLOCK_TOKENS] * stride + quire_kv_part_offset(kv, 0, layer, head, part));
    return part == QUIRE_KV_KEYS ? &data[dim * BLOCK_TOKENS + slot] : &data[slot * HEAD_DIM + dim];
}

/* What a model would compute: any function of the tokens up to here. */
static float expected(quire_token token, uint32_t layer, uint32_t head, quire_kv_part part, uint32_t position, uint32_t dim) {
    return (float)token + 0.5f * (float)position + (float)(layer * 7 + head * 5 + (uint32_t)part * 3 + dim);
}

static void for_each_element(quire_kv *kv, quire_seq_id seq, const quire_token *tokens, uint32_t from, uint32_t to, int write) {
    for (uint32_t position = from; position < to; position++)
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            for (uint32_t head = 0; head < KV_HEADS; head++)
                for (int part = QUIRE_KV_KEYS; part <= QUIRE_KV_VALUES; part++)
                    for (uint32_t dim = 0; dim < HEAD_DIM; dim++) {
                        float *at = element(kv, seq, layer, head, (quire_kv_part)part, position, dim);
                        float value = expected(tokens[position], layer, head, (quire_kv_part)part, position, dim);
                        if (write) *at = value;
                        if (*at != value) must(QUIRE_CORRUPT, "cached bytes differ from a cold run");
                    }
}

/* One prompt through the engine. Returns the tokens that had to be computed. */
static uint32_t run_prompt(quire_kv *kv, const char *name, const quire_token *tokens, uint32_t count) {
    quire_seq_id seq;
    quire_kv_match match;
    must(quire_kv_seq_open(kv, 0, &seq), "open");
    /* count - 1: the last token must be computed, its logits are wanted. */
    must(quire_kv_seq_attach(kv, seq, tokens, count, count - 1, &match), "attach");
    must(quire_kv_seq_reserve(kv, seq, count), "reserve");
    for_each_element(kv, seq, tokens, match.token_count, count, 1);
    must(quire_kv_seq_commit(kv, seq, tokens + match.token_count, count - match.token_count), "commit");
    for_each_element(kv, seq, tokens, 0, count, 0);
    printf("%s: %u tokens, %u cached (%u whole blocks and a tail of %u), then: %s\n", name, count, match.token_count,
           match.block_count, match.tail_tokens, quire_kv_miss_name(match.miss));
    must(quire_kv_seq_close(kv, seq), "close");
    return count - match.token_count;
}

static void make_prompt(quire_token *tokens, quire_token question) {
    for (uint32_t i = 0; i < SYSTEM_TOKENS; i++) tokens[i] = (quire_token)(1000 + i);
    for (uint32_t i = 0; i < QUESTION_TOKENS; i++) tokens[SYSTEM_TOKENS + i] = (quire_token)(question + (quire_token)i);
}

int main(void) {
    quire_token first[SYSTEM_TOKENS + QUESTION_TOKENS], second[SYSTEM_TOKENS + QUESTION_TOKENS];
    quire_kv *kv = create_manager();
    make_prompt(first, 1);
    make_prompt(second, 500);

    uint32_t cold = run_prompt(kv, "first chat", first, SYSTEM_TOKENS + QUESTION_TOKENS);
    uint32_t shared = run_prompt(kv, "second chat", second, SYSTEM_TOKENS + QUESTION_TOKENS);
    uint32_t again = run_prompt(kv, "first chat again", first, SYSTEM_TOKENS + QUESTION_TOKENS);

    quire_kv_stats stats;
    quire_kv_get_stats(kv, &stats);
    printf("blocks: %u free + %u cached + %u used = %u\n", stats.block_free, stats.block_cached, stats.block_used,
           stats.block_total);
    must(quire_kv_check(kv, NULL), "check");
    quire_kv_destroy(kv);
    /* The system prompt is 4 whole blocks and 6 tokens of the fifth, all of them reused. */
    return cold == SYSTEM_TOKENS + QUESTION_TOKENS && shared == QUESTION_TOKENS && again < QUESTION_TOKENS ? 0 : 1;
}
