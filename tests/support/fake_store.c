/* fake_store.c - see fake_store.h. */
#include "tests/support/fake_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/error.h"
#include "base/random.h"
#include "offload/record.h"

enum { FAKE_ALIGNMENT = 4096, FAKE_BUFFERS_DEFAULT = 4, FAKE_DIRT = 0xA5 };

typedef enum fake_state {
    FAKE_FREE,
    FAKE_BEGUN,     /* its write buffer is being filled */
    FAKE_SUBMITTED, /* being written */
    FAKE_PUBLISHED,
    FAKE_LOST,   /* gone, but the owner was not told yet */
    FAKE_DROPPED /* gone, but gets on it are under way */
} fake_state;

typedef struct fake_record {
    fake_state state;
    bool foreign, damaged;
    uint32_t owner, depth, get_count;
    uint64_t serial, parent_serial, touched;
    qr_record_id parent;
    size_t key_bytes;
} fake_record;

typedef enum fake_work_state { WORK_FREE, WORK_FILLING, WORK_WAITING, WORK_RUNNING, WORK_HELD } fake_work_state;

/* A buffer and what is done with it. */
typedef struct fake_work {
    fake_work_state state;
    qr_record_id record;
    uint64_t tag, order, due_poll, due_us;
    unsigned char *buffer;
} fake_work;

struct fake_store {
    qr_store store;
    fake_store_config config;
    fake_store_faults faults;
    qr_random random;
    fake_record *records;  /* [record_max] */
    quire_token *tokens;   /* [record_max][block_tokens] */
    unsigned char *keys;   /* [record_max][QR_RECORD_KEY_MAX] */
    unsigned char *bytes;  /* [record_max][payload_bytes] */
    unsigned char *memory; /* of the buffers */
    fake_work *writes, *reads;
    uint64_t serial, polls, now_us, order, clock;
    uint64_t read_free_us, write_free_us; /* when the disk has done what it was given */
    uint32_t *late_owners;                /* [record_max] of losses noted before a drop, or QR_OWNER_NONE */
    uint32_t lost_count, late_count, seal_count, erased_count;
    bool open, hold, killed, complains;
    qr_store_trouble trouble;
    uint64_t missed;
    qr_store_stats stats;
};

static fake_store *fake_of(const qr_store *store) { return (fake_store *)(void *)(uintptr_t)store; }

static bool fake_chance(fake_store *fake, uint32_t percent) { return percent && qr_random_below(&fake->random, 100) < percent; }

static fake_record *fake_record_of(fake_store *fake, qr_record_id id) {
    QR_ASSERT(id < fake->config.record_max);
    return &fake->records[id];
}

static bool fake_exists(const fake_record *r) {
    return r->state == FAKE_BEGUN || r->state == FAKE_SUBMITTED || r->state == FAKE_PUBLISHED;
}

static unsigned char *fake_bytes(const fake_store *fake, qr_record_id id) {
    return fake->bytes + (uint64_t)id * fake->config.payload_bytes;
}

static quire_token *fake_tokens(const fake_store *fake, qr_record_id id) {
    return fake->tokens + (uint64_t)id * fake->config.block_tokens;
}

static unsigned char *fake_key(const fake_store *fake, qr_record_id id) {
    return fake->keys + (uint64_t)id * QR_RECORD_KEY_MAX;
}

/* Gone for everybody; the id waits for gets under way. */
static void fake_vanish(fake_store *fake, fake_record *r, fake_state next) {
    if (r->state == FAKE_PUBLISHED) fake->stats.record_count--;
    r->state = next == FAKE_FREE && r->get_count > 0 ? FAKE_DROPPED : next;
    if (next == FAKE_LOST) fake->lost_count++;
}

/* ---- index ---- */

