#include "base/assertion.h"

#include <criterion/criterion.h>
#include <signal.h>

Test(base_assertion, a_broken_promise_aborts, .signal = SIGABRT) { QR_ASSERT(1 + 1 == 3); }

Test(base_assertion, a_kept_promise_evaluates_once) {
    int times = 0;
    QR_ASSERT(++times == 1);
    cr_assert_eq(times, 1);
}
