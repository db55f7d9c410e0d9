/* kv.h - the KV manager: paged KV memory with exact prefix reuse.
 *
 * For any inference engine: it owns one pool of fixed-size KV blocks per KV group, a block table per sequence, and a
 * radix tree that finds cached prefixes. It moves no token through a model and knows no request or server.
 *
 * Thread: one object belongs to one thread at a time; nothing here locks, blocks or, after create, allocates.
 * Time never comes from a clock: the caller sets it (quire_kv_set_time), so runs can be replayed.
 *
 * The life of a sequence:
 *
 *   seq_open -> seq_attach (take the cached prefix of a prompt) -> { seq_reserve (blocks for tokens to come) ->
 *   compute K and V into the blocks of seq_table -> seq_commit (these tokens are written) }* -> seq_close
 *
 * A block becomes matchable by others when seq_commit completes it, never before. Closing keeps committed whole
 * blocks in the tree until their memory is needed.
 */
#ifndef QUIRE_KV_H
#define QUIRE_KV_H

#include <quire/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_kv quire_kv;

/* Layers that keep the same positions. */
typedef struct quire_kv_group {
    uint32_t layer_count;
    uint32_t kv_head_count;
    uint32_t key_dim;   /* elements of one key vector */
    uint32_t value_dim; /* elements of one value vector */
    quire_kv_type key_type;
    quire_kv_type value_type;
} quire_kv_group;

/* Where KV bytes live. NONE manages ids only: for simulators and for engines that own their KV memory. */
typedef enum quire_kv_storage { QUIRE_KV_STORAGE_NONE, QUIRE_KV_STORAGE_HOST } quire_kv_storage;

/* When a block is written to disk: as soon as it is complete, in idle bandwidth; only when its memory is needed; never
 * (what is there already is still read, also from a folder that cannot be written). */
typedef enum quire_kv_disk_write { QUIRE_KV_DISK_COMPLETE, QUIRE_KV_DISK_EVICT, QUIRE_KV_DISK_OFF } quire_kv_disk_write;

/* Tiers below the pool. All zero: none. A copy in a tier is used only when namespace, tokens, parent, fingerprint and
 * checksum agree; anything else is a miss. */
typedef struct quire_kv_tiers {
    uint64_t host_bytes;   /* pinned host memory behind a device whose memory is not the host's; INVALID elsewhere */
    const char *disk_path; /* a folder, made when missing; NULL = no disk. Copied */
    uint64_t disk_max_bytes;
    uint64_t disk_floor_bytes;      /* left free on its file system; 0 = the lesser of 1 GiB and 5 % */
    uint64_t disk_day_budget_bytes; /* written a day at most; 0 = no limit */
    quire_kv_disk_write disk_write;
    /* What the bytes of a block depend on besides tokens and this config, set by whoever computes them. */
    uint64_t weights_fingerprint, numerics_fingerprint, adapter_fingerprint;
    uint32_t verify_every;       /* 0 = off, 1 = always, N: every Nth request that could load recomputes instead and compares */
    void (*wake)(void *context); /* any thread: quire_kv_poll has something new; may be NULL */
    void *wake_context;
    bool (*cancelled)(
        void *context); /* create asks while it reads the folder, and ends with CANCELLED when true; may be NULL */
    void *cancelled_context;
} quire_kv_tiers;

enum { QUIRE_KV_DISK_NAMESPACES = 8192 };

typedef struct quire_kv_config {
    uint32_t block_tokens; /* >= 1; kernels want 16, 32, 64 or 128 */
    uint32_t group_count;  /* 1 .. QUIRE_KV_GROUPS_MAX */
    quire_kv_group groups[QUIRE_KV_GROUPS_MAX];
    uint32_t block_count;         /* blocks of each group's pool */
    uint32_t max_sequences;       /* live sequences at once */
    uint32_t max_sequence_tokens; /* tokens of one sequence at most */
    uint32_t max_namespaces;      /* 0 = 1,024; with a disk tier, which remembers many, QUIRE_KV_DISK_NAMESPACES */
    quire_kv_policy policy;
    quire_kv_storage storage;
    bool cache_disabled; /* nothing is ever matched or kept */
    quire_kv_tiers tiers;
} quire_kv_config;

