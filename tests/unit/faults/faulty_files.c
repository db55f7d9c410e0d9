#include "tests/support/faulty_files.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

enum { PAGE = 4096, PATH_BYTES = 256 };

static char folder[64];
static unsigned char page[PAGE] __attribute__((aligned(PAGE)));

static void make_folder(void) {
    (void)snprintf(folder, sizeof folder, "/tmp/quire-faulty-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void) {
    char command[256];
    (void)snprintf(command, sizeof command, "rm -rf '%s' '%s'.removed-*", folder, folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(faults_faulty_files, .init = make_folder, .fini = remove_folder);

static const char *at(const char *name) {
    static char paths[4][PATH_BYTES];
    static int next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return path;
}

static faulty_files *create(const char *text, bool remember) {
    faults f;
    cr_assert_eq(faults_parse(text, &f, NULL), QUIRE_OK);
    faulty_files *files = faulty_files_create(qr_files_system(), &f, remember);
    cr_assert_not_null(files);
    return files;
}

static int made(faulty_files *f, const char *name) {
    qr_files *files = faulty_files_table(f);
    int fd;
    cr_assert_eq(files->ops->open(files, at(name), QR_FILE_CREATE_UNIQUE, true, &fd, NULL), QUIRE_OK);
    return fd;
}

static quire_status write_page(faulty_files *f, int fd, uint64_t index, int value, quire_error *error) {
    qr_files *files = faulty_files_table(f);
    memset(page, value, PAGE);
    return files->ops->write(files, fd, &(struct iovec){page, PAGE}, 1, index * PAGE, error);
}

static quire_status read_page(faulty_files *f, int fd, uint64_t index) {
    qr_files *files = faulty_files_table(f);
    return files->ops->read(files, fd, &(struct iovec){page, PAGE}, 1, index * PAGE, NULL);
}

static uint32_t bits_other_than(int value) {
    uint32_t bits = 0;
    for (size_t i = 0; i < PAGE; i++) bits += (uint32_t)__builtin_popcount((unsigned)(page[i] ^ value));
    return bits;
}

Test(faults_faulty_files, without_faults_all_goes_through) {
    for (int remember = 0; remember < 2; remember++) {
        faulty_files *f = create("", remember);
        qr_files *files = faulty_files_table(f);
        uint64_t size;
        int fd = made(f, "a");
        cr_assert_eq(files->ops->allocate(files, fd, 4 * PAGE, NULL), QUIRE_OK);
        cr_assert_eq(write_page(f, fd, 1, 7, NULL), QUIRE_OK);
        cr_assert_eq(files->ops->punch(files, fd, 0, PAGE, NULL), QUIRE_OK);
        cr_assert_eq(files->ops->sync(files, fd, NULL), QUIRE_OK);
        cr_assert_eq(files->ops->size(files, fd, &size, NULL), QUIRE_OK);
        cr_assert_eq(size, 4 * PAGE);
        cr_assert_eq(read_page(f, fd, 1), QUIRE_OK);
        cr_assert_eq(bits_other_than(7), 0);
        files->ops->close(files, fd);
        cr_assert_eq(files->ops->rename(files, at("a"), at("b"), NULL), QUIRE_OK);
        cr_assert_eq(files->ops->sync_folder(files, folder, NULL), QUIRE_OK);
        cr_assert_eq(files->ops->remove(files, at("b"), NULL), QUIRE_OK);
        cr_assert_eq(files->ops->remove(files, at("b"), NULL), QUIRE_NOT_FOUND);
        faulty_files_destroy(f);
    }
}

Test(faults_faulty_files, the_nth_call_fails_and_others_do_not) {
    faulty_files *f = create("eio_write=3,eio_read=2,eio_sync=1", false);
    qr_files *files = faulty_files_table(f);
    quire_error error;
    int fd = made(f, "a");
    for (uint64_t i = 1; i <= 5; i++) cr_assert_eq(write_page(f, fd, i - 1, 1, &error), i == 3 ? QUIRE_IO : QUIRE_OK);
    for (uint64_t i = 1; i <= 5; i++) cr_assert_eq(read_page(f, fd, i - 1), i == 2 ? QUIRE_IO : QUIRE_OK);
    cr_assert_eq(files->ops->sync(files, fd, &error), QUIRE_IO);
    cr_assert_not_null(strstr(error.text, "injected"));
    cr_assert_eq(files->ops->sync(files, fd, &error), QUIRE_OK);
    files->ops->close(files, fd);
    faulty_files_destroy(f);
}

Test(faults_faulty_files, one_bit_flips_in_what_is_read_or_in_what_is_written) {
    faulty_files *f = create("flip_read=1", false);
    int fd = made(f, "a");
    cr_assert_eq(write_page(f, fd, 0, 0x33, NULL), QUIRE_OK);
    cr_assert_eq(read_page(f, fd, 0), QUIRE_OK);
    cr_assert_eq(bits_other_than(0x33), 1);
    cr_assert_eq(read_page(f, fd, 0), QUIRE_OK);
    cr_assert_eq(bits_other_than(0x33), 0);
    faults written = {.flip_write = {.rate = 1.0}};
    faulty_files_set(f, &written);
    cr_assert_eq(write_page(f, fd, 0, 0x44, NULL), QUIRE_OK);
    cr_assert_eq(bits_other_than(0x44), 0, "the caller's bytes are its own");
    cr_assert_eq(read_page(f, fd, 0), QUIRE_OK);
    cr_assert_eq(bits_other_than(0x44), 1);
    faulty_files_table(f)->ops->close(faulty_files_table(f), fd);
    faulty_files_destroy(f);
}

Test(faults_faulty_files, a_small_disk_fills_and_has_room_again) {
    faulty_files *f = create("nospace=64K", false);
    qr_files *files = faulty_files_table(f);
    qr_files_space space;
    int a = made(f, "a"), b = made(f, "b");
    cr_assert_eq(files->ops->allocate(files, a, 48 << 10, NULL), QUIRE_OK);
    cr_assert_eq(files->ops->space(files, folder, &space, NULL), QUIRE_OK);
    cr_assert(space.total_bytes == 64 << 10 && space.free_bytes == 16 << 10);
    cr_assert_eq(files->ops->allocate(files, b, 32 << 10, NULL), QUIRE_NO_SPACE);
    cr_assert_eq(write_page(f, a, 0, 1, NULL), QUIRE_OK, "its own space is there");
    for (uint64_t i = 0; i < 5; i++) cr_assert_eq(write_page(f, b, i, 1, NULL), i < 4 ? QUIRE_OK : QUIRE_NO_SPACE);
    cr_assert_eq(files->ops->remove(files, at("a"), NULL), QUIRE_OK);
    cr_assert_eq(write_page(f, b, 4, 1, NULL), QUIRE_OK);
    faults full = {.full = true};
    faulty_files_set(f, &full);
    cr_assert_eq(files->ops->space(files, folder, &space, NULL), QUIRE_OK);
    cr_assert_eq(space.free_bytes, 0);
    cr_assert_eq(write_page(f, b, 5, 1, NULL), QUIRE_NO_SPACE);
    cr_assert_eq(write_page(f, b, 4, 1, NULL), QUIRE_OK);
    files->ops->close(files, a);
    files->ops->close(files, b);
    faulty_files_destroy(f);
}

Test(faults_faulty_files, a_slow_disk_takes_its_time) {
    faulty_files *f = create("slow=1M", false);
    int fd = made(f, "a");
    uint64_t begin = qr_clock_ns();
    for (uint64_t i = 0; i < 16; i++) cr_assert_eq(write_page(f, fd, i, 1, NULL), QUIRE_OK);
    cr_assert_geq(qr_clock_ns() - begin, 62000000u); /* 64 KiB at 1 MiB/s: 62.5 ms */
    faulty_counts counts;
    faulty_files_get_counts(f, &counts);
    cr_assert_eq(counts.delayed, 16);
    faulty_files_table(f)->ops->close(faulty_files_table(f), fd);
    faulty_files_destroy(f);
}

/* ---- the end of a process ---- */

Test(faults_faulty_files, after_the_instant_nothing_happens_and_what_was_written_is_there) {
    for (uint64_t instant = 1; instant <= 6; instant++) {
        faulty_files *f = create("", true);
        qr_files *files = faulty_files_table(f);
        int fd = made(f, "a");
        faulty_files_stop_after(f, instant);
        for (uint64_t i = 1; i <= 8; i++) cr_assert_eq(write_page(f, fd, i - 1, 9, NULL), i < instant ? QUIRE_OK : QUIRE_IO);
        cr_assert(faulty_files_stopped(f));
        cr_assert_eq(files->ops->remove(files, at("a"), NULL), QUIRE_IO);
        cr_assert_eq(read_page(f, fd, 0), QUIRE_IO);
        files->ops->close(files, fd);
        faulty_files_revive(f);
        uint64_t size;
        cr_assert_eq(files->ops->open(files, at("a"), QR_FILE_READ_WRITE, false, &fd, NULL), QUIRE_OK);
        cr_assert_eq(files->ops->size(files, fd, &size, NULL), QUIRE_OK);
        cr_assert(size == (instant - 1) * PAGE || size == instant * PAGE);
        files->ops->close(files, fd);
        cr_assert_eq(files->ops->remove(files, at("a"), NULL), QUIRE_OK);
        faulty_files_destroy(f);
    }
}

/* One file with 8 pages of 1 that are synced, then rewritten with 2 and 3. */
static void cut_once(uint64_t seed, uint32_t seen[4]) {
    faulty_files *f = create("", true);
    qr_files *files = faulty_files_table(f);
    int fd = made(f, "a");
    for (uint64_t i = 0; i < 8; i++) cr_assert_eq(write_page(f, fd, i, 1, NULL), QUIRE_OK);
    cr_assert_eq(files->ops->sync(files, fd, NULL), QUIRE_OK);
    cr_assert_eq(files->ops->sync_folder(files, folder, NULL), QUIRE_OK);
    for (int value = 2; value <= 3; value++)
        for (uint64_t i = 0; i < 4; i++) cr_assert_eq(write_page(f, fd, i, value, NULL), QUIRE_OK);
    faulty_files_stop_after(f, 0);
    files->ops->close(files, fd);
    faulty_files_power_cut(f, seed);
    faulty_files_revive(f);
    cr_assert_eq(files->ops->open(files, at("a"), QR_FILE_READ_WRITE, false, &fd, NULL), QUIRE_OK);
    for (uint64_t i = 0; i < 8; i++) {
        cr_assert_eq(read_page(f, fd, i), QUIRE_OK);
        for (size_t sector = 0; sector < PAGE; sector += 512) {
            unsigned char value = page[sector];
            cr_assert(value >= 1 && value <= (i < 4 ? 3 : 1));
            for (size_t k = 0; k < 512; k++) cr_assert_eq(page[sector + k], value, "a sector is whole");
            seen[value] += i < 4;
        }
    }
    files->ops->close(files, fd);
    cr_assert_eq(files->ops->remove(files, at("a"), NULL), QUIRE_OK);
    faulty_files_destroy(f);
}

Test(faults_faulty_files, a_power_cut_leaves_any_version_since_the_sync_and_nothing_older) {
    uint32_t seen[4] = {0};
    for (uint64_t seed = 0; seed < 60; seed++) cut_once(seed, seen);
    for (int value = 1; value <= 3; value++) cr_assert_gt(seen[value], 60);
}

Test(faults_faulty_files, what_a_failed_sync_was_for_is_not_saved_by_a_later_one) {
    uint32_t lost = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        faulty_files *f = create("eio_sync=2", true);
        qr_files *files = faulty_files_table(f);
        int fd = made(f, "a");
        cr_assert_eq(files->ops->sync_folder(files, folder, NULL), QUIRE_OK);
        cr_assert_eq(write_page(f, fd, 0, 5, NULL), QUIRE_OK);
        cr_assert_eq(files->ops->sync(files, fd, NULL), QUIRE_IO);
        cr_assert_eq(files->ops->sync(files, fd, NULL), QUIRE_OK);
        faulty_files_stop_after(f, 0);
        files->ops->close(files, fd);
        faulty_files_power_cut(f, seed);
        faulty_files_revive(f);
        struct stat about;
        cr_assert_eq(stat(at("a"), &about), 0);
        lost += about.st_size == 0;
        cr_assert_eq(files->ops->remove(files, at("a"), NULL), QUIRE_OK);
        faulty_files_destroy(f);
    }
    cr_assert(lost > 5 && lost < 40);
}

/* A process that is killed has called no sync that failed: the next one can save what it wrote. */
Test(faults_faulty_files, what_a_killed_process_wrote_can_be_made_to_last) {
    for (uint64_t seed = 0; seed < 20; seed++) {
        faulty_files *f = create("", true);
        qr_files *files = faulty_files_table(f);
        struct stat about;
        int fd = made(f, "a");
        cr_assert_eq(files->ops->sync_folder(files, folder, NULL), QUIRE_OK);
        cr_assert_eq(write_page(f, fd, 0, 5, NULL), QUIRE_OK);
        faulty_files_stop_after(f, 0);
        cr_assert_eq(files->ops->sync(files, fd, NULL), QUIRE_IO);
        faulty_files_revive(f);
        cr_assert_eq(files->ops->sync(files, fd, NULL), QUIRE_OK);
        files->ops->close(files, fd);
        faulty_files_stop_after(f, 0);
        faulty_files_power_cut(f, seed);
        faulty_files_revive(f);
        cr_assert(stat(at("a"), &about) == 0 && about.st_size == PAGE);
        cr_assert_eq(files->ops->remove(files, at("a"), NULL), QUIRE_OK);
        faulty_files_destroy(f);
    }
}

static uint32_t names_mask(void) {
    uint32_t mask = 0;
    for (char name = 'a'; name <= 'c'; name++) mask |= (uint32_t)(access(at((char[]){name, 0}), F_OK) == 0) << (name - 'a');
    return mask;
}

/* a is there; b is made, a removed, b renamed to c: a cut may leave any beginning of that. */
Test(faults_faulty_files, unsynced_changes_of_a_folder_survive_in_order) {
    enum { A = 1, B = 2, C = 4 };
    uint32_t seen[8] = {0};
    for (uint64_t seed = 0; seed < 60; seed++) {
        faulty_files *f = create("", true);
        qr_files *files = faulty_files_table(f);
        int fd = made(f, "a");
        cr_assert_eq(write_page(f, fd, 0, 6, NULL), QUIRE_OK);
        cr_assert_eq(files->ops->sync(files, fd, NULL), QUIRE_OK);
        files->ops->close(files, fd);
        cr_assert_eq(files->ops->sync_folder(files, folder, NULL), QUIRE_OK);
        files->ops->close(files, made(f, "b"));
        cr_assert_eq(files->ops->remove(files, at("a"), NULL), QUIRE_OK);
        cr_assert_eq(files->ops->rename(files, at("b"), at("c"), NULL), QUIRE_OK);
        faulty_files_stop_after(f, 0);
        faulty_files_power_cut(f, seed);
        faulty_files_revive(f);
        seen[names_mask()]++;
        struct stat about;
        if (names_mask() & A) cr_assert(stat(at("a"), &about) == 0 && about.st_size == PAGE, "its bytes came back with it");
        for (char name = 'a'; name <= 'c'; name++) (void)unlink(at((char[]){name, 0}));
        faulty_files_destroy(f);
    }
    cr_assert(seen[A] && seen[A | B] && seen[B] && seen[C]);
    cr_assert_eq(seen[A] + seen[A | B] + seen[B] + seen[C], 60);
}
