/* disk_table.c - records and segments in memory. Every function wants the store's lock held.
 *
 * A record is in exactly one place: the free list, the list of its segment (LIVE), the list of the lost, or with a put or gets
 * that will end it. Links are indices, so the whole table is two arrays.
 */
#include "base/assertion.h"
#include "base/clock.h"
#include "base/error.h"
#include "offload/disk_internal.h"

enum { SERIALS_PER_MS_BITS = 20, BUDGET_NEAR = 10, PAUSE_STEPS = 40 };

void qr_disk_table_init(qr_disk *disk) {
    disk->first_lost = disk->last_lost = QR_RECORD_NONE;
    disk->free_record = disk->sizes.record_max ? 0 : QR_RECORD_NONE;
    for (uint32_t id = 0; id < disk->sizes.record_max; id++)
        disk->records[id].next = id + 1 < disk->sizes.record_max ? id + 1 : QR_RECORD_NONE;
}

/* Wall time and a counter: rises even when nothing of a folder is left that would remember the last one. */
uint64_t qr_disk_take_serial(qr_disk *disk) {
    uint64_t by_clock = qr_clock_wall_ms() << SERIALS_PER_MS_BITS;
    if (disk->next_serial < by_clock) disk->next_serial = by_clock;
    return disk->next_serial++;
}

/* ---- records ---- */

qr_record_id qr_disk_record_take(qr_disk *disk) {
    qr_record_id id = disk->free_record;
    if (id == QR_RECORD_NONE) return id;
    QR_ASSERT(disk->records[id].state == QR_RECORD_FREE);
    disk->free_record = disk->records[id].next;
    disk->records[id] = (qr_disk_record){.parent = QR_RECORD_NONE,
                                         .owner = QR_OWNER_NONE,
                                         .segment = QR_SEGMENT_NONE,
                                         .next = QR_RECORD_NONE,
                                         .prev = QR_RECORD_NONE,
                                         .state = QR_RECORD_FILLING};
    return id;
}

void qr_disk_record_end(qr_disk *disk, qr_record_id id) {
    qr_disk_record *record = &disk->records[id];
    QR_ASSERT(record->state != QR_RECORD_FREE && record->segment == QR_SEGMENT_NONE);
    record->state = QR_RECORD_GONE;
    if (record->get_count) return;
    *record = (qr_disk_record){.next = disk->free_record};
    disk->free_record = id;
}

static void segment_link(qr_disk *disk, qr_record_id id, uint32_t index, uint32_t slot) {
    qr_disk_record *record = &disk->records[id];
    qr_disk_segment *segment = &disk->segments[index];
    QR_ASSERT(segment->state == QR_SEGMENT_OURS && slot < segment->shape.slot_count);
    record->segment = index;
    record->slot = slot;
    record->prev = QR_RECORD_NONE;
    record->next = segment->first;
    if (segment->first != QR_RECORD_NONE) disk->records[segment->first].prev = id;
    segment->first = id;
    segment->live_count++;
}

static void segment_unlink(qr_disk *disk, qr_record_id id) {
    qr_disk_record *record = &disk->records[id];
    qr_disk_segment *segment = &disk->segments[record->segment];
    if (record->prev != QR_RECORD_NONE) disk->records[record->prev].next = record->next;
    else segment->first = record->next;
    if (record->next != QR_RECORD_NONE) disk->records[record->next].prev = record->prev;
    record->next = record->prev = QR_RECORD_NONE;
    record->segment = QR_SEGMENT_NONE;
    segment->live_count--;
}

static qr_disk_record *parent_of(const qr_disk *disk, const qr_disk_record *record) {
    if (record->parent_serial == 0) return NULL;
    qr_disk_record *parent = &disk->records[record->parent];
    return parent->serial == record->parent_serial ? parent : NULL;
}

bool qr_disk_parent_alive(const qr_disk *disk, const qr_disk_record *record) {
    const qr_disk_record *parent = parent_of(disk, record);
    return record->parent_serial == 0 || (parent && parent->state == QR_RECORD_LIVE);
}

void qr_disk_record_publish(qr_disk *disk, qr_record_id id, uint32_t segment, uint32_t slot) {
    qr_disk_record *record = &disk->records[id], *parent = parent_of(disk, record);
    record->state = QR_RECORD_LIVE;
    segment_link(disk, id, segment, slot);
    disk->stats.record_count++;
    if (parent) parent->child_count++;
}

void qr_disk_record_move(qr_disk *disk, qr_record_id id, uint32_t segment, uint32_t slot) {
    QR_ASSERT(disk->records[id].state == QR_RECORD_LIVE);
    disk->segments[disk->records[id].segment].dirty = true; /* the old copy */
    segment_unlink(disk, id);
    segment_link(disk, id, segment, slot);
    disk->records[id].touched = false;
}