static void fake_report(fake_store *fake, qr_record_id id, qr_store_found *found, void *context) {
    fake_record *r = &fake->records[id];
    qr_record_info info = {.namespace_key = fake_key(fake, id),
                           .namespace_bytes = r->key_bytes,
                           .parent = r->foreign ? QR_RECORD_NONE : r->parent,
                           .depth = r->depth,
                           .tokens = fake_tokens(fake, id)};
    uint32_t parent_owner = r->parent == QR_RECORD_NONE ? QR_OWNER_NONE : fake->records[r->parent].owner;
    uint32_t owner =
        found(context, &info, r->foreign ? QR_RECORD_NONE : id, r->foreign ? QR_OWNER_NONE : parent_owner, r->foreign);
    if (r->foreign) return;
    r->owner = owner;
    if (owner == QR_OWNER_NONE) fake_vanish(fake, r, FAKE_FREE);
}

static bool fake_parent_counts(const fake_store *fake, const fake_record *r) {
    if (r->parent == QR_RECORD_NONE) return true;
    const fake_record *parent = &fake->records[r->parent];
    return parent->state == FAKE_PUBLISHED && parent->serial == r->parent_serial && parent->foreign == r->foreign;
}

static void fake_index(qr_store *store, qr_store_found *found, void *context) {
    fake_store *fake = fake_of(store);
    uint32_t deepest = 0;
    for (uint32_t i = 0; i < fake->config.record_max; i++)
        if (fake->records[i].depth > deepest) deepest = fake->records[i].depth;
    for (uint32_t depth = 1; depth <= deepest; depth++)
        for (qr_record_id i = 0; i < fake->config.record_max; i++) {
            fake_record *r = &fake->records[i];
            if (r->state != FAKE_PUBLISHED || r->depth != depth) continue;
            if (!fake_parent_counts(fake, r)) fake_vanish(fake, r, FAKE_FREE);
            else fake_report(fake, i, found, context), fake->stats.index_records_total++;
        }
}

/* ---- writing ---- */

static fake_work *fake_free_work(fake_work *works, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (works[i].state == WORK_FREE) return &works[i];
    return NULL;
}

static fake_work *fake_write_of(fake_store *fake, qr_record_id record) {
    for (uint32_t i = 0; i < fake->config.write_buffers; i++)
        if (fake->writes[i].state != WORK_FREE && fake->writes[i].record == record) return &fake->writes[i];
    return NULL;
}

static void fake_free_write(fake_store *fake, fake_work *write) {
    memset(write->buffer, FAKE_DIRT, fake->config.payload_bytes);
    write->state = WORK_FREE;
}

static bool fake_loses(const fake_record *r) { return r->state == FAKE_PUBLISHED; }

/* The record that was touched longest ago, whatever hangs below it. */
static qr_record_id fake_oldest(const fake_store *fake) {
    qr_record_id oldest = QR_RECORD_NONE;
    for (qr_record_id i = 0; i < fake->config.record_max; i++)
        if (fake_loses(&fake->records[i]) &&
            (oldest == QR_RECORD_NONE || fake->records[i].touched < fake->records[oldest].touched))
            oldest = i;
    return oldest;
}

static qr_record_id fake_free_record(fake_store *fake) {
    for (qr_record_id i = 0; i < fake->config.record_max; i++)
        if (fake->records[i].state == FAKE_FREE) return i;
    return QR_RECORD_NONE;
}

static qr_store_refusal fake_refusal(fake_store *fake, const qr_record_info *info) {
    if (fake->faults.refuse != QR_STORE_NONE) return fake->faults.refuse;
    if (info->namespace_bytes > QR_RECORD_KEY_MAX) return QR_STORE_KEY;
    if (info->parent != QR_RECORD_NONE && !fake_exists(fake_record_of(fake, info->parent))) return QR_STORE_PARENT;
    if (!fake_free_work(fake->writes, fake->config.write_buffers)) return QR_STORE_BUSY;
    return QR_STORE_NONE;
}

/* Full: the oldest goes, and the caller comes again when it has been told. */
static qr_store_refusal fake_make_room(fake_store *fake) {
    qr_record_id oldest = fake_oldest(fake);
    if (oldest == QR_RECORD_NONE) return fake->lost_count ? QR_STORE_BUSY : QR_STORE_NO_SPACE;
    fake->stats.lost_total++;
    fake_vanish(fake, &fake->records[oldest], FAKE_LOST);
    return QR_STORE_BUSY;
}

