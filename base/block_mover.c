/* block_mover.c - see block_mover.h. */
#include "base/block_mover.h"

#include "base/assertion.h"

/* Copies that are neighbours on both sides grow one run; anything else submits it and begins the next. */
typedef struct mover_run {
    const qr_block_mover *mover;
    int stream;
    unsigned char *to;
    const unsigned char *from;
    size_t size_bytes;
    quire_status status;
} mover_run;

static void run_submit(mover_run *run) {
    qr_device *device = run->mover->device;
    if (run->size_bytes == 0 || run->status != QUIRE_OK) return;
    run->status = device->ops->copy_async(device, run->stream, run->to, run->from, run->size_bytes);
    run->size_bytes = 0;
}

static void run_add(mover_run *run, void *to, const void *from) {
    size_t block_bytes = run->mover->block_bytes;
    if (run->size_bytes > 0 && run->to + run->size_bytes == to && run->from + run->size_bytes == from) {
        run->size_bytes += block_bytes;
        return;
    }
    run_submit(run);
    run->to = to;
    run->from = from;
    run->size_bytes = block_bytes;
}

static mover_run run_begin(const qr_block_mover *mover, qr_block_work work, qr_device_event after) {
    qr_device *device = mover->device;
    mover_run run = {.mover = mover, .stream = mover->streams[work]};
    run.status = after.value ? device->ops->wait(device, run.stream, after) : QUIRE_OK;
    return run;
}

static quire_status run_end(mover_run *run, qr_device_event *done) {
    run_submit(run);
    *done = run->mover->device->ops->event(run->mover->device, run->stream);
    return run->status;
}

static unsigned char *block_at(const qr_block_mover *mover, uint32_t block) {
    QR_ASSERT(block < mover->block_count);
    return mover->pool + mover->block_bytes * block;
}

quire_status qr_block_mover_copy(const qr_block_mover *mover, const qr_block_copy *copies, uint32_t count,
                                 qr_device_event after, qr_device_event *done) {
    mover_run run = run_begin(mover, QR_BLOCK_COPY, after);
    for (uint32_t i = 0; i < count; i++) {
        QR_ASSERT(copies[i].from != copies[i].to);
        run_add(&run, block_at(mover, copies[i].to), block_at(mover, copies[i].from));
    }
    return run_end(&run, done);
}

quire_status qr_block_mover_gather(const qr_block_mover *mover, const qr_block_move *moves, uint32_t count,
                                   qr_device_event after, qr_device_event *done) {
    mover_run run = run_begin(mover, QR_BLOCK_GATHER, after);
    for (uint32_t i = 0; i < count; i++) run_add(&run, moves[i].host, block_at(mover, moves[i].block));
    return run_end(&run, done);
}

quire_status qr_block_mover_scatter(const qr_block_mover *mover, const qr_block_move *moves, uint32_t count,
                                    qr_device_event after, qr_device_event *done) {
    mover_run run = run_begin(mover, QR_BLOCK_SCATTER, after);
    for (uint32_t i = 0; i < count; i++) run_add(&run, block_at(mover, moves[i].block), moves[i].host);
    return run_end(&run, done);
}

quire_status qr_block_mover_gather_run(const qr_block_mover *mover, const uint32_t *blocks, uint32_t count, void *host,
                                       qr_device_event after, qr_device_event *done) {
    mover_run run = run_begin(mover, QR_BLOCK_GATHER, after);
    for (uint32_t i = 0; i < count; i++)
        run_add(&run, (unsigned char *)host + mover->block_bytes * i, block_at(mover, blocks[i]));
    return run_end(&run, done);
}

quire_status qr_block_mover_scatter_run(const qr_block_mover *mover, const uint32_t *blocks, uint32_t count, const void *host,
                                        qr_device_event after, qr_device_event *done) {
    mover_run run = run_begin(mover, QR_BLOCK_SCATTER, after);
    for (uint32_t i = 0; i < count; i++)
        run_add(&run, block_at(mover, blocks[i]), (const unsigned char *)host + mover->block_bytes * i);
    return run_end(&run, done);
}
