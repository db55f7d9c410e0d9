/* alloc_guard.c - counts heap calls of a thread, to prove that the engine's steady state makes none.
 *
 * In a debug build without a sanitizer (which brings its own malloc) this file defines the malloc family, so every executable
 * that links it calls these first; they count and pass on to glibc. Calls that other shared objects make are not seen.
 */
#include "base/memory.h"

#include <errno.h>
#include <stddef.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define GUARD_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GUARD_SANITIZED 1
#endif

#if defined(QR_DEBUG) && defined(__GLIBC__) && !defined(GUARD_SANITIZED)

/* Thread-local, because the promise is about one thread; zero unless inside. */
static _Thread_local struct {
    bool inside;
    uint64_t calls;
} guard;

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *memory, size_t size);
void *aligned_alloc(size_t alignment, size_t size);
int posix_memalign(void **memory, size_t alignment, size_t size);
void free(void *memory);

static void guard_count(void) { guard.calls += guard.inside; }

void *malloc(size_t size) {
    guard_count();
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    guard_count();
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
    guard_count();
    return __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    guard_count();
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    guard_count();
    if (alignment < sizeof(void *) || (alignment & (alignment - 1))) return EINVAL;
    void *got = __libc_memalign(alignment, size);
    if (!got) return ENOMEM;
    *memory = got;
    return 0;
}

void free(void *memory) {
    if (memory) guard_count();
    __libc_free(memory);
}

void qr_alloc_guard_enter(void) {
    guard.calls = 0;
    guard.inside = true;
}

uint64_t qr_alloc_guard_leave(void) {
    guard.inside = false;
    return guard.calls;
}

#else

void qr_alloc_guard_enter(void) {}
uint64_t qr_alloc_guard_leave(void) { return 0; }

#endif
