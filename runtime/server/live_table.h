/* live_table.h - engine request ids, and what they belong to.
 *
 * An id is generation << 32 | slot, so an event of a request that has ended never finds its successor.
 *
 * Thread: one owner.
 */
#ifndef QR_SERVER_LIVE_TABLE_H
#define QR_SERVER_LIVE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qr_live_slot {
    void *owner;         /* NULL: free */
    uint32_t part;       /* the owner's index of this request */
    uint32_t generation; /* >= 1 */
    uint32_t next_free;
} qr_live_slot;

typedef struct qr_live_table {
    qr_live_slot *slots;
    uint32_t count, capacity;
    uint32_t free_head; /* index + 1; 0 = none */
} qr_live_table;

void qr_live_table_deinit(qr_live_table *table);
/* A new id, never 0. false: out of memory. */
bool qr_live_insert(qr_live_table *table, void *owner, uint32_t part, uint64_t *id);
/* The owner, or NULL when the id is not live. */
void *qr_live_find(const qr_live_table *table, uint64_t id, uint32_t *part);
void qr_live_remove(qr_live_table *table, uint64_t id);

#endif
