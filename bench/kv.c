/* kv.c - microbenchmarks of the KV manager: one JSON line per case, min and median over repetitions.
 *
 * The pool has 131,072 blocks of 16 tokens (2 million tokens, a large machine), so the tree does not fit in a cache. No
 * KV bytes are moved. Arguments: [repetitions] [only cases that contain this text].
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quire/kv.h>

#include "base/assertion.h"
#include "base/clock.h"
#include "base/random.h"
#include "blockmgr/pool.h"

enum {
    BLOCK_TOKENS = 16,
    BLOCKS = 131072,
    PROMPT_TOKENS = 8192,
    PROMPTS = BLOCKS / (PROMPT_TOKENS / BLOCK_TOKENS),
    CHILDREN = 65536,
    REPEATS_MAX = 64,
    POOL_ROUNDS = 4000,
    POOL_LIVE = 256
};

typedef struct bench_state {
    int repeats;
    const char *only;
    quire_token *tokens; /* [PROMPTS][PROMPT_TOKENS] */
    qr_random random;
} bench_state;

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs `once`, which returns nanoseconds, and reports them divided by `units`. */
static void report(bench_state *state, const char *name, double (*once)(bench_state *state), double units, const char *unit,
                   double tokens_per_unit) {
    double times[REPEATS_MAX];
    if (state->only && !strstr(name, state->only)) return;
    once(state); /* warm */
    for (int i = 0; i < state->repeats; i++) times[i] = once(state) / units;
    qsort(times, (size_t)state->repeats, sizeof *times, compare_doubles);
    double median = times[state->repeats / 2];
    printf("{\"bench\":\"kv\",\"case\":\"%s\",\"unit\":\"%s\",\"min_ns\":%.2f,\"median_ns\":%.2f", name, unit, times[0],
           median);
    if (tokens_per_unit > 0) printf(",\"median_tokens_per_s\":%.0f", tokens_per_unit / median * 1e9);
    printf(",\"repeats\":%d}\n", state->repeats);
}

/* ---- the pool alone ---- */

/* A steady state of POOL_LIVE blocks: give one back, take one. */
static double pool_alloc_free(bench_state *state) {
    qr_pool pool;
    qr_arena arena = {0};
    quire_block_id live[POOL_LIVE];
    uint32_t order[POOL_LIVE];
    qr_pool_init(&pool, BLOCKS, &arena);
    void *memory = calloc(1, arena.used_bytes);
    arena = (qr_arena){.base = memory, .size_bytes = arena.used_bytes};
    qr_pool_init(&pool, BLOCKS, &arena);
    for (int i = 0; i < POOL_LIVE; i++) live[i] = qr_pool_alloc(&pool), order[i] = qr_random_below(&state->random, POOL_LIVE);
    uint64_t start = qr_clock_ns();
    for (int round = 0; round < POOL_ROUNDS; round++)
        for (int i = 0; i < POOL_LIVE; i++) {
            quire_status status = qr_pool_unref(&pool, live[order[i]], NULL);
            QR_ASSERT(status == QUIRE_OK);
            live[order[i]] = qr_pool_alloc(&pool);
        }
    double ns = (double)(qr_clock_ns() - start);
    free(memory);
    return ns;
}

/* ---- the manager ---- */

static quire_kv *create(quire_kv_policy policy, uint32_t blocks) {
    quire_kv_config config = {.block_tokens = BLOCK_TOKENS,
                              .group_count = 1,
                              .block_count = blocks,
                              .max_sequences = 64,
                              .max_sequence_tokens = PROMPT_TOKENS,
                              .policy = policy,
                              .storage = QUIRE_KV_STORAGE_NONE};
    quire_kv *kv;
    quire_status status = quire_kv_create(&config, &kv, NULL);
    QR_ASSERT(status == QUIRE_OK);
    return kv;
}

static void must(quire_status status) { QR_ASSERT(status == QUIRE_OK); }

static void run_prompt(quire_kv *kv, const quire_token *tokens, uint32_t count) {
    quire_seq_id seq;
    quire_kv_match match;
    must(quire_kv_seq_open(kv, 0, &seq));
    must(quire_kv_seq_attach(kv, seq, tokens, count, count, &match));
    must(quire_kv_seq_reserve(kv, seq, count));
    must(quire_kv_seq_commit(kv, seq, tokens + match.token_count, count - match.token_count));
    must(quire_kv_seq_close(kv, seq));
}

static quire_kv *create_full(const bench_state *state, quire_kv_policy policy) {
    quire_kv *kv = create(policy, BLOCKS);
    for (int i = 0; i < PROMPTS; i++) run_prompt(kv, state->tokens + (size_t)i * PROMPT_TOKENS, PROMPT_TOKENS);
    return kv;
}

/* Every prompt of a full cache once: nodes come from memory, as they do for a prompt that was idle for a while. */
static double match_prefix(bench_state *state) {
    quire_kv *kv = create_full(state, QUIRE_KV_DLFU);
    quire_kv_match match;
    uint64_t start = qr_clock_ns();
    for (int i = 0; i < PROMPTS; i++) {
        quire_kv_match_prefix(kv, 0, state->tokens + (size_t)i * PROMPT_TOKENS, PROMPT_TOKENS, PROMPT_TOKENS, &match);
        QR_ASSERT(match.token_count == PROMPT_TOKENS);
    }
    double ns = (double)(qr_clock_ns() - start);
    quire_kv_destroy(kv);
    return ns;
}