static qr_store_refusal fake_put_begin(qr_store *store, const qr_record_info *info, uint32_t owner, qr_record_id *record,
                                       void **payload) {
    fake_store *fake = fake_of(store);
    *record = QR_RECORD_NONE;
    *payload = NULL;
    QR_ASSERT(fake->open && info->depth > 0 && (info->parent == QR_RECORD_NONE) == (info->depth == 1));
    qr_store_refusal refusal = fake_refusal(fake, info);
    if (refusal != QR_STORE_NONE) return refusal;
    qr_record_id id = fake_free_record(fake);
    if (id == QR_RECORD_NONE) return fake_make_room(fake);
    fake_work *write = fake_free_work(fake->writes, fake->config.write_buffers);
    fake->records[id] = (fake_record){.state = FAKE_BEGUN,
                                      .owner = owner,
                                      .depth = info->depth,
                                      .serial = ++fake->serial,
                                      .parent_serial = info->parent == QR_RECORD_NONE ? 0 : fake->records[info->parent].serial,
                                      .parent = info->parent,
                                      .touched = ++fake->clock,
                                      .key_bytes = info->namespace_bytes};
    if (info->namespace_bytes) memcpy(fake_key(fake, id), info->namespace_key, info->namespace_bytes);
    memcpy(fake_tokens(fake, id), info->tokens, fake->config.block_tokens * sizeof(quire_token));
    *write = (fake_work){.state = WORK_FILLING, .record = id, .buffer = write->buffer};
    *record = id;
    *payload = write->buffer;
    return QR_STORE_NONE;
}

static uint64_t fake_time_of(const fake_store *fake, uint64_t bytes_per_second) {
    uint64_t bytes = fake->config.record_bytes ? fake->config.record_bytes : fake->config.payload_bytes;
    return bytes_per_second ? bytes * 1000000 / bytes_per_second : 0;
}

/* The disk does one thing after the other; latency is hidden by what goes before. */
static void fake_start(fake_store *fake, fake_work *work, uint64_t *free_us, uint64_t speed, uint64_t latency_us) {
    uint64_t begin_us = *free_us > fake->now_us ? *free_us : fake->now_us + latency_us;
    *free_us = begin_us + fake_time_of(fake, speed);
    work->state = WORK_RUNNING;
    work->order = ++fake->order;
    work->due_us = *free_us;
    work->due_poll = fake->polls + qr_random_below(&fake->random, fake->config.delay_polls_max + 1);
}

/* Or is lost, and the owner does not know yet. */
static bool fake_parent_exists(const fake_store *fake, const fake_record *r) {
    if (r->parent == QR_RECORD_NONE) return true;
    const fake_record *parent = &fake->records[r->parent];
    return (fake_exists(parent) || parent->state == FAKE_LOST) && parent->serial == r->parent_serial;
}

static void fake_put_submit(qr_store *store, qr_record_id record) {
    fake_store *fake = fake_of(store);
    fake_record *r = fake_record_of(fake, record);
    fake_work *write = fake_write_of(fake, record);
    QR_ASSERT(r->state == FAKE_BEGUN && write && write->state == WORK_FILLING);
    QR_ASSERT(fake_parent_exists(fake, r));
    r->state = FAKE_SUBMITTED;
    fake_start(fake, write, &fake->write_free_us, fake->config.write_bytes_per_second, fake->config.write_latency_us);
}

static void fake_put_abort(qr_store *store, qr_record_id record) {
    fake_store *fake = fake_of(store);
    QR_ASSERT(fake_record_of(fake, record)->state == FAKE_BEGUN);
    fake_free_write(fake, fake_write_of(fake, record));
    fake_vanish(fake, &fake->records[record], FAKE_FREE);
}

/* ---- reading ---- */

