/* writes.c - records of nodes: begun while there is time, at eviction, and for a flush; parents always before children.
 *
 * A node that was refused leaves the list of the unsaved, so that nothing is tried again and again; its turn comes again at its
 * eviction, or when something below it is written.
 */
#include <string.h>

#include "base/assertion.h"
#include "runtime/kv/kv_internal.h"

static bool writes_allowed(const quire_kv *kv) { return kv->tiers.store && kv->config.tiers.disk_write != QUIRE_KV_DISK_OFF; }

/* ---- refusals ---- */

static quire_kv_refusal refusal_of(qr_store_refusal refusal) {
    switch (refusal) {
    case QR_STORE_BUSY: return QUIRE_KV_REFUSED_BUSY;
    case QR_STORE_NO_SPACE: return QUIRE_KV_REFUSED_NO_SPACE;
    case QR_STORE_BUDGET: return QUIRE_KV_REFUSED_BUDGET;
    case QR_STORE_KEY: return QUIRE_KV_REFUSED_KEY;
    case QR_STORE_PARENT: return QUIRE_KV_REFUSED_PARENT;
    default: return QUIRE_KV_REFUSED_BROKEN;
    }
}

void qr_kv_refuse(quire_kv *kv, qr_store_refusal refusal) { quire_kv_count_refusal(kv, refusal_of(refusal), 1); }

/* ---- one record ---- */

/* The key's bytes in one piece; false when it is longer than any record can hold. */
static bool write_key(quire_kv *kv, quire_namespace_id ns, size_t *key_bytes) {
    *key_bytes = kv->namespaces.entries[ns].key_bytes;
    if (*key_bytes > sizeof kv->tiers.key) return false;
    qr_namespaces_copy_key(&kv->namespaces, ns, kv->tiers.key);
    return true;
}

static qr_store_refusal write_begin(quire_kv *kv, qr_node_id node, qr_record_id *record, void **payload) {
    kv_tiers *tiers = &kv->tiers;
    const qr_node *n = &kv->tree.store.nodes[node];
    qr_record_info info = {.namespace_key = tiers->key,
                           .parent = n->depth == 1 ? QR_RECORD_NONE : qr_tree_record(&kv->tree, n->parent),
                           .depth = n->depth,
                           .tokens = qr_node_label(&kv->tree.store, node)};
    if (!write_key(kv, n->root, &info.namespace_bytes)) return QR_STORE_KEY;
    return tiers->store->ops->put_begin(tiers->store, &info, node, record, payload);
}

static void write_from_blocks(quire_kv *kv, qr_node_id node, qr_record_id record, void *payload) {
    kv_transfer t = {.kind = KV_TO_RECORD, .node = node, .slot = QR_HOST_SLOT_NONE, .record = record};
    memcpy(t.blocks, qr_tree_blocks(&kv->tree, node), kv->config.group_count * sizeof *t.blocks);
    kv->tiers.records[record] = KV_RECORD_BEGUN;
    kv->tiers.begun_count++;
    qr_kv_gather(kv, t, payload);
}

static void write_from_slot(quire_kv *kv, uint32_t slot, qr_record_id record, void *payload) {
    kv_tiers *tiers = &kv->tiers;
    if (tiers->payload_bytes > 0) memcpy(payload, qr_host_arena_address(&tiers->host, slot), (size_t)tiers->payload_bytes);
    tiers->records[record] = KV_RECORD_SUBMITTED;
    tiers->store->ops->put_submit(tiers->store, record);
}

