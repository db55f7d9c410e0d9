/* copy_rates - how fast whole blocks move between the GPU and pinned host memory, each way and both ways at once.
 *
 * Prints JSON lines. Every run goes through base/block_mover.h, as the KV manager's tiers do: scattered blocks one copy each,
 * neighbours as one. --smoke: tiny sizes, to try the program itself where time means nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/block_mover.h"
#include "base/clock.h"
#include "base/cuda/device_cuda.h"
#include "base/memory.h"

typedef struct rates {
    qr_device *device;
    size_t host_bytes; /* of one half of the host memory; each way has its own */
    qr_region host;
    void *pool;
    bool smoke;
} rates;

static void check(quire_status status, const char *what) {
    if (status == QUIRE_OK) return;
    fprintf(stderr, "copy_rates: %s: %s\n", what, quire_status_message(status));
    exit(1);
}

static void wait_for(qr_device *device, qr_device_event event) {
    while (!device->ops->poll(device, event)) check(device->ops->status(device, NULL), "device");
}

/* Blocks of the pool one after the other, or in an order where none follows its neighbour. */
static uint32_t *block_list(uint32_t count, bool scattered) {
    uint32_t *list = qr_alloc_zero(count, sizeof *list);
    if (!list) exit(1);
    for (uint32_t i = 0; i < count; i++) list[i] = scattered ? (i % 2 ? count - 1 - i / 2 : i / 2) : i;
    return list;
}

typedef struct copy_run {
    const char *way;
    size_t block_bytes;
    bool scattered, out, in, inside;
} copy_run;

/* Forks: block i of the first half to block i of the second. */
static quire_status submit_inside(const qr_block_mover *mover, const uint32_t *list, uint32_t count, qr_device_event *done) {
    qr_block_copy *copies = qr_alloc_zero(count / 2, sizeof *copies);
    if (!copies) return QUIRE_NO_MEMORY;
    for (uint32_t i = 0; i < count / 2; i++) copies[i] = (qr_block_copy){list[i], list[count / 2 + i]};
    quire_status status = qr_block_mover_copy(mover, copies, count / 2, (qr_device_event){0}, done);
    free(copies);
    return status;
}

static void submit_all(const rates *rates, const copy_run *run, const qr_block_mover *mover, const uint32_t *list,
                       uint32_t count) {
    qr_device_event out = {0}, in = {0}, inside = {0}, now = {0};
    char *host = rates->host.base;
    if (run->out) check(qr_block_mover_gather_run(mover, list, count, host, now, &out), "gather");
    /* The other half of the pool, so that the two ways touch different bytes. */
    if (run->in) check(qr_block_mover_scatter_run(mover, list + count, count, host + rates->host_bytes, now, &in), "scatter");
    if (run->inside) check(submit_inside(mover, list, 2 * count, &inside), "copy");
    wait_for(rates->device, out);
    wait_for(rates->device, in);
    wait_for(rates->device, inside);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const rates *rates, const copy_run *run) {
    uint32_t count = (uint32_t)(rates->host_bytes / run->block_bytes);
    uint32_t *list = block_list(2 * count, run->scattered);
    double seconds[5];
    qr_block_mover mover = {.device = rates->device,
                            .pool = rates->pool,
                            .block_bytes = run->block_bytes,
                            .block_count = 2 * count,
                            .streams = {1, 2, 3}};
    submit_all(rates, run, &mover, list, count);
    for (int i = 0; i < 5; i++) {
        uint64_t begin = qr_clock_ns();
        submit_all(rates, run, &mover, list, count);
        seconds[i] = (double)(qr_clock_ns() - begin) * 1e-9;
    }
    qsort(seconds, 5, sizeof *seconds, by_value);
    double bytes = (double)count * (double)run->block_bytes * (double)(run->out + run->in + run->inside);
    printf(
        "{\"name\":\"copy\",\"way\":\"%s\",\"block_kib\":%zu,\"scattered\":%s,\"bytes\":%.0f,\"ms\":%.3f,\"gb_per_s\":%.2f}\n",
        run->way, run->block_bytes >> 10, run->scattered ? "true" : "false", bytes, seconds[2] * 1e3,
        bytes / seconds[2] * 1e-9);
    fflush(stdout);
    free(list);
}

static void measure_size(const rates *rates, size_t block_bytes) {
    for (int scattered = 0; scattered < 2; scattered++) {
        const copy_run runs[] = {
            {"to_host", block_bytes, scattered, true, false, false},
            {"to_gpu", block_bytes, scattered, false, true, false},
            {"both", block_bytes, scattered, true, true, false},
            {"fork", block_bytes, scattered, false, false, true},
        };
        for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) measure(rates, &runs[i]);
    }
}

int main(int argc, char **argv) {
    rates rates = {.smoke = argc > 1 && !strcmp(argv[1], "--smoke")};
    quire_error error = {.text = ""};
    qr_device_cuda_info info;
    rates.host_bytes = rates.smoke ? 1 << 20 : 1 << 30;
    check(qr_device_cuda_create(0, &rates.device, &error), error.text);
    check(qr_device_cuda_info_get(rates.device, &info, &error), error.text);
    check(qr_region_alloc(2 * rates.host_bytes, &rates.host, &error), "host memory");
    check(rates.device->ops->host_register(rates.device, rates.host.base, rates.host.size_bytes, &error), "pinning");
    check(rates.device->ops->alloc(rates.device, 2 * rates.host_bytes, &rates.pool, &error), "device memory");
    printf("{\"name\":\"gpu\",\"gpu\":\"%s\",\"compute\":\"%u.%u\",\"processors\":%u,\"copy_engines\":%u,\"l2_bytes\":%u,"
           "\"memory_bytes\":%llu}\n",
           info.name, info.compute_major, info.compute_minor, info.processor_count, info.copy_engine_count, info.l2_bytes,
           (unsigned long long)info.memory_bytes);
    /* 16 tokens of Llama-3 8B in f16, in 8 bits, of SmolLM2-135M in f16, and 4 KiB for the price of a copy. */
    const size_t sizes[] = {2 << 20, (1 << 20) + (32 << 10), 360 << 10, 4 << 10};
    for (size_t i = 0; i < (rates.smoke ? 2 : 4); i++) measure_size(&rates, rates.smoke ? 4096u << i : sizes[i]);
    rates.device->ops->free(rates.device, rates.pool);
    rates.device->ops->host_unregister(rates.device, rates.host.base);
    qr_region_free(&rates.host);
    rates.device->ops->destroy(rates.device);
    return 0;
}
