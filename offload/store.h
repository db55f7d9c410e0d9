/* store.h - a tier below the device behind opaque ids: records go in, come back checked, and are lost one day.
 *
 * A record is the bytes of one node's blocks (all groups, the "payload") and what proves them: namespace key, parent, token
 * ids, fingerprint, checksums. The store knows no tree, pool or policy; its owner (runtime/kv) says what to keep and where a
 * record hangs. qr_disk_open makes the one on disk (disk_store.h); tests have one under a virtual clock.
 *
 * All calls are for one thread, never wait for a disk and allocate nothing; work is done by threads of the store, and what
 * became of it comes out of poll. `wake` is called by those threads when poll has something new.
 *
 *     put_begin -> fill the payload -> put_submit ... PUT_DONE        the record can be read from PUT_DONE on
 *     get ... GET_DONE -> use the payload -> release
 *
 * A record lives until the owner drops it or the store says LOST. An id is not used again before that, and not before the
 * completions of gets on it are out.
 *
 * Rule of parents: put needs a parent that is not lost and not dropped, and a record whose parent goes must be dropped by
 * the owner (children first or parent first, both are fine). So every record in the store hangs together with a root.
 */
#ifndef QR_OFFLOAD_STORE_H
#define QR_OFFLOAD_STORE_H

#include <quire/types.h>

typedef struct qr_store qr_store;

typedef uint32_t qr_record_id;
#define QR_RECORD_NONE UINT32_MAX
#define QR_OWNER_NONE UINT32_MAX

/* What a block's bytes depend on besides namespace and tokens. All must agree for a record to be used. */
typedef struct qr_fingerprint {
    uint64_t weights;  /* every byte of the model */
    uint64_t layout;   /* block layout: groups, types, block_tokens, backend's order of parts */
    uint64_t numerics; /* version of docs/NUMERICS.md, backend */
    uint64_t adapter;
} qr_fingerprint;

typedef struct qr_record_info {
    const void *namespace_key;
    size_t namespace_bytes;    /* at most QR_RECORD_KEY_MAX (record.h), else put is refused */
    qr_record_id parent;       /* QR_RECORD_NONE: the first block of a prompt */
    uint32_t depth;            /* blocks up to and including this one: 1 for the first */
    const quire_token *tokens; /* [block_tokens] */
} qr_record_info;

/* Why put_begin said no. Counted by the owner. */
#define QR_STORE_REFUSAL_LIST(X)                                          \
    X(NONE, "none")                                                       \
    X(BUSY, "busy")         /* every write buffer is in use: try later */ \
    X(NO_SPACE, "no_space") /* disk full, or below the floor */           \
    X(BUDGET, "budget")     /* the day's write budget is used up */       \
    X(KEY, "namespace_key") /* too long to be stored */                   \
    X(PARENT, "parent")     /* not stored, or just lost */                \
    X(BROKEN, "broken")     /* the folder cannot be written */            \
    X(READ_ONLY, "read_only")
typedef enum qr_store_refusal {
#define QR_STORE_REFUSAL_ENUM(name, text) QR_STORE_##name,
    QR_STORE_REFUSAL_LIST(QR_STORE_REFUSAL_ENUM)
#undef QR_STORE_REFUSAL_ENUM
        QR_STORE_REFUSAL_COUNT
} qr_store_refusal;
const char *qr_store_refusal_name(qr_store_refusal refusal);

/* Something that went wrong with a file, for whoever runs the machine: where, and what. Never what a record holds. */
typedef enum qr_store_trouble_kind {
    QR_STORE_TROUBLE_DAMAGED, /* a record or a file that does not prove itself */
    QR_STORE_TROUBLE_ERROR    /* a call that failed, a file or folder that went */
} qr_store_trouble_kind;

typedef struct qr_store_trouble {
    qr_store_trouble_kind kind;
    uint64_t offset;  /* UINT64_MAX: none */
    uint64_t wall_ms; /* since 1970 */
    char file[40];    /* name in the folder; empty: the folder itself */
    char what[64];    /* cut to fit */
} qr_store_trouble;

typedef enum qr_store_event_kind {
    QR_STORE_PUT_DONE, /* status OK: published. Else the record is gone already (IO, NO_SPACE; NOT_FOUND: its parent went) */
    QR_STORE_GET_DONE, /* status OK: payload is valid and proved. IO, DAMAGED: the owner drops the record; NOT_FOUND: it was
                          dropped meanwhile; BUSY: it cannot be read now (too many open files), and stays, unless LOST follows.
                          payload is NULL then */
    QR_STORE_LOST,     /* its space was needed (or its file is gone): the record is gone already */
    QR_STORE_SEALED,   /* everything put before qr_store_seal is on stable storage; status */
    QR_STORE_TROUBLE,  /* see trouble; tag: how many before it were too many to be kept */
} qr_store_event_kind;

