/* disk_index.c - a folder becomes a table: at open, before any thread runs.
 *
 * Per segment the header and the footer are read, two or three reads; a segment without a footer that holds is read whole and
 * its records prove themselves. Then all records are sorted by serial, so that parents come before children, and each is
 * taken when its parent was, with the same key, the right depth and digests. A serial that is there twice (a process ended
 * while it carried the record) counts where it was written last.
 *
 * Nothing is changed before all headers are read: a file of an unknown version makes open fail, and stays. Files whose header
 * does not hold are half made or damaged, and go; in a folder that cannot be written they are passed over, and nothing ever
 * changes. What the owner did not hear yet (tokens, keys) stays on the heap until index
 * has told it: 56 bytes a record and 4 a token.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "offload/disk_internal.h"

#define WINDOW_BYTES (8ull << 20)
#define FOREIGN_FOOTER_MAX (64ull << 20)

/* STUCK: it was to be removed, and could not be. */
typedef enum found_kind { FOUND_OURS, FOUND_FOREIGN, FOUND_BAD, FOUND_UNREADABLE, FOUND_STUCK, FOUND_NOTHING } found_kind;

typedef struct qr_found_segment {
    found_kind kind;
    uint64_t id;
    uint64_t file_bytes;  /* its size, which may be holes beyond what it ever was */
    uint64_t taken_bytes; /* of the file system */
    qr_segment_header header;
    uint32_t index; /* in the table */
    bool sealed, lasting;
    qr_footer footer; /* its bytes on the heap, without spare room; NULL: none */
} found_segment;

typedef struct found_record {
    uint64_t serial;
    uint32_t found, slot;
} found_record;

/* ---- headers ---- */

/* Between reads: an index may take long, and whoever waits for it may have changed his mind. */
static quire_status index_goes_on(const qr_disk *disk, quire_error *error) {
    if (!qr_disk_io_cancelled(&disk->writer.io)) return QUIRE_OK;
    return qr_fail(error, QUIRE_CANCELLED, disk->config.path, QR_NO_OFFSET, "stopped while its index was read");
}

static void read_header_page(qr_disk *disk, int fd, found_segment *found, quire_error *error) {
    qr_disk_io *io = &disk->writer.io;
    unsigned char *page = disk->writer.page;
    quire_status sized = io->files->ops->size(io->files, fd, &found->file_bytes, error);
    if (qr_disk_io_fd_result(io, sized, fd, error) != QUIRE_OK) return;
    found->kind = FOUND_BAD;
    if (found->file_bytes < QR_SEGMENT_HEADER_BYTES) {
        (void)qr_fail(error, QUIRE_DAMAGED, NULL, QR_NO_OFFSET, "the file is too short for a header");
        return;
    }
    found->kind = FOUND_UNREADABLE;
    if (qr_disk_io_read_at(io, fd, page, QR_SEGMENT_HEADER_BYTES, 0, NULL) != QUIRE_OK) return;
    quire_status status = qr_segment_header_decode(page, &found->header, error);
    if (status == QUIRE_UNSUPPORTED) return;
    bool holds = status == QUIRE_OK && found->header.id == found->id;
    if (status == QUIRE_OK && !holds) (void)qr_fail(error, QUIRE_DAMAGED, NULL, QR_NO_OFFSET, "the header is another file's");
    bool ours = holds && qr_fingerprint_equal(&found->header.fingerprint, &disk->config.fingerprint) &&
                found->header.shape.block_tokens == disk->config.block_tokens &&
                found->header.shape.payload_bytes == disk->config.payload_bytes &&
                found->header.shape.slot_count <= disk->sizes.slots_max;
    found->kind = !holds ? FOUND_BAD : ours ? FOUND_OURS : FOUND_FOREIGN;
}

static void found_is_damaged(qr_disk *disk, const found_segment *found, const quire_error *why) {
    char name[QR_SEGMENT_NAME_MAX];
    qr_segment_name(found->id, name);
    qr_disk_io_note_damage(&disk->writer.io, name, 0, why);
    disk->stats.corrupt_total++;
}

