/* memory.c - large regions taken once, aligned heap blocks, and how much memory there is. */
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/assertion.h"
#include "base/cgroup_internal.h"
#include "base/checked.h"
#include "base/error.h"

enum { PAGE_BYTES = 4096, HUGE_BYTES = 2 << 20, HEAP_ALIGNMENT = 64 };

/* Maps size_bytes at an address that is a multiple of 2 MiB, by mapping more and cutting the ends off. */
static void *map_huge_aligned(size_t size_bytes) {
    size_t padded;
    if (!qr_add_size(size_bytes, HUGE_BYTES, &padded)) return MAP_FAILED;
    char *raw = mmap(NULL, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return MAP_FAILED;
    char *base = (char *)qr_align_up((size_t)raw, HUGE_BYTES);
    size_t front = (size_t)(base - raw), back = padded - front - size_bytes;
    if (front) munmap(raw, front);
    if (back) munmap(base + size_bytes, back);
    madvise(base, size_bytes, MADV_HUGEPAGE); /* a wish; a kernel without huge pages says no */
    return base;
}

static void *map_pages(size_t size_bytes) {
    if (size_bytes >= HUGE_BYTES) return map_huge_aligned(size_bytes);
    return mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

quire_status qr_region_alloc(size_t size_bytes, qr_region *region, quire_error *error) {
    *region = (qr_region){0};
    size_t padded;
    if (size_bytes == 0) return qr_fail(error, QUIRE_INVALID, NULL, QR_NO_OFFSET, "a region of no bytes was asked for");
    if (!qr_add_size(size_bytes, PAGE_BYTES - 1, &padded))
        return qr_fail(error, QUIRE_NO_MEMORY, NULL, QR_NO_OFFSET, "a region of %zu bytes cannot exist", size_bytes);
    padded &= ~(size_t)(PAGE_BYTES - 1);
    void *base = map_pages(padded);
    if (base == MAP_FAILED)
        return qr_fail(error, QUIRE_NO_MEMORY, NULL, QR_NO_OFFSET, "cannot map %zu bytes: %s", size_bytes, strerror(errno));
    *region = (qr_region){base, padded};
    return QUIRE_OK;
}

void qr_region_free(qr_region *region) {
    if (region->base) QR_ASSERT(munmap(region->base, region->size_bytes) == 0);
    *region = (qr_region){0};
}

void qr_wipe(void *bytes, size_t size_bytes) { explicit_bzero(bytes, size_bytes); }

void *qr_alloc_zero(size_t count, size_t size) {
    size_t total;
    if (!qr_mul_size(count, size, &total) || total > SIZE_MAX - HEAP_ALIGNMENT) return NULL;
    total = total ? qr_align_up(total, HEAP_ALIGNMENT) : HEAP_ALIGNMENT;
    void *memory = aligned_alloc(HEAP_ALIGNMENT, total);
    if (memory) memset(memory, 0, total);
    return memory;
}

static uint64_t meminfo_available(void) {
    FILE *file = fopen("/proc/meminfo", "re");
    char line[256];
    uint64_t kib = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1) break;
    if (file) fclose(file);
    return kib * 1024;
}

/* Under `ulimit -v` and `ulimit -d` everything that is mapped counts, touched or not. UINT64_MAX: neither limits. */
static uint64_t process_left(void) {
    static const int limited[] = {RLIMIT_AS, RLIMIT_DATA};
    uint64_t pages[2] = {0}, left = UINT64_MAX;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return left;
    int known = fscanf(file, "%" SCNu64 " %*u %*u %*u %*u %" SCNu64, &pages[0], &pages[1]); /* all; data and stacks */
    fclose(file);
    for (int i = 0; i < known; i++) {
        struct rlimit limit;
        uint64_t used = pages[i] * (uint64_t)sysconf(_SC_PAGESIZE);
        if (getrlimit(limited[i], &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
        uint64_t rest = limit.rlim_cur > used ? limit.rlim_cur - used : 0;
        if (rest < left) left = rest;
    }
    return left;
}

uint64_t qr_memory_available_bytes(void) {
    uint64_t machine = meminfo_available(), group = qr_cgroup_memory_left(""), process = process_left();
    uint64_t least = group < process ? group : process;
    if (machine > 0 && machine < least) least = machine;
    return least == UINT64_MAX ? 0 : least > 0 ? least : 1;
}
