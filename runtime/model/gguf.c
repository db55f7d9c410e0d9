/* gguf.c - GGUF files: mapping, look-up by name, giving pages back.
 *
 * The file is mapped, not read: pages are touched when a value or tensor is. What this does not protect against is
 * another process that shortens the file while it is mapped; the kernel then kills this process (SIGBUS). Models are
 * only mapped while they are being loaded.
 */
#include "runtime/model/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assertion.h"
#include "base/error.h"
#include "runtime/model/gguf_internal.h"

static quire_status io_failed(const char *path, const char *what, quire_error *error) {
    return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "%s: %s", what, strerror(errno));
}

static quire_status map_file(qr_gguf *gguf, quire_error *error) {
    struct stat about;
    if (fstat(gguf->fd, &about)) return io_failed(gguf->path, "cannot stat", error);
    if (!S_ISREG(about.st_mode)) return qr_fail(error, QUIRE_IO, gguf->path, QR_NO_OFFSET, "not a regular file");
    if (!about.st_size) return qr_fail(error, QUIRE_FORMAT, gguf->path, 0, "magic: the file is empty");
    void *data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, gguf->fd, 0);
    if (data == MAP_FAILED) return io_failed(gguf->path, "cannot map", error);
    gguf->data = data;
    gguf->size = (size_t)about.st_size;
    return QUIRE_OK;
}

static qr_gguf *gguf_new(const char *name, quire_error *error) {
    qr_gguf *gguf = calloc(1, sizeof *gguf);
    char *path = strdup(name);
    if (gguf && path) {
        gguf->path = path;
        gguf->fd = -1;
        return gguf;
    }
    free(gguf);
    free(path);
    (void)qr_fail(error, QUIRE_NO_MEMORY, name, QR_NO_OFFSET, "no memory to open the file");
    return NULL;
}

quire_status qr_gguf_open(const char *path, qr_gguf **out, quire_error *error) {
    *out = NULL;
    qr_gguf *gguf = gguf_new(path, error);
    if (!gguf) return QUIRE_NO_MEMORY;
    quire_status status = QUIRE_OK;
    gguf->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* NONBLOCK: a pipe must not hang us */
    if (gguf->fd < 0) status = io_failed(path, "cannot open", error);
    if (!status) status = map_file(gguf, error);
    if (!status) status = gguf_read(gguf, error);
    if (status) qr_gguf_close(gguf);
    else *out = gguf;
    return status;
}

quire_status qr_gguf_open_memory(const char *name, const void *data, size_t size, qr_gguf **out, quire_error *error) {
    *out = NULL;
    qr_gguf *gguf = gguf_new(name, error);
    if (!gguf) return QUIRE_NO_MEMORY;
    gguf->data = data;
    gguf->size = size;
    quire_status status = gguf_read(gguf, error);
    if (status) qr_gguf_close(gguf);
    else *out = gguf;
    return status;
}

void qr_gguf_close(qr_gguf *gguf) {
    if (!gguf) return;
    if (gguf->fd >= 0) {
        if (gguf->data) munmap((void *)(uintptr_t)gguf->data, gguf->size);
        close(gguf->fd);
    }
    free(gguf->keys);
    free(gguf->tensors);
    free(gguf->tensors_by_name);
    free(gguf->path);
    free(gguf);
}

void qr_gguf_drop_pages(const qr_gguf *gguf) {
    if (gguf->fd < 0) return;
    /* Both are hints: when they fail the pages stay until the kernel wants them. The mapping goes first, because the
     * page cache keeps what is mapped. */
    (void)madvise((void *)(uintptr_t)gguf->data, gguf->size, MADV_DONTNEED);
    (void)posix_fadvise(gguf->fd, 0, 0, POSIX_FADV_DONTNEED);
}

uint64_t qr_gguf_file_bytes(const qr_gguf *gguf) { return gguf->size; }
int qr_gguf_fd(const qr_gguf *gguf) { return gguf->fd; }
const uint8_t *qr_gguf_header(const qr_gguf *gguf, size_t *size) {
    *size = (size_t)gguf->data_begin;
    return gguf->data;
}
const char *qr_gguf_path(const qr_gguf *gguf) { return gguf->path; }
uint64_t qr_gguf_tensor_count(const qr_gguf *gguf) { return gguf->tensor_count; }

const qr_gguf_tensor *qr_gguf_tensor_at(const qr_gguf *gguf, uint64_t index) {
    QR_ASSERT(index < gguf->tensor_count);
    return &gguf->tensors[index];
}

const qr_gguf_tensor *qr_gguf_find_tensor(const qr_gguf *gguf, const char *name) {
    const qr_text wanted = {name, strlen(name)};
    uint64_t low = 0, high = gguf->tensor_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const qr_gguf_tensor *t = &gguf->tensors[gguf->tensors_by_name[middle]];
        int order = gguf_compare_names(t->name, wanted);
        if (!order) return t;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

const gguf_key *gguf_find_key(const qr_gguf *gguf, const char *key) {
    const qr_text wanted = {key, strlen(key)};
    uint64_t low = 0, high = gguf->key_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order = gguf_compare_names(gguf->keys[middle].name, wanted);
        if (!order) return &gguf->keys[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}
