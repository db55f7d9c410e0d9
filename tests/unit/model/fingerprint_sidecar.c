/* Remembered fingerprints: believed only for the very same file, private, and never a reason to fail. */
#include "runtime/model/fingerprint_sidecar.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/model/model.h"
#include "tests/support/tiny_model.h"

enum { FINGERPRINT = 0x1234567 };
#define DAY_NS INT64_C(86400000000000)

static const qr_file_identity identity = {0x801, 77, 12345, 3 * DAY_NS + 1, 5 * DAY_NS + 2};

typedef struct fixture {
    char root[64], folder[96], file[160];
} fixture;

/* The folder, two levels below an empty one, is not there yet. */
static fixture begin(void) {
    fixture f;
    strcpy(f.root, "/tmp/quire-test-XXXXXX");
    cr_assert_not_null(mkdtemp(f.root));
    snprintf(f.folder, sizeof f.folder, "%s/quire/fingerprints", f.root);
    snprintf(f.file, sizeof f.file, "%s/801-4d", f.folder);
    return f;
}

static void end(const fixture *f) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", f->root);
    cr_assert_eq(system(command), 0);
}

static void keep(const fixture *f) {
    qr_fingerprint_sidecar_keep(f->folder, &identity, false, FINGERPRINT, 6 * DAY_NS);
    cr_assert_eq(qr_fingerprint_sidecar_find(f->folder, &identity, false), FINGERPRINT);
}

static size_t read_file(const char *path, char *bytes, size_t size) {
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    size_t length = fread(bytes, 1, size, file);
    fclose(file);
    return length;
}

static void write_file(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}

static unsigned mode_of(const char *path) {
    struct stat about;
    cr_assert_eq(stat(path, &about), 0);
    return about.st_mode & 07777;
}

Test(model_fingerprint_sidecar, remembers_in_private_files) {
    fixture f = begin();
    char left[200];
    umask(0);
    cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &identity, false), 0);
    keep(&f);
    cr_assert_eq(mode_of(f.folder), 0700);
    cr_assert_eq(mode_of(f.file), 0600);
    snprintf(left, sizeof left, "%s.new", f.file);
    cr_assert_neq(access(left, F_OK), 0);
    end(&f);
}

Test(model_fingerprint_sidecar, every_part_of_the_identity_counts) {
    fixture f = begin();
    keep(&f);
    for (int part = 0; part < 5; part++) {
        qr_file_identity other = identity;
        if (part == 0) other.device++;
        if (part == 1) other.inode++;
        if (part == 2) other.size_bytes++;
        if (part == 3) other.modified_ns++;
        if (part == 4) other.changed_ns--;
        cr_assert_not(qr_file_identity_equal(&identity, &other));
        cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &other, false), 0, "part %d", part);
    }
    cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &identity, true), 0);
    qr_fingerprint_sidecar_keep(f.folder, &identity, true, FINGERPRINT + 1, 6 * DAY_NS);
    cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &identity, true), FINGERPRINT + 1);
    cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &identity, false), FINGERPRINT);
    end(&f);
}

/* Under the name that another file's text belongs to: the inode was used again. */
Test(model_fingerprint_sidecar, a_text_of_another_file_is_not_believed) {
    fixture f = begin();
    char bytes[400], other_path[160];
    keep(&f);
    size_t size = read_file(f.file, bytes, sizeof bytes);
    qr_file_identity other = identity;
    other.inode = 78;
    snprintf(other_path, sizeof other_path, "%s/801-4e", f.folder);
    write_file(other_path, bytes, size);
    cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &other, false), 0);
    qr_fingerprint_sidecar_keep(f.folder, &other, false, FINGERPRINT + 2, 6 * DAY_NS);
    cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &other, false), FINGERPRINT + 2);
    end(&f);
}

/* Every bit of it, every length, and one byte too many. */
Test(model_fingerprint_sidecar, damage_is_a_miss) {
    fixture f = begin();
    char bytes[400];
    keep(&f);
    size_t size = read_file(f.file, bytes, sizeof bytes - 1);
    for (size_t bit = 0; bit < size * 8; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        write_file(f.file, bytes, size);
        cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &identity, false), 0, "bit %zu", bit);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    bytes[size] = '\n';
    for (size_t length = 0; length <= size + 1; length++) {
        write_file(f.file, bytes, length);
        cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &identity, false), length == size ? FINGERPRINT : 0);
    }
    end(&f);
}

