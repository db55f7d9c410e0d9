/*
 * Entry points of AddressSanitizer and ThreadSanitizer, weak: the emulator is built without a sanitizer and links into
 * binaries with either one or none. A null function means that its sanitizer is not there.
 *
 * The emulator must stay uninstrumented: ThreadSanitizer must not see the scheduler, which touches every thread's state,
 * but only the orders that the emulator announces.
 */
#pragma once
#include <cstddef>

extern "C" {
#define EMU_WEAK __attribute__((weak))
EMU_WEAK void *__tsan_create_fiber(unsigned flags);
EMU_WEAK void __tsan_destroy_fiber(void *fiber);
EMU_WEAK void __tsan_switch_to_fiber(void *fiber, unsigned flags);
EMU_WEAK void *__tsan_get_current_fiber(void);
EMU_WEAK void __tsan_acquire(void *address);
EMU_WEAK void __tsan_release(void *address);
EMU_WEAK void __sanitizer_start_switch_fiber(void **fake_stack, const void *bottom, size_t size);
EMU_WEAK void __sanitizer_finish_switch_fiber(void *fake_stack, const void **bottom_old, size_t *size_old);
EMU_WEAK void __asan_poison_memory_region(void const volatile *address, size_t size);
EMU_WEAK void __asan_unpoison_memory_region(void const volatile *address, size_t size);
#undef EMU_WEAK
}

enum { EMU_TSAN_NO_ORDER = 1 }; // a switch that is no happens-before edge

static inline void emu_acquire(const void *address) {
    if (__tsan_acquire) __tsan_acquire((void *)address);
}
static inline void emu_release(const void *address) {
    if (__tsan_release) __tsan_release((void *)address);
}
static inline void emu_poison(const void *address, size_t size) {
    if (__asan_poison_memory_region) __asan_poison_memory_region(address, size);
}
static inline void emu_unpoison(const void *address, size_t size) {
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(address, size);
}
