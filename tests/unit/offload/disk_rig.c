#include "tests/unit/offload/disk_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"

void rig_init(disk_rig *rig, uint64_t cap_bytes) {
    const char *folder = getenv("TMPDIR");
    memset(rig, 0, sizeof *rig);
    snprintf(rig->path, sizeof rig->path, "%s/quire-disk-XXXXXX", folder ? folder : "/tmp");
    cr_assert_not_null(mkdtemp(rig->path));
    cr_assert_eq(rmdir(rig->path), 0);
    rig->config = (qr_disk_config){.path = rig->path,
                                   .cap_bytes = cap_bytes,
                                   .free_floor_bytes = 1,
                                   .payload_bytes = RIG_PAYLOAD,
                                   .block_tokens = RIG_TOKENS,
                                   .fingerprint = {1, 2, 3, 4}};
}

static uint32_t rig_found(void *context, const qr_record_info *info, qr_record_id record, uint32_t parent_owner, bool foreign) {
    disk_rig *rig = context;
    if (foreign) {
        rig->foreign_count++;
        return QR_OWNER_NONE;
    }
    uint32_t owner = (uint32_t)info->tokens[0];
    cr_assert_lt(owner, RIG_RECORDS_MAX);
    for (int i = 1; i < RIG_TOKENS; i++) cr_assert_eq(info->tokens[i], i);
    cr_assert_eq(info->depth == 1, parent_owner == QR_OWNER_NONE);
    rig->found_ids[owner] = record;
    rig->found_parents[owner] = parent_owner;
    rig->found_owners[rig->found_count++] = owner;
    return owner;
}

void rig_open(disk_rig *rig) {
    quire_error error = {0};
    cr_assert_eq(qr_disk_open(&rig->config, &rig->store, &error), QUIRE_OK, "%s: %s", error.source, error.text);
    rig->found_count = rig->foreign_count = 0;
    rig->store->ops->index(rig->store, rig_found, rig);
    cr_assert_eq(rig->store->ops->check(rig->store, &error), QUIRE_OK, "%s", error.text);
}

void rig_fail_open(disk_rig *rig, quire_status status, const char *text) {
    quire_error error = {0};
    cr_assert_eq(qr_disk_open(&rig->config, &rig->store, &error), status, "%s: %s", error.source, error.text);
    cr_assert_null(rig->store);
    cr_assert(strstr(error.text, text) || strstr(error.source, text), "%s: %s", error.source, error.text);
}

void rig_close(disk_rig *rig) {
    if (rig->store) rig->store->ops->close(rig->store);
    rig->store = NULL;
}

void rig_deinit(disk_rig *rig) {
    rig_close(rig);
    rig_remove_folder(rig->path);
}

void rig_fill_payload(void *payload, uint32_t owner) {
    qr_random random = {owner};
    uint64_t *words = payload;
    for (int i = 0; i < RIG_PAYLOAD / 8; i++) words[i] = qr_random_u64(&random);
}

bool rig_payload_is(const void *payload, uint32_t owner) {
    static _Thread_local unsigned char wanted[RIG_PAYLOAD];
    rig_fill_payload(wanted, owner);
    return memcmp(payload, wanted, RIG_PAYLOAD) == 0;
}

static qr_store_refusal put_keyed(disk_rig *rig, uint32_t owner, qr_record_id parent, uint32_t depth, const char *key,
                                  qr_record_id *record) {
    quire_token tokens[RIG_TOKENS] = {(quire_token)owner, 1, 2, 3};
    qr_record_info info = {key, strlen(key), parent, depth, tokens};
    void *payload;
    qr_store_refusal refusal = rig->store->ops->put_begin(rig->store, &info, owner, record, &payload);
    if (refusal != QR_STORE_NONE) return refusal;
    rig_fill_payload(payload, owner);
    rig->store->ops->put_submit(rig->store, *record);
    return QR_STORE_NONE;
}

