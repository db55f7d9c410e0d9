/* disk_sizes.c - sizes and counts from a configuration.
 *
 * A file is at most its share of the cap less one page, since a file system may need a block of its own to say where a file's
 * blocks lie.
 */
#include "offload/disk_sizes.h"

#include <inttypes.h>

#include "base/error.h"

#define SEGMENT_BYTES_MAX                                                                              \
    (256ull << 20) /* removing one is quick, and a lost footer is read again in a fraction of a second \
                    */
#define BUFFER_BYTES (16ull << 20)

enum {
    RETRY_US_MAX = 2000000,
    READERS = 2,                                 /* two large reads in flight keep a disk busy; more only share it */
    RECORDS_UNWRITTEN = 2 * QR_DISK_BUFFERS_MAX, /* ids of records that are being written or were just lost */
    SEGMENTS_SPARE = 256                         /* smaller ones, of times when the cap was smaller */
};

static qr_segment_shape shape_of(uint64_t payload_bytes, uint32_t block_tokens, uint32_t slots) {
    return (qr_segment_shape){slots, block_tokens, payload_bytes};
}

static uint64_t file_bytes(uint64_t payload_bytes, uint32_t block_tokens, uint32_t slots) {
    qr_segment_shape shape = shape_of(payload_bytes, block_tokens, slots);
    return qr_segment_file_bytes(&shape);
}

uint64_t qr_disk_cap_min_bytes(uint64_t payload_bytes, uint32_t block_tokens) {
    return QR_DISK_FOLDER_BYTES + QR_DISK_SEGMENTS_MIN * (file_bytes(payload_bytes, block_tokens, 1) + QR_PAGE_BYTES);
}

/* The most slots whose file is at most this large. */
static uint32_t slots_of(uint64_t bytes, uint64_t payload_bytes, uint32_t block_tokens) {
    uint32_t low = 0, high = (uint32_t)(bytes / (payload_bytes + QR_RECORD_HEADER_BYTES)) + 1;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (file_bytes(payload_bytes, block_tokens, middle) <= bytes) low = middle;
        else high = middle;
    }
    return low;
}

static uint64_t segment_share(uint64_t cap_bytes) {
    uint64_t share = (cap_bytes - QR_DISK_FOLDER_BYTES) / QR_DISK_SEGMENTS_MIN - QR_PAGE_BYTES;
    return share < SEGMENT_BYTES_MAX ? share : SEGMENT_BYTES_MAX;
}

uint32_t qr_disk_record_max(uint64_t cap_bytes, uint64_t payload_bytes, uint32_t block_tokens) {
    (void)block_tokens;
    uint64_t records = cap_bytes / (payload_bytes + QR_RECORD_HEADER_BYTES);
    return records > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)records + RECORDS_UNWRITTEN;
}

static uint32_t buffer_count(uint32_t wanted, uint64_t record_bytes) {
    uint64_t count = wanted ? wanted : BUFFER_BYTES / record_bytes;
    if (!wanted && count < 4) count = 4;
    return count > QR_DISK_BUFFERS_MAX ? QR_DISK_BUFFERS_MAX : (uint32_t)count;
}

static quire_status config_check(const qr_disk_config *config, quire_error *error) {
    qr_segment_shape one = shape_of(config->payload_bytes, config->block_tokens, 1);
    if (!config->path || !*config->path) return qr_fail(error, QUIRE_INVALID, "path", QR_NO_OFFSET, "no folder was given");
    if (config->block_tokens < 1 || config->block_tokens > QR_RECORD_BLOCK_TOKENS_MAX)
        return qr_fail(error, QUIRE_INVALID, "block_tokens", QR_NO_OFFSET, "%u tokens in a block, at most %d can be stored",
                       config->block_tokens, QR_RECORD_BLOCK_TOKENS_MAX);
    if (!qr_segment_shape_valid(&one))
        return qr_fail(error, QUIRE_INVALID, "payload_bytes", QR_NO_OFFSET, "%" PRIu64 " bytes are no multiple of 4096",
                       config->payload_bytes);
    uint64_t least = qr_disk_cap_min_bytes(config->payload_bytes, config->block_tokens);
    if (config->cap_bytes < least)
        return qr_fail(error, QUIRE_INVALID, "cap_bytes", QR_NO_OFFSET,
                       "%" PRIu64 " bytes are too few for a store on disk, the least for this model is %" PRIu64,
                       config->cap_bytes, least);
    return QUIRE_OK;
}

quire_status qr_disk_sizes_init(qr_disk_sizes *sizes, qr_disk_config *config, quire_error *error) {
    *sizes = (qr_disk_sizes){0};
    quire_status status = config_check(config, error);
    if (status != QUIRE_OK) return status;
    uint64_t payload = config->payload_bytes;
    uint32_t tokens = config->block_tokens;
    uint32_t slots = slots_of(segment_share(config->cap_bytes), payload, tokens);
    uint64_t largest = config->cap_bytes < SEGMENT_BYTES_MAX ? config->cap_bytes : SEGMENT_BYTES_MAX;
    qr_segment_shape shape = shape_of(payload, tokens, slots);
    sizes->shape = shape;
    sizes->segment_bytes = qr_segment_file_bytes(&shape);
    sizes->record_bytes = qr_segment_record_bytes(&shape);
    sizes->footer_bytes = qr_footer_bytes_max(&shape);
    sizes->record_max = qr_disk_record_max(config->cap_bytes, payload, tokens);
    sizes->segment_max = (uint32_t)(config->cap_bytes / sizes->segment_bytes) + SEGMENTS_SPARE;
    sizes->slots_max = slots_of(largest, payload, tokens);
    if (sizes->slots_max < slots) sizes->slots_max = slots;
    qr_segment_shape widest = shape_of(payload, tokens, sizes->slots_max);
    sizes->footer_bytes_max = qr_footer_bytes_max(&widest);
    config->write_buffers = buffer_count(config->write_buffers, sizes->record_bytes);
    config->read_buffers = buffer_count(config->read_buffers, sizes->record_bytes);
    if (config->reader_count == 0) config->reader_count = READERS;
    if (config->reader_count > config->read_buffers) config->reader_count = config->read_buffers;
    if (config->retry_us_max == 0) config->retry_us_max = RETRY_US_MAX;
    if (!config->files) config->files = qr_files_system();
    return QUIRE_OK;
}