/* Of a node whose parent has a record, or is a root. */
static kv_write_result write_node(quire_kv *kv, qr_node_id node) {
    uint32_t slot = qr_tree_host(&kv->tree, node);
    bool resident = qr_tree_is_resident(&kv->tree, node);
    qr_record_id record;
    void *payload;
    if (resident ? !qr_kv_can_gather(kv) : kv->tiers.slots[slot].user_count > 0) return KV_WRITE_BUSY;
    qr_store_refusal refusal = write_begin(kv, node, &record, &payload);
    if (refusal == QR_STORE_BUSY) return KV_WRITE_BUSY;
    if (refusal != QR_STORE_NONE) {
        qr_kv_refuse(kv, refusal);
        return KV_WRITE_REFUSED;
    }
    QR_ASSERT(record < kv->tiers.sizes.record_max && kv->tiers.records[record] == KV_RECORD_NONE);
    qr_tree_set_record(&kv->tree, node, record);
    kv->tiers.of_flush[record] = kv->tiers.flush.stage != KV_FLUSH_OFF;
    kv->tiers.flush.begun_count++;
    if (resident) write_from_blocks(kv, node, record, payload);
    else write_from_slot(kv, slot, record, payload);
    if (qr_tree_record(&kv->tree, node) == record) return KV_WRITE_BEGUN;
    qr_kv_refuse(kv, QR_STORE_BROKEN); /* the device refused the copy at once, and the record is gone again */
    return KV_WRITE_REFUSED;
}

kv_write_result qr_kv_write(quire_kv *kv, qr_node_id node, uint32_t count, uint32_t *written) {
    for (*written = 0; *written < count;) {
        qr_node_id next = qr_tree_topmost_unsaved(&kv->tree, node);
        kv_write_result result = write_node(kv, next);
        if (result != KV_WRITE_BEGUN) return result;
        ++*written;
        if (next == node) return KV_WRITE_BEGUN;
    }
    return KV_WRITE_BUSY;
}

/* ---- admission ---- */

/* While space or budget is short only what somebody came back to may take of it. */
static bool write_admits(quire_kv *kv, qr_node_id node) {
    if (!kv->tiers.space_short || qr_tree_seen_twice(&kv->tree, node)) return true;
    quire_kv_count_refusal(kv, QUIRE_KV_REFUSED_ONE_TOUCH, 1);
    return false;
}

/* ---- waiting at eviction ----
 *
 * A victim whose way down cannot all be written at once is worth a moment: whoever wants its blocks is told that they are on
 * their way. The bound keeps a disk that cannot keep up from holding anybody back for more than a tenth of the time, and what
 * is slower to load than to compute is not worth any (law 4). */

static uint64_t wait_spent_us(const quire_kv *kv) { return qr_kv_now_us(kv) - kv->tiers.wait_since_us; }

uint64_t qr_kv_wait_left_us(const quire_kv *kv) {
    const kv_tiers *tiers = &kv->tiers;
    if (!tiers->waits) return UINT64_MAX;
    return wait_spent_us(kv) < tiers->wait_left_us ? tiers->wait_left_us - wait_spent_us(kv) : 0;
}

static void wait_end(quire_kv *kv) {
    kv_tiers *tiers = &kv->tiers;
    if (!tiers->waits) return;
    tiers->wait_left_us = qr_kv_wait_left_us(kv);
    tiers->wait_ended_us = qr_kv_now_us(kv);
    tiers->waits = false;
}

static bool wait_goes_on(quire_kv *kv) {
    kv_tiers *tiers = &kv->tiers;
    if (tiers->slower) {
        wait_end(kv);
        return false;
    }
    if (!tiers->waits) {
        uint64_t left_us = tiers->wait_left_us + (qr_kv_now_us(kv) - tiers->wait_ended_us) / KV_WAIT_SHARE;
        tiers->wait_left_us = left_us < KV_WAIT_US ? left_us : KV_WAIT_US;
        tiers->wait_since_us = qr_kv_now_us(kv);
        tiers->waits = true;
    }
    if (qr_kv_wait_left_us(kv) > 0) return true;
    wait_end(kv);
    return false;
}

void qr_kv_wait_poll(quire_kv *kv) {
    if (qr_kv_wait_left_us(kv) > 0) return;
    wait_end(kv);
    kv->tiers.changed = true;
}

