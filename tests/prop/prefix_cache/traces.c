/* The eviction policies on whole traces: a small synthetic one against a naive LRU always, recorded ones against the
 * published counts of a reference simulator when QUIRE_TRACES names their folder. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tests/prop/prefix_cache/trace_replay.h"

enum { SYNTHETIC_REQUESTS = 3000, SYNTHETIC_DEPTH = 9 };

/* Random walks over a small tree of prompts; a key names its whole prefix, as in recorded traces. */
static void make_synthetic(trace *t, uint64_t seed) {
    qr_random random = {seed};
    *t = (trace){0};
    for (uint32_t i = 0; i < SYNTHETIC_REQUESTS; i++) {
        uint64_t key = 1;
        trace_add_request(t, (uint64_t)i * 1000000);
        for (uint32_t depth = 1 + qr_random_below(&random, SYNTHETIC_DEPTH); depth > 0; depth--) {
            double skewed = -log(1 - qr_random_unit(&random)) / 0.7;
            key = key * 8 + (skewed < 6 ? (uint64_t)skewed : 6);
            trace_add_key(t, key);
        }
    }
}

/* Leaf-first LRU is block LRU in which a request touches its tail first, its head last. */
typedef struct naive_lru {
    uint64_t *keys; /* most recent first */
    uint32_t count, capacity;
} naive_lru;

static uint32_t naive_find(const naive_lru *lru, uint64_t key) {
    uint32_t i = 0;
    while (i < lru->count && lru->keys[i] != key) i++;
    return i;
}

static void naive_touch(naive_lru *lru, uint64_t key) {
    uint32_t place = naive_find(lru, key);
    if (place == lru->count && lru->count < lru->capacity) lru->count++;
    if (place == lru->capacity) place--;
    memmove(lru->keys + 1, lru->keys, place * sizeof *lru->keys);
    lru->keys[0] = key;
}

static uint64_t naive_replay(const trace *t, uint32_t capacity) {
    naive_lru lru = {calloc(capacity, sizeof(uint64_t)), 0, capacity};
    uint64_t hits = 0;
    for (size_t i = 0; i < t->request_count; i++) {
        const uint64_t *keys = t->keys + t->requests[i].first;
        uint32_t count = t->requests[i].count, hit = 0;
        while (hit < count && naive_find(&lru, keys[hit]) < lru.count) hit++;
        hits += hit;
        for (uint32_t k = count; k-- > 0;) naive_touch(&lru, keys[k]);
    }
    free(lru.keys);
    return hits;
}

Test(prop_prefix_cache, lru_equals_a_naive_one_on_synthetic_traces) {
    static const uint32_t capacities[] = {10, 25, 60, 200, 2000};
    for (uint64_t seed = 1; seed <= 3; seed++) {
        trace t;
        make_synthetic(&t, seed);
        for (size_t c = 0; c < sizeof capacities / sizeof *capacities; c++)
            cr_assert_eq(trace_replay(&t, QUIRE_KV_LRU, capacities[c], 100), naive_replay(&t, capacities[c]));
        trace_free(&t);
    }
}

Test(prop_prefix_cache, dlfu_keeps_what_comes_back_better_than_lru) {
    trace t;
    make_synthetic(&t, 7);
    for (uint32_t capacity = 25; capacity <= 200; capacity *= 2)
        cr_assert_gt(trace_replay(&t, QUIRE_KV_DLFU, capacity, 100), trace_replay(&t, QUIRE_KV_LRU, capacity, 0));
    trace_free(&t);
}

/* ---- recorded traces ---- */

typedef struct reference {
    uint32_t capacity;
    uint64_t lru_hits; /* exact */
    double dlfu_rate;  /* of a simulator with an exact heap and counts that never end */
} reference;

/* Ours samples 32 leaves and remembers counts for two capacities. */
static const double dlfu_tolerance = 0.01;

static void compare(const char *file, const reference *references, size_t count) {
    const char *folder = getenv("QUIRE_TRACES");
    char path[900];
    trace t;
    if (!folder) return;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    cr_assert(trace_load(&t, path, 512), "%s cannot be read", path);
    for (size_t i = 0; i < count; i++) {
        uint64_t lru = trace_replay(&t, QUIRE_KV_LRU, references[i].capacity, 0);
        uint64_t dlfu = trace_replay(&t, QUIRE_KV_DLFU, references[i].capacity, 0);
        double rate = (double)dlfu / (double)t.key_count;
        fprintf(stderr, "%s, %u blocks: lru %llu hits (%.4f), dlfu %.4f (reference %.4f)\n", file, references[i].capacity,
                (unsigned long long)lru, (double)lru / (double)t.key_count, rate, references[i].dlfu_rate);
        cr_assert_eq(lru, references[i].lru_hits);
        cr_assert(fabs(rate - references[i].dlfu_rate) < dlfu_tolerance);
    }
    trace_free(&t);
}

Test(prop_prefix_cache, recorded_conversations_hit_as_in_the_reference) {
    static const reference references[] = {
        {1000, 12990, 0.0800}, {3000, 19404, 0.1315}, {10000, 62005, 0.2414}, {30000, 95337, 0.3473}};
    compare("conversation_trace.jsonl.gz", references, sizeof references / sizeof *references);
}

Test(prop_prefix_cache, recorded_agent_sessions_hit_as_in_the_reference) {
    static const reference references[] = {{1000, 213046, 0.2948}, {3000, 760951, 0.7011}, {10000, 1021970, 0.9381}};
    compare("agent_sessions_512.jsonl.gz", references, sizeof references / sizeof *references);
}
