/* tiers.h - what lies below the pool, as the files of this folder share it.
 *
 * tiers.c       create, destroy, poll, statistics
 * transfers.c   copies under way between blocks and host memory
 * spill.c       eviction: to the host tier, to the store, or for good
 * writes.c      records of what is resident: in idle time, at eviction, for a flush
 * loads.c       loads as their owner sees them; load_moves.c: what arrives for them
 * restore.c     the index that a store brings along
 * verify.c      recomputed blocks against what is stored
 * erasing.c     bytes in memory that an erasure must find gone
 * rate.c        how fast a tier is
 *
 * How it holds together (tiers_check.c proves it):
 * - The payload of a node is its blocks of all groups, one after the other. A copy under way holds one reference to each block
 *   it reads or writes, and its slot or buffer, until the device says that it is done; whatever became of the node meanwhile,
 *   nothing of that is used for anything else before.
 * - A record number in the tree is one of ours, once; so is a host slot. Only stored nodes have slots.
 * - A load locks the path down to what it reads, so its nodes stay the ones they were; what a tier has of them may still go.
 *   Places of a load that its sequence has committed past, or given up, are nobody's: what arrives for them is dropped.
 *
 * With the CPU's device every copy is done when its call returns: nothing is ever under way, and no path waits.
 */
#ifndef QR_KV_TIERS_H
#define QR_KV_TIERS_H

#include <quire/kv.h>

#include "base/block_mover.h"
#include "blockmgr/arena.h"
#include "offload/files.h"
#include "offload/host_arena.h"
#include "offload/record.h"
#include "offload/store.h"
#include "prefix_cache/tree.h"
#include "runtime/kv/rate.h"

enum {
    KV_TRANSFERS = 128,          /* copies under way in each direction: more than a round can use */
    KV_READS = 256,              /* gets under way; stores have fewer buffers */
    KV_READS_PER_LOAD = 32,      /* of one load at once */
    KV_HOST_LOADS_PER_POLL = 32, /* blocks from the host tier for all loads */
    KV_WRITES_PER_POLL = 4,      /* a write is a copy of a payload on the owner's thread: about 0.1 ms */
    KV_WRITES_PER_IDLE_POLL = 16,
    KV_WRITES_PER_FLUSH_POLL = 32,
    KV_AHEAD_SHARE = 16,        /* policy evict: writing begins when less than this share of the pool is free */
    KV_CLEAN_SHARE = 2,         /* and then goes on until this share of what is cached could go at once */
    KV_WRITES_AT_EVICTION = 32, /* a victim and what must be written before it */
    KV_WAIT_US = 100000,        /* an eviction waits for the store no longer than this, */
    KV_WAIT_SHARE = 10,         /* and for no more than this share of all time */
    KV_CALM_US = 10 * 1000000,  /* so that a disk that cannot keep up is not written to again and again */
    KV_WIPE_BYTES = 4 << 20,    /* overwritten for an erasure in one poll: about 0.5 ms */
    KV_LOOK_US = 1000,          /* how often a store is asked whether space is short */
    KV_LOOKS_PER_POLL = 64,     /* unsaved nodes that are looked at and not written */
    KV_VERIFY_JOBS = 8,         /* blocks compared at once */
    KV_VERIFY_WAITING = 4096    /* and waiting for it; what does not fit is not verified */
};

/* ---- copies under way ---- */

typedef enum kv_transfer_kind {
    KV_TO_SLOT,     /* blocks -> a slot of the host tier */
    KV_TO_RECORD,   /* blocks -> a write buffer, submitted when it is there */
    KV_TO_SCRATCH,  /* blocks -> memory where they are compared */
    KV_FROM_SLOT,   /* a slot -> blocks of a load */
    KV_FROM_PAYLOAD /* a read buffer -> blocks of a load */
} kv_transfer_kind;

typedef struct kv_transfer {
    kv_transfer_kind kind;
    bool failed;    /* the device refused it */
    bool cancelled; /* TO_RECORD: nobody wants the record any more */
    bool wipe;      /* blocks that become free with it are overwritten */
    qr_device_event done;
    quire_block_id blocks[QUIRE_KV_GROUPS_MAX];
    qr_node_id node;
    uint32_t slot, record;
    void *payload;
    uint32_t row, place, serial; /* of the load, or the verification's job in `row` */
    uint64_t started_us;
} kv_transfer;

