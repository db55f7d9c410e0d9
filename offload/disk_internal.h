/* disk_internal.h - what the parts of the disk store share.
 *
 *   disk_store.c    the ops and the life of the object            disk_writer.c   the thread that writes
 *   disk_sizes.c    sizes and counts from a configuration         disk_reclaim.c  room for another segment
 *   disk_table.c    records and segments in memory                disk_clean.c    bytes of dropped records go
 *   disk_index.c    a folder becomes a table                      disk_reader.c   the threads that read
 *   disk_folder.c   the folder itself: owner, lock, names         disk_foreign.c  other models' segments
 *   disk_budget.c   bytes a day                                   disk_io.c       counted file calls
 *   disk_trouble.c  what went wrong, for the owner                disk_watch.c    what others do to folder and files
 *   disk_wipe.c     erased, but still in memory                   segment_file.c  one segment's file
 *
 * Who may touch what: everything in qr_disk below `lock` is read and changed with the lock held, by any thread; no thread
 * holds it during a file call, so the owner of the store never waits for a disk. What lies in `writer` is the writer thread's
 * alone (and of open and close, when there is no such thread). The rest does not change after open.
 *
 * A record's place (segment, slot) changes only while it is LIVE and under the lock; a reader notes it when it begins and pins
 * the segment, whose file it opens for itself. So files may go at any time: a reader then fails, or reads what was there, and
 * what it read is compared with the table's record in any case.
 */
#ifndef QR_OFFLOAD_DISK_INTERNAL_H
#define QR_OFFLOAD_DISK_INTERNAL_H

#include <pthread.h>

#include "base/list.h"
#include "base/memory.h"
#include "offload/disk_budget.h"
#include "offload/disk_folder.h"
#include "offload/disk_io.h"
#include "offload/disk_sizes.h"
#include "offload/segment_file.h"

#define QR_SEGMENT_NONE UINT32_MAX
enum { QR_DISK_TROUBLES = 16 };
enum { QR_DISK_FORGETS_MAX = 8 }; /* more namespaces than that at a time: every foreign segment goes */

typedef enum qr_disk_record_state {
    QR_RECORD_FREE,    /* in the free list */
    QR_RECORD_FILLING, /* between put_begin and put_submit */
    QR_RECORD_WRITING, /* submitted, not published */
    QR_RECORD_LIVE,    /* published, in the list of its segment */
    QR_RECORD_LOST,    /* in the list of those that the owner must be told of */
    QR_RECORD_FAILED,  /* its put failed, and the owner has not heard it */
    QR_RECORD_GONE     /* not the owner's any more; held by gets or by the writer only */
} qr_disk_record_state;

typedef struct qr_disk_record {
    uint64_t serial; /* 0: free */
    uint64_t parent_serial;
    uint64_t digest;
    qr_record_id parent; /* good while that record has parent_serial */
    uint32_t owner;
    uint32_t segment, slot; /* LIVE */
    uint32_t next, prev;    /* LIVE: list of the segment; LOST: list of the lost; FREE: next free */
    uint32_t child_count;   /* LIVE records whose parent this is */
    uint16_t get_count;     /* gets not yet out of poll */
    uint8_t state;          /* qr_disk_record_state */
    uint8_t put;            /* from FILLING until PUT_DONE is out: which */
    bool touched;           /* since it was written where it is */
} qr_disk_record;

typedef enum qr_disk_segment_state {
    QR_SEGMENT_FREE,
    QR_SEGMENT_OURS,    /* sealed, or to be appended to: see writer.segment */
    QR_SEGMENT_FOREIGN, /* another fingerprint; only its size is known */
    QR_SEGMENT_DOOMED   /* no record is in it any more; its file goes as soon as the writer can */
} qr_disk_segment_state;

typedef struct qr_disk_segment {
    uint64_t id, file_bytes;
    qr_segment_shape shape;
    uint32_t used_slots; /* slots behind these were never written */
    uint32_t first;      /* LIVE records */
    uint32_t live_count;
    uint32_t read_count; /* reads under way */
    uint8_t state;
    bool dirty;       /* has bytes of records that are gone, or copies of some that lie elsewhere */
    bool tail_dirty;  /* may have such behind its used slots too */
    bool suspect;     /* has slots that a former process emptied, as far as it knew */
    bool unsealed;    /* no valid footer lies in its file, or none that lasts */
    bool sync_failed; /* and a later sync does not bring back what was dropped then: its records are to be written once more
                         before it gets a footer, so that a footer always speaks of records that last */
} qr_disk_segment;

