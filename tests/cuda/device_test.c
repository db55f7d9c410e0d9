/* device_test.c - device_cuda against the promises of base/device.h, and block traffic over it.
 *
 * A plain program: on the emulated runtime, whose copies are late and whose streams run one piece of work per poll, and the
 * same on a GPU. The linker puts the functions below (__wrap_*) in front of the runtime's, so that a call can fail on demand.
 */
#include "base/cuda/device_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "base/memory.h"
#include "tests/support/block_traffic.h"

static int checks, failures;

static void check(bool good, const char *what, int line) {
    checks++;
    if (good) return;
    failures++;
    printf("device_test.c:%d: %s\n", line, what);
}
#define CHECK(condition) check((condition), #condition, __LINE__)

/* ---- failures on demand ---- */

typedef struct fault {
    int after; /* calls that still succeed; -1: never fails */
    cudaError_t code;
} fault;

static fault copy_fault = {-1, cudaSuccess}, query_fault = {-1, cudaSuccess}, event_fault = {-1, cudaSuccess},
             stream_fault = {-1, cudaSuccess}, count_fault = {-1, cudaSuccess}, record_fault = {-1, cudaSuccess},
             wait_fault = {-1, cudaSuccess}, attribute_fault = {-1, cudaSuccess}, select_fault = {-1, cudaSuccess},
             free_fault = {-1, cudaSuccess}, unregister_fault = {-1, cudaSuccess}, memory_fault = {-1, cudaSuccess};
static int compute_major = 0; /* what the GPU says it is; 0: the truth */
static int events_alive, streams_alive;

static bool strikes(fault *fault) {
    if (fault->after < 0) return false;
    return fault->after-- == 0;
}

cudaError_t __real_cudaMemcpyAsync(void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t);
cudaError_t __wrap_cudaMemcpyAsync(void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t);
cudaError_t __wrap_cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return strikes(&copy_fault) ? copy_fault.code : __real_cudaMemcpyAsync(to, from, size, kind, stream);
}

cudaError_t __real_cudaEventQuery(cudaEvent_t);
cudaError_t __wrap_cudaEventQuery(cudaEvent_t);
cudaError_t __wrap_cudaEventQuery(cudaEvent_t event) {
    return strikes(&query_fault) ? query_fault.code : __real_cudaEventQuery(event);
}

cudaError_t __real_cudaEventCreateWithFlags(cudaEvent_t *, unsigned);
cudaError_t __wrap_cudaEventCreateWithFlags(cudaEvent_t *, unsigned);
cudaError_t __wrap_cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    if (strikes(&event_fault)) return event_fault.code;
    events_alive++;
    return __real_cudaEventCreateWithFlags(event, flags);
}

cudaError_t __real_cudaEventDestroy(cudaEvent_t);
cudaError_t __wrap_cudaEventDestroy(cudaEvent_t);
cudaError_t __wrap_cudaEventDestroy(cudaEvent_t event) {
    events_alive--;
    return __real_cudaEventDestroy(event);
}

cudaError_t __real_cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    if (strikes(&stream_fault)) return stream_fault.code;
    streams_alive++;
    return __real_cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t __real_cudaStreamDestroy(cudaStream_t);
cudaError_t __wrap_cudaStreamDestroy(cudaStream_t);
cudaError_t __wrap_cudaStreamDestroy(cudaStream_t stream) {
    streams_alive--;
    return __real_cudaStreamDestroy(stream);
}

cudaError_t __real_cudaGetDeviceCount(int *);
cudaError_t __wrap_cudaGetDeviceCount(int *);
cudaError_t __wrap_cudaGetDeviceCount(int *count) {
    return strikes(&count_fault) ? count_fault.code : __real_cudaGetDeviceCount(count);
}

cudaError_t __real_cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t __wrap_cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t __wrap_cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return strikes(&record_fault) ? record_fault.code : __real_cudaEventRecord(event, stream);
}

