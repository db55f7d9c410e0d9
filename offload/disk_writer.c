/* disk_writer.c - the thread that writes: puts, seals, and whatever disk_reclaim.c and disk_clean.c do.
 *
 * One thread, one open segment, records one behind the other. It lets reads go first: before it writes it waits for those that
 * wait or are under way, but never longer than PATIENCE_US, so that a busy disk cannot keep it from writing for ever.
 *
 * A failed write ends the open segment (what it left in its slot is never used) and refuses puts for a while, longer each time.
 */
#include <time.h>

#include "base/assertion.h"
#include "base/clock.h"
#include "offload/disk_internal.h"

#define BATCH_BYTES_MAX (4ull << 20)
enum { PATIENCE_US = 20000 };

/* ---- waiting; the lock is held ---- */

/* False: the time is over. */
static bool wait_until(pthread_cond_t *what, pthread_mutex_t *lock, uint64_t deadline_us) {
    struct timespec until = {(time_t)(deadline_us / 1000000), (long)(deadline_us % 1000000) * 1000};
    return pthread_cond_timedwait(what, lock, &until) == 0;
}

void qr_disk_writer_yield(qr_disk *disk) {
    uint64_t deadline = qr_clock_us() + PATIENCE_US;
    pthread_mutex_lock(&disk->lock);
    while ((disk->gets_queued_count || disk->gets_reading_count) && !disk->stopping)
        if (!wait_until(&disk->reads_over, &disk->lock, deadline)) break;
    pthread_mutex_unlock(&disk->lock);
}

/* ---- the open segment ---- */

void qr_disk_writer_leave(qr_disk *disk) {
    qr_segment_file_close(&disk->writer.io, &disk->writer.file);
    if (disk->writer.segment != QR_SEGMENT_NONE) qr_footer_wipe(&disk->writer.footer);
    disk->writer.segment = QR_SEGMENT_NONE;
    disk->writer.sealed = disk->writer.footer_left = false;
}

static qr_disk_segment segment_copy(qr_disk *disk, uint32_t index) {
    pthread_mutex_lock(&disk->lock);
    qr_disk_segment copy = disk->segments[index];
    pthread_mutex_unlock(&disk->lock);
    return copy;
}

static void segment_set_unsealed(qr_disk *disk, uint32_t index, bool unsealed, bool failed) {
    pthread_mutex_lock(&disk->lock);
    disk->segments[index].unsealed = unsealed;
    disk->segments[index].sync_failed |= failed;
    pthread_mutex_unlock(&disk->lock);
}

quire_status qr_disk_writer_seal(qr_disk *disk) {
    qr_disk_writer *writer = &disk->writer;
    if (writer->segment == QR_SEGMENT_NONE || writer->sealed) return QUIRE_OK;
    if (segment_copy(disk, writer->segment).sync_failed) return QUIRE_IO;
    uint64_t failed = writer->io.failed_sync_count;
    writer->footer_left = true;
    quire_status status = qr_segment_file_seal(&writer->io, &writer->file, &writer->footer);
    writer->sealed = status == QUIRE_OK;
    segment_set_unsealed(disk, writer->segment, !writer->sealed, writer->io.failed_sync_count != failed);
    return status;
}

/* What was half made counts until it is gone. */
static void segment_give_up(qr_disk *disk, uint32_t index) {
    pthread_mutex_lock(&disk->lock);
    qr_disk_segment_doom(disk, index);
    pthread_mutex_unlock(&disk->lock);
    (void)qr_disk_remove_segment(disk, index);
}

