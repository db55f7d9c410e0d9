/* disk_store.c - the store on disk: what its owner calls, and its life.
 *
 * An owner's call takes the lock for a few loads and stores and hands work to the threads; none makes a file call. All memory
 * is taken at open, laid out once by disk_layout, which also says how much it is.
 */
#include "offload/disk_store.h"

#include <string.h>

#include "base/assertion.h"
#include "base/clock.h"
#include "base/error.h"
#include "blockmgr/arena.h"
#include "offload/disk_internal.h"

#define FLOOR_MAX (1ull << 30)
enum { FLOOR_PERCENT = 5 };

static qr_disk *disk_of(qr_store *store) { return (qr_disk *)(void *)store; }

/* The lock of a store that is only looked at is taken like any other's. */
static qr_disk *disk_looked_at(const qr_store *store) { return (qr_disk *)(uintptr_t)store; }

void qr_disk_wake(const qr_disk *disk) {
    if (disk->config.wake) disk->config.wake(disk->config.wake_context);
}

static qr_disk_record *record_of(qr_disk *disk, qr_record_id id) {
    QR_ASSERT(id < disk->sizes.record_max && disk->records[id].state != QR_RECORD_FREE);
    return &disk->records[id];
}

/* ---- putting ---- */

/* Pages that sealing writes besides the fixed part of a footer: the segment's header, an emptied footer page, keys, and the
 * file of the budget itself. */
enum { BUDGET_SPARE_PAGES = 6 };

/* The lock is held. Bytes that a record costs besides its own: its share of footer and copies comes out of a reserve. */
static bool budget_allows(qr_disk *disk) {
    uint64_t left = qr_disk_budget_left(&disk->budget, qr_clock_wall_ms());
    uint64_t promised = (disk->puts_busy_count + 1) * disk->sizes.record_bytes;
    uint64_t reserve = qr_footer_fixed_bytes(&disk->sizes.shape) + BUDGET_SPARE_PAGES * QR_PAGE_BYTES;
    return left == UINT64_MAX || left >= promised + reserve;
}

static qr_store_refusal refusal_of(qr_disk *disk, const qr_record_info *info) {
    if (info->namespace_bytes > QR_RECORD_KEY_MAX) return QR_STORE_KEY;
    if (disk->read_only) return QR_STORE_READ_ONLY;
    if (disk->failing != QR_STORE_NONE && !qr_disk_pause_over(&disk->write_pause)) return disk->failing;
    if (!budget_allows(disk)) return QR_STORE_BUDGET;
    if (info->parent != QR_RECORD_NONE) {
        qr_disk_record_state state = record_of(disk, info->parent)->state;
        if (state != QR_RECORD_LIVE && state != QR_RECORD_WRITING && state != QR_RECORD_FILLING) return QR_STORE_PARENT;
    }
    return qr_list_empty(&disk->puts_free) || disk->free_record == QR_RECORD_NONE ? QR_STORE_BUSY : QR_STORE_NONE;
}

static void put_describe(qr_disk *disk, qr_disk_put *put, const qr_record_info *info, uint32_t owner) {
    qr_disk_record *record = &disk->records[put->record];
    const qr_disk_record *parent = info->parent == QR_RECORD_NONE ? NULL : &disk->records[info->parent];
    uint64_t before = parent ? parent->digest : qr_record_root_digest(info->namespace_key, info->namespace_bytes);
    record->owner = owner;
    record->parent = info->parent;
    record->parent_serial = parent ? parent->serial : 0;
    record->serial = qr_disk_take_serial(disk);
    record->digest = qr_record_chain_digest(before, info->tokens, disk->config.block_tokens);
    put->header.fingerprint = disk->config.fingerprint;
    put->header.serial = record->serial;
    put->header.parent_serial = record->parent_serial;
    put->header.depth = info->depth;
    put->header.block_tokens = disk->config.block_tokens;
    put->header.payload_bytes = disk->config.payload_bytes;
    put->header.chain_digest = record->digest;
    put->header.parent_digest = before;
    put->header.namespace_bytes = info->namespace_bytes;
    put->header.namespace_key = put->namespace_key;
    memcpy(put->header.tokens, info->tokens, disk->config.block_tokens * sizeof *info->tokens);
    if (info->namespace_bytes) memcpy(put->namespace_key, info->namespace_key, info->namespace_bytes);
}

