/* inspect.c - a folder of the disk tier seen from outside: what lies in it, whether it holds, and emptying it.
 *
 * Reads files as they are, without a store and its index, so that it can say what a store would not take. Everything in a file
 * is checked before it is used. A daemon may write, seal and remove segments meanwhile: what cannot be told from a write under
 * way is called unfinished, and a file that has gone is none. Any thread; allocates.
 */
#include <quire/kv.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "offload/disk_folder.h"
#include "offload/disk_sizes.h"
#include "offload/files.h"
#include "offload/segment_file.h"

/* ---- the folder ---- */

static int select_segment(const struct dirent *entry) {
    uint64_t id;
    return qr_segment_name_parse(entry->d_name, &id);
}

static void list_free(struct dirent **entries, int count) {
    for (int i = 0; i < count; i++) free(entries[i]);
    free(entries);
}

static quire_status list_segments(const char *folder, struct dirent ***entries, int *count, quire_error *error) {
    char text[128];
    *count = scandir(folder, entries, select_segment, alphasort);
    if (*count >= 0) return QUIRE_OK;
    if (errno == ENOMEM) return qr_fail(error, QUIRE_NO_MEMORY, folder, QR_NO_OFFSET, "no memory for a list of its files");
    return qr_fail(error, QUIRE_IO, folder, QR_NO_OFFSET, "cannot be read: %s", strerror_r(errno, text, sizeof text));
}

/* ---- one file ---- */

typedef struct inspection {
    const char *folder;
    const quire_kv_store_visitor *visitor;
    quire_kv_store_summary *summary;
    quire_error *error;
    bool payloads;
    /* The file at hand. */
    const char *name;
    int fd;
    uint64_t file_bytes;
    qr_segment_header header;
    bool sealed;
    qr_footer footer;
    unsigned char *footer_bytes, *payload; /* of the largest segment so far */
    uint64_t footer_capacity, payload_capacity;
} inspection;

static void flaw_found(inspection *in, quire_kv_store_flaw flaw, uint64_t offset, const char *reason) {
    if (flaw == QUIRE_KV_FLAW_DAMAGED) in->summary->damaged_count++;
    else in->summary->unfinished_count++;
    if (in->visitor->flaw) in->visitor->flaw(in->visitor->context, flaw, in->name, offset, reason);
}

static bool read_at(inspection *in, void *to, uint64_t size, uint64_t offset, quire_error *why) {
    struct iovec part = {to, (size_t)size};
    return qr_files_system()->ops->read(qr_files_system(), in->fd, &part, 1, offset, why) == QUIRE_OK;
}

static bool grow(unsigned char **bytes, uint64_t *capacity, uint64_t size) {
    if (size <= *capacity) return true;
    unsigned char *grown = realloc(*bytes, (size_t)size);
    if (!grown) return false;
    *bytes = grown;
    *capacity = size;
    return true;
}

static quire_status out_of_memory(inspection *in) {
    return qr_fail(in->error, QUIRE_NO_MEMORY, in->name, QR_NO_OFFSET, "no memory to read it");
}

static bool all_zero(const unsigned char *bytes, size_t size) {
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0;
}

/* ---- records ---- */

/* NULL, or what does not hold of a header that was read at the place of a slot. */
static const char *header_flaw(const inspection *in, const qr_record_header *record, uint32_t slot) {
    const qr_segment_header *segment = &in->header;
    if (record->segment_id != segment->id || record->slot != slot) return "the record was written for another place";
    if (!qr_fingerprint_equal(&record->fingerprint, &segment->fingerprint)) return "another fingerprint than the segment's";
    if (record->payload_bytes != segment->shape.payload_bytes || record->block_tokens != segment->shape.block_tokens)
        return "another size than the segment's records have";
    if (record->chain_digest != qr_record_chain_digest(record->parent_digest, record->tokens, record->block_tokens))
        return "token ids and digest disagree";
    if (record->depth == 1 && (record->parent_serial != 0 ||
                               record->parent_digest != qr_record_root_digest(record->namespace_key, record->namespace_bytes)))
        return "the first block of a prompt names a parent, or another namespace";
    return NULL;
}

