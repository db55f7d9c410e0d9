/* Streams of blocks through two buffers, over devices that take their time. */
#include "base/block_stage.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "base/memory.h"
#include "tests/support/block_traffic.h"

static qr_device *sim(uint64_t seed, uint32_t delay, uint64_t copies_max) {
    qr_device *device;
    qr_device_sim_config config = {.seed = seed, .delay_polls_max = delay, .reorder = true, .copies_max = copies_max};
    cr_assert_eq(qr_device_sim_create(&config, &device), QUIRE_OK);
    return device;
}

Test(base_block_stage, every_block_streams_in_and_out_whatever_the_buffer_size) {
    for (uint64_t seed = 1; seed <= 40; seed++) {
        qr_device *device = sim(seed, (uint32_t)seed, 0);
        uint32_t blocks = 1 + (uint32_t)seed * 7 % 50, buffer = 1 + (uint32_t)seed % 9;
        cr_assert_eq(block_traffic_stream(device, seed, blocks, buffer, 128), 0, "seed %d", (int)seed);
        device->ops->destroy(device);
    }
}

typedef struct stage_rig {
    qr_device *device;
    void *pool;
    qr_block_mover mover;
    qr_block_stage *stage;
} stage_rig;

static void rig_init(stage_rig *rig, qr_device *device, qr_block_stage_way way) {
    rig->device = device;
    cr_assert_eq(device->ops->alloc(device, 16 * 64, &rig->pool, NULL), QUIRE_OK);
    rig->mover =
        (qr_block_mover){.device = device, .pool = rig->pool, .block_bytes = 64, .block_count = 16, .streams = {1, 2, 3}};
    cr_assert_eq(qr_block_stage_create(&rig->mover, way, 2, &rig->stage, NULL), QUIRE_OK);
}

static void rig_deinit(stage_rig *rig) {
    qr_block_stage_destroy(rig->stage);
    rig->device->ops->free(rig->device, rig->pool);
    rig->device->ops->destroy(rig->device);
}

static const uint32_t LIST[] = {0, 1, 2, 3, 4, 5, 6, 7};

Test(base_block_stage, while_the_owner_has_one_buffer_the_other_is_filled) {
    stage_rig rig;
    void *first, *second, *third;
    uint32_t count;
    rig_init(&rig, sim(1, 0, 0), QR_BLOCK_STAGE_OUT);
    cr_assert_eq(qr_block_stage_begin(rig.stage, LIST, 8, (qr_device_event){0}), QUIRE_OK);
    while (!qr_block_stage_take(rig.stage, &first, &count)) {}
    while (!qr_block_stage_take(rig.stage, &second, &count)) {}
    cr_assert_neq(first, second);
    for (int i = 0; i < 50; i++) cr_assert(!qr_block_stage_take(rig.stage, &third, &count)); /* both are the owner's */
    cr_assert_eq(qr_block_stage_give_back(rig.stage), QUIRE_OK);
    while (!qr_block_stage_take(rig.stage, &third, &count)) {}
    cr_assert_eq(third, first);
    for (int i = 0; i < 2; i++) cr_assert_eq(qr_block_stage_give_back(rig.stage), QUIRE_OK);
    while (!qr_block_stage_take(rig.stage, &first, &count)) {}
    cr_assert(!qr_block_stage_finished(rig.stage));
    cr_assert_eq(qr_block_stage_give_back(rig.stage), QUIRE_OK);
    cr_assert(qr_block_stage_finished(rig.stage));
    rig_deinit(&rig);
}

Test(base_block_stage, no_buffer_is_handed_out_before_its_copy_is_complete) {
    int refused = 0;
    for (uint64_t seed = 1; seed < 50; seed++) {
        stage_rig rig;
        void *memory;
        uint32_t count;
        rig_init(&rig, sim(seed, 30, 0), QR_BLOCK_STAGE_IN);
        for (int i = 0; i < 2; i++) {
            qr_device_event done;
            cr_assert(qr_block_stage_take(rig.stage, &memory, &count));
            cr_assert_eq(qr_block_stage_push(rig.stage, LIST, 2, (qr_device_event){0}, &done), QUIRE_OK);
        }
        while (!qr_block_stage_take(rig.stage, &memory, &count)) refused++;
        qr_device_event done;
        cr_assert_eq(qr_block_stage_push(rig.stage, NULL, 0, (qr_device_event){0}, &done), QUIRE_OK);
        while (!qr_block_stage_finished(rig.stage)) {}
        rig_deinit(&rig);
    }
    cr_assert_gt(refused, 100);
}

Test(base_block_stage, a_lost_device_is_reported_and_lets_go) {
    stage_rig rig;
    void *memory;
    uint32_t count;
    rig_init(&rig, sim(1, 3, 1), QR_BLOCK_STAGE_OUT);
    cr_assert_eq(qr_block_stage_begin(rig.stage, LIST, 8, (qr_device_event){0}), QUIRE_IO);
    for (int i = 0; i < 50; i++) cr_assert(!qr_block_stage_take(rig.stage, &memory, &count));
    rig_deinit(&rig);
}

Test(base_block_stage, an_impossible_size_is_refused) {
    qr_device *device = sim(1, 0, 0);
    qr_block_mover mover = {.device = device, .block_bytes = SIZE_MAX / 4, .block_count = 1, .streams = {0, 1, 2}};
    qr_block_stage *stage;
    quire_error error;
    cr_assert_eq(qr_block_stage_create(&mover, QR_BLOCK_STAGE_OUT, 4, &stage, &error), QUIRE_TOO_LARGE);
    cr_assert_null(stage);
    device->ops->destroy(device);
}

Test(base_block_stage, destroying_while_bytes_move_is_a_broken_promise, .signal = SIGABRT) {
    stage_rig rig;
    rig_init(&rig, sim(7, 1000, 0), QR_BLOCK_STAGE_OUT);
    cr_assert_eq(qr_block_stage_begin(rig.stage, LIST, 8, (qr_device_event){0}), QUIRE_OK);
    qr_block_stage_destroy(rig.stage);
}
