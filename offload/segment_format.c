/* segment_format.c - header page and index footer of a segment file.
 *
 * Footer: head | entry per slot | {offset, length} per key | keys, each once. An entry names its key by number. The highest bit
 * of a length is a mark that wiping uses; it is never set on disk.
 */
#include "offload/segment_format.h"

#include "base/assertion.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "offload/byte_order.h"

enum { /* both heads begin with these sixteen bytes */
       AT_VERSION = 8,
       AT_PREFIX_CHECK = 12,
       PREFIX_BYTES = 16
};

enum { /* header */
       AT_CHECKSUM = 16,
       AT_FINGERPRINT = 24,
       AT_ID = 56,
       AT_PAYLOAD_BYTES = 64,
       AT_SLOT_COUNT = 72,
       AT_BLOCK_TOKENS = 76
};

enum { /* footer head */
       AT_HEAD_CHECKSUM = 16,
       AT_SEGMENT_ID = 24,
       AT_ENTRY_CHECKSUM = 32,
       AT_KEY_CHECKSUM = 40,
       AT_KEY_BYTES = 48,
       AT_SLOTS = 56,
       AT_USED_SLOTS = 60,
       AT_KEY_COUNT = 64,
       HEAD_BYTES = 128
};

enum { /* footer entry */
       IN_SERIAL = 0,
       IN_PARENT_SERIAL = 8,
       IN_PAYLOAD_CHECKSUM = 16,
       IN_CHAIN_DIGEST = 24,
       IN_PARENT_DIGEST = 32,
       IN_DEPTH = 40,
       IN_KEY = 44,
       IN_STATE = 48,
       IN_TOKENS = 56
};

enum { /* place of a key */
       IN_OFFSET = 0,
       IN_LENGTH = 4,
       PLACE_BYTES = 8
};

enum { STATE_EMPTY = 0, STATE_RECORD = 1 };
#define KEY_MARK 0x80000000u
#define NO_KEY UINT32_MAX

static const unsigned char header_magic[8] = {'Q', 'U', 'I', 'R', 'E', 'S', 'E', 'G'};
static const unsigned char footer_magic[8] = {'Q', 'U', 'I', 'R', 'E', 'I', 'D', 'X'};

/* ---- where things lie ---- */

static uint64_t entry_bytes(const qr_segment_shape *shape) { return IN_TOKENS + 4 * (uint64_t)shape->block_tokens; }

uint64_t qr_footer_fixed_bytes(const qr_segment_shape *shape) {
    return qr_align_up(HEAD_BYTES + shape->slot_count * (entry_bytes(shape) + PLACE_BYTES), QR_PAGE_BYTES);
}

uint64_t qr_footer_bytes_max(const qr_segment_shape *shape) {
    return qr_footer_fixed_bytes(shape) + qr_align_up(shape->slot_count * (uint64_t)QR_RECORD_KEY_MAX, QR_PAGE_BYTES);
}

uint64_t qr_segment_file_bytes(const qr_segment_shape *shape) {
    return qr_segment_footer_offset(shape) + qr_footer_bytes_max(shape);
}

bool qr_segment_shape_valid(const qr_segment_shape *shape) {
    enum { SLOTS_MAX = 1 << 20 };
    const uint64_t payload_max = 1ull << 32;
    return shape->slot_count >= 1 && shape->slot_count <= SLOTS_MAX && shape->block_tokens >= 1 &&
           shape->block_tokens <= QR_RECORD_BLOCK_TOKENS_MAX && shape->payload_bytes >= QR_PAGE_BYTES &&
           shape->payload_bytes <= payload_max && shape->payload_bytes % QR_PAGE_BYTES == 0;
}

/* ---- what both heads begin with ---- */

static uint32_t prefix_check(const unsigned char *at) { return (uint32_t)qr_checksum_bytes(at, AT_PREFIX_CHECK); }

static void prefix_encode(unsigned char *at, const unsigned char *magic) {
    memcpy(at, magic, 8);
    qr_store_u32(at + AT_VERSION, QR_FORMAT_VERSION);
    qr_store_u32(at + AT_PREFIX_CHECK, prefix_check(at));
}

static quire_status damaged(quire_error *error, const char *what) {
    return qr_fail(error, QUIRE_DAMAGED, NULL, QR_NO_OFFSET, "a segment's %s does not hold", what);
}

