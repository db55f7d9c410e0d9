/* store_model.h - a naive model of the disk store: what every chain of blocks should be, and a driver that compares.
 *
 * There is a fixed universe of chains, a forest: a node is one block after its parent. A node is absent, being put, or live;
 * what its payload must be follows from its number. The model does random operations on a real store over faulty files,
 * ends it (a clean close, a kill, a power cut) and opens it again. What must hold:
 *   - a payload that comes back is that of its chain, and a record that is found again is of a chain that was put;
 *   - every put ends in one PUT_DONE, every get in one GET_DONE, LOST comes once; ids in use are not given out again;
 *   - after a close or a kill all live nodes are found; after a power cut those that a seal covered;
 *   - the folder never takes more than its cap; what was erased is in no file.
 *
 * Every failure names the seed. Thread: one; the store has its own.
 */
#ifndef QR_TESTS_STORE_MODEL_H
#define QR_TESTS_STORE_MODEL_H

#include <semaphore.h>

#include "base/random.h"
#include "offload/disk_store.h"
#include "tests/support/faulty_files.h"

enum {
    MODEL_NODES = 480,
    MODEL_SPACES = 4, /* namespaces */
    MODEL_DEPTH = 12,
    MODEL_TOKENS = 4,
    MODEL_HELD = 3,      /* payloads that are kept for a while */
    MODEL_OWNER_BASE = 7 /* owners are not indices */
};

typedef enum node_state { NODE_ABSENT, NODE_PUTTING, NODE_LIVE } node_state;

typedef struct model_node {
    uint32_t parent; /* UINT32_MAX: none */
    uint32_t space, depth;
    quire_token tokens[MODEL_TOKENS];
    node_state state;    /* of the open store */
    qr_record_id record; /* PUTTING, LIVE */
    bool found;          /* by the last index */
    bool refused;        /* the index was told to drop it, or what it hangs on */
    bool must;           /* the next index must find it */
    bool on_disk;        /* its bytes may be in a file */
    bool sealing;        /* live when the seal under way began */
    bool sealed;         /* live since a seal: survives a power cut */
    bool erasing;        /* dropped with erase; the store has not said yet that it is done */
    bool erased;         /* must not be found, nor its bytes */
} model_node;

typedef enum record_state { RECORD_FREE, RECORD_PUTTING, RECORD_LIVE, RECORD_GONE } record_state;

typedef struct model_record {
    record_state state;
    uint32_t node;
    uint32_t gets; /* under way */
    bool unfound;  /* a get of it said NOT_FOUND */
} model_record;

typedef enum model_end { END_CLOSE, END_KILL, END_POWER } model_end;

typedef struct model_options {
    uint64_t seed;
    uint32_t payload_pages;
    uint32_t cap_factor; /* cap: so many times the smallest */
    const char *faults;  /* while it runs, never while it opens; NULL: none */
    bool corrupting;     /* they damage what is written: records may be missing, never wrong */
    bool calm;           /* waits for the store after each operation, so that a seed replays exactly */
    bool foreign;        /* sometimes another model's process has the folder */
    bool erases;
    bool kills, power; /* ends that happen besides a close */
} model_options;

typedef struct model_coverage {
    uint64_t puts, put_failed, put_orphaned, refused[QR_STORE_REFUSAL_COUNT];
    uint64_t gets, get_failed, get_gone, lost, dropped, erased, seals, troubles;
    uint64_t closes, kills, cuts, found, found_foreign, duplicates, scans;
} model_coverage;

typedef struct store_model {
    model_options options;
    qr_random random;
    char folder[64];
    qr_disk_config config;
    faulty_files *faulty;
    faults faults;
    qr_store *store;
    sem_t woken;
    uint32_t model; /* whose fingerprint: 0 or 1 */
    model_node nodes[2][MODEL_NODES];
    model_record *records; /* [record_max] */
    uint32_t record_max;
    void *held[MODEL_HELD];
    uint32_t held_count, gets_under_way;
    bool seal_under_way;
    bool faulted; /* faults are on */
    bool ended;   /* the instant of a kill is over */
    uint64_t now_us, steps;
    model_coverage coverage;
} store_model;

void model_create(store_model *m, const model_options *options);
void model_destroy(store_model *m);
/* One operation; sometimes an end and a new beginning. */
void model_step(store_model *m);
/* Waits until everything under way is over, then checks all that holds in quiet. */
void model_settle(store_model *m);

/* ---- between the model's files ---- */

/* Says what failed, with the seed, and aborts: the store's threads are still there. */
_Noreturn void model_fail(const store_model *m, const char *file, int line, const char *what);
#define MODEL_ASSERT(m, x) ((x) ? (void)0 : model_fail(m, __FILE__, __LINE__, #x))

/* store_bytes.c: what nodes look like, and what lies in files */
void model_grow_forest(store_model *m);
void model_fill(const store_model *m, uint32_t node, unsigned char *payload);
void model_compare(const store_model *m, uint32_t node, const unsigned char *payload);
void model_key(const store_model *m, uint32_t space, char key[48]);
void model_check_cap(const store_model *m);
void model_check_erased(store_model *m);

/* store_life.c: ends and beginnings */
void model_open(store_model *m);
void model_restart(store_model *m, model_end end);
void model_set_faults(store_model *m, bool on);
/* store_model.c */
bool model_take_event(store_model *m);
void model_random_call(store_model *m);
void model_drain(store_model *m);
void model_release_held(store_model *m);
#endif
