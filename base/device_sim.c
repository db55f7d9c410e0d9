/* device_sim.c - a device for tests: host memory that counts as device memory, with copies that take their time.
 *
 * Time is the number of polls. A copy gets a due time at submission and moves its bytes only when it completes, so whoever
 * reads the target or changes the source too early sees it. Within a stream copies complete in order; between streams in
 * order of submission, or, with `reorder`, as the seed has it, but never before what the stream was told to wait for. With
 * `copies_max` the device is lost after that many copies, as one whose driver reports an error. Destroy with memory still
 * allocated is the caller's error.
 *
 * Copies under way are bounded, and submitting one allocates nothing: when all are taken the call waits for one to complete,
 * as a driver whose queue is full does.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/device.h"
#include "base/error.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/random.h"

enum { SIM_COPIES = 4096 };

typedef struct sim_copy {
    qr_list node;
    uint64_t sequence, due_poll;
    uint64_t after[QR_DEVICE_STREAMS_MAX]; /* per stream the copy that must be complete before this one starts */
    void *to;
    const void *from;
    size_t size_bytes;
} sim_copy;

typedef struct sim_memory {
    qr_list node;
    void *bytes;
    size_t size_bytes;
} sim_memory;

typedef struct sim_stream {
    qr_list pending;              /* sim_copy, in order */
    uint64_t submitted, complete; /* sequence of the last copy */
    uint64_t after[QR_DEVICE_STREAMS_MAX];
} sim_stream;

typedef struct sim_device {
    qr_device device;
    qr_device_sim_config config;
    qr_random random;
    uint64_t polls, sequence;
    size_t used_bytes;
    qr_list memories;
    sim_stream streams[QR_DEVICE_STREAMS_MAX];
    qr_list free; /* of copies */
    sim_copy copies[SIM_COPIES];
} sim_device;

static sim_device *sim_of(qr_device *device) { return (sim_device *)(void *)device; }

static quire_status sim_alloc(qr_device *device, size_t size_bytes, void **out, quire_error *error) {
    sim_device *sim = sim_of(device);
    size_t limit = sim->config.memory_bytes;
    *out = NULL;
    if (limit && size_bytes > limit - sim->used_bytes)
        return qr_fail(error, QUIRE_NO_MEMORY, "sim", QR_NO_OFFSET, "%zu bytes asked for, %zu of %zu are free", size_bytes,
                       limit - sim->used_bytes, limit);
    sim_memory *memory = qr_alloc_zero(1, sizeof *memory);
    void *bytes = qr_alloc_zero(1, size_bytes);
    if (!memory || !bytes) {
        free(memory);
        free(bytes);
        return qr_fail(error, QUIRE_NO_MEMORY, "sim", QR_NO_OFFSET, "no memory for %zu bytes", size_bytes);
    }
    memory->bytes = *out = bytes;
    memory->size_bytes = size_bytes;
    sim->used_bytes += size_bytes;
    qr_list_push_back(&sim->memories, &memory->node);
    return QUIRE_OK;
}

static sim_memory *sim_find(sim_device *sim, const void *bytes) {
    QR_LIST_EACH (node, &sim->memories) {
        sim_memory *memory = QR_LIST_ENTRY(node, sim_memory, node);
        if (memory->bytes == bytes) return memory;
    }
    return NULL;
}

static void sim_free(qr_device *device, void *bytes) {
    sim_device *sim = sim_of(device);
    if (!bytes) return;
    sim_memory *memory = sim_find(sim, bytes);
    QR_ASSERT(memory != NULL);
    sim->used_bytes -= memory->size_bytes;
    qr_list_remove(&memory->node);
    free(memory->bytes);
    free(memory);
}

static quire_status sim_host_register(qr_device *device, void *memory, size_t size_bytes, quire_error *error) {
    (void)device, (void)memory, (void)size_bytes, (void)error;
    return QUIRE_OK;
}

static void sim_host_unregister(qr_device *device, void *memory) { (void)device, (void)memory; }

static bool sim_lost(const sim_device *sim) { return sim->config.copies_max && sim->sequence >= sim->config.copies_max; }

/* sequence and stream in one number; 0 when the stream never had work. */
static qr_device_event sim_event(qr_device *device, int stream) {
    QR_ASSERT(stream >= 0 && stream < QR_DEVICE_STREAMS_MAX);
    return (qr_device_event){sim_of(device)->streams[stream].submitted * QR_DEVICE_STREAMS_MAX + (unsigned)stream};
}

static sim_copy *stream_first(sim_stream *stream) {
    return qr_list_empty(&stream->pending) ? NULL : QR_LIST_ENTRY(stream->pending.next, sim_copy, node);
}

/* Sequence of the oldest copy that is pending anywhere. */
static uint64_t sim_oldest(sim_device *sim) {
    uint64_t oldest = UINT64_MAX;
    for (int s = 0; s < QR_DEVICE_STREAMS_MAX; s++) {
        sim_copy *copy = stream_first(&sim->streams[s]);
        if (copy && copy->sequence < oldest) oldest = copy->sequence;
    }
    return oldest;
}

