/* faults.h - which faults a test, or QUIRE_FAULTS of `quire_faulty`, asks for. Plain data and its parser.
 *
 *     slow=20M,flip_read=0.001,eio_write=5,nospace=64M,seed=3
 *
 * A value with a point is a probability per call; a whole number n means the n-th call of that kind, counted from 1. Sizes
 * take K, M, G (powers of 1024).
 */
#ifndef QR_TESTS_FAULTS_H
#define QR_TESTS_FAULTS_H

#include <stdbool.h>

#include <quire/status.h>

#include "base/device.h"

/* When a call of a kind fails. Zero: never. */
typedef struct fault_when {
    double rate;
    uint64_t nth;
} fault_when;

typedef struct faults {
    uint64_t seed;
    /* The medium. */
    uint64_t slow_bytes_per_second; /* slow: reads and writes share it */
    uint64_t delay_us;              /* delay: before every read and write */
    uint64_t nospace_bytes;         /* nospace: files can take this much together */
    bool full;                      /* full: nothing can be taken any more, whatever there is */
    /* Calls. */
    fault_when flip_read, flip_write;                   /* one bit, silently */
    fault_when eio_read, eio_write, eio_sync, eio_open; /* IO */
    fault_when nospace_allocate, nospace_write;         /* NO_SPACE */
    fault_when eio_remove, eio_punch;                   /* IO */
    fault_when short_read, short_write, interrupt;      /* of the system call: less is moved; EINTR (faulty_calls.h) */
    fault_when alloc;                                   /* alloc_fail: malloc and its like give NULL (faulty_calls.h) */
    /* The device (device_sim). */
    qr_device_sim_config device; /* copy_delay, reorder, copies_max, device_bytes; its seed is `seed` */
    bool host_tier;              /* host_tier: the device's memory counts as its own, so there is a host tier */
} faults;

/* INVALID: which part of the text is wrong, and why; *out is zero then. An empty text is no faults. */
QUIRE_MUST_CHECK quire_status faults_parse(const char *text, faults *out, quire_error *error);
/* A device of device_sim is asked for. */
bool faults_want_device(const faults *f);
#endif
