/* disk_reclaim.c - room for another segment, and files that are not needed any more. The writer thread's.
 *
 * Under the cap there is always room for one more segment than there are, or it is made when one is begun: so what is carried
 * out of the oldest has a place to go to while both are there. Segments of another fingerprint go first, whole. Out of ours
 * goes what nobody touched since it was written and what nothing elsewhere hangs on; a record is carried together with what it
 * hangs on, parents first, at most half a segment in all.
 *
 * Below the floor of the file system the store takes no more space than it has: the oldest segment makes room for the newest,
 * as long as it has another. What was given back is counted, so that it is not given back twice when somebody else takes it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/error.h"
#include "offload/disk_internal.h"

/* ---- files that go ---- */

bool qr_disk_remove_segment(qr_disk *disk, uint32_t index) {
    qr_disk_io *io = &disk->writer.io;
    pthread_mutex_lock(&disk->lock);
    qr_disk_segment *segment = &disk->segments[index];
    QR_ASSERT(segment->state == QR_SEGMENT_DOOMED || segment->state == QR_SEGMENT_FOREIGN);
    while (segment->read_count) pthread_cond_wait(&disk->reads_over, &disk->lock);
    uint64_t id = segment->id;
    pthread_mutex_unlock(&disk->lock);
    if (index == disk->writer.segment) qr_disk_writer_leave(disk);
    bool gone = qr_segment_file_remove(io, id) == QUIRE_OK;
    gone &= qr_disk_folder_look(&disk->folder, disk->config.path) != QR_FOLDER_AWAY; /* else who knows where it was not */
    pthread_mutex_lock(&disk->lock);
    if (gone) qr_disk_segment_free(disk, index);
    else qr_disk_pause_begin(disk, &disk->upkeep_pause);
    disk->tidy |= !gone;
    pthread_mutex_unlock(&disk->lock);
    return gone;
}

/* Those that were written to and have no record are of no use; the lock is held. */
static uint32_t find_useless(qr_disk *disk, uint32_t from) {
    for (uint32_t i = from; i < disk->sizes.segment_max; i++) {
        qr_disk_segment *segment = &disk->segments[i];
        if (segment->state == QR_SEGMENT_DOOMED) return i;
        if (segment->state != QR_SEGMENT_OURS || segment->live_count || segment->used_slots == 0) continue;
        bool more = disk->tidy;
        qr_disk_segment_doom(disk, i);
        disk->tidy = more; /* this one is being seen to */
        return i;
    }
    return QR_SEGMENT_NONE;
}

bool qr_disk_tidy(qr_disk *disk) {
    bool all = true;
    for (uint32_t index = 0;; index++) {
        pthread_mutex_lock(&disk->lock);
        if (index == 0) disk->tidy = false;
        index = find_useless(disk, index);
        pthread_mutex_unlock(&disk->lock);
        if (index == QR_SEGMENT_NONE) break;
        all &= qr_disk_remove_segment(disk, index);
    }
    pthread_mutex_lock(&disk->lock);
    if (all) disk->upkeep_pause = (qr_disk_pause){0};
    pthread_mutex_unlock(&disk->lock);
    return all;
}

/* ---- which one ---- */

/* What is doomed costs nobody anything more, what is foreign not us. */
static int rank(const qr_disk_segment *segment) {
    return segment->state == QR_SEGMENT_DOOMED ? 0 : segment->state == QR_SEGMENT_FOREIGN ? 1 : 2;
}

static bool goes_before(const qr_disk_segment *a, const qr_disk_segment *b) {
    return rank(a) != rank(b) ? rank(a) < rank(b) : a->id < b->id;
}

/* The lock is held. */
static uint32_t choose_victim(const qr_disk *disk) {
    uint32_t best = QR_SEGMENT_NONE;
    for (uint32_t i = 0; i < disk->sizes.segment_max; i++) {
        const qr_disk_segment *segment = &disk->segments[i];
        if (segment->state == QR_SEGMENT_FREE || i == disk->writer.segment) continue;
        if (best == QR_SEGMENT_NONE || goes_before(segment, &disk->segments[best])) best = i;
    }
    return best;
}