kv_write_result qr_kv_write_victim(quire_kv *kv, qr_node_id node) {
    uint32_t written;
    if (!writes_allowed(kv) || !write_admits(kv, node)) return KV_WRITE_REFUSED;
    kv_write_result result = qr_kv_write(kv, node, KV_WRITES_AT_EVICTION, &written);
    if (result != KV_WRITE_BUSY) {
        wait_end(kv);
        return result;
    }
    if (wait_goes_on(kv)) return KV_WRITE_BUSY;
    quire_kv_count_refusal(kv, QUIRE_KV_REFUSED_BUSY, 1);
    return KV_WRITE_REFUSED;
}

/* ---- what becomes of records ---- */

void qr_kv_touch_record(quire_kv *kv, qr_node_id node) {
    uint32_t record = qr_tree_record(&kv->tree, node);
    if (record != QR_COPY_NONE && kv->tiers.records[record] == KV_RECORD_PUBLISHED)
        kv->tiers.store->ops->touch(kv->tiers.store, record);
}

void qr_kv_write_begun(quire_kv *kv, const kv_transfer *t) {
    kv_tiers *tiers = &kv->tiers;
    QR_ASSERT(tiers->records[t->record] == KV_RECORD_BEGUN);
    tiers->begun_count--;
    if (!t->cancelled && !t->failed) {
        tiers->records[t->record] = KV_RECORD_SUBMITTED;
        tiers->store->ops->put_submit(tiers->store, t->record);
        return;
    }
    tiers->store->ops->put_abort(tiers->store, t->record);
    tiers->records[t->record] = KV_RECORD_NONE;
    if (!t->cancelled) qr_kv_lose(kv, t->node, QR_GHOST_EVICTED, true, t->record);
}

/* Not when the record was dropped while this was on its way, whoever has its number now: losing a parent drops records whose
 * own loss, or failure, the store may have noted already. */
static bool write_is_ours(const quire_kv *kv, const qr_store_event *event) {
    QR_ASSERT(event->record < kv->tiers.sizes.record_max);
    return kv->tiers.records[event->record] != KV_RECORD_NONE && qr_tree_record(&kv->tree, event->owner) == event->record;
}

void qr_kv_write_done(quire_kv *kv, const qr_store_event *event) {
    kv_tiers *tiers = &kv->tiers;
    kv_tier_counters *counters = &tiers->counters[QUIRE_KV_TIER_DISK];
    if (!write_is_ours(kv, event) || tiers->records[event->record] != KV_RECORD_SUBMITTED) return;
    if (event->status != QUIRE_OK) {
        qr_kv_record_lost(kv, event);
        return;
    }
    tiers->records[event->record] = KV_RECORD_PUBLISHED;
    counters->stored_blocks++;
    tiers->changed = true;
}

void qr_kv_record_lost(quire_kv *kv, const qr_store_event *event) {
    if (!write_is_ours(kv, event)) return;
    kv->tiers.calm_us = qr_kv_now_us(kv) + KV_CALM_US;
    /* A flush that loses what it wrote, or cannot write it, has reached its end: the rest stays in memory only. */
    if (kv->tiers.of_flush[event->record]) kv->tiers.flush.begun_max = 0;
    qr_kv_lose(kv, event->owner, QR_GHOST_EVICTED, true, event->record);
}

/* ---- while there is time ---- */

/* What it hangs on was lost or could not be written a moment ago: all of that again for one block more would not end. */
static bool write_is_calm(quire_kv *kv, qr_node_id node) {
    if (qr_kv_now_us(kv) >= kv->tiers.calm_us || qr_tree_topmost_unsaved(&kv->tree, node) == node) return true;
    quire_kv_count_refusal(kv, QUIRE_KV_REFUSED_PARENT, 1);
    return false;
}

