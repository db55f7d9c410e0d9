/* spill.c - eviction: a victim's bytes go to the host tier, else to the store, else they are gone. And what happens to nodes
 * that lose what they had there. */
#include <string.h>

#include "base/assertion.h"
#include "runtime/kv/kv_internal.h"

/* ---- slots of the host tier ---- */

void qr_kv_slot_use(quire_kv *kv, uint32_t slot) { kv->tiers.slots[slot].user_count++; }

static void slot_free(quire_kv *kv, uint32_t slot) {
    kv_tiers *tiers = &kv->tiers;
    kv_slot *s = &tiers->slots[slot];
    bool wipe = s->wipe;
    *s = (kv_slot){.written = s->written, .owed = s->owed};
    tiers->owed_slots += s->owed;
    if (wipe) qr_kv_slot_wipe(kv, slot);
    qr_host_arena_free(&tiers->host, slot);
}

void qr_kv_slot_unuse(quire_kv *kv, uint32_t slot) {
    kv_slot *s = &kv->tiers.slots[slot];
    QR_ASSERT(s->user_count > 0);
    if (--s->user_count == 0 && s->orphan) slot_free(kv, slot);
}

void qr_kv_slot_let_go(quire_kv *kv, uint32_t slot, bool wipe) {
    kv_slot *s = &kv->tiers.slots[slot];
    QR_ASSERT(s->taken && !s->orphan);
    s->orphan = true;
    s->wipe |= wipe;
    if (s->user_count == 0) slot_free(kv, slot);
}

static uint32_t slot_take(quire_kv *kv) {
    uint32_t slot = qr_host_arena_alloc(&kv->tiers.host);
    if (slot == QR_HOST_SLOT_NONE) return slot;
    if (kv->tiers.slots[slot].owed) qr_kv_slot_wipe(kv, slot);
    kv->tiers.slots[slot].taken = kv->tiers.slots[slot].written = true;
    return slot;
}

/* ---- losing ---- */

static void record_let_go(quire_kv *kv, uint32_t record) {
    kv_tiers *tiers = &kv->tiers;
    kv_transfer_queue *gathers = &tiers->gathers;
    if (tiers->records[record] != KV_RECORD_BEGUN) {
        tiers->dropped_count += tiers->records[record] == KV_RECORD_PUBLISHED;
        if (record != tiers->gone_record) tiers->store->ops->drop(tiers->store, record, tiers->erase);
        tiers->records[record] = KV_RECORD_NONE;
        return;
    }
    for (uint32_t i = 0; i < gathers->count; i++) {
        kv_transfer *t = &gathers->items[(gathers->first + i) % KV_TRANSFERS];
        if (t->kind == KV_TO_RECORD && t->record == record) t->cancelled = true;
    }
}

void qr_kv_release_copies(void *owner, qr_node_id node, uint32_t host, uint32_t record) {
    quire_kv *kv = owner;
    if (host != QR_COPY_NONE) qr_kv_slot_let_go(kv, host, kv->tiers.erase);
    if (record != QR_COPY_NONE) record_let_go(kv, record);
    qr_kv_loads_hurt(kv, node);
}

void qr_kv_lose(quire_kv *kv, qr_node_id node, qr_ghost_cause cause, bool records_only, uint32_t gone) {
    kv->tiers.gone_record = gone;
    kv->tiers.erase = false;
    if (records_only) qr_tree_lose_record(&kv->tree, node, cause, qr_kv_release_copies, kv);
    else qr_tree_lose(&kv->tree, node, cause, qr_kv_release_copies, kv);
    kv->tiers.gone_record = QR_RECORD_NONE;
    kv->tiers.changed = true;
    qr_kv_loads_heal(kv);
}

/* ---- to the host tier ---- */

typedef enum spill_result { SPILL_DONE, SPILL_NOT, SPILL_LATER } spill_result;

/* The slot that is worth least becomes free: what it holds is also on disk, or goes there now, or is lost. NOT: every slot is
 * in use. */