/* Bytes of one block of a group, padding and all; bytes per token follow by division. Pure; 0 when the shape is
 * invalid or overflows. */
QUIRE_API uint64_t quire_kv_block_bytes(const quire_kv_group *group, uint32_t block_tokens);
/* KV payload of one token over all groups of the config, without padding. */
QUIRE_API uint64_t quire_kv_token_bytes(const quire_kv_config *config);
/* Everything quire_kv_create will take for this config: pools and bookkeeping, by the code that lays them out. Token
 * store and tables count in full (max_sequences * max_sequence_tokens); their untouched pages are never backed. 0 when
 * the config is invalid. */
QUIRE_API uint64_t quire_kv_memory_bytes(const quire_kv_config *config);

/* Takes all memory now. Errors: INVALID (field named), NO_MEMORY (bytes named); with a disk folder also IO (it cannot be made,
 * opened or trusted), BUSY (another process has it), UNSUPPORTED (its files are of a newer format) and CANCELLED (as the
 * config's `cancelled` said). On failure *kv is NULL. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_create(const quire_kv_config *config, quire_kv **kv, quire_error *error);
/* Sequences still open are closed. NULL is fine. */
QUIRE_API void quire_kv_destroy(quire_kv *kv);

/* Monotonic microseconds; feeds the eviction policy and pins. */
QUIRE_API void quire_kv_set_time(quire_kv *kv, uint64_t now_us);

/* Finds or makes the namespace of a key of any bytes. Only equal keys share blocks. A namespace stays valid while the
 * caller holds it (every open is paired with a close) or has sequences open in it. Where all places are taken one that
 * nobody uses gives way, with its cached blocks if it must. NO_MEMORY when every one is used, or when the bytes of a key
 * longer than QUIRE_NAMESPACE_KEY_MAX do not fit; up to that length a key never fails for its bytes. */
enum { QUIRE_NAMESPACE_KEY_MAX = 1080 };
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_namespace_open(quire_kv *kv, const void *key, size_t key_bytes,
                                                                quire_namespace_id *id);
/* The namespace of a key that has one now; makes none and holds none. */
QUIRE_API bool quire_kv_namespace_find(const quire_kv *kv, const void *key, size_t key_bytes, quire_namespace_id *id);
QUIRE_API void quire_kv_namespace_close(quire_kv *kv, quire_namespace_id id);

/* ---- sequences ---- */

/* Why a hit was as long as it was. */
#define QUIRE_KV_MISS_LIST(X)                                                                 \
    X(NONE, "none")                 /* as long as the rules allow */                          \
    X(NEVER_STORED, "never_stored") /* nothing cached goes on from here */                    \
    X(DIVERGED, "diverged")         /* cached text goes on with other tokens */               \
    X(EVICTED, "evicted")           /* was cached, its memory was needed */                   \
    X(NAMESPACE, "other_namespace") /* the same tokens are cached under another key */        \
    X(LIMIT, "limit")               /* the caller asked for no more */                        \
    X(DISABLED, "disabled")                                                                   \
    X(FINGERPRINT, "other_fingerprint")  /* stored by another model, layout or numerics */    \
    X(DAMAGED, "damaged")                /* was stored and did not prove itself */            \
    X(SLOWER, "slower_than_recomputing") /* stored, and loading it would have taken longer */ \
    X(VERIFYING, "verifying")            /* stored, and recomputed to be compared */          \
    X(ABANDONED, "load_abandoned")       /* the load took too long */
typedef enum quire_kv_miss {
#define QUIRE_KV_MISS_ENUM(name, text) QUIRE_KV_MISS_##name,
    QUIRE_KV_MISS_LIST(QUIRE_KV_MISS_ENUM)
#undef QUIRE_KV_MISS_ENUM
        QUIRE_KV_MISS_COUNT
} quire_kv_miss;
QUIRE_API const char *quire_kv_miss_name(quire_kv_miss miss);

typedef struct quire_kv_match {
    uint32_t token_count;              /* tokens that need not be computed: whole blocks plus the tail */
    uint32_t block_count;              /* whole blocks among them */
    uint32_t tail_tokens;              /* 0 .. block_tokens-1, from a block that goes on differently; reused by copying it */
    uint32_t stored_tokens;            /* whole blocks that go on behind block_count and could be loaded; not in token_count */
    uint32_t host_tokens, disk_tokens; /* of token_count: what was loaded, by tier. Filled by whoever loads */
    quire_kv_miss miss;                /* why not one more; with stored_tokens: behind these */
} quire_kv_match;

