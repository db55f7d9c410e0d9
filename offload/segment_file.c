/* segment_file.c - one segment's file.
 *
 * The order of writes is what survives a crash: space and header before any record; records last before the footer is written;
 * a footer that no longer says the truth goes before what it speaks of changes.
 */
#include "offload/segment_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

#define NAME_PREFIX "segment-"
#define NAME_SUFFIX ".quire"
enum { NAME_DIGITS = 16 };

/* ---- names ---- */

void qr_segment_name(uint64_t id, char name[QR_SEGMENT_NAME_MAX]) {
    (void)snprintf(name, QR_SEGMENT_NAME_MAX, NAME_PREFIX "%0*" PRIx64 NAME_SUFFIX, (int)NAME_DIGITS, id);
}

bool qr_segment_path(const char *folder, uint64_t id, char path[QR_SEGMENT_PATH_MAX]) {
    char name[QR_SEGMENT_NAME_MAX];
    qr_segment_name(id, name);
    int length = snprintf(path, QR_SEGMENT_PATH_MAX, "%s/%s", folder, name);
    return length > 0 && length < QR_SEGMENT_PATH_MAX;
}

static int hex_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

bool qr_segment_name_parse(const char *name, uint64_t *id) {
    size_t prefix = strlen(NAME_PREFIX);
    *id = 0;
    if (strlen(name) != prefix + NAME_DIGITS + strlen(NAME_SUFFIX)) return false;
    if (memcmp(name, NAME_PREFIX, prefix) != 0 || strcmp(name + prefix + NAME_DIGITS, NAME_SUFFIX) != 0) return false;
    for (int i = 0; i < NAME_DIGITS; i++) {
        int value = hex_value(name[prefix + i]);
        if (value < 0) return false;
        *id = *id << 4 | (uint64_t)value;
    }
    return true;
}

/* ---- files ---- */

static quire_status file_allocate(qr_disk_io *io, const qr_segment_file *file) {
    quire_error why = {.offset = QR_NO_OFFSET};
    quire_status status = io->files->ops->allocate(io->files, file->fd, qr_segment_file_bytes(&file->header.shape), &why);
    return qr_disk_io_fd_result(io, status, file->fd, &why);
}

static quire_status file_fill(qr_disk_io *io, qr_segment_file *file, unsigned char *page) {
    quire_status status = file_allocate(io, file);
    if (status != QUIRE_OK) return status;
    qr_segment_header_encode(&file->header, page);
    status = qr_disk_io_write_at(io, file->fd, page, QR_SEGMENT_HEADER_BYTES, 0, NULL);
    return status == QUIRE_OK ? qr_disk_io_sync_folder(io, NULL) : status;
}

static quire_status file_open(qr_disk_io *io, const char *path, qr_file_mode mode, qr_segment_file *file) {
    quire_error why = {.offset = QR_NO_OFFSET};
    quire_status status = io->files->ops->open(io->files, path, mode, true, &file->fd, &why);
    if (status != QUIRE_OK) file->fd = -1;
    return qr_disk_io_path_result(io, status, path, &why);
}

quire_status qr_segment_file_create(qr_disk_io *io, const qr_segment_header *header, unsigned char *page,
                                    qr_segment_file *file) {
    char path[QR_SEGMENT_PATH_MAX];
    *file = (qr_segment_file){-1, *header};
    if (!qr_segment_path(io->folder, header->id, path)) return QUIRE_IO;
    quire_status status = file_open(io, path, QR_FILE_CREATE_UNIQUE, file);
    if (status == QUIRE_OK) status = file_fill(io, file, page);
    if (status != QUIRE_OK) qr_segment_file_close(io, file);
    return status;
}

quire_status qr_segment_file_open(qr_disk_io *io, const qr_segment_header *header, bool write, qr_segment_file *file) {
    char path[QR_SEGMENT_PATH_MAX];
    *file = (qr_segment_file){-1, *header};
    if (!qr_segment_path(io->folder, header->id, path)) return QUIRE_IO;
    return file_open(io, path, write ? QR_FILE_READ_WRITE : QR_FILE_READ, file);
}

void qr_segment_file_close(qr_disk_io *io, qr_segment_file *file) {
    if (file->fd >= 0) io->files->ops->close(io->files, file->fd);
    file->fd = -1;
}

