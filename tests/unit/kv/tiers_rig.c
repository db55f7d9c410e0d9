#include "tests/unit/kv/tiers_rig.h"

#include <criterion/criterion.h>
#include <string.h>

#include "base/hash.h"

tiers_rig tiers_rig_make(void) {
    quire_kv_group group = {2, 1, 1, 1, QUIRE_KV_F32, QUIRE_KV_F32};
    tiers_rig rig = {.config = rig_config(), .now_us = 1000000};
    rig.config.group_count = 2;
    rig.config.groups[0] = rig.config.groups[1] = group;
    rig.config.groups[1].layer_count = 80; /* larger than a page, so the offsets differ */
    rig.config.block_count = 16;
    rig.store = (fake_store_config){.block_tokens = RIG_BLOCK, .record_max = 64, .read_buffers = 8, .write_buffers = 8};
    return rig;
}

static uint64_t payload_bytes(const tiers_rig *rig) {
    uint64_t sum = 0;
    for (uint32_t g = 0; g < rig->config.group_count; g++)
        sum += quire_kv_block_bytes(&rig->config.groups[g], rig->config.block_tokens);
    return sum;
}

static void rig_create_manager(tiers_rig *rig) {
    quire_error error;
    qr_kv_parts parts = {.host_tier = rig->host_slots > 0 || rig->device_sim};
    if (rig->fake) parts.store = fake_store_open(rig->fake);
    if (rig->device_sim) cr_assert_eq(qr_device_sim_create(&rig->device, &parts.device), QUIRE_OK);
    rig->config.tiers.host_bytes = rig->host_slots * (payload_bytes(rig) + 64) + (rig->host_slots ? 4096 : 0);
    cr_assert_eq(qr_kv_create_from(&rig->config, &parts, &rig->kv, &error), QUIRE_OK, "%s", error.text);
    quire_kv_set_time(rig->kv, rig->now_us);
}

void tiers_rig_open(tiers_rig *rig) {
    rig->store.payload_bytes = payload_bytes(rig);
    if (!rig->no_store) rig->fake = fake_store_create(&rig->store);
    rig_create_manager(rig);
}

static void rig_check(const tiers_rig *rig) {
    quire_error error;
    cr_assert_eq(quire_kv_check(rig->kv, &error), QUIRE_OK, "%s", error.text);
}

void tiers_rig_restart(tiers_rig *rig) {
    rig_check(rig);
    quire_kv_destroy(rig->kv);
    rig_create_manager(rig);
    rig_check(rig);
}

void tiers_rig_close(tiers_rig *rig) {
    tiers_rig_settle(rig);
    cr_assert_not(quire_kv_busy(rig->kv));
    if (rig->fake) cr_assert_eq(fake_store_held_buffers(rig->fake), 0);
    cr_assert_eq(rig_stats(rig->kv).block_used, 0);
    quire_kv_destroy(rig->kv);
    if (rig->fake) fake_store_destroy(rig->fake);
}

bool tiers_rig_round(tiers_rig *rig) {
    rig->now_us += 1000;
    quire_kv_set_time(rig->kv, rig->now_us);
    bool changed = quire_kv_poll(rig->kv);
    rig_check(rig);
    return changed;
}

void tiers_rig_settle(tiers_rig *rig) {
    for (int quiet = 0; quiet < 20 || quire_kv_busy(rig->kv);) quiet = tiers_rig_round(rig) ? 0 : quiet + 1;
}

/* ---- bytes ---- */

static uint32_t expected_word(quire_namespace_id ns, const quire_token *tokens, uint32_t position, uint32_t part) {
    uint64_t chain = qr_mix64(ns + 1);
    for (uint32_t i = 0; i <= position; i++) chain = qr_mix64(chain ^ (uint32_t)tokens[i]);
    return (uint32_t)qr_mix64(chain + part) | 1;
}

static uint32_t *word_at(const tiers_rig *rig, quire_seq_id seq, uint32_t g, uint32_t layer, uint32_t position) {
    uint32_t count;
    size_t stride;
    const quire_block_id *table = quire_kv_seq_table(rig->kv, seq, g, &count);
    cr_assert(position / RIG_BLOCK < count);
    char *base = quire_kv_pool_base(rig->kv, g, &stride);
    char *block = base + table[position / RIG_BLOCK] * stride;
    return (uint32_t *)(void *)(block + quire_kv_part_offset(rig->kv, g, layer, 0, QUIRE_KV_KEYS)) + position % RIG_BLOCK;
}