/* The longest cached prefix of tokens[0, count), at most `limit` tokens of it. Read-only: no policy state changes. */
QUIRE_API void quire_kv_match_prefix(const quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count,
                                     uint32_t limit, quire_kv_match *match);

/* An empty sequence. NO_MEMORY when max_sequences are open. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_seq_open(quire_kv *kv, quire_namespace_id ns, quire_seq_id *seq);

/* Gives an empty sequence the longest cached prefix of a prompt, at most `limit` tokens (an engine passes count-1:
 * the last token must be computed to have logits). Whole blocks are shared by reference; a tail is copied into a fresh
 * block when one can be had, else left out. The copy is done here (host storage) or listed for quire_kv_take_copies.
 * INVALID when the sequence has tokens or room already. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_seq_attach(quire_kv *kv, quire_seq_id seq, const quire_token *tokens,
                                                            uint32_t count, uint32_t limit, quire_kv_match *match);

/* Makes room for the sequence to hold token_count tokens in all, evicting cached blocks that nobody uses. A shared last
 * block that would be written is replaced by a private copy. All or nothing. Errors: NO_BLOCKS (try later, nothing
 * changed), TOO_LARGE (more than max_sequence_tokens or than the whole pool), QUEUE_FULL (without host storage: take
 * the listed copies first). */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_seq_reserve(quire_kv *kv, quire_seq_id seq, uint32_t token_count);

/* The K and V of the next `count` tokens are fully written, in every layer. Completed blocks enter the tree; when an
 * equal block is there already the sequence goes on with that one and its own copy is freed. INVALID when there is no
 * room for them (reserved_tokens); after a fork, reserve again before writing into a shared block. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_seq_commit(quire_kv *kv, quire_seq_id seq, const quire_token *tokens,
                                                            uint32_t count);

/* A second sequence with the same tokens that shares every block, a part-filled last one included (copied on write). */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_seq_fork(quire_kv *kv, quire_seq_id seq, quire_seq_id *child);

/* Keeps the first token_count committed tokens and gives back what is reserved beyond them. INVALID for more than are
 * committed. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_seq_truncate(quire_kv *kv, quire_seq_id seq, uint32_t token_count);

/* Returns every block exactly once. NOT_FOUND for an id that is not live; nothing changes then. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_seq_close(quire_kv *kv, quire_seq_id seq);
/* As if the namespace of this fresh sequence were forgotten now: until it is closed its blocks never enter the tree and, with
 * wipe, are overwritten when they become free, and the key goes with its last user. For text that was given before
 * quire_kv_forget_... . INVALID once it has blocks. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_seq_forget(quire_kv *kv, quire_seq_id seq, bool wipe);

typedef struct quire_kv_seq_info {
    quire_namespace_id ns;
    uint32_t token_count;      /* committed */
    uint32_t reserved_tokens;  /* tokens it may hold as it is: room in the table that is its own to write */
    const quire_token *tokens; /* [token_count], borrowed until the next call that changes this sequence */
} quire_kv_seq_info;
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_seq_get(const quire_kv *kv, quire_seq_id seq, quire_kv_seq_info *info);

/* The block table of a group: [*count] ids in token order, borrowed until the next call that changes this sequence. */
QUIRE_API const quire_block_id *quire_kv_seq_table(const quire_kv *kv, quire_seq_id seq, uint32_t group, uint32_t *count);

/* ---- loading from lower tiers ----
 *
 * Blocks that lie in host memory or on disk are loaded into blocks that the sequence has reserved, from the back of the run
 * to its front, while the owner computes from the front: where the two meet, the loaded blocks are committed. So a load that
 * is given up has cost almost nothing.
 *
 *   seq_attach -> seq_reserve (all of the prompt) -> load_plan -> load_begin -> { poll; load_take; say how far is computed
 *   next (load_computing), at most load_state.front_tokens; compute; commit }* until not active
 *
 * A load only ever fills blocks that its sequence holds, all of them since before it began, so no load waits for another. */