/* In order of submission, which is the order in which a stream completes. */
typedef struct kv_transfer_queue {
    kv_transfer items[KV_TRANSFERS];
    uint32_t first, count;
} kv_transfer_queue;

/* ---- the host tier ---- */

typedef struct kv_slot {
    uint32_t user_count;    /* copies under way, comparisons */
    bool taken;             /* a node's, or still used */
    bool orphan;            /* its node let it go: free when nobody uses it */
    bool wipe;              /* and overwritten then */
    bool written;           /* since it was overwritten */
    bool owed;              /* to be overwritten before anybody gets it */
    qr_device_event filled; /* what it holds is there */
} kv_slot;

/* ---- records ---- */

typedef enum kv_record_state {
    KV_RECORD_NONE,
    KV_RECORD_BEGUN,     /* a gather fills its buffer */
    KV_RECORD_SUBMITTED, /* the store writes it */
    KV_RECORD_PUBLISHED  /* can be read */
} kv_record_state;

typedef struct kv_read {
    bool used;
    bool verify; /* row is the job */
    uint32_t row, place, serial;
    uint64_t started_us;
} kv_read;

/* ---- loads ---- */

typedef enum kv_place {
    KV_PLACE_NONE,     /* to be asked for or computed, or no more ours */
    KV_PLACE_READING,  /* the store was asked */
    KV_PLACE_COPYING,  /* a copy into the sequence's block is under way */
    KV_PLACE_ARRIVED,  /* it is there */
    KV_PLACE_DROPPING, /* a copy is under way, and will not be used */
    KV_PLACE_STATES = 7,
    KV_PLACE_HOST = 8 /* with a state: it came from host memory */
} kv_place;

/* Of a sequence. Places are blocks of its table. */
typedef struct kv_load {
    bool active, verify, abandoned, failed;
    bool locks;                    /* the nodes of places [0, limit) */
    bool hurt;                     /* a node of its path lost its copies: look at it */
    quire_kv_miss cause;           /* why it failed */
    uint32_t serial;               /* tells what arrives for an earlier load of this row */
    uint32_t begin, end;           /* what is still wanted */
    uint32_t limit;                /* where `end` was at first */
    uint32_t asked;                /* from here on everything was asked for */
    uint32_t host_left, disk_left; /* blocks of each tier that were not asked for yet */
    uint32_t computing;            /* tokens that the owner computes */
    uint32_t read_count;           /* places in READING */
    uint32_t copy_count;           /* in COPYING or DROPPING */
    uint32_t arrived_count;
    uint32_t host_tokens, disk_tokens; /* taken */
    uint32_t list_place;               /* in the list of active ones */
} kv_load;

/* ---- verification ---- */

typedef enum kv_verify_state { KV_VERIFY_FREE, KV_VERIFY_READING, KV_VERIFY_READY, KV_VERIFY_COPYING } kv_verify_state;

typedef struct kv_verify_job {
    kv_verify_state state;
    qr_node_id node;
    uint32_t record, slot; /* what it is compared with: one of them */
    quire_block_id blocks[QUIRE_KV_GROUPS_MAX];
    void *payload; /* from the store */
} kv_verify_job;

typedef struct kv_verify_waiting {
    qr_node_id node;
    uint32_t record;
} kv_verify_waiting;

/* ---- all of it ---- */

typedef enum kv_flush_stage { KV_FLUSH_OFF, KV_FLUSH_RESIDENT, KV_FLUSH_HOST, KV_FLUSH_SEAL, KV_FLUSH_SEALING } kv_flush_stage;

typedef struct kv_flush {
    kv_flush_stage stage;
    uint32_t resident_left; /* of the unsaved list, when it began */
    uint32_t host_left;     /* stored nodes without a record */
    qr_node_id cursor;      /* among them */
    uint64_t begun_count;   /* records begun by it */
    uint64_t carried_from;  /* what the store had carried along when it began */
    uint64_t begun_max;     /* records that it may begin, those carried along meanwhile included */
} kv_flush;

typedef struct kv_tier_counters {
    uint64_t loaded_blocks, stored_blocks, hit_tokens, evicted_blocks, load_us, store_us;
} kv_tier_counters;

/* What the arena must have room for. */
typedef struct kv_tier_sizes {
    uint32_t slot_count, record_max;
    bool lists_copies; /* the CPU cannot reach the pool: copies are the owner's */
} kv_tier_sizes;