static qr_store_refusal disk_put_begin(qr_store *store, const qr_record_info *info, uint32_t owner, qr_record_id *record,
                                       void **payload) {
    qr_disk *disk = disk_of(store);
    *record = QR_RECORD_NONE;
    *payload = NULL;
    pthread_mutex_lock(&disk->lock);
    qr_store_refusal refusal = refusal_of(disk, info);
    if (refusal == QR_STORE_NONE) {
        qr_disk_put *put = QR_LIST_ENTRY(qr_list_pop_front(&disk->puts_free), qr_disk_put, link);
        put->state = QR_PUT_FILLING;
        put->dropped = false;
        put->used = true;
        put->record = *record = qr_disk_record_take(disk);
        put_describe(disk, put, info, owner);
        disk->records[*record].put = (uint8_t)(put - disk->puts);
        disk->puts_busy_count++;
        *payload = put->page + QR_RECORD_HEADER_BYTES;
    }
    pthread_mutex_unlock(&disk->lock);
    return refusal;
}

static qr_disk_put *put_of(qr_disk *disk, qr_record_id id) {
    qr_disk_put *put = &disk->puts[record_of(disk, id)->put];
    QR_ASSERT(put->record == id && put->state != QR_PUT_FREE);
    return put;
}

/* The lock is held. */
static void put_free(qr_disk *disk, qr_disk_put *put) {
    put->state = QR_PUT_FREE;
    put->record = QR_RECORD_NONE;
    qr_disk_put_back(disk, put);
    disk->puts_busy_count--;
}

static void disk_put_submit(qr_store *store, qr_record_id record) {
    qr_disk *disk = disk_of(store);
    pthread_mutex_lock(&disk->lock);
    QR_ASSERT(record_of(disk, record)->state == QR_RECORD_FILLING);
    qr_disk_put *put = put_of(disk, record);
    put->state = QR_PUT_QUEUED;
    disk->records[record].state = QR_RECORD_WRITING;
    qr_list_push_back(&disk->puts_queued, &put->link);
    disk->puts_queued_count++;
    disk->puts_submitted++;
    pthread_cond_signal(&disk->writer_work);
    pthread_mutex_unlock(&disk->lock);
}

static void disk_put_abort(qr_store *store, qr_record_id record) {
    qr_disk *disk = disk_of(store);
    pthread_mutex_lock(&disk->lock);
    QR_ASSERT(record_of(disk, record)->state == QR_RECORD_FILLING);
    put_free(disk, put_of(disk, record));
    qr_disk_record_end(disk, record);
    pthread_mutex_unlock(&disk->lock);
}

/* ---- getting ---- */

static bool disk_get(qr_store *store, qr_record_id record, uint64_t tag) {
    qr_disk *disk = disk_of(store);
    pthread_mutex_lock(&disk->lock);
    qr_disk_record_state state = record_of(disk, record)->state;
    QR_ASSERT(state == QR_RECORD_LIVE || state == QR_RECORD_LOST);
    qr_list *link = qr_list_pop_front(&disk->gets_free);
    if (link) {
        qr_disk_get *get = QR_LIST_ENTRY(link, qr_disk_get, link);
        get->state = QR_GET_STAGED;
        get->used = true;
        get->record = record;
        get->tag = tag;
        disk->records[record].get_count++;
        disk->gets_busy_count++;
        qr_list_push_back(&disk->gets_staged, &get->link);
    }
    pthread_mutex_unlock(&disk->lock);
    return link != NULL;
}