/* The index of a sealed segment has to say the same as the record. */
static const char *entry_flaw(const inspection *in, const qr_record_header *record) {
    qr_record_header entry;
    qr_footer_get(&in->footer, record->slot, &entry);
    bool same =
        entry.serial == record->serial && entry.parent_serial == record->parent_serial &&
        entry.payload_checksum == record->payload_checksum && entry.chain_digest == record->chain_digest &&
        entry.depth == record->depth && entry.namespace_bytes == record->namespace_bytes &&
        (entry.namespace_bytes == 0 || memcmp(entry.namespace_key, record->namespace_key, entry.namespace_bytes) == 0) &&
        memcmp(entry.tokens, record->tokens, record->block_tokens * sizeof *record->tokens) == 0;
    return same ? NULL : "the segment's index says something else";
}

static const char *payload_flaw(inspection *in, const qr_record_header *record, uint64_t offset, quire_error *why) {
    if (!read_at(in, in->payload, record->payload_bytes, offset + QR_RECORD_HEADER_BYTES, why)) return why->text;
    if (qr_record_checksum(in->payload, record->payload_bytes) == record->payload_checksum) return NULL;
    return "the payload's checksum does not hold";
}

/* NULL: it holds. */
static const char *record_flaw(inspection *in, uint32_t slot, const unsigned char *page, qr_record_header *record,
                               quire_error *why) {
    if (qr_record_decode(page, record, why) != QUIRE_OK) return why->text;
    const char *reason = header_flaw(in, record, slot);
    if (!reason && in->sealed) reason = entry_flaw(in, record);
    if (!reason && in->payloads) reason = payload_flaw(in, record, qr_segment_record_offset(&in->header.shape, slot), why);
    return reason;
}

static void show_record(inspection *in, const qr_record_header *record, uint64_t offset) {
    in->summary->record_count++;
    if (!in->visitor->record) return;
    in->visitor->record(in->visitor->context,
                        &(quire_kv_store_record){.file = in->name,
                                                 .offset = offset,
                                                 .record_bytes = qr_segment_record_bytes(&in->header.shape),
                                                 .serial = record->serial,
                                                 .parent_serial = record->parent_serial,
                                                 .depth = record->depth,
                                                 .block_tokens = record->block_tokens,
                                                 .namespace_key = record->namespace_key,
                                                 .namespace_bytes = record->namespace_bytes});
}

/* A slot that holds nothing: never written, or erased. */
static void inspect_slot(inspection *in, uint32_t slot) {
    unsigned char page[QR_RECORD_HEADER_BYTES];
    qr_record_header record;
    quire_error why;
    uint64_t offset = qr_segment_record_offset(&in->header.shape, slot);
    if (in->sealed && !qr_footer_has(&in->footer, slot)) return;
    const char *reason = NULL;
    if (!read_at(in, page, sizeof page, offset, &why)) reason = why.text;
    else if (!in->sealed && all_zero(page, sizeof page)) return;
    else reason = record_flaw(in, slot, page, &record, &why);
    if (reason) flaw_found(in, in->sealed ? QUIRE_KV_FLAW_DAMAGED : QUIRE_KV_FLAW_UNFINISHED, offset, reason);
    else show_record(in, &record, offset);
}

/* ---- segments ---- */

/* Sealed or not; an index that does not hold is damage, and the records are then found one by one. */
static void open_footer(inspection *in) {
    quire_error why;
    const qr_segment_shape *shape = &in->header.shape;
    uint64_t offset = qr_segment_footer_offset(shape), fixed = qr_footer_fixed_bytes(shape);
    in->sealed = false;
    if (!read_at(in, in->footer_bytes, fixed, offset, &why)) return flaw_found(in, QUIRE_KV_FLAW_DAMAGED, offset, why.text);
    if (all_zero(in->footer_bytes, QR_PAGE_BYTES)) return;
    bool holds = qr_footer_open(&in->footer, in->footer_bytes, &in->header, &why) == QUIRE_OK &&
                 read_at(in, in->footer_bytes + fixed, qr_footer_keys_read_bytes(&in->footer), offset + fixed, &why) &&
                 qr_footer_open_keys(&in->footer, &why) == QUIRE_OK;
    in->sealed = holds;
    if (!holds) flaw_found(in, QUIRE_KV_FLAW_DAMAGED, offset, why.text);
}

