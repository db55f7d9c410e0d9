#include "runtime/kv/namespaces.h"

#include <string.h>

#include "base/assertion.h"
#include "base/hash.h"
#include "base/memory.h"

#define NONE UINT32_MAX

_Static_assert(QUIRE_NAMESPACE_KEY_MAX % QR_NAMESPACE_CHUNK_BYTES == 0, "the longest key fills its chunks");

void qr_namespaces_init(qr_namespaces *namespaces, uint32_t count, qr_arena *arena) {
    uint32_t buckets = 1;
    while (buckets < count) buckets *= 2;
    *namespaces = (qr_namespaces){.count = count, .bucket_mask = buckets - 1, .free_chunk = NONE};
    uint64_t key_bytes = (uint64_t)count * QUIRE_NAMESPACE_KEY_MAX;
    if (key_bytes < QR_NAMESPACE_STORE_BYTES) key_bytes = QR_NAMESPACE_STORE_BYTES;
    namespaces->chunk_count = (uint32_t)(key_bytes / QR_NAMESPACE_CHUNK_BYTES);
    namespaces->entries = qr_arena_take(arena, count, sizeof *namespaces->entries);
    namespaces->buckets = qr_arena_take(arena, buckets, sizeof *namespaces->buckets);
    namespaces->chunks = qr_arena_take(arena, namespaces->chunk_count, sizeof *namespaces->chunks);
    if (!namespaces->chunks) return;
    for (uint32_t i = 0; i < buckets; i++) namespaces->buckets[i] = NONE;
    for (uint32_t i = namespaces->chunk_count; i-- > 0;) {
        namespaces->chunks[i].next = namespaces->free_chunk;
        namespaces->free_chunk = i;
    }
    namespaces->free_chunk_count = namespaces->chunk_count;
    bool added = qr_namespaces_add(namespaces, 0, NULL, 0);
    QR_ASSERT(added);
}

static size_t namespace_chunk_bytes(size_t left) { return left < QR_NAMESPACE_CHUNK_BYTES ? left : QR_NAMESPACE_CHUNK_BYTES; }

static bool namespace_key_equal(const qr_namespaces *namespaces, const qr_namespace *entry, const unsigned char *key,
                                size_t key_bytes) {
    if (entry->key_bytes != key_bytes) return false;
    uint32_t chunk = entry->first_chunk;
    for (size_t at = 0; at < key_bytes; at += QR_NAMESPACE_CHUNK_BYTES, chunk = namespaces->chunks[chunk].next)
        if (memcmp(namespaces->chunks[chunk].bytes, key + at, namespace_chunk_bytes(key_bytes - at)) != 0) return false;
    return true;
}

quire_namespace_id qr_namespaces_find(const qr_namespaces *namespaces, const void *key, size_t key_bytes) {
    uint64_t hash = qr_hash_bytes(key, key_bytes, 0);
    uint32_t id = namespaces->buckets[hash & namespaces->bucket_mask];
    for (; id != NONE; id = namespaces->entries[id].hash_next) {
        const qr_namespace *entry = &namespaces->entries[id];
        if (entry->hash == hash && namespace_key_equal(namespaces, entry, key, key_bytes)) break;
    }
    return id;
}

/* Copies the key into fresh chunks; the caller has seen that there are enough. */
static uint32_t namespace_store_key(qr_namespaces *namespaces, const unsigned char *key, size_t key_bytes) {
    uint32_t first = NONE, *link = &first;
    for (size_t at = 0; at < key_bytes; at += QR_NAMESPACE_CHUNK_BYTES) {
        qr_namespace_chunk *chunk = &namespaces->chunks[namespaces->free_chunk];
        *link = namespaces->free_chunk;
        namespaces->free_chunk = chunk->next;
        namespaces->free_chunk_count--;
        memcpy(chunk->bytes, key + at, namespace_chunk_bytes(key_bytes - at));
        chunk->next = NONE;
        link = &chunk->next;
    }
    return first;
}

bool qr_namespaces_fits(const qr_namespaces *namespaces, size_t key_bytes) {
    return key_bytes <= (size_t)namespaces->free_chunk_count * QR_NAMESPACE_CHUNK_BYTES;
}

bool qr_namespaces_add(qr_namespaces *namespaces, quire_namespace_id id, const void *key, size_t key_bytes) {
    QR_ASSERT(id < namespaces->count && !namespaces->entries[id].in_use);
    if (!qr_namespaces_fits(namespaces, key_bytes)) return false;
    uint64_t hash = qr_hash_bytes(key, key_bytes, 0);
    uint32_t *bucket = &namespaces->buckets[hash & namespaces->bucket_mask];
    namespaces->entries[id] = (qr_namespace){.hash = hash,
                                             .key_bytes = key_bytes,
                                             .first_chunk = namespace_store_key(namespaces, key, key_bytes),
                                             .hash_next = *bucket,
                                             .in_use = true};
    *bucket = id;
    return true;
}

bool qr_namespaces_is_key(const qr_namespaces *namespaces, quire_namespace_id id, const void *key, size_t key_bytes) {
    return namespace_key_equal(namespaces, &namespaces->entries[id], key, key_bytes);
}

void qr_namespaces_copy_key(const qr_namespaces *namespaces, quire_namespace_id id, unsigned char *key) {
    const qr_namespace *entry = &namespaces->entries[id];
    uint32_t chunk = entry->first_chunk;
    for (size_t at = 0; at < entry->key_bytes; at += QR_NAMESPACE_CHUNK_BYTES, chunk = namespaces->chunks[chunk].next)
        memcpy(key + at, namespaces->chunks[chunk].bytes, namespace_chunk_bytes(entry->key_bytes - at));
}

static void namespace_free_key(qr_namespaces *namespaces, uint32_t chunk) {
    while (chunk != NONE) {
        uint32_t next = namespaces->chunks[chunk].next;
        qr_wipe(namespaces->chunks[chunk].bytes, QR_NAMESPACE_CHUNK_BYTES);
        namespaces->chunks[chunk].next = namespaces->free_chunk;
        namespaces->free_chunk = chunk;
        namespaces->free_chunk_count++;
        chunk = next;
    }
}

void qr_namespaces_remove(qr_namespaces *namespaces, quire_namespace_id id) {
    QR_ASSERT(id > 0 && qr_namespaces_in_use(namespaces, id));
    qr_namespace *entry = &namespaces->entries[id];
    uint32_t *link = &namespaces->buckets[entry->hash & namespaces->bucket_mask];
    while (*link != id) link = &namespaces->entries[*link].hash_next;
    *link = entry->hash_next;
    namespace_free_key(namespaces, entry->first_chunk);
    *entry = (qr_namespace){0};
}

quire_namespace_id qr_namespaces_next_idle(qr_namespaces *namespaces, qr_namespace_idle *idle, void *owner) {
    for (uint32_t i = 0; i < namespaces->count; i++) {
        namespaces->hand = namespaces->hand + 1 < namespaces->count ? namespaces->hand + 1 : 0;
        quire_namespace_id id = namespaces->hand;
        if (id == 0) continue;
        if (!namespaces->entries[id].in_use || idle(owner, id)) return id;
    }
    return NONE;
}

static bool namespace_never(void *owner, quire_namespace_id id) {
    (void)owner, (void)id;
    return false;
}

quire_namespace_id qr_namespaces_next_free(qr_namespaces *namespaces) {
    return qr_namespaces_next_idle(namespaces, namespace_never, NULL);
}