static void disk_kick(qr_store *store) {
    qr_disk *disk = disk_of(store);
    pthread_mutex_lock(&disk->lock);
    uint32_t count = 0;
    for (qr_list *link; (link = qr_list_pop_front(&disk->gets_staged)); count++) {
        QR_LIST_ENTRY(link, qr_disk_get, link)->state = QR_GET_QUEUED;
        qr_list_push_back(&disk->gets_queued, link);
    }
    disk->gets_queued_count += count;
    if (count == 1) pthread_cond_signal(&disk->reader_work);
    else if (count) pthread_cond_broadcast(&disk->reader_work);
    pthread_mutex_unlock(&disk->lock);
}

static void disk_release(qr_store *store, void *payload) {
    qr_disk *disk = disk_of(store);
    size_t offset = (size_t)((unsigned char *)payload - disk->gets[0].page);
    size_t index = offset / disk->sizes.record_bytes;
    QR_ASSERT(index < disk->config.read_buffers && offset % disk->sizes.record_bytes == QR_RECORD_HEADER_BYTES);
    pthread_mutex_lock(&disk->lock);
    QR_ASSERT(disk->gets[index].state == QR_GET_LENT);
    disk->gets[index].state = QR_GET_FREE;
    qr_disk_get_back(disk, &disk->gets[index]);
    pthread_mutex_unlock(&disk->lock);
}

/* ---- keeping and dropping ---- */

static void disk_touch(qr_store *store, qr_record_id record) {
    qr_disk *disk = disk_of(store);
    pthread_mutex_lock(&disk->lock);
    record_of(disk, record)->touched = true;
    pthread_mutex_unlock(&disk->lock);
}

/* Not published yet: out of the queue, or left to the writer, who ends it. */
static void drop_unpublished(qr_disk *disk, qr_record_id id) {
    qr_disk_put *put = put_of(disk, id);
    if (put->state == QR_PUT_QUEUED) {
        qr_list_remove(&put->link);
        disk->puts_queued_count--;
        disk->puts_finished++;
        put_free(disk, put);
        qr_disk_record_end(disk, id);
        pthread_cond_signal(&disk->writer_work); /* a seal may have waited for it */
        return;
    }
    QR_ASSERT(put->state == QR_PUT_WRITING);
    put->dropped = true;
    disk->records[id].state = QR_RECORD_GONE;
}

/* The owner has not heard of the end of its put, and will not. */
static void forget_put_done(qr_disk *disk, qr_record_id id) {
    qr_disk_put *put = &disk->puts[disk->records[id].put];
    if (put->record != id || put->state != QR_PUT_DONE) return;
    qr_list_remove(&put->link);
    put_free(disk, put);
}

/* Whatever its state: bytes of it may lie where a write failed, or where its space was needed and its file is still there. */
static void disk_drop(qr_store *store, qr_record_id id, bool erase) {
    qr_disk *disk = disk_of(store);
    pthread_mutex_lock(&disk->lock);
    switch ((qr_disk_record_state)record_of(disk, id)->state) {
    case QR_RECORD_WRITING: drop_unpublished(disk, id); break;
    case QR_RECORD_LIVE:
        forget_put_done(disk, id);
        qr_disk_record_drop(disk, id);
        break;
    case QR_RECORD_LOST:
        forget_put_done(disk, id);
        qr_disk_record_unlose(disk, id);
        qr_disk_record_end(disk, id);
        break;
    case QR_RECORD_FAILED:
        forget_put_done(disk, id);
        qr_disk_record_end(disk, id);
        break;
    default: QR_ASSERT(!"a record that the owner has"); break;
    }
    if (erase) qr_disk_erase_wanted(disk);
    pthread_mutex_unlock(&disk->lock);
}

static uint32_t disk_erasing(const qr_store *store) {
    qr_disk *disk = disk_looked_at(store);
    pthread_mutex_lock(&disk->lock);
    uint32_t count = disk->erasing_count + disk->forgetting_count + disk->wipes_left;
    pthread_mutex_unlock(&disk->lock);
    return count;
}