/* A record of a segment that goes. */
typedef struct qr_disk_member {
    uint64_t serial;
    qr_record_id record;
    uint32_t slot; /* of the copy */
    bool wanted, copied;
} qr_disk_member;

/* One per read buffer. */
typedef enum qr_disk_get_state {
    QR_GET_FREE,
    QR_GET_STAGED,
    QR_GET_QUEUED,
    QR_GET_READING,
    QR_GET_DONE,
    QR_GET_LENT
} qr_disk_get_state;

typedef struct qr_disk_get {
    qr_list link;
    unsigned char *page; /* header page, payload behind it */
    uint64_t tag;
    qr_record_id record;
    uint8_t state;
    bool used, wipe; /* used: since it was overwritten; wipe: when it becomes free, for an erasure that waits for it */
    quire_status status;
    /* Noted by the reader: what must lie there. */
    uint32_t slot;
    uint64_t serial, parent_serial, digest;
    /* Found there. */
    const unsigned char *namespace_key;
    size_t namespace_bytes;
    char what[sizeof((qr_store_trouble *)0)->what]; /* DAMAGED: what does not hold */
} qr_disk_get;

/* One per write buffer. */
typedef enum qr_disk_put_state { QR_PUT_FREE, QR_PUT_FILLING, QR_PUT_QUEUED, QR_PUT_WRITING, QR_PUT_DONE } qr_disk_put_state;

typedef struct qr_disk_put {
    qr_list link;
    unsigned char *page;
    qr_record_id record;
    uint8_t state;
    bool dropped;    /* while it was being written */
    bool used, wipe; /* as of a get */
    quire_status status;
    qr_record_header header;
    unsigned char namespace_key[QR_RECORD_KEY_MAX];
} qr_disk_put;

/* A namespace that is to go from segments of other fingerprints. */
typedef struct qr_disk_forget {
    size_t key_bytes;
    unsigned char key[QR_RECORD_KEY_MAX];
} qr_disk_forget;

typedef struct qr_disk_writer {
    uint32_t segment; /* that is appended to; QR_SEGMENT_NONE */
    bool sealed;      /* its footer on disk holds and lasts */
    bool footer_left; /* one may hold there, and must go before something is appended */
    qr_segment_file file;
    qr_footer footer;             /* of it */
    unsigned char *footer_bytes;  /* [footer_bytes_max] */
    unsigned char *scratch_bytes; /* [footer_bytes_max] for other footers */
    unsigned char *record;        /* header page and payload, for carrying */
    unsigned char *page;          /* 4 KiB */
    unsigned char *namespace_key; /* [QR_RECORD_KEY_MAX] */
    qr_disk_member *members;      /* [slots_max] */
    uint32_t *inner_children;     /* [slots_max] children that they have among each other */
    unsigned char *wanted;        /* [slots_max] */
    bool lacks_folder;            /* the path does not lead to it */
    uint64_t recycled_bytes;      /* given back below the floor, and not taken again yet */
    qr_disk_io io;
} qr_disk_writer;

/* Before something that failed is tried again: longer each time. */
typedef struct qr_disk_pause {
    uint64_t until_us, length_us; /* 0: none */
} qr_disk_pause;

/* What opening has read, until index has told it. */
typedef struct qr_disk_found {
    struct qr_found_segment *segments; /* heap; NULL: nothing */
    uint32_t *by_index;                /* heap [segment_max]: which of them a segment of the table is */
    uint32_t segment_count;
    uint32_t record_count; /* ids 0 .. are in order of serial */
} qr_disk_found;

