/* Copies, gathers and scatters of blocks over devices whose copies are late and overtake each other. */
#include "base/block_mover.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "tests/support/block_traffic.h"

static qr_device *sim(uint64_t seed, uint32_t delay, bool reorder, uint64_t copies_max) {
    qr_device *device;
    qr_device_sim_config config = {.seed = seed, .delay_polls_max = delay, .reorder = reorder, .copies_max = copies_max};
    cr_assert_eq(qr_device_sim_create(&config, &device), QUIRE_OK);
    return device;
}

static uint32_t wrong_after(uint64_t seed, bool reorder, bool without_order) {
    qr_device *device = sim(seed, 12, reorder, 0);
    block_traffic traffic = {.seed = seed, .rounds = 400, .blocks = 24, .slots = 16, .block_bytes = 256};
    traffic.without_order = without_order;
    block_traffic_run(device, &traffic);
    cr_assert_eq(traffic.operations, 400u);
    device->ops->destroy(device);
    return traffic.wrong;
}

Test(base_block_mover, every_block_holds_what_it_must_however_copies_overtake_each_other) {
    for (uint64_t seed = 1; seed <= 60; seed++) cr_assert_eq(wrong_after(seed, seed % 2, false), 0, "seed %d", (int)seed);
}

Test(base_block_mover, without_order_between_streams_the_traffic_goes_wrong) {
    uint32_t wrong = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) wrong += wrong_after(seed, true, true);
    cr_assert_gt(wrong, 10);
}

Test(base_block_mover, the_cpu_device_moves_at_once) {
    qr_device *device;
    block_traffic traffic = {.seed = 3, .rounds = 500, .blocks = 24, .slots = 16, .block_bytes = 64};
    cr_assert_eq(qr_device_cpu_create(&device), QUIRE_OK);
    block_traffic_run(device, &traffic);
    cr_assert_eq(traffic.wrong, 0);
    device->ops->destroy(device);
}

/* A device that only counts. */
typedef struct counting_device {
    qr_device device;
    int copies, waits, stream;
    size_t size_bytes[8];
} counting_device;

static quire_status counting_copy(qr_device *device, int stream, void *to, const void *from, size_t size_bytes) {
    counting_device *counting = (counting_device *)(void *)device;
    (void)to, (void)from;
    counting->stream = stream;
    counting->size_bytes[counting->copies++] = size_bytes;
    return QUIRE_OK;
}
static quire_status counting_wait(qr_device *device, int stream, qr_device_event event) {
    (void)stream, (void)event;
    ((counting_device *)(void *)device)->waits++;
    return QUIRE_OK;
}
static qr_device_event counting_event(qr_device *device, int stream) {
    (void)device, (void)stream;
    return (qr_device_event){77};
}

Test(base_block_mover, neighbours_on_both_sides_travel_as_one_copy) {
    static const qr_device_ops ops = {
        .name = "counting", .copy_async = counting_copy, .wait = counting_wait, .event = counting_event};
    static unsigned char pool[8 * 128], host[8 * 128];
    counting_device counting = {.device = {&ops}};
    qr_block_mover mover = {
        .device = &counting.device, .pool = pool, .block_bytes = 128, .block_count = 8, .streams = {0, 1, 2}};
    const uint32_t blocks[] = {2, 3, 4, 6, 5, 7};
    qr_device_event done, after = {5};
    cr_assert_eq(qr_block_mover_gather_run(&mover, blocks, 6, host, after, &done), QUIRE_OK);
    cr_assert_eq(done.value, 77u);
    cr_assert_eq(counting.waits, 1);
    cr_assert_eq(counting.copies, 4);
    cr_assert_eq(counting.size_bytes[0], 3u * 128);
    for (int i = 1; i < 4; i++) cr_assert_eq(counting.size_bytes[i], 128u);
    const qr_block_move apart[] = {{0, host}, {1, host + 256}, {2, host + 384}};
    counting.copies = 0;
    cr_assert_eq(qr_block_mover_scatter(&mover, apart, 3, (qr_device_event){0}, &done), QUIRE_OK);
    cr_assert_eq(counting.waits, 1);
    cr_assert_eq(counting.copies, 2);
    cr_assert_eq(counting.size_bytes[1], 256u);
}

Test(base_block_mover, each_kind_of_work_has_its_own_stream) {
    static const qr_device_ops ops = {
        .name = "counting", .copy_async = counting_copy, .wait = counting_wait, .event = counting_event};
    static unsigned char pool[2 * 128], host[128];
    counting_device counting = {.device = {&ops}};
    qr_block_mover mover = {
        .device = &counting.device, .pool = pool, .block_bytes = 128, .block_count = 2, .streams = {2, 3, 1}};
    const qr_block_copy fork = {0, 1};
    const qr_block_move move = {1, host};
    qr_device_event done, now = {0};
    cr_assert_eq(qr_block_mover_copy(&mover, &fork, 1, now, &done), QUIRE_OK);
    cr_assert_eq(counting.stream, 2);
    cr_assert_eq(qr_block_mover_gather(&mover, &move, 1, now, &done), QUIRE_OK);
    cr_assert_eq(counting.stream, 3);
    cr_assert_eq(qr_block_mover_scatter(&mover, &move, 1, now, &done), QUIRE_OK);
    cr_assert_eq(counting.stream, 1);
}

Test(base_block_mover, nothing_to_move_is_an_event_all_the_same) {
    qr_device *device = sim(1, 5, true, 0);
    static unsigned char pool[64];
    qr_block_mover mover = {.device = device, .pool = pool, .block_bytes = 64, .block_count = 1, .streams = {0, 1, 2}};
    qr_device_event done;
    cr_assert_eq(qr_block_mover_copy(&mover, NULL, 0, (qr_device_event){0}, &done), QUIRE_OK);
    cr_assert(device->ops->poll(device, done));
    device->ops->destroy(device);
}

Test(base_block_mover, a_device_lost_half_way_fails_and_never_says_done) {
    qr_device *device = sim(1, 0, false, 2);
    static unsigned char pool[8 * 64], host[8 * 64];
    qr_block_mover mover = {.device = device, .pool = pool, .block_bytes = 64, .block_count = 8, .streams = {0, 1, 2}};
    const uint32_t blocks[] = {1, 3, 5, 7};
    qr_device_event done;
    cr_assert_eq(qr_block_mover_gather_run(&mover, blocks, 4, host, (qr_device_event){0}, &done), QUIRE_IO);
    for (int i = 0; i < 100; i++) cr_assert(!device->ops->poll(device, done));
    cr_assert_neq(device->ops->status(device, NULL), QUIRE_OK);
    device->ops->destroy(device);
}

Test(base_block_mover, a_block_beyond_the_pool_is_a_broken_promise, .signal = SIGABRT) {
    qr_device *device = sim(1, 0, false, 0);
    static unsigned char pool[64], host[64];
    qr_block_mover mover = {.device = device, .pool = pool, .block_bytes = 64, .block_count = 1, .streams = {0, 1, 2}};
    const uint32_t block = 1;
    qr_device_event done;
    (void)!qr_block_mover_gather_run(&mover, &block, 1, host, (qr_device_event){0}, &done);
}
