#include "blockmgr/arena.h"

#include <criterion/criterion.h>

Test(blockmgr_arena, counting_and_taking_agree) {
    _Alignas(QR_ARENA_ALIGNMENT) static unsigned char memory[1024];
    qr_arena counted = {0}, taken = {.base = memory, .size_bytes = sizeof memory};
    cr_assert_null(qr_arena_take(&counted, 3, 8));
    cr_assert_null(qr_arena_take(&counted, 1, 65));
    cr_assert_eq(qr_arena_take(&taken, 3, 8), memory);
    cr_assert_eq(qr_arena_take(&taken, 1, 65), memory + 64);
    cr_assert_eq(counted.used_bytes, 192);
    cr_assert_eq(taken.used_bytes, 192);
    cr_assert(!counted.failed && !taken.failed);
}

Test(blockmgr_arena, a_size_that_wraps_fails_for_good) {
    qr_arena arena = {0};
    cr_assert_null(qr_arena_take(&arena, UINT64_MAX / 2, 3));
    cr_assert(arena.failed);
    cr_assert_null(qr_arena_take(&arena, 1, 1));
    cr_assert_eq(arena.used_bytes, 0);
    arena = (qr_arena){.used_bytes = UINT64_MAX - 10};
    qr_arena_take(&arena, 1, 11);
    cr_assert(arena.failed);
    arena = (qr_arena){0};
    qr_arena_take(&arena, UINT64_MAX, 1); /* rounding up wraps */
    cr_assert(arena.failed);
}

Test(blockmgr_arena, no_more_than_the_region_has) {
    _Alignas(QR_ARENA_ALIGNMENT) unsigned char memory[128];
    qr_arena arena = {.base = memory, .size_bytes = sizeof memory};
    cr_assert_not_null(qr_arena_take(&arena, 1, 64));
    cr_assert_null(qr_arena_take(&arena, 1, 65));
    cr_assert(arena.failed);
}
