/* disk_reader.c - the threads that read.
 *
 * A reader takes the get that waits longest, and with it every other waiting get whose record lies next to it on disk, whatever
 * the order in which they were asked for: one preadv into as many buffers. What was read must be the table's record, to the
 * checksum of the payload, before anybody sees it.
 *
 * A file that cannot be opened now (too many open files, rights) keeps its records: the gets end with BUSY. So it is with one
 * that is not there; whether it went for good the writer finds out, and then its records are lost.
 */
#include <stdio.h>
#include <string.h>

#include "offload/disk_internal.h"

#define RUN_BYTES_MAX (4ull << 20)

/* Neighbours that are read together. */
typedef struct read_run {
    qr_disk_get *gets[QR_DISK_BUFFERS_MAX]; /* by slot, rising, without a gap */
    uint32_t count;
    uint32_t segment;
    qr_segment_header header;
    bool gone; /* the file is not there */
} read_run;

/* ---- choosing; the lock is held ---- */

static void get_done(qr_disk *disk, qr_disk_get *get, quire_status status) {
    get->state = QR_GET_DONE;
    get->status = status;
    qr_list_push_back(&disk->gets_done, &get->link);
}

static void get_take(qr_disk *disk, qr_disk_get *get) {
    const qr_disk_record *record = &disk->records[get->record];
    qr_list_remove(&get->link);
    disk->gets_queued_count--;
    get->slot = record->slot;
    get->serial = record->serial;
    get->parent_serial = record->parent_serial;
    get->digest = record->digest;
    get->state = QR_GET_READING;
}

/* The queued get of a place, or NULL. */
static qr_disk_get *find_queued(const qr_disk *disk, uint32_t segment, uint32_t slot) {
    for (uint32_t i = 0; i < disk->config.read_buffers; i++) {
        qr_disk_get *get = &disk->gets[i];
        if (get->state != QR_GET_QUEUED) continue;
        const qr_disk_record *record = &disk->records[get->record];
        if (record->state == QR_RECORD_LIVE && record->segment == segment && record->slot == slot) return get;
    }
    return NULL;
}

static void run_add(qr_disk *disk, read_run *run, qr_disk_get *get, bool front) {
    get_take(disk, get);
    if (front) memmove(run->gets + 1, run->gets, run->count * sizeof *run->gets);
    run->gets[front ? 0 : run->count] = get;
    run->count++;
}

/* Forwards and backwards from the first, while there are waiting neighbours. */
static void run_grow(qr_disk *disk, read_run *run) {
    uint64_t most = RUN_BYTES_MAX / disk->sizes.record_bytes;
    if (most > QR_DISK_BUFFERS_MAX) most = QR_DISK_BUFFERS_MAX;
    qr_disk_get *get;
    while (run->count < most && (get = find_queued(disk, run->segment, run->gets[run->count - 1]->slot + 1)))
        run_add(disk, run, get, false);
    while (run->count < most && run->gets[0]->slot > 0 && (get = find_queued(disk, run->segment, run->gets[0]->slot - 1)))
        run_add(disk, run, get, true);
}

/* False: what waited was gone already, and is done. */
static bool run_choose(qr_disk *disk, read_run *run) {
    qr_disk_get *get = QR_LIST_ENTRY(disk->gets_queued.next, qr_disk_get, link);
    const qr_disk_record *record = &disk->records[get->record];
    bool live = record->state == QR_RECORD_LIVE;
    *run = (read_run){.segment = record->segment};
    run_add(disk, run, get, false);
    if (!live) {
        get_done(disk, get, QUIRE_NOT_FOUND);
        return false;
    }
    run_grow(disk, run);
    qr_disk_segment *segment = &disk->segments[run->segment];
    segment->read_count++;
    disk->gets_reading_count += run->count;
    run->header = (qr_segment_header){disk->config.fingerprint, segment->id, segment->shape};
    return true;
}

/* ---- reading; the lock is not held ---- */

static quire_status get_damaged(qr_disk_get *get, const char *what) {
    (void)snprintf(get->what, sizeof get->what, "%.*s", (int)sizeof get->what - 1, what);
    return QUIRE_DAMAGED;
}

