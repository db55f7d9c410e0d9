/* disk_sizes.h - how large everything of a disk store is, from its configuration. Pure. */
#ifndef QR_OFFLOAD_DISK_SIZES_H
#define QR_OFFLOAD_DISK_SIZES_H

#include "offload/disk_store.h"
#include "offload/segment_format.h"

enum {
    QR_DISK_BUFFERS_MAX = 32,
    QR_DISK_SEGMENTS_MIN = 8,        /* a segment is at most this part of the cap */
    QR_DISK_FOLDER_BYTES = 16 << 10, /* lock, budget and the folder itself */
    QR_DISK_STACK_BYTES = 256 << 10  /* of a worker thread */
};

typedef struct qr_disk_sizes {
    qr_segment_shape shape; /* of new segments */
    uint64_t segment_bytes; /* their files */
    uint64_t record_bytes;  /* header page and payload */
    uint64_t footer_bytes;  /* of a new segment; an old one's may be larger: see footer_bytes_max */
    uint32_t record_max;    /* ids */
    uint32_t segment_max;
    uint32_t slots_max; /* of any segment that fits under the cap */
    uint64_t footer_bytes_max;
} qr_disk_sizes;

/* INVALID: field and numbers. Resolves counts of config that are 0. */
QUIRE_MUST_CHECK quire_status qr_disk_sizes_init(qr_disk_sizes *sizes, qr_disk_config *config, quire_error *error);
#endif