static bool fake_get(qr_store *store, qr_record_id record, uint64_t tag) {
    fake_store *fake = fake_of(store);
    fake_work *read = fake_free_work(fake->reads, fake->config.read_buffers);
    fake_record *r = fake_record_of(fake, record);
    QR_ASSERT(fake->open && (r->state == FAKE_PUBLISHED || r->state == FAKE_LOST) && !r->foreign);
    if (!read || fake_chance(fake, fake->faults.get_refuse_percent)) return false;
    *read = (fake_work){.state = WORK_WAITING, .record = record, .tag = tag, .buffer = read->buffer};
    r->get_count++;
    return true;
}

static void fake_kick(qr_store *store) {
    fake_store *fake = fake_of(store);
    for (uint32_t i = 0; i < fake->config.read_buffers; i++)
        if (fake->reads[i].state == WORK_WAITING)
            fake_start(fake, &fake->reads[i], &fake->read_free_us, fake->config.read_bytes_per_second,
                       fake->config.read_latency_us);
}

static void fake_release(qr_store *store, void *payload) {
    fake_store *fake = fake_of(store);
    for (uint32_t i = 0; i < fake->config.read_buffers; i++) {
        fake_work *read = &fake->reads[i];
        if (read->buffer != payload || read->state != WORK_HELD) continue;
        memset(read->buffer, FAKE_DIRT, fake->config.payload_bytes);
        read->state = WORK_FREE;
        return;
    }
    QR_ASSERT(!"released what is not held");
}

static void fake_touch(qr_store *store, qr_record_id record) {
    fake_store *fake = fake_of(store);
    fake_record_of(fake, record)->touched = ++fake->clock;
}

static void fake_drop(qr_store *store, qr_record_id record, bool erase) {
    fake_store *fake = fake_of(store);
    fake_record *r = fake_record_of(fake, record);
    QR_ASSERT(r->state == FAKE_SUBMITTED || r->state == FAKE_PUBLISHED || r->state == FAKE_LOST);
    if (r->state == FAKE_SUBMITTED) fake_free_write(fake, fake_write_of(fake, record));
    if (r->state == FAKE_LOST) fake->lost_count--;
    if (r->state == FAKE_LOST && fake->faults.late_events && fake->late_owners[record] == QR_OWNER_NONE) {
        fake->late_owners[record] = r->owner;
        fake->late_count++;
    }
    if (erase) {
        memset(fake_bytes(fake, record), 0, fake->config.payload_bytes);
        fake->erased_count++;
        fake->stats.erased_total++;
    }
    fake_vanish(fake, r, FAKE_FREE);
}

static uint32_t fake_erasing(const qr_store *store) { return fake_of(store)->faults.erasing; }

static void fake_erase_foreign(qr_store *store, const void *key, size_t key_bytes) {
    fake_store *fake = fake_of(store);
    for (qr_record_id i = 0; i < fake->config.record_max; i++) {
        fake_record *r = &fake->records[i];
        bool has = !key || (r->key_bytes == key_bytes && memcmp(fake_key(fake, i), key, key_bytes) == 0);
        if (!r->foreign || r->state != FAKE_PUBLISHED || !has) continue;
        memset(fake_bytes(fake, i), 0, fake->config.payload_bytes);
        fake->erased_count++;
        fake_vanish(fake, r, FAKE_FREE);
    }
}

static void fake_seal(qr_store *store) { fake_of(store)->seal_count++; }

/* ---- what became of it ---- */

static bool fake_due(const fake_store *fake, const fake_work *work) {
    return work->state == WORK_RUNNING && work->due_poll <= fake->polls && work->due_us <= fake->now_us;
}

/* One that is due: the first submitted, or any. */
static fake_work *fake_pick(fake_store *fake, fake_work *works, uint32_t count) {
    fake_work *picked = NULL;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!fake_due(fake, &works[i])) continue;
        bool better = !picked || works[i].order < picked->order;
        if (fake->config.reorder) better = qr_random_below(&fake->random, ++seen) == 0;
        if (better) picked = &works[i];
    }
    return picked;
}