typedef struct qr_disk {
    qr_store store;
    qr_disk_config config; /* path and files are set, counts resolved */
    qr_disk_sizes sizes;
    qr_region memory, buffers;
    qr_disk_folder folder; /* the writer's */
    const char *reach;     /* of it: what file calls name it by; config.path is what people are told */
    bool read_only;        /* nothing is ever written: neither records nor what is to be erased */
    pthread_t writer_thread, *reader_threads;
    uint32_t reader_threads_started;
    bool writer_started;
    qr_disk_found found;
    qr_disk_writer writer;

    pthread_mutex_t lock; /* ---- everything below ---- */
    pthread_cond_t reader_work, writer_work, reads_over;
    bool stopping;
    qr_disk_record *records;   /* [sizes.record_max] */
    qr_disk_segment *segments; /* [sizes.segment_max] */
    qr_disk_get *gets;         /* [config.read_buffers] */
    qr_disk_put *puts;         /* [config.write_buffers] */
    uint32_t free_record, first_lost, last_lost, lost_count;
    qr_list gets_free, gets_staged, gets_queued, gets_done;
    qr_list puts_free, puts_queued, puts_done;
    qr_list gets_unwiped, puts_unwiped; /* given back, and for the writer to overwrite before they are free */
    uint32_t gets_queued_count, gets_reading_count, gets_busy_count; /* busy: not out of poll */
    uint32_t puts_queued_count, puts_busy_count;
    uint64_t puts_submitted, puts_finished;
    uint64_t seal_after; /* the puts before the latest seal */
    uint32_t seals_waiting, seals_done;
    quire_status seal_status;
    uint32_t erasing_count;    /* records dropped with erase since everything was clean */
    uint32_t forgetting_count; /* calls of erase_foreign since then */
    uint32_t wipes_left;       /* buffers in use that an erasure waits for */
    uint32_t unwiped_count;    /* of those: given back, and not overwritten yet */
    qr_disk_forget *forgets;   /* [QR_DISK_FORGETS_MAX]; the first forget_count are asked for */
    uint32_t forget_count, forget_all_count;
    bool clean_wanted; /* segments with bytes of dropped records are to be cleaned */
    bool tidy;         /* there may be segments without records */
    bool look;         /* files may have gone */
    uint64_t next_serial;
    qr_disk_pause write_pause;  /* after a failed write: puts are refused */
    qr_disk_pause upkeep_pause; /* after a failed removal or cleaning */
    qr_store_refusal failing;   /* NONE, NO_SPACE or BROKEN */
    bool floor_near;
    qr_disk_budget budget;
    qr_store_trouble troubles[QR_DISK_TROUBLES], telling; /* a ring; telling: what poll said last */
    uint64_t trouble_total, trouble_told, trouble_missed; /* missed: noted nowhere */
    qr_store_stats stats;
} qr_disk;

/* ---- disk_table.c; the lock is held ---- */
void qr_disk_table_init(qr_disk *disk);
qr_record_id qr_disk_record_take(qr_disk *disk); /* QR_RECORD_NONE; state FILLING, all else zero or none */
/* No state any more: free, or GONE while gets hold it. */
void qr_disk_record_end(qr_disk *disk, qr_record_id id);
void qr_disk_record_publish(qr_disk *disk, qr_record_id id, uint32_t segment, uint32_t slot);
void qr_disk_record_move(qr_disk *disk, qr_record_id id, uint32_t segment, uint32_t slot);
void qr_disk_record_drop(qr_disk *disk, qr_record_id id);   /* a LIVE one */
void qr_disk_record_lose(qr_disk *disk, qr_record_id id);   /* a LIVE one; the owner will be told */
void qr_disk_record_unlose(qr_disk *disk, qr_record_id id); /* out of the list of the lost */
/* The record that was named as parent is still that one, and published. */
bool qr_disk_parent_alive(const qr_disk *disk, const qr_disk_record *record);
uint32_t qr_disk_segment_take(qr_disk *disk, uint64_t id, const qr_segment_shape *shape, qr_disk_segment_state state);
void qr_disk_segment_free(qr_disk *disk, uint32_t index); /* empty; its file is gone */
/* Every record of it is LOST; the writer removes the file. */
void qr_disk_segment_doom(qr_disk *disk, uint32_t index);
/* Bytes of records that the owner dropped are to go, wherever they lie. */
void qr_disk_erase_wanted(qr_disk *disk);
void qr_disk_pause_begin(const qr_disk *disk, qr_disk_pause *pause);
bool qr_disk_pause_over(const qr_disk_pause *pause);
quire_status qr_disk_table_check(const qr_disk *disk, quire_error *error);
uint64_t qr_disk_take_serial(qr_disk *disk);
/* Adds what a thread's file calls came to and zeroes it. */
void qr_disk_take_traffic(qr_disk *disk, qr_disk_io *io);
bool qr_disk_space_short(const qr_disk *disk);

