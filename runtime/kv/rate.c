/* rate.c - see rate.h. */
#include "runtime/kv/rate.h"

#include <math.h>

#include "base/assertion.h"

static void rate_restart(qr_rate *rate, uint64_t now_us) {
    rate->since_us = now_us;
    rate->sample_bytes = 0;
}

/* A stall of the whole process (stopped, or without a processor) says little about the disk: one sample counts for so long at
 * most, and a disk that has become slow is believed after a few. */
static double rate_spent_us(const qr_rate *rate, uint64_t bytes, uint64_t now_us) {
    double spent_us = (double)(now_us - rate->since_us);
    if (rate->bytes_per_second == 0.0) return spent_us;
    return fmin(spent_us, fmax(QR_RATE_MEMORY_US, QR_RATE_STALL * (double)bytes * 1e6 / rate->bytes_per_second));
}

static void rate_learn(qr_rate *rate, uint64_t bytes, uint64_t now_us) {
    double spent_us = rate_spent_us(rate, bytes, now_us), kept = exp2(-spent_us / QR_RATE_MEMORY_US);
    rate->bytes_seen = rate->bytes_seen * kept + (double)bytes;
    rate->us_seen = rate->us_seen * kept + spent_us;
    rate->bytes_per_second = rate->bytes_seen * 1e6 / rate->us_seen;
    rate->measured_us = now_us;
    rate_restart(rate, now_us);
}

void qr_rate_begin(qr_rate *rate, uint64_t now_us) {
    if (rate->under_way++ == 0) rate_restart(rate, now_us);
}

void qr_rate_end(qr_rate *rate, uint64_t bytes, uint64_t now_us) {
    QR_ASSERT(rate->under_way > 0);
    rate->under_way--;
    rate->sample_bytes += bytes;
    uint64_t spent_us = now_us > rate->since_us ? now_us - rate->since_us : 0;
    if (spent_us == 0 && rate->us_seen > 0 && rate->measured_us == now_us) { /* the rest of a gust that was just learnt from */
        rate->bytes_seen += (double)rate->sample_bytes;
        rate->bytes_per_second = rate->bytes_seen * 1e6 / rate->us_seen;
        rate->sample_bytes = 0;
        return;
    }
    bool whole = spent_us >= QR_RATE_SAMPLE_US || (rate->under_way == 0 && spent_us > 0);
    if (whole && rate->sample_bytes > 0) rate_learn(rate, rate->sample_bytes, now_us);
}

void qr_rate_fail(qr_rate *rate, uint64_t now_us) {
    QR_ASSERT(rate->under_way > 0);
    rate->under_way--;
    rate_restart(rate, now_us);
}

void qr_rate_give_up(qr_rate *rate, uint64_t at_most, uint64_t now_us) {
    if (rate->under_way == 0 || now_us <= rate->since_us) return;
    rate_learn(rate, rate->sample_bytes > 0 ? rate->sample_bytes : at_most, now_us);
}

double qr_rate_estimate(const qr_rate *rate, uint64_t now_us) {
    if (rate->bytes_per_second == 0.0) return rate->prior;
    double age_us = now_us > rate->measured_us ? (double)(now_us - rate->measured_us) : 0.0;
    double weight = exp2(-age_us / QR_RATE_HALF_LIFE_US);
    return rate->prior * pow(rate->bytes_per_second / rate->prior, weight);
}

uint64_t qr_rate_time_us(double bytes_per_second, uint64_t bytes) {
    double time_us = (double)bytes * 1e6 / bytes_per_second;
    return time_us < 1e15 ? (uint64_t)ceil(time_us) : UINT64_C(1000000000000000);
}
