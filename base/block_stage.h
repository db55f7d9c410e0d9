/* block_stage.h - two pinned buffers through which blocks stream between a pool and someone who wants plain memory.
 *
 * For files and sockets: while the owner writes one buffer out (or reads into it), DMA fills (or empties) the other.
 *
 *     out   begin(blocks) -> [take -> use the bytes -> give_back] ... until finished
 *     in    [take -> fill the bytes -> push(blocks)] ... until every event that push gave is complete
 *
 *     buffer   empty -> moving -> ready -> taken -> empty     (out)
 *              empty -> taken -> moving -> empty              (in)
 *
 * A stage goes one way; whoever needs both has two. Buffers are handed out in the order of the blocks. Nothing waits: take
 * says whether there is a buffer now. The bytes of a buffer are the owner's from take until give_back or push, and the DMA's
 * otherwise. Thread: the device's.
 */
#ifndef QR_BASE_BLOCK_STAGE_H
#define QR_BASE_BLOCK_STAGE_H

#include "base/block_mover.h"

enum { QR_BLOCK_STAGE_BUFFERS = 2 };

typedef enum qr_block_stage_way { QR_BLOCK_STAGE_OUT, QR_BLOCK_STAGE_IN } qr_block_stage_way;
typedef struct qr_block_stage qr_block_stage;

/* Borrows the mover. A buffer holds buffer_blocks blocks; both are taken and registered here, and nothing is later. */
QUIRE_MUST_CHECK quire_status qr_block_stage_create(const qr_block_mover *mover, qr_block_stage_way way, uint32_t buffer_blocks,
                                                    qr_block_stage **stage, quire_error *error);

/* No copy may be under way: every buffer is empty or ready, or the device is lost. NULL is fine. */
void qr_block_stage_destroy(qr_block_stage *stage);

/* Out: streams blocks[0, count) once `after` is complete. Borrows the list until finished. The last list must be finished. */
QUIRE_MUST_CHECK quire_status qr_block_stage_begin(qr_block_stage *stage, const uint32_t *blocks, uint32_t count,
                                                   qr_device_event after);

/* Out: the next buffer, holding *count blocks that continue the list. In: an empty buffer, *count is its capacity. False:
 * not now. */
bool qr_block_stage_take(qr_block_stage *stage, void **memory, uint32_t *count);

/* Out: the owner is done with the oldest taken buffer; DMA of the next blocks into it starts. */
QUIRE_MUST_CHECK quire_status qr_block_stage_give_back(qr_block_stage *stage);

/* In: the oldest taken buffer now holds count blocks; they go to the pool's blocks[0, count) once `after` is complete. *done
 * is the event of their arrival. count 0 puts the buffer back unused. */
QUIRE_MUST_CHECK quire_status qr_block_stage_push(qr_block_stage *stage, const uint32_t *blocks, uint32_t count,
                                                  qr_device_event after, qr_device_event *done);

/* Out: every block of the list has been taken and given back. In: every push has arrived. */
bool qr_block_stage_finished(qr_block_stage *stage);
#endif
