/* segment_file.h - one segment's file: make, open, read and write its footer, find its records without one.
 *
 * Knows the format and no store; what fails is noted by `io`. Buffers are 4 KiB aligned. Thread: the one that `io` belongs to.
 */
#ifndef QR_OFFLOAD_SEGMENT_FILE_H
#define QR_OFFLOAD_SEGMENT_FILE_H

#include "offload/disk_io.h"
#include "offload/segment_format.h"

enum { QR_SEGMENT_PATH_MAX = 4096, QR_SEGMENT_NAME_MAX = 32 };

typedef struct qr_segment_file {
    int fd; /* -1: none */
    qr_segment_header header;
} qr_segment_file;

void qr_segment_name(uint64_t id, char name[QR_SEGMENT_NAME_MAX]);
/* folder/segment-<id>.quire. False: too long. */
bool qr_segment_path(const char *folder, uint64_t id, char path[QR_SEGMENT_PATH_MAX]);
/* The id in the last component of a segment's path. */
bool qr_segment_name_parse(const char *name, uint64_t *id);

/* A new file with all its space and a header, lasting in its folder. page [4 KiB] is scratch. A failure may leave a file
 * without a header, to be removed by its owner. NO_SPACE, IO. */
QUIRE_MUST_CHECK quire_status qr_segment_file_create(qr_disk_io *io, const qr_segment_header *header, unsigned char *page,
                                                     qr_segment_file *file);
/* Opens the file of this header; nothing is read. */
QUIRE_MUST_CHECK quire_status qr_segment_file_open(qr_disk_io *io, const qr_segment_header *header, bool write,
                                                   qr_segment_file *file);
void qr_segment_file_close(qr_disk_io *io, qr_segment_file *file); /* none is fine */
/* It is gone when this returns, and does not come back: QUIRE_OK also when nothing that can be removed was there. */
QUIRE_MUST_CHECK quire_status qr_segment_file_remove(qr_disk_io *io, uint64_t id);

/* bytes [qr_footer_bytes_max]. DAMAGED: there is none that holds. */
QUIRE_MUST_CHECK quire_status qr_segment_file_read_footer(qr_disk_io *io, const qr_segment_file *file, unsigned char *bytes,
                                                          qr_footer *footer);
/* Records last, then the footer is written and lasts. */
QUIRE_MUST_CHECK quire_status qr_segment_file_seal(qr_disk_io *io, const qr_segment_file *file, qr_footer *footer);
/* No footer holds any more; lasting when `sync`. page [4 KiB] is scratch. */
QUIRE_MUST_CHECK quire_status qr_segment_file_unseal(qr_disk_io *io, const qr_segment_file *file, unsigned char *page,
                                                     bool sync);
/* The bytes of the slots below `used_slots` that are not wanted go, and their space is given back. */
QUIRE_MUST_CHECK quire_status qr_segment_file_punch(qr_disk_io *io, const qr_segment_file *file, const unsigned char *wanted,
                                                    uint32_t used_slots);
/* The bytes from this slot on go (slot_count: the footer's only), and their space is kept. */
QUIRE_MUST_CHECK quire_status qr_segment_file_zero(qr_disk_io *io, const qr_segment_file *file, uint32_t first_slot);

/* Makes a footer of the records that prove themselves, payloads and all. window [window_bytes] holds one record at least.
 * Slots that cannot be read are left out, and those that were not reached when io was cancelled. *damaged (NULL: nobody asks)
 * grows by the records that were begun and do not hold; they are noted. */
void qr_segment_file_scan(qr_disk_io *io, const qr_segment_file *file, unsigned char *window, uint64_t window_bytes,
                          unsigned char *bytes, qr_footer *footer, uint32_t *damaged);
/* Writes once more what the footer speaks of, and the header: what is read may be in memory only, when a sync has failed. */
QUIRE_MUST_CHECK quire_status qr_segment_file_rewrite(qr_disk_io *io, const qr_segment_file *file, const qr_footer *footer,
                                                      unsigned char *window, uint64_t window_bytes);
/* A record at a place proves itself: it is of this segment, slot, shape and fingerprint, and its payload has its checksum. */
QUIRE_MUST_CHECK quire_status qr_segment_record_check(const qr_segment_header *segment, uint32_t slot,
                                                      const unsigned char *page, qr_record_header *header, quire_error *error);
#endif
