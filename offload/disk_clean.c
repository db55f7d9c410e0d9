/* disk_clean.c - the bytes, token ids and keys of dropped records go. The writer thread's.
 *
 * A segment is cleaned as a whole: its footer goes first, lasting, so that no index ever names what is gone; then every slot
 * that no record has is emptied; then a new footer, without them, is written. A crash in between leaves a segment without a
 * footer, whose records speak for themselves. Slots that were used give their space back; those that will be used yet, where
 * a process that ended may have begun to write, are zeroed and keep it, and so does the footer's place.
 *
 * Segments are cleaned when somebody asked for erasure, and at close. The same way a segment gets a footer that could not be
 * sealed before. An erasure is over when one pass over all segments has gone well from end to end, with every file removed
 * that was to be: bytes of what is to be forgotten may also lie where it was dropped from earlier, where its space was needed,
 * or where a copy of it was left behind. Otherwise all of it is tried again. At its end memory is wiped too (disk_wipe.c).
 */
#include <string.h>

#include "offload/disk_internal.h"

/* What is to be done, noted under the lock; wanted[slot] says which slots stay. */
typedef struct clean_plan {
    uint32_t segment, used_slots;
    qr_segment_header header;
    bool dirty, tail_dirty, suspect, sync_failed;
} clean_plan;

static void plan_make(qr_disk *disk, uint32_t index, clean_plan *plan) {
    qr_disk_segment *segment = &disk->segments[index];
    *plan = (clean_plan){index,
                         segment->used_slots,
                         {disk->config.fingerprint, segment->id, segment->shape},
                         segment->dirty,
                         segment->tail_dirty,
                         segment->suspect,
                         segment->sync_failed};
    segment->dirty = segment->tail_dirty = segment->suspect = false; /* drops from now on set it again */
    memset(disk->writer.wanted, 0, segment->shape.slot_count);
    for (uint32_t id = segment->first; id != QR_RECORD_NONE; id = disk->records[id].next)
        disk->writer.wanted[disk->records[id].slot] = true;
}

/* Of a footer that was only written in part a page with keys may be left, so all of its place is emptied. */
static quire_status empty_slots(qr_disk *disk, const clean_plan *plan, const qr_segment_file *file) {
    const qr_segment_shape *shape = &file->header.shape;
    uint32_t tail = plan->tail_dirty ? plan->used_slots : shape->slot_count;
    quire_status status = qr_segment_file_punch(&disk->writer.io, file, disk->writer.wanted, plan->used_slots);
    return status == QUIRE_OK ? qr_segment_file_zero(&disk->writer.io, file, tail) : status;
}

static void footer_clear_slots(const qr_disk *disk, const clean_plan *plan, qr_footer *footer) {
    for (uint32_t slot = 0; slot < plan->used_slots; slot++)
        if (!disk->writer.wanted[slot]) qr_footer_clear(footer, slot);
    qr_footer_wipe_keys(footer);
}

static quire_status clean_slots(qr_disk *disk, const clean_plan *plan, const qr_segment_file *file, qr_footer *footer) {
    qr_disk_writer *writer = &disk->writer;
    if (!plan->dirty && !plan->tail_dirty && !plan->suspect) return QUIRE_OK;
    quire_status status = qr_segment_file_unseal(&writer->io, file, writer->page, true);
    if (status == QUIRE_OK) status = empty_slots(disk, plan, file);
    footer_clear_slots(disk, plan, footer);
    return status;
}

/* The segment that is appended to: its footer is in memory. */
static quire_status clean_open(qr_disk *disk, const clean_plan *plan) {
    qr_disk_writer *writer = &disk->writer;
    bool sealed = writer->sealed;
    writer->sealed = false;
    writer->footer_left = true; /* whatever becomes of it */
    quire_status status = clean_slots(disk, plan, &writer->file, &writer->footer);
    if (status == QUIRE_OK && !sealed) return qr_disk_io_sync(&writer->io, writer->file.fd, NULL);
    return status == QUIRE_OK ? qr_disk_writer_seal(disk) : status;
}

