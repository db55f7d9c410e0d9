/* faulty_journal.c - see faulty_journal.h.
 *
 * A file's changes are kept as (place, bytes before, bytes after). At a cut all of them are undone, last first; then each one
 * is done again, first to last, sector by sector as a coin says: so any sector may hold any version since the last sync, in
 * no order, as a disk with a cache may leave it. Folder changes survive in order up to one of them, as in a file system
 * with a journal.
 */
#include "tests/support/faulty_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assertion.h"
#include "base/list.h"
#include "base/random.h"

enum { PATH_BYTES = 320 };

typedef struct file_change {
    qr_list node;
    uint64_t offset, size_bytes;
    uint64_t file_before, file_after; /* sizes of the file */
    bool doomed;                      /* a sync for it has failed */
    unsigned char *before, *after;    /* [size_bytes]; before: zeros behind the file's end */
} file_change;

typedef struct journal_file {
    qr_list node;
    char path[PATH_BYTES]; /* where it really is: a removed one is in the stash */
    qr_list changes;
} journal_file;

typedef enum folder_change_kind { FOLDER_MADE, FOLDER_REMOVED, FOLDER_RENAMED } folder_change_kind;

typedef struct folder_change {
    qr_list node;
    folder_change_kind kind;
    char path[PATH_BYTES];  /* made, removed; renamed: to */
    char from[PATH_BYTES];  /* renamed */
    char stash[PATH_BYTES]; /* where the removed or replaced file is; empty: there was none */
} folder_change;

typedef struct open_file {
    qr_list node;
    int fd;
    journal_file *file;
} open_file;

struct faulty_journal {
    qr_list files, open_files, folder_changes;
    char stash[PATH_BYTES]; /* a folder; empty until something is removed */
    uint64_t stash_count;
};

static void *must_have(void *memory) {
    QR_ASSERT(memory != NULL);
    return memory;
}

static void copy_path(char to[PATH_BYTES], const char *from) {
    int length = snprintf(to, PATH_BYTES, "%s", from);
    QR_ASSERT(length >= 0 && length < PATH_BYTES);
}

faulty_journal *faulty_journal_create(void) {
    faulty_journal *journal = must_have(calloc(1, sizeof *journal));
    qr_list_init(&journal->files);
    qr_list_init(&journal->open_files);
    qr_list_init(&journal->folder_changes);
    return journal;
}

/* ---- files ---- */

static void change_free(file_change *change) {
    qr_list_remove(&change->node);
    free(change->before);
    free(change->after);
    free(change);
}

static void file_free(journal_file *file) {
    QR_LIST_EACH_SAFE (node, next, &file->changes) change_free(QR_LIST_ENTRY(node, file_change, node));
    qr_list_remove(&file->node);
    free(file);
}

static journal_file *find_file(faulty_journal *journal, const char *path) {
    QR_LIST_EACH (node, &journal->files) {
        journal_file *file = QR_LIST_ENTRY(node, journal_file, node);
        if (strcmp(file->path, path) == 0) return file;
    }
    return NULL;
}

static open_file *find_open(faulty_journal *journal, int fd) {
    QR_LIST_EACH (node, &journal->open_files) {
        open_file *opened = QR_LIST_ENTRY(node, open_file, node);
        if (opened->fd == fd) return opened;
    }
    return NULL;
}

static bool file_is_open(faulty_journal *journal, const journal_file *file) {
    QR_LIST_EACH (node, &journal->open_files)
        if (QR_LIST_ENTRY(node, open_file, node)->file == file) return true;
    return false;
}

static void add_folder_change(faulty_journal *journal, folder_change_kind kind, const char *path, const char *from,
                              const char *stash) {
    folder_change *change = must_have(calloc(1, sizeof *change));
    change->kind = kind;
    copy_path(change->path, path);
    copy_path(change->from, from);
    copy_path(change->stash, stash);
    qr_list_push_back(&journal->folder_changes, &change->node);
}

