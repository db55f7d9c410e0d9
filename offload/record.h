/* record.h - the bytes of a record's header: encode and decode, nothing else. Segments: segment_format.h.
 *
 * Pure functions over memory; little endian on disk; every length and offset is checked before use, so any bytes may be
 * given (tests/fuzz does). docs/KV_FILE_FORMAT.md is the same in words; a change here is a new QR_FORMAT_VERSION.
 */
#ifndef QR_OFFLOAD_RECORD_H
#define QR_OFFLOAD_RECORD_H

#include "offload/store.h"

enum {
    QR_FORMAT_VERSION = 1,
    QR_RECORD_HEADER_BYTES = 4096,
    QR_SEGMENT_HEADER_BYTES = 4096,
    QR_RECORD_KEY_MAX = 2048,        /* bytes of a namespace key that a record can hold */
    QR_RECORD_BLOCK_TOKENS_MAX = 256 /* token ids that a record can hold */
};

/* A record keeps its serial when it is carried elsewhere; serials rise with time and are never used twice in a folder. */
typedef struct qr_record_header {
    qr_fingerprint fingerprint;
    uint64_t serial;
    uint64_t parent_serial; /* 0: first block */
    uint64_t segment_id;    /* where it was written: bytes left over from a former segment are not taken for it */
    uint32_t slot;
    uint32_t depth;
    uint32_t block_tokens;
    uint64_t payload_bytes;
    uint64_t payload_checksum; /* XXH3-64 */
    uint64_t chain_digest;     /* over namespace key and all tokens up to here */
    uint64_t parent_digest;
    size_t namespace_bytes;
    const unsigned char *namespace_key; /* decode: borrowed from the page */
    quire_token tokens[QR_RECORD_BLOCK_TOKENS_MAX];
} qr_record_header;

/* 32 bytes. */
void qr_fingerprint_encode(const qr_fingerprint *fingerprint, unsigned char *at);
qr_fingerprint qr_fingerprint_decode(const unsigned char *at);
bool qr_fingerprint_equal(const qr_fingerprint *a, const qr_fingerprint *b);

/* page [QR_RECORD_HEADER_BYTES]. */
void qr_record_encode(const qr_record_header *header, unsigned char *page);
/* DAMAGED (what does not hold), UNSUPPORTED (version). */
QUIRE_MUST_CHECK quire_status qr_record_decode(const unsigned char *page, qr_record_header *header, quire_error *error);

/* Where a decoded page has its token ids, as they are in memory here: put there what decode gave. */
quire_token *qr_record_page_tokens(unsigned char *page);

/* Digest of a block given its parent's; of a namespace key for the first. */
uint64_t qr_record_root_digest(const void *namespace_key, size_t namespace_bytes);
uint64_t qr_record_chain_digest(uint64_t parent_digest, const quire_token *tokens, uint32_t block_tokens);
uint64_t qr_record_checksum(const void *payload, uint64_t payload_bytes);
#endif
