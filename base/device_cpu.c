/* device_cpu.c - the device whose memory is the host's: a copy is done when the call returns, and every event is complete. */
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/device.h"
#include "base/error.h"
#include "base/list.h"
#include "base/memory.h"

/* Memory is one mapping per allocation: page-aligned, huge pages where there are any, and costs nothing until touched. */
typedef struct cpu_memory {
    qr_list link;
    qr_region region;
} cpu_memory;

typedef struct cpu_device {
    qr_device device;
    qr_list memories;
} cpu_device;

static quire_status cpu_alloc(qr_device *device, size_t size_bytes, void **memory, quire_error *error) {
    cpu_memory *taken = qr_alloc_zero(1, sizeof *taken);
    *memory = NULL;
    if (!taken) return qr_fail(error, QUIRE_NO_MEMORY, device->ops->name, QR_NO_OFFSET, "no memory for a list entry");
    quire_status status = qr_region_alloc(size_bytes, &taken->region, error);
    if (status != QUIRE_OK) {
        free(taken);
        return status;
    }
    qr_list_push_back(&((cpu_device *)device)->memories, &taken->link);
    *memory = taken->region.base;
    return QUIRE_OK;
}

static void cpu_free_entry(cpu_memory *taken) {
    qr_list_remove(&taken->link);
    qr_region_free(&taken->region);
    free(taken);
}

static void cpu_free(qr_device *device, void *memory) {
    QR_LIST_EACH (node, &((cpu_device *)device)->memories) {
        cpu_memory *taken = QR_LIST_ENTRY(node, cpu_memory, link);
        if (taken->region.base != memory) continue;
        cpu_free_entry(taken);
        return;
    }
    QR_ASSERT(memory == NULL);
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

static quire_status cpu_wait(qr_device *device, int stream, qr_device_event event) {
    QR_ASSERT(device != NULL && stream >= 0 && stream < QR_DEVICE_STREAMS_MAX && event.value == 0);
    return QUIRE_OK;
}

static quire_status cpu_status(qr_device *device, quire_error *error) {
    (void)device, (void)error;
    return QUIRE_OK;
}

static void cpu_destroy(qr_device *device) {
    QR_ASSERT(qr_list_empty(&((cpu_device *)device)->memories));
    free(device);
}

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
        .wait = cpu_wait,
        .status = cpu_status,
        .destroy = cpu_destroy,
    };
    cpu_device *created = qr_alloc_zero(1, sizeof *created);
    *device = NULL;
    if (!created) return QUIRE_NO_MEMORY;
    created->device.ops = &ops;
    qr_list_init(&created->memories);
    *device = &created->device;
    return QUIRE_OK;
}