/* ---- disk_wipe.c; the lock is held ---- */
/* Into the list of those that are free, by way of the writer if it is to be wiped. Its state says that it is free. */
void qr_disk_put_back(qr_disk *disk, qr_disk_put *put);
void qr_disk_get_back(qr_disk *disk, qr_disk_get *get);

/* ---- disk_trouble.c; the lock is held ---- */
void qr_disk_note_damage(qr_disk *disk, uint64_t segment_id, uint64_t offset, const char *what);
void qr_disk_note_error(qr_disk *disk, const char *file, const char *what); /* counts as an error; file "": the folder */
void qr_disk_take_troubles(qr_disk *disk, const qr_disk_io *io);
bool qr_disk_tell_trouble(qr_disk *disk, qr_store_event *event);

/* ---- threads ---- */
void *qr_disk_reader_main(void *disk);
void *qr_disk_writer_main(void *disk);
void qr_disk_writer_finish(qr_disk *disk); /* after both kinds of threads have ended: cleans, seals, closes */
void qr_disk_wake(const qr_disk *disk);    /* the lock is not held */

/* ---- of the writer thread; the lock is not held ---- */
/* The open segment has room and no valid footer. NO_SPACE, IO. */
QUIRE_MUST_CHECK quire_status qr_disk_writer_ready(qr_disk *disk);
/* Writes records [record_bytes] each into the next slots, which are used up in any case: places and checksums go into the
 * headers, these into the pages. There is room. A failure leaves the segment. */
QUIRE_MUST_CHECK quire_status qr_disk_writer_append(qr_disk *disk, qr_record_header *headers[], unsigned char *pages[],
                                                    uint32_t count, uint32_t *first_slot);
QUIRE_MUST_CHECK quire_status qr_disk_writer_seal(qr_disk *disk); /* the open segment, which stays open */
void qr_disk_writer_leave(qr_disk *disk);                         /* closes its file; nothing is open then */
void qr_disk_writer_yield(qr_disk *disk);                         /* lets reads go first, not for ever */
/* Room under the cap and above the floor for a new segment. NO_SPACE. */
QUIRE_MUST_CHECK quire_status qr_disk_make_room(qr_disk *disk);
/* Removes the oldest segments until the next one will fit too, and carries on what is worth it. */
void qr_disk_reclaim_ahead(qr_disk *disk);
/* DOOMED or FOREIGN: the file goes, and does not come back. False: it is to be tried again; until then it counts. */
bool qr_disk_remove_segment(qr_disk *disk, uint32_t index);
bool qr_disk_tidy(qr_disk *disk); /* removes segments without records. False: one is still there */
/* What buffers and scratch have of records that are gone; what is in use is wiped when it becomes free. */
void qr_disk_wipe_memory(qr_disk *disk);
void qr_disk_wipe_returned(qr_disk *disk); /* buffers that were given back since */
/* Folder and files are still there, as far as can be told; what went is dropped. False: nothing can be written now. */
bool qr_disk_watch(qr_disk *disk);
void qr_disk_look_after_files(qr_disk *disk); /* each of them */
/* It is not in the folder, and the folder is where it was: only then a segment may be given up. */
bool qr_disk_file_went(const qr_disk *disk, uint64_t id);
/* What is written is where it will be looked for: nobody has removed or replaced the file that is appended to. */
bool qr_disk_open_file_is_there(const qr_disk *disk);
/* Bytes of dropped records go; with `seal` segments that have no footer get one. */
void qr_disk_clean(qr_disk *disk, bool seal);

bool qr_disk_is_forgotten(const qr_disk *disk, uint32_t forget_count, const void *key, size_t key_bytes);
/* Segments in the folder that the table does not have (moved away and given up, and back; put there by others): those of our
 * fingerprint, whose records are nobody's, and those for which there is no room go, others are foreign. False: one may be
 * left. */
bool qr_disk_take_in_strangers(qr_disk *disk);
/* What segments of other fingerprints have of the first `forget_count` namespaces, or everything. False: some may be left. */
bool qr_disk_clean_foreign(qr_disk *disk, uint32_t forget_count, bool everything);

/* ---- disk_index.c ---- */
QUIRE_MUST_CHECK quire_status qr_disk_index_load(qr_disk *disk, quire_error *error);
void qr_disk_index_report(qr_disk *disk, qr_store_found *found, void *context);
void qr_disk_index_forget(qr_disk *disk);
#endif
