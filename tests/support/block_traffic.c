#include "tests/support/block_traffic.h"

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/block_mover.h"
#include "base/block_stage.h"
#include "base/memory.h"
#include "base/random.h"

enum { IN_FLIGHT_MAX = 12, MOVES_MAX = 6 };

/* One operation that may still be under way, and the places it touches: pool blocks first, then host slots. */
typedef struct traffic_operation {
    bool busy;
    qr_device_event done;
    uint32_t count;
    uint32_t from[MOVES_MAX], to[MOVES_MAX];
} traffic_operation;

typedef struct traffic_rig {
    qr_device *device;
    block_traffic *traffic;
    qr_random random;
    qr_block_mover mover;
    qr_region host;  /* [slots] blocks, then one more for looking */
    uint64_t *model; /* [blocks + slots] what each place holds once everything has arrived */
    traffic_operation operations[IN_FLIGHT_MAX];
    uint64_t next_tag;
} traffic_rig;

static void fill(void *memory, size_t size_bytes, uint64_t tag) {
    uint64_t *words = memory;
    for (size_t i = 0; i < size_bytes / sizeof *words; i++) words[i] = tag * 0x9e3779b97f4a7c15u + i;
}

static bool filled(const void *memory, size_t size_bytes, uint64_t tag) {
    const uint64_t *words = memory;
    for (size_t i = 0; i < size_bytes / sizeof *words; i++)
        if (words[i] != tag * 0x9e3779b97f4a7c15u + i) return false;
    return true;
}

static unsigned char *slot_at(const traffic_rig *rig, uint32_t slot) {
    return (unsigned char *)rig->host.base + rig->traffic->block_bytes * slot;
}

static void wait_for(qr_device *device, qr_device_event event) {
    while (!device->ops->poll(device, event)) QR_ASSERT(device->ops->status(device, NULL) == QUIRE_OK);
}

static bool list_has(const uint32_t *list, uint32_t count, uint32_t place) {
    for (uint32_t i = 0; i < count; i++)
        if (list[i] == place) return true;
    return false;
}

/* Does the order of the two matter: does one write what the other touches? */
static bool conflict(const traffic_operation *a, const traffic_operation *b) {
    for (uint32_t i = 0; i < b->count; i++) {
        if (list_has(a->to, a->count, b->to[i]) || list_has(a->to, a->count, b->from[i])) return true;
        if (list_has(a->from, a->count, b->to[i])) return true;
    }
    return false;
}

/* Whoever is in the way is waited for: by polling, or on the device, as the dice say. */
static void order_after(traffic_rig *rig, const traffic_operation *operation, int stream) {
    for (int i = 0; i < IN_FLIGHT_MAX; i++) {
        traffic_operation *other = &rig->operations[i];
        if (!other->busy || other == operation || !conflict(other, operation)) continue;
        if (qr_random_below(&rig->random, 4) == 0) wait_for(rig->device, other->done);
        else QR_ASSERT(rig->device->ops->wait(rig->device, stream, other->done) == QUIRE_OK);
    }
}

/* Distinct places in [first, first + size) that none of the list names. */
static uint32_t draw(traffic_rig *rig, uint32_t first, uint32_t size, const uint32_t *taken, uint32_t taken_count) {
    for (;;) {
        uint32_t place = first + qr_random_below(&rig->random, size);
        if (!list_has(taken, taken_count, place)) return place;
    }
}

static void draw_places(traffic_rig *rig, traffic_operation *operation, qr_block_work work) {
    uint32_t blocks = rig->traffic->blocks, slots = rig->traffic->slots, drawn[2 * MOVES_MAX], n = 0;
    for (uint32_t i = 0; i < operation->count; i++) {
        bool from_host = work == QR_BLOCK_SCATTER, to_host = work == QR_BLOCK_GATHER;
        drawn[n] = draw(rig, from_host ? blocks : 0, from_host ? slots : blocks, drawn, n);
        operation->from[i] = drawn[n++];
        drawn[n] = draw(rig, to_host ? blocks : 0, to_host ? slots : blocks, drawn, n);
        operation->to[i] = drawn[n++];
    }
}

static quire_status submit(traffic_rig *rig, traffic_operation *operation, qr_block_work work) {
    qr_block_copy copies[MOVES_MAX];
    qr_block_move moves[MOVES_MAX];
    for (uint32_t i = 0; i < operation->count; i++) {
        uint32_t from = operation->from[i], to = operation->to[i], blocks = rig->traffic->blocks;
        copies[i] = (qr_block_copy){from, to};
        if (work == QR_BLOCK_GATHER) moves[i] = (qr_block_move){from, slot_at(rig, to - blocks)};
        if (work == QR_BLOCK_SCATTER) moves[i] = (qr_block_move){to, slot_at(rig, from - blocks)};
    }
    qr_device_event now = {0};
    if (work == QR_BLOCK_COPY) return qr_block_mover_copy(&rig->mover, copies, operation->count, now, &operation->done);
    if (work == QR_BLOCK_GATHER) return qr_block_mover_gather(&rig->mover, moves, operation->count, now, &operation->done);
    return qr_block_mover_scatter(&rig->mover, moves, operation->count, now, &operation->done);
}

