/* offload_segment_fuzz.c - a folder with one segment file of any bytes: opened, indexed, everything read, one more put, closed,
 * opened again.
 *
 * input   [ what to mend | file... ]
 *
 * As in offload_record_fuzz.c checksums are made right before, for what MEND_* ask, so that what lies behind them is reached.
 * Whatever the bytes are, the store opens or says why not, gives back only payloads that have the checksum they should have,
 * and its check holds.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assertion.h"
#include "base/hash.h"
#include "offload/byte_order.h"
#include "offload/disk_store.h"
#include "offload/segment_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MEND_HEADER = 1, MEND_RECORDS = 2, MEND_FOOTER = 4, MEND_PAYLOADS = 8 };
enum { BLOCK_TOKENS = 4, PAYLOAD_BYTES = 4096, RECORDS_MAX = 256, FOOTER_HEAD_BYTES = 128, AT_KEY_BYTES = 48 };

typedef struct rig {
    char folder[64], file[128];
    qr_store *store;
    qr_record_id records[RECORDS_MAX];
    uint32_t record_count;
} rig;

/* ---- checksums ---- */

static void mend_page(unsigned char *page) { qr_store_u64(page + 16, qr_checksum_bytes(page + 24, QR_PAGE_BYTES - 24)); }

static void mend_prefix(unsigned char *page) { qr_store_u32(page + 12, (uint32_t)qr_checksum_bytes(page, 12)); }

static void mend_footer(unsigned char *bytes, size_t size, const qr_segment_shape *shape) {
    uint64_t fixed = qr_footer_fixed_bytes(shape);
    if (size < fixed) return;
    uint64_t key_bytes = qr_load_u64(bytes + AT_KEY_BYTES);
    qr_store_u64(bytes + 32, qr_checksum_bytes(bytes + FOOTER_HEAD_BYTES, fixed - FOOTER_HEAD_BYTES));
    if (key_bytes <= size - fixed) qr_store_u64(bytes + 40, qr_checksum_bytes(bytes + fixed, key_bytes));
    qr_store_u64(bytes + 16, qr_checksum_bytes(bytes + 24, FOOTER_HEAD_BYTES - 24));
    mend_prefix(bytes);
}

static void mend(unsigned char *file, size_t size, unsigned what) {
    qr_segment_header header;
    if (size < QR_PAGE_BYTES) return;
    if (what & MEND_HEADER) mend_prefix(file), mend_page(file);
    if (qr_segment_header_decode(file, &header, NULL) != QUIRE_OK) return;
    uint64_t record_bytes = qr_segment_record_bytes(&header.shape), at = QR_SEGMENT_HEADER_BYTES;
    for (uint32_t slot = 0; slot < header.shape.slot_count && at + record_bytes <= size; slot++, at += record_bytes) {
        if (what & MEND_PAYLOADS)
            qr_store_u64(file + at + 88, qr_record_checksum(file + at + QR_PAGE_BYTES, header.shape.payload_bytes));
        if (what & MEND_RECORDS) mend_page(file + at);
    }
    if (what & MEND_FOOTER && qr_segment_footer_offset(&header.shape) < size)
        mend_footer(file + qr_segment_footer_offset(&header.shape), size - qr_segment_footer_offset(&header.shape),
                    &header.shape);
}

/* ---- the folder ---- */

static void write_file(const rig *r, const unsigned char *bytes, size_t size) {
    int fd = open(r->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    QR_ASSERT(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    (void)close(fd);
}

static void remove_folder(const rig *r) {
    DIR *folder = opendir(r->folder);
    QR_ASSERT(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) (void)unlinkat(dirfd(folder), entry->d_name, 0);
    (void)closedir(folder);
    QR_ASSERT(rmdir(r->folder) == 0);
}

/* ---- the store ---- */

static uint32_t on_found(void *context, const qr_record_info *info, qr_record_id record, uint32_t parent_owner, bool foreign) {
    rig *r = context;
    QR_ASSERT(info->namespace_bytes <= QR_RECORD_KEY_MAX);
    QR_ASSERT(foreign || (info->parent == QR_RECORD_NONE) == (parent_owner == QR_OWNER_NONE));
    uint64_t sum = 0; /* every byte may be read */
    for (size_t i = 0; i < info->namespace_bytes; i++) sum += ((const unsigned char *)info->namespace_key)[i];
    for (uint32_t i = 0; !foreign && i < BLOCK_TOKENS; i++) sum += (uint32_t)info->tokens[i];
    QR_ASSERT(sum < 1ull << 40);
    if (foreign || r->record_count == RECORDS_MAX) return QR_OWNER_NONE;
    r->records[r->record_count] = record;
    return r->record_count++;
}

static void drain(rig *r) {
    qr_store_event event;
    r->store->ops->kick(r->store);
    for (uint64_t now_us = 1; now_us < 20000; now_us++) {
        while (r->store->ops->poll(r->store, now_us, &event))
            if (event.kind == QR_STORE_GET_DONE && event.payload) r->store->ops->release(r->store, event.payload);
        if (!r->store->ops->busy(r->store)) return;
        (void)nanosleep(&(struct timespec){0, 20000}, NULL);
    }
    QR_ASSERT(!"the store never comes to rest");
}

static void put_one(rig *r) {
    static const quire_token tokens[BLOCK_TOKENS] = {9, 8, 7, 6};
    qr_record_info info = {"key", 3, QR_RECORD_NONE, 1, tokens};
    qr_record_id id;
    void *payload;
    if (r->store->ops->put_begin(r->store, &info, 1000, &id, &payload) != QR_STORE_NONE) return;
    memset(payload, 1, PAYLOAD_BYTES);
    r->store->ops->put_submit(r->store, id);
}

static void use_store(rig *r) {
    for (uint32_t i = 0; i < r->record_count; i++) {
        if (!r->store->ops->get(r->store, r->records[i], i)) drain(r);
        if (i % 5 == 4) r->store->ops->drop(r->store, r->records[i], i % 2);
    }
    drain(r);
    put_one(r);
    drain(r);
    QR_ASSERT(r->store->ops->check(r->store, NULL) == QUIRE_OK);
}

static void open_and_use(rig *r) {
    qr_disk_config config = {.path = r->folder,
                             .cap_bytes = 4 * qr_disk_cap_min_bytes(PAYLOAD_BYTES, BLOCK_TOKENS),
                             .free_floor_bytes = 4096,
                             .payload_bytes = PAYLOAD_BYTES,
                             .block_tokens = BLOCK_TOKENS,
                             .fingerprint = {1, 2, 3, 4},
                             .write_buffers = 4,
                             .read_buffers = 4,
                             .reader_count = 1};
    r->record_count = 0;
    if (qr_disk_open(&config, &r->store, NULL) != QUIRE_OK) return;
    r->store->ops->index(r->store, on_found, r);
    use_store(r);
    r->store->ops->close(r->store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rig r = {0};
    if (size < 1) return 0;
    unsigned char *file = malloc(size);
    QR_ASSERT(file != NULL);
    memcpy(file, data + 1, size - 1);
    mend(file, size - 1, data[0]);
    (void)snprintf(r.folder, sizeof r.folder, "/dev/shm/quire-fuzz-XXXXXX");
    QR_ASSERT(mkdtemp(r.folder) != NULL);
    (void)snprintf(r.file, sizeof r.file, "%s/segment-%016llx.quire", r.folder, 3ull);
    write_file(&r, file, size - 1);
    open_and_use(&r);
    open_and_use(&r);
    remove_folder(&r);
    free(file);
    return 0;
}
