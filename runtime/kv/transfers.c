/* transfers.c - copies under way between blocks and host memory, and what follows when one is done.
 *
 * Gathers go over one stream of the device and scatters over another, so each queue ends in order and only its head is asked.
 * A device whose copies are done when the call returns never puts anything into a queue.
 */
#include <string.h>

#include "base/assertion.h"
#include "runtime/kv/kv_internal.h"

bool qr_kv_can_gather(const quire_kv *kv) { return kv->tiers.gathers.count < KV_TRANSFERS; }

static kv_transfer *queue_at(kv_transfer_queue *queue, uint32_t place) {
    return &queue->items[(queue->first + place) % KV_TRANSFERS];
}

/* ---- references ---- */

static void transfer_ref(quire_kv *kv, const kv_transfer *t) {
    for (uint32_t g = 0; g < kv->config.group_count; g++) qr_pool_ref(&kv->pools[g], t->blocks[g]);
    if (t->slot != QR_HOST_SLOT_NONE) qr_kv_slot_use(kv, t->slot);
}

static void transfer_unref(quire_kv *kv, const kv_transfer *t) {
    for (uint32_t g = 0; g < kv->config.group_count; g++) {
        bool freed;
        quire_status status = qr_pool_unref(&kv->pools[g], t->blocks[g], &freed);
        QR_ASSERT(status == QUIRE_OK);
        if (freed && t->wipe) qr_pool_wipe(&kv->pools[g], t->blocks[g]);
    }
    if (t->slot != QR_HOST_SLOT_NONE) qr_kv_slot_unuse(kv, t->slot);
}

/* ---- what follows ---- */

static void transfer_spilled(quire_kv *kv, const kv_transfer *t) {
    kv_tier_counters *counters = &kv->tiers.counters[QUIRE_KV_TIER_HOST];
    counters->store_us += qr_kv_now_us(kv) - t->started_us;
    counters->stored_blocks += !t->failed;
}

static void transfer_finish(quire_kv *kv, kv_transfer *t) {
    kv->tiers.changed = true;
    switch (t->kind) {
    case KV_TO_SLOT: transfer_spilled(kv, t); break;
    case KV_TO_RECORD: qr_kv_write_begun(kv, t); break;
    case KV_TO_SCRATCH: qr_kv_verify_copied(kv, t); break;
    case KV_FROM_SLOT:
    case KV_FROM_PAYLOAD: qr_kv_load_copied(kv, t); break;
    }
    transfer_unref(kv, t);
}

static bool transfer_is_done(quire_kv *kv, const kv_transfer *t) {
    return t->done.value == 0 || kv->device->ops->poll(kv->device, t->done);
}

/* An event of 0 is complete; any other is asked for in the next poll. */
static void transfer_enter(quire_kv *kv, kv_transfer_queue *queue, kv_transfer *t) {
    if (queue->count == 0 && t->done.value == 0) {
        transfer_finish(kv, t);
        return;
    }
    QR_ASSERT(queue->count < KV_TRANSFERS);
    *queue_at(queue, queue->count++) = *t;
}

/* ---- beginning ---- */

/* What was not submitted whole will never be there: the node, which is still resident, goes without this slot, before anybody
 * can read it. What else the node has stays. A part of the copy may be under way, so the slot is in use until that is over. */
static void transfer_refuse_slot(quire_kv *kv, const kv_transfer *t) {
    qr_tree_set_host(&kv->tree, t->node, QR_COPY_NONE);
    qr_kv_slot_let_go(kv, t->slot, false);
}

void qr_kv_gather(quire_kv *kv, kv_transfer t, void *host) {
    kv_tiers *tiers = &kv->tiers;
    quire_status status = QUIRE_OK;
    transfer_ref(kv, &t);
    if (t.started_us == 0) t.started_us = qr_kv_now_us(kv);
    for (uint32_t g = 0; g < kv->config.group_count && tiers->payload_bytes > 0 && status == QUIRE_OK; g++)
        status = qr_block_mover_gather_run(&tiers->movers[g], &t.blocks[g], 1, (unsigned char *)host + tiers->offsets[g],
                                           (qr_device_event){0}, &t.done);
    t.failed = status != QUIRE_OK;
    if (t.kind == KV_TO_SLOT) tiers->slots[t.slot].filled = t.done;
    if (t.kind == KV_TO_SLOT && t.failed) transfer_refuse_slot(kv, &t);
    transfer_enter(kv, &tiers->gathers, &t);
}

void qr_kv_scatter(quire_kv *kv, kv_transfer t, const void *host) {
    kv_tiers *tiers = &kv->tiers;
    quire_status status = QUIRE_OK;
    qr_device_event after = t.kind == KV_FROM_SLOT ? tiers->slots[t.slot].filled : (qr_device_event){0};
    transfer_ref(kv, &t);
    if (t.started_us == 0) t.started_us = qr_kv_now_us(kv);
    for (uint32_t g = 0; g < kv->config.group_count && tiers->payload_bytes > 0 && status == QUIRE_OK; g++)
        status = qr_block_mover_scatter_run(&tiers->movers[g], &t.blocks[g], 1, (const unsigned char *)host + tiers->offsets[g],
                                            after, &t.done);
    t.failed = status != QUIRE_OK;
    transfer_enter(kv, &tiers->scatters, &t);
}

/* ---- going on ---- */

static void queue_poll(quire_kv *kv, kv_transfer_queue *queue) {
    while (queue->count > 0 && transfer_is_done(kv, queue_at(queue, 0))) {
        kv_transfer t = *queue_at(queue, 0);
        queue->first = (queue->first + 1) % KV_TRANSFERS;
        queue->count--;
        transfer_finish(kv, &t);
    }
}

void qr_kv_transfers_poll(quire_kv *kv) {
    queue_poll(kv, &kv->tiers.gathers);
    queue_poll(kv, &kv->tiers.scatters);
}

void qr_kv_transfers_drain(quire_kv *kv) {
    const kv_tiers *tiers = &kv->tiers;
    while (tiers->gathers.count + tiers->scatters.count > 0 && kv->device->ops->status(kv->device, NULL) == QUIRE_OK)
        qr_kv_transfers_poll(kv);
}

static uint32_t queue_leaving(const quire_kv *kv, const kv_transfer_queue *queue) {
    uint32_t leaving = 0;
    for (uint32_t i = 0; i < queue->count; i++)
        leaving += qr_pool_is_private(&kv->pools[0], queue->items[(queue->first + i) % KV_TRANSFERS].blocks[0]);
    return leaving;
}

/* A sequence's own block that is being loaded has two references, so it does not count. */
uint32_t qr_kv_leaving(const quire_kv *kv) {
    return queue_leaving(kv, &kv->tiers.gathers) + queue_leaving(kv, &kv->tiers.scatters);
}

void qr_kv_transfers_wipe(quire_kv *kv) {
    for (uint32_t i = 0; i < kv->tiers.gathers.count; i++) queue_at(&kv->tiers.gathers, i)->wipe = true;
    for (uint32_t i = 0; i < kv->tiers.scatters.count; i++) queue_at(&kv->tiers.scatters, i)->wipe = true;
}
