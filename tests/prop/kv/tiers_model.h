/* tiers_model.h - random life over the lower tiers: what any operation may find is checked by bytes, not by foresight.
 *
 * What is cached or stored where is the manager's choice. What must hold: every committed token of every sequence has the
 * bytes that follow from its namespace key and all tokens up to it; rows that are being computed are written by nobody else;
 * quire_kv_check agrees after every operation; and when all sequences are closed and all copies have ended, nothing is held.
 */
#ifndef QR_TESTS_TIERS_MODEL_H
#define QR_TESTS_TIERS_MODEL_H

#include "base/random.h"
#include "runtime/kv/kv_parts.h"
#include "tests/support/fake_store.h"

enum { TIERS_SEQUENCES = 5, TIERS_TOKENS = 64, TIERS_KEYS = 5, TIERS_PROMPTS = 12 };

typedef struct tiers_sequence {
    quire_seq_id id;
    bool live;
    bool loads;   /* began one since it was opened */
    uint32_t key; /* which namespace key */
    quire_namespace_id ns;
    uint32_t count, committed; /* tokens of its prompt, and those that are there */
    uint32_t computing;        /* rows under way: tokens [committed, computing) */
    quire_token tokens[TIERS_TOKENS];
} tiers_sequence;

typedef struct tiers_counts {
    uint64_t taken, host, disk, failed, abandoned, forked, refused, restarts, forgotten, copied;
} tiers_counts;

typedef struct tiers_options {
    quire_kv_config config; /* tiers.host_bytes is set by host_slots */
    uint32_t host_slots;
    /* Another device than the CPU's and device_sim. The manager does not reach its memory, so the model makes the copies that
     * are its owner's; the model itself may write there, as a kernel would. Fails the test if there is none to be had. */
    qr_device *(*make_device)(void);
    bool device_sim, has_store, faults, restarts;
    uint32_t record_max;
    uint64_t seed;
} tiers_options;

typedef struct tiers_model {
    tiers_options options;
    quire_kv *kv;
    qr_device *device; /* of make_device; the manager owns it */
    fake_store *fake;
    tiers_sequence sequences[TIERS_SEQUENCES];
    quire_token prompts[TIERS_PROMPTS][TIERS_TOKENS];
    tiers_counts counts;
    qr_random random;
    uint64_t now_us, step;
    const char *operation;
} tiers_model;

/* A pool of 28 blocks of four tokens: small enough for everything to happen soon. */
quire_kv_config tiers_model_config(uint32_t group_count);

void tiers_model_create(tiers_model *m, const tiers_options *options);
void tiers_model_step(tiers_model *m);
/* Closes all sequences, lets everything end, and checks that nothing is held. */
void tiers_model_drain(tiers_model *m);
/* So many steps, drained now and then. */
void tiers_model_live(tiers_model *m, uint32_t steps);
void tiers_model_destroy(tiers_model *m);
#endif