typedef struct kv_tiers {
    bool present;
    bool has_host;
    uint64_t payload_bytes;                /* 0 without storage */
    uint64_t rate_bytes;                   /* that rates count a block for */
    uint64_t offsets[QUIRE_KV_GROUPS_MAX]; /* of a group's block in a payload */
    kv_tier_sizes sizes;
    qr_block_mover movers[QUIRE_KV_GROUPS_MAX];
    qr_store *store;     /* NULL: none */
    void *store_buffers; /* registered with the device */
    qr_host_arena host;
    kv_slot *slots;      /* [slot_count] */
    uint32_t owed_slots; /* free ones */
    uint32_t slot_hand;  /* where overwriting them goes on */
    uint8_t *records;    /* [record_max] kv_record_state */
    bool *of_flush;      /* [record_max] begun by the flush under way */
    kv_load *loads;      /* [max_sequences] */
    uint32_t *load_list; /* [max_sequences] rows of active loads, in the order in which they began */
    uint32_t load_count;
    uint32_t host_loads_left; /* in this poll */
    uint8_t *load_places;     /* [max_sequences][row_capacity] kv_place */
    qr_node_id *load_nodes;   /* [max_sequences][row_capacity] */
    uint32_t row_capacity;
    kv_transfer_queue gathers, scatters;
    kv_read reads[KV_READS];
    uint32_t read_count;
    uint32_t begun_count;       /* records in BEGUN */
    kv_verify_job *jobs;        /* [KV_VERIFY_JOBS] */
    kv_verify_waiting *waiting; /* [KV_VERIFY_WAITING], a ring */
    uint32_t waiting_first, waiting_count;
    unsigned char *scratch; /* [payload_bytes] registered; NULL when the pool can be read in place */
    qr_region scratch_region;
    bool scratch_owed; /* to be overwritten when no copy into it is under way */
    kv_flush flush;
    uint32_t seals_under_way; /* asked for; a flush ends with the last */
    uint32_t flush_refused;   /* as of the last end (quire_kv_tiers_stats) */
    bool flush_failed;
    bool idle;
    uint32_t idle_looks; /* unsaved nodes not looked at yet in this idle time */
    bool more;           /* the last poll stopped before it was done */
    bool changed;        /* since the last poll */
    bool space_short;    /* as of looked_us */
    uint64_t looked_us;
    bool waits; /* an eviction, for the store: since when, and how long it may */
    uint64_t wait_since_us, wait_left_us, wait_ended_us;
    bool slower;      /* the latest load was refused as slower than computing: no eviction waits for such a store */
    uint64_t calm_us; /* a record was lost or not written: until then only what has its parent's record is written */
    uint32_t erasing; /* the same */
    uint32_t verify_turn;
    uint32_t gone_record; /* the store has let go of it already, while copies are released */
    bool erase;           /* while copies are released: bytes too */
    uint32_t gone_count;
    uint64_t dropped_count; /* published records that their nodes have let go of */
    kv_tier_counters counters[QUIRE_KV_TIER_COUNT];
    uint64_t refused[QUIRE_KV_REFUSED_COUNT];
    uint64_t verified, mismatches;
    uint64_t damaged; /* read and not what it should be, besides those that the store noticed */
    uint64_t trouble_total;
    quire_kv_trouble troubles[QUIRE_KV_TROUBLES]; /* number n at n % QUIRE_KV_TROUBLES */
    qr_rate rates[QUIRE_KV_TIER_COUNT];
    unsigned char key[QR_RECORD_KEY_MAX]; /* a namespace's, while a record is begun */
    uint32_t *check_nodes;                /* [nodes] */
    uint8_t *check_marks;                 /* [record_max or slot_count] */
} kv_tiers;

/* ---- tiers.c ---- */

/* What is wrong with the tiers of a config. device_is_host: its memory cannot have a host tier. */
QUIRE_MUST_CHECK quire_status qr_kv_tiers_config_check(const quire_kv_config *config, bool device_is_host, quire_error *error);
bool qr_kv_tiers_can_be_numbered(const quire_kv_config *config, const kv_tier_sizes *sizes);
/* What is asked for can be had: before anything is laid out for it. */
QUIRE_MUST_CHECK quire_status qr_kv_tiers_budget_check(const quire_kv_config *config, const kv_tier_sizes *sizes,
                                                       quire_error *error);
