/* server_metrics.h - what the loop counts, and the Prometheus page.
 *
 * Thread: the loop.
 */
#ifndef QR_SERVER_SERVER_METRICS_H
#define QR_SERVER_SERVER_METRICS_H

#include <stdint.h>

enum { QR_HISTOGRAM_BOUNDS = 18, QR_REPLY_CODES_MAX = 24 };

/* Seconds; buckets[i] counts values up to the i-th bound and above the one before; the last one is beyond all bounds. */
typedef struct qr_histogram {
    uint64_t buckets[QR_HISTOGRAM_BOUNDS + 1];
    uint64_t count;
    double sum;
} qr_histogram;

typedef enum qr_metric {
    QR_METRIC_FIRST_TOKEN,
    QR_METRIC_INTER_TOKEN,
    QR_METRIC_REQUEST,
    QR_METRIC_QUEUE,
    QR_METRIC_PREFILL,
    QR_METRIC_DECODE,
    QR_METRIC_COUNT
} qr_metric;

typedef struct qr_metrics {
    qr_histogram histograms[QR_METRIC_COUNT];
    struct {
        int status;
        uint64_t count;
    } replies[QR_REPLY_CODES_MAX];
    uint64_t clients_dropped_total; /* took nothing for too long, or too much waited for them */
    uint64_t clients_gone_total;    /* left before their answer */
    double recent_request_s;        /* moving average, for Retry-After */
} qr_metrics;

void qr_metrics_observe(qr_metrics *metrics, qr_metric which, uint64_t time_us);
void qr_metrics_count_reply(qr_metrics *metrics, int status);

#endif
