/* device_cpu.c - the device whose memory is the host's: a copy is done when the call returns, and every event is complete. */
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/device.h"
#include "base/error.h"
#include "base/memory.h"

static quire_status cpu_alloc(qr_device *device, size_t size_bytes, void **memory, quire_error *error) {
    *memory = qr_alloc_zero(1, size_bytes);
    if (*memory) return QUIRE_OK;
    return qr_fail(error, QUIRE_NO_MEMORY, device->ops->name, QR_NO_OFFSET, "no memory for %zu bytes", size_bytes);
}

static void cpu_free(qr_device *device, void *memory) {
    (void)device;
    free(memory);
}

static quire_status cpu_host_register(qr_device *device, void *memory, size_t size_bytes, quire_error *error) {
    (void)device, (void)memory, (void)size_bytes, (void)error;
    return QUIRE_OK;
}

static void cpu_host_unregister(qr_device *device, void *memory) { (void)device, (void)memory; }

static quire_status cpu_copy_async(qr_device *device, int stream, void *to, const void *from, size_t size_bytes) {
    QR_ASSERT(device != NULL && stream >= 0 && stream < QR_DEVICE_STREAMS_MAX);
    memcpy(to, from, size_bytes);
    return QUIRE_OK;
}

static qr_device_event cpu_event(qr_device *device, int stream) {
    QR_ASSERT(device != NULL && stream >= 0 && stream < QR_DEVICE_STREAMS_MAX);
    return (qr_device_event){0};
}

static bool cpu_poll(qr_device *device, qr_device_event event) {
    (void)device;
    return event.value == 0;
}

static void cpu_destroy(qr_device *device) { free(device); }

quire_status qr_device_cpu_create(qr_device **device) {
    static const qr_device_ops ops = {
        .name = "cpu",
        .memory_is_host = true,
        .alloc = cpu_alloc,
        .free = cpu_free,
        .host_register = cpu_host_register,
        .host_unregister = cpu_host_unregister,
        .copy_async = cpu_copy_async,
        .event = cpu_event,
        .poll = cpu_poll,
        .destroy = cpu_destroy,
    };
    *device = qr_alloc_zero(1, sizeof **device);
    if (!*device) return QUIRE_NO_MEMORY;
    (*device)->ops = &ops;
    return QUIRE_OK;
}
