/* disk_watch.c - the folder and its files are looked after: others may move, remove or cover them. The writer thread's.
 *
 * A file that went takes its records and its bytes along. A folder that was removed takes all of them along, and is made again.
 * One that was moved, or that something was mounted over, is left alone until the path leads to it again: nothing is written
 * meanwhile, least of all into what lies there instead. Nothing here is found out by reading, so it costs three system calls
 * before a batch is written and one a segment when there is a reason.
 */
#include <stdlib.h>

#include "base/error.h"
#include "offload/disk_internal.h"

static void note_file(qr_disk *disk, uint64_t id) {
    char name[QR_SEGMENT_NAME_MAX];
    qr_segment_name(id, name);
    qr_disk_note_error(disk, name, "the file is gone");
}

/* Its file is not there. */
static void segment_went(qr_disk *disk, uint32_t index, bool told) {
    if (index == disk->writer.segment) qr_disk_writer_leave(disk);
    pthread_mutex_lock(&disk->lock);
    qr_disk_segment *segment = &disk->segments[index];
    if (!told && segment->state != QR_SEGMENT_DOOMED) note_file(disk, segment->id);
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

static void look_after(qr_disk *disk, uint32_t index) {
    char path[QR_SEGMENT_PATH_MAX];
    uint64_t id;
    if (segment_id(disk, index, &id) && qr_segment_path(disk->config.path, id, path) && qr_disk_folder_lacks(path))
        segment_went(disk, index, false);
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

/* A new one, or one that somebody put there and that has no segments: those would be nobody's. */
static bool folder_renew(qr_disk *disk) {
    qr_disk_folder renewed;
    uint64_t *ids = NULL;
    size_t count = 0;
    quire_error why = {.offset = QR_NO_OFFSET};
    quire_status status = qr_disk_folder_open(&renewed, disk->config.path, false, &why);
    if (status == QUIRE_OK) status = qr_disk_folder_list(disk->config.path, &ids, &count, &why);
    free(ids);
    if (status == QUIRE_OK && count)
        status = qr_fail(&why, QUIRE_IO, disk->config.path, QR_NO_OFFSET, "another folder with segments lies there");
    if (status != QUIRE_OK) {
        qr_disk_folder_close(&renewed);
        say(disk, why.text);
        return false;
    }
    qr_disk_folder_close(&disk->folder);
    disk->folder = renewed;
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
    else if (writer->segment != QR_SEGMENT_NONE) look_after(disk, writer->segment);
    return true;
}