static void fake_end_write(fake_store *fake, fake_work *write, qr_store_event *event) {
    fake_record *r = &fake->records[write->record];
    *event = (qr_store_event){.kind = QR_STORE_PUT_DONE, .record = write->record, .owner = r->owner};
    if (fake_chance(fake, fake->faults.put_fail_percent)) {
        event->status = QUIRE_IO;
        fake->stats.io_error_total++;
        fake_vanish(fake, r, FAKE_FREE);
    } else {
        memcpy(fake_bytes(fake, write->record), write->buffer, fake->config.payload_bytes);
        r->state = FAKE_PUBLISHED;
        fake->stats.record_count++;
        fake->stats.put_total++;
        fake->stats.put_bytes_total += fake->config.payload_bytes;
        fake->stats.device_written_bytes_total += fake->config.payload_bytes + QR_RECORD_HEADER_BYTES;
    }
    fake_free_write(fake, write);
}

static quire_status fake_get_status(fake_store *fake, const fake_record *r) {
    if (r->state != FAKE_PUBLISHED && !(r->state == FAKE_DROPPED && fake->faults.late_events)) return QUIRE_NOT_FOUND;
    if (r->damaged || fake_chance(fake, fake->faults.get_damage_percent)) return QUIRE_DAMAGED;
    return fake_chance(fake, fake->faults.get_fail_percent) ? QUIRE_IO : QUIRE_OK;
}

static void fake_end_read(fake_store *fake, fake_work *read, qr_store_event *event) {
    fake_record *r = &fake->records[read->record];
    *event = (qr_store_event){.kind = QR_STORE_GET_DONE, .record = read->record, .owner = r->owner, .tag = read->tag};
    event->status = fake_get_status(fake, r);
    fake->stats.corrupt_total += event->status == QUIRE_DAMAGED;
    fake->stats.io_error_total += event->status == QUIRE_IO;
    if (--r->get_count == 0 && r->state == FAKE_DROPPED) r->state = FAKE_FREE;
    if (event->status != QUIRE_OK) {
        read->state = WORK_FREE;
        return;
    }
    memcpy(read->buffer, fake_bytes(fake, read->record), fake->config.payload_bytes);
    read->state = WORK_HELD;
    event->payload = read->buffer;
    event->tokens = fake_tokens(fake, read->record);
    event->namespace_key = fake_key(fake, read->record);
    event->namespace_bytes = r->key_bytes;
    fake->stats.get_total++;
    fake->stats.get_bytes_total += fake->config.payload_bytes;
}

static bool fake_tell_lost(fake_store *fake, qr_store_event *event) {
    for (qr_record_id i = 0; i < fake->config.record_max && fake->lost_count; i++) {
        fake_record *r = &fake->records[i];
        if (r->state != FAKE_LOST) continue;
        fake->lost_count--;
        *event = (qr_store_event){.kind = QR_STORE_LOST, .record = i, .owner = r->owner};
        fake_vanish(fake, r, FAKE_FREE);
        return true;
    }
    return false;
}

static void fake_forget_late(fake_store *fake) {
    for (qr_record_id i = 0; i < fake->config.record_max; i++) fake->late_owners[i] = QR_OWNER_NONE;
    fake->late_count = 0;
}

static bool fake_tell_late(fake_store *fake, qr_store_event *event) {
    for (qr_record_id i = 0; i < fake->config.record_max && fake->late_count; i++) {
        if (fake->late_owners[i] == QR_OWNER_NONE) continue;
        *event = (qr_store_event){.kind = QR_STORE_LOST, .record = i, .owner = fake->late_owners[i]};
        fake->late_owners[i] = QR_OWNER_NONE;
        fake->late_count--;
        return true;
    }
    return false;
}

static bool fake_tell_sealed(fake_store *fake, qr_store_event *event) {
    for (uint32_t i = 0; i < fake->config.write_buffers; i++)
        if (fake->writes[i].state == WORK_RUNNING) return false;
    if (fake->seal_count <= fake->faults.seals_kept) return false;
    fake->seal_count--;
    *event = (qr_store_event){
        .kind = QR_STORE_SEALED, .record = QR_RECORD_NONE, .owner = QR_OWNER_NONE, .status = fake->faults.seal_status};
    return true;
}

