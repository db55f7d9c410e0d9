/* What a configuration costs, from the code that lays it out, and whether it is valid at all. */
#include "base/checked.h"
#include "base/error.h"
#include "runtime/kv/kv_internal.h"

/* Limits that keep every count and index in 32 bits; far above any machine. */
enum { KV_BLOCKS_MAX = 1 << 28, KV_SEQUENCES_MAX = 1 << 20, KV_NAMESPACES_MAX = 1 << 24 };

/* A disk remembers many that nobody uses now. */
static uint32_t config_namespaces(const quire_kv_config *config, const kv_tier_sizes *sizes) {
    if (config->max_namespaces) return config->max_namespaces;
    return sizes->record_max > 0 ? QR_NAMESPACES_DEFAULT_DISK : QR_NAMESPACES_DEFAULT;
}

static quire_status config_invalid(quire_error *error, const char *field, uint64_t value) {
    return qr_fail(error, QUIRE_INVALID, field, QR_NO_OFFSET, "%s cannot be %llu", field, (unsigned long long)value);
}

static quire_status config_check_groups(const quire_kv_config *config, quire_error *error) {
    if (config->group_count < 1 || config->group_count > QUIRE_KV_GROUPS_MAX)
        return config_invalid(error, "group_count", config->group_count);
    /* Without storage the shapes describe nothing, and a simulator may leave them out. */
    for (uint32_t i = 0; i < config->group_count && config->storage == QUIRE_KV_STORAGE_HOST; i++)
        if (qr_layout_block_bytes(&config->groups[i], config->block_tokens) == 0)
            return qr_fail(error, QUIRE_INVALID, "groups", QR_NO_OFFSET,
                           "groups[%u] has a count of 0, an unknown type or is too large", i);
    return QUIRE_OK;
}

quire_status qr_kv_config_check(const quire_kv_config *config, quire_error *error) {
    if (config->block_tokens == 0 || config->block_tokens > KV_BLOCKS_MAX)
        return config_invalid(error, "block_tokens", config->block_tokens);
    if (config->block_count == 0 || config->block_count > KV_BLOCKS_MAX)
        return config_invalid(error, "block_count", config->block_count);
    if (config->max_sequences == 0 || config->max_sequences > KV_SEQUENCES_MAX)
        return config_invalid(error, "max_sequences", config->max_sequences);
    if (config->max_sequence_tokens == 0) return config_invalid(error, "max_sequence_tokens", 0);
    if (config->max_namespaces > KV_NAMESPACES_MAX) return config_invalid(error, "max_namespaces", config->max_namespaces);
    if (config->policy != QUIRE_KV_DLFU && config->policy != QUIRE_KV_LRU)
        return config_invalid(error, "policy", config->policy);
    if (config->storage != QUIRE_KV_STORAGE_NONE && config->storage != QUIRE_KV_STORAGE_HOST)
        return config_invalid(error, "storage", config->storage);
    return config_check_groups(config, error);
}

/* A sequence can hold no more than the pool. */
static uint32_t config_token_capacity(const quire_kv_config *config) {
    uint64_t pool_tokens = (uint64_t)config->block_count * config->block_tokens;
    return config->max_sequence_tokens < pool_tokens ? config->max_sequence_tokens : (uint32_t)pool_tokens;
}

static void config_lay_out_groups(quire_kv *kv, const quire_kv_config *config, qr_arena *arena) {
    uint32_t row_blocks = (uint32_t)qr_div_up(kv->token_capacity, config->block_tokens);
    for (uint32_t g = 0; g < config->group_count; g++) {
        qr_pool_init(&kv->pools[g], config->block_count, arena);
        qr_block_tables_init(&kv->tables[g], config->max_sequences, row_blocks, arena);
        if (qr_layout_block_bytes(&config->groups[g], config->block_tokens) > 0)
            qr_layout_init(&kv->layouts[g], &config->groups[g], config->block_tokens, arena);
    }
}