void faulty_journal_open(faulty_journal *journal, const char *path, int fd, bool made) {
    journal_file *file = find_file(journal, path);
    open_file *opened = must_have(calloc(1, sizeof *opened));
    if (!file) {
        file = must_have(calloc(1, sizeof *file));
        copy_path(file->path, path);
        qr_list_init(&file->changes);
        qr_list_push_back(&journal->files, &file->node);
    }
    *opened = (open_file){.fd = fd, .file = file};
    qr_list_push_back(&journal->open_files, &opened->node);
    if (made) add_folder_change(journal, FOLDER_MADE, path, "", "");
}

void faulty_journal_close(faulty_journal *journal, int fd) {
    open_file *opened = find_open(journal, fd);
    QR_ASSERT(opened != NULL);
    journal_file *file = opened->file;
    qr_list_remove(&opened->node);
    free(opened);
    if (qr_list_empty(&file->changes) && !file_is_open(journal, file)) file_free(file);
}

static uint64_t size_of(int fd) {
    struct stat about;
    QR_ASSERT(fstat(fd, &about) == 0);
    return (uint64_t)about.st_size;
}

static void read_part(int fd, unsigned char *to, uint64_t offset, uint64_t size_bytes) {
    uint64_t done = 0;
    while (done < size_bytes) {
        ssize_t count = pread(fd, to + done, size_bytes - done, (off_t)(offset + done));
        QR_ASSERT(count >= 0 || errno == EINTR);
        if (count == 0) break;
        if (count > 0) done += (uint64_t)count;
    }
    memset(to + done, 0, size_bytes - done);
}

static void write_part(int fd, const unsigned char *from, uint64_t offset, uint64_t size_bytes) {
    for (uint64_t done = 0; done < size_bytes;) {
        ssize_t count = pwrite(fd, from + done, size_bytes - done, (off_t)(offset + done));
        QR_ASSERT(count > 0 || (count < 0 && errno == EINTR));
        if (count > 0) done += (uint64_t)count;
    }
}

void faulty_journal_change(faulty_journal *journal, int fd, uint64_t offset, uint64_t size_bytes) {
    open_file *opened = find_open(journal, fd);
    QR_ASSERT(opened != NULL);
    file_change *change = must_have(calloc(1, sizeof *change));
    change->offset = offset;
    change->size_bytes = size_bytes;
    change->file_before = size_of(fd);
    change->before = must_have(malloc(size_bytes + 1));
    change->after = must_have(malloc(size_bytes + 1));
    read_part(fd, change->before, offset, size_bytes);
    qr_list_push_back(&opened->file->changes, &change->node);
}

void faulty_journal_changed(faulty_journal *journal, int fd) {
    journal_file *file = find_open(journal, fd)->file;
    file_change *change = QR_LIST_ENTRY(file->changes.prev, file_change, node);
    change->file_after = size_of(fd);
    read_part(fd, change->after, change->offset, change->size_bytes);
}

/* What lasts now lasts in spite of an earlier change of the same bytes that a failed sync was for. */
static void outlast(file_change *doomed, const file_change *lasting) {
    uint64_t begin = doomed->offset > lasting->offset ? doomed->offset : lasting->offset;
    uint64_t doomed_end = doomed->offset + doomed->size_bytes, lasting_end = lasting->offset + lasting->size_bytes;
    uint64_t end = doomed_end < lasting_end ? doomed_end : lasting_end;
    if (doomed->file_before < lasting->file_after) doomed->file_before = lasting->file_after;
    if (doomed->file_after < lasting->file_after) doomed->file_after = lasting->file_after;
    if (begin >= end) return;
    memcpy(doomed->before + (begin - doomed->offset), lasting->after + (begin - lasting->offset), end - begin);
    memcpy(doomed->after + (begin - doomed->offset), lasting->after + (begin - lasting->offset), end - begin);
}

