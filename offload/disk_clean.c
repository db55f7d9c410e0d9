/* disk_clean.c - the bytes, token ids and keys of dropped records go. The writer thread's.
 *
 * A segment is cleaned as a whole: its footer goes first, lasting, so that no index ever names what is gone; then every slot
 * that no record has is punched, unused ones too (a process that ended may have begun to write there); then a new footer,
 * without them, is written. A crash in between leaves a segment without a footer, whose records speak for themselves.
 *
 * Segments are cleaned when somebody asked for erasure (all of them: what was only dropped earlier may belong to what is to be
 * forgotten), and at close. The same way a segment gets a footer that could not be sealed before.
 */
#include <string.h>

#include "base/clock.h"
#include "offload/disk_internal.h"

enum { RETRY_US = 1000000 };

/* What is to be done, noted under the lock; wanted[slot] says which slots stay. */
typedef struct clean_plan {
    uint32_t segment;
    uint32_t used_slots, erase_count;
    qr_segment_header header;
    bool dirty;
} clean_plan;

static void plan_make(qr_disk *disk, uint32_t index, clean_plan *plan) {
    qr_disk_segment *segment = &disk->segments[index];
    *plan = (clean_plan){index,
                         segment->used_slots,
                         segment->erase_count,
                         {disk->config.fingerprint, segment->id, segment->shape},
                         segment->dirty};
    segment->dirty = false; /* drops from now on set it again */
    memset(disk->writer.wanted, 0, segment->shape.slot_count);
    for (uint32_t id = segment->first; id != QR_RECORD_NONE; id = disk->records[id].next)
        disk->writer.wanted[disk->records[id].slot] = true;
}

static quire_status punch_slots(qr_disk *disk, const clean_plan *plan, const qr_segment_file *file) {
    const qr_segment_shape *shape = &file->header.shape;
    qr_files *files = disk->config.files;
    quire_status status = QUIRE_OK;
    for (uint32_t slot = 0; status == QUIRE_OK && slot < shape->slot_count; slot++) {
        uint32_t first = slot;
        while (slot < shape->slot_count && !disk->writer.wanted[slot]) slot++;
        if (slot == first) continue;
        status = files->ops->punch(files, file->fd, qr_segment_record_offset(shape, first),
                                   (slot - first) * qr_segment_record_bytes(shape), NULL);
    }
    /* Of a footer that was only written in part a page with keys may be left. */
    uint64_t footer = qr_segment_footer_offset(shape);
    if (status == QUIRE_OK) status = files->ops->punch(files, file->fd, footer, qr_segment_file_bytes(shape) - footer, NULL);
    disk->writer.io.error_count += status != QUIRE_OK;
    return status;
}

static void footer_clear_slots(const qr_disk *disk, const clean_plan *plan, qr_footer *footer) {
    for (uint32_t slot = 0; slot < plan->used_slots; slot++)
        if (!disk->writer.wanted[slot]) qr_footer_clear(footer, slot);
    qr_footer_wipe_keys(footer);
}

static quire_status clean_slots(qr_disk *disk, const clean_plan *plan, const qr_segment_file *file, qr_footer *footer) {
    qr_disk_writer *writer = &disk->writer;
    if (!plan->dirty) return QUIRE_OK;
    quire_status status = qr_segment_file_unseal(&writer->io, file, writer->page, true, NULL);
    if (status == QUIRE_OK) status = punch_slots(disk, plan, file);
    footer_clear_slots(disk, plan, footer);
    return status;
}

/* The segment that is appended to: its footer is in memory. */
static quire_status clean_open(qr_disk *disk, const clean_plan *plan) {
    qr_disk_writer *writer = &disk->writer;
    bool sealed = writer->sealed;
    writer->sealed = false;
    quire_status status = clean_slots(disk, plan, &writer->file, &writer->footer);
    if (status == QUIRE_OK && !sealed) return qr_disk_io_sync(&writer->io, writer->file.fd, NULL);
    return status == QUIRE_OK ? qr_disk_writer_seal(disk) : status;
}