/* Writes the head of the list. False: nothing more can be done now. A flush asks for everything. */
static bool writes_next(quire_kv *kv, uint32_t *budget, bool flush) {
    qr_node_id node = qr_tree_first_unsaved(&kv->tree);
    uint32_t written = 0;
    kv_write_result result = KV_WRITE_REFUSED;
    if (flush || (write_is_calm(kv, node) && write_admits(kv, node))) result = qr_kv_write(kv, node, *budget, &written);
    *budget -= written;
    if (result == KV_WRITE_REFUSED) qr_tree_unlist_unsaved(&kv->tree, node);
    return result != KV_WRITE_BUSY;
}

static void writes_of_complete(quire_kv *kv, uint32_t budget) {
    for (uint32_t looks = 0; budget > 0 && kv->tree.unsaved_count > 0; looks++) {
        if (looks == KV_LOOKS_PER_POLL) budget = 0;
        else if (!writes_next(kv, &budget, false)) return;
    }
    kv->tiers.more |= kv->tree.unsaved_count > 0;
}

/* The policy would wait; in idle time it does not for what somebody came back to. Each unsaved node is looked at once. */
static void writes_of_evict(quire_kv *kv, uint32_t budget) {
    kv_tiers *tiers = &kv->tiers;
    uint32_t written, looks = KV_LOOKS_PER_POLL;
    for (; budget > 0 && looks > 0 && tiers->idle_looks > 0 && kv->tree.unsaved_count > 0; looks--) {
        qr_node_id node = qr_tree_first_unsaved(&kv->tree);
        kv_write_result result = KV_WRITE_REFUSED;
        written = 0;
        if (qr_tree_seen_twice(&kv->tree, node)) result = qr_kv_write(kv, node, budget, &written);
        if (result == KV_WRITE_BUSY && written == 0) return;
        budget -= written;
        tiers->idle_looks--;
        if (result == KV_WRITE_BEGUN) continue;
        qr_tree_unlist_unsaved(&kv->tree, node);
        qr_tree_list_unsaved(&kv->tree, node); /* as the last */
    }
    tiers->more |= tiers->idle_looks > 0 && kv->tree.unsaved_count > 0;
}

/* The way down to the next victim. False: nothing more can be done now. */
static bool ahead_victim(quire_kv *kv, uint32_t *budget) {
    uint32_t written;
    if (kv->tree.leaves.count == 0) return true;
    qr_node_id node = qr_tree_victim(&kv->tree);
    if (!qr_tree_is_unsaved(&kv->tree, node) || (kv->tiers.space_short && !qr_tree_seen_twice(&kv->tree, node))) return true;
    kv_write_result result = qr_kv_write(kv, node, *budget, &written);
    *budget -= written;
    if (result == KV_WRITE_REFUSED) qr_tree_unlist_unsaved(&kv->tree, node);
    return result != KV_WRITE_BUSY;
}

/* Before memory is needed: a prompt may need much of it at once, and a conversation goes as a whole, its last block first,
 * which must be written last. So while little is free a good part of what is cached is kept written, what came first before
 * what came later. */
static void writes_ahead(quire_kv *kv, uint32_t budget) {
    const qr_tree *tree = &kv->tree;
    if (kv->pools[0].state_count[QR_BLOCK_FREE] >= kv->config.block_count / KV_AHEAD_SHARE || tree->unsaved_count == 0) return;
    if (!ahead_victim(kv, &budget)) return;
    while (budget > 0 && tree->unsaved_count > tree->resident_count / KV_CLEAN_SHARE)
        if (!writes_next(kv, &budget, false)) return;
    kv->tiers.more |= budget == 0;
}

/* ---- flush ---- */

/* What was refused before is tried again. Returns how many are there already. */
static uint32_t flush_list_all(quire_kv *kv) {
    const qr_node_store *store = &kv->tree.store;
    uint32_t kept = 0;
    for (qr_node_id id = store->root_count; id < store->root_count + store->node_count; id++) {
        bool resident = qr_tree_is_resident(&kv->tree, id);
        if (!resident && !qr_tree_is_stored(&kv->tree, id)) continue;
        bool has_record = qr_tree_record(&kv->tree, id) != QR_COPY_NONE;
        kept += resident && has_record;
        if (has_record) continue;
        if (resident) qr_tree_list_unsaved(&kv->tree, id);
        else kv->tiers.flush.host_left++;
    }
    return kept;
}

