/* segment_format.h - the bytes of a segment file besides its records: header page, index footer, and where things lie.
 *
 *   0          4 KiB             footer_offset                                              file_bytes
 *   | header   | record 0 | ... | footer: head, one entry per slot | namespace keys |
 *
 * The footer is an index of what the records say themselves; it makes opening fast and proves nothing. It is written whole
 * when a segment is sealed; room for the longest keys is always reserved, so the size of a file never changes.
 *
 * Pure functions over memory; any bytes may be given. docs/KV_FILE_FORMAT.md is the same in words.
 */
#ifndef QR_OFFLOAD_SEGMENT_FORMAT_H
#define QR_OFFLOAD_SEGMENT_FORMAT_H

#include "offload/record.h"

enum { QR_PAGE_BYTES = 4096 };

/* What the places of a segment follow from. */
typedef struct qr_segment_shape {
    uint32_t slot_count;
    uint32_t block_tokens;
    uint64_t payload_bytes; /* a multiple of 4 KiB */
} qr_segment_shape;

static inline uint64_t qr_segment_record_bytes(const qr_segment_shape *shape) {
    return QR_RECORD_HEADER_BYTES + shape->payload_bytes;
}
static inline uint64_t qr_segment_record_offset(const qr_segment_shape *shape, uint32_t slot) {
    return QR_SEGMENT_HEADER_BYTES + slot * qr_segment_record_bytes(shape);
}
static inline uint64_t qr_segment_footer_offset(const qr_segment_shape *shape) {
    return qr_segment_record_offset(shape, shape->slot_count);
}
uint64_t qr_segment_file_bytes(const qr_segment_shape *shape);
/* Can be computed with: no size wraps, nothing is zero. */
bool qr_segment_shape_valid(const qr_segment_shape *shape);

typedef struct qr_segment_header {
    qr_fingerprint fingerprint;
    uint64_t id;
    qr_segment_shape shape;
} qr_segment_header;

/* page [QR_SEGMENT_HEADER_BYTES]. */
void qr_segment_header_encode(const qr_segment_header *header, unsigned char *page);
/* DAMAGED, or UNSUPPORTED with the version: magic, version and a check of both are the same for ever, so a flipped bit is not
 * taken for another version. */
QUIRE_MUST_CHECK quire_status qr_segment_header_decode(const unsigned char *page, qr_segment_header *header,
                                                       quire_error *error);

/* A footer in memory, in the form that it has on disk. */
typedef struct qr_footer {
    unsigned char *bytes; /* [qr_footer_bytes_max], borrowed */
    qr_segment_header segment;
    uint32_t used_slots; /* slots behind these were never written */
    uint32_t key_count;
    uint32_t last_key; /* found or added last, so that runs of one namespace need no search */
    uint64_t key_bytes;
} qr_footer;

uint64_t qr_footer_bytes_max(const qr_segment_shape *shape);
uint64_t qr_footer_fixed_bytes(const qr_segment_shape *shape); /* head and entries, up to where keys begin */

/* An empty one. */
void qr_footer_begin(qr_footer *footer, unsigned char *bytes, const qr_segment_header *segment);
/* Notes a record in header->slot. */
void qr_footer_set(qr_footer *footer, const qr_record_header *header);
/* Entries and keys go from memory. */
void qr_footer_wipe(qr_footer *footer);
/* Tokens and digests of the slot go; a key goes with the last record that has it, in qr_footer_wipe_keys. */
void qr_footer_clear(qr_footer *footer, uint32_t slot);
void qr_footer_wipe_keys(qr_footer *footer);
bool qr_footer_has(const qr_footer *footer, uint32_t slot);
/* What qr_footer_set was given; the key is borrowed from the footer. The slot has a record. */
void qr_footer_get(const qr_footer *footer, uint32_t slot, qr_record_header *header);
/* Completes the head. Returns the bytes to be written, a multiple of 4 KiB. */
uint64_t qr_footer_finish(qr_footer *footer);

/* Checks head and entries, the first qr_footer_fixed_bytes of `bytes`; then the keys behind them, once they are read:
 * qr_footer_keys_read_bytes (a multiple of 4 KiB, maybe 0). Any bytes may be given. DAMAGED, UNSUPPORTED. */
QUIRE_MUST_CHECK quire_status qr_footer_open(qr_footer *footer, unsigned char *bytes, const qr_segment_header *segment,
                                             quire_error *error);
uint64_t qr_footer_keys_read_bytes(const qr_footer *footer);
QUIRE_MUST_CHECK quire_status qr_footer_open_keys(qr_footer *footer, quire_error *error);
#endif