/* UNSUPPORTED: an unknown version. */
static quire_status read_header(qr_disk *disk, uint64_t id, found_segment *found, quire_error *error) {
    qr_disk_io *io = &disk->writer.io;
    char path[QR_SEGMENT_PATH_MAX];
    int fd;
    quire_error why = {0};
    *found = (found_segment){.kind = FOUND_NOTHING, .id = id, .index = QR_SEGMENT_NONE};
    if (!qr_segment_path(io->folder, id, path)) return QUIRE_OK;
    quire_status status = io->files->ops->open(io->files, path, QR_FILE_READ, true, &fd, &why);
    if (qr_disk_io_path_result(io, status, path, &why) != QUIRE_OK) {
        /* A folder or a link of this name is left alone, and its id is not taken again. */
        if (qr_disk_folder_has_file(path, &found->file_bytes, &found->taken_bytes)) found->kind = FOUND_UNREADABLE;
        return QUIRE_OK;
    }
    found->kind = FOUND_UNREADABLE;
    uint64_t size;
    if (!qr_disk_folder_has_file(path, &size, &found->taken_bytes)) found->taken_bytes = UINT64_MAX; /* all of it, then */
    read_header_page(disk, fd, found, &why);
    io->files->ops->close(io->files, fd);
    if (found->kind == FOUND_BAD) found_is_damaged(disk, found, &why);
    if (why.status != QUIRE_UNSUPPORTED) return QUIRE_OK;
    const char *told = qr_segment_path(disk->config.path, id, path) ? path : disk->config.path;
    return qr_fail(error, QUIRE_UNSUPPORTED, told, why.offset, "%s", why.text);
}

static quire_status read_headers(qr_disk *disk, quire_error *error) {
    uint64_t *ids;
    size_t count;
    quire_error why;
    quire_status status = qr_disk_folder_list(disk->reach, &ids, &count, &why);
    if (status != QUIRE_OK) return qr_fail(error, status, disk->config.path, QR_NO_OFFSET, "%s", why.text);
    found_segment *found = calloc(count ? count : 1, sizeof *found);
    if (!found) status = qr_fail(error, QUIRE_NO_MEMORY, disk->config.path, QR_NO_OFFSET, "no memory for %zu segments", count);
    for (size_t i = 0; status == QUIRE_OK && i < count; i++) {
        status = read_header(disk, ids[i], &found[i], error);
        if (status == QUIRE_OK) status = index_goes_on(disk, error);
    }
    free(ids);
    disk->found.segments = found;
    disk->found.segment_count = (uint32_t)count;
    return status;
}

/* ---- what stays ---- */

static bool found_counts(const found_segment *found) { return found->kind != FOUND_BAD && found->kind != FOUND_NOTHING; }

/* False: it still counts, and the writer will try again. */
static bool found_remove(qr_disk *disk, found_segment *found) {
    bool gone = qr_segment_file_remove(&disk->writer.io, found->id) == QUIRE_OK;
    found->kind = gone ? FOUND_NOTHING : FOUND_STUCK;
    return gone;
}

/* The size that a segment was made with; 0: its header does not say. */
static uint64_t shaped_bytes(const found_segment *found) {
    bool says = found->kind == FOUND_OURS || found->kind == FOUND_FOREIGN;
    return says ? qr_segment_file_bytes(&found->header.shape) : 0;
}

/* Somebody made it longer. What lies behind its end is no part of it, and counts for what the file system has given it. */
static bool is_overlong(const found_segment *found) { return found->file_bytes > shaped_bytes(found); }

static uint64_t found_bytes(const found_segment *found) {
    uint64_t shaped = shaped_bytes(found);
    uint64_t held = is_overlong(found) && found->taken_bytes < found->file_bytes ? found->taken_bytes : found->file_bytes;
    bool whole = found->kind == FOUND_OURS || is_overlong(found); /* it will be, or is, as large as it was made */
    return held < shaped && whole ? shaped : held;
}

/* What the file system has given to what lies behind a segment's end is damage of that one: it goes before others do. */
static bool takes_too_much(const found_segment *found) {
    uint64_t shaped = shaped_bytes(found);
    return shaped && found_bytes(found) > shaped + QR_PAGE_BYTES;
}

typedef enum trim_kind { TRIM_OVERLONG, TRIM_OTHERS, TRIM_OURS } trim_kind;

