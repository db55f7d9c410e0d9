/* disk_rig.h - a store in a fresh folder, with chains of records whose bytes follow from their tokens. */
#ifndef QR_TESTS_DISK_RIG_H
#define QR_TESTS_DISK_RIG_H

#include <criterion/criterion.h>

#include "offload/disk_store.h"

enum { RIG_TOKENS = 4, RIG_PAYLOAD = 8192, RIG_RECORDS_MAX = 4096, RIG_PATH_MAX = 256 };

typedef struct disk_rig {
    char path[RIG_PATH_MAX];
    qr_disk_config config;
    qr_store *store;
    /* What poll said, by kind; the last of each. */
    uint32_t put_ok, put_failed, get_ok, get_failed, lost_count, sealed_count;
    quire_status last_put, last_get, last_seal;
    qr_store_trouble trouble;
    uint64_t trouble_count, trouble_missed;
    uint32_t lost_owners[RIG_RECORDS_MAX];
    bool lost[RIG_RECORDS_MAX]; /* by owner */
    /* What index found. */
    uint32_t found_count, foreign_count, found_owners[RIG_RECORDS_MAX];
    qr_record_id found_ids[RIG_RECORDS_MAX]; /* by owner */
    uint32_t found_parents[RIG_RECORDS_MAX];
} disk_rig;

/* A folder that is not there yet, and a configuration that fits it. */
void rig_init(disk_rig *rig, uint64_t cap_bytes);
void rig_open(disk_rig *rig);   /* must succeed; indexes */
void rig_close(disk_rig *rig);  /* none is fine */
void rig_deinit(disk_rig *rig); /* closes, and removes the folder */

/* The tokens of a record are {owner, 1, 2, ...}, its key is "key", its payload follows from the owner. */
qr_record_id rig_put_keyed(disk_rig *rig, uint32_t owner, qr_record_id parent, uint32_t depth, const char *key);
qr_record_id rig_put(disk_rig *rig, uint32_t owner, qr_record_id parent, uint32_t depth); /* submits; must not be refused */
qr_store_refusal rig_try_put(disk_rig *rig, uint32_t owner, qr_record_id parent, uint32_t depth, qr_record_id *record);
void rig_fill_payload(void *payload, uint32_t owner);
bool rig_payload_is(const void *payload, uint32_t owner);

/* Polls until the store is not busy. Payloads that come are compared with those of their owners, and released. */
void rig_settle(disk_rig *rig);
void rig_poll(disk_rig *rig); /* what is there now */
/* Asks for one record and waits. */
quire_status rig_get(disk_rig *rig, qr_record_id record);
/* Until so many are lost in all. */
void rig_wait_lost(disk_rig *rig, uint32_t count);
quire_status rig_seal(disk_rig *rig);
qr_store_stats rig_stats(const disk_rig *rig);

/* Files of the folder: path of the n-th segment, oldest first; false when there are fewer. */
bool rig_segment_path(const disk_rig *rig, uint32_t n, char path[2 * RIG_PATH_MAX]);
uint32_t rig_segment_count(const disk_rig *rig);
uint64_t rig_disk_bytes(const disk_rig *rig); /* blocks that the folder and its files have */
/* The bytes occur somewhere in the folder's files. */
bool rig_folder_has(const disk_rig *rig, const void *bytes, size_t size_bytes);
void rig_flip(const char *path, uint64_t offset);
void rig_copy_folder(const disk_rig *rig, const char *to); /* as kill -9 would leave it; the lock is not copied */
void rig_remove_folder(const char *path);
void rig_fail_open(disk_rig *rig, quire_status status, const char *text); /* open fails with this, and text is in its words */
#endif