/* ---- carrying ---- */

static int compare_members(const void *a, const void *b) {
    uint64_t x = ((const qr_disk_member *)a)->serial, y = ((const qr_disk_member *)b)->serial;
    return (x > y) - (x < y);
}

static uint32_t members_gather(qr_disk *disk, uint32_t index) {
    qr_disk_member *members = disk->writer.members;
    uint32_t count = 0;
    pthread_mutex_lock(&disk->lock);
    for (uint32_t id = disk->segments[index].first; id != QR_RECORD_NONE; id = disk->records[id].next) {
        QR_ASSERT(count < disk->sizes.slots_max);
        members[count++] = (qr_disk_member){.serial = disk->records[id].serial, .record = id};
    }
    pthread_mutex_unlock(&disk->lock);
    qsort(members, count, sizeof *members, compare_members);
    return count;
}

/* Still where it was when it was gathered; the lock is held. */
static bool member_stays(const qr_disk *disk, const qr_disk_member *member, uint32_t index) {
    const qr_disk_record *record = &disk->records[member->record];
    return record->serial == member->serial && record->state == QR_RECORD_LIVE && record->segment == index;
}

/* The slot of a member's parent in the same segment, or UINT32_MAX; the lock is held. */
static uint32_t parent_slot(const qr_disk *disk, const qr_disk_record *record) {
    if (record->parent_serial == 0) return UINT32_MAX;
    const qr_disk_record *parent = &disk->records[record->parent];
    bool inside =
        parent->serial == record->parent_serial && parent->state == QR_RECORD_LIVE && parent->segment == record->segment;
    return inside ? parent->slot : UINT32_MAX;
}

/* Marks by slot what is worth carrying: touched, with children elsewhere, or needed by one that is. */
static void members_judge(qr_disk *disk, uint32_t index, uint32_t count) {
    qr_disk_writer *writer = &disk->writer;
    memset(writer->inner_children, 0, disk->sizes.slots_max * sizeof *writer->inner_children);
    memset(writer->wanted, 0, disk->sizes.slots_max);
    pthread_mutex_lock(&disk->lock);
    for (uint32_t i = 0; i < count; i++) {
        if (!member_stays(disk, &writer->members[i], index)) continue;
        uint32_t slot = parent_slot(disk, &disk->records[writer->members[i].record]);
        if (slot != UINT32_MAX) writer->inner_children[slot]++;
    }
    for (uint32_t i = count; i-- > 0;) { /* children before parents */
        if (!member_stays(disk, &writer->members[i], index)) continue;
        const qr_disk_record *record = &disk->records[writer->members[i].record];
        bool wanted =
            writer->wanted[record->slot] || record->touched || record->child_count > writer->inner_children[record->slot];
        uint32_t slot = parent_slot(disk, record);
        if (wanted && slot != UINT32_MAX) writer->wanted[slot] = true;
        writer->members[i].wanted = wanted;
    }
    pthread_mutex_unlock(&disk->lock);
}

/* Records are moved to where their copies lie, once these last: until then the old ones are the only ones that a power cut
 * would leave. What was dropped meanwhile leaves a copy to be cleaned. */
static void members_move(qr_disk *disk, uint32_t count, uint32_t from, uint32_t to, bool lasting) {
    pthread_mutex_lock(&disk->lock);
    for (uint32_t i = 0; i < count; i++) {
        const qr_disk_member *member = &disk->writer.members[i];
        if (!member->copied) continue;
        if (!lasting || !member_stays(disk, member, from)) {
            disk->segments[to].dirty = true;
            continue;
        }
        qr_disk_record_move(disk, member->record, to, member->slot);
        disk->stats.carried_total++;
    }
    pthread_mutex_unlock(&disk->lock);
}