cudaError_t __real_cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
cudaError_t __wrap_cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
cudaError_t __wrap_cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    return strikes(&wait_fault) ? wait_fault.code : __real_cudaStreamWaitEvent(stream, event, flags);
}

cudaError_t __real_cudaDeviceGetAttribute(int *, enum cudaDeviceAttr, int);
cudaError_t __wrap_cudaDeviceGetAttribute(int *, enum cudaDeviceAttr, int);
cudaError_t __wrap_cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    if (strikes(&attribute_fault)) return attribute_fault.code;
    cudaError_t code = __real_cudaDeviceGetAttribute(value, attribute, device);
    if (compute_major && attribute == cudaDevAttrComputeCapabilityMajor) *value = compute_major;
    return code;
}

cudaError_t __real_cudaSetDevice(int);
cudaError_t __wrap_cudaSetDevice(int);
cudaError_t __wrap_cudaSetDevice(int device) {
    return strikes(&select_fault) ? select_fault.code : __real_cudaSetDevice(device);
}

cudaError_t __real_cudaFree(void *);
cudaError_t __wrap_cudaFree(void *);
cudaError_t __wrap_cudaFree(void *memory) {
    cudaError_t code = __real_cudaFree(memory);
    return strikes(&free_fault) ? free_fault.code : code;
}

cudaError_t __real_cudaHostUnregister(void *);
cudaError_t __wrap_cudaHostUnregister(void *);
cudaError_t __wrap_cudaHostUnregister(void *memory) {
    cudaError_t code = __real_cudaHostUnregister(memory);
    return strikes(&unregister_fault) ? unregister_fault.code : code;
}

cudaError_t __real_cudaMemGetInfo(size_t *, size_t *);
cudaError_t __wrap_cudaMemGetInfo(size_t *, size_t *);
cudaError_t __wrap_cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    return strikes(&memory_fault) ? memory_fault.code : __real_cudaMemGetInfo(free_bytes, total_bytes);
}

/* ---- a device and a little memory ---- */

typedef struct rig {
    qr_device *device;
    uint32_t *host; /* pinned, [1024] */
    uint32_t *gpu;  /* [1024] */
} rig;

enum { WORDS = 1024, BYTES = WORDS * sizeof(uint32_t) };

static qr_device *create(void) {
    qr_device *device;
    quire_error error;
    if (qr_device_cuda_create(0, &device, &error) == QUIRE_OK) return device;
    printf("no device: %s\n", error.text);
    exit(77);
}

static void rig_init(rig *rig) {
    void *gpu;
    rig->device = create();
    rig->host = aligned_alloc(4096, BYTES);
    CHECK(rig->device->ops->host_register(rig->device, rig->host, BYTES, NULL) == QUIRE_OK);
    CHECK(rig->device->ops->alloc(rig->device, BYTES, &gpu, NULL) == QUIRE_OK);
    rig->gpu = gpu;
    for (uint32_t i = 0; i < WORDS; i++) rig->host[i] = i;
}

static void rig_deinit(rig *rig) {
    rig->device->ops->free(rig->device, rig->gpu);
    rig->device->ops->host_unregister(rig->device, rig->host);
    rig->device->ops->destroy(rig->device);
    free(rig->host);
    CHECK(events_alive == 0 && streams_alive == 0);
}

static quire_status copy(rig *rig, int stream, void *to, const void *from, size_t size_bytes) {
    return rig->device->ops->copy_async(rig->device, stream, to, from, size_bytes);
}
static qr_device_event event_of(rig *rig, int stream) { return rig->device->ops->event(rig->device, stream); }
static bool poll(rig *rig, qr_device_event event) { return rig->device->ops->poll(rig->device, event); }
static void wait_for(rig *rig, qr_device_event event) {
    while (!poll(rig, event) && rig->device->ops->status(rig->device, NULL) == QUIRE_OK) {}
}

