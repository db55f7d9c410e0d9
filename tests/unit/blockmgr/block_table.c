#include "blockmgr/block_table.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { BLOCKS = 16, ROWS = 3, CAPACITY = 6 };

static qr_pool pool;
static qr_block_tables tables;
static void *memory;

static void take_all(qr_arena *arena) {
    qr_pool_init(&pool, BLOCKS, arena);
    qr_block_tables_init(&tables, ROWS, CAPACITY, arena);
}

static void setup(void) {
    qr_arena arena = {0};
    take_all(&arena);
    memory = calloc(1, arena.used_bytes);
    arena = (qr_arena){.base = memory, .size_bytes = arena.used_bytes};
    take_all(&arena);
    for (int i = 0; i < 4; i++) qr_block_table_append(&tables, 0, qr_pool_alloc(&pool));
}

static void teardown(void) {
    for (uint32_t row = 0; row < ROWS; row++) qr_block_table_truncate(&tables, &pool, row, 0, false);
    cr_assert_eq(pool.state_count[QR_BLOCK_FREE], BLOCKS, "every block came back");
    cr_assert_eq(qr_pool_check(&pool, NULL), QUIRE_OK);
    free(memory);
}

TestSuite(blockmgr_block_table, .init = setup, .fini = teardown);

Test(blockmgr_block_table, a_fork_shares_by_reference) {
    qr_block_table_fork(&tables, &pool, 0, 1, 3);
    cr_assert_eq(qr_block_table_length(&tables, 1), 3);
    for (uint32_t i = 0; i < 4; i++) {
        quire_block_id id = qr_block_table_ids(&tables, 0)[i];
        cr_assert_eq(qr_pool_references(&pool, id), i < 3 ? 2 : 1);
        if (i < 3) cr_assert_eq(qr_block_table_ids(&tables, 1)[i], id);
    }
}

Test(blockmgr_block_table, truncate_gives_back_the_end_once) {
    qr_block_table_fork(&tables, &pool, 0, 1, 4);
    qr_block_table_truncate(&tables, &pool, 0, 1, false);
    cr_assert_eq(qr_block_table_length(&tables, 0), 1);
    cr_assert_eq(pool.state_count[QR_BLOCK_FREE], BLOCKS - 4);
    qr_block_table_truncate(&tables, &pool, 1, 0, false);
    cr_assert_eq(pool.state_count[QR_BLOCK_FREE], BLOCKS - 1);
    qr_block_table_truncate(&tables, &pool, 1, 3, false); /* longer than it is: nothing */
    cr_assert_eq(qr_block_table_length(&tables, 1), 0);
}

Test(blockmgr_block_table, replace_hands_out_the_old_block) {
    quire_block_id fresh = qr_pool_alloc(&pool), old = qr_block_table_ids(&tables, 0)[2];
    cr_assert_eq(qr_block_table_replace(&tables, 0, 2, fresh), old);
    cr_assert_eq(qr_block_table_ids(&tables, 0)[2], fresh);
    cr_assert_eq(qr_pool_unref(&pool, old, NULL), QUIRE_OK);
}

Test(blockmgr_block_table, rows_do_not_touch) {
    qr_block_table_extend(&tables, 1, CAPACITY);
    for (uint32_t i = 0; i < CAPACITY; i++) qr_block_table_replace(&tables, 1, i, qr_pool_alloc(&pool));
    for (uint32_t i = 0; i < 4; i++) cr_assert_eq(qr_block_table_ids(&tables, 0)[i], i);
    cr_assert_eq(qr_block_table_length(&tables, 2), 0);
}
