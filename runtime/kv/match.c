/* The longest cached prefix of a prompt, and the reason that it is not longer. */
#include "runtime/kv/kv_internal.h"

#define MISS_NAME(name, text) [QUIRE_KV_MISS_##name] = (text),

const char *quire_kv_miss_name(quire_kv_miss miss) {
    static const char *const names[] = {QUIRE_KV_MISS_LIST(MISS_NAME)};
    return (unsigned)miss < QUIRE_KV_MISS_COUNT ? names[miss] : "unknown";
}

static quire_kv_miss match_ghost_cause(const quire_kv *kv, qr_node_id ghost) {
    switch (qr_tree_cause(&kv->tree, ghost)) {
    case QR_GHOST_DAMAGED: return QUIRE_KV_MISS_DAMAGED;
    case QR_GHOST_FOREIGN: return QUIRE_KV_MISS_FINGERPRINT;
    default: return QUIRE_KV_MISS_EVICTED;
    }
}

/* The next block is stored: it is not wanted whole, or still being written. */
static quire_kv_miss match_stored_cause(const quire_kv *kv, const quire_token *label, qr_node_id from) {
    qr_node_id node;
    return qr_kv_stored_run(kv, from, label, 1, &node) > 0 ? QUIRE_KV_MISS_LIMIT : QUIRE_KV_MISS_EVICTED;
}

static bool match_goes_on(const quire_kv *kv, qr_node_id node) {
    return qr_tree_has_children(&kv->tree, node) || qr_tree_has_stored_children(&kv->tree, node);
}

/* Why nothing goes on after the whole blocks of `found`, stored ones included, although the prompt does. */
static quire_kv_miss match_cause(const quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count,
                                 const qr_tree_match *found) {
    uint32_t done = found->block_count * kv->config.block_tokens;
    if (count - done >= kv->config.block_tokens) {
        qr_node_id child = qr_tree_find(&kv->tree, found->node, tokens + done);
        if (child != QR_NODE_NONE && qr_tree_is_ghost(&kv->tree, child)) return match_ghost_cause(kv, child);
        if (child != QR_NODE_NONE && qr_tree_is_stored(&kv->tree, child))
            return match_stored_cause(kv, tokens + done, found->node);
        if (qr_tree_found_elsewhere(&kv->tree, ns, tokens, found->block_count + 1)) return QUIRE_KV_MISS_NAMESPACE;
    }
    /* Other prompts that share nothing are no divergence. */
    bool common = found->block_count > 0 || found->tail_words > 0;
    return common && match_goes_on(kv, found->node) ? QUIRE_KV_MISS_DIVERGED : QUIRE_KV_MISS_NEVER_STORED;
}

/* Goes on from the resident blocks: what is stored behind them, and why it ends there. */
static void match_behind(const quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count, uint32_t wanted,
                         quire_kv_match *match, qr_tree_match behind) {
    uint32_t bt = kv->config.block_tokens, done = behind.block_count * bt, stored = 0;
    if (kv->tiers.present) stored = qr_kv_stored_run(kv, behind.node, tokens + done, (wanted - done) / bt, &behind.node);
    match->stored_tokens = stored * bt;
    behind.block_count += stored;
    if (stored > 0) behind.tail_words = 0;
    uint32_t reached = stored > 0 ? done + stored * bt : match->token_count;
    if (reached < wanted) match->miss = match_cause(kv, ns, tokens, count, &behind);
    else match->miss = wanted < count ? QUIRE_KV_MISS_LIMIT : QUIRE_KV_MISS_NONE;
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
    match_behind(kv, ns, tokens, count, wanted, match, *found);
}

void quire_kv_match_prefix(const quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count, uint32_t limit,
                           quire_kv_match *match) {
    qr_tree_match found;
    qr_kv_match(kv, ns, tokens, count, limit, match, &found);
}
