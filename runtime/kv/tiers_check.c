/* tiers_check.c - the proof that slots, records, locks and references of the lower tiers add up. */
#include <string.h>

#include "base/error.h"
#include "runtime/kv/kv_internal.h"

static quire_status tiers_fail(quire_error *error, const char *what, uint32_t index, const char *why) {
    return qr_fail(error, QUIRE_CORRUPT, "tiers", QR_NO_OFFSET, "%s %u: %s", what, index, why);
}

static const kv_transfer *queue_item(const kv_transfer_queue *queue, uint32_t place) {
    return &queue->items[(queue->first + place) % KV_TRANSFERS];
}

void qr_kv_tiers_count_references(const quire_kv *kv, uint32_t g, uint32_t *counts) {
    const kv_tiers *tiers = &kv->tiers;
    for (uint32_t i = 0; i < tiers->gathers.count; i++) counts[queue_item(&tiers->gathers, i)->blocks[g]]++;
    for (uint32_t i = 0; i < tiers->scatters.count; i++) counts[queue_item(&tiers->scatters, i)->blocks[g]]++;
    for (uint32_t i = 0; i < KV_VERIFY_JOBS && tiers->jobs; i++)
        if (tiers->jobs[i].state != KV_VERIFY_FREE) counts[tiers->jobs[i].blocks[g]]++;
}

void qr_kv_tiers_count_locks(const quire_kv *kv, uint32_t *counts) {
    const kv_tiers *tiers = &kv->tiers;
    for (uint32_t i = 0; i < tiers->load_count; i++) {
        uint32_t row = tiers->load_list[i];
        const kv_load *l = &tiers->loads[row];
        for (uint32_t place = 0; place < l->limit && l->locks; place++) counts[*kv_load_node(tiers, row, place)]++;
    }
}

/* ---- slots ---- */

static const char *check_slot_of(const quire_kv *kv, qr_node_id id, uint32_t slot) {
    const kv_tiers *tiers = &kv->tiers;
    if (!qr_tree_is_stored(&kv->tree, id)) return "a node that is not stored has a slot";
    if (slot >= tiers->sizes.slot_count || !tiers->slots[slot].taken) return "its slot is not taken";
    if (tiers->slots[slot].orphan) return "its slot was let go of";
    return tiers->check_marks[slot]++ ? "its slot is another's too" : NULL;
}

static uint32_t count_slot_users(const kv_tiers *tiers, uint32_t slot) {
    uint32_t users = 0;
    for (uint32_t i = 0; i < tiers->gathers.count; i++) users += queue_item(&tiers->gathers, i)->slot == slot;
    for (uint32_t i = 0; i < tiers->scatters.count; i++) users += queue_item(&tiers->scatters, i)->slot == slot;
    for (uint32_t i = 0; i < KV_VERIFY_JOBS && tiers->jobs; i++)
        users += tiers->jobs[i].state != KV_VERIFY_FREE && tiers->jobs[i].slot == slot;
    return users;
}

static quire_status check_slots(const quire_kv *kv, quire_error *error) {
    const kv_tiers *tiers = &kv->tiers;
    const qr_node_store *store = &kv->tree.store;
    uint32_t taken = 0, owed = 0;
    memset(tiers->check_marks, 0, tiers->sizes.slot_count);
    for (qr_node_id id = store->root_count; id < store->root_count + store->node_count; id++) {
        if (!qr_tree_is_resident(&kv->tree, id) && !qr_tree_is_stored(&kv->tree, id)) continue;
        uint32_t slot = qr_tree_host(&kv->tree, id);
        const char *wrong = slot == QR_COPY_NONE ? NULL : check_slot_of(kv, id, slot);
        if (wrong) return tiers_fail(error, "node", id, wrong);
    }
    for (uint32_t i = 0; i < tiers->sizes.slot_count; i++) {
        const kv_slot *slot = &tiers->slots[i];
        taken += slot->taken;
        owed += slot->owed && !slot->taken;
        if (slot->user_count != count_slot_users(tiers, i))
            return tiers_fail(error, "slot", i, "its users are not those counted");
        if (slot->taken != (tiers->check_marks[i] || slot->orphan)) return tiers_fail(error, "slot", i, "taken by nobody");
        if (slot->orphan && slot->user_count == 0) return tiers_fail(error, "slot", i, "let go of and not free");
    }
    if (taken + tiers->host.free_count != tiers->sizes.slot_count)
        return tiers_fail(error, "slots", taken, "the count is wrong");
    if (owed != tiers->owed_slots) return tiers_fail(error, "slots", owed, "the count of those that are owed is wrong");
    return QUIRE_OK;
}

/* ---- records ---- */

static bool record_is_cancelled(const kv_tiers *tiers, uint32_t record) {
    for (uint32_t i = 0; i < tiers->gathers.count; i++) {
        const kv_transfer *t = queue_item(&tiers->gathers, i);
        if (t->kind == KV_TO_RECORD && t->record == record) return t->cancelled;
    }
    return false;
}