/* Every stored node has a slot or a record, so the tree never runs out of them but for ghosts that loads hold. */
static void config_lay_out_tree(quire_kv *kv, const quire_kv_config *config, const kv_tier_sizes *sizes, qr_arena *arena) {
    uint64_t stored_count = (uint64_t)sizes->slot_count + sizes->record_max;
    if (stored_count > QR_NODES_MAX) arena->failed = true;
    qr_tree_config tree = {.root_count = kv->config.max_namespaces,
                           .block_count = config->block_count,
                           .ghost_count = config->cache_disabled ? 0 : config->block_count * QR_TREE_GHOSTS_PER_BLOCK,
                           .stored_count = (uint32_t)stored_count,
                           .host_count = sizes->slot_count,
                           .label_words = config->block_tokens,
                           .group_count = config->group_count,
                           .policy = config->policy};
    if (config->cache_disabled) tree.block_count = 1; /* no node is ever made */
    qr_tree_init(&kv->tree, &tree, arena);
    qr_namespaces_init(&kv->namespaces, tree.root_count, arena);
}

quire_kv *qr_kv_lay_out(const quire_kv_config *config, const kv_tier_sizes *sizes, qr_arena *arena) {
    quire_kv counted = {0};
    quire_kv *taken = qr_arena_take(arena, 1, sizeof *taken), *kv = taken ? taken : &counted;
    kv->config = *config;
    kv->config.max_namespaces = config_namespaces(config, sizes);
    kv->token_capacity = config_token_capacity(config);
    kv->copy_capacity = sizes->lists_copies ? config->group_count * (2 * config->max_sequences + 32) : 0;
    config_lay_out_groups(kv, config, arena);
    config_lay_out_tree(kv, config, sizes, arena);
    qr_kv_tiers_lay_out(kv, sizes, arena);
    kv->sequences = qr_arena_take(arena, config->max_sequences, sizeof *kv->sequences);
    kv->copies = qr_arena_take(arena, kv->copy_capacity, sizeof *kv->copies);
    kv->check_scratch = qr_arena_take(arena, config->block_count, sizeof *kv->check_scratch);
    kv->tokens = qr_arena_take(arena, (uint64_t)config->max_sequences * kv->token_capacity, sizeof *kv->tokens);
    kv->bookkeeping_bytes = arena->used_bytes;
    return arena->failed ? NULL : taken;
}

bool qr_kv_pool_bytes(const quire_kv_config *config, uint64_t *bytes) {
    *bytes = 0;
    if (config->storage == QUIRE_KV_STORAGE_NONE) return true;
    for (uint32_t g = 0; g < config->group_count; g++) {
        uint64_t group_bytes;
        if (!qr_mul_u64(qr_layout_block_bytes(&config->groups[g], config->block_tokens), config->block_count, &group_bytes))
            return false;
        if (!qr_add_u64(*bytes, group_bytes, bytes)) return false;
    }
    return true;
}

uint64_t quire_kv_block_bytes(const quire_kv_group *group, uint32_t block_tokens) {
    return qr_layout_block_bytes(group, block_tokens);
}

uint64_t quire_kv_token_bytes(const quire_kv_config *config) {
    uint64_t sum = 0;
    if (config->group_count > QUIRE_KV_GROUPS_MAX) return 0;
    for (uint32_t g = 0; g < config->group_count; g++) {
        uint64_t bytes = qr_layout_token_bytes(&config->groups[g]);
        if (bytes == 0 || !qr_add_u64(sum, bytes, &sum)) return 0;
    }
    return sum;
}

uint64_t quire_kv_memory_bytes(const quire_kv_config *config) {
    uint64_t pool_bytes, tiers_bytes, sum;
    qr_arena arena = {0};
    if (qr_kv_config_check(config, NULL) != QUIRE_OK || qr_kv_tiers_config_check(config, false, NULL) != QUIRE_OK) return 0;
    if (!qr_kv_pool_bytes(config, &pool_bytes) || !qr_kv_tiers_bytes(config, &tiers_bytes)) return 0;
    kv_tier_sizes sizes = qr_kv_tier_sizes(config);
    if (sizes.slot_count + (uint64_t)sizes.record_max > 0 && !qr_kv_tiers_can_be_numbered(config, &sizes)) return 0;
    qr_kv_lay_out(config, &sizes, &arena);
    if (arena.failed || !qr_add_u64(pool_bytes, arena.used_bytes, &sum)) return 0;
    return qr_add_u64(sum, tiers_bytes, &sum) ? sum : 0;
}