static quire_status segment_begin(qr_disk *disk) {
    qr_disk_writer *writer = &disk->writer;
    qr_disk_look_after_files(disk); /* before others make room for what is not there */
    quire_status status = qr_disk_make_room(disk);
    if (status != QUIRE_OK) return status;
    pthread_mutex_lock(&disk->lock);
    qr_segment_header header = {disk->config.fingerprint, qr_disk_take_serial(disk), disk->sizes.shape};
    uint32_t index = qr_disk_segment_take(disk, header.id, &header.shape, QR_SEGMENT_OURS);
    pthread_mutex_unlock(&disk->lock);
    if (index == QR_SEGMENT_NONE) return QUIRE_NO_SPACE;
    status = qr_segment_file_create(&writer->io, &header, writer->page, &writer->file);
    if (status != QUIRE_OK) {
        segment_give_up(disk, index);
        return status;
    }
    uint64_t bytes = disk->sizes.segment_bytes;
    writer->recycled_bytes -= bytes < writer->recycled_bytes ? bytes : writer->recycled_bytes;
    qr_footer_begin(&writer->footer, writer->footer_bytes, &header);
    writer->segment = index;
    writer->sealed = writer->footer_left = false;
    segment_set_unsealed(disk, index, true, false);
    qr_disk_reclaim_ahead(disk);
    return writer->segment == QR_SEGMENT_NONE ? QUIRE_IO : QUIRE_OK;
}

quire_status qr_disk_writer_ready(qr_disk *disk) {
    qr_disk_writer *writer = &disk->writer;
    if (writer->segment != QR_SEGMENT_NONE) {
        qr_disk_segment segment = segment_copy(disk, writer->segment);
        bool over = segment.used_slots == segment.shape.slot_count || segment.sync_failed;
        if (over && segment.state == QR_SEGMENT_OURS) (void)!qr_disk_writer_seal(disk); /* tried again by the next seal */
        if (over || segment.state != QR_SEGMENT_OURS) qr_disk_writer_leave(disk);
    }
    if (writer->segment == QR_SEGMENT_NONE) return segment_begin(disk);
    if (!writer->footer_left) return QUIRE_OK;
    quire_status status = qr_segment_file_unseal(&writer->io, &writer->file, writer->page, false);
    segment_set_unsealed(disk, writer->segment, true, false);
    writer->sealed = writer->footer_left = false;
    if (status != QUIRE_OK) qr_disk_writer_leave(disk);
    return status;
}

/* Takes the next slots, which are used up whatever happens. */
static uint32_t slots_take(qr_disk *disk, uint32_t count) {
    pthread_mutex_lock(&disk->lock);
    qr_disk_segment *segment = &disk->segments[disk->writer.segment];
    uint32_t first = segment->used_slots;
    QR_ASSERT(count >= 1 && count <= segment->shape.slot_count - first);
    segment->used_slots += count;
    disk->writer.footer.used_slots = segment->used_slots;
    pthread_mutex_unlock(&disk->lock);
    return first;
}

/* What a failed write left behind is to be cleaned; the records before it are worth an index. */
static void append_failed(qr_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    disk->segments[disk->writer.segment].dirty = true;
    pthread_mutex_unlock(&disk->lock);
    (void)!qr_disk_writer_seal(disk);
    qr_disk_writer_leave(disk);
}

quire_status qr_disk_writer_append(qr_disk *disk, qr_record_header *headers[], unsigned char *pages[], uint32_t count,
                                   uint32_t *first_slot) {
    qr_disk_writer *writer = &disk->writer;
    struct iovec parts[QR_DISK_BUFFERS_MAX] = {{NULL, 0}};
    QR_ASSERT(count >= 1 && count <= QR_DISK_BUFFERS_MAX && !writer->footer_left);
    *first_slot = slots_take(disk, count);
    for (uint32_t i = 0; i < count; i++) {
        headers[i]->segment_id = writer->file.header.id;
        headers[i]->slot = *first_slot + i;
        headers[i]->payload_checksum = qr_record_checksum(pages[i] + QR_RECORD_HEADER_BYTES, headers[i]->payload_bytes);
        qr_record_encode(headers[i], pages[i]);
        parts[i] = (struct iovec){pages[i], disk->sizes.record_bytes};
    }
    uint64_t offset = qr_segment_record_offset(&writer->file.header.shape, *first_slot);
    quire_status status = qr_disk_io_write(&writer->io, writer->file.fd, parts, (int)count, offset, NULL);
    if (status == QUIRE_OK)
        for (uint32_t i = 0; i < count; i++) qr_footer_set(&writer->footer, headers[i]);
    else append_failed(disk);
    return status;
}

