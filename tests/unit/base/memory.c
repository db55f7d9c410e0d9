#include "base/memory.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/checked.h"

Test(base_memory, a_region_is_zero_aligned_and_as_large_as_asked) {
    const size_t sizes[] = {1, 4096, 4097, 2u << 20, (5u << 20) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        qr_region region;
        cr_assert_eq(qr_region_alloc(sizes[i], &region, NULL), QUIRE_OK);
        cr_assert_geq(region.size_bytes, sizes[i]);
        cr_assert_lt(region.size_bytes - sizes[i], 4096);
        cr_assert_eq((uintptr_t)region.base % (sizes[i] >= 2u << 20 ? 2u << 20 : 4096), 0);
        unsigned char *bytes = region.base;
        for (size_t at = 0; at < region.size_bytes; at += 4096) cr_assert_eq(bytes[at], 0);
        bytes[0] = bytes[region.size_bytes - 1] = 1;
        qr_region_free(&region);
        cr_assert_null(region.base);
        cr_assert_eq(region.size_bytes, 0);
        qr_region_free(&region);
    }
}

Test(base_memory, impossible_regions_are_refused_with_the_numbers) {
    qr_region region = {(void *)1, 1};
    quire_error error;
    cr_assert_eq(qr_region_alloc(0, &region, &error), QUIRE_INVALID);
    cr_assert_eq(qr_region_alloc(SIZE_MAX, &region, &error), QUIRE_NO_MEMORY);
    cr_assert_eq(qr_region_alloc(SIZE_MAX / 2, &region, &error), QUIRE_NO_MEMORY);
    cr_assert_not_null(strstr(error.text, "9223372036854775807"));
    cr_assert_null(region.base);
}

Test(base_memory, heap_blocks_are_zero_and_aligned_and_products_cannot_wrap) {
    for (size_t count = 0; count < 200; count++) {
        unsigned char *bytes = qr_alloc_zero(count, 3);
        cr_assert_not_null(bytes);
        cr_assert_eq((uintptr_t)bytes % 64, 0);
        for (size_t i = 0; i < count * 3; i++) cr_assert_eq(bytes[i], 0);
        free(bytes);
    }
    cr_assert_null(qr_alloc_zero(SIZE_MAX / 2, 3));
    cr_assert_null(qr_alloc_zero(SIZE_MAX, 1));
}

Test(base_memory, available_memory_is_a_possible_number) {
    uint64_t bytes = qr_memory_available_bytes();
    cr_assert_gt(bytes, 1u << 20);
    cr_assert_lt(bytes, (uint64_t)1 << 50);
}

Test(base_memory, checked_products_and_sums_say_when_they_wrap) {
    size_t size = 1;
    uint64_t wide = 1;
    cr_assert(qr_mul_size(6, 7, &size) && size == 42);
    cr_assert(!qr_mul_size(SIZE_MAX, 2, &size) && size == 0);
    cr_assert(!qr_add_size(SIZE_MAX, 1, &size) && size == 0);
    cr_assert(!qr_mul_u64(UINT64_MAX, UINT64_MAX, &wide) && wide == 0);
    cr_assert(!qr_add_u64(UINT64_MAX, 1, &wide) && wide == 0);
    cr_assert_eq(qr_div_up(1000, 16), 63);
    cr_assert_eq(qr_div_up(UINT64_MAX, 1), UINT64_MAX);
    cr_assert_eq(qr_align_up(129, 128), 256);
}
