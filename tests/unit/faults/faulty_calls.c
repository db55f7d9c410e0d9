#include "tests/support/faulty_calls.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "offload/files.h"

enum { PAGE = 4096, PAGES = 40 };

static void set(const char *text) {
    faults f;
    cr_assert_eq(faults_parse(text, &f, NULL), QUIRE_OK);
    faulty_calls_set(&f);
}

static void write_and_read(const char *path, bool direct) {
    qr_files *files = qr_files_system();
    unsigned char *from = qr_alloc_zero(PAGES + 1, PAGE), *to = qr_alloc_zero(PAGES + 1, PAGE);
    unsigned char *a = from + (PAGE - (uintptr_t)from % PAGE), *b = to + (PAGE - (uintptr_t)to % PAGE);
    int fd;
    for (size_t i = 0; i < PAGES * PAGE; i++) a[i] = (unsigned char)(i * 31 + i / PAGE);
    cr_assert_eq(files->ops->open(files, path, QR_FILE_CREATE_UNIQUE, direct, &fd, NULL), QUIRE_OK);
    struct iovec out[] = {{a, PAGE}, {a + PAGE, 9 * PAGE}, {a + 10 * PAGE, 30 * PAGE}};
    struct iovec in[] = {{b, 25 * PAGE}, {b + 25 * PAGE, 15 * PAGE}};
    for (int round = 0; round < 20; round++) {
        memset(b, 0, PAGES * PAGE);
        cr_assert_eq(files->ops->write(files, fd, out, 3, 0, NULL), QUIRE_OK);
        cr_assert_eq(files->ops->read(files, fd, in, 2, 0, NULL), QUIRE_OK);
        cr_assert_eq(memcmp(a, b, PAGES * PAGE), 0);
    }
    files->ops->close(files, fd);
    cr_assert_eq(unlink(path), 0);
    free(from);
    free(to);
}

/* The table must repeat short counts and interrupted calls, and go on without direct I/O when a short count ends inside a
 * block. */
Test(faults_faulty_calls, short_counts_and_interruptions_are_never_seen) {
    char folder[] = "/tmp/quire-calls-XXXXXX", path[64];
    cr_assert_not_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/a", folder);
    for (int direct = 0; direct < 2; direct++) {
        set("short_read=0.5,short_write=0.5,interrupt=0.2,seed=4");
        write_and_read(path, direct);
        cr_assert_gt(faulty_calls_count(), 40);
    }
    set("");
    write_and_read(path, true);
    cr_assert_eq(faulty_calls_count(), 0);
    cr_assert_eq(rmdir(folder), 0);
}

Test(faults_faulty_calls, the_nth_allocation_fails_and_no_other) {
    for (uint32_t nth = 1; nth <= 3; nth++) {
        char text[32];
        (void)snprintf(text, sizeof text, "alloc_fail=%u", nth);
        set(text);
        for (uint32_t i = 1; i <= 5; i++) {
            void *memory = qr_alloc_zero(1, 100);
            cr_assert_eq(memory == NULL, i == nth);
            free(memory);
        }
        cr_assert_eq(faulty_calls_count(), 1);
    }
    qr_region region;
    set("alloc_fail=1");
    cr_assert_eq(qr_region_alloc(100, &region, NULL), QUIRE_NO_MEMORY);
    cr_assert_eq(qr_region_alloc(100, &region, NULL), QUIRE_OK);
    qr_region_free(&region);
    set("");
}