/* LIVE no more: out of its segment, which has bytes to be cleaned now. */
static void record_leave(qr_disk *disk, qr_record_id id) {
    qr_disk_record *record = &disk->records[id], *parent = parent_of(disk, record);
    QR_ASSERT(record->state == QR_RECORD_LIVE);
    qr_disk_segment *segment = &disk->segments[record->segment];
    segment->dirty = true;
    segment_unlink(disk, id);
    disk->tidy |= segment->live_count == 0;
    disk->stats.record_count--;
    if (parent) parent->child_count--;
}

void qr_disk_record_drop(qr_disk *disk, qr_record_id id) {
    record_leave(disk, id);
    qr_disk_record_end(disk, id);
    if (disk->tidy) pthread_cond_signal(&disk->writer_work);
}

void qr_disk_erase_wanted(qr_disk *disk) {
    disk->erasing_count++;
    disk->clean_wanted = true;
    pthread_cond_signal(&disk->writer_work);
}

void qr_disk_record_lose(qr_disk *disk, qr_record_id id) {
    qr_disk_record *record = &disk->records[id];
    record_leave(disk, id);
    record->state = QR_RECORD_LOST;
    record->prev = disk->last_lost;
    if (disk->last_lost != QR_RECORD_NONE) disk->records[disk->last_lost].next = id;
    else disk->first_lost = id;
    disk->last_lost = id;
    disk->lost_count++;
    disk->stats.lost_total++;
}

void qr_disk_record_unlose(qr_disk *disk, qr_record_id id) {
    qr_disk_record *record = &disk->records[id];
    QR_ASSERT(record->state == QR_RECORD_LOST);
    if (record->prev != QR_RECORD_NONE) disk->records[record->prev].next = record->next;
    else disk->first_lost = record->next;
    if (record->next != QR_RECORD_NONE) disk->records[record->next].prev = record->prev;
    else disk->last_lost = record->prev;
    record->next = record->prev = QR_RECORD_NONE;
    disk->lost_count--;
}

/* ---- segments ---- */

uint32_t qr_disk_segment_take(qr_disk *disk, uint64_t id, const qr_segment_shape *shape, qr_disk_segment_state state) {
    uint32_t index = 0;
    while (index < disk->sizes.segment_max && disk->segments[index].state != QR_SEGMENT_FREE) index++;
    if (index == disk->sizes.segment_max) return QR_SEGMENT_NONE;
    disk->segments[index] = (qr_disk_segment){.id = id,
                                              .file_bytes = qr_segment_file_bytes(shape),
                                              .shape = *shape,
                                              .first = QR_RECORD_NONE,
                                              .state = (uint8_t)state};
    disk->stats.used_bytes += disk->segments[index].file_bytes;
    disk->stats.segment_count++;
    disk->stats.foreign_segment_count += state == QR_SEGMENT_FOREIGN;
    return index;
}

void qr_disk_segment_free(qr_disk *disk, uint32_t index) {
    qr_disk_segment *segment = &disk->segments[index];
    QR_ASSERT(segment->state != QR_SEGMENT_FREE && segment->live_count == 0 && segment->read_count == 0);
    disk->stats.used_bytes -= segment->file_bytes;
    disk->stats.segment_count--;
    disk->stats.foreign_segment_count -= segment->state == QR_SEGMENT_FOREIGN;
    *segment = (qr_disk_segment){.state = QR_SEGMENT_FREE, .first = QR_RECORD_NONE};
}

void qr_disk_segment_doom(qr_disk *disk, uint32_t index) {
    qr_disk_segment *segment = &disk->segments[index];
    if (segment->state != QR_SEGMENT_OURS) return;
    while (segment->first != QR_RECORD_NONE) qr_disk_record_lose(disk, segment->first);
    segment->state = QR_SEGMENT_DOOMED;
    disk->tidy = true;
    pthread_cond_signal(&disk->writer_work);
}

/* ---- pauses ---- */

void qr_disk_pause_begin(const qr_disk *disk, qr_disk_pause *pause) {
    uint64_t most = disk->config.retry_us_max;
    pause->length_us = pause->length_us ? 2 * pause->length_us : most / PAUSE_STEPS + 1;
    if (pause->length_us > most) pause->length_us = most;
    pause->until_us = qr_clock_us() + pause->length_us;
}

bool qr_disk_pause_over(const qr_disk_pause *pause) { return pause->until_us == 0 || pause->until_us <= qr_clock_us(); }

/* ---- figures ---- */

