/* Statistics, and the proof that pool, tables, tree and sequences agree. */
#include <string.h>

#include "base/error.h"
#include "runtime/kv/kv_internal.h"

void quire_kv_get_stats(const quire_kv *kv, quire_kv_stats *stats) {
    const uint32_t *states = kv->pools[0].state_count;
    const kv_counters *counters = &kv->counters;
    *stats = (quire_kv_stats){
        .block_total = kv->config.block_count,
        .block_free = states[QR_BLOCK_FREE],
        .block_cached = states[QR_BLOCK_CACHED],
        .block_used = states[QR_BLOCK_USED] + states[QR_BLOCK_SHARED],
        .sequence_count = kv->sequence_count,
        .node_count = kv->tree.resident_count + kv->tree.stored_count + kv->tree.ghost_count,
        .tokens_cached = (uint64_t)kv->tree.resident_count * kv->config.block_tokens,
        .lookups_total = counters->lookups,
        .lookup_tokens_total = counters->lookup_tokens,
        .hit_tokens_total = counters->hit_tokens,
        .inserted_blocks_total = counters->inserted_blocks,
        .evicted_blocks_total = counters->evicted_blocks,
        .deduplicated_blocks_total = counters->deduplicated_blocks,
        .copied_blocks_total = counters->copied_blocks,
        .pool_bytes = kv->pool_bytes,
        .bookkeeping_bytes = kv->bookkeeping_bytes,
    };
}

static quire_status check_fail(quire_error *error, const char *what, uint32_t index, const char *why) {
    return qr_fail(error, QUIRE_CORRUPT, "kv", QR_NO_OFFSET, "%s %u: %s", what, index, why);
}

/* The sequence's node at `place` is this one: same blocks, same tokens. */
static bool check_path_node(const quire_kv *kv, uint32_t row, uint32_t place, qr_node_id node) {
    const quire_token *tokens = kv->tokens + (uint64_t)row * kv->token_capacity + (uint64_t)place * kv->config.block_tokens;
    const quire_block_id *blocks = qr_tree_blocks(&kv->tree, node);
    /* After a truncation only the first tokens of the last node are still the sequence's. */
    uint32_t left = kv->sequences[row].token_count - place * kv->config.block_tokens;
    uint32_t words = left < kv->config.block_tokens ? left : kv->config.block_tokens;
    for (uint32_t g = 0; g < kv->config.group_count; g++)
        if (qr_block_table_ids(&kv->tables[g], row)[place] != blocks[g]) return false;
    return memcmp(qr_node_label(&kv->tree.store, node), tokens, words * sizeof *tokens) == 0;
}

static const char *check_path(const quire_kv *kv, uint32_t row) {
    const kv_sequence *sequence = &kv->sequences[row];
    qr_node_id node = sequence->tip;
    for (uint32_t place = sequence->node_count; place-- > 0; node = qr_tree_parent(&kv->tree, node)) {
        if (qr_node_is_root(&kv->tree.store, node) || !qr_tree_is_resident(&kv->tree, node)) return "its path is broken";
        if (!check_path_node(kv, row, place, node)) return "its table or tokens differ from its path";
    }
    return node == sequence->ns ? NULL : "its path does not end at its namespace";
}

static const char *check_sequence(const quire_kv *kv, uint32_t row) {
    const kv_sequence *sequence = &kv->sequences[row];
    uint32_t whole = sequence->token_count / kv->config.block_tokens, length = qr_block_table_length(&kv->tables[0], row);
    bool enters = !kv->config.cache_disabled && !sequence->forgotten;
    for (uint32_t g = 0; g < kv->config.group_count; g++)
        if (qr_block_table_length(&kv->tables[g], row) != length) return "groups differ in length";
    if (!sequence->live) return length == 0 ? NULL : "closed with blocks";
    if (length < qr_kv_blocks_for(kv, sequence->token_count)) return "more tokens than blocks";
    if (!qr_kv_namespace_valid(kv, sequence->ns)) return "its namespace is gone";
    if (enters && sequence->node_count < whole) return "a complete block is not in the tree";
    return check_path(kv, row);
}