void faulty_journal_sync(faulty_journal *journal, int fd, bool failed) {
    journal_file *file = find_open(journal, fd)->file;
    QR_LIST_EACH_SAFE (node, next, &file->changes) {
        file_change *change = QR_LIST_ENTRY(node, file_change, node);
        if (failed) change->doomed = true;
        if (change->doomed) continue;
        for (qr_list *before = node->prev; before != &file->changes; before = before->prev)
            outlast(QR_LIST_ENTRY(before, file_change, node), change); /* all that are left before it are doomed */
        change_free(change);
    }
}

/* ---- folders ---- */

static void make_stash(faulty_journal *journal, const char *path) {
    const char *slash = strrchr(path, '/');
    QR_ASSERT(slash != NULL);
    int length = snprintf(journal->stash, PATH_BYTES, "%.*s.removed-XXXXXX", (int)(slash - path), path);
    QR_ASSERT(length < PATH_BYTES && mkdtemp(journal->stash));
}

/* Moves a file away, out of sight. Changes of its bytes stay known. */
static int stash_file(faulty_journal *journal, const char *path, char stash[PATH_BYTES]) {
    if (!journal->stash[0]) make_stash(journal, path);
    int length = snprintf(stash, PATH_BYTES, "%s/%llu", journal->stash, (unsigned long long)journal->stash_count++);
    QR_ASSERT(length < PATH_BYTES);
    if (rename(path, stash)) return errno;
    journal_file *file = find_file(journal, path);
    if (file) copy_path(file->path, stash);
    return 0;
}

int faulty_journal_remove(faulty_journal *journal, const char *path) {
    char stash[PATH_BYTES];
    struct stat about;
    if (lstat(path, &about)) return errno;
    if (S_ISDIR(about.st_mode)) return EISDIR;
    int failed = stash_file(journal, path, stash);
    if (!failed) add_folder_change(journal, FOLDER_REMOVED, path, "", stash);
    return failed;
}

int faulty_journal_rename(faulty_journal *journal, const char *from, const char *to) {
    char stash[PATH_BYTES] = "";
    if (access(from, F_OK)) return errno;
    int failed = access(to, F_OK) == 0 ? stash_file(journal, to, stash) : 0;
    if (!failed && rename(from, to)) failed = errno;
    if (failed) return failed;
    journal_file *file = find_file(journal, from);
    if (file) copy_path(file->path, to);
    add_folder_change(journal, FOLDER_RENAMED, to, from, stash);
    return 0;
}

/* The removal of a file is final: what was known of it goes too. */
static void drop_stashed(faulty_journal *journal, const char *stash) {
    if (!stash[0]) return;
    journal_file *file = find_file(journal, stash);
    if (file && !file_is_open(journal, file)) file_free(file);
    (void)unlink(stash);
}

static void folder_change_free(folder_change *change) {
    qr_list_remove(&change->node);
    free(change);
}

static bool lies_in(const char *path, const char *folder) {
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/') length--;
    return strncmp(path, folder, length) == 0 && path[length] == '/' && !strchr(path + length + 1, '/');
}

void faulty_journal_sync_folder(faulty_journal *journal, const char *path) {
    QR_LIST_EACH_SAFE (node, next, &journal->folder_changes) {
        folder_change *change = QR_LIST_ENTRY(node, folder_change, node);
        if (!lies_in(change->path, path)) continue;
        drop_stashed(journal, change->stash);
        folder_change_free(change);
    }
}

/* ---- the cut ---- */

static void move_back(faulty_journal *journal, const char *from, const char *to) {
    int failed = rename(from, to);
    QR_ASSERT(failed == 0);
    journal_file *file = find_file(journal, from);
    if (file) copy_path(file->path, to);
}

static void undo_folder_change(faulty_journal *journal, folder_change *change) {
    if (change->kind == FOLDER_MADE) {
        journal_file *file = find_file(journal, change->path);
        if (file) file_free(file);
        (void)unlink(change->path);
    }
    if (change->kind == FOLDER_RENAMED) move_back(journal, change->path, change->from);
    if (change->stash[0]) move_back(journal, change->stash, change->path);
    folder_change_free(change);
}

