/* Both devices against the promises of base/device.h. */
#include "base/device.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"

Test(base_device, the_cpu_device_is_done_when_the_call_returns) {
    qr_device *device;
    void *memory;
    cr_assert_eq(qr_device_cpu_create(&device), QUIRE_OK);
    cr_assert(device->ops->memory_is_host);
    cr_assert_eq(device->ops->alloc(device, 100, &memory, NULL), QUIRE_OK);
    cr_assert_eq(device->ops->host_register(device, memory, 100, NULL), QUIRE_OK);
    cr_assert_eq(device->ops->copy_async(device, 0, memory, "hello", 6), QUIRE_OK);
    cr_assert(device->ops->poll(device, device->ops->event(device, 0)));
    cr_assert_str_eq(memory, "hello");
    device->ops->host_unregister(device, memory);
    device->ops->free(device, memory);
    device->ops->destroy(device);
}

static qr_device *sim(uint64_t seed, uint32_t delay, bool reorder, size_t limit) {
    qr_device *device;
    qr_device_sim_config config = {.seed = seed, .delay_polls_max = delay, .reorder = reorder, .memory_bytes = limit};
    cr_assert_eq(qr_device_sim_create(&config, &device), QUIRE_OK);
    cr_assert(!device->ops->memory_is_host);
    return device;
}

Test(base_device, a_simulated_copy_moves_nothing_before_it_completes) {
    qr_device *device = sim(1, 50, false, 0);
    int polls_seen = 0;
    for (int round = 0; round < 200; round++) {
        char to = 0, from = 1;
        cr_assert_eq(device->ops->copy_async(device, 1, &to, &from, 1), QUIRE_OK);
        qr_device_event event = device->ops->event(device, 1);
        cr_assert_eq(to, 0);
        int polls = 0;
        while (!device->ops->poll(device, event)) {
            cr_assert_eq(to, 0);
            cr_assert_leq(++polls, 51);
        }
        cr_assert_eq(to, 1);
        polls_seen += polls;
    }
    cr_assert_gt(polls_seen, 200 * 10); /* delays are real: 25 on average */
    device->ops->destroy(device);
}

/* An engine's thread submits copies, and allocates nothing. */
Test(base_device, simulated_copies_without_end_take_no_memory_and_all_arrive) {
    enum { COPIES = 20000 };
    static uint32_t to[COPIES], from[COPIES];
    qr_device *device = sim(3, 40, true, 0);
    bool taken = true;
    qr_alloc_guard_enter();
    for (uint32_t i = 0; i < COPIES; i++) {
        from[i] = i + 1;
        int stream = (int)(i % QR_DEVICE_STREAMS_MAX);
        taken &= device->ops->copy_async(device, stream, &to[i], &from[i], sizeof *to) == QUIRE_OK;
    }
    for (int s = 0; s < QR_DEVICE_STREAMS_MAX; s++) {
        while (!device->ops->poll(device, device->ops->event(device, s))) continue;
    }
    uint64_t allocations = qr_alloc_guard_leave();
    cr_assert(taken && allocations == 0);
    cr_assert_arr_eq(to, from, sizeof to);
    device->ops->destroy(device);
}

Test(base_device, a_stream_without_work_is_complete) {
    qr_device *device = sim(1, 5, true, 0);
    cr_assert(device->ops->poll(device, device->ops->event(device, 3)));
    device->ops->destroy(device);
}

/* Submits writes 1..n of a counter on each stream; every stream must see its own in order. Returns whether streams
 * overtook each other. */
static bool run_streams(bool reorder, uint64_t seed) {
    enum { COPIES = 100 };
    qr_device *device = sim(seed, 20, reorder, 0);
    static int numbers[COPIES];
    int cells[QR_DEVICE_STREAMS_MAX] = {0}, last[QR_DEVICE_STREAMS_MAX] = {0};
    bool overtaken = false, done = false;
    for (int i = 0; i < COPIES; i++) {
        numbers[i] = i + 1;
        for (int s = 0; s < QR_DEVICE_STREAMS_MAX; s++)
            cr_assert_eq(device->ops->copy_async(device, s, &cells[s], &numbers[i], sizeof(int)), QUIRE_OK);
    }
    while (!done) {
        done = true;
        for (int s = 0; s < QR_DEVICE_STREAMS_MAX; s++) done &= device->ops->poll(device, device->ops->event(device, s));
        for (int s = 0; s < QR_DEVICE_STREAMS_MAX; s++) {
            cr_assert_geq(cells[s], last[s]);
            last[s] = cells[s];
            overtaken |= cells[s] > cells[0] || cells[s] + 1 < cells[0];
        }
    }
    for (int s = 0; s < QR_DEVICE_STREAMS_MAX; s++) cr_assert_eq(cells[s], COPIES);
    device->ops->destroy(device);
    return overtaken;
}