/* ---- what must hold ---- */

static void bytes_go_there_and_back(void) {
    rig rig;
    rig_init(&rig);
    CHECK(copy(&rig, 1, rig.gpu, rig.host, BYTES / 2) == QUIRE_OK);
    CHECK(copy(&rig, 1, rig.gpu + WORDS / 2, rig.gpu, BYTES / 2) == QUIRE_OK); /* inside the GPU, in stream order */
    CHECK(copy(&rig, 1, rig.host, rig.gpu, BYTES) == QUIRE_OK);
    wait_for(&rig, event_of(&rig, 1));
    for (uint32_t i = 0; i < WORDS; i++)
        if (rig.host[i] != i % (WORDS / 2)) CHECK(!"a word is wrong");
    rig_deinit(&rig);
}

/* Far more events than the ring holds: none completes early, all complete, and later ones never before earlier ones. */
static void events_beyond_the_ring_merge_and_complete(void) {
    enum { EVENTS = 1000 };
    static qr_device_event events[EVENTS];
    rig rig;
    rig_init(&rig);
    for (uint32_t i = 0; i < EVENTS; i++) {
        CHECK(copy(&rig, 2, rig.gpu + i, rig.host + i, sizeof(uint32_t)) == QUIRE_OK);
        CHECK(copy(&rig, 2, rig.host + WORDS - 1, rig.gpu + i, sizeof(uint32_t)) == QUIRE_OK);
        events[i] = event_of(&rig, 2);
    }
    for (uint32_t i = 0; i < EVENTS; i++) {
        wait_for(&rig, events[i]);
        CHECK(rig.host[WORDS - 1] >= i);
    }
    for (uint32_t i = 0; i < EVENTS; i++) CHECK(poll(&rig, events[i]));
    CHECK(poll(&rig, (qr_device_event){0}));
    rig_deinit(&rig);
}

static void a_stream_waits_for_another(void) {
    rig rig;
    rig_init(&rig);
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t *first = rig.gpu + round, *second = rig.gpu + 512 + round;
        rig.host[0] = round + 7;
        CHECK(copy(&rig, 1, first, rig.host, sizeof(uint32_t)) == QUIRE_OK);
        CHECK(rig.device->ops->wait(rig.device, 2, event_of(&rig, 1)) == QUIRE_OK);
        CHECK(copy(&rig, 2, second, first, sizeof(uint32_t)) == QUIRE_OK);
        CHECK(rig.device->ops->wait(rig.device, 3, event_of(&rig, 2)) == QUIRE_OK);
        CHECK(copy(&rig, 3, rig.host + 1, second, sizeof(uint32_t)) == QUIRE_OK);
        wait_for(&rig, event_of(&rig, 3)); /* the only one polled: the others follow by order on the device */
        CHECK(rig.host[1] == round + 7);
    }
    CHECK(rig.device->ops->wait(rig.device, 1, (qr_device_event){0}) == QUIRE_OK);
    rig_deinit(&rig);
}

/* Whoever destroys a device may free its memory next. */
static void destroying_waits_for_what_was_given(void) {
    static uint32_t from[WORDS], to[WORDS];
    for (int stream = 0; stream < QR_DEVICE_STREAMS_MAX; stream++) {
        qr_device *device = create();
        for (uint32_t i = 0; i < WORDS; i++) from[i] = i + (uint32_t)stream;
        for (uint32_t i = 0; i < WORDS; i++)
            CHECK(device->ops->copy_async(device, stream, to + i, from + i, sizeof *to) == QUIRE_OK);
        device->ops->destroy(device);
        CHECK(memcmp(from, to, sizeof from) == 0);
    }
}

/* Streams that are idle say nothing of another; a poll that says no leaves the old bytes or the new ones; after a yes the new
 * ones are there. One copy each way, so that no other copy's time hides an answer that came too early. */