void qr_disk_take_traffic(qr_disk *disk, qr_disk_io *io) {
    disk->stats.device_read_bytes_total += io->read_bytes;
    disk->stats.device_written_bytes_total += io->written_bytes;
    disk->stats.read_us_total += io->read_us;
    disk->stats.write_us_total += io->write_us;
    disk->stats.io_error_total += io->error_count;
    if (io->trouble_count) qr_disk_take_troubles(disk, io);
    if (io->written_bytes) qr_disk_budget_spend(&disk->budget, io->written_bytes, qr_clock_wall_ms());
    *io = (qr_disk_io){.files = io->files,
                       .folder = io->folder,
                       .failed_sync_count = io->failed_sync_count,
                       .cancelled = io->cancelled,
                       .cancelled_context = io->cancelled_context};
}

bool qr_disk_space_short(const qr_disk *disk) {
    qr_disk_budget budget = disk->budget;
    uint64_t left = qr_disk_budget_left(&budget, qr_clock_wall_ms());
    bool budget_near = budget.limit_bytes && left < budget.limit_bytes / BUDGET_NEAR;
    bool cap_near = disk->stats.used_bytes + 2 * disk->sizes.segment_bytes > disk->config.cap_bytes;
    return cap_near || budget_near || disk->floor_near || disk->failing != QR_STORE_NONE;
}

/* ---- check ---- */

static quire_status wrong(quire_error *error, const char *what, uint32_t where) {
    return qr_fail(error, QUIRE_CORRUPT, "disk store", QR_NO_OFFSET, "%s (%u)", what, where);
}

static quire_status check_segment(const qr_disk *disk, uint32_t index, quire_error *error) {
    const qr_disk_segment *segment = &disk->segments[index];
    uint32_t count = 0, before = QR_RECORD_NONE;
    for (uint32_t id = segment->first; id != QR_RECORD_NONE && count <= segment->live_count; id = disk->records[id].next) {
        const qr_disk_record *record = &disk->records[id];
        if (record->state != QR_RECORD_LIVE || record->segment != index) return wrong(error, "a segment lists a stranger", id);
        if (record->prev != before) return wrong(error, "a segment's list is torn", id);
        if (record->slot >= segment->used_slots) return wrong(error, "a record lies behind what was written", id);
        before = id;
        count++;
    }
    if (count != segment->live_count) return wrong(error, "a segment's count is wrong", index);
    if (count && segment->state != QR_SEGMENT_OURS) return wrong(error, "a segment has records and is not ours", index);
    return QUIRE_OK;
}

static quire_status check_segments(const qr_disk *disk, quire_error *error) {
    uint64_t used = QR_DISK_FOLDER_BYTES;
    for (uint32_t i = 0; i < disk->sizes.segment_max; i++) {
        if (disk->segments[i].state == QR_SEGMENT_FREE) continue;
        quire_status status = check_segment(disk, i, error);
        if (status != QUIRE_OK) return status;
        used += disk->segments[i].file_bytes;
    }
    if (used != disk->stats.used_bytes) return wrong(error, "the bytes used are miscounted", 0);
    return used > disk->config.cap_bytes && !disk->read_only ? wrong(error, "the cap is exceeded", 0) : QUIRE_OK;
}

static quire_status check_records(const qr_disk *disk, quire_error *error) {
    uint32_t live = 0, lost = 0, children = 0, parented = 0;
    for (uint32_t id = 0; id < disk->sizes.record_max; id++) {
        const qr_disk_record *record = &disk->records[id];
        lost += record->state == QR_RECORD_LOST;
        children += record->child_count;
        if (record->state != QR_RECORD_LIVE) continue;
        live++;
        parented += parent_of(disk, record) != NULL;
        if (record->serial == 0 || record->serial <= record->parent_serial) return wrong(error, "serials do not rise", id);
        if (disk->segments[record->segment].state != QR_SEGMENT_OURS) return wrong(error, "a record lies nowhere", id);
    }
    uint32_t listed = 0;
    for (uint32_t i = 0; i < disk->sizes.segment_max; i++) listed += disk->segments[i].live_count;
    if (listed != live) return wrong(error, "records are in no segment's list", live);
    if (live != disk->stats.record_count) return wrong(error, "records are miscounted", live);
    if (lost != disk->lost_count) return wrong(error, "lost records are miscounted", lost);
    return children == parented ? QUIRE_OK : wrong(error, "children are miscounted", children);
}

quire_status qr_disk_table_check(const qr_disk *disk, quire_error *error) {
    quire_status status = check_segments(disk, error);
    return status == QUIRE_OK ? check_records(disk, error) : status;
}