/* What comes first is worth most, and a store makes room by what is oldest: so a flush begins no more than lasts beside what is
 * cached and there already. What was carried along to make room takes some of it. */
static void flush_set_limit(quire_kv *kv, uint32_t kept) {
    kv_flush *flush = &kv->tiers.flush;
    qr_store_stats stats;
    kv->tiers.store->ops->stats(kv->tiers.store, &stats);
    flush->carried_from = stats.carried_total;
    flush->begun_max = stats.lasting_max == 0 ? UINT64_MAX : stats.lasting_max > kept ? stats.lasting_max - kept : 0;
}

/* Once it has none it gets none. */
static bool flush_has_room(quire_kv *kv) {
    kv_flush *flush = &kv->tiers.flush;
    qr_store_stats stats;
    if (flush->begun_max == UINT64_MAX || flush->begun_max == 0) return flush->begun_max > 0;
    kv->tiers.store->ops->stats(kv->tiers.store, &stats);
    if (flush->begun_count + (stats.carried_total - flush->carried_from) >= flush->begun_max) flush->begun_max = 0;
    return flush->begun_max > 0;
}

void quire_kv_flush_begin(quire_kv *kv) {
    kv_tiers *tiers = &kv->tiers;
    if (!tiers->store) return;
    tiers->flush = (kv_flush){.stage = KV_FLUSH_SEAL};
    tiers->flush_failed = true;
    tiers->flush_refused = 0;
    memset(tiers->of_flush, 0, tiers->sizes.record_max * sizeof *tiers->of_flush);
    if (!writes_allowed(kv)) return;
    flush_set_limit(kv, flush_list_all(kv));
    qr_tree_sort_unsaved(&kv->tree);
    tiers->flush.stage = KV_FLUSH_RESIDENT;
    tiers->flush.resident_left = kv->tree.unsaved_count;
    tiers->flush.cursor = kv->tree.store.root_count;
}

/* New nodes are listed behind those that were there when it began. */
static uint32_t flush_resident_left(const quire_kv *kv) {
    uint32_t left = kv->tiers.flush.resident_left, unsaved = kv->tree.unsaved_count;
    return left < unsaved ? left : unsaved;
}

uint32_t quire_kv_flush_left(const quire_kv *kv) {
    const kv_flush *flush = &kv->tiers.flush;
    if (flush->stage == KV_FLUSH_OFF) return 0;
    if (kv->device && kv->device->ops->status(kv->device, NULL) != QUIRE_OK) return 0; /* nothing will ever arrive */
    return (flush->stage == KV_FLUSH_RESIDENT ? flush_resident_left(kv) : 0) + flush->host_left + 1;
}

void quire_kv_flush_end(quire_kv *kv) { kv->tiers.flush = (kv_flush){0}; }

/* It stays in memory only, as whatever a store refuses. */
static void flush_refuse_first(quire_kv *kv) {
    qr_kv_refuse(kv, QR_STORE_NO_SPACE);
    qr_tree_unlist_unsaved(&kv->tree, qr_tree_first_unsaved(&kv->tree));
}

static void flush_resident(quire_kv *kv, uint32_t *budget) {
    kv_flush *flush = &kv->tiers.flush;
    while (*budget > 0 && (flush->resident_left = flush_resident_left(kv)) > 0) {
        uint32_t before = kv->tree.unsaved_count;
        if (!flush_has_room(kv)) flush_refuse_first(kv);
        else if (!writes_next(kv, budget, true)) return;
        flush->resident_left -= before - kv->tree.unsaved_count;
    }
    if (flush->resident_left == 0) flush->stage = KV_FLUSH_HOST;
}

