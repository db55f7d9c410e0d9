/* disk_foreign.c - what other fingerprints' segments hold of a namespace goes. The writer thread's.
 *
 * They have the token ids and the key of whoever asked that model, so to forget a namespace they are looked through too: by
 * their footer, or by the header of each record where there is none. What cannot be read might be anybody's, and goes as well:
 * a slot, or the whole file when its header or footer says nothing. The order is that of disk_clean.c.
 *
 * A segment of another fingerprint is nobody's while this process has the folder; nothing of it is in the table but its size.
 * Segments that the table does not have may lie in the folder too; an erasure looks for them first.
 */
#include <stdlib.h>
#include <string.h>

#include "offload/disk_internal.h"

#define MEMORY_MAX (64ull << 20)

/* One segment while it is looked through. */
typedef struct foreign_look {
    uint32_t segment, forget_count;
    bool suspect, indexed;
    qr_segment_file file;
    qr_footer footer;      /* indexed */
    unsigned char *wanted; /* [slot_count] slots that stay */
    uint32_t wanted_count, matched_count;
    qr_region memory; /* footer, wanted */
} foreign_look;

/* The writer needs no lock for it: those that it was told of do not change, new ones come behind. */
bool qr_disk_is_forgotten(const qr_disk *disk, uint32_t forget_count, const void *key, size_t key_bytes) {
    for (uint32_t i = 0; i < forget_count; i++) {
        const qr_disk_forget *forget = &disk->forgets[i];
        if (forget->key_bytes == key_bytes && (key_bytes == 0 || memcmp(forget->key, key, key_bytes) == 0)) return true;
    }
    return false;
}

/* What a slot says of itself. False: nothing. */
static bool slot_read(qr_disk *disk, const foreign_look *look, uint32_t slot, qr_record_header *header) {
    qr_disk_writer *writer = &disk->writer;
    if (look->indexed) {
        if (!qr_footer_has(&look->footer, slot)) return false;
        qr_footer_get(&look->footer, slot, header);
        return true;
    }
    uint64_t offset = qr_segment_record_offset(&look->file.header.shape, slot);
    quire_status status = qr_disk_io_read_at(&writer->io, look->file.fd, writer->page, QR_RECORD_HEADER_BYTES, offset, NULL);
    return status == QUIRE_OK && qr_record_decode(writer->page, header, NULL) == QUIRE_OK;
}

static void look_through(qr_disk *disk, foreign_look *look) {
    qr_record_header header;
    uint32_t count = look->file.header.shape.slot_count;
    for (uint32_t slot = 0; slot < count; slot++) {
        bool says = slot_read(disk, look, slot, &header);
        bool match = says && qr_disk_is_forgotten(disk, look->forget_count, header.namespace_key, header.namespace_bytes);
        look->wanted[slot] = says && !match;
        look->wanted_count += look->wanted[slot];
        look->matched_count += match;
    }
    qr_wipe(&header, sizeof header);
}

static quire_status foreign_empty(qr_disk *disk, foreign_look *look) {
    qr_disk_io *io = &disk->writer.io;
    uint32_t slots = look->file.header.shape.slot_count, used = look->indexed ? look->footer.used_slots : slots;
    quire_status status = qr_segment_file_unseal(io, &look->file, disk->writer.page, true);
    if (status == QUIRE_OK) status = qr_segment_file_punch(io, &look->file, look->wanted, used);
    if (status == QUIRE_OK) status = qr_segment_file_zero(io, &look->file, used);
    if (status != QUIRE_OK || !look->indexed) return status == QUIRE_OK ? qr_disk_io_sync(io, look->file.fd, NULL) : status;
    for (uint32_t slot = 0; slot < used; slot++)
        if (!look->wanted[slot]) qr_footer_clear(&look->footer, slot);
    qr_footer_wipe_keys(&look->footer);
    return qr_segment_file_seal(io, &look->file, &look->footer);
}

/* Opens it, reads its header and footer. OK, NO_MEMORY; else nothing can be said of what is in it. */
static quire_status look_begin(qr_disk *disk, foreign_look *look, uint64_t id) {
    qr_disk_writer *writer = &disk->writer;
    qr_segment_header header = {.id = id};
    quire_status status = qr_segment_file_open(&writer->io, &header, true, &look->file);
    if (status == QUIRE_OK)
        status = qr_disk_io_read_at(&writer->io, look->file.fd, writer->page, QR_SEGMENT_HEADER_BYTES, 0, NULL);
    if (status == QUIRE_OK) status = qr_segment_header_decode(writer->page, &header, NULL);
    if (status != QUIRE_OK || header.id != id) return QUIRE_DAMAGED;
    look->file.header = header;
    uint64_t footer = qr_footer_bytes_max(&header.shape);
    if (footer + header.shape.slot_count > MEMORY_MAX) return QUIRE_DAMAGED;
    status = qr_region_alloc(footer + header.shape.slot_count, &look->memory, NULL);
    if (status != QUIRE_OK) return QUIRE_NO_MEMORY;
    look->wanted = (unsigned char *)look->memory.base + footer;
    look->indexed = qr_segment_file_read_footer(&writer->io, &look->file, look->memory.base, &look->footer) == QUIRE_OK;
    return QUIRE_OK;
}

