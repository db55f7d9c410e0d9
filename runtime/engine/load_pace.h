/* load_pace.h - how fast one load goes: what was expected of it, corrected by what has arrived.
 *
 * The expectation counts like `weight` blocks that came at that pace; what arrives, and every microsecond in which nothing
 * does, is added to it. So one gust or one late wake-up says little, a disk that has become slow is believed while it is
 * slow, and one that says nothing at all gets slower for ever.
 *
 * Pure; thread: one at a time. */
#ifndef QR_ENGINE_LOAD_PACE_H
#define QR_ENGINE_LOAD_PACE_H

#include <stdint.h>

typedef struct qr_load_pace {
    uint64_t since_us;
    double expected_us; /* a block */
    uint32_t weight, arrived;
} qr_load_pace;

/* From now on, when `arrived` blocks are there. weight > 0. */
void qr_load_pace_begin(qr_load_pace *pace, double expected_us, uint32_t weight, uint32_t arrived, uint64_t now_us);
/* Microseconds of a block. */
double qr_load_pace_block_us(const qr_load_pace *pace, uint32_t arrived, uint64_t now_us);
/* When a block will be found to take block_us, if nothing more arrives. Never UINT64_MAX for a finite block_us. */
uint64_t qr_load_pace_when_us(const qr_load_pace *pace, uint32_t arrived, double block_us);
#endif