qr_store_refusal rig_try_put(disk_rig *rig, uint32_t owner, qr_record_id parent, uint32_t depth, qr_record_id *record) {
    return put_keyed(rig, owner, parent, depth, "key", record);
}

qr_record_id rig_put_keyed(disk_rig *rig, uint32_t owner, qr_record_id parent, uint32_t depth, const char *key) {
    qr_record_id record;
    qr_store_refusal refusal;
    while ((refusal = put_keyed(rig, owner, parent, depth, key, &record)) == QR_STORE_BUSY) {
        rig_poll(rig);
        sched_yield();
    }
    cr_assert_eq(refusal, QR_STORE_NONE, "%s", qr_store_refusal_name(refusal));
    return record;
}

qr_record_id rig_put(disk_rig *rig, uint32_t owner, qr_record_id parent, uint32_t depth) {
    return rig_put_keyed(rig, owner, parent, depth, "key");
}

static void rig_note_get(disk_rig *rig, const qr_store_event *event) {
    rig->last_get = event->status;
    if (event->status != QUIRE_OK) {
        cr_assert_null(event->payload);
        rig->get_failed++;
        return;
    }
    rig->get_ok++;
    cr_assert(rig_payload_is(event->payload, event->owner));
    cr_assert_eq(event->tokens[0], (quire_token)event->owner);
    cr_assert_eq(event->tokens[RIG_TOKENS - 1], RIG_TOKENS - 1);
    rig->store->ops->release(rig->store, event->payload);
}

static void rig_note(disk_rig *rig, const qr_store_event *event) {
    switch (event->kind) {
    case QR_STORE_PUT_DONE:
        rig->last_put = event->status;
        if (event->status == QUIRE_OK) rig->put_ok++;
        else rig->put_failed++;
        break;
    case QR_STORE_GET_DONE: rig_note_get(rig, event); break;
    case QR_STORE_LOST:
        rig->lost_owners[rig->lost_count++ % RIG_RECORDS_MAX] = event->owner;
        if (event->owner < RIG_RECORDS_MAX) rig->lost[event->owner] = true;
        break;
    case QR_STORE_SEALED:
        rig->sealed_count++;
        rig->last_seal = event->status;
        break;
    case QR_STORE_TROUBLE:
        rig->trouble = *event->trouble;
        rig->trouble_count++;
        rig->trouble_missed += event->tag;
        break;
    }
}

void rig_poll(disk_rig *rig) {
    qr_store_event event;
    while (rig->store->ops->poll(rig->store, 0, &event)) rig_note(rig, &event);
}

void rig_settle(disk_rig *rig) {
    quire_error error = {0};
    do {
        rig_poll(rig);
        sched_yield();
    } while (rig->store->ops->busy(rig->store));
    cr_assert_eq(rig->store->ops->check(rig->store, &error), QUIRE_OK, "%s", error.text);
}

quire_status rig_get(disk_rig *rig, qr_record_id record) {
    cr_assert(rig->store->ops->get(rig->store, record, 0));
    rig->store->ops->kick(rig->store);
    rig_settle(rig);
    return rig->last_get;
}

void rig_wait_lost(disk_rig *rig, uint32_t count) {
    for (rig_settle(rig); rig->lost_count < count; rig_settle(rig)) sched_yield();
    cr_assert_eq(rig->lost_count, count);
}

quire_status rig_seal(disk_rig *rig) {
    rig->store->ops->seal(rig->store);
    rig_settle(rig);
    return rig->last_seal;
}

qr_store_stats rig_stats(const disk_rig *rig) {
    qr_store_stats stats;
    rig->store->ops->stats(rig->store, &stats);
    return stats;
}

/* ---- files ---- */

static int is_segment(const struct dirent *entry) { return strncmp(entry->d_name, "segment-", 8) == 0; }

