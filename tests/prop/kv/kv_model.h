/* kv_model.h - a naive model of the KV manager: lists, linear searches, no sharing, nothing clever.
 *
 * The model knows which prefixes must be cached, what every live sequence holds, and what bytes each of its tokens must
 * have: a chained hash of namespace and all tokens up to it, so any block used at the wrong place shows. After every
 * operation model_settle compares everything with the manager. What was evicted is the manager's choice; that it was
 * evictable, and that exactly so much went, is not.
 */
#ifndef QR_TESTS_KV_MODEL_H
#define QR_TESTS_KV_MODEL_H

#include <quire/kv.h>

#include "base/random.h"

enum { MODEL_SEQUENCES = 6, MODEL_TOKENS = 48, MODEL_NAMESPACES = 3, MODEL_ENTRIES = 64, MODEL_EVICTED = 16384 };

typedef struct model_sequence {
    quire_seq_id id;
    bool live, forgotten;
    quire_namespace_id ns;
    uint32_t count;
    quire_token tokens[MODEL_TOKENS];
} model_sequence;

/* A cached prefix of whole blocks. */
typedef struct model_entry {
    quire_namespace_id ns;
    uint32_t count; /* tokens */
    quire_token tokens[MODEL_TOKENS];
} model_entry;

typedef struct model {
    quire_kv *kv;
    quire_kv_config config;
    quire_namespace_id namespaces[MODEL_NAMESPACES];
    model_sequence sequences[MODEL_SEQUENCES];
    model_entry cached[MODEL_ENTRIES];
    uint32_t cached_count;
    model_entry evicted[MODEL_EVICTED]; /* every prefix that ever went */
    uint32_t evicted_count;
    quire_kv_stats before;                 /* after the last operation */
    quire_seq_id stale;                    /* an id that was closed */
    uint32_t *memory[QUIRE_KV_GROUPS_MAX]; /* KV bytes when the manager has no storage */
    qr_random random;
    uint64_t now_us;
    uint64_t seed, step;
    const char *operation;
} model;

void model_create(model *m, const quire_kv_config *config, uint64_t seed);
void model_destroy(model *m);
/* One random operation, checked. */
void model_step(model *m);
/* Closes everything and checks that the idle manager holds only what the cache owns. */
void model_drain(model *m);
/* Seed of this run: QUIRE_SEED, else the given one. */
uint64_t model_seed(uint64_t otherwise);
#endif