static bool is_of_kind(const found_segment *found, trim_kind kind) {
    if (!found_counts(found) || found->kind == FOUND_STUCK) return false;
    if (kind == TRIM_OVERLONG) return takes_too_much(found);
    return (found->kind == FOUND_OURS) == (kind == TRIM_OURS);
}

/* Removes the oldest of a kind until bytes and count fit. */
static void trim_of_kind(qr_disk *disk, trim_kind kind, uint64_t *bytes, uint32_t *count) {
    for (uint32_t i = 0; i < disk->found.segment_count; i++) {
        found_segment *found = &disk->found.segments[i];
        if (*bytes <= disk->config.cap_bytes && *count <= disk->sizes.segment_max) return;
        if (!is_of_kind(found, kind)) continue;
        uint64_t size = found_bytes(found);
        if (!found_remove(disk, found)) continue;
        *bytes -= size;
        --*count;
    }
}

static void trim(qr_disk *disk) {
    uint64_t bytes = QR_DISK_FOLDER_BYTES;
    uint32_t count = 0;
    for (uint32_t i = 0; i < disk->found.segment_count; i++) {
        found_segment *found = &disk->found.segments[i];
        if (found->kind == FOUND_BAD) (void)found_remove(disk, found);
        if (!found_counts(found)) continue;
        bytes += found_bytes(found);
        count++;
    }
    for (int kind = TRIM_OVERLONG; kind <= TRIM_OURS; kind++) trim_of_kind(disk, (trim_kind)kind, &bytes, &count);
}

/* Where nothing can be removed nothing is: what does not hold is passed over, and so are more segments than there is room for.
 */
static void pass_over(qr_disk *disk) {
    uint32_t count = 0;
    for (uint32_t i = disk->found.segment_count; i-- > 0;) {
        found_segment *found = &disk->found.segments[i];
        if (found_counts(found) && ++count > disk->sizes.segment_max) found->kind = FOUND_NOTHING;
        if (found->kind == FOUND_BAD) found->kind = FOUND_NOTHING;
    }
}

static qr_disk_segment_state state_of(found_kind kind) {
    if (kind == FOUND_STUCK) return QR_SEGMENT_DOOMED;
    return kind == FOUND_OURS ? QR_SEGMENT_OURS : QR_SEGMENT_FOREIGN;
}

static quire_status enter_segments(qr_disk *disk, quire_error *error) {
    disk->found.by_index = calloc(disk->sizes.segment_max, sizeof *disk->found.by_index);
    if (!disk->found.by_index)
        return qr_fail(error, QUIRE_NO_MEMORY, disk->config.path, QR_NO_OFFSET, "no memory for the index");
    for (uint32_t i = 0; i < disk->found.segment_count; i++) {
        found_segment *found = &disk->found.segments[i];
        if (found->id >= disk->next_serial) disk->next_serial = found->id + 1;
        if (!found_counts(found)) continue;
        bool ours = found->kind == FOUND_OURS;
        const qr_segment_shape *shape = ours ? &found->header.shape : &disk->sizes.shape;
        found->index = qr_disk_segment_take(disk, found->id, shape, state_of(found->kind));
        if (found->index == QR_SEGMENT_NONE)
            return qr_fail(error, QUIRE_IO, disk->config.path, QR_NO_OFFSET, "segments that are too many cannot be removed");
        disk->tidy |= found->kind == FOUND_STUCK;
        disk->found.by_index[found->index] = i;
        qr_disk_segment *segment = &disk->segments[found->index];
        disk->stats.used_bytes += found_bytes(found) - segment->file_bytes;
        segment->file_bytes = found_bytes(found);
        segment->suspect = !ours;
    }
    return QUIRE_OK;
}

/* ---- footers ---- */

/* Keeps a footer without its spare room. */
static bool footer_keep(found_segment *found, const qr_footer *footer) {
    uint64_t size = qr_footer_fixed_bytes(&found->header.shape) + footer->key_bytes;
    unsigned char *bytes = malloc(size);
    if (!bytes) return false;
    memcpy(bytes, footer->bytes, size);
    found->footer = *footer;
    found->footer.bytes = bytes;
    return true;
}

/* A process that was killed may have written what it never synced. From here on all of it lasts, so that nothing is removed
 * for being elsewhere too, or called sealed, that a power cut could still take. Where there is no footer a sync may have failed
 * before: what its records are is written once more. */