/* The footer on disk, or one made from the records. */
static void footer_get(qr_disk *disk, const qr_segment_file *file, qr_footer *footer) {
    qr_disk_writer *writer = &disk->writer;
    uint32_t damaged;
    if (qr_segment_file_read_footer(&writer->io, file, writer->scratch_bytes, footer, NULL) == QUIRE_OK) return;
    qr_segment_file_scan(&writer->io, file, writer->record, disk->sizes.record_bytes, writer->scratch_bytes, footer, &damaged);
}

/* Every record that memory knows of: a slot that could not be read when the footer was made must not be left out for ever. */
static bool footer_covers(const qr_disk *disk, const clean_plan *plan, const qr_footer *footer) {
    for (uint32_t slot = 0; slot < plan->header.shape.slot_count; slot++)
        if (disk->writer.wanted[slot] && !qr_footer_has(footer, slot)) return false;
    return true;
}

static quire_status clean_closed(qr_disk *disk, const clean_plan *plan, bool *sealed) {
    qr_disk_writer *writer = &disk->writer;
    qr_segment_file file;
    qr_footer footer;
    quire_status status = qr_segment_file_open(&writer->io, &plan->header, true, &file, NULL);
    if (status != QUIRE_OK) return status;
    footer_get(disk, &file, &footer);
    footer.used_slots = plan->used_slots;
    status = clean_slots(disk, plan, &file, &footer);
    *sealed = status == QUIRE_OK && footer_covers(disk, plan, &footer);
    if (*sealed) status = qr_segment_file_seal(&writer->io, &file, &footer, NULL);
    else if (status == QUIRE_OK) status = qr_disk_io_sync(&writer->io, file.fd, NULL);
    *sealed &= status == QUIRE_OK;
    qr_segment_file_close(&writer->io, &file);
    return status;
}

static bool clean_segment(qr_disk *disk, const clean_plan *plan) {
    bool open = plan->segment == disk->writer.segment, sealed = false;
    quire_status status = open ? clean_open(disk, plan) : clean_closed(disk, plan, &sealed);
    pthread_mutex_lock(&disk->lock);
    qr_disk_segment *segment = &disk->segments[plan->segment];
    if (status == QUIRE_OK && segment->state == QR_SEGMENT_OURS) {
        qr_disk_segment_erased(disk, segment, plan->erase_count);
    } else {
        segment->dirty |= plan->dirty;
        segment->sync_failed = true;
    }
    segment->unsealed = open ? !disk->writer.sealed : !sealed;
    pthread_mutex_unlock(&disk->lock);
    return status == QUIRE_OK;
}

/* The next that wants it, from `from` on; the lock is held. */
static uint32_t find_unclean(const qr_disk *disk, uint32_t from, bool seal) {
    for (uint32_t i = from; i < disk->sizes.segment_max; i++) {
        const qr_disk_segment *segment = &disk->segments[i];
        bool unsealed = seal && segment->unsealed && i != disk->writer.segment;
        if (segment->state == QR_SEGMENT_OURS && (segment->dirty || unsealed)) return i;
    }
    return QR_SEGMENT_NONE;
}

void qr_disk_clean(qr_disk *disk, bool seal) {
    bool all = true;
    pthread_mutex_lock(&disk->lock);
    disk->clean_wanted = false;
    pthread_mutex_unlock(&disk->lock);
    qr_disk_tidy(disk);
    for (uint32_t index = 0;; index++) {
        clean_plan plan;
        pthread_mutex_lock(&disk->lock);
        index = find_unclean(disk, index, seal);
        if (index != QR_SEGMENT_NONE) plan_make(disk, index, &plan);
        pthread_mutex_unlock(&disk->lock);
        if (index == QR_SEGMENT_NONE) break;
        all &= clean_segment(disk, &plan);
    }
    pthread_mutex_lock(&disk->lock);
    disk->clean_retry_us = all ? 0 : qr_clock_us() + RETRY_US;
    disk->clean_wanted |= !all && disk->erasing_count > 0;
    pthread_mutex_unlock(&disk->lock);
}