static const char *check_record_of(const quire_kv *kv, qr_node_id id, uint32_t record) {
    const kv_tiers *tiers = &kv->tiers;
    qr_node_id parent = qr_tree_parent(&kv->tree, id);
    if (record >= tiers->sizes.record_max || tiers->records[record] == KV_RECORD_NONE) return "its record is none of ours";
    if (!qr_node_is_root(&kv->tree.store, parent) && qr_tree_record(&kv->tree, parent) == QR_COPY_NONE)
        return "has a record, its parent has none";
    return tiers->check_marks[record]++ ? "its record is another's too" : NULL;
}

static quire_status check_records(const quire_kv *kv, quire_error *error) {
    const kv_tiers *tiers = &kv->tiers;
    const qr_node_store *store = &kv->tree.store;
    uint32_t begun = 0;
    memset(tiers->check_marks, 0, tiers->sizes.record_max);
    for (qr_node_id id = store->root_count; id < store->root_count + store->node_count; id++) {
        if (!qr_tree_is_resident(&kv->tree, id) && !qr_tree_is_stored(&kv->tree, id)) continue;
        uint32_t record = qr_tree_record(&kv->tree, id);
        const char *wrong = record == QR_COPY_NONE ? NULL : check_record_of(kv, id, record);
        if (wrong) return tiers_fail(error, "node", id, wrong);
    }
    for (uint32_t i = 0; i < tiers->sizes.record_max; i++) {
        begun += tiers->records[i] == KV_RECORD_BEGUN;
        if (tiers->records[i] != KV_RECORD_NONE && !tiers->check_marks[i] && !record_is_cancelled(tiers, i))
            return tiers_fail(error, "record", i, "belongs to no node");
    }
    if (begun != tiers->begun_count) return tiers_fail(error, "records", begun, "the count of those begun is wrong");
    return tiers->store->ops->check(tiers->store, error);
}

/* A copy that is promised is there, or on its way: what is demoted had one. */
static quire_status check_stored(const quire_kv *kv, quire_error *error) {
    const qr_node_store *store = &kv->tree.store;
    for (qr_node_id id = store->root_count; id < store->root_count + store->node_count; id++)
        if (qr_tree_is_stored(&kv->tree, id) && qr_tree_host(&kv->tree, id) == QR_COPY_NONE &&
            qr_tree_record(&kv->tree, id) == QR_COPY_NONE)
            return tiers_fail(error, "node", id, "stored, and nowhere");
    return QUIRE_OK;
}

/* ---- loads ---- */

static const char *check_load(const quire_kv *kv, uint32_t row) {
    const kv_tiers *tiers = &kv->tiers;
    const kv_load *l = &tiers->loads[row];
    uint32_t counts[KV_PLACE_STATES + 1] = {0};
    if (!l->active || !kv->sequences[row].live) return "listed and not active";
    if (l->end > l->limit || l->asked > l->end || l->limit > qr_block_table_length(&kv->tables[0], row))
        return "its bounds are not in order";
    for (uint32_t place = l->begin; place < l->limit; place++) {
        uint8_t state = kv_place_state(*kv_load_place(tiers, row, place));
        counts[state]++;
        if (place >= l->end && state != KV_PLACE_NONE && state != KV_PLACE_DROPPING)
            return "a block behind its end is waited for";
    }
    if (counts[KV_PLACE_READING] != l->read_count || counts[KV_PLACE_ARRIVED] != l->arrived_count ||
        counts[KV_PLACE_COPYING] + counts[KV_PLACE_DROPPING] != l->copy_count)
        return "its places are not those counted";
    for (uint32_t place = 1; place < l->limit && l->locks; place++)
        if (qr_tree_parent(&kv->tree, *kv_load_node(tiers, row, place)) != *kv_load_node(tiers, row, place - 1))
            return "its path is broken";
    return NULL;
}

static quire_status check_loads(const quire_kv *kv, quire_error *error) {
    uint32_t active = 0, reads = 0;
    for (uint32_t i = 0; i < kv->tiers.load_count; i++) {
        const char *wrong = check_load(kv, kv->tiers.load_list[i]);
        if (wrong) return tiers_fail(error, "load", kv->tiers.load_list[i], wrong);
    }
    for (uint32_t row = 0; row < kv->config.max_sequences; row++) active += kv->tiers.loads[row].active;
    for (uint32_t i = 0; i < KV_READS; i++) reads += kv->tiers.reads[i].used;
    if (active != kv->tiers.load_count) return tiers_fail(error, "loads", active, "an active one is not listed");
    if (reads != kv->tiers.read_count) return tiers_fail(error, "reads", reads, "the count is wrong");
    return QUIRE_OK;
}

quire_status qr_kv_tiers_check(const quire_kv *kv, quire_error *error) {
    if (!kv->tiers.present) return QUIRE_OK;
    quire_status status = check_stored(kv, error);
    if (status == QUIRE_OK && kv->tiers.has_host) status = check_slots(kv, error);
    if (status == QUIRE_OK && kv->tiers.store) status = check_records(kv, error);
    if (status == QUIRE_OK) status = check_loads(kv, error);
    return status;
}
