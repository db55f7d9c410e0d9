/* fingerprint_sidecar.c - the text of a sidecar, and its folder.
 *
 *     quire-fingerprint 1 <device> <inode> <size> <modified> <changed> <formula> <exact> <fingerprint> <check>
 *
 * Every number is 16 hexadecimal digits, so the whole is of one length. Nothing is parsed but the fingerprint: the text that
 * the file should have is made again from what the caller knows and that one number, and must be equal byte by byte.
 */
#include "runtime/model/fingerprint_sidecar.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

#define MAGIC "quire-fingerprint 1"

enum {
    FIELD_COUNT = 9,
    FIELD_BYTES = 17, /* a blank and 16 digits */
    FIELD_FINGERPRINT = 7,
    FIELD_CHECK = 8,
    TEXT_BYTES = sizeof MAGIC - 1 + FIELD_COUNT * FIELD_BYTES + 1, /* and the line's end */
    NAME_BYTES = 64,
};

typedef struct sidecar_text {
    char bytes[TEXT_BYTES + 1];
} sidecar_text;

/* ---- identity ---- */

static int64_t nanoseconds(struct timespec time) { return (int64_t)time.tv_sec * INT64_C(1000000000) + time.tv_nsec; }

bool qr_file_identity_read(int fd, qr_file_identity *identity) {
    struct stat about;
    if (fstat(fd, &about) || !S_ISREG(about.st_mode)) return false;
    *identity = (qr_file_identity){
        .device = about.st_dev,
        .inode = about.st_ino,
        .size_bytes = (uint64_t)about.st_size,
        .modified_ns = nanoseconds(about.st_mtim),
        .changed_ns = nanoseconds(about.st_ctim),
    };
    return true;
}

bool qr_file_identity_equal(const qr_file_identity *a, const qr_file_identity *b) {
    return a->device == b->device && a->inode == b->inode && a->size_bytes == b->size_bytes &&
           a->modified_ns == b->modified_ns && a->changed_ns == b->changed_ns;
}

/* ---- text ---- */

/* Names the way in which fingerprints are made by what it makes of a fixed text: another revision, or a build whose hash is
 * constant, must not believe this one's. The number rises when weights_load.c hashes something else. */
static uint64_t formula(void) {
    enum { REVISION = 1 };
    return qr_hash_bytes(MAGIC, sizeof MAGIC, REVISION) ^ REVISION;
}

static sidecar_text make_text(const qr_file_identity *id, bool exact, uint64_t fingerprint) {
    uint64_t fields[FIELD_COUNT] = {
        id->device,  id->inode, id->size_bytes, (uint64_t)id->modified_ns, (uint64_t)id->changed_ns, formula(), exact,
        fingerprint, 0};
    for (int i = 0; i < FIELD_CHECK; i++) fields[FIELD_CHECK] = qr_mix64(fields[FIELD_CHECK] ^ fields[i]);
    sidecar_text text;
    size_t used = sizeof MAGIC - 1;
    memcpy(text.bytes, MAGIC, sizeof MAGIC);
    for (int i = 0; i < FIELD_COUNT; i++, used += FIELD_BYTES)
        (void)snprintf(text.bytes + used, sizeof text.bytes - used, " %016" PRIx64, fields[i]);
    memcpy(text.bytes + used, "\n", 2);
    return text;
}

/* 0 when the text is not the one that this identity has with some fingerprint. */
static uint64_t text_fingerprint(const sidecar_text *found, const qr_file_identity *id, bool exact) {
    char digits[FIELD_BYTES];
    memcpy(digits, found->bytes + sizeof MAGIC + (size_t)FIELD_FINGERPRINT * FIELD_BYTES, FIELD_BYTES - 1);
    digits[FIELD_BYTES - 1] = 0;
    uint64_t fingerprint = strtoull(digits, NULL, 16);
    sidecar_text wanted = make_text(id, exact, fingerprint);
    return memcmp(wanted.bytes, found->bytes, TEXT_BYTES) == 0 ? fingerprint : 0;
}

/* ---- files ---- */

static void make_name(char name[NAME_BYTES], const qr_file_identity *id, bool exact, const char *ending) {
    (void)snprintf(name, NAME_BYTES, "%" PRIx64 "-%" PRIx64 "%s%s", id->device, id->inode, exact ? "-exact" : "", ending);
}

/* A folder of this user that nobody else may write to; -1: there is none. */
static int open_folder(const char *path) {
    struct stat about;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -1;
    if (!fstat(fd, &about) && about.st_uid == geteuid() && !(about.st_mode & (S_IWGRP | S_IWOTH))) return fd;
    close(fd);
    return -1;
}

/* The folder and the folders above it that are missing, private all of them. */
static void make_folders(const char *path) {
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof part) return;
    memcpy(part, path, length + 1);
    for (size_t i = 1; i < length; i++) {
        if (part[i] != '/') continue;
        part[i] = 0;
        (void)mkdir(part, 0700);
        part[i] = '/';
    }
    (void)mkdir(part, 0700);
}

/* True when the file has exactly TEXT_BYTES. */
static bool read_text(int folder, const char *name, sidecar_text *text) {
    struct stat about;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    bool whole = !fstat(fd, &about) && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
                 read(fd, text->bytes, sizeof text->bytes) == TEXT_BYTES;
    close(fd);
    return whole;
}

/* What an interrupted writer left behind is removed first. Two writers at once may spoil each other's file, which then has
 * no checksum that holds. */
static void write_text(int folder, const char *name, const char *new_name, const sidecar_text *text) {
    (void)unlinkat(folder, new_name, 0);
    int fd = openat(folder, new_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return;
    bool written = write(fd, text->bytes, TEXT_BYTES) == TEXT_BYTES;
    written = !close(fd) && written;
    if (!written || renameat(folder, new_name, folder, name)) (void)unlinkat(folder, new_name, 0);
}

/* ---- the calls ---- */

uint64_t qr_fingerprint_sidecar_find(const char *folder, const qr_file_identity *identity, bool exact) {
    char name[NAME_BYTES];
    sidecar_text text;
    int fd = open_folder(folder);
    if (fd < 0) return 0;
    make_name(name, identity, exact, "");
    uint64_t fingerprint = read_text(fd, name, &text) ? text_fingerprint(&text, identity, exact) : 0;
    close(fd);
    return fingerprint;
}

void qr_fingerprint_sidecar_keep(const char *folder, const qr_file_identity *identity, bool exact, uint64_t fingerprint,
                                 int64_t now_ns) {
    char name[NAME_BYTES], new_name[NAME_BYTES];
    if (!fingerprint || identity->changed_ns > now_ns - QR_SIDECAR_SETTLE_NS) return;
    make_folders(folder);
    int fd = open_folder(folder);
    if (fd < 0) return;
    make_name(name, identity, exact, "");
    make_name(new_name, identity, exact, ".new");
    sidecar_text text = make_text(identity, exact, fingerprint);
    write_text(fd, name, new_name, &text);
    close(fd);
}