static bool make_lasting(qr_disk *disk, const found_segment *found, const qr_segment_file *file, const qr_footer *footer,
                         const qr_region *window) {
    qr_disk_io *io = &disk->writer.io;
    quire_status status = QUIRE_OK;
    if (disk->read_only) return true;
    if (!found->sealed) status = qr_segment_file_rewrite(io, file, footer, window->base, window->size_bytes);
    return status == QUIRE_OK && qr_disk_io_sync(io, file->fd, NULL) == QUIRE_OK;
}

static bool load_footer(qr_disk *disk, found_segment *found, const qr_segment_file *file, unsigned char *scratch,
                        const qr_region *window) {
    qr_footer footer;
    uint32_t damaged = 0;
    found->sealed = qr_segment_file_read_footer(&disk->writer.io, file, scratch, &footer) == QUIRE_OK;
    if (!found->sealed && found->kind == FOUND_FOREIGN) return true;
    if (!found->sealed)
        qr_segment_file_scan(&disk->writer.io, file, window->base, window->size_bytes, scratch, &footer, &damaged);
    if (found->kind == FOUND_OURS) found->lasting = make_lasting(disk, found, file, &footer, window);
    disk->stats.corrupt_total += damaged;
    bool kept = footer_keep(found, &footer);
    qr_footer_wipe(&footer);
    return kept;
}

static void note_slots(qr_disk *disk, const found_segment *found) {
    qr_disk_segment *segment = &disk->segments[found->index];
    segment->used_slots = found->footer.bytes ? found->footer.used_slots : found->header.shape.slot_count;
    segment->unsealed = !found->sealed;
    segment->sync_failed = !found->lasting;
    /* A process or the power ended: records that were begun may be there, in slots that nobody knows of too. */
    segment->dirty = !found->sealed;
    for (uint32_t slot = 0; found->footer.bytes && slot < segment->used_slots; slot++)
        segment->suspect |= !qr_footer_has(&found->footer, slot);
    segment->tail_dirty = segment->used_slots < segment->shape.slot_count;
}

/* It cannot be opened now: nobody may take it for an empty one. */
static void leave_alone(qr_disk *disk, found_segment *found) {
    found->kind = FOUND_UNREADABLE;
    disk->segments[found->index].state = QR_SEGMENT_FOREIGN;
    disk->stats.foreign_segment_count++;
}

static bool load_segment(qr_disk *disk, found_segment *found, const qr_region *window) {
    qr_segment_file file;
    qr_region scratch = {disk->writer.scratch_bytes, 0};
    uint64_t need = qr_footer_bytes_max(&found->header.shape);
    bool ours = found->kind == FOUND_OURS;
    if (!ours && (need > FOREIGN_FOOTER_MAX || qr_region_alloc(need, &scratch, NULL) != QUIRE_OK)) return true;
    bool kept = true;
    if (qr_segment_file_open(&disk->writer.io, &found->header, ours && !disk->read_only, &file) == QUIRE_OK) {
        kept = load_footer(disk, found, &file, scratch.base, window);
        qr_segment_file_close(&disk->writer.io, &file);
    }
    if (!ours) qr_region_free(&scratch);
    else if (found->footer.bytes) note_slots(disk, found);
    else leave_alone(disk, found);
    return kept;
}

static quire_status load_footers(qr_disk *disk, quire_error *error) {
    qr_region window;
    uint64_t size = WINDOW_BYTES > disk->sizes.record_bytes ? WINDOW_BYTES : disk->sizes.record_bytes;
    quire_status status = qr_region_alloc(size, &window, error);
    if (status != QUIRE_OK) return status;
    for (uint32_t i = 0; status == QUIRE_OK && i < disk->found.segment_count; i++) {
        found_segment *found = &disk->found.segments[i];
        if (found->kind != FOUND_OURS && found->kind != FOUND_FOREIGN) continue;
        bool kept = load_segment(disk, found, &window);
        status = index_goes_on(disk, error); /* what a scan has left out for it must not be used */
        if (!kept) status = qr_fail(error, QUIRE_NO_MEMORY, disk->config.path, QR_NO_OFFSET, "no memory for the index");
    }
    qr_region_free(&window);
    if (!disk->read_only) (void)!qr_disk_io_sync_folder(&disk->writer.io, NULL); /* counted */
    return status;
}

