/* The longest cached prefix of a prompt, and the reason that it is not longer. */
#include "runtime/kv/kv_internal.h"

#define MISS_NAME(name, text) [QUIRE_KV_MISS_##name] = (text),

const char *quire_kv_miss_name(quire_kv_miss miss) {
    static const char *const names[] = {QUIRE_KV_MISS_LIST(MISS_NAME)};
    return (unsigned)miss < QUIRE_KV_MISS_COUNT ? names[miss] : "unknown";
}

/* Why nothing goes on after the whole blocks of `found`, although the prompt does. */
static quire_kv_miss match_cause(const quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count,
                                 const qr_tree_match *found) {
    uint32_t done = found->block_count * kv->config.block_tokens;
    if (count - done >= kv->config.block_tokens) {
        qr_node_id child = qr_tree_find(&kv->tree, found->node, tokens + done);
        if (child != QR_NODE_NONE && qr_tree_is_ghost(&kv->tree, child)) return QUIRE_KV_MISS_EVICTED;
        if (qr_tree_found_elsewhere(&kv->tree, ns, tokens, found->block_count + 1)) return QUIRE_KV_MISS_NAMESPACE;
    }
    /* Other prompts that share nothing are no divergence. */
    bool common = found->block_count > 0 || found->tail_words > 0;
    return common && qr_tree_has_children(&kv->tree, found->node) ? QUIRE_KV_MISS_DIVERGED : QUIRE_KV_MISS_NEVER_STORED;
}

void qr_kv_match(const quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count, uint32_t limit,
                 quire_kv_match *match, qr_tree_match *found) {
    uint32_t wanted = count < limit ? count : limit;
    *match = (quire_kv_match){.miss = kv->config.cache_disabled ? QUIRE_KV_MISS_DISABLED : QUIRE_KV_MISS_NEVER_STORED};
    *found = (qr_tree_match){.node = ns, .tail_node = QR_NODE_NONE}; /* the root of ns */
    if (kv->config.cache_disabled || !qr_kv_namespace_valid(kv, ns)) return;
    qr_tree_find_prefix(&kv->tree, ns, tokens, wanted, found);
    match->block_count = found->block_count;
    match->tail_tokens = found->tail_words;
    match->token_count = found->block_count * kv->config.block_tokens + found->tail_words;
    if (match->token_count < wanted) match->miss = match_cause(kv, ns, tokens, count, found);
    else match->miss = wanted < count ? QUIRE_KV_MISS_LIMIT : QUIRE_KV_MISS_NONE;
}

void quire_kv_match_prefix(const quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count, uint32_t limit,
                           quire_kv_match *match) {
    qr_tree_match found;
    qr_kv_match(kv, ns, tokens, count, limit, match, &found);
}