static void an_event_speaks_for_its_own_stream(void) {
    rig rig;
    rig_init(&rig);
    for (uint32_t round = 0; round < 100; round++) {
        rig.host[0] = round + 1, rig.host[1] = 0;
        CHECK(copy(&rig, 1, rig.gpu, rig.host, sizeof(uint32_t)) == QUIRE_OK);
        CHECK(copy(&rig, 1, rig.host + 1, rig.gpu, sizeof(uint32_t)) == QUIRE_OK);
        qr_device_event event = event_of(&rig, 1);
        for (int stream = 2; stream < QR_DEVICE_STREAMS_MAX; stream++) wait_for(&rig, event_of(&rig, stream));
        while (!poll(&rig, event)) CHECK(rig.host[1] == 0 || rig.host[1] == round + 1);
        CHECK(rig.host[1] == round + 1);
    }
    rig_deinit(&rig);
}

static void memory_that_is_not_there_is_refused(void) {
    rig rig;
    void *memory = &rig;
    quire_error error;
    rig_init(&rig);
    CHECK(rig.device->ops->alloc(rig.device, (size_t)1 << 46, &memory, &error) == QUIRE_NO_MEMORY);
    CHECK(memory == NULL && strstr(error.text, "cudaMalloc"));
    CHECK(rig.device->ops->host_register(rig.device, rig.host, BYTES, &error) == QUIRE_IO); /* registered already */
    CHECK(strstr(error.text, "cudaHostRegister"));
    CHECK(rig.device->ops->status(rig.device, &error) == QUIRE_OK); /* neither is a reason to distrust the device */
    CHECK(copy(&rig, 0, rig.gpu, rig.host, BYTES) == QUIRE_OK);
    wait_for(&rig, event_of(&rig, 0));
    rig_deinit(&rig);
}

static void a_failed_copy_loses_the_device(void) {
    rig rig;
    quire_error error;
    rig_init(&rig);
    CHECK(copy(&rig, 1, rig.gpu, rig.host, BYTES) == QUIRE_OK);
    qr_device_event before = event_of(&rig, 1);
    wait_for(&rig, before);
    copy_fault = (fault){0, cudaErrorLaunchFailure};
    CHECK(copy(&rig, 1, rig.gpu, rig.host, BYTES) == QUIRE_IO);
    qr_device_event after = event_of(&rig, 1);
    CHECK(copy(&rig, 2, rig.gpu, rig.host, BYTES) == QUIRE_IO); /* refused without asking the runtime */
    CHECK(rig.device->ops->wait(rig.device, 2, after) == QUIRE_IO);
    CHECK(poll(&rig, before));
    for (int i = 0; i < 100; i++) CHECK(!poll(&rig, after));
    CHECK(rig.device->ops->status(rig.device, &error) == QUIRE_IO);
    CHECK(strstr(error.text, "cudaMemcpyAsync"));
    rig_deinit(&rig);
}

static void a_failed_kernel_shows_when_an_event_is_polled(void) {
    rig rig;
    quire_error error;
    rig_init(&rig);
    CHECK(copy(&rig, 1, rig.gpu, rig.host, BYTES) == QUIRE_OK);
    qr_device_event event = event_of(&rig, 1);
    query_fault = (fault){0, cudaErrorLaunchFailure};
    for (int i = 0; i < 100; i++) CHECK(!poll(&rig, event));
    CHECK(rig.device->ops->status(rig.device, &error) == QUIRE_IO);
    CHECK(strstr(error.text, "cudaEventQuery"));
    rig_deinit(&rig);
}

