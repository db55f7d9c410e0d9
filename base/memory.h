/* memory.h - large regions taken once, and how much memory there is. */
#ifndef QR_BASE_MEMORY_H
#define QR_BASE_MEMORY_H

#include <stdbool.h>

#include <quire/status.h>

/* One anonymous mapping, zeroed, 4 KiB aligned (2 MiB where large), with transparent huge pages asked for. */
typedef struct qr_region {
    void *base;
    size_t size_bytes;
} qr_region;

QUIRE_MUST_CHECK quire_status qr_region_alloc(size_t size_bytes, qr_region *region, quire_error *error);
void qr_region_free(qr_region *region); /* leaves it zero */

/* Overwrites it with zeros, which no compiler leaves out for not being read again. */
void qr_wipe(void *bytes, size_t size_bytes);

/* Heap helpers for what is taken at create. All return zeroed memory, or NULL. 64-byte aligned; free with free(). */
void *qr_alloc_zero(size_t count, size_t size);

/* Bytes this process may still take: the least of MemAvailable, what the cgroup leaves, and what the process's own limits
 * (RLIMIT_AS, RLIMIT_DATA) leave of mappings. 0 when unknown. */
uint64_t qr_memory_available_bytes(void);

/* Allocation guard: while a thread is inside, any malloc family call by it counts. Works in debug builds (QR_DEBUG),
 * which interpose malloc in executables that link base/alloc_guard.c; elsewhere it always says 0. */
void qr_alloc_guard_enter(void);
uint64_t qr_alloc_guard_leave(void); /* allocations seen on this thread since enter */
#endif