static quire_status prefix_decode(const unsigned char *at, const unsigned char *magic, quire_error *error) {
    if (memcmp(at, magic, 8) != 0) return damaged(error, "magic");
    if (qr_load_u32(at + AT_PREFIX_CHECK) != prefix_check(at)) return damaged(error, "version check");
    uint32_t version = qr_load_u32(at + AT_VERSION);
    if (version == QR_FORMAT_VERSION) return QUIRE_OK;
    return qr_fail(error, QUIRE_UNSUPPORTED, NULL, AT_VERSION, "format version %u, known is %d", version, QR_FORMAT_VERSION);
}

/* ---- header ---- */

static uint64_t header_checksum(const unsigned char *page) {
    return qr_checksum_bytes(page + AT_FINGERPRINT, QR_SEGMENT_HEADER_BYTES - AT_FINGERPRINT);
}

void qr_segment_header_encode(const qr_segment_header *header, unsigned char *page) {
    QR_ASSERT(qr_segment_shape_valid(&header->shape));
    memset(page, 0, QR_SEGMENT_HEADER_BYTES);
    prefix_encode(page, header_magic);
    qr_fingerprint_encode(&header->fingerprint, page + AT_FINGERPRINT);
    qr_store_u64(page + AT_ID, header->id);
    qr_store_u64(page + AT_PAYLOAD_BYTES, header->shape.payload_bytes);
    qr_store_u32(page + AT_SLOT_COUNT, header->shape.slot_count);
    qr_store_u32(page + AT_BLOCK_TOKENS, header->shape.block_tokens);
    qr_store_u64(page + AT_CHECKSUM, header_checksum(page));
}

quire_status qr_segment_header_decode(const unsigned char *page, qr_segment_header *header, quire_error *error) {
    memset(header, 0, sizeof *header);
    quire_status status = prefix_decode(page, header_magic, error);
    if (status != QUIRE_OK) return status;
    if (qr_load_u64(page + AT_CHECKSUM) != header_checksum(page)) return damaged(error, "header checksum");
    qr_segment_shape shape = {qr_load_u32(page + AT_SLOT_COUNT), qr_load_u32(page + AT_BLOCK_TOKENS),
                              qr_load_u64(page + AT_PAYLOAD_BYTES)};
    if (!qr_segment_shape_valid(&shape)) return damaged(error, "shape");
    *header = (qr_segment_header){qr_fingerprint_decode(page + AT_FINGERPRINT), qr_load_u64(page + AT_ID), shape};
    return QUIRE_OK;
}

/* ---- footer: building ---- */

static unsigned char *footer_entry(const qr_footer *footer, uint32_t slot) {
    QR_ASSERT(slot < footer->segment.shape.slot_count);
    return footer->bytes + HEAD_BYTES + slot * entry_bytes(&footer->segment.shape);
}

static unsigned char *footer_keys(const qr_footer *footer) {
    return footer->bytes + qr_footer_fixed_bytes(&footer->segment.shape);
}

void qr_footer_begin(qr_footer *footer, unsigned char *bytes, const qr_segment_header *segment) {
    *footer = (qr_footer){.bytes = bytes, .segment = *segment, .last_key = NO_KEY};
    memset(bytes, 0, qr_footer_bytes_max(&segment->shape));
}

static unsigned char *key_place(const qr_footer *footer, uint32_t key) {
    QR_ASSERT(key < footer->segment.shape.slot_count);
    return footer_entry(footer, 0) + footer->segment.shape.slot_count * entry_bytes(&footer->segment.shape) +
           (uint64_t)key * PLACE_BYTES;
}

static unsigned char *key_bytes(const qr_footer *footer, uint32_t key) {
    return footer_keys(footer) + qr_load_u32(key_place(footer, key) + IN_OFFSET);
}

static uint32_t key_length(const qr_footer *footer, uint32_t key) {
    return qr_load_u32(key_place(footer, key) + IN_LENGTH) & ~KEY_MARK;
}

static bool key_is(const qr_footer *footer, uint32_t key, const void *bytes, size_t size_bytes) {
    return key_length(footer, key) == size_bytes && (size_bytes == 0 || memcmp(key_bytes(footer, key), bytes, size_bytes) == 0);
}

static uint32_t key_find(const qr_footer *footer, const void *bytes, size_t size_bytes) {
    if (footer->last_key != NO_KEY && key_is(footer, footer->last_key, bytes, size_bytes)) return footer->last_key;
    for (uint32_t key = 0; key < footer->key_count; key++)
        if (key_is(footer, key, bytes, size_bytes)) return key;
    return NO_KEY;
}