/* Chance takes a record away, as an owner must always expect. */
static void fake_lose_some(fake_store *fake) {
    if (!fake_chance(fake, fake->faults.lose_percent)) return;
    qr_record_id id = qr_random_below(&fake->random, fake->config.record_max);
    if (!fake_loses(&fake->records[id]) || fake->records[id].foreign) return;
    fake->stats.lost_total++;
    fake_vanish(fake, &fake->records[id], FAKE_LOST);
}

static bool fake_tell_trouble(fake_store *fake, qr_store_event *event) {
    if (!fake->complains) return false;
    fake->complains = false;
    *event = (qr_store_event){.kind = QR_STORE_TROUBLE,
                              .record = QR_RECORD_NONE,
                              .owner = QR_OWNER_NONE,
                              .tag = fake->missed,
                              .trouble = &fake->trouble};
    return true;
}

static bool fake_poll(qr_store *store, uint64_t now_us, qr_store_event *event) {
    fake_store *fake = fake_of(store);
    fake->polls++;
    if (now_us > fake->now_us) fake->now_us = now_us;
    fake_lose_some(fake);
    if (fake_tell_trouble(fake, event)) return true;
    if (fake->lost_count > 0 && fake_tell_lost(fake, event)) return true;
    if (fake->hold) return false;
    if (fake->late_count > 0 && fake_chance(fake, 30)) return fake_tell_late(fake, event);
    fake_work *write = fake_pick(fake, fake->writes, fake->config.write_buffers);
    if (write) fake_end_write(fake, write, event);
    if (write) return true;
    fake_work *read = fake_pick(fake, fake->reads, fake->config.read_buffers);
    if (read) fake_end_read(fake, read, event);
    return read || fake_tell_sealed(fake, event);
}

/* ---- the rest of the table ---- */

static bool fake_busy(const qr_store *store) {
    const fake_store *fake = fake_of(store);
    for (uint32_t i = 0; i < fake->config.write_buffers; i++)
        if (fake->writes[i].state == WORK_RUNNING) return true;
    for (uint32_t i = 0; i < fake->config.read_buffers; i++)
        if (fake->reads[i].state == WORK_RUNNING || fake->reads[i].state == WORK_WAITING) return true;
    return fake->seal_count > 0;
}

static void fake_stats(const qr_store *store, qr_store_stats *stats) {
    const fake_store *fake = fake_of(store);
    *stats = fake->stats;
    stats->payload_bytes = fake->config.payload_bytes;
    stats->record_bytes = fake->config.payload_bytes + QR_RECORD_HEADER_BYTES;
    stats->record_max = fake->config.record_max;
    stats->cap_bytes = stats->record_bytes * fake->config.record_max;
    stats->used_bytes = stats->record_bytes * stats->record_count;
    stats->space_short = fake->faults.space_short;
    stats->lasting_max = fake->faults.lasting_max;
    stats->carried_total = fake->faults.carried_total;
    for (uint32_t i = 0; i < fake->config.write_buffers; i++) stats->writes_queued += fake->writes[i].state == WORK_RUNNING;
    for (uint32_t i = 0; i < fake->config.read_buffers; i++)
        stats->reads_queued += fake->reads[i].state == WORK_RUNNING || fake->reads[i].state == WORK_WAITING;
}

static uint64_t fake_buffer_stride(const fake_store_config *config) {
    return (config->payload_bytes + FAKE_ALIGNMENT) / FAKE_ALIGNMENT * FAKE_ALIGNMENT; /* never 0 */
}

static void fake_buffers(const qr_store *store, void **base, size_t *size_bytes) {
    const fake_store *fake = fake_of(store);
    *base = fake->memory;
    *size_bytes = (size_t)(fake_buffer_stride(&fake->config) * (fake->config.write_buffers + fake->config.read_buffers));
}

static bool fake_where(const qr_store *store, qr_record_id record, qr_store_trouble *trouble) {
    (void)store;
    *trouble = (qr_store_trouble){.offset = record, .file = "fake"};
    return true;
}

