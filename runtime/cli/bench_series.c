#include "runtime/cli/bench_series.h"

#include <math.h>
#include <stdlib.h>

bool qr_series_push(qr_series *series, double value) {
    if (series->count == series->capacity) {
        size_t grown = series->capacity ? series->capacity * 2 : 64;
        double *moved = realloc(series->values, grown * sizeof *moved);
        if (!moved) return false;
        series->values = moved;
        series->capacity = grown;
    }
    series->values[series->count++] = value;
    series->sorted = false;
    return true;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double qr_series_percentile(qr_series *series, double q) {
    if (series->count == 0) return 0;
    if (!series->sorted) qsort(series->values, series->count, sizeof *series->values, compare);
    series->sorted = true;
    size_t rank = (size_t)ceil(q * (double)series->count);
    return series->values[rank ? rank - 1 : 0];
}

double qr_series_sum(const qr_series *series) {
    double sum = 0;
    for (size_t i = 0; i < series->count; i++) sum += series->values[i];
    return sum;
}

void qr_series_deinit(qr_series *series) {
    free(series->values);
    *series = (qr_series){0};
}