/* Cached prompts again: match, lock, reference, touch, and all of it undone. */
static double attach_close(bench_state *state) {
    quire_kv *kv = create_full(state, QUIRE_KV_DLFU);
    uint64_t start = qr_clock_ns();
    for (int i = 0; i < PROMPTS; i++) run_prompt(kv, state->tokens + (size_t)i * PROMPT_TOKENS, PROMPT_TOKENS);
    double ns = (double)(qr_clock_ns() - start);
    quire_kv_destroy(kv);
    return ns;
}

/* Blocks that nobody has seen, into an empty pool. */
static double commit_insert(bench_state *state) {
    quire_kv *kv = create(QUIRE_KV_DLFU, BLOCKS);
    double ns = 0;
    for (int i = 0; i < PROMPTS; i++) {
        const quire_token *tokens = state->tokens + (size_t)i * PROMPT_TOKENS;
        quire_seq_id seq;
        must(quire_kv_seq_open(kv, 0, &seq));
        must(quire_kv_seq_reserve(kv, seq, PROMPT_TOKENS));
        uint64_t start = qr_clock_ns();
        must(quire_kv_seq_commit(kv, seq, tokens, PROMPT_TOKENS));
        ns += (double)(qr_clock_ns() - start);
        must(quire_kv_seq_close(kv, seq));
    }
    quire_kv_destroy(kv);
    return ns;
}

static double evict_all(const bench_state *state, quire_kv_policy policy) {
    quire_kv *kv = create_full(state, policy);
    uint64_t start = qr_clock_ns();
    uint32_t evicted = quire_kv_evict(kv, BLOCKS);
    double ns = (double)(qr_clock_ns() - start);
    QR_ASSERT(evicted == BLOCKS);
    quire_kv_destroy(kv);
    return ns;
}
static double evict_dlfu(bench_state *state) { return evict_all(state, QUIRE_KV_DLFU); }
static double evict_lru(bench_state *state) { return evict_all(state, QUIRE_KV_LRU); }

/* One shared block with 65,536 continuations: the longest common tail among them. */
static double tail_among_children(bench_state *state) {
    quire_kv *kv = create(QUIRE_KV_DLFU, BLOCKS);
    quire_token prompt[2 * BLOCK_TOKENS];
    quire_kv_match match;
    memcpy(prompt, state->tokens, sizeof prompt);
    for (int i = 0; i < CHILDREN; i++) {
        for (int k = BLOCK_TOKENS; k < 2 * BLOCK_TOKENS; k++) prompt[k] = (quire_token)qr_random_below(&state->random, 4);
        run_prompt(kv, prompt, 2 * BLOCK_TOKENS);
    }
    uint64_t start = qr_clock_ns();
    for (int i = 0; i < CHILDREN; i++) {
        for (int k = BLOCK_TOKENS; k < 2 * BLOCK_TOKENS; k++) prompt[k] = (quire_token)qr_random_below(&state->random, 4);
        quire_kv_match_prefix(kv, 0, prompt, 2 * BLOCK_TOKENS, 2 * BLOCK_TOKENS, &match);
    }
    double ns = (double)(qr_clock_ns() - start);
    quire_kv_destroy(kv);
    return ns;
}

/* What one more block of capacity costs in bookkeeping, from the planner's own figures. */
static void report_bytes(const bench_state *state) {
    quire_kv_config config = {.block_tokens = BLOCK_TOKENS,
                              .group_count = 1,
                              .block_count = BLOCKS,
                              .max_sequences = 64,
                              .max_sequence_tokens = PROMPT_TOKENS,
                              .storage = QUIRE_KV_STORAGE_NONE};
    if (state->only && !strstr("bytes", state->only)) return;
    uint64_t one = quire_kv_memory_bytes(&config);
    config.block_count *= 2;
    uint64_t two = quire_kv_memory_bytes(&config);
    printf(
        "{\"bench\":\"kv\",\"case\":\"bytes\",\"bookkeeping_bytes_per_block\":%.1f,\"bookkeeping_bytes\":%llu,\"blocks\":%d}\n",
        (double)(two - one) / BLOCKS, (unsigned long long)one, BLOCKS);
}

int main(int argc, char **argv) {
    bench_state state = {.repeats = argc > 1 ? atoi(argv[1]) : 5, .only = argc > 2 ? argv[2] : NULL, .random = {1}};
    size_t token_count = (size_t)PROMPTS * PROMPT_TOKENS;
    if (state.repeats < 1 || state.repeats > REPEATS_MAX) state.repeats = 5;
    state.tokens = malloc(token_count * sizeof *state.tokens);
    if (!state.tokens) return 1;
    for (size_t i = 0; i < token_count; i++) state.tokens[i] = (quire_token)qr_random_below(&state.random, 50000);
    report(&state, "pool_alloc_free", pool_alloc_free, (double)POOL_ROUNDS * POOL_LIVE, "pair", 0);
    report(&state, "match_prefix", match_prefix, BLOCKS, "block", BLOCK_TOKENS);
    report(&state, "attach_close", attach_close, BLOCKS, "block", BLOCK_TOKENS);
    report(&state, "commit_insert", commit_insert, BLOCKS, "block", BLOCK_TOKENS);
    report(&state, "tail_among_65536_children", tail_among_children, CHILDREN, "match", 0);
    report(&state, "evict_dlfu", evict_dlfu, BLOCKS, "block", 0);
    report(&state, "evict_lru", evict_lru, BLOCKS, "block", 0);
    report_bytes(&state);
    free(state.tokens);
    return 0;
}