/* A key that is too long to be stored is in no segment; but the call also asks for what lies about of ours. */
static void disk_erase_foreign(qr_store *store, const void *namespace_key, size_t namespace_bytes) {
    qr_disk *disk = disk_of(store);
    pthread_mutex_lock(&disk->lock);
    bool listed = namespace_key && namespace_bytes <= QR_RECORD_KEY_MAX;
    bool waits = listed && qr_disk_is_forgotten(disk, disk->forget_count, namespace_key, namespace_bytes);
    bool all = !namespace_key || (listed && !waits && disk->forget_count == QR_DISK_FORGETS_MAX);
    if (all) disk->forget_all_count++;
    else if (listed && !waits) {
        qr_disk_forget *forget = &disk->forgets[disk->forget_count++];
        forget->key_bytes = namespace_bytes;
        if (namespace_bytes) memcpy(forget->key, namespace_key, namespace_bytes);
    }
    disk->forgetting_count++;
    disk->clean_wanted = true;
    pthread_cond_signal(&disk->writer_work);
    pthread_mutex_unlock(&disk->lock);
}

static bool disk_where(const qr_store *store, qr_record_id id, qr_store_trouble *trouble) {
    qr_disk *disk = disk_looked_at(store);
    char name[QR_SEGMENT_NAME_MAX];
    pthread_mutex_lock(&disk->lock);
    const qr_disk_record *record = record_of(disk, id);
    bool lies = record->state == QR_RECORD_LIVE;
    if (lies) {
        const qr_disk_segment *segment = &disk->segments[record->segment];
        qr_segment_name(segment->id, name);
        qr_store_trouble_fill(trouble, QR_STORE_TROUBLE_DAMAGED, name, qr_segment_record_offset(&segment->shape, record->slot),
                              "");
    }
    pthread_mutex_unlock(&disk->lock);
    return lies;
}

static void disk_seal(qr_store *store) {
    qr_disk *disk = disk_of(store);
    pthread_mutex_lock(&disk->lock);
    disk->seals_waiting++;
    disk->seal_after = disk->puts_submitted;
    pthread_cond_signal(&disk->writer_work);
    pthread_mutex_unlock(&disk->lock);
}

/* ---- completions; the lock is held ---- */

static bool poll_put(qr_disk *disk, qr_store_event *event) {
    qr_list *link = qr_list_pop_front(&disk->puts_done);
    if (!link) return false;
    qr_disk_put *put = QR_LIST_ENTRY(link, qr_disk_put, link);
    qr_disk_record *record = record_of(disk, put->record);
    *event = (qr_store_event){.kind = QR_STORE_PUT_DONE, .record = put->record, .owner = record->owner, .status = put->status};
    if (record->state == QR_RECORD_FAILED) qr_disk_record_end(disk, put->record);
    put_free(disk, put);
    return true;
}

static void lend(qr_disk_get *get, qr_store_event *event) {
    get->state = QR_GET_LENT;
    event->payload = get->page + QR_RECORD_HEADER_BYTES;
    event->tokens = qr_record_page_tokens(get->page);
    event->namespace_key = get->namespace_key;
    event->namespace_bytes = get->namespace_bytes;
}

static void tell_lost(qr_disk *disk, qr_record_id id, qr_store_event *event) {
    *event = (qr_store_event){.kind = QR_STORE_LOST, .record = id, .owner = disk->records[id].owner};
    qr_disk_record_unlose(disk, id);
    qr_disk_record_end(disk, id);
}

static bool poll_lost(qr_disk *disk, qr_store_event *event) {
    if (disk->first_lost == QR_RECORD_NONE) return false;
    tell_lost(disk, disk->first_lost, event);
    return true;
}

