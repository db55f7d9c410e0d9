#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/memory.h"

static void *volatile sink;

static void use_the_heap(void) {
    sink = malloc(100);
    sink = realloc(sink, 200);
    free(sink);
    sink = calloc(3, 5);
    free(sink);
    sink = aligned_alloc(64, 64);
    free(sink);
    void *memory = NULL;
    cr_assert_eq(posix_memalign(&memory, 128, 10), 0);
    cr_assert_eq((size_t)memory % 128, 0);
    free(memory);
}

#if defined(QR_DEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
Test(base_alloc_guard, every_call_inside_is_counted_and_none_outside) {
    use_the_heap();
    qr_alloc_guard_enter();
    uint64_t none = qr_alloc_guard_leave();
    use_the_heap();
    cr_assert_eq(none, 0);
    qr_alloc_guard_enter();
    use_the_heap();
    uint64_t seen = qr_alloc_guard_leave();
    cr_assert_geq(seen, 9);
}
#else
Test(base_alloc_guard, without_a_debug_build_it_says_zero) {
    qr_alloc_guard_enter();
    use_the_heap();
    (void)qr_alloc_guard_leave();
}
#endif