static quire_status fake_check(const qr_store *store, quire_error *error) {
    const fake_store *fake = fake_of(store);
    for (qr_record_id i = 0; i < fake->config.record_max; i++) {
        const fake_record *r = &fake->records[i];
        if (!fake_exists(r) || r->foreign || r->parent == QR_RECORD_NONE) continue;
        if (r->state == FAKE_BEGUN) continue; /* may still be aborted */
        if (!fake_parent_exists(fake, r))
            return qr_fail(error, QUIRE_CORRUPT, "fake store", QR_NO_OFFSET, "record %u: its parent is gone", i);
    }
    return QUIRE_OK;
}

static void fake_finish_writes(fake_store *fake) {
    qr_store_event event;
    for (uint32_t i = 0; i < fake->config.write_buffers; i++) {
        fake_work *write = &fake->writes[i];
        if (write->state == WORK_RUNNING && !fake->killed) fake_end_write(fake, write, &event);
        else if (write->state != WORK_FREE) {
            fake_vanish(fake, &fake->records[write->record], FAKE_FREE);
            fake_free_write(fake, write);
        }
    }
}

static void fake_close(qr_store *store) {
    fake_store *fake = fake_of(store);
    QR_ASSERT(fake->open);
    fake_finish_writes(fake);
    fake_forget_late(fake);
    for (uint32_t i = 0; i < fake->config.read_buffers; i++) {
        QR_ASSERT(fake->reads[i].state != WORK_HELD); /* what was lent is given back before */
        fake->reads[i].state = WORK_FREE;
    }
    for (uint32_t i = 0; i < fake->config.record_max; i++) {
        fake->records[i].get_count = 0;
        if (fake->records[i].state == FAKE_LOST || fake->records[i].state == FAKE_DROPPED) fake->records[i].state = FAKE_FREE;
    }
    fake->lost_count = fake->seal_count = 0;
    fake->open = fake->killed = false;
}

static const qr_store_ops fake_ops = {
    .name = "fake",
    .index = fake_index,
    .put_begin = fake_put_begin,
    .put_submit = fake_put_submit,
    .put_abort = fake_put_abort,
    .get = fake_get,
    .kick = fake_kick,
    .release = fake_release,
    .touch = fake_touch,
    .drop = fake_drop,
    .erasing = fake_erasing,
    .erase_foreign = fake_erase_foreign,
    .seal = fake_seal,
    .where = fake_where,
    .poll = fake_poll,
    .busy = fake_busy,
    .stats = fake_stats,
    .buffers = fake_buffers,
    .check = fake_check,
    .close = fake_close,
};

/* ---- the test's side ---- */

static void *fake_take(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size ? size : 1);
    QR_ASSERT(memory != NULL);
    return memory;
}

static void fake_take_buffers(fake_store *fake) {
    uint64_t stride = fake_buffer_stride(&fake->config);
    uint32_t count = fake->config.write_buffers + fake->config.read_buffers;
    fake->memory = aligned_alloc(FAKE_ALIGNMENT, (size_t)(stride * count));
    QR_ASSERT(fake->memory != NULL);
    memset(fake->memory, FAKE_DIRT, (size_t)(stride * count));
    fake->writes = fake_take(count, sizeof *fake->writes);
    fake->reads = fake->writes + fake->config.write_buffers;
    for (uint32_t i = 0; i < count; i++) fake->writes[i].buffer = fake->memory + stride * i;
}

fake_store *fake_store_create(const fake_store_config *config) {
    fake_store *fake = fake_take(1, sizeof *fake);
    fake->store.ops = &fake_ops;
    fake->config = *config;
    if (!config->write_buffers) fake->config.write_buffers = FAKE_BUFFERS_DEFAULT;
    if (!config->read_buffers) fake->config.read_buffers = FAKE_BUFFERS_DEFAULT;
    fake->random.state = config->seed;
    fake->records = fake_take(config->record_max, sizeof *fake->records);
    fake->tokens = fake_take(config->record_max, config->block_tokens * sizeof *fake->tokens);
    fake->keys = fake_take(config->record_max, QR_RECORD_KEY_MAX);
    fake->bytes = fake_take(config->record_max, (size_t)config->payload_bytes);
    fake->late_owners = fake_take(config->record_max, sizeof *fake->late_owners);
    fake_forget_late(fake);
    fake_take_buffers(fake);
    return fake;
}

