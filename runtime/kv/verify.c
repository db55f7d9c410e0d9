/* verify.c - recomputed blocks against what is stored of them, part by part: padding is never compared.
 *
 *   waiting   a committed node and its record           \
 *   job       blocks held by a reference, and the copy    > compared -> the record is dropped when they differ
 *   slot      blocks and the host tier's slot            /
 *
 * Nobody waits for it: a node that was evicted before its turn is not compared.
 */
#include <string.h>

#include "base/assertion.h"
#include "runtime/kv/kv_internal.h"

static kv_verify_job *verify_free_job(kv_tiers *tiers) {
    for (uint32_t i = 0; i < KV_VERIFY_JOBS && tiers->jobs; i++)
        if (tiers->jobs[i].state == KV_VERIFY_FREE) return &tiers->jobs[i];
    return NULL;
}

/* Holds the blocks: they stay as they are, and the node's, whatever becomes of the node. */
static void verify_hold(quire_kv *kv, kv_verify_job *job, qr_node_id node) {
    job->node = node;
    memcpy(job->blocks, qr_tree_blocks(&kv->tree, node), kv->config.group_count * sizeof *job->blocks);
    for (uint32_t g = 0; g < kv->config.group_count; g++) qr_pool_ref(&kv->pools[g], job->blocks[g]);
}

static void verify_release(quire_kv *kv, kv_verify_job *job) {
    for (uint32_t g = 0; g < kv->config.group_count; g++) {
        quire_status status = qr_pool_unref(&kv->pools[g], job->blocks[g], NULL);
        QR_ASSERT(status == QUIRE_OK);
    }
    if (job->payload) kv->tiers.store->ops->release(kv->tiers.store, job->payload);
    if (job->slot != QR_HOST_SLOT_NONE) qr_kv_slot_unuse(kv, job->slot);
    *job = (kv_verify_job){0};
    kv->tiers.changed = true;
}

/* ---- beginning ---- */

void qr_kv_verify_record(quire_kv *kv, qr_node_id node) {
    kv_tiers *tiers = &kv->tiers;
    uint32_t record = qr_tree_record(&kv->tree, node);
    if (record == QR_COPY_NONE || tiers->records[record] != KV_RECORD_PUBLISHED || !tiers->jobs) return;
    if (tiers->waiting_count == KV_VERIFY_WAITING) return;
    tiers->waiting[(tiers->waiting_first + tiers->waiting_count++) % KV_VERIFY_WAITING] = (kv_verify_waiting){node, record};
}

bool qr_kv_verify_slot(quire_kv *kv, qr_node_id node, uint32_t slot) {
    kv_verify_job *job = verify_free_job(&kv->tiers);
    if (!job) return false;
    *job = (kv_verify_job){.state = KV_VERIFY_READY, .record = QR_RECORD_NONE, .slot = slot};
    verify_hold(kv, job, node);
    qr_kv_slot_use(kv, slot);
    return true;
}

/* False: no job, no buffer. */
static bool verify_ask(quire_kv *kv, const kv_verify_waiting *waiting) {
    kv_tiers *tiers = &kv->tiers;
    kv_verify_job *job = verify_free_job(tiers);
    uint64_t tag;
    kv_read *read = job ? qr_kv_read_begin(kv, &tag) : NULL;
    if (!read) return false;
    if (!tiers->store->ops->get(tiers->store, waiting->record, tag)) {
        qr_kv_read_cancel(kv, read);
        return false;
    }
    read->verify = true;
    read->row = (uint32_t)(job - tiers->jobs);
    *job = (kv_verify_job){.state = KV_VERIFY_READING, .record = waiting->record, .slot = QR_HOST_SLOT_NONE};
    verify_hold(kv, job, waiting->node);
    return true;
}

static void verify_ask_all(quire_kv *kv) {
    kv_tiers *tiers = &kv->tiers;
    uint32_t reads = tiers->read_count;
    for (; tiers->waiting_count > 0; tiers->waiting_count--) {
        const kv_verify_waiting *waiting = &tiers->waiting[tiers->waiting_first];
        bool there = qr_tree_is_resident(&kv->tree, waiting->node) &&
                     qr_tree_record(&kv->tree, waiting->node) == waiting->record &&
                     tiers->records[waiting->record] == KV_RECORD_PUBLISHED;
        if (there && !verify_ask(kv, waiting)) break;
        tiers->waiting_first = (tiers->waiting_first + 1) % KV_VERIFY_WAITING;
    }
    if (tiers->read_count > reads) tiers->store->ops->kick(tiers->store);
}

/* ---- comparing ---- */

static bool verify_group_equal(const qr_layout *layout, const unsigned char *block, const unsigned char *stored) {
    uint32_t count = layout->layer_count * layout->kv_head_count * QR_LAYOUT_PARTS;
    for (uint32_t i = 0; i < count; i++) {
        const qr_layout_part *part = &layout->parts[i];
        if (memcmp(block + part->offset_bytes, stored + part->offset_bytes, (size_t)part->size_bytes) != 0) return false;
    }
    return true;
}