Test(base_device, streams_keep_their_own_order_and_overtake_each_other_only_when_asked) {
    bool overtaken = false;
    for (uint64_t seed = 0; seed < 10; seed++) {
        cr_assert(!run_streams(false, seed));
        overtaken |= run_streams(true, seed);
    }
    cr_assert(overtaken);
}

Test(base_device, memory_is_bounded_and_comes_back) {
    qr_device *device = sim(1, 0, false, 1000);
    void *a, *b;
    quire_error error;
    cr_assert_eq(device->ops->alloc(device, 600, &a, &error), QUIRE_OK);
    cr_assert_eq(device->ops->alloc(device, 401, &b, &error), QUIRE_NO_MEMORY);
    cr_assert_null(b);
    cr_assert_not_null(strstr(error.text, "400 of 1000"));
    device->ops->free(device, a);
    cr_assert_eq(device->ops->alloc(device, 1000, &b, &error), QUIRE_OK);
    device->ops->free(device, b);
    device->ops->destroy(device);
}

Test(base_device, destroying_with_memory_out_is_a_broken_promise, .signal = SIGABRT) {
    qr_device *device = sim(1, 0, false, 0);
    void *memory;
    cr_assert_eq(device->ops->alloc(device, 10, &memory, NULL), QUIRE_OK);
    device->ops->destroy(device);
}

/* Writes 1 on stream 0 and copies it on from stream 1, which waits for the write only when told to. */
static bool sees_the_write(uint64_t seed, bool wait) {
    qr_device *device = sim(seed, 20, true, 0);
    char one = 1, middle = 0, last = 0;
    cr_assert_eq(device->ops->copy_async(device, 0, &middle, &one, 1), QUIRE_OK);
    if (wait) cr_assert_eq(device->ops->wait(device, 1, device->ops->event(device, 0)), QUIRE_OK);
    cr_assert_eq(device->ops->copy_async(device, 1, &last, &middle, 1), QUIRE_OK);
    while (!device->ops->poll(device, device->ops->event(device, 1))) {}
    while (!device->ops->poll(device, device->ops->event(device, 0))) {}
    device->ops->destroy(device);
    return last == 1;
}

Test(base_device, a_stream_starts_after_what_it_was_told_to_wait_for) {
    int stale = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        cr_assert(sees_the_write(seed, true));
        stale += !sees_the_write(seed, false);
    }
    cr_assert_gt(stale, 20);
}

Test(base_device, a_lost_device_takes_no_work_and_completes_nothing) {
    qr_device *device;
    quire_error error;
    char from = 1, to = 0;
    qr_device_sim_config config = {.seed = 1, .delay_polls_max = 3, .copies_max = 2};
    cr_assert_eq(qr_device_sim_create(&config, &device), QUIRE_OK);
    cr_assert_eq(device->ops->copy_async(device, 0, &to, &from, 1), QUIRE_OK);
    while (!device->ops->poll(device, device->ops->event(device, 0))) {}
    cr_assert_eq(device->ops->status(device, &error), QUIRE_OK);
    cr_assert_eq(device->ops->copy_async(device, 0, &to, &from, 1), QUIRE_OK);
    qr_device_event event = device->ops->event(device, 0);
    cr_assert_eq(device->ops->copy_async(device, 0, &to, &from, 1), QUIRE_IO);
    for (int i = 0; i < 100; i++) cr_assert(!device->ops->poll(device, event));
    cr_assert_eq(device->ops->status(device, &error), QUIRE_IO);
    cr_assert_not_null(strstr(error.text, "lost after 2"));
    device->ops->destroy(device);
}
