/* offload_record_fuzz.c - headers of records and segments, and footers, from any bytes.
 *
 * input   [ what | slots | tokens | bytes... ]
 *
 * Bytes that were changed do not have their checksums any more, and a fuzzer never finds them again: so with MEND in `what`
 * the checksums are made right before decoding. What decodes must encode to what decodes to the same.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/hash.h"
#include "offload/byte_order.h"
#include "offload/segment_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WHAT_RECORD, WHAT_SEGMENT, WHAT_FOOTER, WHAT_COUNT, MEND = 0x80, INPUT_HEAD = 3 };
enum { FOOTER_HEAD_BYTES = 128, AT_KEY_BYTES = 48 };

static unsigned char *must_have(void *memory) {
    QR_ASSERT(memory != NULL);
    return memory;
}

/* Pages as the store has them: as many bytes as are needed, zeros behind the input's end. */
static unsigned char *take_bytes(const uint8_t *data, size_t size, size_t wanted) {
    unsigned char *bytes = must_have(calloc(1, wanted));
    if (size) memcpy(bytes, data, size < wanted ? size : wanted);
    return bytes;
}

static void mend_page(unsigned char *page) { qr_store_u64(page + 16, qr_checksum_bytes(page + 24, QR_PAGE_BYTES - 24)); }

static void mend_prefix(unsigned char *page) { qr_store_u32(page + 12, (uint32_t)qr_checksum_bytes(page, 12)); }

/* ---- records ---- */

static void try_record(unsigned char *page, bool mend) {
    qr_record_header header, again;
    if (mend) mend_page(page);
    if (qr_record_decode(page, &header, NULL) != QUIRE_OK) return;
    unsigned char *copy = must_have(malloc(QR_RECORD_HEADER_BYTES));
    qr_record_encode(&header, copy);
    QR_ASSERT(qr_record_decode(copy, &again, NULL) == QUIRE_OK);
    QR_ASSERT(qr_fingerprint_equal(&header.fingerprint, &again.fingerprint));
    QR_ASSERT(header.serial == again.serial && header.parent_serial == again.parent_serial && header.slot == again.slot);
    QR_ASSERT(header.namespace_bytes == again.namespace_bytes);
    QR_ASSERT(memcmp(header.namespace_key, again.namespace_key, header.namespace_bytes) == 0);
    QR_ASSERT(memcmp(header.tokens, again.tokens, sizeof header.tokens) == 0);
    free(copy);
}

/* ---- segments ---- */

static void try_segment(unsigned char *page, bool mend) {
    qr_segment_header header, again;
    if (mend) mend_prefix(page), mend_page(page);
    if (qr_segment_header_decode(page, &header, NULL) != QUIRE_OK) return;
    QR_ASSERT(qr_segment_shape_valid(&header.shape));
    QR_ASSERT(qr_segment_file_bytes(&header.shape) > qr_segment_footer_offset(&header.shape));
    qr_segment_header_encode(&header, page);
    QR_ASSERT(qr_segment_header_decode(page, &again, NULL) == QUIRE_OK);
    QR_ASSERT(again.id == header.id && again.shape.slot_count == header.shape.slot_count);
}

/* ---- footers ---- */

static qr_segment_header footer_segment(const uint8_t *head) {
    return (qr_segment_header){
        .fingerprint = {1, 2, 3, 4}, .id = 77, .shape = {1 + head[1] % 9, 1 + head[2] % 33, QR_PAGE_BYTES}};
}

static void mend_footer(unsigned char *bytes, const qr_segment_shape *shape) {
    uint64_t fixed = qr_footer_fixed_bytes(shape), key_bytes = qr_load_u64(bytes + AT_KEY_BYTES);
    uint64_t key_max = qr_footer_bytes_max(shape) - fixed;
    qr_store_u64(bytes + 32, qr_checksum_bytes(bytes + FOOTER_HEAD_BYTES, fixed - FOOTER_HEAD_BYTES));
    qr_store_u64(bytes + 40, qr_checksum_bytes(bytes + fixed, key_bytes < key_max ? key_bytes : key_max));
    qr_store_u64(bytes + 16, qr_checksum_bytes(bytes + 24, FOOTER_HEAD_BYTES - 24));
    mend_prefix(bytes);
}

/* Everything that a store does with a footer that it has read. */
static void use_footer(qr_footer *footer, unsigned char *bytes, const qr_segment_header *segment) {
    qr_record_header header;
    qr_footer again;
    uint32_t records = 0, left = 0;
    for (uint32_t slot = 0; slot < segment->shape.slot_count; slot++) {
        if (!qr_footer_has(footer, slot)) continue;
        qr_footer_get(footer, slot, &header);
        QR_ASSERT(header.namespace_bytes <= QR_RECORD_KEY_MAX && header.serial != 0 && header.slot == slot);
        if (records++ % 2) qr_footer_clear(footer, slot);
    }
    qr_footer_wipe_keys(footer);
    uint64_t size_bytes = qr_footer_finish(footer);
    QR_ASSERT(size_bytes <= qr_footer_bytes_max(&segment->shape));
    QR_ASSERT(qr_footer_open(&again, bytes, segment, NULL) == QUIRE_OK);
    QR_ASSERT(qr_footer_open_keys(&again, NULL) == QUIRE_OK);
    for (uint32_t slot = 0; slot < segment->shape.slot_count; slot++) left += qr_footer_has(&again, slot);
    QR_ASSERT(left == records - records / 2);
}

static void try_footer(const uint8_t *data, size_t size, bool mend) {
    qr_segment_header segment = footer_segment(data);
    unsigned char *bytes = take_bytes(data + INPUT_HEAD, size - INPUT_HEAD, qr_footer_bytes_max(&segment.shape));
    qr_footer footer;
    if (mend) mend_footer(bytes, &segment.shape);
    if (qr_footer_open(&footer, bytes, &segment, NULL) == QUIRE_OK) {
        QR_ASSERT(qr_footer_keys_read_bytes(&footer) <= qr_footer_bytes_max(&segment.shape));
        if (qr_footer_open_keys(&footer, NULL) == QUIRE_OK) use_footer(&footer, bytes, &segment);
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < INPUT_HEAD) return 0;
    bool mend = data[0] & MEND;
    switch ((data[0] & 0x7f) % WHAT_COUNT) {
    case WHAT_FOOTER: try_footer(data, size, mend); return 0;
    case WHAT_RECORD:
    case WHAT_SEGMENT: break;
    }
    unsigned char *page = take_bytes(data + INPUT_HEAD, size - INPUT_HEAD, QR_PAGE_BYTES);
    if ((data[0] & 0x7f) % WHAT_COUNT == WHAT_RECORD) try_record(page, mend);
    else try_segment(page, mend);
    free(page);
    return 0;
}