/* ---- records ---- */

static int compare_records(const void *a, const void *b) {
    const found_record *x = a, *y = b;
    if (x->serial != y->serial) return x->serial < y->serial ? -1 : 1;
    return x->found > y->found ? -1 : x->found < y->found; /* the one written last first; segments are in order of id */
}

static uint64_t count_records(const qr_disk *disk) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < disk->found.segment_count; i++) {
        const found_segment *found = &disk->found.segments[i];
        if (found->kind == FOUND_OURS && found->footer.bytes) count += found->footer.used_slots;
    }
    return count;
}

static uint64_t gather_records(qr_disk *disk, found_record *records) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < disk->found.segment_count; i++) {
        const found_segment *found = &disk->found.segments[i];
        if (found->kind != FOUND_OURS || !found->footer.bytes) continue;
        for (uint32_t slot = 0; slot < found->footer.used_slots; slot++) {
            if (!qr_footer_has(&found->footer, slot)) continue;
            qr_record_header header;
            qr_footer_get(&found->footer, slot, &header);
            records[count++] = (found_record){header.serial, i, slot};
        }
    }
    if (count) qsort(records, count, sizeof *records, compare_records);
    return count;
}

/* The id of a record that was taken: they are in order of serial. */
static qr_record_id find_serial(const qr_disk *disk, uint64_t serial) {
    uint32_t low = 0, high = disk->found.record_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (disk->records[middle].serial < serial) low = middle + 1;
        else high = middle;
    }
    return low < disk->found.record_count && disk->records[low].serial == serial ? low : QR_RECORD_NONE;
}

static const found_segment *found_of(const qr_disk *disk, uint32_t index) {
    return &disk->found.segments[disk->found.by_index[index]];
}

/* Hangs together with its parent, or with a root. */
static bool record_fits(const qr_disk *disk, const qr_record_header *header, qr_record_id parent_id) {
    uint64_t digest = qr_record_root_digest(header->namespace_key, header->namespace_bytes);
    uint32_t depth = 0;
    if (header->parent_serial) {
        const qr_disk_record *record = &disk->records[parent_id];
        qr_record_header parent;
        qr_footer_get(&found_of(disk, record->segment)->footer, record->slot, &parent);
        if (parent.namespace_bytes != header->namespace_bytes ||
            memcmp(parent.namespace_key, header->namespace_key, parent.namespace_bytes) != 0)
            return false;
        digest = parent.chain_digest;
        depth = parent.depth;
    }
    return header->depth == depth + 1 && header->parent_digest == digest &&
           header->chain_digest == qr_record_chain_digest(digest, header->tokens, header->block_tokens);
}

static void record_is_damaged(qr_disk *disk, const found_segment *found, uint32_t slot) {
    disk->stats.corrupt_total++;
    qr_disk_note_damage(disk, found->id, qr_segment_record_offset(&found->header.shape, slot),
                        "it does not hang together with its parent");
}

static void take_record(qr_disk *disk, const found_record *place) {
    const found_segment *found = &disk->found.segments[place->found];
    qr_record_header header;
    qr_footer_get(&found->footer, place->slot, &header);
    qr_record_id parent = header.parent_serial ? find_serial(disk, header.parent_serial) : QR_RECORD_NONE;
    bool twice = disk->found.record_count && disk->records[disk->found.record_count - 1].serial == header.serial;
    bool orphan = header.parent_serial && parent == QR_RECORD_NONE;
    bool fits = !twice && !orphan && record_fits(disk, &header, parent);
    if (!twice && !orphan && !fits) record_is_damaged(disk, found, place->slot);
    disk->stats.index_orphans_total += orphan;
    qr_record_id id = fits ? qr_disk_record_take(disk) : QR_RECORD_NONE;
    if (id == QR_RECORD_NONE) {
        disk->segments[found->index].dirty = true;
        return;
    }
    disk->records[id].serial = header.serial;
    disk->records[id].parent_serial = header.parent_serial;
    disk->records[id].parent = parent;
    disk->records[id].digest = header.chain_digest;
    qr_disk_record_publish(disk, id, found->index, place->slot);
    disk->found.record_count++;
}

