/* kv.c - microbenchmarks of the KV manager: one JSON line per case, min and median over repetitions.
 *
 * The pool has 131,072 blocks of 16 tokens (2 million tokens, a large machine), so the tree does not fit in a cache. No
 * KV bytes are moved. Arguments: [repetitions] [only cases that contain this text].
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    POOL_LIVE = 256,
    TIER_BLOCKS = 32768,
    TIER_PROMPTS = TIER_BLOCKS / 2 / (PROMPT_TOKENS / BLOCK_TOKENS),
    POLLS = 200000
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

/* ---- lower tiers that have nothing to do ----
 *
 * Two managers side by side, one with a folder on disk and one without: the same prompts go into both by turns, and nothing of
 * them was ever stored. What is told of "off" is the other's. Half of the pool is filled, so nothing is written either. */

static quire_kv *create_beside(const char *folder) {
    quire_kv_config config = {.block_tokens = BLOCK_TOKENS,
                              .group_count = 1,
                              .groups = {{1, 1, 16, 16, QUIRE_KV_F32, QUIRE_KV_F32}},
                              .block_count = TIER_BLOCKS,
                              .max_sequences = 64,
                              .max_sequence_tokens = PROMPT_TOKENS,
                              .storage = QUIRE_KV_STORAGE_HOST,
                              .tiers = {.disk_path = folder,
                                        .disk_max_bytes = UINT64_C(256) << 20,
                                        .disk_floor_bytes = 1,
                                        .disk_write = QUIRE_KV_DISK_EVICT}};
    quire_kv *kv;
    must(quire_kv_create(&config, &kv, NULL));
    return kv;
}

static double commit_one(quire_kv *kv, const quire_token *tokens) {
    quire_seq_id seq;
    quire_kv_match match;
    must(quire_kv_seq_open(kv, 0, &seq));
    uint64_t start = qr_clock_ns();
    must(quire_kv_seq_attach(kv, seq, tokens, PROMPT_TOKENS, PROMPT_TOKENS, &match));
    must(quire_kv_seq_reserve(kv, seq, PROMPT_TOKENS));
    must(quire_kv_seq_commit(kv, seq, tokens, PROMPT_TOKENS));
    double ns = (double)(qr_clock_ns() - start);
    must(quire_kv_seq_close(kv, seq));
    return ns;
}

static double poll_many(quire_kv *kv) {
    uint64_t start = qr_clock_ns();
    for (int i = 0; i < POLLS; i++) quire_kv_poll(kv);
    return (double)(qr_clock_ns() - start);
}

/* ns[0]: per block committed; ns[1]: per poll. */
static void run_beside(const bench_state *state, const char *folder, double on[2], double off[2]) {
    quire_kv *with = create_beside(folder), *without = create_beside(NULL);
    on[0] = on[1] = off[0] = off[1] = 0;
    for (int i = 0; i < TIER_PROMPTS; i++) {
        const quire_token *tokens = state->tokens + (size_t)i * PROMPT_TOKENS;
        if (i % 2 == 0) on[0] += commit_one(with, tokens);
        off[0] += commit_one(without, tokens);
        if (i % 2 == 1) on[0] += commit_one(with, tokens);
    }
    on[0] /= TIER_PROMPTS * (PROMPT_TOKENS / BLOCK_TOKENS);
    off[0] /= TIER_PROMPTS * (PROMPT_TOKENS / BLOCK_TOKENS);
    on[1] = poll_many(with) / POLLS;
    off[1] = poll_many(without) / POLLS;
    quire_kv_destroy(with);
    quire_kv_destroy(without);
}

static double median_of(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return values[count / 2];
}

static void report_tiers(const bench_state *state) {
    static const char *const cases[] = {"tiers_idle_commit", "tiers_idle_poll"}, *const units[] = {"block", "poll"};
    static double on[2][REPEATS_MAX], off[2][REPEATS_MAX];
    char folder[] = "/tmp/quire-bench-XXXXXX";
    if (state->only && !strstr("tiers_idle_commit tiers_idle_poll", state->only)) return;
    if (!mkdtemp(folder)) return;
    for (int i = -1; i < state->repeats; i++) { /* once to warm up */
        double a[2], b[2];
        run_beside(state, folder, a, b);
        for (int k = 0; k < 2 && i >= 0; k++) on[k][i] = a[k], off[k][i] = b[k];
    }
    for (int k = 0; k < 2; k++) {
        double middle = median_of(on[k], state->repeats), off_middle = median_of(off[k], state->repeats);
        printf("{\"bench\":\"kv\",\"case\":\"%s\",\"unit\":\"%s\",\"min_ns\":%.2f,\"median_ns\":%.2f,\"off_min_ns\":%.2f,"
               "\"off_median_ns\":%.2f,\"repeats\":%d}\n",
               cases[k], units[k], on[k][0], middle, off[k][0], off_middle, state->repeats);
    }
    uint32_t segments;
    uint64_t bytes;
    must(quire_kv_store_clear(folder, &segments, &bytes, NULL));
    char lock[sizeof folder + 8];
    snprintf(lock, sizeof lock, "%s/lock", folder);
    (void)unlink(lock);
    (void)rmdir(folder);
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
    report_tiers(&state);
    report_bytes(&state);
    free(state.tokens);
    return 0;
}
