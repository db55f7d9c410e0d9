#include "tests/prop/kv/tiers_model.h"

#include <criterion/criterion.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

#define MUST(m, condition)                           \
    do {                                             \
        if (!(condition)) tiers_fail(m, #condition); \
    } while (0)

enum { SENTINEL = 0x5E471E1 };

static void tiers_fail(const tiers_model *m, const char *what) {
    cr_assert_fail("%s; QUIRE_SEED=%llu, step %llu, %s", what, (unsigned long long)m->options.seed, (unsigned long long)m->step,
                   m->operation);
}

static uint32_t pick(tiers_model *m, uint32_t bound) { return qr_random_below(&m->random, bound); }

static uint32_t block_tokens(const tiers_model *m) { return m->options.config.block_tokens; }

/* What is called in a step allocates nothing. Devices that are not real do, for their own purposes. */
static bool device_allocates(const tiers_model *m) { return m->options.device_sim || m->options.make_device; }

static void guard_enter(const tiers_model *m) {
    if (!device_allocates(m)) qr_alloc_guard_enter();
}
static void guard_leave(tiers_model *m) {
    if (!device_allocates(m)) MUST(m, qr_alloc_guard_leave() == 0);
}

/* ---- bytes ---- */

static uint32_t expected_word(uint32_t key, const quire_token *tokens, uint32_t position, uint32_t part) {
    uint64_t chain = qr_mix64(key + 1);
    for (uint32_t i = 0; i <= position; i++) chain = qr_mix64(chain ^ (uint32_t)tokens[i]);
    return (uint32_t)qr_mix64(chain + part) | 1;
}

static uint32_t *word_at(tiers_model *m, quire_seq_id id, uint32_t g, uint32_t position, quire_kv_part part) {
    uint32_t count, bt = block_tokens(m);
    size_t stride;
    const quire_block_id *table = quire_kv_seq_table(m->kv, id, g, &count);
    MUST(m, position / bt < count);
    char *base = quire_kv_pool_base(m->kv, g, &stride);
    char *block = base + table[position / bt] * stride;
    return (uint32_t *)(void *)(block + quire_kv_part_offset(m->kv, g, 0, 0, part)) + position % bt;
}

static bool has_bytes(const tiers_model *m) { return m->options.config.storage == QUIRE_KV_STORAGE_HOST; }

static void write_word(tiers_model *m, const tiers_sequence *s, uint32_t position, bool sentinel) {
    for (uint32_t g = 0; g < m->options.config.group_count && has_bytes(m); g++) {
        uint32_t word = sentinel ? (uint32_t)SENTINEL : expected_word(s->key, s->tokens, position, g);
        *word_at(m, s->id, g, position, QUIRE_KV_KEYS) = word;
        *word_at(m, s->id, g, position, QUIRE_KV_VALUES) = word;
    }
}

static void check_word(tiers_model *m, const tiers_sequence *s, uint32_t position, bool sentinel) {
    for (uint32_t g = 0; g < m->options.config.group_count && has_bytes(m); g++) {
        uint32_t word = sentinel ? (uint32_t)SENTINEL : expected_word(s->key, s->tokens, position, g);
        MUST(m, *word_at(m, s->id, g, position, QUIRE_KV_KEYS) == word);
        MUST(m, *word_at(m, s->id, g, position, QUIRE_KV_VALUES) == word);
    }
}

static void check_bytes(tiers_model *m, const tiers_sequence *s) {
    for (uint32_t i = 0; i < s->committed; i++) check_word(m, s, i, false);
    for (uint32_t i = s->committed; i < s->computing; i++) check_word(m, s, i, true);
}

/* ---- after every operation ---- */

/* As a backend does before its next step: on the stream of the kernels, behind whatever the manager made it wait for. */
static void run_copy(tiers_model *m, const quire_kv_copy *copy) {
    enum { COMPUTE_STREAM = 0 };
    size_t stride;
    const qr_device_ops *ops = m->device->ops;
    char *base = quire_kv_pool_base(m->kv, copy->group, &stride);
    char *to = base + copy->to * stride, *from = base + copy->from * stride;
    MUST(m, ops->copy_async(m->device, COMPUTE_STREAM, to, from, stride) == QUIRE_OK);
    qr_device_event event = ops->event(m->device, COMPUTE_STREAM);
    while (!ops->poll(m->device, event)) continue;
    m->counts.copied++;
}

static void run_copies(tiers_model *m) {
    quire_kv_copy copies[4];
    size_t count;
    while ((count = quire_kv_take_copies(m->kv, copies, 4)) > 0)
        for (size_t i = 0; i < count && m->device; i++) run_copy(m, &copies[i]);
}

static void check_sequence(tiers_model *m, const tiers_sequence *s) {
    quire_kv_seq_info info;
    MUST(m, quire_kv_seq_get(m->kv, s->id, &info) == QUIRE_OK);
    MUST(m, info.token_count == s->committed && info.reserved_tokens >= s->committed);
    MUST(m, memcmp(info.tokens, s->tokens, s->committed * sizeof *s->tokens) == 0);
    check_bytes(m, s);
}

static void settle(tiers_model *m) {
    quire_error error = {0};
    quire_kv_stats stats;
    run_copies(m);
    quire_kv_get_stats(m->kv, &stats);
    MUST(m, stats.block_free + stats.block_cached + stats.block_used == stats.block_total);
    if (quire_kv_check(m->kv, &error) != QUIRE_OK) tiers_fail(m, error.text);
    for (uint32_t i = 0; i < TIERS_SEQUENCES; i++)
        if (m->sequences[i].live) check_sequence(m, &m->sequences[i]);
}

/* ---- sequences ---- */

static tiers_sequence *pick_sequence(tiers_model *m, bool live) {
    uint32_t first = pick(m, TIERS_SEQUENCES);
    for (uint32_t i = 0; i < TIERS_SEQUENCES; i++) {
        tiers_sequence *s = &m->sequences[(first + i) % TIERS_SEQUENCES];
        if (s->live == live) return s;
    }
    return NULL;
}

static void close_sequence(tiers_model *m, tiers_sequence *s) {
    MUST(m, quire_kv_seq_close(m->kv, s->id) == QUIRE_OK);
    quire_kv_namespace_close(m->kv, s->ns);
    s->live = false;
}

static void reserve(tiers_model *m, tiers_sequence *s) {
    guard_enter(m);
    quire_status status = quire_kv_seq_reserve(m->kv, s->id, s->count);
    guard_leave(m);
    MUST(m, status == QUIRE_OK || status == QUIRE_NO_BLOCKS);
    m->counts.refused += status != QUIRE_OK;
}

static void load(tiers_model *m, tiers_sequence *s) {
    quire_kv_load_state state;
    quire_kv_load plan;
    guard_enter(m);
    quire_status status = quire_kv_load_plan(m->kv, s->id, s->tokens, s->count, s->count - 1, &plan);
    if (status == QUIRE_OK && pick(m, 8) == 0) quire_kv_poll(m->kv); /* what was planned may be gone */
    quire_kv_load_get_state(m->kv, s->id, &state);
    if (status == QUIRE_OK) status = quire_kv_load_begin(m->kv, s->id, s->tokens, &plan, quire_kv_verify_next(m->kv));
    guard_leave(m);
    MUST(m, status == QUIRE_OK || status == QUIRE_INVALID);
    if (state.active) MUST(m, status == QUIRE_INVALID);
    s->loads |= status == QUIRE_OK;
}

static void step_reserve(tiers_model *m) {
    tiers_sequence *s = pick_sequence(m, true);
    m->operation = "reserve";
    if (s && s->computing == s->committed) reserve(m, s);
}

static void step_load(tiers_model *m) {
    tiers_sequence *s = pick_sequence(m, true);
    m->operation = "load";
    if (s && s->computing == s->committed) load(m, s);
}

/* What was attached is given back and the cache is emptied, so that there is something to load; often with a failure ahead. */
static void step_reload(tiers_model *m) {
    tiers_sequence *s = pick_sequence(m, true);
    m->operation = "reload";
    if (!s || s->computing > s->committed) return;
    MUST(m, quire_kv_seq_truncate(m->kv, s->id, 0) == QUIRE_OK);
    s->committed = s->computing = 0;
    quire_kv_evict(m->kv, m->options.config.block_count);
    if (m->fake && m->options.faults && pick(m, 3) == 0) fake_store_faults_of(m->fake)->get_damage_percent = 10;
    reserve(m, s);
    load(m, s);
}

static void step_open(tiers_model *m) {
    tiers_sequence *s = pick_sequence(m, false);
    quire_kv_match match;
    m->operation = "open";
    if (!s) return;
    *s = (tiers_sequence){.key = pick(m, 3) ? 0 : pick(m, TIERS_KEYS), .count = 1 + pick(m, TIERS_TOKENS)};
    memcpy(s->tokens, m->prompts[pick(m, TIERS_PROMPTS)], sizeof s->tokens);
    if (quire_kv_namespace_open(m->kv, "abcdef", s->key, &s->ns) != QUIRE_OK) return;
    if (quire_kv_seq_open(m->kv, s->ns, &s->id) != QUIRE_OK) tiers_fail(m, "no sequence");
    s->live = true;
    guard_enter(m);
    MUST(m, quire_kv_seq_attach(m->kv, s->id, s->tokens, s->count, s->count - 1, &match) == QUIRE_OK);
    guard_leave(m);
    s->committed = s->computing = match.token_count;
    MUST(m, match.token_count + match.stored_tokens <= s->count + block_tokens(m));
    if (pick(m, 4) == 0) return;
    reserve(m, s);
    load(m, s);
}

static void step_poll(tiers_model *m) {
    m->operation = "poll";
    guard_enter(m);
    quire_kv_poll(m->kv);
    guard_leave(m);
}

static void step_take(tiers_model *m) {
    tiers_sequence *s = pick_sequence(m, true);
    quire_kv_load_state state;
    m->operation = "take";
    if (!s || s->computing > s->committed) return;
    guard_enter(m);
    uint32_t taken = quire_kv_load_take(m->kv, s->id);
    guard_leave(m);
    s->committed += taken;
    s->computing = s->committed;
    MUST(m, taken % block_tokens(m) == 0 && s->committed <= s->count);
    m->counts.taken += taken;
    quire_kv_load_get_state(m->kv, s->id, &state);
    MUST(m, state.front_tokens >= s->committed);
    if (state.active || !s->loads) return;
    m->counts.host += state.host_tokens;
    m->counts.disk += state.disk_tokens;
    m->counts.failed += state.failed;
    s->loads = false;
}

/* Rows begin: nobody else may write where they do. */
static void step_compute(tiers_model *m) {
    tiers_sequence *s = pick_sequence(m, true);
    quire_kv_load_state state;
    quire_kv_seq_info info;
    m->operation = "compute";
    if (!s || s->computing > s->committed) return;
    MUST(m, quire_kv_seq_get(m->kv, s->id, &info) == QUIRE_OK);
    quire_kv_load_get_state(m->kv, s->id, &state);
    uint32_t to = s->committed + 1 + pick(m, 3 * block_tokens(m));
    if (to > s->count) to = s->count;
    if (to > info.reserved_tokens) to = info.reserved_tokens;
    if (to > state.front_tokens) to = state.front_tokens;
    if (to <= s->committed) return;
    s->computing = to;
    quire_kv_load_computing(m->kv, s->id, to);
    for (uint32_t i = s->committed; i < to; i++) write_word(m, s, i, true);
}

static void finish_rows(tiers_model *m, tiers_sequence *s) {
    uint32_t from = s->committed;
    if (s->computing <= from) return;
    check_bytes(m, s);
    for (uint32_t i = from; i < s->computing; i++) write_word(m, s, i, false);
    guard_enter(m);
    MUST(m, quire_kv_seq_commit(m->kv, s->id, s->tokens + from, s->computing - from) == QUIRE_OK);
    guard_leave(m);
    s->committed = s->computing;
}

static void step_commit(tiers_model *m) {
    tiers_sequence *s = pick_sequence(m, true);
    m->operation = "commit";
    if (s) finish_rows(m, s);
}

static void step_abandon(tiers_model *m) {
    tiers_sequence *s = pick_sequence(m, true);
    quire_kv_load_state state;
    m->operation = "abandon";
    if (!s) return;
    quire_kv_load_get_state(m->kv, s->id, &state);
    quire_kv_load_abandon(m->kv, s->id);
    m->counts.abandoned += state.active;
}

static void step_fork(tiers_model *m) {
    tiers_sequence *s = pick_sequence(m, true), *child = pick_sequence(m, false);
    quire_namespace_id ns;
    m->operation = "fork";
    if (!s || !child || s->computing > s->committed) return;
    quire_seq_id id;
    MUST(m, quire_kv_seq_fork(m->kv, s->id, &id) == QUIRE_OK);
    MUST(m, quire_kv_namespace_open(m->kv, "abcdef", s->key, &ns) == QUIRE_OK && ns == s->ns);
    *child = *s;
    child->id = id;
    child->loads = false;
    /* Both go on differently, and no load may write into what they share. */
    for (uint32_t i = child->committed; i < TIERS_TOKENS; i++) child->tokens[i] ^= pick(m, 2);
    m->counts.forked++;
}

static void step_truncate(tiers_model *m) {
    tiers_sequence *s = pick_sequence(m, true);
    m->operation = "truncate";
    if (!s || s->computing > s->committed) return;
    uint32_t to = pick(m, 2) ? s->committed : pick(m, s->committed + 1);
    MUST(m, quire_kv_seq_truncate(m->kv, s->id, to) == QUIRE_OK);
    s->committed = s->computing = to;
}

static void step_close(tiers_model *m) {
    tiers_sequence *s = pick_sequence(m, true);
    m->operation = "close";
    if (s) close_sequence(m, s);
}

/* ---- the cache as a whole ---- */

static void step_evict(tiers_model *m) {
    m->operation = "evict";
    quire_kv_evict(m->kv, 1 + pick(m, 12));
}

static void step_forget(tiers_model *m) {
    quire_namespace_id ns;
    m->operation = "forget";
    if (pick(m, 6) == 0) quire_kv_forget_all(m->kv, pick(m, 2));
    else if (quire_kv_namespace_find(m->kv, "abcdef", pick(m, TIERS_KEYS), &ns))
        quire_kv_forget_namespace(m->kv, ns, pick(m, 2));
    m->counts.forgotten++;
}

static void step_pin(tiers_model *m) {
    quire_namespace_id ns;
    m->operation = "pin";
    if (quire_kv_namespace_find(m->kv, "abcdef", 0, &ns))
        quire_kv_pin(m->kv, ns, m->prompts[pick(m, TIERS_PROMPTS)], pick(m, TIERS_TOKENS), pick(m, 3), pick(m, 5000));
}

static void step_idle(tiers_model *m) {
    m->operation = "idle";
    quire_kv_set_idle(m->kv, pick(m, 2));
}

static void step_flush(tiers_model *m) {
    m->operation = "flush";
    if (pick(m, 3)) quire_kv_flush_begin(m->kv);
    else quire_kv_flush_end(m->kv);
}

static void step_faults(tiers_model *m) {
    static const qr_store_refusal refusals[] = {QR_STORE_NO_SPACE, QR_STORE_BUDGET, QR_STORE_KEY, QR_STORE_BUSY,
                                                QR_STORE_BROKEN};
    m->operation = "faults";
    if (!m->fake || !m->options.faults) return;
    fake_store_faults *faults = fake_store_faults_of(m->fake);
    *faults = (fake_store_faults){0};
    if (pick(m, 2)) return;
    faults->put_fail_percent = pick(m, 2) ? pick(m, 30) : 0;
    faults->get_fail_percent = pick(m, 2) ? pick(m, 20) : 0;
    faults->get_damage_percent = pick(m, 2) ? pick(m, 20) : 0;
    faults->lose_percent = pick(m, 2) ? pick(m, 20) : 0;
    faults->get_refuse_percent = pick(m, 2) ? pick(m, 60) : 0;
    faults->space_short = pick(m, 3) == 0;
    faults->late_events = pick(m, 3) == 0;
    faults->refuse = pick(m, 4) ? QR_STORE_NONE : refusals[pick(m, 5)];
}

/* ---- life ---- */

static void make_manager(tiers_model *m) {
    quire_error error = {0};
    qr_kv_parts parts = {.host_tier = m->options.host_slots > 0 || m->options.device_sim};
    quire_kv_config config = m->options.config;
    uint64_t payload_bytes = 0;
    for (uint32_t g = 0; g < config.group_count; g++)
        payload_bytes += quire_kv_block_bytes(&config.groups[g], config.block_tokens);
    if (m->options.host_slots) config.tiers.host_bytes = m->options.host_slots * payload_bytes + 4096;
    if (m->fake) parts.store = fake_store_open(m->fake);
    if (m->options.make_device) {
        m->device = parts.device = m->options.make_device();
        parts.host_tier = false;
    }
    qr_device_sim_config device = {.seed = m->options.seed + m->step, .delay_polls_max = 5, .reorder = true};
    if (m->options.device_sim) MUST(m, qr_device_sim_create(&device, &parts.device) == QUIRE_OK);
    if (qr_kv_create_from(&config, &parts, &m->kv, &error) != QUIRE_OK) tiers_fail(m, error.text);
    quire_kv_set_time(m->kv, m->now_us);
}

static void step_restart(tiers_model *m) {
    m->operation = "restart";
    if (!m->options.restarts || pick(m, 4)) return;
    for (uint32_t i = 0; i < TIERS_SEQUENCES; i++) m->sequences[i].live = false;
    if (m->fake && pick(m, 2)) fake_store_kill(m->fake);
    quire_kv_destroy(m->kv);
    make_manager(m);
    m->counts.restarts++;
}

typedef struct tiers_operation {
    void (*run)(tiers_model *m);
    uint32_t weight;
} tiers_operation;

static const tiers_operation operations[] = {{step_open, 60},   {step_reserve, 30}, {step_load, 20},    {step_reload, 40},
                                             {step_poll, 200},  {step_take, 90},    {step_compute, 60}, {step_commit, 100},
                                             {step_abandon, 6}, {step_fork, 6},     {step_truncate, 6}, {step_close, 40},
                                             {step_evict, 40},  {step_forget, 2},   {step_pin, 4},      {step_idle, 4},
                                             {step_flush, 2},   {step_faults, 6},   {step_restart, 1}};

void tiers_model_step(tiers_model *m) {
    const uint32_t kinds = sizeof operations / sizeof *operations;
    uint32_t total = 0, choice;
    for (uint32_t i = 0; i < kinds; i++) total += operations[i].weight;
    choice = pick(m, total);
    m->step++;
    m->now_us += pick(m, 400);
    quire_kv_set_time(m->kv, m->now_us);
    const tiers_operation *operation = operations;
    while (choice >= operation->weight) choice -= operation++->weight;
    operation->run(m);
    settle(m);
}

/* Prompts share beginnings. */
static void make_prompts(tiers_model *m) {
    for (uint32_t p = 0; p < TIERS_PROMPTS; p++) {
        uint32_t shared = p > 0 ? pick(m, TIERS_TOKENS) : 0, from = p > 0 ? pick(m, p) : 0;
        for (uint32_t i = 0; i < TIERS_TOKENS; i++)
            m->prompts[p][i] = i < shared ? m->prompts[from][i] : (quire_token)pick(m, 3);
    }
}

quire_kv_config tiers_model_config(uint32_t group_count) {
    quire_kv_group group = {1, 1, 1, 1, QUIRE_KV_F32, QUIRE_KV_F32};
    return (quire_kv_config){.block_tokens = 4,
                             .group_count = group_count,
                             .groups = {group, group},
                             .block_count = 28,
                             .max_sequences = TIERS_SEQUENCES,
                             .max_sequence_tokens = TIERS_TOKENS,
                             .max_namespaces = 4,
                             .policy = QUIRE_KV_DLFU,
                             .storage = QUIRE_KV_STORAGE_HOST};
}

void tiers_model_create(tiers_model *m, const tiers_options *options) {
    *m = (tiers_model){.options = *options, .random = {options->seed}, .now_us = 1, .operation = "create"};
    make_prompts(m);
    fake_store_config store = {.block_tokens = options->config.block_tokens,
                               .record_max = options->record_max,
                               .write_buffers = 3,
                               .read_buffers = 3,
                               .delay_polls_max = 4,
                               .reorder = true,
                               .read_bytes_per_second = 40000000,
                               .record_bytes = 4096,
                               .seed = options->seed};
    for (uint32_t g = 0; g < options->config.group_count && has_bytes(m); g++)
        store.payload_bytes += quire_kv_block_bytes(&options->config.groups[g], options->config.block_tokens);
    if (options->has_store) m->fake = fake_store_create(&store);
    make_manager(m);
    settle(m);
}

void tiers_model_drain(tiers_model *m) {
    quire_kv_stats stats;
    m->operation = "drain";
    for (uint32_t i = 0; i < TIERS_SEQUENCES; i++)
        if (m->sequences[i].live) close_sequence(m, &m->sequences[i]);
    settle(m);
    for (int i = 0; i < 400; i++) {
        m->now_us += 1000;
        quire_kv_set_time(m->kv, m->now_us);
        quire_kv_poll(m->kv);
    }
    settle(m);
    MUST(m, !quire_kv_busy(m->kv));
    quire_kv_get_stats(m->kv, &stats);
    MUST(m, stats.block_used == 0);
    if (m->fake) MUST(m, fake_store_held_buffers(m->fake) == 0);
}

void tiers_model_live(tiers_model *m, uint32_t steps) {
    enum { STEPS_BETWEEN_DRAINS = 2500 };
    for (uint32_t i = 1; i <= steps; i++) {
        tiers_model_step(m);
        if (i % STEPS_BETWEEN_DRAINS == 0) tiers_model_drain(m);
    }
}

void tiers_model_destroy(tiers_model *m) {
    quire_kv_destroy(m->kv);
    if (m->fake) fake_store_destroy(m->fake);
}