/* References in all tables and of copies under way, counted afresh, are those of the pool. */
static quire_status check_references(const quire_kv *kv, uint32_t g, quire_error *error) {
    uint32_t *counts = kv->check_scratch;
    memset(counts, 0, kv->config.block_count * sizeof *counts);
    for (uint32_t row = 0; row < kv->config.max_sequences; row++) {
        const quire_block_id *ids = qr_block_table_ids(&kv->tables[g], row);
        for (uint32_t i = 0; i < qr_block_table_length(&kv->tables[g], row); i++) {
            if (ids[i] >= kv->config.block_count) return check_fail(error, "block", ids[i], "in a table but not in the pool");
            counts[ids[i]]++;
        }
    }
    if (kv->tiers.present) qr_kv_tiers_count_references(kv, g, counts);
    for (uint32_t i = 0; i < kv->config.block_count; i++)
        if (counts[i] != qr_pool_references(&kv->pools[g], i))
            return check_fail(error, "block", i, "its references are not those that were counted");
    return QUIRE_OK;
}

/* What locks nodes besides sequences, and what references blocks besides tables. */
static void count_extra(const quire_kv *kv, uint32_t g) {
    const qr_node_store *store = &kv->tree.store;
    if (!kv->tiers.present) return;
    memset(kv->check_scratch, 0, kv->config.block_count * sizeof *kv->check_scratch);
    memset(kv->tiers.check_nodes, 0, (store->root_count + store->node_count) * sizeof *kv->tiers.check_nodes);
    qr_kv_tiers_count_references(kv, g, kv->check_scratch);
    qr_kv_tiers_count_locks(kv, kv->tiers.check_nodes);
}

/* A resident node keeps one block that has as many references in tables as the node has locks by sequences. */
static const char *check_node(const quire_kv *kv, uint32_t g, qr_node_id id) {
    const qr_pool *pool = &kv->pools[g];
    uint32_t locks = kv->tree.store.nodes[id].lock_count - (kv->tiers.present ? kv->tiers.check_nodes[id] : 0);
    if (!qr_tree_is_resident(&kv->tree, id)) return locks == 0 ? NULL : "locked by nobody";
    quire_block_id block = qr_tree_blocks(&kv->tree, id)[g];
    qr_block_state state = block < kv->config.block_count ? qr_pool_state(pool, block) : QR_BLOCK_FREE;
    if (state != QR_BLOCK_CACHED && state != QR_BLOCK_SHARED) return "its block is not kept";
    uint32_t references = qr_pool_references(pool, block) - (kv->tiers.present ? kv->check_scratch[block] : 0);
    return references == locks ? NULL : "locks are not references";
}

static quire_status check_nodes(const quire_kv *kv, uint32_t g, quire_error *error) {
    const qr_pool *pool = &kv->pools[g];
    const qr_node_store *store = &kv->tree.store;
    count_extra(kv, g);
    for (qr_node_id id = store->root_count; id < store->root_count + store->node_count; id++) {
        const char *wrong = store->nodes[id].state == QR_NODE_FREE ? NULL : check_node(kv, g, id);
        if (wrong) return check_fail(error, "node", id, wrong);
    }
    if (pool->state_count[QR_BLOCK_CACHED] + pool->state_count[QR_BLOCK_SHARED] != kv->tree.resident_count)
        return check_fail(error, "group", g, "a block is kept without a node");
    return QUIRE_OK;
}

static quire_status check_group(const quire_kv *kv, uint32_t g, quire_error *error) {
    if (memcmp(kv->pools[g].state_count, kv->pools[0].state_count, sizeof kv->pools[g].state_count) != 0)
        return check_fail(error, "group", g, "not as full as the others");
    quire_status status = qr_pool_check(&kv->pools[g], error);
    if (status == QUIRE_OK) status = check_references(kv, g, error);
    if (status == QUIRE_OK) status = check_nodes(kv, g, error);
    return status;
}

static quire_status check_sequences(const quire_kv *kv, quire_error *error) {
    uint32_t live_count = 0, in_namespaces = 0;
    for (uint32_t row = 0; row < kv->config.max_sequences; row++) {
        const char *wrong = check_sequence(kv, row);
        if (wrong) return check_fail(error, "sequence", row, wrong);
        live_count += kv->sequences[row].live;
    }
    for (uint32_t i = 0; i < kv->config.max_namespaces; i++) in_namespaces += kv->namespaces.entries[i].sequence_count;
    if (live_count != kv->sequence_count || in_namespaces != live_count)
        return check_fail(error, "sequences", live_count, "the count is wrong");
    return QUIRE_OK;
}

quire_status quire_kv_check(const quire_kv *kv, quire_error *error) {
    quire_status status = qr_tree_check(&kv->tree, error);
    if (status == QUIRE_OK) status = check_sequences(kv, error);
    for (uint32_t g = 0; g < kv->config.group_count && status == QUIRE_OK; g++) status = check_group(kv, g, error);
    if (status == QUIRE_OK) status = qr_kv_tiers_check(kv, error);
    return status;
}
