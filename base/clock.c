/* clock.c - monotonic and wall time. */
#include "base/clock.h"

#include <time.h>

static uint64_t clock_read_ns(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t qr_clock_ns(void) { return clock_read_ns(CLOCK_MONOTONIC); }
uint64_t qr_clock_us(void) { return qr_clock_ns() / 1000; }
uint64_t qr_clock_wall_ms(void) { return clock_read_ns(CLOCK_REALTIME) / 1000000; }