uint64_t qr_kv_payload_bytes(const quire_kv_config *config);
/* By the config alone, for plans; a store that is there already says its own maximum. */
kv_tier_sizes qr_kv_tier_sizes(const quire_kv_config *config);
bool qr_kv_tiers_bytes(const quire_kv_config *config, uint64_t *bytes);
void qr_kv_tiers_lay_out(quire_kv *kv, const kv_tier_sizes *sizes, qr_arena *arena);
/* Takes the store (NULL: opens the one of the config over these files). The pools are there. After a failure: destroy. */
QUIRE_MUST_CHECK quire_status qr_kv_tiers_create(quire_kv *kv, qr_store *store, qr_files *files, quire_error *error);
void qr_kv_tiers_destroy(quire_kv *kv);
uint64_t qr_kv_now_us(const quire_kv *kv);
void qr_kv_refuse(quire_kv *kv, qr_store_refusal refusal);
/* What was stored is not what it should be: in the store, where this record is (QR_RECORD_NONE: it is not there any more), or
 * in a slot of the host tier. */
void qr_kv_note_trouble(quire_kv *kv, quire_kv_trouble_kind kind, bool in_store, uint32_t record, const char *what);

/* ---- transfers.c ---- */

/* Room for one more gather. For scatters whoever asks for bytes sees to it (load_moves.c). */
bool qr_kv_can_gather(const quire_kv *kv);
/* Begins a copy between the blocks and host memory; `t` says what for, its blocks are referenced here. Done at once with a
 * device that is: then all that follows from it has happened when the call returns. */
void qr_kv_gather(quire_kv *kv, kv_transfer t, void *host);
void qr_kv_scatter(quire_kv *kv, kv_transfer t, const void *host);
/* Ends the copies that are done. */
void qr_kv_transfers_poll(quire_kv *kv);
/* Waits for all of them, or for the loss of the device. */
void qr_kv_transfers_drain(quire_kv *kv);
/* Blocks that nothing but a copy under way keeps. */
uint32_t qr_kv_leaving(const quire_kv *kv);
/* Whatever becomes free with a copy under way is overwritten. */
void qr_kv_transfers_wipe(quire_kv *kv);

/* ---- spill.c ---- */

/* Gives up an evictable leaf: to a lower tier when one takes it. False when that cannot begin now. */
bool qr_kv_spill(quire_kv *kv, qr_node_id victim);
/* A node lets go of a slot; a copy may still use it. */
void qr_kv_slot_let_go(quire_kv *kv, uint32_t slot, bool wipe);
void qr_kv_slot_use(quire_kv *kv, uint32_t slot);
void qr_kv_slot_unuse(quire_kv *kv, uint32_t slot);
/* A node lost its record (records_only) or all it had below the device, and with it what lies below. `gone`: the record that
 * the store has let go of already, or QR_RECORD_NONE. */
void qr_kv_lose(quire_kv *kv, qr_node_id node, qr_ghost_cause cause, bool records_only, uint32_t gone);
/* Lets go of one node's copies (qr_tree_release_copies; owner is the manager). */
void qr_kv_release_copies(void *owner, qr_node_id node, uint32_t host, uint32_t record);

/* ---- writes.c ---- */

typedef enum kv_write_result { KV_WRITE_BEGUN, KV_WRITE_BUSY, KV_WRITE_REFUSED } kv_write_result;
/* Begins records for a node and what must be written before it, at most `count`. BEGUN: the node has one. */
kv_write_result qr_kv_write(quire_kv *kv, qr_node_id node, uint32_t count, uint32_t *written);
/* At eviction: admission applies, and a refusal is counted. BUSY: the victim should wait a little, which is bounded. */
kv_write_result qr_kv_write_victim(quire_kv *kv, qr_node_id node);
/* When an eviction that waits for the store will wait no longer; ends it when that is now. UINT64_MAX: none does. */
uint64_t qr_kv_wait_left_us(const quire_kv *kv);
void qr_kv_wait_poll(quire_kv *kv);
void qr_kv_writes_poll(quire_kv *kv);
/* A seal is done. */
void qr_kv_flush_sealed(quire_kv *kv, quire_status status);
/* Somebody used the node: what has a copy of it keeps it longer. */
void qr_kv_touch_record(quire_kv *kv, qr_node_id node);
void qr_kv_write_begun(quire_kv *kv, const kv_transfer *t);
void qr_kv_write_done(quire_kv *kv, const qr_store_event *event);
void qr_kv_record_lost(quire_kv *kv, const qr_store_event *event);

/* ---- loads.c ---- */