static spill_result spill_make_room(quire_kv *kv) {
    qr_node_id node = qr_tree_host_victim(&kv->tree);
    if (node == QR_NODE_NONE) return SPILL_NOT;
    uint32_t slot = qr_tree_host(&kv->tree, node);
    kv_write_result written = KV_WRITE_BEGUN;
    if (kv->tiers.slots[slot].user_count > 0) return SPILL_NOT;
    if (qr_tree_record(&kv->tree, node) == QR_COPY_NONE) written = qr_kv_write_victim(kv, node);
    if (written == KV_WRITE_BUSY) return SPILL_LATER;
    kv->tiers.counters[QUIRE_KV_TIER_HOST].evicted_blocks++;
    if (written == KV_WRITE_REFUSED) {
        qr_kv_lose(kv, node, QR_GHOST_EVICTED, false, QR_RECORD_NONE);
        return SPILL_DONE;
    }
    qr_tree_set_host(&kv->tree, node, QR_COPY_NONE);
    qr_kv_slot_let_go(kv, slot, false);
    return SPILL_DONE;
}

static kv_transfer spill_transfer(const quire_kv *kv, qr_node_id node, uint32_t slot) {
    kv_transfer t = {.kind = KV_TO_SLOT, .node = node, .slot = slot, .record = QR_RECORD_NONE};
    memcpy(t.blocks, qr_tree_blocks(&kv->tree, node), kv->config.group_count * sizeof *t.blocks);
    return t;
}

static spill_result spill_to_host(quire_kv *kv, qr_node_id victim) {
    if (!kv->tiers.has_host) return SPILL_NOT;
    uint32_t slot = slot_take(kv);
    if (slot == QR_HOST_SLOT_NONE) {
        spill_result room = spill_make_room(kv);
        if (room != SPILL_DONE) return room;
        slot = slot_take(kv);
    }
    if (slot == QR_HOST_SLOT_NONE) return SPILL_NOT;
    if (!qr_kv_can_gather(kv)) { /* making room took the last */
        qr_kv_slot_let_go(kv, slot, false);
        return SPILL_LATER;
    }
    qr_tree_set_host(&kv->tree, victim, slot);
    qr_kv_gather(kv, spill_transfer(kv, victim, slot), qr_host_arena_address(&kv->tiers.host, slot));
    return qr_tree_host(&kv->tree, victim) == slot ? SPILL_DONE : SPILL_NOT; /* the device may refuse */
}

/* ---- a victim ---- */

static spill_result spill_to_store(quire_kv *kv, qr_node_id victim) {
    if (qr_tree_record(&kv->tree, victim) != QR_COPY_NONE) return SPILL_DONE;
    kv_write_result written = qr_kv_write_victim(kv, victim);
    return written == KV_WRITE_BEGUN ? SPILL_DONE : written == KV_WRITE_BUSY ? SPILL_LATER : SPILL_NOT;
}

static bool spill_has_copies(const quire_kv *kv, qr_node_id id) {
    return qr_tree_host(&kv->tree, id) != QR_COPY_NONE || qr_tree_record(&kv->tree, id) != QR_COPY_NONE ||
           qr_tree_has_stored_children(&kv->tree, id);
}

bool qr_kv_spill(quire_kv *kv, qr_node_id victim) {
    if (!qr_kv_can_gather(kv)) return false;
    spill_result kept = spill_to_host(kv, victim);
    if (kept == SPILL_NOT) kept = spill_to_store(kv, victim);
    if (kept == SPILL_LATER) return false;
    if (kept == SPILL_DONE && qr_tree_demote(&kv->tree, victim)) return true;
    /* Nothing of it is left, so what hangs on it goes too. */
    if (spill_has_copies(kv, victim)) qr_kv_lose(kv, victim, QR_GHOST_EVICTED, false, QR_RECORD_NONE);
    qr_tree_evict(&kv->tree, victim);
    return true;
}