/* The footer on disk, or one made from the records. */
static void footer_get(qr_disk *disk, const qr_segment_file *file, qr_footer *footer) {
    qr_disk_writer *writer = &disk->writer;
    if (qr_segment_file_read_footer(&writer->io, file, writer->scratch_bytes, footer) == QUIRE_OK) return;
    qr_segment_file_scan(&writer->io, file, writer->record, disk->sizes.record_bytes, writer->scratch_bytes, footer, NULL);
}

/* False: at close nobody would hear of it, and what cannot be read now may be readable another time. */
static bool lose_slot(qr_disk *disk, const clean_plan *plan, uint32_t slot, quire_status status, const char *why) {
    pthread_mutex_lock(&disk->lock);
    bool heard = !disk->stopping;
    qr_record_id id = disk->segments[plan->segment].first;
    while (id != QR_RECORD_NONE && disk->records[id].slot != slot) id = disk->records[id].next;
    if (id != QR_RECORD_NONE && heard) {
        uint64_t offset = qr_segment_record_offset(&plan->header.shape, slot);
        disk->stats.corrupt_total += status == QUIRE_DAMAGED;
        if (status == QUIRE_DAMAGED) qr_disk_note_damage(disk, plan->header.id, offset, why);
        qr_disk_record_lose(disk, id);
    }
    pthread_mutex_unlock(&disk->lock);
    return heard || id == QR_RECORD_NONE;
}

/* Every record that memory knows of is in the footer: one that could not be read when it was made is tried once more, and then
 * it is lost, so that the others are not without an index for ever. */
static bool footer_complete(qr_disk *disk, const clean_plan *plan, const qr_segment_file *file, qr_footer *footer) {
    qr_disk_writer *writer = &disk->writer;
    qr_record_header header;
    bool complete = true;
    for (uint32_t slot = 0; slot < plan->used_slots; slot++) {
        if (!writer->wanted[slot] || qr_footer_has(footer, slot)) continue;
        uint64_t offset = qr_segment_record_offset(&plan->header.shape, slot);
        quire_error why;
        quire_status status = qr_disk_io_read_at(&writer->io, file->fd, writer->record, disk->sizes.record_bytes, offset, &why);
        if (status == QUIRE_OK) status = qr_segment_record_check(&file->header, slot, writer->record, &header, &why);
        if (status == QUIRE_OK) qr_footer_set(footer, &header);
        else complete &= lose_slot(disk, plan, slot, status, why.text);
        qr_wipe(&header, sizeof header);
    }
    return complete;
}

/* Nothing is there: what a reader would find out with the next record that is asked for. */
static quire_status open_or_lose(qr_disk *disk, const clean_plan *plan, qr_segment_file *file) {
    qr_disk_io *io = &disk->writer.io;
    quire_status status = qr_segment_file_open(io, &plan->header, true, file);
    if (status != QUIRE_NOT_FOUND) return status;
    if (!qr_disk_file_went(disk, plan->header.id)) return status;
    pthread_mutex_lock(&disk->lock);
    if (!disk->stopping) qr_disk_segment_doom(disk, plan->segment);
    pthread_mutex_unlock(&disk->lock);
    return status;
}

static quire_status clean_closed(qr_disk *disk, const clean_plan *plan, bool *sealed) {
    qr_disk_writer *writer = &disk->writer;
    qr_segment_file file;
    qr_footer footer;
    quire_status status = open_or_lose(disk, plan, &file);
    if (status != QUIRE_OK) return status;
    footer_get(disk, &file, &footer);
    footer.used_slots = plan->used_slots;
    bool complete = footer_complete(disk, plan, &file, &footer);
    status = clean_slots(disk, plan, &file, &footer);
    if (status == QUIRE_OK && plan->sync_failed)
        status = qr_segment_file_rewrite(&writer->io, &file, &footer, writer->record, disk->sizes.record_bytes);
    if (status == QUIRE_OK && complete) status = qr_segment_file_seal(&writer->io, &file, &footer);
    else if (status == QUIRE_OK) status = qr_disk_io_sync(&writer->io, file.fd, NULL);
    *sealed = status == QUIRE_OK && complete;
    qr_footer_wipe(&footer);
    qr_segment_file_close(&writer->io, &file);
    return status;
}