Test(model_fingerprint_sidecar, places_that_cannot_be_used_are_no_errors) {
    fixture f = begin();
    keep(&f);
    cr_assert_eq(chmod(f.folder, 0770), 0); /* others might write */
    cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &identity, false), 0);
    cr_assert_eq(chmod(f.folder, 0700), 0);
    cr_assert_eq(unlink(f.file), 0);
    cr_assert_eq(mkdir(f.file, 0700), 0);
    cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &identity, false), 0);
    qr_fingerprint_sidecar_keep(f.folder, &identity, false, FINGERPRINT, 6 * DAY_NS);
    cr_assert_eq(rmdir(f.file), 0);
    cr_assert_eq(mkfifo(f.file, 0600), 0); /* must not hang */
    cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &identity, false), 0);
    keep(&f); /* and is replaced */
    cr_assert_eq(symlink("/dev/zero", strcat(f.file, ".new")), 0);
    f.file[strlen(f.file) - 4] = 0;
    keep(&f);
    qr_fingerprint_sidecar_keep("/proc/nowhere", &identity, false, FINGERPRINT, 6 * DAY_NS);
    cr_assert_eq(qr_fingerprint_sidecar_find("/proc/nowhere", &identity, false), 0);
    cr_assert_eq(qr_fingerprint_sidecar_find("", &identity, false), 0);
    end(&f);
}

Test(model_fingerprint_sidecar, a_file_that_changed_just_now_is_not_remembered) {
    fixture f = begin();
    qr_fingerprint_sidecar_keep(f.folder, &identity, false, FINGERPRINT, identity.changed_ns + QR_SIDECAR_SETTLE_NS - 1);
    cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &identity, false), 0);
    qr_fingerprint_sidecar_keep(f.folder, &identity, false, 0, 6 * DAY_NS); /* 0 is none */
    cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &identity, false), 0);
    qr_fingerprint_sidecar_keep(f.folder, &identity, false, FINGERPRINT, identity.changed_ns + QR_SIDECAR_SETTLE_NS);
    cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &identity, false), FINGERPRINT);
    end(&f);
}

/* ---- with models ---- */

static uint64_t open_fingerprint(const char *path, const char *folder) {
    quire_model *model;
    quire_error error;
    const quire_model_options options = {.fingerprint_folder = folder, .thread_count = 1};
    cr_assert_eq(quire_model_open(path, &options, &model, &error), QUIRE_OK, "%s", error.text);
    uint64_t fingerprint = quire_model_get_info(model)->fingerprint;
    quire_model_close(model);
    return fingerprint;
}

static qr_file_identity identity_of(const char *path) {
    qr_file_identity id;
    int fd = open(path, O_RDONLY);
    cr_assert(fd >= 0 && qr_file_identity_read(fd, &id));
    close(fd);
    return id;
}

/* A planted value shows whether the sidecar was believed. */
Test(model_fingerprint_sidecar, models_take_it_until_their_file_changes) {
    fixture f = begin();
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q8_0);
    char path[32];
    size_t size;
    uint8_t *file = tiny_model_file(&tiny, &size);
    write_temporary(file, size, path);
    uint64_t computed = open_fingerprint(path, NULL);
    cr_assert_eq(open_fingerprint(path, f.folder), computed);
    qr_file_identity id = identity_of(path);
    qr_fingerprint_sidecar_keep(f.folder, &id, false, FINGERPRINT, id.changed_ns + DAY_NS);
    cr_assert_eq(open_fingerprint(path, f.folder), FINGERPRINT);
    cr_assert_eq(open_fingerprint(path, NULL), computed);
    int fd = open(path, O_WRONLY);
    cr_assert_eq(pwrite(fd, file + size - 1, 1, (off_t)size - 1), 1); /* the same byte */
    close(fd);
    cr_assert_eq(open_fingerprint(path, f.folder), computed);
    unlink(path);
    free(file);
    end(&f);
}

/* The one test that waits: only the system can make a file old. */
Test(model_fingerprint_sidecar, models_leave_one_behind_when_their_file_has_settled) {
    fixture f = begin();
    const tiny_model tiny = tiny_model_of(QR_WEIGHT_Q8_0);
    char path[32];
    size_t size;
    uint8_t *file = tiny_model_file(&tiny, &size);
    write_temporary(file, size, path);
    qr_file_identity id = identity_of(path);
    uint64_t computed = open_fingerprint(path, f.folder);
    cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &id, false), 0);
    const struct timespec settle = {QR_SIDECAR_SETTLE_NS / 1000000000, 100000000};
    nanosleep(&settle, NULL);
    cr_assert_eq(open_fingerprint(path, f.folder), computed);
    cr_assert_eq(qr_fingerprint_sidecar_find(f.folder, &id, false), computed);
    unlink(path);
    free(file);
    end(&f);
}