typedef struct quire_kv_load {
    uint32_t begin_block, end_block; /* of the sequence's table */
    uint32_t host_blocks, disk_blocks;
    uint64_t estimate_us; /* until all of it is there, from measured bandwidth and what is queued */
} quire_kv_load;

/* What could be loaded behind the tokens that an attached sequence has: at most up to `limit` tokens of `tokens`. No block:
 * begin == end. INVALID when not everything up to `limit` is reserved. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_load_plan(const quire_kv *kv, quire_seq_id seq, const quire_token *tokens,
                                                           uint32_t count, uint32_t limit, quire_kv_load *load);
/* Begins it. The tokens are copied. With `verify` nothing is loaded: the blocks are recomputed by the owner, compared with
 * what is stored when they are committed, and records that differ are dropped. INVALID when the sequence loads already. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_load_begin(quire_kv *kv, quire_seq_id seq, const quire_token *tokens,
                                                            const quire_kv_load *load, bool verify);
/* The next load should be a verification (verify_every). Counts. */
QUIRE_API bool quire_kv_verify_next(quire_kv *kv);

typedef struct quire_kv_load_state {
    bool active;            /* blocks are on their way, or wait to be taken */
    uint32_t front_tokens;  /* tokens that may be computed now: behind them lie blocks that are loaded or on their way */
    uint32_t loaded_tokens; /* of the run's back, arrived and not yet taken */
    uint32_t coming_tokens; /* on their way */
    uint64_t coming_us;     /* until those have arrived, by measured bandwidth; UINT64_MAX: nothing measured */
    uint32_t host_tokens, disk_tokens; /* taken so far */
    bool failed;                       /* not all of it can be had any more: the rest must be computed */
    quire_kv_miss cause;               /* why then: DAMAGED, or EVICTED when it was dropped or forgotten meanwhile */
} quire_kv_load_state;
QUIRE_API void quire_kv_load_get_state(const quire_kv *kv, quire_seq_id seq, quire_kv_load_state *state);
/* The owner computes up to token_count next (at most front_tokens): what lies before is not loaded into any more. Until it is
 * said again, or load_take is called. A commit of tokens behind front_tokens may be refused (INVALID). */
QUIRE_API void quire_kv_load_computing(quire_kv *kv, quire_seq_id seq, uint32_t token_count);

/* Commits loaded blocks that begin exactly where the committed tokens end. Returns the tokens gained, 0 when the two have not
 * met. No row of this sequence may be under way. */
QUIRE_API uint32_t quire_kv_load_take(quire_kv *kv, quire_seq_id seq);
/* Stops it: what is on its way will not be waited for; what has arrived can still be taken. */
QUIRE_API void quire_kv_load_abandon(quire_kv *kv, quire_seq_id seq);

/* ---- lower tiers as a whole ---- */

/* Moves everything on that is under way: spills, writes, loads, erasures. Never waits. True: something changed (blocks became
 * free, a load came further). */
QUIRE_API bool quire_kv_poll(quire_kv *kv);
/* Blocks are about to be given back, by copies under way or because a victim waits (shortly) to be written: seq_reserve's
 * NO_BLOCKS may be over after the next poll. */
QUIRE_API bool quire_kv_busy(const quire_kv *kv);
/* How long a waiter may sleep if nobody wakes it: 0 = poll at once (a device's copies cannot wake), UINT64_MAX = no limit. */
QUIRE_API uint64_t quire_kv_poll_after_us(const quire_kv *kv);
/* The owner computes nothing now: blocks that are worth it may be written although the policy would wait. */
QUIRE_API void quire_kv_set_idle(quire_kv *kv, bool idle);

/* Writes everything resident that is not on disk yet, hottest first; poll until flush_left is 0, or stop early. What is refused
 * (QUIRE_KV_REFUSED_) is not left to be written; when the flush ends quire_kv_tiers_stats says how much of what was cached is
 * not on disk, for whatever reason. A flush writes no more than fits: it makes no room by throwing out what it wrote itself. */
QUIRE_API void quire_kv_flush_begin(quire_kv *kv);
QUIRE_API uint32_t quire_kv_flush_left(const quire_kv *kv);
QUIRE_API void quire_kv_flush_end(quire_kv *kv);
/* What an erasure has still to overwrite: records, buffers and calls of the disk, and free blocks and slots in memory, whose
 * bytes may be anybody's. Poll until it is 0. */
