/* bench_series.h - a growing list of measurements and its percentiles. */
#ifndef QR_CLI_BENCH_SERIES_H
#define QR_CLI_BENCH_SERIES_H

#include <stdbool.h>
#include <stddef.h>

/* Zero-initialised. */
typedef struct qr_series {
    double *values;
    size_t count, capacity;
    bool sorted;
} qr_series;

bool qr_series_push(qr_series *series, double value); /* false: out of memory */
/* Nearest rank, q in (0, 1]; 0 when empty. Sorts. */
double qr_series_percentile(qr_series *series, double q);
double qr_series_sum(const qr_series *series);
void qr_series_deinit(qr_series *series);
#endif
