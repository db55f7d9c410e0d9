#include "base/clock.h"

#include <criterion/criterion.h>
#include <time.h>

Test(base_clock, monotonic_time_never_falls_and_moves_with_sleep) {
    uint64_t before = qr_clock_ns(), last = before;
    for (int i = 0; i < 10000; i++) {
        uint64_t now = qr_clock_ns();
        cr_assert_geq(now, last);
        last = now;
    }
    nanosleep(&(struct timespec){0, 2000000}, NULL);
    cr_assert_geq(qr_clock_ns() - before, 2000000);
}

Test(base_clock, units_agree) {
    uint64_t us = qr_clock_us(), ns = qr_clock_ns();
    cr_assert_lt(ns / 1000 - us, 1000000);
    uint64_t wall = qr_clock_wall_ms();
    cr_assert_lt(wall - (uint64_t)time(NULL) * 1000 + 2000, 4000);
}