quire_status qr_segment_file_remove(qr_disk_io *io, uint64_t id) {
    char path[QR_SEGMENT_PATH_MAX];
    quire_error why = {.offset = QR_NO_OFFSET};
    if (!qr_segment_path(io->folder, id, path)) return QUIRE_IO;
    quire_status status = io->files->ops->remove(io->files, path, &why);
    if (status != QUIRE_OK && status != QUIRE_NOT_FOUND) return qr_disk_io_path_result(io, status, path, &why);
    return qr_disk_io_sync_folder(io, NULL);
}

/* ---- footers ---- */

quire_status qr_segment_file_read_footer(qr_disk_io *io, const qr_segment_file *file, unsigned char *bytes, qr_footer *footer) {
    const qr_segment_shape *shape = &file->header.shape;
    uint64_t offset = qr_segment_footer_offset(shape), fixed = qr_footer_fixed_bytes(shape);
    quire_status status = qr_disk_io_read_at(io, file->fd, bytes, fixed, offset, NULL);
    if (status == QUIRE_OK) status = qr_footer_open(footer, bytes, &file->header, NULL);
    uint64_t keys = status == QUIRE_OK ? qr_footer_keys_read_bytes(footer) : 0;
    if (keys) status = qr_disk_io_read_at(io, file->fd, bytes + fixed, keys, offset + fixed, NULL);
    return status == QUIRE_OK ? qr_footer_open_keys(footer, NULL) : status;
}

quire_status qr_segment_file_seal(qr_disk_io *io, const qr_segment_file *file, qr_footer *footer) {
    uint64_t size = qr_footer_finish(footer), offset = qr_segment_footer_offset(&file->header.shape);
    quire_status status = qr_disk_io_sync(io, file->fd, NULL);
    if (status == QUIRE_OK) status = qr_disk_io_write_at(io, file->fd, footer->bytes, size, offset, NULL);
    return status == QUIRE_OK ? qr_disk_io_sync(io, file->fd, NULL) : status;
}

quire_status qr_segment_file_unseal(qr_disk_io *io, const qr_segment_file *file, unsigned char *page, bool sync) {
    memset(page, 0, QR_PAGE_BYTES);
    uint64_t offset = qr_segment_footer_offset(&file->header.shape);
    quire_status status = qr_disk_io_write_at(io, file->fd, page, QR_PAGE_BYTES, offset, NULL);
    return status == QUIRE_OK && sync ? qr_disk_io_sync(io, file->fd, NULL) : status;
}

/* ---- emptying ---- */

/* Disk full counts too: nothing is taken here. */
static quire_status emptied(qr_disk_io *io, quire_status status, int fd, const quire_error *why) {
    return qr_disk_io_fd_result(io, status == QUIRE_NO_SPACE ? QUIRE_IO : status, fd, why);
}

quire_status qr_segment_file_punch(qr_disk_io *io, const qr_segment_file *file, const unsigned char *wanted,
                                   uint32_t used_slots) {
    const qr_segment_shape *shape = &file->header.shape;
    quire_status status = QUIRE_OK;
    quire_error why = {.offset = QR_NO_OFFSET};
    for (uint32_t slot = 0; status == QUIRE_OK && slot < used_slots; slot++) {
        uint32_t first = slot;
        while (slot < used_slots && !wanted[slot]) slot++;
        if (slot == first) continue;
        status = io->files->ops->punch(io->files, file->fd, qr_segment_record_offset(shape, first),
                                       (slot - first) * qr_segment_record_bytes(shape), &why);
    }
    return emptied(io, status, file->fd, &why);
}

quire_status qr_segment_file_zero(qr_disk_io *io, const qr_segment_file *file, uint32_t first_slot) {
    const qr_segment_shape *shape = &file->header.shape;
    uint64_t begin = qr_segment_record_offset(shape, first_slot), end = qr_segment_file_bytes(shape);
    quire_error why = {.offset = QR_NO_OFFSET};
    return emptied(io, io->files->ops->zero(io->files, file->fd, begin, end - begin, &why), file->fd, &why);
}

/* ---- records ---- */

static quire_status misplaced(quire_error *error, const char *what) {
    return qr_fail(error, QUIRE_DAMAGED, NULL, QR_NO_OFFSET, "a record is not the one of its place: %s", what);
}