static uint64_t cut_folders(faulty_journal *journal, qr_random *random) {
    uint32_t count = 0;
    QR_LIST_EACH (node, &journal->folder_changes) count++;
    uint32_t kept = qr_random_below(random, count + 1);
    for (uint32_t i = count; i > kept; i--)
        undo_folder_change(journal, QR_LIST_ENTRY(journal->folder_changes.prev, folder_change, node));
    while (!qr_list_empty(&journal->folder_changes)) {
        folder_change *change = QR_LIST_ENTRY(journal->folder_changes.next, folder_change, node);
        drop_stashed(journal, change->stash);
        folder_change_free(change);
    }
    return count - kept;
}

static void truncate_to(int fd, uint64_t size_bytes) {
    int failed = ftruncate(fd, (off_t)size_bytes);
    QR_ASSERT(failed == 0);
}

/* Sectors of one change again, as the coin says: all, none, the first few, or each for itself. */
static uint64_t redo_change(int fd, const file_change *change, qr_random *random) {
    uint32_t sector = qr_random_below(random, 2) ? 512 : 4096, how = qr_random_below(random, 4);
    uint64_t until = change->size_bytes ? qr_random_u64(random) % change->size_bytes : 0, dropped = 0;
    bool kept_any = change->size_bytes == 0 && how < 2; /* only the file's size */
    for (uint64_t at = 0; at < change->size_bytes;) {
        uint64_t end = (change->offset + at) / sector * sector + sector - change->offset;
        if (end > change->size_bytes) end = change->size_bytes;
        bool keep = how == 0 || (how == 1 && at < until) || (how == 2 && qr_random_below(random, 2));
        if (keep) write_part(fd, change->after + at, change->offset + at, end - at);
        kept_any |= keep;
        dropped += !keep;
        at = end;
    }
    if (kept_any && change->file_after > size_of(fd)) truncate_to(fd, change->file_after);
    return dropped;
}

static uint64_t cut_file(journal_file *file, qr_random *random) {
    uint64_t dropped = 0;
    int fd = open(file->path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return 0; /* removed behind our back */
    for (qr_list *node = file->changes.prev; node != &file->changes; node = node->prev) {
        file_change *change = QR_LIST_ENTRY(node, file_change, node);
        write_part(fd, change->before, change->offset, change->size_bytes);
        truncate_to(fd, change->file_before);
    }
    QR_LIST_EACH (node, &file->changes) dropped += redo_change(fd, QR_LIST_ENTRY(node, file_change, node), random);
    (void)close(fd);
    return dropped;
}

void faulty_journal_cut(faulty_journal *journal, uint64_t seed, uint64_t *dropped_sectors, uint64_t *undone_changes) {
    qr_random random = {seed};
    QR_ASSERT(qr_list_empty(&journal->open_files));
    *undone_changes += cut_folders(journal, &random);
    QR_LIST_EACH_SAFE (node, next, &journal->files) {
        journal_file *file = QR_LIST_ENTRY(node, journal_file, node);
        *dropped_sectors += cut_file(file, &random);
        file_free(file);
    }
}

void faulty_journal_destroy(faulty_journal *journal) {
    if (!journal) return;
    QR_LIST_EACH_SAFE (node, next, &journal->folder_changes) {
        folder_change *change = QR_LIST_ENTRY(node, folder_change, node);
        drop_stashed(journal, change->stash);
        folder_change_free(change);
    }
    QR_LIST_EACH_SAFE (node, next, &journal->open_files) {
        qr_list_remove(node);
        free(QR_LIST_ENTRY(node, open_file, node));
    }
    QR_LIST_EACH_SAFE (node, next, &journal->files) file_free(QR_LIST_ENTRY(node, journal_file, node));
    if (journal->stash[0]) (void)rmdir(journal->stash);
    free(journal);
}