static uint32_t key_add(qr_footer *footer, const void *bytes, size_t size_bytes) {
    QR_ASSERT(size_bytes <= QR_RECORD_KEY_MAX);
    uint32_t key = footer->key_count++;
    qr_store_u32(key_place(footer, key) + IN_OFFSET, (uint32_t)footer->key_bytes);
    qr_store_u32(key_place(footer, key) + IN_LENGTH, (uint32_t)size_bytes);
    if (size_bytes) memcpy(key_bytes(footer, key), bytes, size_bytes);
    footer->key_bytes += size_bytes;
    return key;
}

void qr_footer_set(qr_footer *footer, const qr_record_header *header) {
    QR_ASSERT(header->block_tokens == footer->segment.shape.block_tokens);
    unsigned char *at = footer_entry(footer, header->slot);
    uint32_t key = key_find(footer, header->namespace_key, header->namespace_bytes);
    if (key == NO_KEY) key = key_add(footer, header->namespace_key, header->namespace_bytes);
    footer->last_key = key;
    qr_store_u64(at + IN_SERIAL, header->serial);
    qr_store_u64(at + IN_PARENT_SERIAL, header->parent_serial);
    qr_store_u64(at + IN_PAYLOAD_CHECKSUM, header->payload_checksum);
    qr_store_u64(at + IN_CHAIN_DIGEST, header->chain_digest);
    qr_store_u64(at + IN_PARENT_DIGEST, header->parent_digest);
    qr_store_u32(at + IN_DEPTH, header->depth);
    qr_store_u32(at + IN_KEY, key);
    qr_store_u32(at + IN_STATE, STATE_RECORD);
    for (uint32_t i = 0; i < header->block_tokens; i++) qr_store_u32(at + IN_TOKENS + 4 * i, (uint32_t)header->tokens[i]);
    if (header->slot >= footer->used_slots) footer->used_slots = header->slot + 1;
}

void qr_footer_clear(qr_footer *footer, uint32_t slot) {
    memset(footer_entry(footer, slot), 0, entry_bytes(&footer->segment.shape));
}

bool qr_footer_has(const qr_footer *footer, uint32_t slot) {
    return qr_load_u32(footer_entry(footer, slot) + IN_STATE) == STATE_RECORD;
}

static void key_set_mark(const qr_footer *footer, uint32_t key, uint32_t mark) {
    qr_store_u32(key_place(footer, key) + IN_LENGTH, key_length(footer, key) | mark);
}

/* Marks the keys that records have, then zeroes the bytes of the others. */
void qr_footer_wipe_keys(qr_footer *footer) {
    for (uint32_t slot = 0; slot < footer->used_slots; slot++)
        if (qr_footer_has(footer, slot)) key_set_mark(footer, qr_load_u32(footer_entry(footer, slot) + IN_KEY), KEY_MARK);
    for (uint32_t key = 0; key < footer->key_count; key++) {
        bool marked = qr_load_u32(key_place(footer, key) + IN_LENGTH) & KEY_MARK;
        if (!marked) memset(key_bytes(footer, key), 0, key_length(footer, key));
        key_set_mark(footer, key, 0);
    }
}

void qr_footer_wipe(qr_footer *footer) {
    uint64_t keys = qr_align_up(footer->key_bytes, QR_PAGE_BYTES), most = qr_footer_bytes_max(&footer->segment.shape);
    uint64_t size = qr_footer_fixed_bytes(&footer->segment.shape) + keys;
    qr_wipe(footer->bytes, size < most ? size : most);
}

void qr_footer_get(const qr_footer *footer, uint32_t slot, qr_record_header *header) {
    const unsigned char *at = footer_entry(footer, slot);
    uint32_t key = qr_load_u32(at + IN_KEY);
    *header = (qr_record_header){.fingerprint = footer->segment.fingerprint,
                                 .serial = qr_load_u64(at + IN_SERIAL),
                                 .parent_serial = qr_load_u64(at + IN_PARENT_SERIAL),
                                 .segment_id = footer->segment.id,
                                 .slot = slot,
                                 .depth = qr_load_u32(at + IN_DEPTH),
                                 .block_tokens = footer->segment.shape.block_tokens,
                                 .payload_bytes = footer->segment.shape.payload_bytes,
                                 .payload_checksum = qr_load_u64(at + IN_PAYLOAD_CHECKSUM),
                                 .chain_digest = qr_load_u64(at + IN_CHAIN_DIGEST),
                                 .parent_digest = qr_load_u64(at + IN_PARENT_DIGEST),
                                 .namespace_bytes = key_length(footer, key),
                                 .namespace_key = key_bytes(footer, key)};
    for (uint32_t i = 0; i < header->block_tokens; i++) header->tokens[i] = (quire_token)qr_load_u32(at + IN_TOKENS + 4 * i);
}

