/* fake_store.h - a store (offload/store.h) in memory for tests: completions when the test wants them, failures on demand.
 *
 * Work completes after a drawn number of polls, and not before its bytes have passed at the given speed in the virtual time
 * that poll is told; both default to at once. What is kept outlives the qr_store: closing and opening again is a restart, and
 * fake_store_kill makes the next close forget what was not published, as kill -9 does.
 *
 * It is strict where a real one may be kind: a get without kick never completes, the buffers of a completed write and of a
 * released read are overwritten, and check finds records whose parent is gone. Thread: one. Nothing is allocated after create.
 */
#ifndef QR_TESTS_FAKE_STORE_H
#define QR_TESTS_FAKE_STORE_H

#include "offload/store.h"

typedef struct fake_store_config {
    uint64_t payload_bytes; /* 0: ids only */
    uint32_t block_tokens;
    uint32_t record_max;
    uint32_t write_buffers, read_buffers;                   /* 0 = 4 */
    uint32_t delay_polls_max;                               /* work completes after 0 .. this many polls */
    bool reorder;                                           /* what is due comes out in any order; else as submitted */
    uint64_t read_bytes_per_second, write_bytes_per_second; /* of virtual time; 0 = no limit. One record at a time */
    uint64_t read_latency_us, write_latency_us;
    uint64_t record_bytes; /* that time is charged for; 0 = payload_bytes */
    uint64_t seed;
} fake_store_config;

/* May be changed at any time. Percentages are drawn per operation. */
typedef struct fake_store_faults {
    qr_store_refusal refuse; /* what put_begin says; NONE: nothing special */
    bool space_short;
    uint32_t put_fail_percent;   /* PUT_DONE with IO */
    uint32_t get_fail_percent;   /* GET_DONE with IO */
    uint32_t get_damage_percent; /* GET_DONE with DAMAGED */
    uint32_t lose_percent;       /* a poll loses some published record */
    uint32_t get_refuse_percent; /* get says that no buffer is free */
    bool late_events; /* what was noted before a drop comes out all the same, when the number may be another's: no store should
                       */
    quire_status seal_status;
    uint32_t seals_kept; /* so many seals are not told of yet */
    /* What the figures say, besides what is so. */
    uint32_t lasting_max, erasing;
    uint64_t carried_total;
} fake_store_faults;

typedef struct fake_store fake_store;

fake_store *fake_store_create(const fake_store_config *config);
void fake_store_destroy(fake_store *fake); /* closed, or never opened */
/* The store to hand to a KV manager, which closes it. Completes what was under way when it was closed. */
qr_store *fake_store_open(fake_store *fake);

fake_store_faults *fake_store_faults_of(fake_store *fake);
void fake_store_set_speed(fake_store *fake, uint64_t read_bytes_per_second, uint64_t write_bytes_per_second);
/* Nothing completes while held. */
void fake_store_hold(fake_store *fake, bool hold);
/* The next poll tells this trouble, and that so many before it were not kept. */
void fake_store_complain(fake_store *fake, const qr_store_trouble *trouble, uint64_t missed);
/* The next close forgets what is not published. */
void fake_store_kill(fake_store *fake);
/* When the next completion is due in virtual time: UINT64_MAX when nothing is under way, 0 when it is due by polls alone. */
uint64_t fake_store_next_us(const fake_store *fake);

/* Published records. find: by depth and its own tokens. */
uint32_t fake_store_record_count(const fake_store *fake);
bool fake_store_find(const fake_store *fake, const quire_token *tokens, uint32_t depth, qr_record_id *record);
void *fake_store_payload(fake_store *fake, qr_record_id record); /* of a published one; change it as you like */
quire_token *fake_store_tokens(fake_store *fake, qr_record_id record);
void fake_store_set_key(fake_store *fake, qr_record_id record, const void *key, size_t key_bytes);
void fake_store_lose(fake_store *fake, qr_record_id record);   /* LOST comes out of the next poll */
void fake_store_damage(fake_store *fake, qr_record_id record); /* gets of it end with DAMAGED */
/* The record of another fingerprint: found again by index, never used. */
void fake_store_make_foreign(fake_store *fake, qr_record_id record);
/* Buffers that are handed out now: 0 when the owner is at rest. */
uint32_t fake_store_held_buffers(const fake_store *fake);
/* Records dropped with erase since create. */
uint32_t fake_store_erased(const fake_store *fake);
#endif