quire_status qr_segment_record_check(const qr_segment_header *segment, uint32_t slot, const unsigned char *page,
                                     qr_record_header *header, quire_error *error) {
    quire_status status = qr_record_decode(page, header, error);
    if (status != QUIRE_OK) return status;
    if (header->segment_id != segment->id) return misplaced(error, "segment");
    if (header->slot != slot) return misplaced(error, "slot");
    if (!qr_fingerprint_equal(&header->fingerprint, &segment->fingerprint)) return misplaced(error, "fingerprint");
    if (header->block_tokens != segment->shape.block_tokens) return misplaced(error, "tokens");
    if (header->payload_bytes != segment->shape.payload_bytes) return misplaced(error, "payload size");
    uint64_t checksum = qr_record_checksum(page + QR_RECORD_HEADER_BYTES, header->payload_bytes);
    return checksum == header->payload_checksum ? QUIRE_OK : misplaced(error, "payload checksum");
}

static bool page_is_zero(const unsigned char *page) {
    return page[0] == 0 && memcmp(page, page + 1, QR_RECORD_HEADER_BYTES - 1) == 0;
}

static void record_damaged(qr_disk_io *io, const qr_segment_file *file, uint32_t slot, const quire_error *why,
                           uint32_t *damaged) {
    char name[QR_SEGMENT_NAME_MAX];
    qr_segment_name(file->header.id, name);
    qr_disk_io_note_damage(io, name, qr_segment_record_offset(&file->header.shape, slot), why);
    ++*damaged;
}

static void scan_record(qr_disk_io *io, const qr_segment_file *file, uint32_t slot, const unsigned char *page,
                        qr_footer *footer, uint32_t *damaged) {
    qr_record_header header;
    quire_error why;
    if (page_is_zero(page)) return;
    footer->used_slots = slot + 1;
    if (qr_segment_record_check(&file->header, slot, page, &header, &why) == QUIRE_OK) qr_footer_set(footer, &header);
    else if (damaged) record_damaged(io, file, slot, &why, damaged);
    qr_wipe(&header, sizeof header);
}

void qr_segment_file_scan(qr_disk_io *io, const qr_segment_file *file, unsigned char *window, uint64_t window_bytes,
                          unsigned char *bytes, qr_footer *footer, uint32_t *damaged) {
    const qr_segment_shape *shape = &file->header.shape;
    uint64_t stride = qr_segment_record_bytes(shape), at_once = window_bytes / stride;
    qr_footer_begin(footer, bytes, &file->header);
    for (uint32_t slot = 0; slot < shape->slot_count && !qr_disk_io_cancelled(io);) {
        uint64_t left = shape->slot_count - slot, count = at_once < left ? at_once : left;
        quire_status status =
            qr_disk_io_read_at(io, file->fd, window, count * stride, qr_segment_record_offset(shape, slot), NULL);
        if (status != QUIRE_OK && count > 1) { /* some of them may be readable */
            at_once = 1;
            continue;
        }
        for (uint64_t i = 0; status == QUIRE_OK && i < count; i++)
            scan_record(io, file, slot + (uint32_t)i, window + i * stride, footer, damaged);
        if (status != QUIRE_OK) footer->used_slots = slot + 1;
        slot += (uint32_t)count;
    }
}

static quire_status rewrite(qr_disk_io *io, int fd, unsigned char *window, uint64_t offset, uint64_t size_bytes) {
    quire_status status = qr_disk_io_read_at(io, fd, window, size_bytes, offset, NULL);
    return status == QUIRE_OK ? qr_disk_io_write_at(io, fd, window, size_bytes, offset, NULL) : status;
}

quire_status qr_segment_file_rewrite(qr_disk_io *io, const qr_segment_file *file, const qr_footer *footer,
                                     unsigned char *window, uint64_t window_bytes) {
    const qr_segment_shape *shape = &file->header.shape;
    uint64_t stride = qr_segment_record_bytes(shape), at_once = window_bytes / stride;
    quire_status status = rewrite(io, file->fd, window, 0, QR_SEGMENT_HEADER_BYTES);
    for (uint32_t slot = 0; status == QUIRE_OK && slot < footer->used_slots; slot++) {
        uint32_t first = slot;
        if (qr_disk_io_cancelled(io)) return QUIRE_CANCELLED;
        while (slot < footer->used_slots && slot - first < at_once && qr_footer_has(footer, slot)) slot++;
        if (slot == first) continue;
        status = rewrite(io, file->fd, window, qr_segment_record_offset(shape, first), (slot - first) * stride);
        if (slot - first == at_once) slot--; /* it stopped before one that has not been looked at */
    }
    return status;
}