QUIRE_API uint32_t quire_kv_erasing(const quire_kv *kv);

typedef enum quire_kv_tier { QUIRE_KV_TIER_DEVICE, QUIRE_KV_TIER_HOST, QUIRE_KV_TIER_DISK, QUIRE_KV_TIER_COUNT } quire_kv_tier;
QUIRE_API const char *quire_kv_tier_name(quire_kv_tier tier); /* "device", "host", "disk" */

/* Why something was not stored or not loaded. */
#define QUIRE_KV_REFUSAL_LIST(X)                                                                   \
    X(BUSY, "busy")           /* store: every buffer was in use */                                 \
    X(NO_SPACE, "no_space")   /* store: disk full, or below its floor */                           \
    X(BUDGET, "budget")       /* store: the day's bytes are written */                             \
    X(ONE_TOUCH, "one_touch") /* store: space or budget is short and nobody came back to it yet */ \
    X(KEY, "namespace_key")   /* store: the key is too long */                                     \
    X(PARENT, "parent")       /* store: what comes before is not stored */                         \
    X(BROKEN, "broken")       /* store: the tier cannot be written */                              \
    X(SLOWER, "slower")       /* load: recomputing is faster */                                    \
    X(ABANDONED, "abandoned") /* load: took too long */
typedef enum quire_kv_refusal {
#define QUIRE_KV_REFUSAL_ENUM(name, text) QUIRE_KV_REFUSED_##name,
    QUIRE_KV_REFUSAL_LIST(QUIRE_KV_REFUSAL_ENUM)
#undef QUIRE_KV_REFUSAL_ENUM
        QUIRE_KV_REFUSED_COUNT
} quire_kv_refusal;
QUIRE_API const char *quire_kv_refusal_name(quire_kv_refusal refusal);
/* The owner's: it decided against a load. In blocks. */
QUIRE_API void quire_kv_count_refusal(quire_kv *kv, quire_kv_refusal refusal, uint32_t blocks);

typedef struct quire_kv_tier_stats {
    bool present;
    uint64_t total_bytes, used_bytes;
    uint32_t block_count;                 /* blocks that have a copy in it */
    uint32_t loads_queued, stores_queued; /* blocks, now */
    uint64_t loaded_blocks_total, loaded_bytes_total;
    uint64_t stored_blocks_total, stored_bytes_total;
    double load_seconds_total, store_seconds_total; /* of transfers, overlapping ones counted once each */
    double load_bytes_per_second;                   /* measured, recent; 0 before the first */
    uint64_t hit_tokens_total;                      /* attached or taken from it */
    uint64_t written_bytes_total;                   /* to the medium, everything; write amplification = this / stored bytes */
    uint64_t evicted_blocks_total;                  /* space was needed */
    uint64_t damaged_total, error_total;
    uint64_t budget_bytes, budget_left_bytes; /* of today; 0: no budget */
} quire_kv_tier_stats;

/* Where something went wrong below the pool, for whoever runs the machine. Never what a block holds. */
typedef enum quire_kv_trouble_kind {
    QUIRE_KV_TROUBLE_DAMAGED, /* a record or a file that does not prove itself */
    QUIRE_KV_TROUBLE_ERROR,   /* a call that failed, a file or folder that went */
    QUIRE_KV_TROUBLE_MISMATCH /* recomputed, and not what was stored (verify_every) */
} quire_kv_trouble_kind;
typedef struct quire_kv_trouble {
    quire_kv_trouble_kind kind;
    uint64_t offset;  /* in the file; UINT64_MAX: none */
    uint64_t unix_ms; /* when it was found */
    char file[40];    /* name in the folder of the disk tier; empty: the folder itself, or host memory; "?": of a record that is
                         not there any more */
    char what[64];
} quire_kv_trouble;
enum { QUIRE_KV_TROUBLES = 8 };

