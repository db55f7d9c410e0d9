/* block_table.h - the block tables of one KV group: for each row (a sequence slot) the ids of its blocks in order.
 *
 * All rows lie in one array [row_count][row_capacity] of the arena, so a table is contiguous, appending is O(1) and
 * nothing is ever allocated. The array is as long as the worst case, and memory that is never touched costs address
 * space only.
 *
 * A table owns one reference to each of its blocks. It knows no tokens and never chooses a block.
 * Thread: one at a time.
 */
#ifndef QR_BLOCKMGR_BLOCK_TABLE_H
#define QR_BLOCKMGR_BLOCK_TABLE_H

#include "blockmgr/pool.h"

typedef struct qr_block_tables {
    quire_block_id *ids; /* [row_count][row_capacity] */
    uint32_t *lengths;   /* [row_count] */
    uint32_t row_count;
    uint32_t row_capacity;
} qr_block_tables;

/* Takes the arrays from the arena, which may only be counting. */
void qr_block_tables_init(qr_block_tables *tables, uint32_t row_count, uint32_t row_capacity, qr_arena *arena);

/* [length] ids, borrowed until the row changes. */
const quire_block_id *qr_block_table_ids(const qr_block_tables *tables, uint32_t row);
uint32_t qr_block_table_length(const qr_block_tables *tables, uint32_t row);

/* Takes over one reference to the block. The row must have room. */
void qr_block_table_append(qr_block_tables *tables, uint32_t row, quire_block_id id);
/* Makes `count` more places, to be filled by replace before anything else. The row must have room. */
void qr_block_table_extend(qr_block_tables *tables, uint32_t row, uint32_t count);
/* Puts another block in a place: takes over one reference to it and hands the old block's to the caller. */
quire_block_id qr_block_table_replace(qr_block_tables *tables, uint32_t row, uint32_t place, quire_block_id id);
/* Fills an empty row with the first `length` blocks of another; each gets one more reference. */
void qr_block_table_fork(qr_block_tables *tables, qr_pool *pool, uint32_t from, uint32_t to, uint32_t length);
/* Gives up every block after the first `length`, last one first; `wipe` overwrites those that became free. */
void qr_block_table_truncate(qr_block_tables *tables, qr_pool *pool, uint32_t row, uint32_t length, bool wipe);
#endif