/* ---- puts ---- */

typedef struct put_batch {
    qr_disk_put *puts[QR_DISK_BUFFERS_MAX];
    uint32_t count;
} put_batch;

/* The lock is held. */
static void put_done(qr_disk *disk, qr_disk_put *put, quire_status status) {
    disk->puts_finished++;
    put->status = status;
    put->state = QR_PUT_DONE;
    if (!put->dropped) {
        qr_list_push_back(&disk->puts_done, &put->link);
        return;
    }
    put->state = QR_PUT_FREE;
    put->record = QR_RECORD_NONE;
    qr_disk_put_back(disk, put);
    disk->puts_busy_count--;
}

/* The owner does not know yet, or does not want to. The lock is held. */
static void record_failed(qr_disk *disk, const qr_disk_put *put) {
    if (put->dropped) qr_disk_record_end(disk, put->record);
    else disk->records[put->record].state = QR_RECORD_FAILED;
}

static void put_published(qr_disk *disk, qr_disk_put *put, uint32_t segment, uint32_t slot) {
    bool doomed = disk->segments[segment].state != QR_SEGMENT_OURS; /* its file went meanwhile */
    disk->stats.put_total++;
    disk->stats.put_bytes_total += disk->config.payload_bytes;
    if (doomed) record_failed(disk, put);
    else qr_disk_record_publish(disk, put->record, segment, slot);
    if (put->dropped && !doomed) qr_disk_record_drop(disk, put->record);
    put_done(disk, put, doomed ? QUIRE_IO : QUIRE_OK);
}

/* The lock is held. */
static void put_failed(qr_disk *disk, qr_disk_put *put, quire_status status) {
    record_failed(disk, put);
    put_done(disk, put, status);
}

static void refuse_for_a_while(qr_disk *disk, quire_status status) {
    disk->failing = status == QUIRE_NO_SPACE ? QR_STORE_NO_SPACE : QR_STORE_BROKEN;
    qr_disk_pause_begin(disk, &disk->write_pause);
}

static qr_disk_put *put_next(qr_disk *disk) {
    qr_list *link = qr_list_pop_front(&disk->puts_queued);
    if (!link) return NULL;
    disk->puts_queued_count--;
    return QR_LIST_ENTRY(link, qr_disk_put, link);
}

static void puts_fail_all(qr_disk *disk, quire_status status) {
    qr_disk_put *put;
    pthread_mutex_lock(&disk->lock);
    refuse_for_a_while(disk, status);
    while ((put = put_next(disk))) put_failed(disk, put, status);
    pthread_mutex_unlock(&disk->lock);
}

/* Its parent is published, or before it in the batch. */
static bool put_parent_there(const qr_disk *disk, const put_batch *batch, const qr_disk_put *put) {
    const qr_disk_record *record = &disk->records[put->record];
    for (uint32_t i = 0; i < batch->count; i++)
        if (batch->puts[i]->header.serial == record->parent_serial) return true;
    return qr_disk_parent_alive(disk, record);
}

static void batch_take(qr_disk *disk, put_batch *batch) {
    uint64_t most = BATCH_BYTES_MAX / disk->sizes.record_bytes;
    qr_disk_put *put;
    batch->count = 0;
    pthread_mutex_lock(&disk->lock);
    const qr_disk_segment *segment = &disk->segments[disk->writer.segment];
    uint32_t room = segment->shape.slot_count - segment->used_slots;
    if (most < 1) most = 1;
    if (room > most) room = (uint32_t)most;
    if (room > QR_DISK_BUFFERS_MAX) room = QR_DISK_BUFFERS_MAX;
    while (batch->count < room && (put = put_next(disk))) {
        if (!put_parent_there(disk, batch, put)) {
            put_failed(disk, put, QUIRE_NOT_FOUND);
            continue;
        }
        put->state = QR_PUT_WRITING;
        batch->puts[batch->count++] = put;
    }
    pthread_mutex_unlock(&disk->lock);
}

