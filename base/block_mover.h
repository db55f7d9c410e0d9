/* block_mover.h - whole KV blocks on the move: inside a device's pool, and between the pool and pinned host memory.
 *
 * All layers of a block lie together, so a block is one copy; blocks that are neighbours on both sides go as one longer copy.
 * There are three kinds of work, each on a stream of its own, so that loading, saving and forking overlap:
 *
 *     copy      pool -> pool    a private copy of a block (the fork of a partial block)
 *     gather    pool -> host    blocks from anywhere in the pool to pinned memory
 *     scatter   host -> pool    and back
 *
 * Each call says after which event its work may start, and gives the event of its end. That event is the only truth: until
 * it is complete no target may be read, no source written, and none of them freed or given to someone else. The mover keeps
 * no list of what is under way; whoever owns the blocks keeps the event beside them.
 *
 * It does not decide what moves, allocates nothing and never waits. Thread: the device's.
 */
#ifndef QR_BASE_BLOCK_MOVER_H
#define QR_BASE_BLOCK_MOVER_H

#include "base/device.h"

typedef enum qr_block_work { QR_BLOCK_COPY, QR_BLOCK_GATHER, QR_BLOCK_SCATTER, QR_BLOCK_WORK_COUNT } qr_block_work;

typedef struct qr_block_mover {
    qr_device *device; /* borrowed, as is the pool */
    unsigned char *pool;
    size_t block_bytes; /* the stride of the pool */
    uint32_t block_count;
    int streams[QR_BLOCK_WORK_COUNT];
} qr_block_mover;

typedef struct qr_block_copy {
    uint32_t from, to; /* block ids; no target may be a source or target of the same call */
} qr_block_copy;

typedef struct qr_block_move {
    uint32_t block;
    void *host; /* block_bytes of memory registered with the device */
} qr_block_move;

/* All three: *done is the event of everything that was submitted, also when the call fails half-way (IO: the device is lost,
 * its status says why; NO_MEMORY), for then a part of the copies may be under way. after.value 0: at once. */
QUIRE_MUST_CHECK quire_status qr_block_mover_copy(const qr_block_mover *mover, const qr_block_copy *copies, uint32_t count,
                                                  qr_device_event after, qr_device_event *done);
QUIRE_MUST_CHECK quire_status qr_block_mover_gather(const qr_block_mover *mover, const qr_block_move *moves, uint32_t count,
                                                    qr_device_event after, qr_device_event *done);
QUIRE_MUST_CHECK quire_status qr_block_mover_scatter(const qr_block_mover *mover, const qr_block_move *moves, uint32_t count,
                                                     qr_device_event after, qr_device_event *done);

/* The same between the blocks and one stretch of host memory, [count][block_bytes]. */
QUIRE_MUST_CHECK quire_status qr_block_mover_gather_run(const qr_block_mover *mover, const uint32_t *blocks, uint32_t count,
                                                        void *host, qr_device_event after, qr_device_event *done);
QUIRE_MUST_CHECK quire_status qr_block_mover_scatter_run(const qr_block_mover *mover, const uint32_t *blocks, uint32_t count,
                                                         const void *host, qr_device_event after, qr_device_event *done);
#endif
