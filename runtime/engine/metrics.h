/* metrics.h - latency histograms that the scheduler keeps and a server prints.
 *
 * Plain data; counts only ever grow. Thread: written by the engine's thread, read through a snapshot
 * (qr_engine_get_metrics). */
#ifndef QR_ENGINE_METRICS_H
#define QR_ENGINE_METRICS_H

#include <quire/engine.h>

enum { QR_HISTOGRAM_BOUNDS = 22 };

/* Upper bounds in microseconds, rising: 1-2-5 steps from 100 us to 1,000 s. */
extern const uint64_t qr_histogram_bounds_us[QR_HISTOGRAM_BOUNDS];

typedef struct qr_histogram {
    uint64_t counts[QR_HISTOGRAM_BOUNDS + 1]; /* of values <= bound i and above the one before; the last: above all */
    uint64_t sum_us;
} qr_histogram;

void qr_histogram_add(qr_histogram *histogram, uint64_t value_us);
uint64_t qr_histogram_count(const qr_histogram *histogram);

typedef struct qr_engine_metrics {
    qr_histogram time_to_first_token; /* from submit */
    qr_histogram inter_token;         /* between tokens of one choice */
    qr_histogram end_to_end;          /* from submit to DONE, of every request that ended by itself */
    qr_histogram queue;               /* from submit to the first start */
    qr_histogram prefill;             /* from the first row to the first token */
    qr_histogram decode;              /* from the first token to the last */
    qr_histogram step;                /* one step of the backend */
} qr_engine_metrics;

/* Any thread. */
void qr_engine_get_metrics(quire_engine *engine, qr_engine_metrics *metrics);
#endif