void fake_store_destroy(fake_store *fake) {
    QR_ASSERT(!fake->open);
    free(fake->records);
    free(fake->tokens);
    free(fake->keys);
    free(fake->bytes);
    free(fake->memory);
    free(fake->writes);
    free(fake->late_owners);
    free(fake);
}

qr_store *fake_store_open(fake_store *fake) {
    QR_ASSERT(!fake->open);
    fake->open = true;
    fake->stats.index_records_total = 0;
    return &fake->store;
}

fake_store_faults *fake_store_faults_of(fake_store *fake) { return &fake->faults; }

void fake_store_set_speed(fake_store *fake, uint64_t read_bytes_per_second, uint64_t write_bytes_per_second) {
    fake->config.read_bytes_per_second = read_bytes_per_second;
    fake->config.write_bytes_per_second = write_bytes_per_second;
}

void fake_store_hold(fake_store *fake, bool hold) { fake->hold = hold; }

void fake_store_kill(fake_store *fake) { fake->killed = true; }

void fake_store_complain(fake_store *fake, const qr_store_trouble *trouble, uint64_t missed) {
    fake->trouble = *trouble;
    fake->missed = missed;
    fake->complains = true;
}

uint64_t fake_store_next_us(const fake_store *fake) {
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < fake->config.write_buffers + fake->config.read_buffers; i++) {
        const fake_work *work = &fake->writes[i]; /* reads lie behind them */
        if (work->state != WORK_RUNNING) continue;
        uint64_t due = work->due_us > fake->now_us ? work->due_us : 0;
        if (due < next) next = due;
    }
    return fake->lost_count || fake->seal_count ? 0 : next;
}

uint32_t fake_store_record_count(const fake_store *fake) { return fake->stats.record_count; }

bool fake_store_find(const fake_store *fake, const quire_token *tokens, uint32_t depth, qr_record_id *record) {
    size_t bytes = fake->config.block_tokens * sizeof *tokens;
    for (qr_record_id i = 0; i < fake->config.record_max; i++) {
        const fake_record *r = &fake->records[i];
        *record = i;
        if (r->state == FAKE_PUBLISHED && r->depth == depth && memcmp(fake_tokens(fake, i), tokens, bytes) == 0) return true;
    }
    *record = QR_RECORD_NONE;
    return false;
}

void *fake_store_payload(fake_store *fake, qr_record_id record) {
    QR_ASSERT(fake_record_of(fake, record)->state == FAKE_PUBLISHED);
    return fake_bytes(fake, record);
}

void fake_store_lose(fake_store *fake, qr_record_id record) {
    QR_ASSERT(fake_record_of(fake, record)->state == FAKE_PUBLISHED);
    fake->stats.lost_total++;
    fake_vanish(fake, &fake->records[record], FAKE_LOST);
}

void fake_store_damage(fake_store *fake, qr_record_id record) { fake_record_of(fake, record)->damaged = true; }

quire_token *fake_store_tokens(fake_store *fake, qr_record_id record) {
    QR_ASSERT(fake_record_of(fake, record)->state == FAKE_PUBLISHED);
    return fake_tokens(fake, record);
}

void fake_store_set_key(fake_store *fake, qr_record_id record, const void *key, size_t key_bytes) {
    QR_ASSERT(key_bytes <= QR_RECORD_KEY_MAX);
    memcpy(fake_key(fake, record), key, key_bytes);
    fake_record_of(fake, record)->key_bytes = key_bytes;
}

void fake_store_make_foreign(fake_store *fake, qr_record_id record) { fake_record_of(fake, record)->foreign = true; }

uint32_t fake_store_held_buffers(const fake_store *fake) {
    uint32_t held = 0;
    for (uint32_t i = 0; i < fake->config.write_buffers + fake->config.read_buffers; i++)
        held += fake->writes[i].state == WORK_HELD || fake->writes[i].state == WORK_FILLING;
    return held;
}

uint32_t fake_store_erased(const fake_store *fake) { return fake->erased_count; }
