/* faulty_calls.c - see faulty_calls.h. State of the process, as the calls are; plain atomics. */
#include "tests/support/faulty_calls.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/hash.h"

typedef struct wrapped {
    fault_when when;
    _Atomic uint64_t seen;
} wrapped;

static wrapped read_short, write_short, interrupted, allocation;
static _Atomic uint64_t happened;
static uint64_t seed;

void faulty_calls_set(const faults *f) {
    wrapped *all[] = {&read_short, &write_short, &interrupted, &allocation};
    const fault_when *whens[] = {&f->short_read, &f->short_write, &f->interrupt, &f->alloc};
    for (int i = 0; i < 4; i++) {
        all[i]->when = *whens[i];
        atomic_store(&all[i]->seen, 0);
    }
    seed = f->seed;
    atomic_store(&happened, 0);
}

uint64_t faulty_calls_count(void) { return atomic_load(&happened); }

/* *chance: a number to choose with. */
static bool happens(wrapped *w, uint64_t *chance) {
    if (!w->when.nth && w->when.rate == 0) return false;
    uint64_t seen = atomic_fetch_add(&w->seen, 1) + 1;
    *chance = qr_mix64(seed ^ qr_mix64(seen));
    bool now = seen == w->when.nth || (double)(*chance >> 11) * 0x1p-53 < w->when.rate;
    if (now) atomic_fetch_add(&happened, 1);
    return now;
}

/* ---- reading and writing ---- */

typedef ssize_t transfer_call(int fd, const struct iovec *parts, int part_count, off_t offset);

/* A part of the first part: at least a byte, and less than was asked for, if there is less. */
static ssize_t transfer(transfer_call *real, wrapped *w, int fd, const struct iovec *parts, int part_count, off_t offset) {
    uint64_t chance = 0;
    if (happens(&interrupted, &chance)) {
        errno = EINTR;
        return -1;
    }
    if (part_count == 0 || parts[0].iov_len < 2 || !happens(w, &chance)) return real(fd, parts, part_count, offset);
    struct iovec less = {parts[0].iov_base, 1 + qr_mix64(chance) % (parts[0].iov_len - 1)};
    return real(fd, &less, 1, offset);
}

ssize_t __real_preadv(int fd, const struct iovec *parts, int part_count, off_t offset);
ssize_t __wrap_preadv(int fd, const struct iovec *parts, int part_count, off_t offset);
ssize_t __wrap_preadv(int fd, const struct iovec *parts, int part_count, off_t offset) {
    return transfer(__real_preadv, &read_short, fd, parts, part_count, offset);
}

ssize_t __real_pwritev(int fd, const struct iovec *parts, int part_count, off_t offset);
ssize_t __wrap_pwritev(int fd, const struct iovec *parts, int part_count, off_t offset);
ssize_t __wrap_pwritev(int fd, const struct iovec *parts, int part_count, off_t offset) {
    return transfer(__real_pwritev, &write_short, fd, parts, part_count, offset);
}

/* ---- memory ---- */

static bool refused(void) {
    uint64_t chance;
    return happens(&allocation, &chance);
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size) { return refused() ? NULL : __real_malloc(size); }

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) { return refused() ? NULL : __real_calloc(count, size); }

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size) { return refused() ? NULL : __real_aligned_alloc(alignment, size); }

int __real_posix_memalign(void **memory, size_t alignment, size_t size);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t size);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t size) {
    return refused() ? ENOMEM : __real_posix_memalign(memory, alignment, size);
}

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size) { return refused() ? NULL : __real_realloc(memory, size); }

/* Memory only: a file's pages are no allocation. */
void *__real_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
    if (fd < 0 && refused()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap(address, size, protection, flags, fd, offset);
}