static void batch_write(qr_disk *disk, put_batch *batch) {
    qr_record_header *headers[QR_DISK_BUFFERS_MAX];
    unsigned char *pages[QR_DISK_BUFFERS_MAX];
    uint32_t segment = disk->writer.segment, slot;
    for (uint32_t i = 0; i < batch->count; i++) {
        headers[i] = &batch->puts[i]->header;
        pages[i] = batch->puts[i]->page;
    }
    quire_status status = qr_disk_writer_append(disk, headers, pages, batch->count, &slot);
    bool there = status == QUIRE_OK && qr_disk_open_file_is_there(disk);
    pthread_mutex_lock(&disk->lock);
    for (uint32_t i = 0; i < batch->count; i++)
        if (status == QUIRE_OK && !there) put_failed(disk, batch->puts[i], QUIRE_IO);
        else if (status == QUIRE_OK) put_published(disk, batch->puts[i], segment, slot + i);
        else put_failed(disk, batch->puts[i], status);
    if (status != QUIRE_OK) refuse_for_a_while(disk, status);
    else {
        disk->failing = QR_STORE_NONE;
        disk->write_pause = (qr_disk_pause){0};
        disk->look |= !there;
    }
    pthread_mutex_unlock(&disk->lock);
}

/* Says in the folder's file what is about to be written. */
static void note_budget(qr_disk *disk, uint64_t bytes) {
    pthread_mutex_lock(&disk->lock);
    bool save = qr_disk_budget_note(&disk->budget, bytes, qr_clock_wall_ms());
    qr_disk_budget copy = disk->budget;
    pthread_mutex_unlock(&disk->lock);
    if (save) qr_disk_budget_save(&copy, &disk->writer.io, disk->writer.page);
}

static void write_puts(qr_disk *disk) {
    put_batch batch;
    qr_disk_writer_yield(disk);
    if (!qr_disk_watch(disk)) {
        puts_fail_all(disk, QUIRE_IO);
        return;
    }
    note_budget(disk, disk->config.write_buffers * disk->sizes.record_bytes);
    quire_status status = qr_disk_writer_ready(disk);
    if (status != QUIRE_OK) {
        puts_fail_all(disk, status);
        return;
    }
    batch_take(disk, &batch);
    if (batch.count) batch_write(disk, &batch);
}

/* ---- seals ---- */

static bool any_unsealed(qr_disk *disk) {
    bool any = false;
    pthread_mutex_lock(&disk->lock);
    for (uint32_t i = 0; i < disk->sizes.segment_max; i++) {
        const qr_disk_segment *segment = &disk->segments[i];
        bool counts = segment->state == QR_SEGMENT_OURS && segment->live_count;
        any |= counts && (segment->unsealed || segment->sync_failed);
    }
    pthread_mutex_unlock(&disk->lock);
    return any;
}

/* The open segment, and those that could not be sealed when they were left. */
static void seal_all(qr_disk *disk, uint32_t asked) {
    bool here = !disk->read_only && qr_disk_watch(disk);
    if (here) (void)!qr_disk_writer_seal(disk);
    if (here && any_unsealed(disk)) qr_disk_clean(disk, true);
    quire_status status = !disk->read_only && any_unsealed(disk) ? QUIRE_IO : QUIRE_OK;
    pthread_mutex_lock(&disk->lock);
    disk->seals_waiting -= asked;
    disk->seals_done += asked;
    disk->seal_status = status;
    pthread_mutex_unlock(&disk->lock);
}

