/* clock.h - monotonic and wall time. */
#ifndef QR_BASE_CLOCK_H
#define QR_BASE_CLOCK_H

#include <stdint.h>

uint64_t qr_clock_ns(void);      /* CLOCK_MONOTONIC */
uint64_t qr_clock_us(void);      /* the same in microseconds */
uint64_t qr_clock_wall_ms(void); /* since 1970 */
#endif