static void look_end(qr_disk *disk, foreign_look *look) {
    qr_segment_file_close(&disk->writer.io, &look->file);
    if (look->memory.base) qr_region_free(&look->memory);
}

/* The segment has nothing of what is forgotten any more, or is gone. */
static bool foreign_clean(qr_disk *disk, uint32_t index, uint32_t forget_count) {
    pthread_mutex_lock(&disk->lock);
    uint64_t id = disk->segments[index].id;
    foreign_look look = {.segment = index, .forget_count = forget_count, .suspect = disk->segments[index].suspect};
    pthread_mutex_unlock(&disk->lock);
    quire_status status = look_begin(disk, &look, id);
    bool readable = status == QUIRE_OK;
    if (readable) look_through(disk, &look);
    bool whole = status == QUIRE_DAMAGED || (readable && look.wanted_count == 0);
    if (readable && !whole && (look.matched_count || look.suspect)) status = foreign_empty(disk, &look);
    look_end(disk, &look);
    if (whole) return qr_disk_remove_segment(disk, index);
    pthread_mutex_lock(&disk->lock);
    disk->segments[index].suspect = status != QUIRE_OK;
    if (status == QUIRE_OK) disk->stats.erased_total += look.matched_count;
    pthread_mutex_unlock(&disk->lock);
    return status == QUIRE_OK;
}

bool qr_disk_clean_foreign(qr_disk *disk, uint32_t forget_count, bool everything) {
    bool all = true;
    for (uint32_t i = 0; (forget_count || everything) && i < disk->sizes.segment_max; i++) {
        pthread_mutex_lock(&disk->lock);
        bool foreign = disk->segments[i].state == QR_SEGMENT_FOREIGN;
        pthread_mutex_unlock(&disk->lock);
        if (foreign) all &= everything ? qr_disk_remove_segment(disk, i) : foreign_clean(disk, i, forget_count);
    }
    return all;
}

/* ---- strangers ---- */

/* The lock is held. */
static bool is_known(const qr_disk *disk, uint64_t id) {
    for (uint32_t i = 0; i < disk->sizes.segment_max; i++)
        if (disk->segments[i].state != QR_SEGMENT_FREE && disk->segments[i].id == id) return true;
    return false;
}

static bool is_of_ours(qr_disk *disk, uint64_t id) {
    qr_disk_io *io = &disk->writer.io;
    qr_segment_header header = {.id = id};
    qr_segment_file file;
    if (qr_segment_file_open(io, &header, false, &file) != QUIRE_OK) return false;
    quire_status status = qr_disk_io_read_at(io, file.fd, disk->writer.page, QR_SEGMENT_HEADER_BYTES, 0, NULL);
    qr_segment_file_close(io, &file);
    if (status == QUIRE_OK) status = qr_segment_header_decode(disk->writer.page, &header, NULL);
    return status == QUIRE_OK && qr_fingerprint_equal(&header.fingerprint, &disk->config.fingerprint);
}

/* False: there is no room for it. */
static bool enter_foreign(qr_disk *disk, uint64_t id, uint64_t size_bytes) {
    pthread_mutex_lock(&disk->lock);
    bool fits = disk->stats.used_bytes + size_bytes <= disk->config.cap_bytes;
    uint32_t index = fits ? qr_disk_segment_take(disk, id, &disk->sizes.shape, QR_SEGMENT_FOREIGN) : QR_SEGMENT_NONE;
    if (index != QR_SEGMENT_NONE) {
        qr_disk_segment *segment = &disk->segments[index];
        disk->stats.used_bytes += size_bytes - segment->file_bytes;
        segment->file_bytes = size_bytes;
        segment->suspect = true;
        if (disk->next_serial <= id) disk->next_serial = id + 1;
    }
    pthread_mutex_unlock(&disk->lock);
    return index != QR_SEGMENT_NONE;
}

/* False: it is still there, and in no table. */
static bool stranger_take_in(qr_disk *disk, uint64_t id) {
    char path[QR_SEGMENT_PATH_MAX];
    uint64_t size_bytes, taken_bytes;
    pthread_mutex_lock(&disk->lock);
    bool known = is_known(disk, id);
    pthread_mutex_unlock(&disk->lock);
    if (known || !qr_segment_path(disk->reach, id, path) || !qr_disk_folder_has_file(path, &size_bytes, &taken_bytes))
        return true;
    if (!is_of_ours(disk, id) && enter_foreign(disk, id, size_bytes)) return true;
    return qr_segment_file_remove(&disk->writer.io, id) == QUIRE_OK;
}

bool qr_disk_take_in_strangers(qr_disk *disk) {
    uint64_t *ids;
    size_t count;
    bool all = qr_disk_folder_list(disk->reach, &ids, &count, NULL) == QUIRE_OK;
    for (size_t i = 0; all && i < count; i++) all &= stranger_take_in(disk, ids[i]);
    free(ids);
    return all;
}