/* Stored nodes that only the host tier has. The way up was written with the resident ones. */
static void flush_host(quire_kv *kv, uint32_t *budget) {
    kv_flush *flush = &kv->tiers.flush;
    const qr_node_store *store = &kv->tree.store;
    for (; flush->host_left > 0 && flush->cursor < store->root_count + store->node_count; flush->cursor++) {
        uint32_t written;
        qr_node_id id = flush->cursor;
        if (!qr_tree_is_stored(&kv->tree, id) || qr_tree_record(&kv->tree, id) != QR_COPY_NONE) continue;
        if (*budget == 0) return;
        kv_write_result result = KV_WRITE_REFUSED;
        written = 0;
        if (flush_has_room(kv)) result = qr_kv_write(kv, id, *budget, &written);
        else qr_kv_refuse(kv, QR_STORE_NO_SPACE);
        *budget -= written;
        if (result == KV_WRITE_BUSY) return;
        if (flush->host_left > 0) flush->host_left--;
    }
    flush->host_left = 0;
    flush->stage = KV_FLUSH_SEAL;
}

/* What is still being gathered would come behind the seal. */
static void flush_seal(quire_kv *kv) {
    if (kv->tiers.begun_count > 0) return;
    kv->tiers.flush.stage = KV_FLUSH_SEALING;
    kv->tiers.seals_under_way++;
    kv->tiers.store->ops->seal(kv->tiers.store);
}

/* Cached, and on disk only if that is still to come: what was listed since the flush began. */
static bool flush_left_out(const quire_kv *kv, qr_node_id id) {
    bool cached = qr_tree_is_resident(&kv->tree, id) || qr_tree_is_stored(&kv->tree, id);
    return cached && qr_tree_record(&kv->tree, id) == QR_COPY_NONE && !qr_tree_is_unsaved(&kv->tree, id);
}

/* The seal of an earlier flush says nothing about what was written after it. */
void qr_kv_flush_sealed(quire_kv *kv, quire_status status) {
    kv_tiers *tiers = &kv->tiers;
    const qr_node_store *store = &kv->tree.store;
    QR_ASSERT(tiers->seals_under_way > 0);
    if (--tiers->seals_under_way > 0 || tiers->flush.stage != KV_FLUSH_SEALING) return;
    tiers->flush_failed = status != QUIRE_OK;
    tiers->flush_refused = 0;
    for (qr_node_id id = store->root_count; id < store->root_count + store->node_count; id++)
        tiers->flush_refused += flush_left_out(kv, id);
    quire_kv_flush_end(kv);
}

static void flush_poll(quire_kv *kv) {
    kv_flush *flush = &kv->tiers.flush;
    uint32_t budget = KV_WRITES_PER_FLUSH_POLL;
    if (flush->stage == KV_FLUSH_RESIDENT) flush_resident(kv, &budget);
    if (flush->stage == KV_FLUSH_HOST) flush_host(kv, &budget);
    if (flush->stage == KV_FLUSH_SEAL) flush_seal(kv);
    kv->tiers.more |= budget == 0;
}

/* Somebody waits for reads, so writing keeps out of their way. */
static uint32_t writes_budget(const kv_tiers *tiers) {
    if (tiers->read_count > 0) return 1;
    return tiers->idle ? KV_WRITES_PER_IDLE_POLL : KV_WRITES_PER_POLL;
}

void qr_kv_writes_poll(quire_kv *kv) {
    kv_tiers *tiers = &kv->tiers;
    if (tiers->flush.stage != KV_FLUSH_OFF) flush_poll(kv);
    else if (!writes_allowed(kv)) return;
    else if (kv->config.tiers.disk_write == QUIRE_KV_DISK_COMPLETE) writes_of_complete(kv, writes_budget(tiers));
    else if (tiers->idle) writes_of_evict(kv, writes_budget(tiers));
    else writes_ahead(kv, writes_budget(tiers));
}
