#include "base/memory.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

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

static void limit_to(int resource, uint64_t bytes) {
    struct rlimit limit;
    cr_assert_eq(getrlimit(resource, &limit), 0);
    limit.rlim_cur = bytes;
    cr_assert_eq(setrlimit(resource, &limit), 0);
}

/* Of the fields of /proc/self/statm, in bytes. */
static uint64_t process_pages(int field) {
    uint64_t pages[6] = {0};
    FILE *file = fopen("/proc/self/statm", "re");
    cr_assert_not_null(file);
    for (int i = 0; i < 6; i++) cr_assert_eq(fscanf(file, "%" SCNu64, &pages[i]), 1);
    fclose(file);
    return pages[field] * (uint64_t)sysconf(_SC_PAGESIZE);
}

Test(base_memory, a_limit_of_the_process_leaves_what_is_not_mapped_yet) {
    enum { MIB = 1 << 20 };
    const int resources[] = {RLIMIT_AS, RLIMIT_DATA}, fields[] = {0, 5};
    for (int i = 0; i < 2; i++) {
        qr_region region;
        limit_to(resources[i], process_pages(fields[i]) + 64 * MIB);
        uint64_t before = qr_memory_available_bytes();
        cr_expect(before > 48 * MIB && before <= 64 * MIB, "%" PRIu64, before);
        cr_assert_eq(qr_region_alloc(16 * MIB, &region, NULL), QUIRE_OK);
        uint64_t after = qr_memory_available_bytes();
        cr_expect(after > 32 * MIB - MIB && after <= before - 16 * MIB, "what is mapped counts before it is touched: %" PRIu64,
                  after);
        qr_region_free(&region);
        limit_to(resources[i], MIB);
        cr_expect_eq(qr_memory_available_bytes(), 1, "nothing is left, and that is known");
        limit_to(resources[i], RLIM_INFINITY);
    }
    cr_assert_gt(qr_memory_available_bytes(), 64 * MIB);
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
