/* load_moves.c - what moves for loads: gets to the store and copies from the host tier, from the back of each run to its front;
 * and what arrives.
 *
 * First come, first served: whoever began first asks first, and others get the buffers that it leaves. So what a load was
 * promised (its estimate counts all that goes before) holds whoever comes later, nobody starves, and what a load waits for
 * when its front has met it was asked for before anything of those that came after. Shares for all would be fair and help
 * nobody: all would be late, and be given up.
 */
#include <string.h>

#include "base/assertion.h"
#include "runtime/kv/kv_internal.h"

enum { LOAD_WINDOW_US = 20000, LOAD_WINDOW_MIN = 4 };

static kv_load *load_of(const quire_kv *kv, uint32_t row) { return &kv->tiers.loads[row]; }

/* ---- places ---- */

static uint32_t *load_counter(kv_load *l, uint8_t state) {
    switch (state) {
    case KV_PLACE_READING: return &l->read_count;
    case KV_PLACE_COPYING:
    case KV_PLACE_DROPPING: return &l->copy_count;
    case KV_PLACE_ARRIVED: return &l->arrived_count;
    default: return NULL;
    }
}

void qr_kv_load_set_place(quire_kv *kv, uint32_t row, uint32_t place, uint8_t mark) {
    kv_load *l = load_of(kv, row);
    uint8_t *at = kv_load_place(&kv->tiers, row, place);
    uint32_t *from = load_counter(l, kv_place_state(*at)), *to = load_counter(l, kv_place_state(mark));
    if (from) --*from;
    if (to) ++*to;
    *at = mark;
}

void qr_kv_load_finish(quire_kv *kv, uint32_t row) {
    kv_load *l = load_of(kv, row);
    if (!l->active || l->read_count + l->copy_count + l->arrived_count > 0) return;
    uint32_t floor = qr_kv_blocks_for(kv, kv->sequences[row].token_count);
    if (l->abandoned || l->asked <= floor) qr_kv_load_end(kv, row);
}

void qr_kv_load_fail(quire_kv *kv, uint32_t row, uint32_t place, quire_kv_miss cause) {
    kv_load *l = load_of(kv, row);
    for (uint32_t at = place; at < l->end; at++) {
        uint8_t state = kv_place_state(*kv_load_place(&kv->tiers, row, at));
        if (state == KV_PLACE_COPYING) qr_kv_load_set_place(kv, row, at, KV_PLACE_DROPPING);
        else if (state != KV_PLACE_DROPPING) qr_kv_load_set_place(kv, row, at, KV_PLACE_NONE);
    }
    if (!l->failed || cause == QUIRE_KV_MISS_DAMAGED) l->cause = cause;
    l->failed = true;
    if (l->end > place) l->end = place;
    if (l->asked > place) l->asked = place;
    kv->tiers.changed = true;
    qr_kv_load_finish(kv, row);
}

/* ---- asking ---- */

kv_read *qr_kv_read_begin(quire_kv *kv, uint64_t *tag) {
    kv_tiers *tiers = &kv->tiers;
    if (tiers->read_count + tiers->scatters.count >= KV_TRANSFERS) return NULL; /* room to copy all that arrives */
    for (uint32_t i = 0; i < KV_READS; i++) {
        if (tiers->reads[i].used) continue;
        tiers->reads[i] = (kv_read){.used = true, .started_us = qr_kv_now_us(kv)};
        tiers->read_count++;
        qr_rate_begin(&tiers->rates[QUIRE_KV_TIER_DISK], qr_kv_now_us(kv));
        *tag = i;
        return &tiers->reads[i];
    }
    return NULL;
}

static void read_end(quire_kv *kv, kv_read *read) {
    read->used = false;
    kv->tiers.read_count--;
}

void qr_kv_read_cancel(quire_kv *kv, kv_read *read) {
    read_end(kv, read);
    qr_rate_end(&kv->tiers.rates[QUIRE_KV_TIER_DISK], 0, qr_kv_now_us(kv));
}

/* What does not prove itself was read all the same: its bytes took their time as any other's. */
static void read_learn(quire_kv *kv, quire_status status) {
    qr_rate *rate = &kv->tiers.rates[QUIRE_KV_TIER_DISK];
    if (status == QUIRE_OK || status == QUIRE_DAMAGED) qr_rate_end(rate, kv->tiers.rate_bytes, qr_kv_now_us(kv));
    else qr_rate_fail(rate, qr_kv_now_us(kv));
}

static kv_transfer load_transfer(const quire_kv *kv, kv_transfer_kind kind, uint32_t row, uint32_t place) {
    kv_transfer t = {.kind = kind,
                     .slot = QR_HOST_SLOT_NONE,
                     .record = QR_RECORD_NONE,
                     .row = row,
                     .place = place,
                     .serial = load_of(kv, row)->serial};
    for (uint32_t g = 0; g < kv->config.group_count; g++) t.blocks[g] = qr_block_table_ids(&kv->tables[g], row)[place];
    return t;
}

