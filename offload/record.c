/* record.c - the header page of a record, and the digests and checksums that go into it.
 *
 * Offsets are those of docs/KV_FILE_FORMAT.md. Digests are hashes and only ever a first look (a constant-hash build makes them
 * all equal); checksums are against damage and are the same in every build.
 */
#include "offload/record.h"

#include "base/assertion.h"
#include "base/error.h"
#include "base/hash.h"
#include "offload/byte_order.h"

enum {
    AT_VERSION = 8,
    AT_CHECKSUM = 16,
    AT_FINGERPRINT = 24,
    AT_SERIAL = 56,
    AT_PARENT_SERIAL = 64,
    AT_SEGMENT_ID = 72,
    AT_PAYLOAD_BYTES = 80,
    AT_PAYLOAD_CHECKSUM = 88,
    AT_CHAIN_DIGEST = 96,
    AT_PARENT_DIGEST = 104,
    AT_SLOT = 112,
    AT_DEPTH = 116,
    AT_BLOCK_TOKENS = 120,
    AT_NAMESPACE_BYTES = 124,
    AT_TOKENS = 128,
    AT_NAMESPACE_KEY = AT_TOKENS + 4 * QR_RECORD_BLOCK_TOKENS_MAX
};
_Static_assert(AT_NAMESPACE_KEY + QR_RECORD_KEY_MAX <= QR_RECORD_HEADER_BYTES, "a header is one page");

static const unsigned char record_magic[8] = {'Q', 'U', 'I', 'R', 'E', 'R', 'E', 'C'};

void qr_fingerprint_encode(const qr_fingerprint *fingerprint, unsigned char *at) {
    qr_store_u64(at, fingerprint->weights);
    qr_store_u64(at + 8, fingerprint->layout);
    qr_store_u64(at + 16, fingerprint->numerics);
    qr_store_u64(at + 24, fingerprint->adapter);
}

qr_fingerprint qr_fingerprint_decode(const unsigned char *at) {
    return (qr_fingerprint){qr_load_u64(at), qr_load_u64(at + 8), qr_load_u64(at + 16), qr_load_u64(at + 24)};
}

bool qr_fingerprint_equal(const qr_fingerprint *a, const qr_fingerprint *b) {
    return a->weights == b->weights && a->layout == b->layout && a->numerics == b->numerics && a->adapter == b->adapter;
}

static uint64_t page_checksum(const unsigned char *page) {
    return qr_checksum_bytes(page + AT_FINGERPRINT, QR_RECORD_HEADER_BYTES - AT_FINGERPRINT);
}

void qr_record_encode(const qr_record_header *header, unsigned char *page) {
    QR_ASSERT(header->block_tokens >= 1 && header->block_tokens <= QR_RECORD_BLOCK_TOKENS_MAX);
    QR_ASSERT(header->namespace_bytes <= QR_RECORD_KEY_MAX);
    memset(page, 0, QR_RECORD_HEADER_BYTES);
    memcpy(page, record_magic, sizeof record_magic);
    qr_store_u32(page + AT_VERSION, QR_FORMAT_VERSION);
    qr_fingerprint_encode(&header->fingerprint, page + AT_FINGERPRINT);
    qr_store_u64(page + AT_SERIAL, header->serial);
    qr_store_u64(page + AT_PARENT_SERIAL, header->parent_serial);
    qr_store_u64(page + AT_SEGMENT_ID, header->segment_id);
    qr_store_u64(page + AT_PAYLOAD_BYTES, header->payload_bytes);
    qr_store_u64(page + AT_PAYLOAD_CHECKSUM, header->payload_checksum);
    qr_store_u64(page + AT_CHAIN_DIGEST, header->chain_digest);
    qr_store_u64(page + AT_PARENT_DIGEST, header->parent_digest);
    qr_store_u32(page + AT_SLOT, header->slot);
    qr_store_u32(page + AT_DEPTH, header->depth);
    qr_store_u32(page + AT_BLOCK_TOKENS, header->block_tokens);
    qr_store_u32(page + AT_NAMESPACE_BYTES, (uint32_t)header->namespace_bytes);
    for (uint32_t i = 0; i < header->block_tokens; i++) qr_store_u32(page + AT_TOKENS + 4 * i, (uint32_t)header->tokens[i]);
    if (header->namespace_bytes) memcpy(page + AT_NAMESPACE_KEY, header->namespace_key, header->namespace_bytes);
    qr_store_u64(page + AT_CHECKSUM, page_checksum(page));
}