typedef struct quire_kv_tiers_stats {
    quire_kv_tier_stats tiers[QUIRE_KV_TIER_COUNT];
    uint64_t refused_blocks_total[QUIRE_KV_REFUSED_COUNT];
    uint64_t verified_blocks_total, verify_mismatches_total;
    uint64_t erased_blocks_total;
    /* Of the last create: how the index came back. */
    uint64_t index_records, index_bytes, index_reads, index_us;
    /* Of the latest flush. When it has ended: blocks that are cached and, refused or lost again, not on disk; what was listed
     * since it began does not count. Failed: it has not ended by itself, or what is there may not last. */
    uint32_t flush_refused;
    bool flush_failed;
    /* The latest: number n, from 0 on, lies at n % QUIRE_KV_TROUBLES, while it is one of the last so many. `what` is empty
     * where there were too many at a time to keep more than their number. */
    uint64_t troubles_total;
    quire_kv_trouble troubles[QUIRE_KV_TROUBLES];
} quire_kv_tiers_stats;
QUIRE_API void quire_kv_get_tiers_stats(const quire_kv *kv, quire_kv_tiers_stats *stats);

/* ---- a folder of the disk tier, from outside ----
 *
 * For tools. Needs no manager, reads also while a daemon has the folder open, and changes nothing but for quire_kv_store_clear.
 * Any thread; what is handed to a visitor is borrowed until it returns. */

typedef struct quire_kv_disk_plan {
    uint64_t record_bytes;  /* one block of every group on disk, header and all */
    uint64_t cap_min_bytes; /* the smallest disk_max_bytes that can be served */
    uint32_t block_max;     /* blocks that disk_max_bytes holds at most; 0: it is too small */
} quire_kv_disk_plan;
/* What the disk tier of a config comes to. Pure; zeros without one. */
QUIRE_API void quire_kv_plan_disk(const quire_kv_config *config, quire_kv_disk_plan *plan);

typedef struct quire_kv_store_segment {
    const char *file; /* name in the folder */
    uint64_t file_bytes, id;
    uint64_t weights_fingerprint, layout_fingerprint, numerics_fingerprint, adapter_fingerprint;
    uint32_t slot_count, block_tokens;
    bool sealed; /* has its index: nothing is being added. The next owner may open it again while it has room */
} quire_kv_store_segment;

typedef struct quire_kv_store_record {
    const char *file;
    uint64_t offset, record_bytes;  /* of its header; on disk, header and all */
    uint64_t serial, parent_serial; /* 0: first block of a prompt */
    uint32_t depth, block_tokens;
    const void *namespace_key;
    size_t namespace_bytes;
} quire_kv_store_record;

typedef enum quire_kv_store_flaw {
    QUIRE_KV_FLAW_DAMAGED,   /* does not hold, and was complete */
    QUIRE_KV_FLAW_UNFINISHED /* does not hold, in a segment that is not sealed: a write that was cut off or is under way */
} quire_kv_store_flaw;

typedef struct quire_kv_store_visitor {
    void *context;
    /* Each may be NULL. A segment comes before its records. A file that is no readable segment is a flaw. */
    void (*segment)(void *context, const quire_kv_store_segment *segment);
    void (*record)(void *context, const quire_kv_store_record *record);
    void (*flaw)(void *context, quire_kv_store_flaw flaw, const char *file, uint64_t offset, const char *reason);
} quire_kv_store_visitor;

typedef struct quire_kv_store_summary {
    bool in_use;    /* a daemon has the folder */
    uint64_t owner; /* its process id */
    uint32_t segment_count;
    uint64_t file_bytes, record_count, damaged_count, unfinished_count;
} quire_kv_store_summary;

/* Reads the headers of all records, and with `payloads` also everything else of them, checksums and all. Errors: IO (the folder
 * cannot be read), NO_MEMORY. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_store_inspect(const char *folder, bool payloads,
                                                               const quire_kv_store_visitor *visitor,
                                                               quire_kv_store_summary *summary, quire_error *error);
/* Removes every segment, and tells how many (*segments and *bytes, never NULL). Errors: BUSY (a daemon has it: the process),
 * IO. */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_store_clear(const char *folder, uint32_t *segments, uint64_t *bytes,
                                                             quire_error *error);

/* ---- memory ---- */

/* Base address and stride of a group's pool; block b starts at base + b * stride. NULL without storage. */
QUIRE_API void *quire_kv_pool_base(const quire_kv *kv, uint32_t group, size_t *stride_bytes);