static bool verify_equal(const quire_kv *kv, const kv_verify_job *job) {
    const kv_tiers *tiers = &kv->tiers;
    const unsigned char *stored = job->payload ? job->payload : qr_host_arena_address(&tiers->host, job->slot);
    for (uint32_t g = 0; g < kv->config.group_count && tiers->payload_bytes > 0; g++) {
        const unsigned char *block =
            tiers->scratch ? tiers->scratch + tiers->offsets[g] : qr_pool_address(&kv->pools[g], job->blocks[g]);
        if (!verify_group_equal(&kv->layouts[g], block, stored + tiers->offsets[g])) return false;
    }
    return true;
}

/* The node, resident or not, still has the record that was compared. A slot is let go of before: then what else there is of
 * these blocks, while they are the node's. */
static bool verify_still_has(const quire_kv *kv, const kv_verify_job *job) {
    if (job->record != QR_RECORD_NONE) return qr_tree_record(&kv->tree, job->node) == job->record;
    return qr_tree_is_resident(&kv->tree, job->node) && qr_tree_blocks(&kv->tree, job->node)[0] == job->blocks[0];
}

static void verify_differs(quire_kv *kv, const kv_verify_job *job) {
    bool there = verify_still_has(kv, job), in_store = job->record != QR_RECORD_NONE;
    kv->tiers.mismatches++;
    qr_kv_note_trouble(kv, QUIRE_KV_TROUBLE_MISMATCH, in_store, there ? job->record : QR_RECORD_NONE,
                       "recomputed, and not what is stored");
    if (!there) return;
    qr_kv_lose(kv, job->node, QR_GHOST_DAMAGED, in_store, QR_RECORD_NONE);
    if (qr_tree_is_resident(&kv->tree, job->node)) qr_tree_list_unsaved(&kv->tree, job->node);
}

static void verify_compare(quire_kv *kv, kv_verify_job *job) {
    kv->tiers.verified++;
    if (!verify_equal(kv, job)) verify_differs(kv, job);
    verify_release(kv, job);
}

void qr_kv_verify_copied(quire_kv *kv, const kv_transfer *t) {
    kv_verify_job *job = &kv->tiers.jobs[t->row];
    QR_ASSERT(job->state == KV_VERIFY_COPYING);
    if (t->failed) verify_release(kv, job);
    else verify_compare(kv, job);
}

void qr_kv_verify_read(quire_kv *kv, uint32_t place, const qr_store_event *event) {
    kv_verify_job *job = &kv->tiers.jobs[place];
    QR_ASSERT(job->state == KV_VERIFY_READING);
    job->payload = event->payload;
    job->state = KV_VERIFY_READY;
    if (event->status == QUIRE_OK) return;
    if (event->status == QUIRE_IO || event->status == QUIRE_DAMAGED)
        qr_kv_lose(kv, event->owner, QR_GHOST_DAMAGED, true, QR_RECORD_NONE);
    verify_release(kv, job);
}

/* A slot can be compared when it is filled. */
static bool verify_is_filled(const kv_tiers *tiers, const kv_verify_job *job) {
    return job->slot == QR_HOST_SLOT_NONE || tiers->slots[job->slot].user_count == 1;
}

void qr_kv_verify_poll(quire_kv *kv) {
    kv_tiers *tiers = &kv->tiers;
    if (!tiers->jobs) return;
    bool scratch_free = true;
    for (uint32_t i = 0; i < KV_VERIFY_JOBS; i++) scratch_free &= tiers->jobs[i].state != KV_VERIFY_COPYING;
    for (uint32_t i = 0; i < KV_VERIFY_JOBS; i++) {
        kv_verify_job *job = &tiers->jobs[i];
        if (job->state != KV_VERIFY_READY || !verify_is_filled(tiers, job)) continue;
        if (!tiers->scratch) {
            verify_compare(kv, job);
        } else if (scratch_free && qr_kv_can_gather(kv)) {
            kv_transfer t = {.kind = KV_TO_SCRATCH, .slot = QR_HOST_SLOT_NONE, .record = QR_RECORD_NONE, .row = i};
            memcpy(t.blocks, job->blocks, sizeof t.blocks);
            job->state = KV_VERIFY_COPYING;
            scratch_free = false;
            qr_kv_gather(kv, t, tiers->scratch);
        }
    }
    verify_ask_all(kv);
}

void qr_kv_verify_end(quire_kv *kv) {
    for (uint32_t i = 0; i < KV_VERIFY_JOBS && kv->tiers.jobs; i++)
        if (kv->tiers.jobs[i].state != KV_VERIFY_FREE) verify_release(kv, &kv->tiers.jobs[i]);
}

bool quire_kv_verify_next(quire_kv *kv) {
    uint32_t every = kv->config.tiers.verify_every;
    if (every == 0 || !kv->tiers.present || ++kv->tiers.verify_turn < every) return false;
    kv->tiers.verify_turn = 0;
    return true;
}