/* The device is lost by `call`; nothing that came after what was complete completes. */
static void check_lost(rig *rig, qr_device_event before, const char *call) {
    quire_error error;
    qr_device_event after = event_of(rig, 1);
    CHECK(rig->device->ops->status(rig->device, &error) == QUIRE_IO && strstr(error.text, call));
    CHECK(copy(rig, 1, rig->gpu, rig->host, BYTES) == QUIRE_IO);
    CHECK(rig->device->ops->wait(rig->device, 2, before) == QUIRE_IO);
    CHECK(poll(rig, before));
    for (int i = 0; i < 100; i++) CHECK(!poll(rig, after));
}

static void every_call_that_fails_loses_the_device(void) {
    for (int which = 0; which < 5; which++) {
        rig rig;
        void *more;
        rig_init(&rig);
        CHECK(rig.device->ops->alloc(rig.device, BYTES, &more, NULL) == QUIRE_OK);
        CHECK(copy(&rig, 1, rig.gpu, rig.host, BYTES) == QUIRE_OK);
        qr_device_event before = event_of(&rig, 1);
        wait_for(&rig, before);
        const fault now = {0, cudaErrorLaunchFailure};
        static const char *const CALLS[] = {"cudaEventRecord", "cudaStreamWaitEvent", "cudaFree", "cudaHostUnregister",
                                            "cudaSetDevice"};
        if (which == 0) {
            record_fault = now;
            qr_device_event event = event_of(&rig, 1);
            for (int i = 0; i < 100; i++) CHECK(!poll(&rig, event));
        } else if (which == 1) {
            CHECK(copy(&rig, 1, rig.gpu, rig.host, BYTES) == QUIRE_OK);
            qr_device_event event = event_of(&rig, 1);
            wait_fault = now;
            CHECK(rig.device->ops->wait(rig.device, 2, event) == QUIRE_IO);
        } else if (which == 3) {
            uint32_t *other = aligned_alloc(4096, BYTES);
            CHECK(rig.device->ops->host_register(rig.device, other, BYTES, NULL) == QUIRE_OK);
            unregister_fault = now;
            rig.device->ops->host_unregister(rig.device, other);
            free(other);
        } else if (which == 4) {
            select_fault = now;
            CHECK(qr_device_cuda_stream(rig.device, 1) != NULL);
        }
        if (which == 2) free_fault = now;
        rig.device->ops->free(rig.device, more);
        check_lost(&rig, before, CALLS[which]);
        rig_deinit(&rig);
    }
}

/* Calls that only ask leave the device as it was, and their outputs empty. */
static void what_cannot_be_asked_is_said(void) {
    rig rig;
    quire_error error;
    qr_device_cuda_info info;
    rig_init(&rig);
    for (int i = 0; i < 5; i++) {
        attribute_fault = (fault){i, cudaErrorInvalidValue};
        CHECK(qr_device_cuda_info_get(rig.device, &info, &error) == QUIRE_IO && strstr(error.text, "cudaDeviceGetAttribute"));
        CHECK(!info.name[0] && !info.processor_count && !info.memory_bytes);
    }
    memory_fault = (fault){0, cudaErrorInvalidValue};
    CHECK(qr_device_cuda_info_get(rig.device, &info, &error) == QUIRE_IO && strstr(error.text, "cudaMemGetInfo"));
    CHECK(!info.name[0] && !info.processor_count && !info.memory_bytes);
    void *memory = &rig;
    select_fault = (fault){0, cudaErrorInvalidDevice};
    CHECK(rig.device->ops->alloc(rig.device, BYTES, &memory, &error) == QUIRE_IO && !memory);
    CHECK(strstr(error.text, "cudaSetDevice"));
    select_fault = (fault){0, cudaErrorInvalidDevice};
    CHECK(rig.device->ops->host_register(rig.device, &rig, BYTES, NULL) == QUIRE_IO);
    CHECK(rig.device->ops->status(rig.device, NULL) == QUIRE_OK);
    rig_deinit(&rig);
}

