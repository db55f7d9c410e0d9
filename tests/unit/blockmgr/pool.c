#include "blockmgr/pool.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 5 };

static qr_pool pool;
static void *memory;

static void setup(void) {
    qr_arena arena = {0};
    qr_pool_init(&pool, BLOCKS, &arena);
    memory = calloc(1, arena.used_bytes);
    arena = (qr_arena){.base = memory, .size_bytes = arena.used_bytes};
    qr_pool_init(&pool, BLOCKS, &arena);
}

static void teardown(void) {
    cr_assert_eq(qr_pool_check(&pool, NULL), QUIRE_OK);
    qr_pool_deinit(&pool);
    free(memory);
}

TestSuite(blockmgr_pool, .init = setup, .fini = teardown);

Test(blockmgr_pool, gives_every_block_once_and_then_none) {
    bool seen[BLOCKS] = {false};
    for (int i = 0; i < BLOCKS; i++) {
        quire_block_id id = qr_pool_alloc(&pool);
        cr_assert(id < BLOCKS && !seen[id]);
        seen[id] = true;
    }
    cr_assert_eq(qr_pool_alloc(&pool), QUIRE_BLOCK_NONE);
}

Test(blockmgr_pool, the_block_freed_last_comes_back_first) {
    quire_block_id a = qr_pool_alloc(&pool), b = qr_pool_alloc(&pool);
    cr_assert_eq(qr_pool_unref(&pool, b, NULL), QUIRE_OK);
    cr_assert_eq(qr_pool_unref(&pool, a, NULL), QUIRE_OK);
    cr_assert_eq(qr_pool_alloc(&pool), a);
    cr_assert_eq(qr_pool_alloc(&pool), b);
}

Test(blockmgr_pool, a_block_goes_through_all_its_states) {
    bool freed;
    quire_block_id id = qr_pool_alloc(&pool);
    cr_assert_eq(qr_pool_state(&pool, id), QR_BLOCK_USED);
    cr_assert(qr_pool_is_private(&pool, id));
    qr_pool_keep(&pool, id);
    cr_assert_eq(qr_pool_state(&pool, id), QR_BLOCK_SHARED);
    cr_assert(!qr_pool_is_private(&pool, id));
    cr_assert_eq(qr_pool_unref(&pool, id, &freed), QUIRE_OK);
    cr_assert(!freed && qr_pool_state(&pool, id) == QR_BLOCK_CACHED);
    qr_pool_ref(&pool, id);
    cr_assert_eq(qr_pool_state(&pool, id), QR_BLOCK_SHARED);
    cr_assert(!qr_pool_unkeep(&pool, id));
    cr_assert_eq(qr_pool_state(&pool, id), QR_BLOCK_USED);
    qr_pool_keep(&pool, id);
    cr_assert_eq(qr_pool_unref(&pool, id, NULL), QUIRE_OK);
    cr_assert(qr_pool_unkeep(&pool, id));
    cr_assert_eq(qr_pool_state(&pool, id), QR_BLOCK_FREE);
}

/* R07: freeing again is a reported error that changes nothing. */
Test(blockmgr_pool, R07_a_stale_free_is_reported_and_changes_nothing) {
    quire_block_id id = qr_pool_alloc(&pool), kept = qr_pool_alloc(&pool);
    bool freed;
    qr_pool_keep(&pool, kept);
    cr_assert_eq(qr_pool_unref(&pool, kept, NULL), QUIRE_OK);
    cr_assert_eq(qr_pool_unref(&pool, id, &freed), QUIRE_OK);
    cr_assert(freed);
    qr_pool_block before[BLOCKS];
    memcpy(before, pool.blocks, sizeof before);
    cr_assert_eq(qr_pool_unref(&pool, id, &freed), QUIRE_NOT_FOUND);
    cr_assert_eq(qr_pool_unref(&pool, kept, &freed), QUIRE_NOT_FOUND);
    cr_assert_eq(qr_pool_unref(&pool, BLOCKS, &freed), QUIRE_NOT_FOUND);
    cr_assert_eq(qr_pool_unref(&pool, QUIRE_BLOCK_NONE, &freed), QUIRE_NOT_FOUND);
    cr_assert(!freed);
    cr_assert_arr_eq(pool.blocks, before, sizeof before);
    cr_assert_eq(pool.state_count[QR_BLOCK_FREE], BLOCKS - 1);
}

Test(blockmgr_pool, copies_and_wipes_whole_blocks) {
    qr_device *device;
    cr_assert_eq(qr_device_cpu_create(&device), QUIRE_OK);
    cr_assert_eq(qr_pool_alloc_memory(&pool, device, 4096, NULL), QUIRE_OK);
    unsigned char *a = qr_pool_address(&pool, 1), *b = qr_pool_address(&pool, 2);
    cr_assert_eq(b - a, 4096);
    memset(a, 7, 4096);
    qr_pool_copy(&pool, 2, 1);
    cr_assert_eq(memcmp(a, b, 4096), 0);
    qr_pool_wipe(&pool, 1);
    cr_assert(a[0] == 0 && a[4095] == 0 && b[0] == 7);
    device->ops->free(device, pool.memory);
    pool.memory = NULL;
    device->ops->destroy(device);
}

/* ---- what is owed ---- */

enum { BLOCK_BYTES = 4096 };