static bool open_header(inspection *in) {
    unsigned char page[QR_SEGMENT_HEADER_BYTES];
    quire_error why;
    if (!read_at(in, page, sizeof page, 0, &why)) {
        flaw_found(in, QUIRE_KV_FLAW_DAMAGED, 0, why.text);
        return false;
    }
    if (all_zero(page, sizeof page)) { /* made, and its first page not written yet */
        flaw_found(in, QUIRE_KV_FLAW_UNFINISHED, 0, "the segment has no header yet");
        return false;
    }
    if (qr_segment_header_decode(page, &in->header, &why) == QUIRE_OK) return true;
    flaw_found(in, QUIRE_KV_FLAW_DAMAGED, 0, why.text);
    return false;
}

static void show_segment(const inspection *in) {
    const qr_fingerprint *f = &in->header.fingerprint;
    if (!in->visitor->segment) return;
    in->visitor->segment(in->visitor->context, &(quire_kv_store_segment){.file = in->name,
                                                                         .file_bytes = in->file_bytes,
                                                                         .id = in->header.id,
                                                                         .weights_fingerprint = f->weights,
                                                                         .layout_fingerprint = f->layout,
                                                                         .numerics_fingerprint = f->numerics,
                                                                         .adapter_fingerprint = f->adapter,
                                                                         .slot_count = in->header.shape.slot_count,
                                                                         .block_tokens = in->header.shape.block_tokens,
                                                                         .sealed = in->sealed});
}

/* The buffers are no larger than the file: its size is compared first. */
static quire_status inspect_open(inspection *in) {
    if (!open_header(in)) return QUIRE_OK;
    uint64_t wanted = qr_segment_file_bytes(&in->header.shape);
    if (in->file_bytes != wanted) {
        char reason[96];
        snprintf(reason, sizeof reason, "the file has %llu bytes, not %llu", (unsigned long long)in->file_bytes,
                 (unsigned long long)wanted);
        flaw_found(in, QUIRE_KV_FLAW_DAMAGED, 0, reason);
        if (in->file_bytes < wanted) return QUIRE_OK;
    }
    if (!grow(&in->footer_bytes, &in->footer_capacity, qr_footer_bytes_max(&in->header.shape)) ||
        !grow(&in->payload, &in->payload_capacity, in->payloads ? in->header.shape.payload_bytes : 0))
        return out_of_memory(in);
    open_footer(in);
    show_segment(in);
    for (uint32_t slot = 0; slot < in->header.shape.slot_count; slot++) inspect_slot(in, slot);
    return QUIRE_OK;
}

static bool has_gone(const char *path) {
    struct stat about;
    return lstat(path, &about) != 0 && errno == ENOENT;
}

static quire_status inspect_file(inspection *in, const char *name) {
    qr_files *files = qr_files_system();
    quire_error why;
    char *path;
    in->name = name;
    if (asprintf(&path, "%s/%s", in->folder, name) < 0) return out_of_memory(in);
    bool open = files->ops->open(files, path, QR_FILE_READ, false, &in->fd, &why) == QUIRE_OK;
    bool gone = !open && has_gone(path);
    free(path);
    if (gone) return QUIRE_OK;
    in->summary->segment_count++;
    if (!open || files->ops->size(files, in->fd, &in->file_bytes, &why) != QUIRE_OK) {
        flaw_found(in, QUIRE_KV_FLAW_DAMAGED, 0, why.text);
        if (open) files->ops->close(files, in->fd);
        return QUIRE_OK;
    }
    in->summary->file_bytes += in->file_bytes;
    quire_status status = inspect_open(in);
    files->ops->close(files, in->fd);
    return status;
}