static quire_status take_records(qr_disk *disk, quire_error *error) {
    uint64_t room = count_records(disk);
    found_record *records = malloc((room ? room : 1) * sizeof *records);
    if (!records)
        return qr_fail(error, QUIRE_NO_MEMORY, disk->config.path, QR_NO_OFFSET, "no memory to sort %" PRIu64 " records", room);
    uint64_t count = gather_records(disk, records);
    for (uint64_t i = 0; i < count; i++) take_record(disk, &records[i]);
    if (count && records[count - 1].serial >= disk->next_serial) disk->next_serial = records[count - 1].serial + 1;
    free(records);
    return QUIRE_OK;
}

/* ---- the same chain twice ---- */

/* A digest alone is never trusted: key and tokens are compared too. 0: the same chain. */
static int compare_chains(const qr_disk *disk, const qr_disk_record *x, const qr_disk_record *y) {
    qr_record_header a, b;
    if (x->parent_serial != y->parent_serial) return x->parent_serial < y->parent_serial ? -1 : 1;
    if (x->digest != y->digest) return x->digest < y->digest ? -1 : 1;
    qr_footer_get(&found_of(disk, x->segment)->footer, x->slot, &a);
    qr_footer_get(&found_of(disk, y->segment)->footer, y->slot, &b);
    if (a.namespace_bytes != b.namespace_bytes) return a.namespace_bytes < b.namespace_bytes ? -1 : 1;
    int keys = a.namespace_bytes ? memcmp(a.namespace_key, b.namespace_key, a.namespace_bytes) : 0;
    return keys ? keys : memcmp(a.tokens, b.tokens, a.block_tokens * sizeof *a.tokens);
}

/* By chain, the newest first. */
static int compare_twins(const void *a, const void *b, void *context) {
    const qr_disk *disk = context;
    const qr_disk_record *x = &disk->records[*(const qr_record_id *)a], *y = &disk->records[*(const qr_record_id *)b];
    int chains = x == y ? 0 : compare_chains(disk, x, y);
    if (chains) return chains;
    return x->serial > y->serial ? -1 : x->serial < y->serial;
}

/* A record that was dropped and put again may be there twice. The newest counts: what hangs on the older ones was dropped with
 * them, and goes as they do. */
static quire_status drop_older_twins(qr_disk *disk, quire_error *error) {
    uint32_t count = disk->found.record_count, newest = 0;
    qr_record_id *ids = malloc((count ? count : 1) * sizeof *ids);
    if (!ids) return qr_fail(error, QUIRE_NO_MEMORY, disk->config.path, QR_NO_OFFSET, "no memory to sort %u records", count);
    for (uint32_t i = 0; i < count; i++) ids[i] = i;
    if (count) qsort_r(ids, count, sizeof *ids, compare_twins, disk);
    for (uint32_t i = 1; i < count; i++)
        if (compare_chains(disk, &disk->records[ids[newest]], &disk->records[ids[i]]) == 0) qr_disk_record_drop(disk, ids[i]);
        else newest = i;
    free(ids);
    return QUIRE_OK;
}

/* ---- the segment that is appended to ---- */

static found_segment *find_open(qr_disk *disk) {
    for (uint32_t i = disk->found.segment_count; i-- > 0;) {
        found_segment *found = &disk->found.segments[i];
        if (found->kind == FOUND_OURS && found->footer.bytes && found->footer.used_slots < found->header.shape.slot_count)
            return found;
    }
    return NULL;
}

static void open_last(qr_disk *disk) {
    found_segment *found = find_open(disk);
    qr_disk_writer *writer = &disk->writer;
    if (!found || qr_segment_file_open(&writer->io, &found->header, true, &writer->file) != QUIRE_OK) return;
    qr_footer_begin(&writer->footer, writer->footer_bytes, &found->header);
    memcpy(writer->footer_bytes, found->footer.bytes, qr_footer_fixed_bytes(&found->header.shape) + found->footer.key_bytes);
    writer->footer = found->footer;
    writer->footer.bytes = writer->footer_bytes;
    writer->segment = found->index;
    writer->sealed = found->sealed;
    writer->footer_left = true;
}