/* Stored blocks that go on from a node and can be read now; the last in *node. */
uint32_t qr_kv_stored_run(const quire_kv *kv, qr_node_id from, const quire_token *words, uint32_t blocks, qr_node_id *node);
/* What is on its way for this row is nobody's any more: its blocks leave the sequence, or nothing is under way. */
void qr_kv_load_end(quire_kv *kv, uint32_t row);
/* Nothing of it will be taken, and its nodes may go; it stays until no copy into the sequence's blocks is under way. */
void qr_kv_load_drop(quire_kv *kv, uint32_t row);
/* These tokens may be committed: no copy into their blocks is under way. */
bool qr_kv_load_allows(quire_kv *kv, uint32_t row, const quire_token *tokens, uint32_t count);
/* The sequence has committed so far. */
void qr_kv_load_passed(quire_kv *kv, uint32_t row);
/* The block of this place is recomputed to be compared with what is stored. */
bool qr_kv_load_verifies(const quire_kv *kv, uint32_t row, uint32_t place);
/* A node of some load's path lost its copies; then, when the tree may be changed again: looks after those loads. */
void qr_kv_loads_hurt(quire_kv *kv, qr_node_id node);
void qr_kv_loads_heal(quire_kv *kv);

/* ---- load_moves.c ---- */
void qr_kv_load_set_place(quire_kv *kv, uint32_t row, uint32_t place, uint8_t state);
/* From this place on it cannot be had. What was damaged says so, whatever else failed too. */
void qr_kv_load_fail(quire_kv *kv, uint32_t row, uint32_t place, quire_kv_miss cause);
void qr_kv_load_finish(quire_kv *kv, uint32_t row);
void qr_kv_loads_poll(quire_kv *kv);
/* A copy for a load is done; a get ended. */
void qr_kv_load_copied(quire_kv *kv, const kv_transfer *t);
void qr_kv_read_done(quire_kv *kv, const qr_store_event *event);
/* A free entry for a get, and its tag. NULL: too many are under way. */
kv_read *qr_kv_read_begin(quire_kv *kv, uint64_t *tag);
void qr_kv_read_cancel(quire_kv *kv, kv_read *read);

/* ---- restore.c ---- */
void qr_kv_restore(quire_kv *kv);

/* ---- verify.c ---- */

/* A recomputed block was committed whose node has this record, or had this slot: the slot is taken. */
void qr_kv_verify_record(quire_kv *kv, qr_node_id node);
bool qr_kv_verify_slot(quire_kv *kv, qr_node_id node, uint32_t slot);
void qr_kv_verify_poll(quire_kv *kv);
void qr_kv_verify_read(quire_kv *kv, uint32_t job, const qr_store_event *event);
void qr_kv_verify_copied(quire_kv *kv, const kv_transfer *t);
void qr_kv_verify_end(quire_kv *kv);

/* ---- erasing.c ---- */

/* Whatever lies in memory that holds nothing now is overwritten by polls, and counted until then (quire_kv_erasing). */
void qr_kv_erasing_begin(quire_kv *kv);
/* Overwrites a bounded part of it. Some was: true. */
bool qr_kv_erasing_poll(quire_kv *kv);
/* Free blocks and slots, and the scratch, that are not overwritten yet. */
uint32_t qr_kv_erasing_left(const quire_kv *kv);
/* Overwrites a slot; nobody uses it. */
void qr_kv_slot_wipe(quire_kv *kv, uint32_t slot);

/* ---- tiers_check.c ---- */

/* Adds what copies under way and comparisons hold of a group's blocks; what loads lock. */
void qr_kv_tiers_count_references(const quire_kv *kv, uint32_t group, uint32_t *counts);
void qr_kv_tiers_count_locks(const quire_kv *kv, uint32_t *counts);
QUIRE_MUST_CHECK quire_status qr_kv_tiers_check(const quire_kv *kv, quire_error *error);

static inline uint8_t kv_place_state(uint8_t place) { return place & KV_PLACE_STATES; }
static inline uint8_t *kv_load_place(const kv_tiers *tiers, uint32_t row, uint32_t place) {
    return &tiers->load_places[(uint64_t)row * tiers->row_capacity + place];
}
static inline qr_node_id *kv_load_node(const kv_tiers *tiers, uint32_t row, uint32_t place) {
    return &tiers->load_nodes[(uint64_t)row * tiers->row_capacity + place];
}
#endif
