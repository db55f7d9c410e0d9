/* namespaces.h - keys of any bytes and the small ids they get.
 *
 * Keys are compared byte by byte, never by hash alone: only equal keys may share KV. Their bytes lie in chunks of a fixed
 * store: QUIRE_NAMESPACE_KEY_MAX bytes for every namespace and never less than QR_NAMESPACE_STORE_BYTES, so that keys up to
 * that length always fit, and a few longer ones beside shorter ones.
 *
 * An id is in use from its first open until another key needs its place; the owner says which may give way: never one that
 * is held open or has a sequence. Id 0 is the empty key and never gives way.
 *
 * Thread: one at a time. Nothing is allocated after init.
 */
#ifndef QR_KV_NAMESPACES_H
#define QR_KV_NAMESPACES_H

#include <quire/kv.h>

#include "blockmgr/arena.h"

enum {
    QR_NAMESPACES_DEFAULT = 1024,
    QR_NAMESPACES_DEFAULT_DISK = QUIRE_KV_DISK_NAMESPACES, /* with a disk tier */
    QR_NAMESPACE_STORE_BYTES = 65536,
    QR_NAMESPACE_CHUNK_BYTES = 60
};

typedef struct qr_namespace_chunk {
    unsigned char bytes[QR_NAMESPACE_CHUNK_BYTES];
    uint32_t next;
} qr_namespace_chunk;

typedef struct qr_namespace {
    uint64_t hash;
    size_t key_bytes;
    uint32_t first_chunk;
    uint32_t hash_next;
    uint32_t open_count;
    uint32_t sequence_count;
    bool in_use;
    bool forgotten; /* and not used anew since: it goes with the last who has it */
} qr_namespace;

typedef struct qr_namespaces {
    qr_namespace *entries; /* [count] */
    uint32_t *buckets;     /* [bucket_mask + 1] */
    qr_namespace_chunk *chunks;
    uint32_t count;
    uint32_t bucket_mask;
    uint32_t chunk_count;
    uint32_t free_chunk;
    uint32_t free_chunk_count;
    uint32_t hand; /* where the search for an idle one goes on */
} qr_namespaces;

/* Takes everything from the arena, which may only be counting. count >= 1. */
void qr_namespaces_init(qr_namespaces *namespaces, uint32_t count, qr_arena *arena);

/* The id of a key, or UINT32_MAX. */
quire_namespace_id qr_namespaces_find(const qr_namespaces *namespaces, const void *key, size_t key_bytes);
/* A key of so many bytes could be entered now. */
bool qr_namespaces_fits(const qr_namespaces *namespaces, size_t key_bytes);
/* Enters a new key at a place that is not in use. False when its bytes do not fit. */
bool qr_namespaces_add(qr_namespaces *namespaces, quire_namespace_id id, const void *key, size_t key_bytes);
/* It is the key of a namespace in use, byte by byte. */
bool qr_namespaces_is_key(const qr_namespaces *namespaces, quire_namespace_id id, const void *key, size_t key_bytes);
/* Copies the key of a namespace in use to key [key_bytes]. */
void qr_namespaces_copy_key(const qr_namespaces *namespaces, quire_namespace_id id, unsigned char *key);
void qr_namespaces_remove(qr_namespaces *namespaces, quire_namespace_id id);

/* Goes once round the table, from where the last search ended: the next place for which `idle` says yes or that is not
 * in use; UINT32_MAX when there is none. Never 0. */
typedef bool qr_namespace_idle(void *owner, quire_namespace_id id);
quire_namespace_id qr_namespaces_next_idle(qr_namespaces *namespaces, qr_namespace_idle *idle, void *owner);

/* A place that is not in use, or UINT32_MAX. */
quire_namespace_id qr_namespaces_next_free(qr_namespaces *namespaces);

static inline bool qr_namespaces_in_use(const qr_namespaces *namespaces, quire_namespace_id id) {
    return id < namespaces->count && namespaces->entries[id].in_use;
}
#endif