/* The first and the last layer of each group. */
static void each_word(const tiers_rig *rig, quire_seq_id seq, const quire_token *tokens, uint32_t from, uint32_t to,
                      bool write) {
    quire_kv_seq_info info;
    cr_assert_eq(quire_kv_seq_get(rig->kv, seq, &info), QUIRE_OK);
    for (uint32_t position = from; position < to; position++)
        for (uint32_t part = 0; part < 2 * rig->config.group_count; part++) {
            uint32_t g = part / 2, layer = part % 2 ? rig->config.groups[g].layer_count - 1 : 0;
            uint32_t *word = word_at(rig, seq, g, layer, position);
            uint32_t expected = expected_word(info.ns, tokens, position, part);
            if (write) *word = expected;
            else if (*word != expected) cr_assert_fail("token %u of group %u has other bytes", position, g);
        }
}

void tiers_rig_compute(tiers_rig *rig, quire_seq_id seq, const quire_token *tokens, uint32_t from, uint32_t to) {
    each_word(rig, seq, tokens, from, to, true);
    cr_assert_eq(quire_kv_seq_commit(rig->kv, seq, tokens + from, to - from), QUIRE_OK);
    rig_check(rig);
}

void tiers_rig_check_bytes(tiers_rig *rig, quire_seq_id seq) {
    quire_kv_seq_info info;
    cr_assert_eq(quire_kv_seq_get(rig->kv, seq, &info), QUIRE_OK);
    each_word(rig, seq, info.tokens, 0, info.token_count, false);
}

/* ---- prompts ---- */

static quire_kv_match rig_attach(tiers_rig *rig, quire_namespace_id ns, const quire_token *tokens, uint32_t count,
                                 quire_seq_id *seq) {
    quire_kv_match match;
    cr_assert_eq(quire_kv_seq_open(rig->kv, ns, seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_attach(rig->kv, *seq, tokens, count, count, &match), QUIRE_OK);
    for (int i = 0; i < 1000 && quire_kv_seq_reserve(rig->kv, *seq, count) != QUIRE_OK; i++) tiers_rig_round(rig);
    cr_assert_eq(quire_kv_seq_reserve(rig->kv, *seq, count), QUIRE_OK);
    tiers_rig_check_bytes(rig, *seq);
    return match;
}

quire_kv_match tiers_rig_start(tiers_rig *rig, quire_namespace_id ns, const quire_token *tokens, uint32_t count,
                               quire_seq_id *seq) {
    quire_kv_match match = rig_attach(rig, ns, tokens, count, seq);
    tiers_rig_compute(rig, *seq, tokens, match.token_count, count);
    return match;
}

void tiers_rig_run(tiers_rig *rig, quire_namespace_id ns, const quire_token *tokens, uint32_t count) {
    quire_seq_id seq;
    tiers_rig_start(rig, ns, tokens, count, &seq);
    rig_close(rig->kv, seq);
}

quire_kv_load tiers_rig_load(tiers_rig *rig, quire_namespace_id ns, const quire_token *tokens, uint32_t count, bool verify,
                             quire_seq_id *seq) {
    quire_kv_load load;
    rig_attach(rig, ns, tokens, count, seq);
    cr_assert_eq(quire_kv_load_plan(rig->kv, *seq, tokens, count, count, &load), QUIRE_OK);
    cr_assert_eq(quire_kv_load_begin(rig->kv, *seq, tokens, &load, verify), QUIRE_OK);
    rig_check(rig);
    return load;
}

static uint32_t rig_token_count(const tiers_rig *rig, quire_seq_id seq) {
    quire_kv_seq_info info;
    cr_assert_eq(quire_kv_seq_get(rig->kv, seq, &info), QUIRE_OK);
    return info.token_count;
}

uint32_t tiers_rig_finish(tiers_rig *rig, quire_seq_id seq, const quire_token *tokens, uint32_t count, uint32_t rate) {
    uint32_t taken = 0;
    for (int rounds = 0; tiers_rig_state(rig, seq).active; rounds++) {
        cr_assert_lt(rounds, 10000);
        tiers_rig_round(rig);
        taken += quire_kv_load_take(rig->kv, seq);
        tiers_rig_check_bytes(rig, seq);
        uint32_t from = rig_token_count(rig, seq), to = from + rate, front = tiers_rig_state(rig, seq).front_tokens;
        if (to > front) to = front;
        if (to > count) to = count;
        if (to <= from) continue;
        quire_kv_load_computing(rig->kv, seq, to);
        tiers_rig_round(rig); /* the step runs, and the manager goes on meanwhile */
        tiers_rig_compute(rig, seq, tokens, from, to);
    }
    return taken;
}

quire_kv_load_state tiers_rig_state(const tiers_rig *rig, quire_seq_id seq) {
    quire_kv_load_state state;
    quire_kv_load_get_state(rig->kv, seq, &state);
    return state;
}

quire_kv_tiers_stats tiers_rig_stats(const tiers_rig *rig) {
    quire_kv_tiers_stats stats;
    quire_kv_get_tiers_stats(rig->kv, &stats);
    return stats;
}
