/* block_traffic.h - random traffic of blocks over any device, against a model that knows what must lie where.
 *
 * Blocks are copied, gathered, scattered and streamed through stages, on three streams and out of order, some of them waited
 * for by polling and some only by order on the device. What an operation reads may be another one's target that is still
 * under way; what it writes may be another one's source. After any event the bytes it promises are compared.
 */
#ifndef QR_TESTS_BLOCK_TRAFFIC_H
#define QR_TESTS_BLOCK_TRAFFIC_H

#include "base/device.h"

typedef struct block_traffic {
    uint64_t seed;
    uint32_t rounds;
    uint32_t blocks;     /* in the pool */
    uint32_t slots;      /* in pinned host memory */
    size_t block_bytes;  /* a multiple of 8 */
    bool without_order;  /* leaves out every wait: the traffic must then go wrong where copies overtake each other */
    uint32_t wrong;      /* given: blocks and slots that held something else than they must */
    uint32_t operations; /* given */
} block_traffic;

/* Aborts when the device refuses something. */
void block_traffic_run(qr_device *device, block_traffic *traffic);

/* Streams the whole pool out through a stage and back in reverse order through another, with buffers of buffer_blocks, and
 * returns how many blocks came out, or arrived, wrong. */
uint32_t block_traffic_stream(qr_device *device, uint64_t seed, uint32_t blocks, uint32_t buffer_blocks, size_t block_bytes);
#endif