typedef struct qr_store_event {
    qr_store_event_kind kind;
    qr_record_id record;
    uint32_t owner;
    uint64_t tag; /* GET_DONE: the caller's */
    quire_status status;
    void *payload; /* GET_DONE: [payload_bytes], the caller's until release */
    /* GET_DONE with OK: what the record itself says it is, to be compared with what the owner wants; as long as payload.
     * Never NULL then: what does not say what it is proves nothing. */
    const quire_token *tokens; /* [block_tokens] */
    const void *namespace_key;
    size_t namespace_bytes;
    const qr_store_trouble *trouble; /* TROUBLE: until the next poll */
} qr_store_event;

typedef struct qr_store_stats {
    uint64_t cap_bytes, used_bytes; /* used: every file of the folder, whole */
    uint64_t record_bytes;          /* one record on disk, header and all */
    uint64_t payload_bytes;
    uint32_t record_count, record_max;
    uint32_t segment_count, foreign_segment_count; /* foreign: of another fingerprint */
    uint32_t lasting_max; /* records that can be put in a row, those carried along meanwhile included, before the first of them
                             may make room for the last; 0: no such limit */
    uint32_t reads_queued, writes_queued; /* now, those under way included */
    uint64_t put_total, put_bytes_total;  /* published payloads */
    uint64_t get_total, get_bytes_total;
    uint64_t device_written_bytes_total; /* headers, footers, copies forward and all: amplification = this / put bytes */
    uint64_t device_read_bytes_total;
    uint64_t read_us_total, write_us_total; /* time in system calls */
    uint64_t lost_total, carried_total, erased_total;
    uint64_t corrupt_total, io_error_total;
    uint64_t index_records_total, index_bytes_total, index_reads_total, index_us_total; /* of open */
    uint64_t index_orphans_total;             /* found without their parent, and dropped */
    uint64_t budget_bytes, budget_left_bytes; /* of today; budget 0: none is set */
    bool space_short;                         /* cap, floor or budget is near: admit only what was used twice */
} qr_store_stats;

/* A found record, parents before children. Returns the owner to note, or QR_OWNER_NONE to have it dropped. `foreign`: it is
 * of another fingerprint and cannot be used (record and parent are NONE); only tells why a lookup will miss; the return value
 * is ignored. parent_owner: of the parent, or QR_OWNER_NONE for a first block. */
typedef uint32_t qr_store_found(void *context, const qr_record_info *info, qr_record_id record, uint32_t parent_owner,
                                bool foreign);

typedef struct qr_store_ops {
    const char *name;
    /* Once, before anything else: every record that counts. */
    void (*index)(qr_store *store, qr_store_found *found, void *context);
    /* On NONE *record and *payload [payload_bytes, 4 KiB aligned] are set; fill the payload and submit, or abort. */
    qr_store_refusal (*put_begin)(qr_store *store, const qr_record_info *info, uint32_t owner, qr_record_id *record,
                                  void **payload);
    void (*put_submit)(qr_store *store, qr_record_id record);
    void (*put_abort)(qr_store *store, qr_record_id record); /* the id is free again; no event */
    /* False: no read buffer is free now. Records asked for in one go should be asked for in order of depth, rising or falling:
     * neighbours on disk are then read together when kick is called. */
    bool (*get)(qr_store *store, qr_record_id record, uint64_t tag);
    void (*kick)(qr_store *store); /* lets the readers see the gets since the last kick */
    void (*release)(qr_store *store, void *payload);
    void (*touch)(qr_store *store, qr_record_id record); /* it was of use: space is made elsewhere first */
    /* The record is gone for the owner at once: no event but GET_DONE with NOT_FOUND of gets under way. erase: also its bytes,
     * token ids and key, wherever they lie, as soon as the writer can (erasing counts what is left to do); without it they go
     * when the segment is next cleaned, at close at the latest, and after a crash the record may be found again. */
    void (*drop)(qr_store *store, qr_record_id record, bool erase);
    uint32_t (*erasing)(const qr_store *store);
    /* The same for what the folder holds of other fingerprints: the records with this namespace key, or with NULL all. Bytes of
     * records that are not in the store any more go too, whosever they were. A second call for the same may come any time. */
    void (*erase_foreign)(qr_store *store, const void *namespace_key, size_t namespace_bytes);
    void (*seal)(qr_store *store);
    /* File and offset of a published record, for a trouble that its owner found. False: nothing can be said. */
    bool (*where)(const qr_store *store, qr_record_id record, qr_store_trouble *trouble);
    bool (*poll)(qr_store *store, uint64_t now_us, qr_store_event *event); /* false: nothing new */
    /* Gets, puts, seals and erasures are under way. An erasure that only waits for a buffer of the owner's is not. */
    bool (*busy)(const qr_store *store);
    void (*stats)(const qr_store *store, qr_store_stats *stats);
    /* The region of all payload buffers, to be registered with a device. */
    void (*buffers)(const qr_store *store, void **base, size_t *size_bytes);
    /* Counts, links, parents. CORRUPT names the first violation. */
    quire_status (*check)(const qr_store *store, quire_error *error);
    /* Finishes what is under way, publishes an index of the open segment, closes. */
    void (*close)(qr_store *store);
} qr_store_ops;

struct qr_store {
    const qr_store_ops *ops;
};
#endif