static quire_status damaged(quire_error *error, const char *what) {
    return qr_fail(error, QUIRE_DAMAGED, NULL, QR_NO_OFFSET, "a record's header does not hold: %s", what);
}

/* Magic, version, checksum, and that lengths are in bounds. */
static quire_status page_check(const unsigned char *page, quire_error *error) {
    if (memcmp(page, record_magic, sizeof record_magic) != 0) return damaged(error, "magic");
    uint32_t version = qr_load_u32(page + AT_VERSION);
    if (version != QR_FORMAT_VERSION)
        return qr_fail(error, QUIRE_UNSUPPORTED, NULL, AT_VERSION, "a record has version %u, known is %d", version,
                       QR_FORMAT_VERSION);
    if (qr_load_u64(page + AT_CHECKSUM) != page_checksum(page)) return damaged(error, "checksum");
    uint32_t block_tokens = qr_load_u32(page + AT_BLOCK_TOKENS);
    if (block_tokens < 1 || block_tokens > QR_RECORD_BLOCK_TOKENS_MAX) return damaged(error, "tokens");
    if (qr_load_u32(page + AT_NAMESPACE_BYTES) > QR_RECORD_KEY_MAX) return damaged(error, "namespace key");
    if (qr_load_u64(page + AT_SERIAL) == 0) return damaged(error, "serial");
    return QUIRE_OK;
}

quire_status qr_record_decode(const unsigned char *page, qr_record_header *header, quire_error *error) {
    memset(header, 0, sizeof *header);
    quire_status status = page_check(page, error);
    if (status != QUIRE_OK) return status;
    header->fingerprint = qr_fingerprint_decode(page + AT_FINGERPRINT);
    header->serial = qr_load_u64(page + AT_SERIAL);
    header->parent_serial = qr_load_u64(page + AT_PARENT_SERIAL);
    header->segment_id = qr_load_u64(page + AT_SEGMENT_ID);
    header->payload_bytes = qr_load_u64(page + AT_PAYLOAD_BYTES);
    header->payload_checksum = qr_load_u64(page + AT_PAYLOAD_CHECKSUM);
    header->chain_digest = qr_load_u64(page + AT_CHAIN_DIGEST);
    header->parent_digest = qr_load_u64(page + AT_PARENT_DIGEST);
    header->slot = qr_load_u32(page + AT_SLOT);
    header->depth = qr_load_u32(page + AT_DEPTH);
    header->block_tokens = qr_load_u32(page + AT_BLOCK_TOKENS);
    header->namespace_bytes = qr_load_u32(page + AT_NAMESPACE_BYTES);
    header->namespace_key = page + AT_NAMESPACE_KEY;
    for (uint32_t i = 0; i < header->block_tokens; i++) header->tokens[i] = (quire_token)qr_load_u32(page + AT_TOKENS + 4 * i);
    return QUIRE_OK;
}

quire_token *qr_record_page_tokens(unsigned char *page) { return (quire_token *)(void *)(page + AT_TOKENS); }

uint64_t qr_record_root_digest(const void *namespace_key, size_t namespace_bytes) {
    return qr_hash_bytes(namespace_key, namespace_bytes, namespace_bytes);
}

uint64_t qr_record_chain_digest(uint64_t parent_digest, const quire_token *tokens, uint32_t block_tokens) {
    return qr_hash_bytes(tokens, block_tokens * sizeof *tokens, parent_digest);
}

uint64_t qr_record_checksum(const void *payload, uint64_t payload_bytes) { return qr_checksum_bytes(payload, payload_bytes); }
