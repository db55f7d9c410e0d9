/* load_pace.c - see load_pace.h. */
#include "runtime/engine/load_pace.h"

#include <math.h>

#include "base/assertion.h"

/* An hour: what is due later is as good as never. */
static const double far_us = 3600e6;

void qr_load_pace_begin(qr_load_pace *pace, double expected_us, uint32_t weight, uint32_t arrived, uint64_t now_us) {
    QR_ASSERT(weight > 0);
    *pace = (qr_load_pace){.since_us = now_us, .expected_us = expected_us, .weight = weight, .arrived = arrived};
}

/* A load that lost blocks has fewer of them than it had. */
static double blocks_seen(const qr_load_pace *pace, uint32_t arrived) {
    return (double)pace->weight + (arrived > pace->arrived ? arrived - pace->arrived : 0);
}

double qr_load_pace_block_us(const qr_load_pace *pace, uint32_t arrived, uint64_t now_us) {
    double spent_us = now_us > pace->since_us ? (double)(now_us - pace->since_us) : 0;
    return (pace->weight * pace->expected_us + spent_us) / blocks_seen(pace, arrived);
}

uint64_t qr_load_pace_when_us(const qr_load_pace *pace, uint32_t arrived, double block_us) {
    double left_us = block_us * blocks_seen(pace, arrived) - pace->weight * pace->expected_us;
    return pace->since_us + (uint64_t)ceil(fmin(fmax(left_us, 0), far_us));
}