static void look_at(traffic_rig *rig, uint32_t place) {
    uint32_t blocks = rig->traffic->blocks;
    const void *memory = place < blocks ? slot_at(rig, rig->traffic->slots) : slot_at(rig, place - blocks);
    if (place < blocks) {
        qr_block_move look = {place, slot_at(rig, rig->traffic->slots)};
        qr_device_event done;
        QR_ASSERT(qr_block_mover_gather(&rig->mover, &look, 1, (qr_device_event){0}, &done) == QUIRE_OK);
        wait_for(rig->device, done);
    }
    rig->traffic->wrong += !filled(memory, rig->traffic->block_bytes, rig->model[place]);
}

/* Ends an operation: waits for it and, where nothing later writes the same places, compares its targets. */
static void finish(traffic_rig *rig, traffic_operation *operation) {
    if (!operation->busy) return;
    wait_for(rig->device, operation->done);
    operation->busy = false;
    for (uint32_t i = 0; i < operation->count; i++) {
        bool overwritten = false;
        for (int k = 0; k < IN_FLIGHT_MAX; k++) {
            const traffic_operation *other = &rig->operations[k];
            overwritten |= other->busy && list_has(other->to, other->count, operation->to[i]);
        }
        if (!overwritten) look_at(rig, operation->to[i]);
    }
}

/* A host slot that nobody uses gets new bytes, as if a disk had delivered them. */
static void rewrite_slot(traffic_rig *rig) {
    uint32_t slot = qr_random_below(&rig->random, rig->traffic->slots), place = rig->traffic->blocks + slot;
    traffic_operation write = {.count = 1, .from = {place}, .to = {place}};
    for (int i = 0; i < IN_FLIGHT_MAX; i++)
        if (rig->operations[i].busy && conflict(&rig->operations[i], &write)) finish(rig, &rig->operations[i]);
    rig->model[place] = rig->next_tag++;
    fill(slot_at(rig, slot), rig->traffic->block_bytes, rig->model[place]);
}

static void traffic_round(traffic_rig *rig) {
    traffic_operation *operation = &rig->operations[qr_random_below(&rig->random, IN_FLIGHT_MAX)];
    qr_block_work work = (qr_block_work)qr_random_below(&rig->random, QR_BLOCK_WORK_COUNT);
    finish(rig, operation);
    operation->count = 1 + qr_random_below(&rig->random, MOVES_MAX);
    draw_places(rig, operation, work);
    if (!rig->traffic->without_order) order_after(rig, operation, rig->mover.streams[work]);
    QR_ASSERT(submit(rig, operation, work) == QUIRE_OK);
    operation->busy = true;
    for (uint32_t i = 0; i < operation->count; i++) rig->model[operation->to[i]] = rig->model[operation->from[i]];
    rig->traffic->operations++;
    if (qr_random_below(&rig->random, 3) == 0) rewrite_slot(rig);
}

static void mover_init(qr_block_mover *mover, qr_device *device, uint32_t blocks, size_t block_bytes) {
    void *pool;
    QR_ASSERT(device->ops->alloc(device, block_bytes * blocks, &pool, NULL) == QUIRE_OK);
    *mover = (qr_block_mover){
        .device = device, .pool = pool, .block_bytes = block_bytes, .block_count = blocks, .streams = {1, 2, 3}};
}

static void host_init(qr_device *device, qr_region *host, size_t size_bytes) {
    QR_ASSERT(qr_region_alloc(size_bytes, host, NULL) == QUIRE_OK);
    QR_ASSERT(device->ops->host_register(device, host->base, host->size_bytes, NULL) == QUIRE_OK);
}

static void host_deinit(qr_device *device, qr_region *host) {
    device->ops->host_unregister(device, host->base);
    qr_region_free(host);
}

/* Every place gets a tag of its own; the pool by way of slot 0. */
static void rig_fill(traffic_rig *rig) {
    const block_traffic *traffic = rig->traffic;
    for (uint32_t place = 0; place < traffic->blocks + traffic->slots; place++) {
        uint32_t slot = place < traffic->blocks ? 0 : place - traffic->blocks;
        rig->model[place] = rig->next_tag++;
        fill(slot_at(rig, slot), traffic->block_bytes, rig->model[place]);
        if (place >= traffic->blocks) continue;
        qr_block_move move = {place, slot_at(rig, 0)};
        qr_device_event done;
        QR_ASSERT(qr_block_mover_scatter(&rig->mover, &move, 1, (qr_device_event){0}, &done) == QUIRE_OK);
        wait_for(rig->device, done);
    }
}