/* Where one part of (layer of the group, KV head) begins inside a block; SIZE_MAX when the type has no such part. Keys are
 * stored transposed [key_dim][block_tokens], values [block_tokens][value_dim], scales [block_tokens] fp32. */
typedef enum quire_kv_part { QUIRE_KV_KEYS, QUIRE_KV_VALUES, QUIRE_KV_KEY_SCALES, QUIRE_KV_VALUE_SCALES } quire_kv_part;
QUIRE_API size_t quire_kv_part_offset(const quire_kv *kv, uint32_t group, uint32_t layer, uint32_t kv_head, quire_kv_part part);

/* Blocks that an engine without host storage must copy, in order, before its next write. Drains the list: returns how
 * many were written to out (at most max); call until 0. Host storage copies by itself and never lists any. */
typedef struct quire_kv_copy {
    uint32_t group;
    quire_block_id from, to;
} quire_kv_copy;
QUIRE_API size_t quire_kv_take_copies(quire_kv *kv, quire_kv_copy *out, size_t max);

/* ---- cache ---- */

/* Asks that the cached prefix of tokens be kept: a soft pin. Higher priority is revoked later. Returns tokens pinned. */
QUIRE_API uint32_t quire_kv_pin(quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count,
                                uint32_t priority, uint64_t ttl_us);

/* Frees up to `blocks` cached blocks that nobody uses, worst first; returns how many. */
QUIRE_API uint32_t quire_kv_evict(quire_kv *kv, uint32_t blocks);
/* Forgets what is cached in one namespace, or in all, in every tier. Blocks in use are forgotten as soon as their users end,
 * and are never matched again; nothing that a sequence open now holds or will hold enters the tree, also when it has no token
 * yet. Returns blocks freed now.
 * With wipe all of it is erased, until quire_kv_erasing is 0: from disk as soon as the disk can; what is freed now is
 * overwritten now, and what was evicted or ended earlier, whoever's it was, by polls, or when a block is handed out again
 * before that. What is in use goes with its last user; so does the rest of a block that somebody else is filling, where older
 * bytes may lie, unless he fills it first. So do the keys, the id with them, unless the namespace is opened again; without a
 * user they go now. Only memory that the CPU can reach is overwritten: not a GPU's, and no storage of the owner's. */
QUIRE_API uint32_t quire_kv_forget_namespace(quire_kv *kv, quire_namespace_id ns, bool wipe);
/* The same by its key, which need not be a namespace's now: with wipe, a disk folder is also rid of what other models left
 * there under this key, and of all they left when everything is forgotten. */
QUIRE_API uint32_t quire_kv_forget_key(quire_kv *kv, const void *key, size_t key_bytes, bool wipe);
QUIRE_API uint32_t quire_kv_forget_all(quire_kv *kv, bool wipe);

/* ---- observation ---- */

typedef struct quire_kv_stats {
    /* Blocks of one group's pool; free + cached + used = total at every instant. */
    uint32_t block_total;
    uint32_t block_free;   /* hold nothing */
    uint32_t block_cached; /* in the tree only: reclaimable */
    uint32_t block_used;   /* in some sequence's table */
    uint32_t sequence_count;
    uint32_t node_count; /* blocks known to the tree */
    uint64_t tokens_cached;
    /* Counters since create. */
    uint64_t lookups_total;       /* seq_attach calls */
    uint64_t lookup_tokens_total; /* tokens asked for */
    uint64_t hit_tokens_total;    /* tokens attached */
    uint64_t inserted_blocks_total;
    uint64_t evicted_blocks_total;
    uint64_t deduplicated_blocks_total;
    uint64_t copied_blocks_total;
    /* Memory. */
    uint64_t pool_bytes;        /* all groups */
    uint64_t bookkeeping_bytes; /* everything else */
} quire_kv_stats;
QUIRE_API void quire_kv_get_stats(const quire_kv *kv, quire_kv_stats *stats);

/* Verifies every invariant: states, references, tables, tree, counts. Changes nothing. CORRUPT names the first
 * violation. O(blocks + nodes). */
QUIRE_API QUIRE_MUST_CHECK quire_status quire_kv_check(const quire_kv *kv, quire_error *error);

#ifdef __cplusplus
}
#endif
#endif
