/* disk_watch.c - the folder and its files are looked after: others may move, remove or cover them. The writer thread's.
 *
 * A file that went takes its records and its bytes along. A folder that was removed takes all of them along, and is made again.
 * One that was moved, or that something was mounted over, is only read until the path leads to it again: nothing is begun to be
 * written meanwhile. What was under way ends in the folder that is locked, since file calls name it by its descriptor
 * (qr_disk_folder_reach), and never in what lies at the path instead. A file is given up only when the folder is where it was
 * and the file is not in it; one that was replaced while it was appended to is not appended to any more. Nothing here is found
 * out by reading, so it costs a few system calls before a batch is written and one a segment when there is a reason.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "offload/disk_internal.h"

static void note_file(qr_disk *disk, uint64_t id, const char *what) {
    char name[QR_SEGMENT_NAME_MAX];
    qr_segment_name(id, name);
    qr_disk_note_error(disk, name, what);
}

/* Its file is not there. */
static void segment_went(qr_disk *disk, uint32_t index, bool told) {
    if (index == disk->writer.segment) qr_disk_writer_leave(disk);
    pthread_mutex_lock(&disk->lock);
    qr_disk_segment *segment = &disk->segments[index];
    if (!told && segment->state != QR_SEGMENT_DOOMED) note_file(disk, segment->id, "the file is gone");
    qr_disk_segment_doom(disk, index);
    while (segment->read_count) pthread_cond_wait(&disk->reads_over, &disk->lock);
    qr_disk_segment_free(disk, index);
    pthread_mutex_unlock(&disk->lock);
}

/* False: there is none at this place. */
static bool segment_id(qr_disk *disk, uint32_t index, uint64_t *id) {
    pthread_mutex_lock(&disk->lock);
    bool used = disk->segments[index].state != QR_SEGMENT_FREE;
    *id = disk->segments[index].id;
    pthread_mutex_unlock(&disk->lock);
    return used;
}

bool qr_disk_file_went(const qr_disk *disk, uint64_t id) {
    char path[QR_SEGMENT_PATH_MAX];
    if (!qr_segment_path(disk->reach, id, path) || !qr_disk_folder_lacks(path)) return false;
    return qr_disk_folder_look(&disk->folder, disk->config.path) == QR_FOLDER_HERE;
}

bool qr_disk_open_file_is_there(const qr_disk *disk) {
    const qr_segment_file *file = &disk->writer.file;
    char path[QR_SEGMENT_PATH_MAX];
    return qr_segment_path(disk->reach, file->header.id, path) && qr_disk_folder_holds(path, file->fd);
}

static void look_after(qr_disk *disk, uint32_t index) {
    uint64_t id;
    if (segment_id(disk, index, &id) && qr_disk_file_went(disk, id)) segment_went(disk, index, false);
}

/* What was written to the old file is not in the new one, and what the new one has may not last: it gets its footer from the
 * records that are there, written once more. */
static void segment_was_replaced(qr_disk *disk, uint32_t index) {
    qr_disk_writer_leave(disk);
    pthread_mutex_lock(&disk->lock);
    qr_disk_segment *segment = &disk->segments[index];
    note_file(disk, segment->id, "the file was replaced by another");
    segment->dirty = segment->suspect = segment->unsealed = segment->sync_failed = true;
    pthread_mutex_unlock(&disk->lock);
}

static void look_after_open(qr_disk *disk) {
    uint32_t index = disk->writer.segment;
    if (index != QR_SEGMENT_NONE) look_after(disk, index);
    if (disk->writer.segment != QR_SEGMENT_NONE && !qr_disk_open_file_is_there(disk)) segment_was_replaced(disk, index);
}

void qr_disk_look_after_files(qr_disk *disk) {
    for (uint32_t i = 0; i < disk->sizes.segment_max; i++) look_after(disk, i);
}

static void say(qr_disk *disk, const char *what) {
    pthread_mutex_lock(&disk->lock);
    qr_disk_note_error(disk, "", what);
    pthread_mutex_unlock(&disk->lock);
}

/* ---- a folder that was removed ---- */

static void all_went(qr_disk *disk) {
    uint64_t id;
    for (uint32_t i = 0; i < disk->sizes.segment_max; i++)
        if (segment_id(disk, i, &id)) segment_went(disk, i, true);
}

/* The segments in it would be nobody's. */
static quire_status has_none(const qr_disk *disk, const char *path, quire_error *why) {
    uint64_t *ids;
    size_t count;
    quire_status status = qr_disk_folder_list(path, &ids, &count, why);
    free(ids);
    if (status != QUIRE_OK || count == 0) return status;
    return qr_fail(why, QUIRE_IO, disk->config.path, QR_NO_OFFSET, "another folder with segments lies there");
}

/* A new one, or one that somebody put there and that has no segments. It is looked at before it is locked, so that one that
 * is not for us stays as it is, and again when nobody else can write to it. */
static bool folder_renew(qr_disk *disk) {
    const char *path = disk->config.path;
    qr_disk_folder renewed = {.fd = -1};
    quire_error why = {.offset = QR_NO_OFFSET};
    quire_status status = access(path, F_OK) == 0 ? has_none(disk, path, &why) : QUIRE_OK;
    if (status == QUIRE_OK) status = qr_disk_folder_open(&renewed, path, false, &why);
    if (status == QUIRE_OK) status = has_none(disk, qr_disk_folder_reach(&renewed, path), &why);
    if (status == QUIRE_OK && !qr_disk_folder_renew(&disk->folder, &renewed))
        status = qr_fail(&why, QUIRE_IO, path, QR_NO_OFFSET, "its descriptor cannot be renewed");
    if (status != QUIRE_OK) {
        qr_disk_folder_close(&renewed);
        say(disk, why.text);
        return false;
    }
    qr_disk_folder_sign(&disk->folder, path);
    pthread_mutex_lock(&disk->lock);
    disk->budget.noted_bytes = 0; /* in a file that is not there any more */
    pthread_mutex_unlock(&disk->lock);
    return true;
}

static bool folder_was_removed(qr_disk *disk) {
    if (!disk->writer.lacks_folder) say(disk, "the folder was removed, with all that was in it");
    disk->writer.lacks_folder = true;
    all_went(disk);
    return !disk->read_only && folder_renew(disk);
}

bool qr_disk_watch(qr_disk *disk) {
    qr_disk_writer *writer = &disk->writer;
    pthread_mutex_lock(&disk->lock);
    bool look = disk->look;
    disk->look = false;
    pthread_mutex_unlock(&disk->lock);
    bool lacked = writer->lacks_folder;
    qr_disk_folder_state state = qr_disk_folder_look(&disk->folder, disk->config.path);
    if (state == QR_FOLDER_AWAY && !writer->lacks_folder) say(disk, "the path leads to another folder, or to none");
    if (state == QR_FOLDER_AWAY) writer->lacks_folder = true;
    else if (state == QR_FOLDER_HERE || folder_was_removed(disk)) writer->lacks_folder = false;
    if (writer->lacks_folder) return false;
    if (look || lacked) qr_disk_look_after_files(disk);
    look_after_open(disk);
    return true;
}