static void tell_get(qr_disk *disk, qr_disk_get *get, qr_store_event *event) {
    qr_disk_record *record = record_of(disk, get->record);
    bool gone = record->state == QR_RECORD_GONE;
    *event = (qr_store_event){.kind = QR_STORE_GET_DONE, .record = get->record, .owner = record->owner, .tag = get->tag};
    event->status = gone ? QUIRE_NOT_FOUND : get->status;
    qr_list_remove(&get->link);
    if (event->status == QUIRE_OK) lend(get, event);
    else {
        get->state = QR_GET_FREE;
        qr_disk_get_back(disk, get);
    }
    record->get_count--;
    disk->gets_busy_count--;
    if (gone && record->get_count == 0) qr_disk_record_end(disk, get->record);
}

/* That a record is not found comes after the reason why. */
static bool poll_get(qr_disk *disk, qr_store_event *event) {
    if (qr_list_empty(&disk->gets_done)) return false;
    qr_disk_get *get = QR_LIST_ENTRY(disk->gets_done.next, qr_disk_get, link);
    if (get->status == QUIRE_NOT_FOUND && disk->records[get->record].state == QR_RECORD_LOST)
        tell_lost(disk, get->record, event);
    else tell_get(disk, get, event);
    return true;
}

static bool poll_seal(qr_disk *disk, qr_store_event *event) {
    if (disk->seals_done == 0) return false;
    disk->seals_done--;
    *event = (qr_store_event){
        .kind = QR_STORE_SEALED, .record = QR_RECORD_NONE, .owner = QR_OWNER_NONE, .status = disk->seal_status};
    return true;
}

static bool disk_poll(qr_store *store, uint64_t now_us, qr_store_event *event) {
    (void)now_us;
    qr_disk *disk = disk_of(store);
    pthread_mutex_lock(&disk->lock);
    bool any = poll_put(disk, event) || poll_get(disk, event) || poll_lost(disk, event) || poll_seal(disk, event) ||
               qr_disk_tell_trouble(disk, event);
    pthread_mutex_unlock(&disk->lock);
    return any;
}

/* ---- figures ---- */

static bool disk_busy(const qr_store *store) {
    qr_disk *disk = disk_looked_at(store);
    pthread_mutex_lock(&disk->lock);
    bool busy = disk->puts_busy_count || disk->gets_busy_count || disk->seals_waiting || disk->seals_done || disk->lost_count ||
                disk->erasing_count || disk->forgetting_count || disk->unwiped_count;
    pthread_mutex_unlock(&disk->lock);
    return busy;
}

/* The first segment of a row goes when one is begun that is one too many, or the next is near; it may be part-filled. */
static uint32_t disk_lasting_max(const qr_disk *disk) {
    uint64_t segments = (disk->config.cap_bytes - QR_DISK_FOLDER_BYTES) / disk->sizes.segment_bytes;
    uint64_t records = (segments - 2) * disk->sizes.shape.slot_count;
    return records < UINT32_MAX ? (uint32_t)records : UINT32_MAX;
}

static void disk_stats(const qr_store *store, qr_store_stats *stats) {
    qr_disk *disk = disk_looked_at(store);
    pthread_mutex_lock(&disk->lock);
    *stats = disk->stats;
    stats->cap_bytes = disk->config.cap_bytes;
    stats->record_bytes = disk->sizes.record_bytes;
    stats->payload_bytes = disk->config.payload_bytes;
    stats->record_max = disk->sizes.record_max;
    stats->lasting_max = disk_lasting_max(disk);
    stats->reads_queued = disk->gets_queued_count + disk->gets_reading_count;
    stats->writes_queued = (uint32_t)(disk->puts_submitted - disk->puts_finished);
    stats->budget_bytes = disk->config.day_budget_bytes;
    uint64_t left = qr_disk_budget_left(&disk->budget, qr_clock_wall_ms());
    stats->budget_left_bytes = stats->budget_bytes ? left : 0;
    stats->space_short = qr_disk_space_short(disk);
    pthread_mutex_unlock(&disk->lock);
}

static void disk_buffers(const qr_store *store, void **base, size_t *size_bytes) {
    const qr_disk *disk = disk_looked_at(store);
    *base = disk->buffers.base;
    *size_bytes = disk->buffers.size_bytes;
}