/* What could not be read was noted when it failed. */
static void member_unreadable(qr_disk *disk, const qr_disk_member *member, uint32_t from, uint64_t offset, quire_status status,
                              const char *what) {
    pthread_mutex_lock(&disk->lock);
    if (status == QUIRE_DAMAGED) qr_disk_note_damage(disk, disk->segments[from].id, offset, what);
    disk->stats.corrupt_total += status == QUIRE_DAMAGED;
    if (member_stays(disk, member, from)) qr_disk_record_lose(disk, member->record);
    pthread_mutex_unlock(&disk->lock);
}

/* False: nothing more can be carried. */
static bool member_copy(qr_disk *disk, const qr_segment_file *file, uint32_t from, qr_disk_member *member) {
    qr_disk_writer *writer = &disk->writer;
    qr_record_header header;
    unsigned char *page = writer->record;
    pthread_mutex_lock(&disk->lock);
    bool worth = member_stays(disk, member, from) && qr_disk_parent_alive(disk, &disk->records[member->record]);
    uint32_t slot = disk->records[member->record].slot;
    const qr_disk_segment *open = &disk->segments[writer->segment];
    bool room = open->state == QR_SEGMENT_OURS && open->used_slots < open->shape.slot_count;
    pthread_mutex_unlock(&disk->lock);
    if (!worth) return true;
    if (!room) return false;
    uint64_t offset = qr_segment_record_offset(&file->header.shape, slot);
    quire_error why;
    quire_status status = qr_disk_io_read_at(&writer->io, file->fd, page, disk->sizes.record_bytes, offset, &why);
    if (status == QUIRE_OK) status = qr_segment_record_check(&file->header, slot, page, &header, &why);
    if (status == QUIRE_OK && header.serial != member->serial)
        status = qr_fail(&why, QUIRE_DAMAGED, NULL, offset, "another record lies here");
    if (status != QUIRE_OK) {
        member_unreadable(disk, member, from, offset, status, why.text);
        return true;
    }
    memcpy(writer->namespace_key, header.namespace_key, header.namespace_bytes); /* encoding begins with an empty page */
    header.namespace_key = writer->namespace_key;
    member->copied = qr_disk_writer_append(disk, &(qr_record_header *){&header}, &page, 1, &member->slot) == QUIRE_OK;
    qr_wipe(&header, sizeof header);
    return member->copied;
}

/* The copies are on stable storage, in a segment that is still there. */
static bool copies_last(qr_disk *disk, uint32_t to) {
    if (disk->writer.segment != to) return false;
    bool synced = qr_disk_io_sync(&disk->writer.io, disk->writer.file.fd, NULL) == QUIRE_OK;
    pthread_mutex_lock(&disk->lock);
    qr_disk_segment *segment = &disk->segments[to];
    segment->sync_failed |= !synced;
    bool last = segment->state == QR_SEGMENT_OURS && !segment->sync_failed;
    pthread_mutex_unlock(&disk->lock);
    return last;
}

/* Returns how many records were copied; *lasting says that they, if any, have been moved. */
static uint32_t carry(qr_disk *disk, uint32_t from, uint32_t allowance, bool *lasting) {
    qr_disk_writer *writer = &disk->writer;
    uint32_t to = writer->segment;
    qr_segment_file file;
    pthread_mutex_lock(&disk->lock);
    qr_segment_header header = {disk->config.fingerprint, disk->segments[from].id, disk->segments[from].shape};
    pthread_mutex_unlock(&disk->lock);
    uint32_t count = members_gather(disk, from), carried = 0;
    *lasting = true;
    members_judge(disk, from, count);
    quire_status status = qr_segment_file_open(&writer->io, &header, false, &file);
    /* What cannot be opened now is not thrown away for it. */
    *lasting = status == QUIRE_OK || (status == QUIRE_NOT_FOUND && qr_disk_file_went(disk, header.id));
    if (status != QUIRE_OK) return 0;
    for (uint32_t i = 0; i < count && carried < allowance; i++) {
        if (!writer->members[i].wanted) continue;
        qr_disk_writer_yield(disk);
        if (!member_copy(disk, &file, from, &writer->members[i])) break;
        carried += writer->members[i].copied;
    }
    qr_segment_file_close(&writer->io, &file);
    if (carried == 0) return 0;
    *lasting = copies_last(disk, to);
    members_move(disk, count, from, to, *lasting);
    return carried;
}

