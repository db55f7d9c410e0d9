/* block_stage.c - see block_stage.h.
 *
 * Buffers are used in turn, so three counters say it all: how many were ever given to DMA to fill, taken by the owner, and
 * returned by the owner. A counter modulo the number of buffers is the one whose turn is next.
 */
#include "base/block_stage.h"

#include <stdlib.h>

#include "base/assertion.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

typedef enum stage_state { STAGE_EMPTY, STAGE_MOVING, STAGE_TAKEN } stage_state;

typedef struct stage_buffer {
    unsigned char *memory;
    uint32_t count; /* blocks in it */
    stage_state state;
    qr_device_event moved; /* while MOVING */
} stage_buffer;

struct qr_block_stage {
    const qr_block_mover *mover;
    qr_block_stage_way way;
    uint32_t buffer_blocks;
    qr_region region;
    stage_buffer buffers[QR_BLOCK_STAGE_BUFFERS];
    uint32_t next_filled, next_taken, next_returned; /* counts of buffers so far; modulo the number of buffers an index */
    const uint32_t *blocks;                          /* out: the list, and how far DMA has come */
    uint32_t block_count, blocks_begun;
    qr_device_event after;
};

static stage_buffer *stage_at(qr_block_stage *stage, uint32_t turn) { return &stage->buffers[turn % QR_BLOCK_STAGE_BUFFERS]; }

static bool stage_moved(const qr_block_stage *stage, const stage_buffer *buffer) {
    qr_device *device = stage->mover->device;
    return device->ops->poll(device, buffer->moved);
}

quire_status qr_block_stage_create(const qr_block_mover *mover, qr_block_stage_way way, uint32_t buffer_blocks,
                                   qr_block_stage **out, quire_error *error) {
    size_t buffer_bytes, size_bytes;
    QR_ASSERT(buffer_blocks > 0);
    *out = NULL;
    if (!qr_mul_size(mover->block_bytes, buffer_blocks, &buffer_bytes) ||
        !qr_mul_size(buffer_bytes, QR_BLOCK_STAGE_BUFFERS, &size_bytes))
        return qr_fail(error, QUIRE_TOO_LARGE, "block stage", QR_NO_OFFSET, "%u blocks of %zu bytes", buffer_blocks,
                       mover->block_bytes);
    qr_block_stage *stage = qr_alloc_zero(1, sizeof *stage);
    if (!stage) return qr_fail(error, QUIRE_NO_MEMORY, "block stage", QR_NO_OFFSET, "no memory for a stage");
    *stage = (qr_block_stage){.mover = mover, .way = way, .buffer_blocks = buffer_blocks};
    quire_status status = qr_region_alloc(size_bytes, &stage->region, error);
    if (status == QUIRE_OK) {
        status = mover->device->ops->host_register(mover->device, stage->region.base, stage->region.size_bytes, error);
        if (status != QUIRE_OK) qr_region_free(&stage->region);
    }
    if (status != QUIRE_OK) {
        free(stage);
        return status;
    }
    for (uint32_t i = 0; i < QR_BLOCK_STAGE_BUFFERS; i++)
        stage->buffers[i].memory = (unsigned char *)stage->region.base + buffer_bytes * i;
    *out = stage;
    return QUIRE_OK;
}

void qr_block_stage_destroy(qr_block_stage *stage) {
    if (!stage) return;
    qr_device *device = stage->mover->device;
    bool lost = device->ops->status(device, NULL) != QUIRE_OK;
    for (uint32_t i = 0; i < QR_BLOCK_STAGE_BUFFERS; i++)
        QR_ASSERT(lost || stage->buffers[i].state != STAGE_MOVING || stage_moved(stage, &stage->buffers[i]));
    device->ops->host_unregister(device, stage->region.base);
    qr_region_free(&stage->region);
    free(stage);
}

