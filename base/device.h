/* device.h - the device seam: where KV bytes live and how they move.
 *
 * A device gives memory, takes host memory as pinned, and copies asynchronously on streams with events as the only
 * truth about completion. device_cpu: device memory is host memory and a copy is done when the call returns.
 * device_sim: host memory that counts as device memory, whose copies are delayed and may finish out of order between
 * streams (tests). base/cuda/device_cuda.h: an NVIDIA GPU.
 *
 * Thread: one device object belongs to one thread.
 */
#ifndef QR_BASE_DEVICE_H
#define QR_BASE_DEVICE_H

#include <stdbool.h>

#include <quire/status.h>

typedef struct qr_device qr_device;
typedef struct qr_device_event {
    uint64_t value; /* 0 = none, complete */
} qr_device_event;

enum { QR_DEVICE_STREAMS_MAX = 4 };

typedef struct qr_device_ops {
    const char *name;
    bool memory_is_host; /* device memory can be read and written by the CPU */
    quire_status (*alloc)(qr_device *device, size_t size_bytes, void **memory, quire_error *error);
    void (*free)(qr_device *device, void *memory);
    quire_status (*host_register)(qr_device *device, void *memory, size_t size_bytes, quire_error *error);
    void (*host_unregister)(qr_device *device, void *memory);
    /* Copies on one stream finish in order. Source and destination must stay valid until an event recorded after the
     * copy has completed. Either side may be host or device memory. */
    quire_status (*copy_async)(qr_device *device, int stream, void *to, const void *from, size_t size_bytes);
    qr_device_event (*event)(qr_device *device, int stream); /* completes when all earlier work of the stream has */
    bool (*poll)(qr_device *device, qr_device_event event);  /* true once complete */
    /* Work given to the stream from now on starts only after the event, which may be another stream's. */
    quire_status (*wait)(qr_device *device, int stream, qr_device_event event);
    /* OK, or why the device is lost. A lost device takes no more work and completes no more events; what its memory holds
     * is not known. */
    quire_status (*status)(qr_device *device, quire_error *error);
    void (*destroy)(qr_device *device);
} qr_device_ops;

/* Every implementation begins with this. */
struct qr_device {
    const qr_device_ops *ops;
};

QUIRE_MUST_CHECK quire_status qr_device_cpu_create(qr_device **device);

typedef struct qr_device_sim_config {
    uint64_t seed;
    uint32_t delay_polls_max; /* a copy completes after 0 .. this many polls */
    bool reorder;             /* between streams */
    size_t memory_bytes;      /* alloc beyond this fails with NO_MEMORY; 0 = no limit */
    uint64_t copies_max;      /* the device is lost after this many copies; 0 = never */
} qr_device_sim_config;
QUIRE_MUST_CHECK quire_status qr_device_sim_create(const qr_device_sim_config *config, qr_device **device);
#endif
