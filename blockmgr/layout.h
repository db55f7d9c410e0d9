/* layout.h - where K and V lie inside a block.
 *
 * A block holds the K and V of `block_tokens` tokens in all layers of one KV group:
 *
 *   [layer][kv_head]{ K data | V data | K scales | V scales }      each part on a 128-byte boundary
 *   ............................................ padding to 4 KiB   direct I/O and DMA want whole pages
 *
 * Scales exist only for the 8-bit types. Code that reads a block asks the table of parts and never computes offsets
 * of its own, so another layout is another table.
 *
 * Thread: any; nothing changes after init.
 */
#ifndef QR_BLOCKMGR_LAYOUT_H
#define QR_BLOCKMGR_LAYOUT_H

#include <quire/kv.h>

#include "blockmgr/arena.h"

enum { QR_LAYOUT_PART_ALIGNMENT = 128, QR_LAYOUT_BLOCK_ALIGNMENT = 4096, QR_LAYOUT_PARTS = 4 };

typedef struct qr_layout_part {
    uint64_t offset_bytes; /* from the start of the block */
    uint64_t size_bytes;   /* 0: the type has no such part */
    quire_kv_type type;
} qr_layout_part;

typedef struct qr_layout {
    qr_layout_part *parts; /* [layer_count][kv_head_count][QR_LAYOUT_PARTS], in the order of quire_kv_part */
    uint32_t layer_count;
    uint32_t kv_head_count;
    uint64_t block_bytes;
} qr_layout;

/* Every count is at least 1 and the types are known ones. */
bool qr_layout_group_valid(const quire_kv_group *group);
/* Bytes of a block with padding. 0 when the shape is invalid or a product wraps. */
uint64_t qr_layout_block_bytes(const quire_kv_group *group, uint32_t block_tokens);
/* Bytes of one token's K, V and scales in all layers, without padding. 0 as above. */
uint64_t qr_layout_token_bytes(const quire_kv_group *group);

/* Takes the table from the arena (which may only be counting) and fills it. The shape must have a block size. */
void qr_layout_init(qr_layout *layout, const quire_kv_group *group, uint32_t block_tokens, qr_arena *arena);
/* The part, or NULL when layer, head or part is out of range. */
const qr_layout_part *qr_layout_find(const qr_layout *layout, uint32_t layer, uint32_t kv_head, quire_kv_part part);
#endif
