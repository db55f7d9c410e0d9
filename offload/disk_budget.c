/* disk_budget.c - bytes written today. The file is one page: magic, version, checksum, day, bytes. */
#include "offload/disk_budget.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "offload/byte_order.h"
#include "offload/segment_file.h"

enum { AT_VERSION = 8, AT_CHECKSUM = 16, AT_DAY = 24, AT_BYTES = 32, DAY_MS = 86400000 };
#define PORTION_MAX (256ull << 20)
#define PORTIONS_A_DAY 64

static const unsigned char budget_magic[8] = {'Q', 'U', 'I', 'R', 'E', 'D', 'A', 'Y'};

static bool budget_path(const qr_disk_io *io, char path[QR_SEGMENT_PATH_MAX]) {
    return snprintf(path, QR_SEGMENT_PATH_MAX, "%s/budget", io->folder) < QR_SEGMENT_PATH_MAX;
}

static uint64_t page_checksum(const unsigned char *page) { return qr_checksum_bytes(page + AT_DAY, QR_PAGE_BYTES - AT_DAY); }

static bool page_holds(const unsigned char *page) {
    return memcmp(page, budget_magic, sizeof budget_magic) == 0 && qr_load_u32(page + AT_VERSION) == QR_FORMAT_VERSION &&
           qr_load_u64(page + AT_CHECKSUM) == page_checksum(page);
}

static void budget_turn(qr_disk_budget *budget, uint64_t now_ms) {
    uint64_t day = now_ms / DAY_MS;
    if (day == budget->day) return;
    budget->day = day;
    budget->spent_bytes = budget->noted_bytes = 0;
}

void qr_disk_budget_load(qr_disk_budget *budget, uint64_t limit_bytes, uint64_t now_ms, qr_disk_io *io, unsigned char *page) {
    char path[QR_SEGMENT_PATH_MAX];
    int fd;
    *budget = (qr_disk_budget){.limit_bytes = limit_bytes, .day = now_ms / DAY_MS};
    if (!budget_path(io, path) || io->files->ops->open(io->files, path, QR_FILE_READ, true, &fd, NULL) != QUIRE_OK) return;
    quire_status status = qr_disk_io_read_at(io, fd, page, QR_PAGE_BYTES, 0, NULL);
    io->files->ops->close(io->files, fd);
    if (status == QUIRE_OK && page_holds(page) && qr_load_u64(page + AT_DAY) == budget->day)
        budget->spent_bytes = budget->noted_bytes = qr_load_u64(page + AT_BYTES);
}

uint64_t qr_disk_budget_left(qr_disk_budget *budget, uint64_t now_ms) {
    budget_turn(budget, now_ms);
    if (budget->limit_bytes == 0) return UINT64_MAX;
    return budget->spent_bytes < budget->limit_bytes ? budget->limit_bytes - budget->spent_bytes : 0;
}

void qr_disk_budget_spend(qr_disk_budget *budget, uint64_t bytes, uint64_t now_ms) {
    budget_turn(budget, now_ms);
    budget->spent_bytes += bytes;
}

bool qr_disk_budget_note(qr_disk_budget *budget, uint64_t bytes, uint64_t now_ms) {
    budget_turn(budget, now_ms);
    if (budget->spent_bytes + bytes <= budget->noted_bytes) return false;
    uint64_t portion = budget->limit_bytes ? budget->limit_bytes / PORTIONS_A_DAY : PORTION_MAX;
    budget->noted_bytes = budget->spent_bytes + bytes + (portion < PORTION_MAX ? portion : PORTION_MAX);
    return true;
}

/* Opens the file, or makes it. */
static bool budget_open(qr_disk_io *io, int *fd) {
    char path[QR_SEGMENT_PATH_MAX];
    qr_files *files = io->files;
    if (!budget_path(io, path)) return false;
    if (files->ops->open(files, path, QR_FILE_READ_WRITE, true, fd, NULL) == QUIRE_OK) return true;
    return files->ops->open(files, path, QR_FILE_CREATE_UNIQUE, true, fd, NULL) == QUIRE_OK;
}

/* A failure costs only the memory of what was spent. */
void qr_disk_budget_save(const qr_disk_budget *budget, qr_disk_io *io, unsigned char *page) {
    int fd;
    if (!budget_open(io, &fd)) return;
    memset(page, 0, QR_PAGE_BYTES);
    memcpy(page, budget_magic, sizeof budget_magic);
    qr_store_u32(page + AT_VERSION, QR_FORMAT_VERSION);
    qr_store_u64(page + AT_DAY, budget->day);
    qr_store_u64(page + AT_BYTES, budget->noted_bytes);
    qr_store_u64(page + AT_CHECKSUM, page_checksum(page));
    quire_status status = qr_disk_io_write_at(io, fd, page, QR_PAGE_BYTES, 0, NULL);
    (void)status;
    io->files->ops->close(io->files, fd);
}