static quire_status disk_check(const qr_store *store, quire_error *error) {
    qr_disk *disk = disk_looked_at(store);
    pthread_mutex_lock(&disk->lock);
    quire_status status = qr_disk_table_check(disk, error);
    pthread_mutex_unlock(&disk->lock);
    return status;
}

static void disk_index(qr_store *store, qr_store_found *found, void *context) {
    qr_disk_index_report(disk_of(store), found, context);
}

/* ---- life ---- */

/* Where everything lies. With an arena that only counts, how much it is; the disk itself is then not there either. */
typedef struct disk_layout {
    qr_disk *disk;
    char *path;
    qr_disk_record *records;
    qr_disk_segment *segments;
    qr_disk_get *gets;
    qr_disk_put *puts;
    pthread_t *readers;
    unsigned char *pages; /* 4 KiB aligned: page, record, both footers */
    unsigned char *namespace_key;
    qr_disk_member *members;
    uint32_t *inner_children;
    unsigned char *wanted;
    qr_disk_forget *forgets;
} disk_layout;

static uint64_t pages_bytes(const qr_disk_sizes *sizes) {
    return QR_PAGE_BYTES + sizes->record_bytes + 2 * sizes->footer_bytes_max;
}

static void layout_take(disk_layout *layout, const qr_disk_config *config, const qr_disk_sizes *sizes, qr_arena *arena) {
    layout->pages = qr_arena_take(arena, pages_bytes(sizes), 1); /* first: as aligned as the region */
    layout->disk = qr_arena_take(arena, 1, sizeof *layout->disk);
    layout->path = qr_arena_take(arena, strlen(config->path) + 1, 1);
    layout->records = qr_arena_take(arena, sizes->record_max, sizeof *layout->records);
    layout->segments = qr_arena_take(arena, sizes->segment_max, sizeof *layout->segments);
    layout->gets = qr_arena_take(arena, config->read_buffers, sizeof *layout->gets);
    layout->puts = qr_arena_take(arena, config->write_buffers, sizeof *layout->puts);
    layout->readers = qr_arena_take(arena, config->reader_count, sizeof *layout->readers);
    layout->namespace_key = qr_arena_take(arena, QR_RECORD_KEY_MAX, 1);
    layout->members = qr_arena_take(arena, sizes->slots_max, sizeof *layout->members);
    layout->inner_children = qr_arena_take(arena, sizes->slots_max, sizeof *layout->inner_children);
    layout->wanted = qr_arena_take(arena, sizes->slots_max, 1);
    layout->forgets = qr_arena_take(arena, QR_DISK_FORGETS_MAX, sizeof *layout->forgets);
}

static uint64_t buffers_bytes(const qr_disk_config *config, const qr_disk_sizes *sizes) {
    return (uint64_t)(config->read_buffers + config->write_buffers) * sizes->record_bytes;
}

uint64_t qr_disk_memory_bytes(const qr_disk_config *wanted) {
    qr_disk_config config = *wanted;
    qr_disk_sizes sizes;
    disk_layout layout;
    qr_arena arena = {0};
    if (qr_disk_sizes_init(&sizes, &config, NULL) != QUIRE_OK) return 0;
    layout_take(&layout, &config, &sizes, &arena);
    uint64_t stacks = (uint64_t)(config.reader_count + 1) * QR_DISK_STACK_BYTES;
    return arena.failed ? 0 : arena.used_bytes + buffers_bytes(&config, &sizes) + stacks;
}

static void init_writer(qr_disk_writer *writer, const disk_layout *layout, const qr_disk *disk) {
    unsigned char *at = layout->pages;
    writer->segment = QR_SEGMENT_NONE;
    writer->file.fd = -1;
    writer->page = at;
    writer->record = at += QR_PAGE_BYTES;
    writer->footer_bytes = at += disk->sizes.record_bytes;
    writer->scratch_bytes = at + disk->sizes.footer_bytes_max;
    writer->namespace_key = layout->namespace_key;
    writer->members = layout->members;
    writer->inner_children = layout->inner_children;
    writer->wanted = layout->wanted;
    writer->io = (qr_disk_io){.files = disk->config.files, .folder = disk->config.path};
}

