/* rate.h - how fast a tier reads, learnt from what it did.
 *
 * Bytes that arrived divided by the time in which anything was under way, so overlapping transfers are not counted twice.
 * Bytes and time of samples are added up apart, and both fade: reads come back in gusts, and an average of the samples' speeds
 * would count a short gust as much as the long wait before it (measured: 2 to 4 times the speed of the disk). What ends at the
 * instant that was just learnt from belongs to the same sample: a poll sees many ends at once. Time is the
 * manager's (quire_kv_set_time), so what is measured is what a load sees, the rounds of its owner included.
 *
 * An estimate falls back to a prior while nothing is measured, and a measurement loses weight with age: the geometric mean of
 * both, whose weight halves every QR_RATE_HALF_LIFE_US. So a disk that was slow once is tried again a few minutes later, and
 * a load that turns out slow again is given up and measured anew.
 *
 * Pure; thread: one at a time.
 */
#ifndef QR_KV_RATE_H
#define QR_KV_RATE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    QR_RATE_HALF_LIFE_US = 60 * 1000000,
    QR_RATE_MEMORY_US = 100000, /* of transfers under way: after so long a sample has half its weight */
    QR_RATE_STALL = 8,          /* a sample past the memory counts as so many times slower than known at most */
    QR_RATE_SAMPLE_US = 2000    /* a sample is at least so long: rounds are about a millisecond apart */
};

typedef struct qr_rate {
    double prior;            /* bytes per second before anything is known */
    double bytes_per_second; /* 0: nothing measured */
    double bytes_seen, us_seen;
    uint64_t measured_us; /* when last */
    uint64_t since_us;    /* begin of the sample under way */
    uint64_t sample_bytes;
    uint32_t under_way; /* transfers */
} qr_rate;

/* A transfer begins; one ends, with these bytes (0: it was never under way). */
void qr_rate_begin(qr_rate *rate, uint64_t now_us);
void qr_rate_end(qr_rate *rate, uint64_t bytes, uint64_t now_us);
/* One failed: how long that took says nothing, so the sample under way is not learnt from. */
void qr_rate_fail(qr_rate *rate, uint64_t now_us);
/* Somebody gave up on transfers under way: what came until now counts as it is, and no byte at all as `at_most` bytes. */
void qr_rate_give_up(qr_rate *rate, uint64_t at_most, uint64_t now_us);
/* Bytes per second, never 0. */
double qr_rate_estimate(const qr_rate *rate, uint64_t now_us);
uint64_t qr_rate_time_us(double bytes_per_second, uint64_t bytes);
#endif
