/* disk_wipe.c - what the store's own memory still has of records that were erased goes. The writer thread's.
 *
 * Nobody remembers which buffer held what, so an erasure ends with all of them: those that are free are overwritten one after
 * the other, and those in use once they are given back, which the erasure waits for; never with the lock held. Then what the
 * writer works with, and the keys of what was to be forgotten. The footer of the open segment has been cleaned with its file.
 *
 * Not reached: the stacks of the threads beyond what their functions wipe themselves, what the kernel has of the files' pages,
 * and copies that the store's owner made.
 */
#include "offload/disk_internal.h"

static void put_wipe(const qr_disk *disk, qr_disk_put *put) {
    qr_wipe(put->page, disk->sizes.record_bytes);
    qr_wipe(&put->header, sizeof put->header);
    qr_wipe(put->namespace_key, sizeof put->namespace_key);
}

static void get_wipe(const qr_disk *disk, qr_disk_get *get) {
    qr_wipe(get->page, disk->sizes.record_bytes);
    get->digest = 0;
    get->namespace_key = NULL;
    get->namespace_bytes = 0;
}

/* Whoever gives a buffer back does not wait for its bytes to be overwritten. The lock is held. */
static void put_back(qr_disk *disk, qr_list *link, bool wipe, qr_list *unwiped, qr_list *idle) {
    qr_list_push_back(wipe ? unwiped : idle, link);
    disk->unwiped_count += wipe;
    if (wipe) pthread_cond_signal(&disk->writer_work);
}

void qr_disk_put_back(qr_disk *disk, qr_disk_put *put) {
    put_back(disk, &put->link, put->wipe, &disk->puts_unwiped, &disk->puts_free);
}

void qr_disk_get_back(qr_disk *disk, qr_disk_get *get) {
    put_back(disk, &get->link, get->wipe, &disk->gets_unwiped, &disk->gets_free);
}

/* Out of the list while it is overwritten, so that nobody takes it; the lock is held. */
static void put_wipe_now(qr_disk *disk, qr_disk_put *put) {
    qr_list_remove(&put->link);
    pthread_mutex_unlock(&disk->lock);
    put_wipe(disk, put);
    pthread_mutex_lock(&disk->lock);
    disk->wipes_left -= put->wipe;
    disk->unwiped_count -= put->wipe;
    put->used = put->wipe = false;
    qr_list_push_back(&disk->puts_free, &put->link);
}

static void get_wipe_now(qr_disk *disk, qr_disk_get *get) {
    qr_list_remove(&get->link);
    pthread_mutex_unlock(&disk->lock);
    get_wipe(disk, get);
    pthread_mutex_lock(&disk->lock);
    disk->wipes_left -= get->wipe;
    disk->unwiped_count -= get->wipe;
    get->used = get->wipe = false;
    qr_list_push_back(&disk->gets_free, &get->link);
}

static void buffers_wipe(qr_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    for (uint32_t i = 0; i < disk->config.write_buffers; i++) {
        qr_disk_put *put = &disk->puts[i];
        bool waits = put->used && put->state != QR_PUT_FREE && !put->wipe;
        if (put->used && put->state == QR_PUT_FREE && !put->wipe) put_wipe_now(disk, put);
        put->wipe |= waits;
        disk->wipes_left += waits;
    }
    for (uint32_t i = 0; i < disk->config.read_buffers; i++) {
        qr_disk_get *get = &disk->gets[i];
        bool waits = get->used && get->state != QR_GET_FREE && !get->wipe;
        if (get->used && get->state == QR_GET_FREE && !get->wipe) get_wipe_now(disk, get);
        get->wipe |= waits;
        disk->wipes_left += waits;
    }
    pthread_mutex_unlock(&disk->lock);
}

void qr_disk_wipe_returned(qr_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    while (!qr_list_empty(&disk->puts_unwiped)) put_wipe_now(disk, QR_LIST_ENTRY(disk->puts_unwiped.next, qr_disk_put, link));
    while (!qr_list_empty(&disk->gets_unwiped)) get_wipe_now(disk, QR_LIST_ENTRY(disk->gets_unwiped.next, qr_disk_get, link));
    pthread_mutex_unlock(&disk->lock);
}

void qr_disk_wipe_memory(qr_disk *disk) {
    qr_disk_writer *writer = &disk->writer;
    buffers_wipe(disk);
    qr_wipe(writer->record, disk->sizes.record_bytes);
    qr_wipe(writer->page, QR_PAGE_BYTES);
    qr_wipe(writer->scratch_bytes, disk->sizes.footer_bytes_max); /* one that did not hold was nobody's to wipe */
    qr_wipe(writer->namespace_key, QR_RECORD_KEY_MAX);
}
