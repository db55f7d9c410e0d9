#include "tests/prop/kv/kv_model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* An assertion of Criterion sends a message even when it holds; these hold millions of times. */
#define MUST(m, condition)                           \
    do {                                             \
        if (!(condition)) model_fail(m, #condition); \
    } while (0)

static void model_fail(const model *m, const char *what) {
    cr_assert_fail("%s; QUIRE_SEED=%llu, step %llu, %s", what, (unsigned long long)m->seed, (unsigned long long)m->step,
                   m->operation);
}

uint64_t model_seed(uint64_t otherwise) {
    const char *text = getenv("QUIRE_SEED");
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static uint32_t pick(model *m, uint32_t bound) { return qr_random_below(&m->random, bound); }

/* Three words, and often runs of the first: prompts share much. */
static quire_token pick_token(model *m) { return pick(m, 6) ? 1 : (quire_token)(2 + pick(m, 2)); }

static quire_namespace_id pick_namespace(model *m) { return m->namespaces[pick(m, 2) ? 0 : pick(m, MODEL_NAMESPACES)]; }

/* ---- bytes ---- */

/* What token `position` must have stored: depends on all that came before it. Never 0. */
static uint32_t expected_word(quire_namespace_id ns, const quire_token *tokens, uint32_t position, uint32_t group) {
    uint64_t chain = qr_mix64(ns + 1);
    for (uint32_t i = 0; i <= position; i++) chain = qr_mix64(chain ^ (uint32_t)tokens[i]);
    return (uint32_t)qr_mix64(chain + group) | 1;
}

/* The word of a position; group_part 0 is keys, 1 is values (one only, without storage). */
static uint32_t *word_at(model *m, quire_seq_id id, uint32_t group, uint32_t position, quire_kv_part part) {
    uint32_t count, slot = position % m->config.block_tokens;
    const quire_block_id *table = quire_kv_seq_table(m->kv, id, group, &count);
    MUST(m, table != NULL && position / m->config.block_tokens < count);
    quire_block_id block = table[position / m->config.block_tokens];
    if (m->memory[group]) return &m->memory[group][block * m->config.block_tokens + slot];
    size_t stride;
    char *base = quire_kv_pool_base(m->kv, group, &stride);
    return (uint32_t *)(void *)(base + block * stride + quire_kv_part_offset(m->kv, group, 0, 0, part)) + slot;
}

static void write_tokens(model *m, const model_sequence *s, uint32_t from, uint32_t to) {
    for (uint32_t g = 0; g < m->config.group_count; g++)
        for (uint32_t i = from; i < to; i++) {
            uint32_t word = expected_word(s->ns, s->tokens, i, g);
            *word_at(m, s->id, g, i, QUIRE_KV_KEYS) = word;
            *word_at(m, s->id, g, i, QUIRE_KV_VALUES) = word;
        }
}

static void check_bytes(model *m, const model_sequence *s) {
    for (uint32_t g = 0; g < m->config.group_count; g++)
        for (uint32_t i = 0; i < s->count; i++) {
            uint32_t word = expected_word(s->ns, s->tokens, i, g);
            MUST(m, *word_at(m, s->id, g, i, QUIRE_KV_KEYS) == word);
            MUST(m, *word_at(m, s->id, g, i, QUIRE_KV_VALUES) == word);
        }
}

/* What an engine with memory of its own does before its next write. */
static void run_copies(model *m) {
    quire_kv_copy copies[3];
    size_t count, block_bytes = m->config.block_tokens * sizeof(uint32_t);
    while ((count = quire_kv_take_copies(m->kv, copies, 3)) > 0)
        for (size_t i = 0; i < count; i++) {
            MUST(m, m->memory[copies[i].group] != NULL);
            memmove(&m->memory[copies[i].group][copies[i].to * m->config.block_tokens],
                    &m->memory[copies[i].group][copies[i].from * m->config.block_tokens], block_bytes);
        }
}

/* ---- what must be cached ---- */

static uint32_t common_run(const quire_token *a, uint32_t a_count, const quire_token *b, uint32_t b_count) {
    uint32_t run = 0;
    while (run < a_count && run < b_count && a[run] == b[run]) run++;
    return run;
}

static bool entry_is(const model_entry *e, quire_namespace_id ns, const quire_token *tokens, uint32_t count) {
    return e->ns == ns && e->count == count && memcmp(e->tokens, tokens, count * sizeof *tokens) == 0;
}

static bool list_has(const model_entry *list, uint32_t length, quire_namespace_id ns, const quire_token *tokens,
                     uint32_t count) {
    for (uint32_t i = 0; i < length; i++)
        if (entry_is(&list[i], ns, tokens, count)) return true;
    return false;
}

static bool cached_has(const model *m, quire_namespace_id ns, const quire_token *tokens, uint32_t count) {
    return list_has(m->cached, m->cached_count, ns, tokens, count);
}

static void cached_add(model *m, quire_namespace_id ns, const quire_token *tokens, uint32_t count) {
    if (cached_has(m, ns, tokens, count)) return;
    MUST(m, m->cached_count < MODEL_ENTRIES);
    model_entry *e = &m->cached[m->cached_count++];
    *e = (model_entry){.ns = ns, .count = count};
    memcpy(e->tokens, tokens, count * sizeof *tokens);
}

static void evicted_add(model *m, const model_entry *e) {
    if (list_has(m->evicted, m->evicted_count, e->ns, e->tokens, e->count)) return;
    MUST(m, m->evicted_count < MODEL_EVICTED);
    m->evicted[m->evicted_count++] = *e;
}

static bool in_use(const model *m, const model_entry *e) {
    for (uint32_t i = 0; i < MODEL_SEQUENCES; i++) {
        const model_sequence *s = &m->sequences[i];
        if (s->live && !s->forgotten && s->ns == e->ns && s->count >= e->count &&
            memcmp(s->tokens, e->tokens, e->count * sizeof *e->tokens) == 0)
            return true;
    }
    return false;
}

/* ---- what a lookup must say ---- */

static uint32_t naive_blocks(const model *m, quire_namespace_id ns, const quire_token *tokens, uint32_t count) {
    uint32_t blocks = 0, bt = m->config.block_tokens;
    while ((blocks + 1) * bt <= count && cached_has(m, ns, tokens, (blocks + 1) * bt)) blocks++;
    return blocks;
}

/* The longest run beyond `done` tokens among children of that prefix; *children says whether there are any. */
static uint32_t naive_tail(const model *m, quire_namespace_id ns, const quire_token *tokens, uint32_t count, uint32_t done,
                           bool *children) {
    uint32_t tail = 0;
    *children = false;
    for (uint32_t i = 0; i < m->cached_count; i++) {
        const model_entry *e = &m->cached[i];
        if (e->ns != ns || e->count != done + m->config.block_tokens || memcmp(e->tokens, tokens, done * sizeof *tokens) != 0)
            continue;
        *children = true;
        uint32_t run = common_run(e->tokens + done, m->config.block_tokens, tokens + done, count - done);
        if (run > tail) tail = run;
    }
    return tail;
}

static bool cached_elsewhere(const model *m, quire_namespace_id ns, const quire_token *tokens, uint32_t count) {
    for (uint32_t i = 0; i < MODEL_NAMESPACES; i++)
        if (m->namespaces[i] != ns && cached_has(m, m->namespaces[i], tokens, count)) return true;
    return false;
}

static quire_kv_miss naive_cause(const model *m, quire_namespace_id ns, const quire_token *tokens, uint32_t count,
                                 const quire_kv_match *match, bool children) {
    uint32_t next = (match->block_count + 1) * m->config.block_tokens;
    if (next <= count && cached_elsewhere(m, ns, tokens, next)) return QUIRE_KV_MISS_NAMESPACE;
    return match->token_count > 0 && children ? QUIRE_KV_MISS_DIVERGED : QUIRE_KV_MISS_NEVER_STORED;
}

/* Ghosts are remembered for a while only, so "evicted" is checked in one direction. */
static void check_cause(model *m, quire_namespace_id ns, const quire_token *tokens, uint32_t count, const quire_kv_match *match,
                        bool children) {
    uint32_t next = (match->block_count + 1) * m->config.block_tokens;
    bool evicted_once = next <= count && list_has(m->evicted, m->evicted_count, ns, tokens, next);
    if (match->miss == QUIRE_KV_MISS_EVICTED) MUST(m, evicted_once);
    else MUST(m, match->miss == naive_cause(m, ns, tokens, count, match, children));
}

static quire_kv_match check_match(model *m, quire_namespace_id ns, const quire_token *tokens, uint32_t count, uint32_t limit) {
    quire_kv_match match;
    bool children;
    uint32_t wanted = count < limit ? count : limit;
    quire_kv_match_prefix(m->kv, ns, tokens, count, limit, &match);
    if (m->config.cache_disabled) {
        MUST(m, match.token_count == 0 && match.miss == QUIRE_KV_MISS_DISABLED);
        return match;
    }
    MUST(m, match.block_count == naive_blocks(m, ns, tokens, wanted));
    uint32_t done = match.block_count * m->config.block_tokens;
    MUST(m, match.tail_tokens == naive_tail(m, ns, tokens, wanted, done, &children));
    MUST(m, match.tail_tokens < m->config.block_tokens && match.token_count == done + match.tail_tokens);
    if (match.token_count == wanted) MUST(m, match.miss == (wanted < count ? QUIRE_KV_MISS_LIMIT : QUIRE_KV_MISS_NONE));
    else check_cause(m, ns, tokens, count, &match, children);
    return match;
}

/* ---- after every operation ---- */

static void settle_insertions(model *m) {
    for (uint32_t i = 0; i < MODEL_SEQUENCES; i++) {
        const model_sequence *s = &m->sequences[i];
        if (!s->live || s->forgotten || m->config.cache_disabled) continue;
        for (uint32_t n = m->config.block_tokens; n <= s->count; n += m->config.block_tokens)
            cached_add(m, s->ns, s->tokens, n);
    }
}

/* A cached prefix that no longer matches was evicted: exactly as many as the counter says, and none in use. */
static void settle_evictions(model *m, const quire_kv_stats *now) {
    uint64_t gone = 0;
    for (uint32_t i = m->cached_count; i-- > 0;) {
        quire_kv_match match;
        model_entry *e = &m->cached[i];
        quire_kv_match_prefix(m->kv, e->ns, e->tokens, e->count, e->count, &match);
        if (match.token_count == e->count && match.tail_tokens == 0) continue;
        MUST(m, !in_use(m, e));
        evicted_add(m, e);
        *e = m->cached[--m->cached_count];
        gone++;
    }
    MUST(m, gone == now->evicted_blocks_total - m->before.evicted_blocks_total);
}

static uint32_t count_distinct_blocks(model *m, uint32_t group) {
    bool seen[MODEL_ENTRIES] = {false};
    uint32_t distinct = 0;
    for (uint32_t i = 0; i < MODEL_SEQUENCES; i++) {
        uint32_t count;
        if (!m->sequences[i].live) continue;
        const quire_block_id *table = quire_kv_seq_table(m->kv, m->sequences[i].id, group, &count);
        for (uint32_t k = 0; k < count; k++) {
            MUST(m, table[k] < m->config.block_count);
            distinct += !seen[table[k]];
            seen[table[k]] = true;
        }
    }
    return distinct;
}

static void check_stats(model *m, const quire_kv_stats *now) {
    uint32_t live = 0, idle = 0;
    for (uint32_t i = 0; i < MODEL_SEQUENCES; i++) live += m->sequences[i].live;
    for (uint32_t i = 0; i < m->cached_count; i++) idle += !in_use(m, &m->cached[i]);
    MUST(m, now->block_free + now->block_cached + now->block_used == now->block_total);
    for (uint32_t g = 0; g < m->config.group_count; g++) MUST(m, now->block_used >= count_distinct_blocks(m, g));
    MUST(m, now->block_used == count_distinct_blocks(m, 0));
    MUST(m, now->tokens_cached == (uint64_t)m->cached_count * m->config.block_tokens);
    MUST(m, now->block_cached <= idle);
    MUST(m, now->sequence_count == live);
}

static void check_sequence(model *m, const model_sequence *s) {
    quire_kv_seq_info info;
    MUST(m, quire_kv_seq_get(m->kv, s->id, &info) == QUIRE_OK);
    MUST(m, info.ns == s->ns && info.token_count == s->count && info.reserved_tokens >= s->count);
    MUST(m, memcmp(info.tokens, s->tokens, s->count * sizeof *s->tokens) == 0);
    check_bytes(m, s);
}

static void model_settle(model *m) {
    quire_kv_stats now;
    quire_error error = {0};
    run_copies(m);
    quire_kv_get_stats(m->kv, &now);
    settle_insertions(m);
    settle_evictions(m, &now);
    check_stats(m, &now);
    for (uint32_t i = 0; i < MODEL_SEQUENCES; i++)
        if (m->sequences[i].live) check_sequence(m, &m->sequences[i]);
    if (quire_kv_check(m->kv, &error) != QUIRE_OK) model_fail(m, error.text);
    m->before = now;
}

/* ---- operations ---- */

static model_sequence *pick_sequence(model *m, bool live) {
    uint32_t first = pick(m, MODEL_SEQUENCES);
    for (uint32_t i = 0; i < MODEL_SEQUENCES; i++) {
        model_sequence *s = &m->sequences[(first + i) % MODEL_SEQUENCES];
        if (s->live == live) return s;
    }
    return NULL;
}

/* A prompt that often begins like something cached. */
static uint32_t pick_prompt(model *m, quire_token *tokens) {
    uint32_t count = pick(m, MODEL_TOKENS), copied = 0;
    if (m->cached_count > 0 && pick(m, 2)) {
        const model_entry *e = &m->cached[pick(m, m->cached_count)];
        copied = common_run(e->tokens, e->count, e->tokens, count);
        copied -= copied ? pick(m, copied) / 2 : 0;
        memcpy(tokens, e->tokens, copied * sizeof *tokens);
    }
    for (uint32_t i = copied; i < count; i++) tokens[i] = pick_token(m);
    return count;
}

static void step_match(model *m) {
    quire_token tokens[MODEL_TOKENS];
    m->operation = "match";
    uint32_t count = pick_prompt(m, tokens);
    check_match(m, pick_namespace(m), tokens, count, pick(m, 3) ? count : pick(m, MODEL_TOKENS));
}

static void step_open(model *m) {
    model_sequence *s = pick_sequence(m, false);
    quire_seq_id id;
    m->operation = "open";
    quire_namespace_id ns = pick_namespace(m);
    quire_status status = quire_kv_seq_open(m->kv, ns, &id);
    MUST(m, status == (s ? QUIRE_OK : QUIRE_NO_MEMORY));
    if (s) *s = (model_sequence){.id = id, .live = true, .ns = ns};
}

static void step_attach(model *m) {
    model_sequence *s = pick_sequence(m, true);
    quire_token tokens[MODEL_TOKENS];
    quire_kv_match match;
    uint32_t blocks;
    m->operation = "attach";
    if (!s) return;
    quire_kv_seq_table(m->kv, s->id, 0, &blocks);
    uint32_t count = pick_prompt(m, tokens), limit = pick(m, 4) && count ? count - 1 : count;
    if (blocks > 0) {
        MUST(m, quire_kv_seq_attach(m->kv, s->id, tokens, count, limit, &match) == QUIRE_INVALID);
        return;
    }
    uint32_t pool_tokens = m->config.block_count * m->config.block_tokens;
    quire_kv_match expected = check_match(m, s->ns, tokens, count, limit < pool_tokens ? limit : pool_tokens);
    MUST(m, quire_kv_seq_attach(m->kv, s->id, tokens, count, limit, &match) == QUIRE_OK);
    MUST(m, match.block_count == expected.block_count && match.miss == expected.miss);
    MUST(m, match.tail_tokens == expected.tail_tokens || (match.tail_tokens == 0 && m->before.block_free == 0));
    s->count = match.token_count;
    memcpy(s->tokens, tokens, s->count * sizeof *tokens);
}

static void step_reserve(model *m) {
    model_sequence *s = pick_sequence(m, true);
    quire_kv_seq_info info;
    m->operation = "reserve";
    if (!s) return;
    uint32_t wanted = s->count + pick(m, 14), have, bt = m->config.block_tokens;
    quire_kv_seq_table(m->kv, s->id, 0, &have);
    quire_status status = quire_kv_seq_reserve(m->kv, s->id, wanted);
    bool too_large = wanted > m->config.max_sequence_tokens || wanted > m->config.block_count * bt;
    MUST(m, (status == QUIRE_TOO_LARGE) == too_large);
    uint32_t blocks = (wanted + bt - 1) / bt, more = blocks > have ? blocks - have : 0;
    /* one more for the copy that may be needed */
    if (status == QUIRE_NO_BLOCKS) MUST(m, m->before.block_free + m->before.block_cached < more + 1);
    if (status != QUIRE_OK) return;
    MUST(m, quire_kv_seq_get(m->kv, s->id, &info) == QUIRE_OK && info.reserved_tokens >= wanted);
}

static void step_commit(model *m) {
    model_sequence *s = pick_sequence(m, true);
    quire_kv_seq_info info;
    m->operation = "commit";
    if (!s || quire_kv_seq_get(m->kv, s->id, &info) != QUIRE_OK) return;
    uint32_t room = info.reserved_tokens - s->count, count = pick(m, room + 1);
    if (s->count + count > MODEL_TOKENS) count = MODEL_TOKENS - s->count;
    quire_token too_many[MODEL_TOKENS * 2] = {0};
    if (pick(m, 8) == 0) MUST(m, quire_kv_seq_commit(m->kv, s->id, too_many, room + 1) == QUIRE_INVALID);
    for (uint32_t i = 0; i < count; i++) s->tokens[s->count + i] = pick_token(m);
    write_tokens(m, s, s->count, s->count + count);
    MUST(m, quire_kv_seq_commit(m->kv, s->id, s->tokens + s->count, count) == QUIRE_OK);
    s->count += count;
}

static void step_fork(model *m) {
    model_sequence *s = pick_sequence(m, true), *child = pick_sequence(m, false);
    quire_seq_id id;
    m->operation = "fork";
    if (!s) return;
    quire_status status = quire_kv_seq_fork(m->kv, s->id, &id);
    MUST(m, status == (child ? QUIRE_OK : QUIRE_NO_MEMORY));
    if (!child) return;
    *child = *s;
    child->id = id;
}

static void step_truncate(model *m) {
    model_sequence *s = pick_sequence(m, true);
    m->operation = "truncate";
    if (!s) return;
    uint32_t count = pick(m, s->count + 1);
    MUST(m, quire_kv_seq_truncate(m->kv, s->id, s->count + 1) == QUIRE_INVALID);
    settle_insertions(m);
    MUST(m, quire_kv_seq_truncate(m->kv, s->id, count) == QUIRE_OK);
    s->count = count;
}

static void step_close(model *m) {
    model_sequence *s = pick_sequence(m, true);
    m->operation = "close";
    if (!s) return;
    MUST(m, quire_kv_seq_close(m->kv, s->id) == QUIRE_OK);
    m->stale = s->id;
    s->live = false;
}

static void step_pin(model *m) {
    quire_token tokens[MODEL_TOKENS];
    m->operation = "pin";
    uint32_t count = pick_prompt(m, tokens), bt = m->config.block_tokens;
    quire_namespace_id ns = pick_namespace(m);
    uint32_t pinned = quire_kv_pin(m->kv, ns, tokens, count, pick(m, 4), pick(m, 1000));
    MUST(m, pinned == (m->config.cache_disabled ? 0 : naive_blocks(m, ns, tokens, count) * bt));
}

/* Everything that nobody uses can be evicted, pinned or not, and nothing else. */
static void step_evict(model *m) {
    m->operation = "evict";
    uint32_t wanted = pick(m, 16) ? pick(m, 3) : UINT32_MAX;
    uint32_t expected = wanted < m->before.block_cached ? wanted : m->before.block_cached;
    MUST(m, quire_kv_evict(m->kv, wanted) == expected);
}

static void forget(model *m, quire_namespace_id ns) {
    for (uint32_t i = m->cached_count; i-- > 0;)
        if (m->cached[i].ns == ns) m->cached[i] = m->cached[--m->cached_count];
    for (uint32_t i = m->evicted_count; i-- > 0;)
        if (m->evicted[i].ns == ns) m->evicted[i] = m->evicted[--m->evicted_count];
    for (uint32_t i = 0; i < MODEL_SEQUENCES; i++)
        if (m->sequences[i].ns == ns) m->sequences[i].forgotten = true;
}

static void step_forget(model *m) {
    quire_kv_stats now;
    m->operation = "forget";
    bool all = pick(m, 4) == 0;
    quire_namespace_id ns = pick_namespace(m);
    uint32_t freed = all ? quire_kv_forget_all(m->kv, pick(m, 2)) : quire_kv_forget_namespace(m->kv, ns, pick(m, 2));
    quire_kv_get_stats(m->kv, &now);
    MUST(m, freed == now.block_free - m->before.block_free);
    for (uint32_t i = 0; i < MODEL_NAMESPACES; i++)
        if (all || m->namespaces[i] == ns) forget(m, m->namespaces[i]);
}

/* Ids that are not live are refused by every call, and nothing changes. */
static void step_stale(model *m) {
    quire_seq_id ids[] = {m->stale, {0, 0}, {UINT32_MAX, 1}, {pick(m, MODEL_SEQUENCES), 0xffffffffu}}, id = ids[pick(m, 4)],
                 child;
    quire_kv_match match;
    quire_kv_seq_info info;
    quire_token token = 1;
    uint32_t count;
    m->operation = "stale id";
    MUST(m, quire_kv_seq_close(m->kv, id) == QUIRE_NOT_FOUND);
    MUST(m, quire_kv_seq_truncate(m->kv, id, 0) == QUIRE_NOT_FOUND);
    MUST(m, quire_kv_seq_reserve(m->kv, id, 1) == QUIRE_NOT_FOUND);
    MUST(m, quire_kv_seq_commit(m->kv, id, &token, 1) == QUIRE_NOT_FOUND);
    MUST(m, quire_kv_seq_fork(m->kv, id, &child) == QUIRE_NOT_FOUND && child.generation == 0);
    MUST(m, quire_kv_seq_attach(m->kv, id, &token, 1, 1, &match) == QUIRE_NOT_FOUND && match.token_count == 0);
    MUST(m, quire_kv_seq_get(m->kv, id, &info) == QUIRE_NOT_FOUND && info.tokens == NULL);
    MUST(m, quire_kv_seq_table(m->kv, id, 0, &count) == NULL && count == 0);
}

typedef struct model_operation {
    void (*run)(model *m);
    uint32_t weight;
} model_operation;

static const model_operation operations[] = {{step_match, 20},   {step_open, 30}, {step_attach, 50},   {step_reserve, 80},
                                             {step_commit, 100}, {step_fork, 15}, {step_truncate, 10}, {step_close, 30},
                                             {step_pin, 8},      {step_evict, 4}, {step_forget, 1},    {step_stale, 10}};

void model_step(model *m) {
    const uint32_t kinds = sizeof operations / sizeof *operations;
    uint32_t total = 0, choice;
    for (uint32_t i = 0; i < kinds; i++) total += operations[i].weight;
    choice = pick(m, total);
    m->step++;
    m->now_us += pick(m, 200);
    quire_kv_set_time(m->kv, m->now_us);
    const model_operation *operation = operations;
    while (choice >= operation->weight) choice -= operation++->weight;
    operation->run(m);
    model_settle(m);
}

/* ---- life ---- */

void model_create(model *m, const quire_kv_config *config, uint64_t seed) {
    *m = (model){.config = *config, .seed = seed, .random = {seed}, .operation = "create"};
    MUST(m, config->block_count <= MODEL_ENTRIES);
    MUST(m, quire_kv_create(config, &m->kv, NULL) == QUIRE_OK);
    for (uint32_t i = 0; i < MODEL_NAMESPACES; i++)
        MUST(m, quire_kv_namespace_open(m->kv, "abc", i, &m->namespaces[i]) == QUIRE_OK);
    for (uint32_t g = 0; g < config->group_count && config->storage == QUIRE_KV_STORAGE_NONE; g++)
        m->memory[g] = calloc(config->block_count * config->block_tokens, sizeof(uint32_t));
    model_settle(m);
}

void model_drain(model *m) {
    m->operation = "drain";
    for (uint32_t i = 0; i < MODEL_SEQUENCES; i++) {
        if (!m->sequences[i].live) continue;
        MUST(m, quire_kv_seq_close(m->kv, m->sequences[i].id) == QUIRE_OK);
        m->sequences[i].live = false;
        model_settle(m);
    }
    MUST(m, m->before.block_used == 0 && m->before.block_cached == m->cached_count);
    MUST(m, quire_kv_evict(m->kv, UINT32_MAX) == m->cached_count);
    model_settle(m);
    MUST(m, m->before.block_free == m->before.block_total);
}

void model_destroy(model *m) {
    quire_kv_destroy(m->kv);
    for (uint32_t g = 0; g < QUIRE_KV_GROUPS_MAX; g++) free(m->memory[g]);
}