static uint32_t segment_walk(const disk_rig *rig, uint32_t n, char *path) {
    struct dirent **entries;
    int count = scandir(rig->path, &entries, is_segment, alphasort);
    cr_assert_geq(count, 0);
    for (int i = 0; i < count; i++) {
        if (path && (uint32_t)i == n) snprintf(path, 2 * RIG_PATH_MAX, "%s/%.64s", rig->path, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return (uint32_t)count;
}

bool rig_segment_path(const disk_rig *rig, uint32_t n, char path[2 * RIG_PATH_MAX]) { return n < segment_walk(rig, n, path); }

uint32_t rig_segment_count(const disk_rig *rig) { return segment_walk(rig, 0, NULL); }

/* Calls `visit` with each file until it says true. */
static bool folder_walk(const char *folder, bool (*visit)(void *context, const char *path, const char *name), void *context) {
    DIR *directory = opendir(folder);
    bool stopped = false;
    cr_assert_not_null(directory);
    for (struct dirent *entry; !stopped && (entry = readdir(directory));) {
        char path[2 * RIG_PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(path, sizeof path, "%s/%.128s", folder, entry->d_name);
        stopped = visit(context, path, entry->d_name);
    }
    closedir(directory);
    return stopped;
}

static bool add_blocks(void *context, const char *path, const char *name) {
    (void)name;
    struct stat about;
    if (lstat(path, &about) == 0) *(uint64_t *)context += (uint64_t)about.st_blocks * 512;
    return false;
}

uint64_t rig_disk_bytes(const disk_rig *rig) {
    uint64_t bytes = 0;
    struct stat about;
    cr_assert_eq(stat(rig->path, &about), 0);
    folder_walk(rig->path, add_blocks, &bytes);
    return bytes + (uint64_t)about.st_blocks * 512;
}

typedef struct needle {
    const void *bytes;
    size_t size_bytes;
} needle;

static void *read_whole(const char *path, size_t *size_bytes) {
    struct stat about;
    int fd = open(path, O_RDONLY);
    cr_assert_geq(fd, 0);
    cr_assert_eq(fstat(fd, &about), 0);
    *size_bytes = (size_t)about.st_size;
    void *bytes = malloc(*size_bytes ? *size_bytes : 1);
    cr_assert_eq(pread(fd, bytes, *size_bytes, 0), (ssize_t)*size_bytes);
    close(fd);
    return bytes;
}

static bool file_has(void *context, const char *path, const char *name) {
    (void)name;
    const needle *wanted = context;
    size_t size;
    void *bytes = read_whole(path, &size);
    bool has = memmem(bytes, size, wanted->bytes, wanted->size_bytes) != NULL;
    free(bytes);
    return has;
}

bool rig_folder_has(const disk_rig *rig, const void *bytes, size_t size_bytes) {
    needle wanted = {bytes, size_bytes};
    return folder_walk(rig->path, file_has, &wanted);
}

void rig_flip(const char *path, uint64_t offset) {
    unsigned char byte;
    int fd = open(path, O_RDWR);
    cr_assert_geq(fd, 0);
    cr_assert_eq(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 1;
    cr_assert_eq(pwrite(fd, &byte, 1, (off_t)offset), 1);
    close(fd);
}

static bool copy_file(void *context, const char *path, const char *name) {
    char to[2 * RIG_PATH_MAX];
    size_t size;
    if (strcmp(name, "lock") == 0 || access(path, R_OK)) return false; /* or it has gone meanwhile */
    void *bytes = read_whole(path, &size);
    snprintf(to, sizeof to, "%s/%s", (const char *)context, name);
    int fd = open(to, O_WRONLY | O_CREAT | O_EXCL, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, bytes, size), (ssize_t)size);
    close(fd);
    free(bytes);
    return false;
}

void rig_copy_folder(const disk_rig *rig, const char *to) {
    cr_assert_eq(mkdir(to, 0700), 0);
    folder_walk(rig->path, copy_file, (void *)(uintptr_t)to);
}

static bool remove_file(void *context, const char *path, const char *name) {
    (void)context, (void)name;
    if (unlink(path)) rmdir(path);
    return false;
}

void rig_remove_folder(const char *path) {
    if (access(path, F_OK)) return;
    folder_walk(path, remove_file, NULL);
    rmdir(path);
}
