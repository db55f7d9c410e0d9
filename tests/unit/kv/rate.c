/* How fast a tier is taken to be. */
#include "runtime/kv/rate.h"

#include <criterion/criterion.h>
#include <math.h>

enum { SECOND = 1000000 };

static bool near(double a, double b) { return fabs(a - b) < 0.01 * fabs(b); }

Test(kv_rate, the_prior_until_something_is_measured) {
    qr_rate rate = {.prior = 500e6};
    cr_assert(near(qr_rate_estimate(&rate, SECOND), 500e6));
    qr_rate_begin(&rate, SECOND);
    qr_rate_end(&rate, 4096, SECOND); /* in no time: nothing is learnt */
    cr_assert(rate.bytes_per_second == 0.0 && near(qr_rate_estimate(&rate, SECOND), 500e6));
}

Test(kv_rate, transfers_at_the_same_time_share_it) {
    qr_rate rate = {.prior = 500e6};
    for (int i = 0; i < 4; i++) qr_rate_begin(&rate, SECOND);
    for (int i = 0; i < 4; i++) qr_rate_end(&rate, 1000000, SECOND + 10000);
    cr_assert(rate.under_way == 0);
    cr_assert(near(rate.bytes_per_second, 400e6), "%.0f: all of a gust counts", rate.bytes_per_second);
    qr_rate_begin(&rate, 2 * SECOND);
    qr_rate_begin(&rate, 2 * SECOND);
    for (int i = 1; i <= 100; i++) { /* two at a time, one ends and one begins every 10 ms */
        qr_rate_end(&rate, 1000000, 2 * SECOND + (uint64_t)i * 10000);
        qr_rate_begin(&rate, 2 * SECOND + (uint64_t)i * 10000);
    }
    cr_assert(near(qr_rate_estimate(&rate, 3 * SECOND), 100e6));
}

Test(kv_rate, idle_time_does_not_count) {
    qr_rate rate = {.prior = 500e6};
    for (uint64_t i = 1; i < 20; i++) {
        qr_rate_begin(&rate, i * SECOND);
        qr_rate_end(&rate, 2000000, i * SECOND + 10000);
    }
    cr_assert(near(rate.bytes_per_second, 200e6));
}

Test(kv_rate, a_measurement_loses_weight_with_age) {
    qr_rate rate = {.prior = 500e6};
    qr_rate_begin(&rate, SECOND);
    qr_rate_end(&rate, 50000, SECOND + 10000);
    cr_assert(near(qr_rate_estimate(&rate, SECOND + 10000), 5e6));
    cr_assert(near(qr_rate_estimate(&rate, SECOND + 10000 + QR_RATE_HALF_LIFE_US), 50e6));
    cr_assert(near(qr_rate_estimate(&rate, UINT64_C(3600) * SECOND), 500e6));
}

Test(kv_rate, giving_up_without_a_byte_is_a_measurement) {
    qr_rate rate = {.prior = 500e6};
    qr_rate_give_up(&rate, 1000, SECOND);
    cr_assert_eq(rate.bytes_per_second, 0.0); /* nothing was under way */
    qr_rate_begin(&rate, SECOND);
    qr_rate_give_up(&rate, 100000, 2 * SECOND);
    cr_assert(near(rate.bytes_per_second, 100e3));
    cr_assert_eq(qr_rate_time_us(100e3, 50000), 500000);
    cr_assert_lt(qr_rate_time_us(1e-300, UINT64_MAX), UINT64_MAX);
}

/* A disk of 100 MB/s behind rounds that see its reads late: nothing for 8 ms, then 1 MB within 2 ms. */
Test(kv_rate, gusts_do_not_count_more_than_the_waits_between_them) {
    qr_rate rate = {.prior = 500e6};
    uint64_t now = SECOND;
    for (int i = 0; i < 3; i++) qr_rate_begin(&rate, now);
    for (int i = 0; i < 100; i++) {
        now += 8000;
        qr_rate_end(&rate, 100000, now);
        qr_rate_begin(&rate, now);
        now += 2000;
        qr_rate_end(&rate, 900000, now);
        qr_rate_begin(&rate, now);
    }
    cr_assert(near(qr_rate_estimate(&rate, now), 100e6), "%.0f", qr_rate_estimate(&rate, now));
}

/* The process was stopped for ten seconds with a read under way; then the disk is what it was. */
Test(kv_rate, one_stall_is_not_a_slow_disk_and_many_are) {
    qr_rate rate = {.prior = 500e6};
    uint64_t now = SECOND;
    for (int i = 0; i < 100; i++, now += 10000) {
        qr_rate_begin(&rate, now);
        qr_rate_end(&rate, 10000000, now + 10000);
    }
    qr_rate_begin(&rate, now);
    qr_rate_end(&rate, 360000, now += 10 * SECOND);
    cr_assert_gt(rate.bytes_per_second, 300e6, "%.0f", rate.bytes_per_second);
    for (int i = 0; i < 10; i++) {
        qr_rate_begin(&rate, now);
        qr_rate_end(&rate, 360000, now += 10 * SECOND);
    }
    cr_assert_lt(rate.bytes_per_second, 5e6, "%.0f", rate.bytes_per_second);
}

Test(kv_rate, what_failed_is_not_learnt_from) {
    qr_rate rate = {.prior = 500e6};
    qr_rate_begin(&rate, SECOND);
    qr_rate_end(&rate, 2000000, SECOND + 10000);
    qr_rate_begin(&rate, 2 * SECOND);
    qr_rate_begin(&rate, 2 * SECOND);
    qr_rate_fail(&rate, 2 * SECOND + 90000);
    qr_rate_end(&rate, 2000000, 2 * SECOND + 100000);
    cr_assert(rate.under_way == 0 && near(rate.bytes_per_second, 200e6));
}

/* Of a slow disk and large reads a sample may well be longer than the memory: it is no stall. */
Test(kv_rate, a_long_sample_of_much_counts_whole) {
    qr_rate rate = {.prior = 500e6};
    qr_rate_begin(&rate, SECOND);
    qr_rate_end(&rate, 1000000, SECOND + 100000);
    qr_rate_begin(&rate, 2 * SECOND);
    qr_rate_end(&rate, 1000000, 2 * SECOND + 400000);
    cr_assert(rate.bytes_per_second < 4e6, "%.0f", rate.bytes_per_second);
}

Test(kv_rate, one_short_transfer_is_a_measurement_and_none_is_not) {
    qr_rate rate = {.prior = 500e6};
    qr_rate_begin(&rate, SECOND);
    qr_rate_end(&rate, 50000, SECOND + 500);
    cr_assert(near(rate.bytes_per_second, 100e6));
    qr_rate_begin(&rate, 2 * SECOND);
    qr_rate_end(&rate, 0, 2 * SECOND + 50000); /* it was never under way */
    cr_assert(rate.under_way == 0 && near(rate.bytes_per_second, 100e6), "%.0f", rate.bytes_per_second);
}

Test(kv_rate, giving_up_counts_what_has_come) {
    qr_rate rate = {.prior = 500e6};
    qr_rate_begin(&rate, SECOND);
    qr_rate_begin(&rate, SECOND);
    qr_rate_end(&rate, 1000000, SECOND + 1000);
    qr_rate_give_up(&rate, 1000, SECOND + 10000);
    cr_assert(near(rate.bytes_per_second, 100e6), "%.0f", rate.bytes_per_second);
}