/* What moved from one tier to another since it began makes the counts estimates. */
static void load_note_asked(kv_load *l, uint32_t place, bool host) {
    uint32_t *left = host ? &l->host_left : &l->disk_left;
    l->asked = place;
    if (*left > 0) --*left;
}

static bool load_ask_host(quire_kv *kv, uint32_t row, uint32_t place, uint32_t slot) {
    kv_tiers *tiers = &kv->tiers;
    if (tiers->host_loads_left == 0) tiers->more = true;
    if (tiers->host_loads_left == 0 || tiers->read_count + tiers->scatters.count >= KV_TRANSFERS) return false;
    tiers->host_loads_left--;
    kv_transfer t = load_transfer(kv, KV_FROM_SLOT, row, place);
    t.slot = slot;
    load_note_asked(load_of(kv, row), place, true);
    qr_kv_load_set_place(kv, row, place, KV_PLACE_COPYING | KV_PLACE_HOST);
    qr_rate_begin(&tiers->rates[QUIRE_KV_TIER_HOST], qr_kv_now_us(kv));
    qr_kv_scatter(kv, t, qr_host_arena_address(&tiers->host, slot));
    return true;
}

static bool load_ask_store(quire_kv *kv, uint32_t row, uint32_t place, uint32_t record) {
    kv_tiers *tiers = &kv->tiers;
    uint64_t tag;
    if (record == QR_COPY_NONE || tiers->records[record] != KV_RECORD_PUBLISHED) return false;
    kv_read *read = qr_kv_read_begin(kv, &tag);
    if (!read) return false;
    if (!tiers->store->ops->get(tiers->store, record, tag)) {
        qr_kv_read_cancel(kv, read);
        return false;
    }
    read->row = row;
    read->place = place;
    read->serial = load_of(kv, row)->serial;
    load_note_asked(load_of(kv, row), place, false);
    qr_kv_load_set_place(kv, row, place, KV_PLACE_READING);
    return true;
}

/* Asks for the next block towards the front. Where a node is resident by now there is nothing to load: take meets it. */
static bool load_ask(quire_kv *kv, uint32_t row) {
    uint32_t place = load_of(kv, row)->asked - 1;
    qr_node_id node = *kv_load_node(&kv->tiers, row, place);
    if (!qr_tree_is_stored(&kv->tree, node)) return false;
    uint32_t slot = qr_tree_host(&kv->tree, node);
    if (slot != QR_COPY_NONE) return load_ask_host(kv, row, place, slot);
    return load_ask_store(kv, row, place, qr_tree_record(&kv->tree, node));
}

/* Blocks of a load that are asked for at once: what the disk gave in LOAD_WINDOW_US when it was measured last. A front that has
 * met them waits about so long, or computes them in vain. A disk that was never measured is asked for few. */
static uint32_t load_window(const quire_kv *kv) {
    double speed = kv->tiers.rates[QUIRE_KV_TIER_DISK].bytes_per_second;
    double blocks = speed * LOAD_WINDOW_US / 1e6 / (double)kv->tiers.rate_bytes;
    if (blocks < LOAD_WINDOW_MIN) return LOAD_WINDOW_MIN;
    return blocks < KV_READS_PER_LOAD ? (uint32_t)blocks : KV_READS_PER_LOAD;
}

static void load_ask_all(quire_kv *kv, uint32_t row) {
    const kv_load *l = load_of(kv, row);
    const kv_sequence *sequence = &kv->sequences[row];
    uint32_t floor = qr_kv_blocks_for(kv, l->computing > sequence->token_count ? l->computing : sequence->token_count);
    uint32_t window = load_window(kv);
    while (l->active && !l->abandoned && l->asked > floor && l->read_count < window && load_ask(kv, row)) continue;
}

void qr_kv_loads_poll(quire_kv *kv) {
    kv_tiers *tiers = &kv->tiers;
    uint32_t reads = tiers->read_count;
    if (tiers->load_count == 0) return;
    tiers->host_loads_left = KV_HOST_LOADS_PER_POLL;
    for (uint32_t i = 0; i < tiers->load_count; i++) load_ask_all(kv, tiers->load_list[i]);
    if (tiers->read_count > reads) tiers->store->ops->kick(tiers->store);
}

/* ---- arriving ---- */

/* The place that this was asked for, when it still is waited for. */
static bool load_waits(const quire_kv *kv, uint32_t row, uint32_t place, uint32_t serial) {
    const kv_load *l = load_of(kv, row);
    return l->active && l->serial == serial && place >= l->begin && place < l->limit;
}