quire_status qr_disk_index_load(qr_disk *disk, quire_error *error) {
    uint64_t begin = qr_clock_us();
    qr_disk_take_traffic(disk, &disk->writer.io); /* so that the index's own is known */
    quire_status status = read_headers(disk, error);
    if (status != QUIRE_OK) return status;
    if (disk->read_only) pass_over(disk);
    else trim(disk);
    status = enter_segments(disk, error);
    if (status == QUIRE_OK) status = load_footers(disk, error);
    if (status == QUIRE_OK) status = take_records(disk, error);
    if (status == QUIRE_OK) status = drop_older_twins(disk, error);
    if (status != QUIRE_OK) return status;
    if (!disk->read_only) open_last(disk);
    disk->stats.index_records_total = disk->found.record_count;
    disk->stats.index_bytes_total = disk->writer.io.read_bytes;
    disk->stats.index_reads_total = disk->writer.io.read_count;
    disk->stats.index_us_total = qr_clock_us() - begin;
    qr_disk_take_traffic(disk, &disk->writer.io);
    return QUIRE_OK;
}

/* ---- telling the owner ---- */

static qr_record_info info_of(const qr_record_header *header, qr_record_id parent) {
    return (qr_record_info){header->namespace_key, header->namespace_bytes, parent, header->depth, header->tokens};
}

static void report_record(qr_disk *disk, qr_record_id id, const found_segment *segment, qr_store_found *found, void *context) {
    qr_record_header header;
    uint32_t parent_owner = QR_OWNER_NONE;
    pthread_mutex_lock(&disk->lock);
    qr_disk_record *record = &disk->records[id];
    bool told = record->state == QR_RECORD_LIVE, alive = told && qr_disk_parent_alive(disk, record);
    qr_record_id parent = record->parent;
    if (told) qr_footer_get(&segment->footer, record->slot, &header);
    if (alive && parent != QR_RECORD_NONE) parent_owner = disk->records[parent].owner;
    pthread_mutex_unlock(&disk->lock);
    if (!told) return;
    qr_record_info info = info_of(&header, parent);
    uint32_t owner = alive ? found(context, &info, id, parent_owner, false) : QR_OWNER_NONE;
    pthread_mutex_lock(&disk->lock);
    if (owner == QR_OWNER_NONE) qr_disk_record_drop(disk, id);
    else disk->records[id].owner = owner;
    pthread_mutex_unlock(&disk->lock);
}

static void report_foreign(qr_disk *disk, const found_segment *segment, qr_store_found *found, void *context) {
    if (segment->header.shape.block_tokens != disk->config.block_tokens) return; /* the owner could not read its tokens */
    for (uint32_t slot = 0; slot < segment->footer.used_slots; slot++) {
        if (!qr_footer_has(&segment->footer, slot)) continue;
        qr_record_header header;
        qr_footer_get(&segment->footer, slot, &header);
        qr_record_info info = info_of(&header, QR_RECORD_NONE);
        (void)found(context, &info, QR_RECORD_NONE, QR_OWNER_NONE, true);
    }
}

void qr_disk_index_report(qr_disk *disk, qr_store_found *found, void *context) {
    for (qr_record_id id = 0; id < disk->found.record_count; id++) {
        pthread_mutex_lock(&disk->lock);
        bool live = disk->records[id].state == QR_RECORD_LIVE;
        uint32_t index = disk->records[id].segment;
        pthread_mutex_unlock(&disk->lock);
        if (live) report_record(disk, id, found_of(disk, index), found, context);
    }
    for (uint32_t i = 0; i < disk->found.segment_count; i++) {
        const found_segment *segment = &disk->found.segments[i];
        if (segment->kind == FOUND_FOREIGN && segment->footer.bytes) report_foreign(disk, segment, found, context);
    }
    qr_disk_index_forget(disk);
}

void qr_disk_index_forget(qr_disk *disk) {
    for (uint32_t i = 0; i < disk->found.segment_count; i++) {
        const qr_footer *footer = &disk->found.segments[i].footer;
        if (footer->bytes) qr_wipe(footer->bytes, qr_footer_fixed_bytes(&footer->segment.shape) + footer->key_bytes);
        free(footer->bytes);
    }
    free(disk->found.segments);
    free(disk->found.by_index);
    disk->found = (qr_disk_found){0};
}
