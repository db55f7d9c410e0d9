/* restore.c - the index that a store brings along becomes namespaces and stored nodes; bytes are read when somebody asks.
 *
 * What does not fit into this manager, too many namespaces or nodes, is dropped from the store.
 */
#include <string.h>

#include "base/assertion.h"
#include "runtime/kv/kv_internal.h"

/* The namespace of a key, entered at a free place when there is one; KV_INDEX_NONE. Nothing gives way. */
static quire_namespace_id restore_namespace(quire_kv *kv, const qr_record_info *info) {
    quire_namespace_id id = qr_namespaces_find(&kv->namespaces, info->namespace_key, info->namespace_bytes);
    if (id != KV_INDEX_NONE) return id;
    id = qr_namespaces_next_free(&kv->namespaces);
    if (id == KV_INDEX_NONE) return id;
    return qr_namespaces_add(&kv->namespaces, id, info->namespace_key, info->namespace_bytes) ? id : KV_INDEX_NONE;
}

/* Only says why a lookup of a first block misses. Our own records are told first, so it takes no place from their
 * namespaces, and its own gives way like any that nobody uses. */
static void restore_foreign(quire_kv *kv, const qr_record_info *info) {
    if (info->depth != 1 || kv->tree.ghost_count >= kv->config.block_count) return;
    quire_namespace_id ns = restore_namespace(kv, info);
    if (ns != KV_INDEX_NONE) qr_tree_insert_ghost(&kv->tree, ns, info->tokens, 1, QR_GHOST_FOREIGN);
}

static uint32_t restore_found(void *context, const qr_record_info *info, qr_record_id record, uint32_t parent_owner,
                              bool foreign) {
    quire_kv *kv = context;
    if (foreign) {
        restore_foreign(kv, info);
        return QR_OWNER_NONE;
    }
    QR_ASSERT(record < kv->tiers.sizes.record_max && kv->tiers.records[record] == KV_RECORD_NONE);
    uint32_t parent = parent_owner == QR_OWNER_NONE ? restore_namespace(kv, info) : parent_owner;
    qr_node_id node = QR_NODE_NONE;
    if (parent != KV_INDEX_NONE) node = qr_tree_insert_stored(&kv->tree, parent, info->tokens, record);
    if (node == QR_NODE_NONE) {
        kv->tiers.counters[QUIRE_KV_TIER_DISK].evicted_blocks++;
        return QR_OWNER_NONE;
    }
    kv->tiers.records[record] = KV_RECORD_PUBLISHED;
    return node;
}

void qr_kv_restore(quire_kv *kv) {
    qr_store *store = kv->tiers.store;
    store->ops->index(store, restore_found, kv);
}