static bool clean_segment(qr_disk *disk, const clean_plan *plan) {
    if (plan->segment == disk->writer.segment && plan->sync_failed) qr_disk_writer_leave(disk);
    bool open = plan->segment == disk->writer.segment, sealed = false;
    uint64_t failed = disk->writer.io.failed_sync_count;
    quire_status status = open ? clean_open(disk, plan) : clean_closed(disk, plan, &sealed);
    pthread_mutex_lock(&disk->lock);
    qr_disk_segment *segment = &disk->segments[plan->segment];
    if (status != QUIRE_OK) {
        segment->dirty |= plan->dirty;
        segment->tail_dirty |= plan->tail_dirty;
        segment->suspect |= plan->suspect;
    }
    if (status == QUIRE_OK) segment->sync_failed = false;
    if (disk->writer.io.failed_sync_count != failed) segment->sync_failed = true;
    segment->unsealed = open ? !disk->writer.sealed : !sealed;
    pthread_mutex_unlock(&disk->lock);
    return status == QUIRE_OK;
}

/* The next that wants it, from `from` on; the lock is held. */
static uint32_t find_unclean(const qr_disk *disk, uint32_t from, bool seal, bool erase) {
    for (uint32_t i = from; i < disk->sizes.segment_max; i++) {
        const qr_disk_segment *segment = &disk->segments[i];
        bool unsealed = seal && ((segment->unsealed && i != disk->writer.segment) || segment->sync_failed);
        bool unclean = segment->dirty || segment->tail_dirty || (erase && segment->suspect);
        if (segment->state == QR_SEGMENT_OURS && (unclean || unsealed)) return i;
    }
    return QR_SEGMENT_NONE;
}

/* ---- a pass ---- */

/* What was asked for before it began; what comes from then on has a pass of its own. The lock is held. */
typedef struct erasures {
    uint32_t erasing_count, forgetting_count, forget_count, forget_all_count;
} erasures;

static erasures erasures_asked(const qr_disk *disk) {
    return (erasures){disk->erasing_count, disk->forgetting_count, disk->forget_count, disk->forget_all_count};
}

static bool erasures_any(const erasures *asked) { return asked->erasing_count || asked->forgetting_count; }

static void erasures_done(qr_disk *disk, const erasures *asked) {
    disk->erasing_count -= asked->erasing_count;
    disk->stats.erased_total += asked->erasing_count;
    disk->forgetting_count -= asked->forgetting_count;
    disk->forget_all_count -= asked->forget_all_count;
    disk->forget_count -= asked->forget_count;
    memmove(disk->forgets, disk->forgets + asked->forget_count, disk->forget_count * sizeof *disk->forgets);
    qr_wipe(disk->forgets + disk->forget_count, asked->forget_count * sizeof *disk->forgets);
}

void qr_disk_clean(qr_disk *disk, bool seal) {
    pthread_mutex_lock(&disk->lock);
    erasures asked = erasures_asked(disk);
    disk->clean_wanted = false;
    pthread_mutex_unlock(&disk->lock);
    bool all = qr_disk_tidy(disk);
    if (erasures_any(&asked)) all &= qr_disk_take_in_strangers(disk);
    all &= qr_disk_clean_foreign(disk, asked.forget_count, asked.forget_all_count > 0);
    for (uint32_t index = 0;; index++) {
        clean_plan plan;
        pthread_mutex_lock(&disk->lock);
        index = find_unclean(disk, index, seal, erasures_any(&asked));
        if (index != QR_SEGMENT_NONE) plan_make(disk, index, &plan);
        pthread_mutex_unlock(&disk->lock);
        if (index == QR_SEGMENT_NONE) break;
        all &= clean_segment(disk, &plan);
    }
    all &= qr_disk_tidy(disk);                                                      /* what was found to be gone meanwhile */
    all &= qr_disk_folder_look(&disk->folder, disk->config.path) == QR_FOLDER_HERE; /* all of it was seen, then */
    if (all && erasures_any(&asked)) qr_disk_wipe_memory(disk);
    pthread_mutex_lock(&disk->lock);
    if (all) erasures_done(disk, &asked);
    else qr_disk_pause_begin(disk, &disk->upkeep_pause);
    disk->clean_wanted |= !all && erasures_any(&asked);
    pthread_mutex_unlock(&disk->lock);
}