static bool copy_may_start(const sim_device *sim, const sim_copy *copy) {
    for (int s = 0; s < QR_DEVICE_STREAMS_MAX; s++)
        if (sim->streams[s].complete < copy->after[s]) return false;
    return true;
}

/* Completes the stream's first copy when its time and turn have come. */
static bool sim_step_stream(sim_device *sim, sim_stream *stream) {
    sim_copy *copy = stream_first(stream);
    if (!copy || copy->due_poll > sim->polls) return false;
    if (!sim->config.reorder && copy->sequence != sim_oldest(sim)) return false;
    if (!copy_may_start(sim, copy)) return false;
    memcpy(copy->to, copy->from, copy->size_bytes);
    stream->complete = copy->sequence;
    qr_list_remove(&copy->node);
    qr_list_push_back(&sim->free, &copy->node);
    return true;
}

static void sim_advance(sim_device *sim) {
    sim->polls++;
    uint32_t first = qr_random_below(&sim->random, QR_DEVICE_STREAMS_MAX);
    bool moved;
    do {
        moved = false;
        for (uint32_t i = 0; i < QR_DEVICE_STREAMS_MAX; i++)
            moved |= sim_step_stream(sim, &sim->streams[(first + i) % QR_DEVICE_STREAMS_MAX]);
    } while (moved);
}

static sim_copy *sim_take_copy(sim_device *sim) {
    while (qr_list_empty(&sim->free)) sim_advance(sim); /* every poll brings the oldest nearer to its end */
    return QR_LIST_ENTRY(qr_list_pop_front(&sim->free), sim_copy, node);
}

static quire_status sim_copy_async(qr_device *device, int stream, void *to, const void *from, size_t size_bytes) {
    QR_ASSERT(stream >= 0 && stream < QR_DEVICE_STREAMS_MAX);
    sim_device *sim = sim_of(device);
    if (sim_lost(sim)) return QUIRE_IO;
    sim_copy *copy = sim_take_copy(sim);
    uint64_t delay = qr_random_below(&sim->random, sim->config.delay_polls_max + 1);
    *copy = (sim_copy){
        .sequence = ++sim->sequence, .due_poll = sim->polls + delay, .to = to, .from = from, .size_bytes = size_bytes};
    memcpy(copy->after, sim->streams[stream].after, sizeof copy->after);
    sim->streams[stream].submitted = copy->sequence;
    qr_list_push_back(&sim->streams[stream].pending, &copy->node);
    return QUIRE_OK;
}

static bool sim_poll(qr_device *device, qr_device_event event) {
    sim_device *sim = sim_of(device);
    if (!sim_lost(sim)) sim_advance(sim);
    const sim_stream *stream = &sim->streams[event.value % QR_DEVICE_STREAMS_MAX];
    return stream->complete >= event.value / QR_DEVICE_STREAMS_MAX;
}

static quire_status sim_wait(qr_device *device, int stream, qr_device_event event) {
    QR_ASSERT(stream >= 0 && stream < QR_DEVICE_STREAMS_MAX);
    uint64_t *after = &sim_of(device)->streams[stream].after[event.value % QR_DEVICE_STREAMS_MAX];
    uint64_t sequence = event.value / QR_DEVICE_STREAMS_MAX;
    if (sequence > *after) *after = sequence;
    return sim_lost(sim_of(device)) ? QUIRE_IO : QUIRE_OK;
}

static quire_status sim_status(qr_device *device, quire_error *error) {
    if (!sim_lost(sim_of(device))) return QUIRE_OK;
    return qr_fail(error, QUIRE_IO, "sim", QR_NO_OFFSET, "lost after %llu copies",
                   (unsigned long long)sim_of(device)->sequence);
}

static void sim_destroy(qr_device *device) {
    sim_device *sim = sim_of(device);
    QR_ASSERT(qr_list_empty(&sim->memories));
    free(sim);
}

static const qr_device_ops sim_ops = {
    .name = "sim",
    .memory_is_host = false,
    .alloc = sim_alloc,
    .free = sim_free,
    .host_register = sim_host_register,
    .host_unregister = sim_host_unregister,
    .copy_async = sim_copy_async,
    .event = sim_event,
    .poll = sim_poll,
    .wait = sim_wait,
    .status = sim_status,
    .destroy = sim_destroy,
};

quire_status qr_device_sim_create(const qr_device_sim_config *config, qr_device **device) {
    *device = NULL;
    if (config->delay_polls_max == UINT32_MAX) return QUIRE_INVALID;
    sim_device *sim = qr_alloc_zero(1, sizeof *sim);
    if (!sim) return QUIRE_NO_MEMORY;
    sim->device.ops = &sim_ops;
    sim->config = *config;
    sim->random.state = config->seed;
    qr_list_init(&sim->memories);
    for (int s = 0; s < QR_DEVICE_STREAMS_MAX; s++) qr_list_init(&sim->streams[s].pending);
    qr_list_init(&sim->free);
    for (int i = 0; i < SIM_COPIES; i++) qr_list_push_back(&sim->free, &sim->copies[i].node);
    *device = &sim->device;
    return QUIRE_OK;
}