void block_traffic_run(qr_device *device, block_traffic *traffic) {
    traffic_rig rig = {.device = device, .traffic = traffic, .random = {traffic->seed}, .next_tag = 1};
    traffic->wrong = traffic->operations = 0;
    rig.model = qr_alloc_zero(traffic->blocks + traffic->slots, sizeof *rig.model);
    QR_ASSERT(rig.model != NULL);
    mover_init(&rig.mover, device, traffic->blocks, traffic->block_bytes);
    host_init(device, &rig.host, traffic->block_bytes * (traffic->slots + 1));
    rig_fill(&rig);
    for (uint32_t i = 0; i < traffic->rounds; i++) traffic_round(&rig);
    for (int i = 0; i < IN_FLIGHT_MAX; i++) finish(&rig, &rig.operations[i]);
    for (uint32_t place = 0; place < traffic->blocks + traffic->slots; place++) look_at(&rig, place);
    host_deinit(device, &rig.host);
    device->ops->free(device, rig.mover.pool);
    free(rig.model);
}

/* Writes every block of the list through a stage; block i gets the tag first_tag + i. */
static void stream_in(qr_device *device, qr_block_stage *stage, const uint32_t *blocks, uint32_t count, size_t block_bytes) {
    uint32_t done_blocks = 0, room;
    qr_device_event done = {0};
    void *memory;
    while (done_blocks < count) {
        if (!qr_block_stage_take(stage, &memory, &room)) continue;
        uint32_t n = count - done_blocks < room ? count - done_blocks : room;
        for (uint32_t i = 0; i < n; i++)
            fill((unsigned char *)memory + block_bytes * i, block_bytes, blocks[done_blocks + i] + 1u);
        QR_ASSERT(qr_block_stage_push(stage, blocks + done_blocks, n, (qr_device_event){0}, &done) == QUIRE_OK);
        done_blocks += n;
    }
    wait_for(device, done);
    while (!qr_block_stage_finished(stage)) {}
}

static uint32_t stream_out(qr_block_stage *stage, const uint32_t *blocks, uint32_t count, size_t block_bytes,
                           qr_random *random) {
    uint32_t seen = 0, wrong = 0, n, held = 0;
    void *memory;
    QR_ASSERT(qr_block_stage_begin(stage, blocks, count, (qr_device_event){0}) == QUIRE_OK);
    while (!qr_block_stage_finished(stage)) {
        if (qr_block_stage_take(stage, &memory, &n)) {
            for (uint32_t i = 0; i < n; i++)
                wrong += !filled((unsigned char *)memory + block_bytes * i, block_bytes, blocks[seen + i] + 1u);
            seen += n;
            held++;
        }
        /* Sometimes the owner keeps both buffers for a while. */
        if (held == QR_BLOCK_STAGE_BUFFERS || (held && qr_random_below(random, 3) == 0)) {
            QR_ASSERT(qr_block_stage_give_back(stage) == QUIRE_OK);
            held--;
        }
    }
    return wrong + (seen != count);
}

uint32_t block_traffic_stream(qr_device *device, uint64_t seed, uint32_t blocks, uint32_t buffer_blocks, size_t block_bytes) {
    qr_random random = {seed};
    qr_block_mover mover;
    qr_block_stage *out, *in;
    uint32_t *order = qr_alloc_zero(blocks, sizeof *order);
    QR_ASSERT(order != NULL);
    mover_init(&mover, device, blocks, block_bytes);
    QR_ASSERT(qr_block_stage_create(&mover, QR_BLOCK_STAGE_IN, buffer_blocks, &in, NULL) == QUIRE_OK);
    QR_ASSERT(qr_block_stage_create(&mover, QR_BLOCK_STAGE_OUT, buffer_blocks, &out, NULL) == QUIRE_OK);
    for (uint32_t i = 0; i < blocks; i++) order[i] = blocks - 1 - i;
    stream_in(device, in, order, blocks, block_bytes);
    for (uint32_t i = 0; i < blocks; i++) { /* another order to go out: a shuffle */
        uint32_t k = qr_random_below(&random, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    uint32_t wrong =
        stream_out(out, order, blocks, block_bytes, &random) + stream_out(out, order, blocks / 2, block_bytes, &random);
    qr_block_stage_destroy(in);
    qr_block_stage_destroy(out);
    device->ops->free(device, mover.pool);
    free(order);
    return wrong;
}
