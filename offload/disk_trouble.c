/* disk_trouble.c - what went wrong, kept until the owner has heard it: the newest few, and how many more there were.
 *
 * Threads note in their own qr_disk_io and hand over with their traffic; what is found under the lock is noted at once. Nothing
 * is allocated. Every function wants the store's lock held.
 */
#include "offload/disk_internal.h"

static qr_store_trouble *trouble_place(qr_disk *disk) { return &disk->troubles[disk->trouble_total++ % QR_DISK_TROUBLES]; }

void qr_disk_note_damage(qr_disk *disk, uint64_t segment_id, uint64_t offset, const char *what) {
    char name[QR_SEGMENT_NAME_MAX];
    qr_segment_name(segment_id, name);
    qr_store_trouble_fill(trouble_place(disk), QR_STORE_TROUBLE_DAMAGED, name, offset, what);
}

void qr_disk_note_error(qr_disk *disk, const char *file, const char *what) {
    qr_store_trouble_fill(trouble_place(disk), QR_STORE_TROUBLE_ERROR, file, UINT64_MAX, what);
    disk->stats.io_error_total++;
}

void qr_disk_take_troubles(qr_disk *disk, const qr_disk_io *io) {
    uint32_t kept = io->trouble_count < QR_IO_TROUBLES ? io->trouble_count : QR_IO_TROUBLES;
    for (uint32_t i = 0; i < kept; i++) *trouble_place(disk) = io->troubles[i];
    disk->trouble_missed += io->trouble_count - kept;
}

bool qr_disk_tell_trouble(qr_disk *disk, qr_store_event *event) {
    if (disk->trouble_told == disk->trouble_total) return false;
    uint64_t waiting = disk->trouble_total - disk->trouble_told;
    uint64_t over = waiting > QR_DISK_TROUBLES ? waiting - QR_DISK_TROUBLES : 0;
    disk->trouble_told += over;
    disk->telling = disk->troubles[disk->trouble_told++ % QR_DISK_TROUBLES];
    *event = (qr_store_event){.kind = QR_STORE_TROUBLE,
                              .record = QR_RECORD_NONE,
                              .owner = QR_OWNER_NONE,
                              .tag = over + disk->trouble_missed,
                              .trouble = &disk->telling};
    disk->trouble_missed = 0;
    return true;
}
