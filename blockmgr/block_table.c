#include "blockmgr/block_table.h"

#include "base/assertion.h"

static quire_block_id *table_row(const qr_block_tables *tables, uint32_t row) {
    QR_ASSERT(row < tables->row_count);
    return tables->ids + (uint64_t)row * tables->row_capacity;
}

void qr_block_tables_init(qr_block_tables *tables, uint32_t row_count, uint32_t row_capacity, qr_arena *arena) {
    *tables = (qr_block_tables){.row_count = row_count, .row_capacity = row_capacity};
    tables->lengths = qr_arena_take(arena, row_count, sizeof *tables->lengths);
    tables->ids = qr_arena_take(arena, (uint64_t)row_count * row_capacity, sizeof *tables->ids);
}

const quire_block_id *qr_block_table_ids(const qr_block_tables *tables, uint32_t row) { return table_row(tables, row); }

uint32_t qr_block_table_length(const qr_block_tables *tables, uint32_t row) {
    QR_ASSERT(row < tables->row_count);
    return tables->lengths[row];
}

void qr_block_table_append(qr_block_tables *tables, uint32_t row, quire_block_id id) {
    quire_block_id *ids = table_row(tables, row);
    QR_ASSERT(tables->lengths[row] < tables->row_capacity);
    ids[tables->lengths[row]++] = id;
}

void qr_block_table_extend(qr_block_tables *tables, uint32_t row, uint32_t count) {
    quire_block_id *ids = table_row(tables, row);
    QR_ASSERT(count <= tables->row_capacity - tables->lengths[row]);
    for (uint32_t i = 0; i < count; i++) ids[tables->lengths[row]++] = QUIRE_BLOCK_NONE;
}

quire_block_id qr_block_table_replace(qr_block_tables *tables, uint32_t row, uint32_t place, quire_block_id id) {
    quire_block_id *ids = table_row(tables, row);
    QR_ASSERT(place < tables->lengths[row]);
    quire_block_id old = ids[place];
    ids[place] = id;
    return old;
}

void qr_block_table_fork(qr_block_tables *tables, qr_pool *pool, uint32_t from, uint32_t to, uint32_t length) {
    const quire_block_id *ids = table_row(tables, from);
    QR_ASSERT(from != to && length <= tables->lengths[from] && qr_block_table_length(tables, to) == 0);
    for (uint32_t i = 0; i < length; i++) {
        qr_pool_ref(pool, ids[i]);
        qr_block_table_append(tables, to, ids[i]);
    }
}

void qr_block_table_truncate(qr_block_tables *tables, qr_pool *pool, uint32_t row, uint32_t length, bool wipe) {
    const quire_block_id *ids = table_row(tables, row);
    while (tables->lengths[row] > length) {
        bool freed;
        quire_block_id id = ids[--tables->lengths[row]];
        quire_status status = qr_pool_unref(pool, id, &freed);
        QR_ASSERT(status == QUIRE_OK);
        if (freed && wipe) qr_pool_wipe(pool, id);
    }
}
