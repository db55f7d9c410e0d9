#include "offload/files.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, PATH_BYTES = 256 };

static char folder[64];

static void make_folder(void) {
    (void)snprintf(folder, sizeof folder, "/tmp/quire-files-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void) {
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(offload_files, .init = make_folder, .fini = remove_folder);

static const char *at(const char *name) {
    static char paths[4][PATH_BYTES];
    static int next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return path;
}

static quire_status open_file(const char *path, qr_file_mode mode, bool direct, int *fd, quire_error *error) {
    qr_files *files = qr_files_system();
    return files->ops->open(files, path, mode, direct, fd, error);
}

static int made(const char *name, bool direct) {
    int fd;
    quire_error error;
    cr_assert_eq(open_file(at(name), QR_FILE_CREATE_UNIQUE, direct, &fd, &error), QUIRE_OK);
    return fd;
}

static unsigned char *page_aligned(size_t bytes) {
    void *memory = NULL;
    cr_assert_eq(posix_memalign(&memory, PAGE, bytes), 0);
    return memory;
}

Test(offload_files, made_for_its_owner_alone_and_only_once) {
    struct stat about;
    quire_error error;
    int fd = made("a", false), again;
    cr_assert_eq(stat(at("a"), &about), 0);
    cr_assert_eq(about.st_mode & 0777, 0600);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    cr_assert_eq(open_file(at("a"), QR_FILE_CREATE_UNIQUE, false, &again, &error), QUIRE_IO);
    cr_assert_eq(again, -1);
    cr_assert_not_null(strstr(error.source, "/a"));
    cr_assert_eq(open_file(at("a"), QR_FILE_CREATE_UNIQUE, true, &again, &error), QUIRE_IO);
    qr_files_system()->ops->close(qr_files_system(), fd);
}

Test(offload_files, only_a_regular_file_is_opened) {
    int fd;
    quire_error error;
    cr_assert_eq(mkdir(at("folder"), 0700), 0);
    cr_assert_eq(mkfifo(at("pipe"), 0600), 0);
    cr_assert_eq(symlink("/etc/hostname", at("link")), 0);
    const char *names[] = {"missing", "folder", "pipe", "link"};
    for (size_t i = 0; i < 4; i++)
        for (int mode = QR_FILE_READ; mode <= QR_FILE_READ_WRITE; mode++) {
            fd = 7;
            cr_assert_eq(open_file(at(names[i]), (qr_file_mode)mode, false, &fd, &error), QUIRE_NOT_FOUND, "%s", names[i]);
            cr_assert_eq(fd, -1);
            cr_assert_not_null(strstr(error.source, names[i]));
            cr_assert_gt(strlen(error.text), 5);
        }
    cr_assert_eq(open_file(at("link"), QR_FILE_CREATE_UNIQUE, false, &fd, NULL), QUIRE_IO);
}

/* 150 parts: more than one system call takes; some are empty. */
Test(offload_files, many_parts_are_one_transfer) {
    enum { PARTS = 150 };
    struct iovec parts[PARTS];
    unsigned char from[PARTS * 10], to[PARTS * 10];
    qr_files *files = qr_files_system();
    int fd = made("a", false);
    size_t total = 0;
    for (size_t i = 0; i < PARTS; i++) {
        parts[i] = (struct iovec){from + total, i % 3 == 0 ? 0 : i % 11};
        total += parts[i].iov_len;
    }
    for (size_t i = 0; i < total; i++) from[i] = (unsigned char)(i * 7 + i / 256);
    cr_assert_eq(files->ops->write(files, fd, parts, PARTS, 5, NULL), QUIRE_OK);
    uint64_t size;
    cr_assert_eq(files->ops->size(files, fd, &size, NULL), QUIRE_OK);
    cr_assert_eq(size, total + 5);
    for (size_t i = 0; i < PARTS; i++) parts[i].iov_base = to + ((unsigned char *)parts[i].iov_base - from);
    cr_assert_eq(files->ops->read(files, fd, parts, PARTS, 5, NULL), QUIRE_OK);
    cr_assert_eq(memcmp(from, to, total), 0);
    cr_assert_eq(files->ops->read(files, fd, parts, 0, 1 << 20, NULL), QUIRE_OK, "nothing is always there");
    files->ops->close(files, fd);
}

Test(offload_files, a_file_that_ends_too_early_is_an_error_with_the_place) {
    unsigned char bytes[100] = {0};
    qr_files *files = qr_files_system();
    quire_error error;
    int fd = made("short", false);
    cr_assert_eq(files->ops->write(files, fd, &(struct iovec){bytes, 60}, 1, 0, NULL), QUIRE_OK);
    cr_assert_eq(files->ops->read(files, fd, &(struct iovec){bytes, 100}, 1, 0, &error), QUIRE_IO);
    cr_assert_eq(error.offset, 60);
    cr_assert_not_null(strstr(error.source, "/short"));
    files->ops->close(files, fd);
}

Test(offload_files, the_wrong_descriptor_is_an_error_and_no_crash) {
    unsigned char byte = 1;
    qr_files *files = qr_files_system();
    quire_error error;
    int fd = made("a", false), only_read;
    cr_assert_eq(open_file(at("a"), QR_FILE_READ, false, &only_read, NULL), QUIRE_OK);
    cr_assert_eq(files->ops->write(files, only_read, &(struct iovec){&byte, 1}, 1, 0, &error), QUIRE_IO);
    cr_assert_eq(files->ops->read(files, 100000, &(struct iovec){&byte, 1}, 1, 0, &error), QUIRE_IO);
    cr_assert_eq(files->ops->sync(files, 100000, &error), QUIRE_IO);
    files->ops->close(files, only_read);
    files->ops->close(files, fd);
}

/* Buffers and sizes that direct I/O takes, then such that it refuses: both must work. */
Test(offload_files, direct_transfers_and_what_direct_io_refuses) {
    qr_files *files = qr_files_system();
    unsigned char *from = page_aligned(8 * PAGE), *to = page_aligned(8 * PAGE);
    for (size_t i = 0; i < 8 * PAGE; i++) from[i] = (unsigned char)(i * 13 + i / PAGE);
    int fd = made("a", true);
    cr_assert_eq(files->ops->allocate(files, fd, 16 * PAGE, NULL), QUIRE_OK);
    cr_assert_eq(files->ops->write(files, fd, &(struct iovec){from, 8 * PAGE}, 1, 4 * PAGE, NULL), QUIRE_OK);
    struct iovec halves[] = {{to + 4 * PAGE, 4 * PAGE}, {to, 4 * PAGE}};
    cr_assert_eq(files->ops->read(files, fd, halves, 2, 4 * PAGE, NULL), QUIRE_OK);
    cr_assert_eq(memcmp(to + 4 * PAGE, from, 4 * PAGE), 0);
    cr_assert_eq(memcmp(to, from + 4 * PAGE, 4 * PAGE), 0);
    cr_assert_eq(files->ops->read(files, fd, &(struct iovec){to + 1, 1000}, 1, 4 * PAGE + 3, NULL), QUIRE_OK);
    cr_assert_eq(memcmp(to + 1, from + 3, 1000), 0);
    files->ops->close(files, fd);
    free(from);
    free(to);
}

Test(offload_files, space_is_taken_at_once_and_reads_as_zeros) {
    struct stat about;
    qr_files *files = qr_files_system();
    unsigned char *page = page_aligned(PAGE);
    int fd = made("a", true);
    cr_assert_eq(files->ops->allocate(files, fd, 64 * PAGE, NULL), QUIRE_OK);
    cr_assert_eq(fstat(fd, &about), 0);
    cr_assert_eq(about.st_size, 64 * PAGE);
    cr_assert_geq(about.st_blocks * 512, 64 * PAGE);
    memset(page, 1, PAGE);
    cr_assert_eq(files->ops->read(files, fd, &(struct iovec){page, PAGE}, 1, 63 * PAGE, NULL), QUIRE_OK);
    for (size_t i = 0; i < PAGE; i++) cr_assert_eq(page[i], 0);
    files->ops->close(files, fd);
    free(page);
}

Test(offload_files, space_that_cannot_be_had_is_no_space) {
    struct stat about;
    qr_files *files = qr_files_system();
    quire_error error;
    qr_files_space space;
    cr_assert_eq(files->ops->space(files, folder, &space, NULL), QUIRE_OK);
    cr_assert(space.free_bytes > 0 && space.free_bytes <= space.total_bytes);
    int fd = made("a", false);
    cr_assert_eq(files->ops->allocate(files, fd, space.total_bytes * 2, &error), QUIRE_NO_SPACE);
    cr_assert_eq(error.status, QUIRE_NO_SPACE);
    cr_assert(fstat(fd, &about) == 0 && about.st_blocks == 0); /* what there is was not taken either */
    files->ops->close(files, fd);
    cr_assert_eq(files->ops->space(files, at("missing"), &space, &error), QUIRE_IO);
    cr_assert(space.total_bytes == 0 && space.free_bytes == 0);
}

Test(offload_files, punched_bytes_are_gone_and_their_neighbours_are_not) {
    qr_files *files = qr_files_system();
    unsigned char *bytes = page_aligned(3 * PAGE);
    int fd = made("a", false);
    memset(bytes, 0x5a, 3 * PAGE);
    cr_assert_eq(files->ops->write(files, fd, &(struct iovec){bytes, 3 * PAGE}, 1, 0, NULL), QUIRE_OK);
    cr_assert_eq(files->ops->punch(files, fd, PAGE + 8, PAGE - 8, NULL), QUIRE_OK);
    cr_assert_eq(files->ops->read(files, fd, &(struct iovec){bytes, 3 * PAGE}, 1, 0, NULL), QUIRE_OK);
    for (size_t i = 0; i < 3 * PAGE; i++) cr_assert_eq(bytes[i], i < PAGE + 8 || i >= 2 * PAGE ? 0x5a : 0);
    files->ops->close(files, fd);
    free(bytes);
}

Test(offload_files, files_are_renamed_removed_and_made_to_last) {
    qr_files *files = qr_files_system();
    quire_error error;
    int fd = made("a", false), other;
    cr_assert_eq(files->ops->sync(files, fd, NULL), QUIRE_OK);
    files->ops->close(files, fd);
    cr_assert_eq(files->ops->rename(files, at("a"), at("b"), NULL), QUIRE_OK);
    cr_assert_eq(files->ops->sync_folder(files, folder, NULL), QUIRE_OK);
    cr_assert_eq(open_file(at("a"), QR_FILE_READ, false, &other, NULL), QUIRE_NOT_FOUND);
    cr_assert_eq(files->ops->remove(files, at("b"), NULL), QUIRE_OK);
    cr_assert_eq(files->ops->remove(files, at("b"), &error), QUIRE_NOT_FOUND);
    cr_assert_eq(files->ops->rename(files, at("a"), at("b"), &error), QUIRE_IO);
    cr_assert_not_null(strstr(error.source, "/a"));
    cr_assert_eq(files->ops->sync_folder(files, at("missing"), &error), QUIRE_IO);
}

Test(offload_files, zeroed_bytes_are_gone_and_keep_their_space) {
    qr_files *files = qr_files_system();
    enum { PAGES = 64 };
    unsigned char *bytes = page_aligned(PAGES * PAGE);
    struct iovec part = {bytes, PAGES * PAGE};
    struct stat before, after;
    int fd = made("a", true);
    memset(bytes, 0xab, PAGES * PAGE);
    cr_assert_eq(files->ops->write(files, fd, &part, 1, 0, NULL), QUIRE_OK);
    cr_assert_eq(files->ops->sync(files, fd, NULL), QUIRE_OK);
    cr_assert_eq(fstat(fd, &before), 0);
    cr_assert_eq(files->ops->zero(files, fd, PAGE, (PAGES - 2) * PAGE, NULL), QUIRE_OK);
    cr_assert_eq(files->ops->sync(files, fd, NULL), QUIRE_OK);
    cr_assert_eq(fstat(fd, &after), 0);
    cr_assert_eq(after.st_size, before.st_size);
    cr_assert_geq(after.st_blocks, before.st_blocks);
    cr_assert_eq(files->ops->read(files, fd, &part, 1, 0, NULL), QUIRE_OK);
    for (int i = 0; i < PAGES * PAGE; i++) {
        bool kept = i < PAGE || i >= (PAGES - 1) * PAGE;
        cr_assert_eq(bytes[i], kept ? 0xab : 0);
    }
    files->ops->close(files, fd);
    free(bytes);
}