quire_status quire_kv_store_inspect(const char *folder, bool payloads, const quire_kv_store_visitor *visitor,
                                    quire_kv_store_summary *summary, quire_error *error) {
    struct dirent **entries;
    int count;
    *summary = (quire_kv_store_summary){0};
    quire_status status = list_segments(folder, &entries, &count, error);
    if (status != QUIRE_OK) return status;
    summary->in_use = qr_disk_folder_in_use(folder, &summary->owner);
    inspection in = {.folder = folder, .visitor = visitor, .summary = summary, .error = error, .payloads = payloads};
    for (int i = 0; i < count && status == QUIRE_OK; i++) status = inspect_file(&in, entries[i]->d_name);
    list_free(entries, count);
    free(in.footer_bytes);
    free(in.payload);
    return status;
}

/* ---- emptying ---- */

static quire_status remove_segments(const char *folder, const uint64_t *ids, size_t count, uint32_t *segments, uint64_t *bytes,
                                    quire_error *error) {
    for (size_t i = 0; i < count; i++) {
        char path[QR_SEGMENT_PATH_MAX];
        struct stat about;
        if (!qr_segment_path(folder, ids[i], path) || lstat(path, &about)) continue;
        quire_status status = qr_files_system()->ops->remove(qr_files_system(), path, error);
        if (status != QUIRE_OK) return status;
        *bytes += (uint64_t)about.st_size;
        ++*segments;
    }
    return qr_files_system()->ops->sync_folder(qr_files_system(), folder, error);
}

quire_status quire_kv_store_clear(const char *folder, uint32_t *segments, uint64_t *bytes, quire_error *error) {
    qr_disk_folder lock;
    uint64_t *ids;
    size_t count;
    struct stat about;
    char text[128];
    *segments = 0;
    *bytes = 0;
    if (stat(folder, &about)) /* opening it would make it */
        return qr_fail(error, QUIRE_IO, folder, QR_NO_OFFSET, "cannot be read: %s", strerror_r(errno, text, sizeof text));
    quire_status status = qr_disk_folder_open(&lock, folder, false, error);
    if (status != QUIRE_OK) return status;
    qr_disk_folder_sign(&lock, folder);
    status = qr_disk_folder_list(folder, &ids, &count, error);
    if (status == QUIRE_OK) {
        status = remove_segments(folder, ids, count, segments, bytes, error);
        free(ids);
    }
    qr_disk_folder_close(&lock);
    return status;
}

/* ---- planning ---- */

void quire_kv_plan_disk(const quire_kv_config *config, quire_kv_disk_plan *plan) {
    const quire_kv_tiers *tiers = &config->tiers;
    uint64_t payload = 0;
    *plan = (quire_kv_disk_plan){0};
    if (!tiers->disk_path) return;
    for (uint32_t i = 0; i < config->group_count; i++)
        payload += quire_kv_block_bytes(&config->groups[i], config->block_tokens);
    payload = qr_align_up(payload, QR_PAGE_BYTES);
    plan->record_bytes = QR_RECORD_HEADER_BYTES + payload;
    plan->cap_min_bytes = qr_disk_cap_min_bytes(payload, config->block_tokens);
    qr_disk_config disk = {.path = tiers->disk_path,
                           .cap_bytes = tiers->disk_max_bytes,
                           .payload_bytes = payload,
                           .block_tokens = config->block_tokens};
    qr_disk_sizes sizes;
    if (qr_disk_sizes_init(&sizes, &disk, NULL) != QUIRE_OK) return;
    uint64_t segments = (tiers->disk_max_bytes - QR_DISK_FOLDER_BYTES) / (sizes.segment_bytes + QR_PAGE_BYTES);
    uint64_t blocks = segments * sizes.shape.slot_count;
    plan->block_max = blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
}