static void init_operations(qr_disk *disk) {
    qr_list *lists[] = {&disk->gets_free,   &disk->gets_staged, &disk->gets_queued,  &disk->gets_done,   &disk->puts_free,
                        &disk->puts_queued, &disk->puts_done,   &disk->gets_unwiped, &disk->puts_unwiped};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) qr_list_init(lists[i]);
    unsigned char *page = disk->buffers.base;
    for (uint32_t i = 0; i < disk->config.read_buffers; i++, page += disk->sizes.record_bytes) {
        disk->gets[i].page = page;
        qr_list_push_back(&disk->gets_free, &disk->gets[i].link);
    }
    for (uint32_t i = 0; i < disk->config.write_buffers; i++, page += disk->sizes.record_bytes) {
        disk->puts[i].page = page;
        disk->puts[i].record = QR_RECORD_NONE;
        qr_list_push_back(&disk->puts_free, &disk->puts[i].link);
    }
}

static void init_lock(qr_disk *disk) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&disk->lock, NULL);
    pthread_cond_init(&disk->reader_work, &attributes);
    pthread_cond_init(&disk->writer_work, &attributes);
    pthread_cond_init(&disk->reads_over, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* Takes all memory. */
static quire_status disk_create(const qr_disk_config *config, const qr_disk_sizes *sizes, qr_disk **out, quire_error *error) {
    disk_layout layout;
    qr_arena arena = {0};
    qr_region memory, buffers;
    layout_take(&layout, config, sizes, &arena);
    if (arena.failed) return qr_fail(error, QUIRE_NO_MEMORY, config->path, QR_NO_OFFSET, "the table is too large");
    quire_status status = qr_region_alloc(arena.used_bytes, &memory, error);
    if (status != QUIRE_OK) return status;
    status = qr_region_alloc(buffers_bytes(config, sizes), &buffers, error);
    if (status != QUIRE_OK) {
        qr_region_free(&memory);
        return status;
    }
    arena = (qr_arena){.base = memory.base, .size_bytes = memory.size_bytes};
    layout_take(&layout, config, sizes, &arena);
    qr_disk *disk = layout.disk;
    *disk = (qr_disk){.config = *config, .sizes = *sizes, .memory = memory, .buffers = buffers, .folder = {.fd = -1}};
    memcpy(layout.path, config->path, strlen(config->path) + 1);
    disk->config.path = layout.path;
    disk->records = layout.records;
    disk->segments = layout.segments;
    disk->gets = layout.gets;
    disk->puts = layout.puts;
    disk->forgets = layout.forgets;
    disk->reader_threads = layout.readers;
    disk->next_serial = 1;
    disk->stats.used_bytes = QR_DISK_FOLDER_BYTES;
    init_lock(disk);
    init_operations(disk);
    qr_disk_table_init(disk);
    init_writer(&disk->writer, &layout, disk);
    *out = disk;
    return QUIRE_OK;
}

static void disk_destroy(qr_disk *disk) {
    qr_disk_writer_leave(disk);
    qr_disk_index_forget(disk);
    qr_disk_folder_close(&disk->folder);
    pthread_cond_destroy(&disk->reader_work);
    pthread_cond_destroy(&disk->writer_work);
    pthread_cond_destroy(&disk->reads_over);
    pthread_mutex_destroy(&disk->lock);
    qr_region memory = disk->memory, buffers = disk->buffers;
    qr_region_free(&buffers);
    qr_region_free(&memory);
}

static void threads_stop(qr_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    disk->stopping = true;
    pthread_cond_broadcast(&disk->reader_work);
    pthread_cond_broadcast(&disk->writer_work);
    pthread_cond_broadcast(&disk->reads_over);
    pthread_mutex_unlock(&disk->lock);
    for (uint32_t i = 0; i < disk->reader_threads_started; i++) pthread_join(disk->reader_threads[i], NULL);
    if (disk->writer_started) pthread_join(disk->writer_thread, NULL);
}

static quire_status threads_start(qr_disk *disk, quire_error *error) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    int failed = pthread_attr_setstacksize(&attributes, QR_DISK_STACK_BYTES);
    for (uint32_t i = 0; !failed && i < disk->config.reader_count; i++) {
        failed = pthread_create(&disk->reader_threads[i], &attributes, qr_disk_reader_main, disk);
        disk->reader_threads_started += !failed;
    }
    if (!failed) failed = pthread_create(&disk->writer_thread, &attributes, qr_disk_writer_main, disk);
    disk->writer_started = !failed;
    pthread_attr_destroy(&attributes);
    if (!failed) return QUIRE_OK;
    threads_stop(disk);
    return qr_fail(error, QUIRE_NO_MEMORY, disk->config.path, QR_NO_OFFSET, "no thread can be started");
}

