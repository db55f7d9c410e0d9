/* What an owner may ask of the cache as a whole: keep this, give some back, forget. */
#include "runtime/kv/kv_internal.h"

uint32_t quire_kv_pin(quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count, uint32_t priority,
                      uint64_t ttl_us) {
    quire_kv_match match;
    qr_tree_match found;
    qr_kv_match(kv, ns, tokens, count, count, &match, &found);
    if (match.block_count == 0 || !qr_tree_pin(&kv->tree, found.node, priority, ttl_us)) return 0;
    return match.block_count * kv->config.block_tokens;
}

uint32_t quire_kv_evict(quire_kv *kv, uint32_t blocks) {
    uint32_t evicted = 0;
    while (evicted < blocks && qr_kv_evict_one(kv)) evicted++;
    return evicted;
}

typedef struct cache_forgetting {
    quire_kv *kv;
    bool wipe;
    uint32_t freed_count;
} cache_forgetting;

/* The tree lets go of one node: blocks that a sequence still uses become its own. */
static void cache_release(void *owner, const quire_block_id *blocks) {
    cache_forgetting *forgetting = owner;
    bool freed = false;
    for (uint32_t g = 0; g < forgetting->kv->config.group_count; g++) {
        qr_pool *pool = &forgetting->kv->pools[g];
        freed = qr_pool_unkeep(pool, blocks[g]);
        if (freed && forgetting->wipe) qr_pool_wipe(pool, blocks[g]);
    }
    forgetting->freed_count += freed;
}

static void cache_release_copies(void *owner, qr_node_id node, uint32_t host, uint32_t record) {
    const cache_forgetting *forgetting = owner;
    qr_kv_release_copies(forgetting->kv, node, host, record);
}

/* Loads first: they lock nodes that will be gone. */
static void cache_forget_sequences(quire_kv *kv, quire_namespace_id ns, bool wipe) {
    for (uint32_t i = 0; i < kv->config.max_sequences; i++) {
        if (!kv->sequences[i].live || kv->sequences[i].ns != ns) continue;
        qr_kv_load_drop(kv, i);
        qr_kv_sequence_forget(&kv->sequences[i], wipe);
    }
}

static uint32_t cache_forget(quire_kv *kv, quire_namespace_id ns, bool wipe) {
    cache_forgetting forgetting = {.kv = kv, .wipe = wipe};
    if (!qr_kv_namespace_valid(kv, ns)) return 0;
    cache_forget_sequences(kv, ns, wipe);
    kv->tiers.erase = wipe;
    if (wipe) qr_kv_transfers_wipe(kv);
    qr_tree_forget(&kv->tree, ns, cache_release, cache_release_copies, &forgetting);
    return forgetting.freed_count;
}

/* What a folder has of other models, and what was dropped there earlier. NULL: everybody's. */
static void cache_erase_foreign(quire_kv *kv, const void *key, size_t key_bytes) {
    if (kv->tiers.store) kv->tiers.store->ops->erase_foreign(kv->tiers.store, key, key_bytes);
}

/* Keys go with what they named: at once, or with the last who uses the namespace. */
static void cache_forget_key(quire_kv *kv, quire_namespace_id ns) {
    if (!qr_namespaces_in_use(&kv->namespaces, ns)) return;
    kv->namespaces.entries[ns].forgotten = true;
    qr_kv_namespace_let_go(kv, ns);
}

static void cache_erase_foreign_of(quire_kv *kv, quire_namespace_id ns) {
    size_t key_bytes = kv->namespaces.entries[ns].key_bytes;
    if (!kv->tiers.store || key_bytes > QR_RECORD_KEY_MAX) return;
    qr_namespaces_copy_key(&kv->namespaces, ns, kv->tiers.key);
    cache_erase_foreign(kv, kv->tiers.key, key_bytes);
}

/* After what is forgotten was let go of: then all that nobody holds is owed. */
static void cache_erase(quire_kv *kv) {
    qr_kv_erasing_begin(kv);
    qr_wipe(kv->tiers.key, sizeof kv->tiers.key);
}

uint32_t quire_kv_forget_namespace(quire_kv *kv, quire_namespace_id ns, bool wipe) {
    if (!qr_kv_namespace_valid(kv, ns)) return 0;
    uint32_t freed_count = cache_forget(kv, ns, wipe);
    if (!wipe) return freed_count;
    cache_erase_foreign_of(kv, ns);
    cache_forget_key(kv, ns);
    cache_erase(kv);
    return freed_count;
}

uint32_t quire_kv_forget_key(quire_kv *kv, const void *key, size_t key_bytes, bool wipe) {
    quire_namespace_id ns = qr_namespaces_find(&kv->namespaces, key, key_bytes);
    uint32_t freed_count = ns == UINT32_MAX ? 0 : cache_forget(kv, ns, wipe);
    if (wipe) cache_erase_foreign(kv, key_bytes ? key : "", key_bytes);
    if (wipe && ns != UINT32_MAX) cache_forget_key(kv, ns);
    if (wipe) cache_erase(kv);
    return freed_count;
}

uint32_t quire_kv_forget_all(quire_kv *kv, bool wipe) {
    uint32_t freed_count = 0;
    for (quire_namespace_id ns = 0; ns < kv->config.max_namespaces; ns++) freed_count += cache_forget(kv, ns, wipe);
    if (wipe) cache_erase_foreign(kv, NULL, 0);
    for (quire_namespace_id ns = 0; wipe && ns < kv->config.max_namespaces; ns++) cache_forget_key(kv, ns);
    if (wipe) cache_erase(kv);
    return freed_count;
}
