#include "runtime/engine/metrics.h"

const uint64_t qr_histogram_bounds_us[QR_HISTOGRAM_BOUNDS] = {
    100,    200,     500,     1000,    2000,     5000,     10000,    20000,     50000,     100000,    200000,
    500000, 1000000, 2000000, 5000000, 10000000, 20000000, 50000000, 100000000, 200000000, 500000000, 1000000000,
};

void qr_histogram_add(qr_histogram *histogram, uint64_t value_us) {
    int i = 0;
    while (i < QR_HISTOGRAM_BOUNDS && value_us > qr_histogram_bounds_us[i]) i++;
    histogram->counts[i]++;
    histogram->sum_us += value_us;
}

uint64_t qr_histogram_count(const qr_histogram *histogram) {
    uint64_t count = 0;
    for (int i = 0; i <= QR_HISTOGRAM_BOUNDS; i++) count += histogram->counts[i];
    return count;
}
