/* bench_report.h - the results of a run as a table and as one JSON object. */
#ifndef QR_CLI_BENCH_REPORT_H
#define QR_CLI_BENCH_REPORT_H

#include <stdio.h>

#include "runtime/cli/bench_load.h"
#include "runtime/cli/bench_probe.h"

typedef struct qr_bench_side {
    qr_bench_target target;
    qr_bench_facts facts;
    qr_bench_result result;
} qr_bench_side;

typedef struct qr_bench_run {
    qr_bench_shape shape;
    uint32_t round_count;
    qr_bench_side sides[2];
    int side_count;
} qr_bench_run;

void qr_bench_print_table(FILE *out, qr_bench_run *run);
/* False: out of memory or the write failed. */
bool qr_bench_print_json(FILE *out, qr_bench_run *run);
#endif