static qr_device *take_memory(void) {
    qr_device *device;
    cr_assert_eq(qr_device_cpu_create(&device), QUIRE_OK);
    cr_assert_eq(qr_pool_alloc_memory(&pool, device, BLOCK_BYTES, NULL), QUIRE_OK);
    return device;
}

static void give_memory(qr_device *device) {
    device->ops->free(device, pool.memory);
    pool.memory = NULL;
    device->ops->destroy(device);
}

static quire_block_id alloc_written(void) {
    quire_block_id id = qr_pool_alloc(&pool);
    memset(qr_pool_address(&pool, id), 7, BLOCK_BYTES);
    return id;
}

static void put_back(quire_block_id id) { cr_assert_eq(qr_pool_unref(&pool, id, NULL), QUIRE_OK); }

static bool is_zero(quire_block_id id) {
    const unsigned char *bytes = qr_pool_address(&pool, id);
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, BLOCK_BYTES - 1) == 0;
}

Test(blockmgr_pool, only_blocks_that_were_written_are_owed_and_some_are_overwritten_at_a_time) {
    qr_device *device = take_memory();
    quire_block_id ids[3];
    for (int i = 0; i < 3; i++) ids[i] = alloc_written();
    for (int i = 0; i < 3; i++) put_back(ids[i]);
    qr_pool_owe(&pool);
    qr_pool_owe(&pool);
    cr_assert_eq(pool.owed_count, 3);
    cr_assert_eq(qr_pool_wipe_some(&pool, BLOCK_BYTES + 1), 2 * BLOCK_BYTES);
    cr_assert_eq(pool.owed_count, 1);
    cr_assert_eq(qr_pool_check(&pool, NULL), QUIRE_OK);
    cr_assert_eq(qr_pool_wipe_some(&pool, SIZE_MAX), BLOCK_BYTES);
    for (int i = 0; i < 3; i++) cr_assert(is_zero(ids[i]));
    qr_pool_owe(&pool);
    cr_assert(pool.owed_count == 0 && qr_pool_wipe_some(&pool, SIZE_MAX) == 0);
    give_memory(device);
}

Test(blockmgr_pool, an_owed_block_is_overwritten_before_it_is_handed_out) {
    qr_device *device = take_memory();
    put_back(alloc_written());
    qr_pool_owe(&pool);
    quire_block_id id = qr_pool_alloc(&pool);
    cr_assert(is_zero(id) && pool.owed_count == 0);
    put_back(id);
    cr_assert_eq(pool.owed_count, 0);
    qr_pool_owe(&pool);
    cr_assert_eq(pool.owed_count, 1, "its new user may have written");
    qr_pool_wipe(&pool, id);
    cr_assert_eq(pool.owed_count, 0);
    give_memory(device);
}

Test(blockmgr_pool, a_block_in_use_pays_when_it_is_free_unless_it_was_kept) {
    qr_device *device = take_memory();
    quire_block_id used = alloc_written(), kept = alloc_written(), whole = alloc_written();
    qr_pool_keep(&pool, whole);
    qr_pool_owe(&pool);
    cr_assert_eq(pool.owed_count, 0);
    quire_block_id copy = alloc_written();
    qr_pool_copy(&pool, copy, used); /* with all that it owes */
    qr_pool_keep(&pool, kept);
    quire_block_id ids[] = {whole, kept, used, copy};
    for (int i = 0; i < 4; i++) {
        put_back(ids[i]);
        if (i < 2) cr_assert(qr_pool_unkeep(&pool, ids[i]));
        cr_assert_eq(pool.owed_count, i < 2 ? 0 : (uint32_t)i - 1);
    }
    cr_assert_eq(qr_pool_wipe_some(&pool, SIZE_MAX), 2 * BLOCK_BYTES);
    cr_assert(is_zero(used) && is_zero(copy) && !is_zero(whole) && !is_zero(kept));
    give_memory(device);
}

Test(blockmgr_pool, memory_that_cannot_be_reached_is_never_owed) {
    put_back(qr_pool_alloc(&pool));
    qr_pool_owe(&pool);
    cr_assert(pool.owed_count == 0 && qr_pool_wipe_some(&pool, SIZE_MAX) == 0);
}

Test(blockmgr_pool, check_finds_damage) {
    qr_pool saved = pool;
    quire_block_id id = qr_pool_alloc(&pool);
    quire_error error;
    pool.blocks[id].reference_count = 0;
    cr_assert_eq(qr_pool_check(&pool, &error), QUIRE_CORRUPT);
    pool.blocks[id].reference_count = 1;
    pool.free_ids[0] = pool.free_ids[1];
    cr_assert_eq(qr_pool_check(&pool, &error), QUIRE_CORRUPT);
    pool.free_ids[0] = BLOCKS - 1;
    pool.state_count[QR_BLOCK_USED]++;
    cr_assert_eq(qr_pool_check(&pool, &error), QUIRE_CORRUPT);
    pool.state_count[QR_BLOCK_USED]--;
    pool.owed_count++;
    cr_assert_eq(qr_pool_check(&pool, &error), QUIRE_CORRUPT);
    pool.owed_count--;
    cr_assert_eq(qr_pool_check(&pool, &error), QUIRE_OK);
    cr_assert_eq(saved.block_count, pool.block_count);
}