/* ---- room ---- */

static bool room_under_cap(const qr_disk *disk) {
    return disk->stats.used_bytes + disk->sizes.segment_bytes <= disk->config.cap_bytes;
}

/* False: it could not be removed, or there is none. */
static bool reclaim_one(qr_disk *disk, uint32_t *allowance) {
    pthread_mutex_lock(&disk->lock);
    uint32_t index = choose_victim(disk);
    bool ours = index != QR_SEGMENT_NONE && disk->segments[index].state == QR_SEGMENT_OURS;
    pthread_mutex_unlock(&disk->lock);
    if (index == QR_SEGMENT_NONE) return false;
    bool lasting = true;
    if (ours && *allowance && disk->writer.segment != QR_SEGMENT_NONE) *allowance -= carry(disk, index, *allowance, &lasting);
    if (!lasting) return false;
    pthread_mutex_lock(&disk->lock);
    if (ours) qr_disk_segment_doom(disk, index);
    pthread_mutex_unlock(&disk->lock);
    return qr_disk_remove_segment(disk, index);
}

static bool reclaim_until_room(qr_disk *disk, uint32_t allowance) {
    for (;;) {
        pthread_mutex_lock(&disk->lock);
        bool room = room_under_cap(disk);
        pthread_mutex_unlock(&disk->lock);
        if (room) return true;
        if (!reclaim_one(disk, &allowance)) return false;
    }
}

void qr_disk_reclaim_ahead(qr_disk *disk) { (void)reclaim_until_room(disk, disk->sizes.shape.slot_count / 2); }

static bool floor_allows(qr_disk *disk) {
    qr_files *files = disk->config.files;
    qr_files_space space;
    if (files->ops->space(files, disk->reach, &space, NULL) != QUIRE_OK) return true; /* allocate will say */
    uint64_t need = disk->sizes.segment_bytes + disk->config.free_floor_bytes;
    pthread_mutex_lock(&disk->lock);
    disk->floor_near = space.free_bytes < need + disk->sizes.segment_bytes;
    pthread_mutex_unlock(&disk->lock);
    return space.free_bytes >= need;
}

/* The lock is held. */
static uint32_t count_ours(const qr_disk *disk) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < disk->sizes.segment_max; i++) count += disk->segments[i].state == QR_SEGMENT_OURS;
    return count;
}

/* Bytes that were given back; 0: none can be. */
static uint64_t recycle_one(qr_disk *disk) {
    uint64_t bytes = 0;
    pthread_mutex_lock(&disk->lock);
    uint32_t index = choose_victim(disk);
    if (index != QR_SEGMENT_NONE) {
        bool last = disk->segments[index].state == QR_SEGMENT_OURS && count_ours(disk) < 2;
        bytes = last ? 0 : disk->segments[index].file_bytes;
        if (!last) qr_disk_segment_doom(disk, index);
    }
    pthread_mutex_unlock(&disk->lock);
    return bytes && qr_disk_remove_segment(disk, index) ? bytes : 0;
}

static bool recycle(qr_disk *disk) {
    qr_disk_writer *writer = &disk->writer;
    while (writer->recycled_bytes < disk->sizes.segment_bytes) {
        uint64_t bytes = recycle_one(disk);
        if (bytes == 0) return false;
        writer->recycled_bytes += bytes;
    }
    return true;
}

quire_status qr_disk_make_room(qr_disk *disk) {
    if (floor_allows(disk)) disk->writer.recycled_bytes = 0;
    else if (!recycle(disk)) return QUIRE_NO_SPACE;
    return reclaim_until_room(disk, 0) ? QUIRE_OK : QUIRE_NO_SPACE;
}
