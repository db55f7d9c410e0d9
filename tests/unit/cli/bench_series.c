#include "runtime/cli/bench_series.h"

#include <criterion/criterion.h>

Test(cli_bench_series, percentiles_are_nearest_ranks) {
    qr_series series = {0};
    cr_assert_eq(qr_series_percentile(&series, 0.5), 0, "empty");
    for (int i = 100; i >= 1; i--) cr_assert(qr_series_push(&series, i));
    cr_assert_eq(qr_series_percentile(&series, 0.5), 50);
    cr_assert_eq(qr_series_percentile(&series, 0.9), 90);
    cr_assert_eq(qr_series_percentile(&series, 0.99), 99);
    cr_assert_eq(qr_series_percentile(&series, 1.0), 100);
    cr_assert_eq(qr_series_sum(&series), 5050);
    cr_assert(qr_series_push(&series, 0), "pushing after a percentile sorts again");
    cr_assert_eq(qr_series_percentile(&series, 0.001), 0);
    qr_series_deinit(&series);
}