void qr_kv_load_copied(quire_kv *kv, const kv_transfer *t) {
    kv_tiers *tiers = &kv->tiers;
    bool host = t->kind == KV_FROM_SLOT;
    kv_tier_counters *counters = &tiers->counters[host ? QUIRE_KV_TIER_HOST : QUIRE_KV_TIER_DISK];
    if (!host) tiers->store->ops->release(tiers->store, t->payload);
    else qr_rate_end(&tiers->rates[QUIRE_KV_TIER_HOST], t->failed ? 0 : tiers->rate_bytes, qr_kv_now_us(kv));
    counters->loaded_blocks += !t->failed;
    counters->load_us += qr_kv_now_us(kv) - t->started_us;
    if (!load_waits(kv, t->row, t->place, t->serial)) return;
    uint8_t mark = *kv_load_place(tiers, t->row, t->place), state = kv_place_state(mark);
    if (state == KV_PLACE_DROPPING) {
        qr_kv_load_set_place(kv, t->row, t->place, KV_PLACE_NONE);
        qr_kv_load_finish(kv, t->row);
    } else if (state == KV_PLACE_COPYING) {
        qr_kv_load_set_place(kv, t->row, t->place, KV_PLACE_ARRIVED | (mark & KV_PLACE_HOST));
        if (t->failed) qr_kv_load_fail(kv, t->row, t->place, QUIRE_KV_MISS_DAMAGED);
    }
}

static void read_arrived(quire_kv *kv, const kv_read *read, void *payload) {
    kv_tiers *tiers = &kv->tiers;
    bool wanted = load_waits(kv, read->row, read->place, read->serial) &&
                  kv_place_state(*kv_load_place(tiers, read->row, read->place)) == KV_PLACE_READING;
    if (!wanted) {
        tiers->store->ops->release(tiers->store, payload);
        return;
    }
    kv_transfer t = load_transfer(kv, KV_FROM_PAYLOAD, read->row, read->place);
    t.payload = payload;
    t.started_us = read->started_us;
    qr_kv_load_set_place(kv, read->row, read->place, KV_PLACE_COPYING);
    qr_kv_scatter(kv, t, payload);
}

/* A record that was dropped or forgotten under the load is gone, not damaged; one that cannot be read now stays. */
static quire_kv_miss read_cause(quire_status status) {
    if (status == QUIRE_BUSY) return QUIRE_KV_MISS_ABANDONED;
    return status == QUIRE_IO || status == QUIRE_DAMAGED ? QUIRE_KV_MISS_DAMAGED : QUIRE_KV_MISS_EVICTED;
}

/* It cannot be had: whoever stored it has lost it. */
static void read_failed(quire_kv *kv, const kv_read *read, const qr_store_event *event) {
    kv_tiers *tiers = &kv->tiers;
    if (event->status == QUIRE_IO || event->status == QUIRE_DAMAGED)
        qr_kv_lose(kv, event->owner, QR_GHOST_DAMAGED, true, QR_RECORD_NONE);
    if (load_waits(kv, read->row, read->place, read->serial) &&
        kv_place_state(*kv_load_place(tiers, read->row, read->place)) == KV_PLACE_READING)
        qr_kv_load_fail(kv, read->row, read->place, read_cause(event->status));
}

/* What the record says it is must be what the node is: same key, same tokens. Checksums say only that it is what was written.
 */
static bool read_is_what_was_asked(const quire_kv *kv, const qr_store_event *event) {
    size_t label_bytes = kv->config.block_tokens * sizeof *event->tokens;
    quire_namespace_id ns = kv->tree.store.nodes[event->owner].root;
    return event->tokens && memcmp(event->tokens, qr_node_label(&kv->tree.store, event->owner), label_bytes) == 0 &&
           qr_namespaces_is_key(&kv->namespaces, ns, event->namespace_key, event->namespace_bytes);
}

static void read_refuse(quire_kv *kv, qr_store_event *event, quire_status status) {
    if (event->payload) kv->tiers.store->ops->release(kv->tiers.store, event->payload);
    event->payload = NULL;
    event->status = status;
}

void qr_kv_read_done(quire_kv *kv, const qr_store_event *given) {
    kv_tiers *tiers = &kv->tiers;
    qr_store_event event = *given;
    QR_ASSERT(event.tag < KV_READS && tiers->reads[event.tag].used && event.record < tiers->sizes.record_max);
    kv_read read = tiers->reads[event.tag];
    if (qr_tree_record(&kv->tree, event.owner) != event.record) { /* dropped while this was on its way */
        read_refuse(kv, &event, QUIRE_NOT_FOUND);
    } else if (event.status == QUIRE_OK && !read_is_what_was_asked(kv, &event)) {
        read_refuse(kv, &event, QUIRE_DAMAGED);
        tiers->damaged++;
        qr_kv_note_trouble(kv, QUIRE_KV_TROUBLE_DAMAGED, true, event.record, "tokens or namespace are another block's");
    }
    read_end(kv, &tiers->reads[event.tag]);
    read_learn(kv, given->status);
    tiers->changed = true;
    if (read.verify) qr_kv_verify_read(kv, read.row, &event);
    else if (event.status == QUIRE_OK) read_arrived(kv, &read, event.payload);
    else read_failed(kv, &read, &event);
}