static void disk_close(qr_store *store) {
    qr_disk *disk = disk_of(store);
    threads_stop(disk);
    qr_disk_writer_finish(disk);
    disk_destroy(disk);
}

static void resolve_floor(qr_disk *disk) {
    qr_files_space space;
    qr_files *files = disk->config.files;
    if (disk->config.free_floor_bytes) return;
    disk->config.free_floor_bytes = FLOOR_MAX;
    if (files->ops->space(files, disk->reach, &space, NULL) != QUIRE_OK) return;
    uint64_t part = space.total_bytes / 100 * FLOOR_PERCENT;
    if (part < FLOOR_MAX) disk->config.free_floor_bytes = part;
}

/* Everything that reads and writes the folder before threads do. */
static quire_status disk_load(qr_disk *disk, quire_error *error) {
    quire_status status = qr_disk_folder_open(&disk->folder, disk->config.path, disk->config.may_only_read, error);
    if (status != QUIRE_OK) return status;
    disk->read_only = disk->folder.read_only;
    disk->reach = disk->writer.io.folder = qr_disk_folder_reach(&disk->folder, disk->config.path);
    if (!disk->read_only) qr_disk_folder_sign(&disk->folder, disk->config.path);
    resolve_floor(disk);
    qr_disk_budget_load(&disk->budget, disk->config.day_budget_bytes, qr_clock_wall_ms(), &disk->writer.io, disk->writer.page);
    disk->writer.io.cancelled = disk->config.cancelled;
    disk->writer.io.cancelled_context = disk->config.cancelled_context;
    status = qr_disk_index_load(disk, error);
    disk->writer.io.cancelled = NULL;
    return status == QUIRE_OK ? threads_start(disk, error) : status;
}

quire_status qr_disk_open(const qr_disk_config *wanted, qr_store **store, quire_error *error) {
    static const qr_store_ops ops = {
        .name = "disk",
        .index = disk_index,
        .put_begin = disk_put_begin,
        .put_submit = disk_put_submit,
        .put_abort = disk_put_abort,
        .get = disk_get,
        .kick = disk_kick,
        .release = disk_release,
        .touch = disk_touch,
        .drop = disk_drop,
        .erasing = disk_erasing,
        .erase_foreign = disk_erase_foreign,
        .seal = disk_seal,
        .where = disk_where,
        .poll = disk_poll,
        .busy = disk_busy,
        .stats = disk_stats,
        .buffers = disk_buffers,
        .check = disk_check,
        .close = disk_close,
    };
    qr_disk_config config = *wanted;
    qr_disk_sizes sizes;
    qr_disk *disk = NULL;
    *store = NULL;
    quire_status status = qr_disk_sizes_init(&sizes, &config, error);
    if (status == QUIRE_OK) status = disk_create(&config, &sizes, &disk, error);
    if (status != QUIRE_OK) return status;
    status = disk_load(disk, error);
    if (status != QUIRE_OK) {
        disk_destroy(disk);
        return status;
    }
    disk->store.ops = &ops;
    *store = &disk->store;
    return QUIRE_OK;
}