static void a_gpu_that_is_too_old_is_refused(void) {
    qr_device *device;
    quire_error error;
    compute_major = 7;
    CHECK(qr_device_cuda_create(0, &device, &error) == QUIRE_UNSUPPORTED && !device && strstr(error.text, "7.x"));
    compute_major = 0;
    attribute_fault = (fault){0, cudaErrorInvalidValue};
    CHECK(qr_device_cuda_create(0, &device, &error) == QUIRE_IO && !device && strstr(error.text, "cudaDeviceGetAttribute"));
    select_fault = (fault){0, cudaErrorInvalidDevice};
    CHECK(qr_device_cuda_create(0, &device, &error) == QUIRE_IO && !device && strstr(error.text, "cudaSetDevice"));
    CHECK(events_alive == 0 && streams_alive == 0);
}

static void what_create_cannot_have_it_gives_back(void) {
    static const int EVENTS[] = {0, 1, 63, 64, 100, 255};
    qr_device *device;
    quire_error error;
    qr_device_cuda_info info;
    CHECK(qr_device_cuda_create(4096, &device, &error) == QUIRE_UNSUPPORTED && !device && strstr(error.text, "4096"));
    count_fault = (fault){0, cudaErrorNoDevice};
    CHECK(qr_device_cuda_create(0, &device, &error) == QUIRE_UNSUPPORTED && !device && strstr(error.text, "no GPU"));
    for (size_t i = 0; i < sizeof EVENTS / sizeof *EVENTS; i++) {
        event_fault = (fault){EVENTS[i], cudaErrorMemoryAllocation};
        CHECK(qr_device_cuda_create(0, &device, &error) == QUIRE_NO_MEMORY && !device);
        CHECK(events_alive == 0 && streams_alive == 0);
    }
    event_fault = (fault){-1, cudaSuccess};
    for (int i = 0; i < QR_DEVICE_STREAMS_MAX; i++) {
        stream_fault = (fault){i, cudaErrorLaunchFailure};
        CHECK(qr_device_cuda_create(0, &device, NULL) == QUIRE_IO && !device);
        CHECK(events_alive == 0 && streams_alive == 0);
    }
    device = create();
    CHECK(qr_device_cuda_info_get(device, &info, &error) == QUIRE_OK);
    CHECK(info.name[0] && info.compute_major >= 8 && info.processor_count > 0 && info.copy_engine_count > 0);
    CHECK(info.memory_bytes >= info.free_bytes && info.free_bytes > 0 && info.l2_bytes > 0);
    CHECK(qr_device_cuda_stream(device, 0) && qr_device_cuda_stream(device, 0) != qr_device_cuda_stream(device, 1));
    device->ops->destroy(device);
}

static void blocks_hold_what_they_must(void) {
    for (uint64_t seed = 1; seed <= 12; seed++) {
        qr_device *device = create();
        block_traffic traffic = {.seed = seed, .rounds = 300, .blocks = 24, .slots = 16, .block_bytes = 512};
        block_traffic_run(device, &traffic);
        CHECK(traffic.wrong == 0);
        CHECK(block_traffic_stream(device, seed, 10 + (uint32_t)seed * 5, 1 + (uint32_t)seed % 7, 4096) == 0);
        device->ops->destroy(device);
    }
}

int main(void) {
    static void (*const TESTS[])(void) = {
        bytes_go_there_and_back,
        events_beyond_the_ring_merge_and_complete,
        a_stream_waits_for_another,
        an_event_speaks_for_its_own_stream,
        destroying_waits_for_what_was_given,
        memory_that_is_not_there_is_refused,
        a_failed_copy_loses_the_device,
        a_failed_kernel_shows_when_an_event_is_polled,
        every_call_that_fails_loses_the_device,
        what_cannot_be_asked_is_said,
        a_gpu_that_is_too_old_is_refused,
        what_create_cannot_have_it_gives_back,
        blocks_hold_what_they_must,
    };
    for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++) TESTS[i]();
    printf("device: %d checks, %d failed\n", checks, failures);
    return failures != 0;
}