static uint64_t entries_checksum(const qr_footer *footer) {
    return qr_checksum_bytes(footer->bytes + HEAD_BYTES, qr_footer_fixed_bytes(&footer->segment.shape) - HEAD_BYTES);
}

static uint64_t head_checksum(const unsigned char *head) {
    return qr_checksum_bytes(head + AT_SEGMENT_ID, HEAD_BYTES - AT_SEGMENT_ID);
}

uint64_t qr_footer_finish(qr_footer *footer) {
    unsigned char *head = footer->bytes;
    memset(head, 0, HEAD_BYTES);
    prefix_encode(head, footer_magic);
    qr_store_u64(head + AT_SEGMENT_ID, footer->segment.id);
    qr_store_u64(head + AT_ENTRY_CHECKSUM, entries_checksum(footer));
    qr_store_u64(head + AT_KEY_CHECKSUM, qr_checksum_bytes(footer_keys(footer), footer->key_bytes));
    qr_store_u64(head + AT_KEY_BYTES, footer->key_bytes);
    qr_store_u32(head + AT_SLOTS, footer->segment.shape.slot_count);
    qr_store_u32(head + AT_USED_SLOTS, footer->used_slots);
    qr_store_u32(head + AT_KEY_COUNT, footer->key_count);
    qr_store_u64(head + AT_HEAD_CHECKSUM, head_checksum(head));
    return qr_footer_fixed_bytes(&footer->segment.shape) + qr_footer_keys_read_bytes(footer);
}

/* ---- footer: reading ---- */

quire_status qr_footer_open(qr_footer *footer, unsigned char *bytes, const qr_segment_header *segment, quire_error *error) {
    *footer = (qr_footer){.bytes = bytes, .segment = *segment, .last_key = NO_KEY};
    quire_status status = prefix_decode(bytes, footer_magic, error);
    if (status != QUIRE_OK) return status;
    if (qr_load_u64(bytes + AT_HEAD_CHECKSUM) != head_checksum(bytes)) return damaged(error, "footer head");
    if (qr_load_u64(bytes + AT_SEGMENT_ID) != segment->id) return damaged(error, "footer's segment");
    if (qr_load_u32(bytes + AT_SLOTS) != segment->shape.slot_count) return damaged(error, "count of slots");
    if (qr_load_u64(bytes + AT_ENTRY_CHECKSUM) != entries_checksum(footer)) return damaged(error, "footer");
    footer->used_slots = qr_load_u32(bytes + AT_USED_SLOTS);
    footer->key_bytes = qr_load_u64(bytes + AT_KEY_BYTES);
    footer->key_count = qr_load_u32(bytes + AT_KEY_COUNT);
    if (footer->key_count > segment->shape.slot_count) return damaged(error, "count of keys");
    if (footer->used_slots > segment->shape.slot_count) return damaged(error, "count of used slots");
    if (footer->key_bytes > qr_footer_bytes_max(&segment->shape) - qr_footer_fixed_bytes(&segment->shape))
        return damaged(error, "size of keys");
    return QUIRE_OK;
}

uint64_t qr_footer_keys_read_bytes(const qr_footer *footer) { return qr_align_up(footer->key_bytes, QR_PAGE_BYTES); }

static bool key_holds(const qr_footer *footer, uint32_t key) {
    const unsigned char *place = key_place(footer, key);
    uint64_t offset = qr_load_u32(place + IN_OFFSET), length = qr_load_u32(place + IN_LENGTH);
    return length <= QR_RECORD_KEY_MAX && offset + length <= footer->key_bytes;
}

static bool entry_holds(const qr_footer *footer, uint32_t slot) {
    const unsigned char *at = footer_entry(footer, slot);
    if (qr_load_u32(at + IN_STATE) == STATE_EMPTY) return true;
    return qr_load_u32(at + IN_STATE) == STATE_RECORD && slot < footer->used_slots && qr_load_u64(at + IN_SERIAL) != 0 &&
           qr_load_u32(at + IN_KEY) < footer->key_count;
}

quire_status qr_footer_open_keys(qr_footer *footer, quire_error *error) {
    if (qr_load_u64(footer->bytes + AT_KEY_CHECKSUM) != qr_checksum_bytes(footer_keys(footer), footer->key_bytes))
        return damaged(error, "keys");
    for (uint32_t key = 0; key < footer->key_count; key++)
        if (!key_holds(footer, key)) return damaged(error, "place of a key");
    for (uint32_t slot = 0; slot < footer->segment.shape.slot_count; slot++)
        if (!entry_holds(footer, slot)) return damaged(error, "footer entry");
    return QUIRE_OK;
}
