/* disk store stress: an owner that puts, gets, touches, drops, erases and seals without a pause, against the store's readers
 * and its writer, in a folder so small that space is always being made. Every payload must be the one that was put. Run under
 * ThreadSanitizer. */
#include "offload/disk_store.h"

#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/random.h"

enum { TOKENS = 4, PAYLOAD = 8192, OWNERS = 400 };

typedef enum owner_state { ABSENT, PUTTING, LIVE } owner_state;

typedef struct scene {
    char path[64];
    qr_store *store;
    qr_random random;
    owner_state states[OWNERS];
    qr_record_id records[OWNERS];
    uint32_t salts[OWNERS]; /* of the bytes that its record has */
    uint32_t gets[OWNERS];
    uint64_t puts_done, gets_done, lost, wrong;
    _Atomic uint64_t wakes;
} scene;

static void on_wake(void *context) {
    scene *s = context;
    atomic_fetch_add_explicit(&s->wakes, 1, memory_order_relaxed);
}

static uint64_t word_of(uint32_t owner, uint32_t salt, uint32_t i) { return qr_mix64((uint64_t)owner << 32 | salt) + i; }

static void fill(uint64_t *payload, uint32_t owner, uint32_t salt) {
    for (uint32_t i = 0; i < PAYLOAD / 8; i++) payload[i] = word_of(owner, salt, i);
}

static bool holds(const uint64_t *payload, uint32_t owner, uint32_t salt) {
    for (uint32_t i = 0; i < PAYLOAD / 8; i++)
        if (payload[i] != word_of(owner, salt, i)) return false;
    return true;
}

static void on_event(scene *s, const qr_store_event *event) {
    uint32_t owner = event->owner;
    switch (event->kind) {
    case QR_STORE_PUT_DONE:
        s->states[owner] = event->status == QUIRE_OK ? LIVE : ABSENT;
        s->puts_done++;
        break;
    case QR_STORE_GET_DONE:
        owner = (uint32_t)event->tag;
        s->gets[owner]--;
        s->gets_done += event->status == QUIRE_OK;
        if (event->status != QUIRE_OK) {
            s->wrong += event->status != QUIRE_NOT_FOUND;
            break;
        }
        s->wrong += !holds(event->payload, owner, (uint32_t)(event->tag >> 32)) || event->tokens[0] != (quire_token)owner;
        s->store->ops->release(s->store, event->payload);
        break;
    case QR_STORE_LOST:
        s->states[owner] = ABSENT;
        s->lost++;
        break;
    case QR_STORE_SEALED: s->wrong += event->status != QUIRE_OK; break;
    case QR_STORE_TROUBLE: s->wrong++; break;
    }
}

static void drain(scene *s) {
    qr_store_event event;
    while (s->store->ops->poll(s->store, 0, &event)) on_event(s, &event);
}

static void put(scene *s, uint32_t owner) {
    quire_token tokens[TOKENS] = {(quire_token)owner, 1, 2, 3};
    qr_record_info info = {"key", 3, QR_RECORD_NONE, 1, tokens};
    void *payload;
    if (s->store->ops->put_begin(s->store, &info, owner, &s->records[owner], &payload) != QR_STORE_NONE) return;
    fill(payload, owner, ++s->salts[owner]);
    s->states[owner] = PUTTING;
    s->store->ops->put_submit(s->store, s->records[owner]);
}

static void get(scene *s, uint32_t owner) {
    for (uint32_t i = 0; i < 4 && owner + i < OWNERS; i++) {
        uint32_t wanted = owner + i;
        if (s->states[wanted] != LIVE) continue;
        uint64_t tag = (uint64_t)s->salts[wanted] << 32 | wanted;
        if (s->store->ops->get(s->store, s->records[wanted], tag)) s->gets[wanted]++;
    }
    s->store->ops->kick(s->store);
}

static void step(scene *s) {
    uint32_t owner = qr_random_below(&s->random, OWNERS), what = qr_random_below(&s->random, 100);
    if (s->states[owner] == ABSENT) {
        if (s->gets[owner] == 0) put(s, owner);
    } else if (what < 60) get(s, owner);
    else if (what < 80 && s->states[owner] == LIVE) s->store->ops->touch(s->store, s->records[owner]);
    else if (what < 90) {
        s->store->ops->drop(s->store, s->records[owner], what == 80 && owner % 8 == 0);
        s->states[owner] = ABSENT;
    } else if (what == 99 && owner % 8 == 0) s->store->ops->seal(s->store);
    else if (what == 98 && owner % 8 == 0) s->store->ops->erase_foreign(s->store, "nobody", owner % 6);
    if (what % 4 == 0) drain(s);
}

static uint32_t on_found(void *context, const qr_record_info *info, qr_record_id record, uint32_t parent, bool foreign) {
    scene *s = context;
    uint32_t owner = (uint32_t)info->tokens[0];
    s->wrong += parent != QR_OWNER_NONE || foreign || owner >= OWNERS;
    s->records[owner] = record;
    return QR_OWNER_NONE; /* its salt is not remembered: begin anew */
}

static bool open_store(scene *s) {
    quire_error error;
    qr_disk_config config = {.path = s->path,
                             .cap_bytes = 3 << 20,
                             .free_floor_bytes = 1,
                             .payload_bytes = PAYLOAD,
                             .block_tokens = TOKENS,
                             .write_buffers = 6,
                             .read_buffers = 12,
                             .reader_count = 3,
                             .wake = on_wake,
                             .wake_context = s};
    if (qr_disk_open(&config, &s->store, &error) != QUIRE_OK) {
        printf("%s: %s\n", error.source, error.text);
        return false;
    }
    s->store->ops->index(s->store, on_found, s);
    return true;
}

static bool run(scene *s, uint64_t completions) {
    quire_error error;
    qr_store_stats stats;
    if (!open_store(s)) return false;
    uint64_t end = s->puts_done + s->gets_done + completions;
    for (uint64_t i = 0; s->puts_done + s->gets_done < end; i++) {
        step(s);
        if (i % 8 == 0) sched_yield();
        if (i % 64 == 0) s->store->ops->stats(s->store, &stats);
        if (i % 256 == 0 && s->store->ops->check(s->store, &error) != QUIRE_OK) {
            printf("%s\n", error.text);
            return false;
        }
    }
    while (s->store->ops->busy(s->store)) {
        drain(s);
        sched_yield();
    }
    s->store->ops->close(s->store);
    memset(s->states, 0, sizeof s->states);
    return s->wrong == 0;
}

static void remove_folder(const char *path) {
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder) closedir(folder);
    rmdir(path);
}

int main(int argc, char **argv) {
    static scene s;
    uint64_t completions = argc > 1 ? strtoull(argv[1], NULL, 10) : 3000;
    s.random.state = 7;
    const char *folder = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm"; /* threads are at work here, not a disk */
    snprintf(s.path, sizeof s.path, "%s/quire-stress-XXXXXX", folder);
    if (!mkdtemp(s.path)) return 1;
    bool ok = run(&s, completions) && run(&s, completions);
    ok = ok && s.puts_done && s.gets_done && s.lost && atomic_load(&s.wakes);
    printf("puts %llu gets %llu lost %llu wrong %llu\n", (unsigned long long)s.puts_done, (unsigned long long)s.gets_done,
           (unsigned long long)s.lost, (unsigned long long)s.wrong);
    remove_folder(s.path);
    puts(ok ? "ok" : "FAILED");
    return !ok;
}