/* Out: gives DMA every empty buffer while blocks are left. */
static quire_status stage_fill(qr_block_stage *stage) {
    while (stage->blocks_begun < stage->block_count) {
        stage_buffer *buffer = stage_at(stage, stage->next_filled);
        if (buffer->state != STAGE_EMPTY) return QUIRE_OK;
        uint32_t left = stage->block_count - stage->blocks_begun;
        buffer->count = left < stage->buffer_blocks ? left : stage->buffer_blocks;
        buffer->state = STAGE_MOVING;
        stage->next_filled++;
        const uint32_t *blocks = stage->blocks + stage->blocks_begun;
        stage->blocks_begun += buffer->count;
        quire_status status =
            qr_block_mover_gather_run(stage->mover, blocks, buffer->count, buffer->memory, stage->after, &buffer->moved);
        if (status != QUIRE_OK) return status;
    }
    return QUIRE_OK;
}

quire_status qr_block_stage_begin(qr_block_stage *stage, const uint32_t *blocks, uint32_t count, qr_device_event after) {
    QR_ASSERT(stage->way == QR_BLOCK_STAGE_OUT && qr_block_stage_finished(stage));
    stage->blocks = blocks;
    stage->block_count = count;
    stage->blocks_begun = 0;
    stage->after = after;
    return stage_fill(stage);
}

static bool take_filled(qr_block_stage *stage, stage_buffer *buffer) {
    return buffer->state == STAGE_MOVING && stage->next_taken != stage->next_filled && stage_moved(stage, buffer);
}

static bool take_empty(qr_block_stage *stage, stage_buffer *buffer) {
    if (buffer->state == STAGE_MOVING && stage_moved(stage, buffer)) buffer->state = STAGE_EMPTY;
    return buffer->state == STAGE_EMPTY;
}

bool qr_block_stage_take(qr_block_stage *stage, void **memory, uint32_t *count) {
    stage_buffer *buffer = stage_at(stage, stage->next_taken);
    bool out = stage->way == QR_BLOCK_STAGE_OUT;
    *memory = NULL;
    *count = 0;
    if (!(out ? take_filled(stage, buffer) : take_empty(stage, buffer))) return false;
    buffer->state = STAGE_TAKEN;
    stage->next_taken++;
    *memory = buffer->memory;
    *count = out ? buffer->count : stage->buffer_blocks;
    return true;
}

static stage_buffer *stage_oldest_taken(qr_block_stage *stage) {
    QR_ASSERT(stage->next_returned != stage->next_taken);
    stage_buffer *buffer = stage_at(stage, stage->next_returned++);
    QR_ASSERT(buffer->state == STAGE_TAKEN);
    return buffer;
}

quire_status qr_block_stage_give_back(qr_block_stage *stage) {
    QR_ASSERT(stage->way == QR_BLOCK_STAGE_OUT);
    stage_oldest_taken(stage)->state = STAGE_EMPTY;
    return stage_fill(stage);
}

quire_status qr_block_stage_push(qr_block_stage *stage, const uint32_t *blocks, uint32_t count, qr_device_event after,
                                 qr_device_event *done) {
    QR_ASSERT(stage->way == QR_BLOCK_STAGE_IN && count <= stage->buffer_blocks);
    stage_buffer *buffer = stage_oldest_taken(stage);
    buffer->state = STAGE_MOVING;
    buffer->count = count;
    quire_status status = qr_block_mover_scatter_run(stage->mover, blocks, count, buffer->memory, after, &buffer->moved);
    *done = buffer->moved;
    return status;
}

bool qr_block_stage_finished(qr_block_stage *stage) {
    if (stage->next_returned != stage->next_taken) return false;
    if (stage->way == QR_BLOCK_STAGE_OUT)
        return stage->blocks_begun == stage->block_count && stage->next_taken == stage->next_filled;
    for (uint32_t i = 0; i < QR_BLOCK_STAGE_BUFFERS; i++)
        if (stage->buffers[i].state == STAGE_MOVING && !stage_moved(stage, &stage->buffers[i])) return false;
    return true;
}