/* ---- the thread ---- */

typedef enum writer_job { JOB_WAIT, JOB_WIPE, JOB_LOOK, JOB_TIDY, JOB_CLEAN, JOB_SEAL, JOB_PUT, JOB_END } writer_job;

/* Something is to be removed or erased, and can be. The lock is held. */
static bool upkeep_wanted(const qr_disk *disk) { return !disk->read_only && (disk->tidy || disk->clean_wanted); }

/* The lock is held. */
static writer_job next_job(const qr_disk *disk) {
    bool upkeep = upkeep_wanted(disk) && qr_disk_pause_over(&disk->upkeep_pause);
    if (!qr_list_empty(&disk->puts_unwiped) || !qr_list_empty(&disk->gets_unwiped)) return JOB_WIPE;
    if (disk->look) return JOB_LOOK;
    if (disk->tidy && upkeep) return JOB_TIDY;
    if (disk->seals_waiting && disk->puts_finished >= disk->seal_after) return JOB_SEAL;
    if (disk->clean_wanted && upkeep) return JOB_CLEAN;
    if (disk->puts_queued_count) return JOB_PUT;
    return disk->stopping ? JOB_END : JOB_WAIT;
}

static void upkeep(qr_disk *disk, writer_job job) {
    if (!qr_disk_watch(disk)) {
        pthread_mutex_lock(&disk->lock);
        qr_disk_pause_begin(disk, &disk->upkeep_pause);
        pthread_mutex_unlock(&disk->lock);
        return;
    }
    if (job == JOB_TIDY) (void)qr_disk_tidy(disk);
    else qr_disk_clean(disk, false);
}

static void do_job(qr_disk *disk, writer_job job, uint32_t seals) {
    switch (job) {
    case JOB_WIPE: qr_disk_wipe_returned(disk); break;
    case JOB_LOOK: (void)qr_disk_watch(disk); break;
    case JOB_TIDY:
    case JOB_CLEAN: upkeep(disk, job); break;
    case JOB_SEAL: seal_all(disk, seals); break;
    case JOB_PUT: write_puts(disk); break;
    case JOB_WAIT:
    case JOB_END: break;
    }
}

void *qr_disk_writer_main(void *argument) {
    qr_disk *disk = argument;
    pthread_mutex_lock(&disk->lock);
    for (;;) {
        writer_job job = next_job(disk);
        if (job == JOB_END) break;
        if (job == JOB_WAIT) {
            if (upkeep_wanted(disk)) wait_until(&disk->writer_work, &disk->lock, disk->upkeep_pause.until_us);
            else pthread_cond_wait(&disk->writer_work, &disk->lock);
            continue;
        }
        uint32_t seals = disk->seals_waiting;
        pthread_mutex_unlock(&disk->lock);
        do_job(disk, job, seals);
        pthread_mutex_lock(&disk->lock);
        qr_disk_take_traffic(disk, &disk->writer.io);
        pthread_mutex_unlock(&disk->lock);
        qr_disk_wake(disk);
        pthread_mutex_lock(&disk->lock);
    }
    pthread_mutex_unlock(&disk->lock);
    return NULL;
}

void qr_disk_writer_finish(qr_disk *disk) {
    if (disk->read_only || qr_disk_folder_look(&disk->folder, disk->config.path) != QR_FOLDER_HERE) return;
    (void)qr_disk_tidy(disk);
    (void)!qr_disk_writer_seal(disk);
    qr_disk_clean(disk, true);
    qr_disk_writer_leave(disk);
    qr_disk_take_traffic(disk, &disk->writer.io);
    if (disk->budget.spent_bytes == 0 && disk->budget.noted_bytes == 0) return;
    disk->budget.noted_bytes = disk->budget.spent_bytes;
    qr_disk_budget_save(&disk->budget, &disk->writer.io, disk->writer.page);
}
