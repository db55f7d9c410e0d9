/* faulty_calls.h - system calls and allocations that fail, for executables that are linked with
 * -Wl,--wrap=preadv and so on (QUIRE_FAULTY_CALLS in tests/offload_faults.cmake).
 *
 * Calls of the project's own objects come here first; those of other libraries do not. One set of faults for the process;
 * without one everything goes through.
 */
#ifndef QR_TESTS_FAULTY_CALLS_H
#define QR_TESTS_FAULTY_CALLS_H

#include "tests/support/faults.h"

/* short_read, short_write, interrupt and alloc of these, from now on. Not while another thread is inside a call. */
void faulty_calls_set(const faults *f);
/* How many calls were shortened, interrupted or refused since set. */
uint64_t faulty_calls_count(void);
#endif