static quire_status get_check(const read_run *run, qr_disk_get *get) {
    qr_record_header header;
    quire_error why;
    quire_status status = qr_segment_record_check(&run->header, get->slot, get->page, &header, &why);
    if (status != QUIRE_OK) return get_damaged(get, why.text);
    bool same =
        header.serial == get->serial && header.parent_serial == get->parent_serial && header.chain_digest == get->digest;
    if (same) memcpy(qr_record_page_tokens(get->page), header.tokens, header.block_tokens * sizeof *header.tokens);
    get->namespace_key = header.namespace_key;
    get->namespace_bytes = header.namespace_bytes;
    qr_wipe(&header, sizeof header);
    return same ? QUIRE_OK : get_damaged(get, "another record lies here");
}

static quire_status read_gets(const qr_disk *disk, qr_disk_io *io, const qr_segment_file *file, qr_disk_get **gets,
                              uint32_t count) {
    struct iovec parts[QR_DISK_BUFFERS_MAX];
    for (uint32_t i = 0; i < count; i++) parts[i] = (struct iovec){gets[i]->page, disk->sizes.record_bytes};
    return qr_disk_io_read(io, file->fd, parts, (int)count, qr_segment_record_offset(&file->header.shape, gets[0]->slot), NULL);
}

static void set_status(read_run *run, quire_status status) {
    for (uint32_t i = 0; i < run->count; i++) run->gets[i]->status = status;
}

/* Together, or each for itself when that fails, so that one bad place costs one record. */
static void run_read_file(const qr_disk *disk, qr_disk_io *io, const qr_segment_file *file, read_run *run) {
    quire_status status = read_gets(disk, io, file, run->gets, run->count);
    set_status(run, status);
    if (status != QUIRE_OK && run->count > 1)
        for (uint32_t i = 0; i < run->count; i++) run->gets[i]->status = read_gets(disk, io, file, &run->gets[i], 1);
    for (uint32_t i = 0; i < run->count; i++)
        if (run->gets[i]->status == QUIRE_OK) run->gets[i]->status = get_check(run, run->gets[i]);
}

static void run_read(const qr_disk *disk, qr_disk_io *io, read_run *run) {
    qr_segment_file file;
    quire_status status = qr_segment_file_open(io, &run->header, false, &file);
    run->gone = status == QUIRE_NOT_FOUND;
    set_status(run, QUIRE_BUSY);
    if (status != QUIRE_OK) return;
    run_read_file(disk, io, &file, run);
    qr_segment_file_close(io, &file);
}

/* ---- telling; the lock is held ---- */

static void damage_found(qr_disk *disk, const read_run *run, const qr_disk_get *get) {
    disk->stats.corrupt_total++;
    qr_disk_note_damage(disk, run->header.id, qr_segment_record_offset(&run->header.shape, get->slot), get->what);
}

/* Others may be gone with it. */
static void file_missed(qr_disk *disk) {
    disk->look = true;
    pthread_cond_signal(&disk->writer_work);
}

static void run_finish(qr_disk *disk, qr_disk_io *io, read_run *run) {
    qr_disk_segment *segment = &disk->segments[run->segment];
    for (uint32_t i = 0; i < run->count; i++) {
        qr_disk_get *get = run->gets[i];
        bool wanted = disk->records[get->record].state == QR_RECORD_LIVE; /* else its bytes may be cleaned already */
        if (wanted && get->status == QUIRE_DAMAGED) damage_found(disk, run, get);
        disk->stats.get_total += get->status == QUIRE_OK;
        disk->stats.get_bytes_total += get->status == QUIRE_OK ? disk->config.payload_bytes : 0;
        get_done(disk, get, get->status);
    }
    segment->read_count--;
    disk->gets_reading_count -= run->count;
    if (run->gone) file_missed(disk);
    qr_disk_take_traffic(disk, io);
    pthread_cond_broadcast(&disk->reads_over);
}

void *qr_disk_reader_main(void *argument) {
    qr_disk *disk = argument;
    qr_disk_io io = {.files = disk->config.files, .folder = disk->reach};
    read_run run;
    pthread_mutex_lock(&disk->lock);
    for (;;) {
        while (qr_list_empty(&disk->gets_queued) && !disk->stopping) pthread_cond_wait(&disk->reader_work, &disk->lock);
        if (qr_list_empty(&disk->gets_queued)) break;
        bool live = run_choose(disk, &run);
        pthread_mutex_unlock(&disk->lock);
        if (live) {
            run_read(disk, &io, &run);
            pthread_mutex_lock(&disk->lock);
            run_finish(disk, &io, &run);
            pthread_mutex_unlock(&disk->lock);
        }
        qr_disk_wake(disk);
        pthread_mutex_lock(&disk->lock);
    }
    pthread_mutex_unlock(&disk->lock);
    return NULL;
}
