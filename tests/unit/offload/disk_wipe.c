/* What was erased is in the store's own memory no more when the erasure is done: payloads, token ids and keys. */
#include "tests/unit/offload/disk_rig.h"

#include <sched.h>
#include <string.h>

#include "offload/disk_internal.h"

#define MIB (1ull << 20)
static const char secret[] = "a-salt-that-nobody-else-has";

static bool region_has(const qr_region *region, const void *bytes, size_t size_bytes) {
    return memmem(region->base, region->size_bytes, bytes, size_bytes) != NULL;
}

/* In whatever the store has taken at its open. The first and the last bytes of a payload, which no footer has. */
static bool memory_has(const disk_rig *rig, const void *bytes, size_t size_bytes) {
    const qr_disk *disk = (const qr_disk *)(const void *)rig->store;
    return region_has(&disk->memory, bytes, size_bytes) || region_has(&disk->buffers, bytes, size_bytes);
}

static bool memory_has_payload(const disk_rig *rig, uint32_t owner) {
    unsigned char payload[RIG_PAYLOAD];
    rig_fill_payload(payload, owner);
    return memory_has(rig, payload, 64) || memory_has(rig, payload + RIG_PAYLOAD - 64, 64);
}

static bool memory_has_tokens(const disk_rig *rig, uint32_t owner) {
    quire_token tokens[RIG_TOKENS] = {(quire_token)owner, 1, 2, 3};
    return memory_has(rig, tokens, sizeof tokens);
}

static bool memory_has_any(const disk_rig *rig, uint32_t owner) {
    return memory_has_payload(rig, owner) || memory_has_tokens(rig, owner) || memory_has(rig, secret, sizeof secret - 1);
}

static void erase(disk_rig *rig, qr_record_id record) {
    rig->store->ops->drop(rig->store, record, true);
    rig_settle(rig);
    cr_assert_eq(rig->store->ops->erasing(rig->store), 0);
}

Test(offload_disk_wipe, what_was_written_and_read_is_in_no_buffer) {
    for (int sealed = 0; sealed < 2; sealed++) {
        disk_rig rig;
        rig_init(&rig, 8 * MIB);
        rig_open(&rig);
        qr_record_id record = rig_put_keyed(&rig, 1000, QR_RECORD_NONE, 1, secret),
                     other = rig_put(&rig, 1001, QR_RECORD_NONE, 1);
        rig_settle(&rig);
        if (sealed) cr_assert_eq(rig_seal(&rig), QUIRE_OK);
        cr_assert_eq(rig_get(&rig, record), QUIRE_OK);
        cr_assert(memory_has_payload(&rig, 1000) && memory_has_tokens(&rig, 1000) &&
                  memory_has(&rig, secret, sizeof secret - 1));
        erase(&rig, record);
        cr_assert(!memory_has_any(&rig, 1000));
        cr_assert_eq(rig_get(&rig, other), QUIRE_OK);
        rig_deinit(&rig);
    }
}

Test(offload_disk_wipe, so_it_is_with_what_was_only_dropped_before) {
    disk_rig rig;
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    qr_record_id record = rig_put_keyed(&rig, 1000, QR_RECORD_NONE, 1, secret), other = rig_put(&rig, 1001, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    rig.store->ops->drop(rig.store, record, false);
    erase(&rig, other);
    cr_assert(!memory_has_any(&rig, 1000) && !memory_has_tokens(&rig, 1001));
    rig_deinit(&rig);
}

/* Its put is begun and taken back: by then the erasure may be over. */
Test(offload_disk_wipe, a_put_that_is_given_up_leaves_nothing_and_holds_the_erasure_up) {
    disk_rig rig;
    void *payload;
    qr_record_id record;
    quire_token tokens[RIG_TOKENS] = {1000, 1, 2, 3};
    qr_record_info info = {secret, sizeof secret - 1, QR_RECORD_NONE, 1, tokens};
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    cr_assert_eq(rig.store->ops->put_begin(rig.store, &info, 1000, &record, &payload), QR_STORE_NONE);
    rig_fill_payload(payload, 1000);
    rig.store->ops->erase_foreign(rig.store, secret, sizeof secret - 1);
    qr_disk *disk = (qr_disk *)(void *)rig.store;
    for (bool over = false; !over; sched_yield()) {
        pthread_mutex_lock(&disk->lock);
        over = disk->forgetting_count == 0;
        pthread_mutex_unlock(&disk->lock);
    }
    cr_assert_eq(rig.store->ops->erasing(rig.store), 1); /* the pass is over, the buffer is not back */
    rig.store->ops->put_abort(rig.store, record);
    rig_settle(&rig);
    cr_assert_eq(rig.store->ops->erasing(rig.store), 0);
    cr_assert(!memory_has_any(&rig, 1000));
    rig_deinit(&rig);
}

Test(offload_disk_wipe, a_payload_that_is_lent_is_wiped_when_it_comes_back) {
    disk_rig rig;
    qr_store_event event;
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    qr_record_id record = rig_put_keyed(&rig, 1000, QR_RECORD_NONE, 1, secret);
    rig_settle(&rig);
    cr_assert(rig.store->ops->get(rig.store, record, 0));
    rig.store->ops->kick(rig.store);
    while (!rig.store->ops->poll(rig.store, 0, &event)) sched_yield();
    cr_assert(event.kind == QR_STORE_GET_DONE && event.status == QUIRE_OK);
    rig.store->ops->drop(rig.store, record, true);
    rig_settle(&rig);
    cr_assert_eq(rig.store->ops->erasing(rig.store), 1);
    cr_assert(rig_payload_is(event.payload, 1000)); /* it is still the borrower's */
    rig.store->ops->release(rig.store, event.payload);
    rig_settle(&rig);
    cr_assert_eq(rig.store->ops->erasing(rig.store), 0);
    cr_assert(!memory_has_any(&rig, 1000));
    rig_deinit(&rig);
}

/* Files whose writes wait at a gate, and with them the writer. */
typedef struct gate {
    qr_files files;
    qr_files_ops ops;
    _Atomic bool shut, entered;
} gate;

static quire_status gated_write(qr_files *files, int fd, const struct iovec *parts, int part_count, uint64_t offset,
                                quire_error *error) {
    gate *g = (gate *)(void *)files;
    g->entered = true;
    while (g->shut) sched_yield();
    return qr_files_system()->ops->write(files, fd, parts, part_count, offset, error);
}

/* It may be large, and whoever gives it back has better things to do. */
Test(offload_disk_wipe, whoever_gives_a_buffer_back_does_not_overwrite_it) {
    disk_rig rig;
    qr_store_event event;
    gate g = {.files = {&g.ops}, .ops = *qr_files_system()->ops};
    g.ops.write = gated_write;
    rig_init(&rig, 8 * MIB);
    rig.config.files = &g.files;
    rig_open(&rig);
    qr_record_id record = rig_put_keyed(&rig, 1000, QR_RECORD_NONE, 1, secret);
    rig_settle(&rig);
    cr_assert(rig.store->ops->get(rig.store, record, 0));
    rig.store->ops->kick(rig.store);
    while (!rig.store->ops->poll(rig.store, 0, &event)) sched_yield();
    rig.store->ops->drop(rig.store, record, true);
    rig_settle(&rig);
    g.entered = false;
    g.shut = true;
    rig_put(&rig, 1, QR_RECORD_NONE, 1);
    while (!g.entered) sched_yield();
    rig.store->ops->release(rig.store, event.payload);
    cr_assert_eq(rig.store->ops->erasing(rig.store), 1);
    cr_assert(rig.store->ops->busy(rig.store));
    cr_assert(rig_payload_is(event.payload, 1000));
    g.shut = false;
    rig_settle(&rig);
    cr_assert_eq(rig.store->ops->erasing(rig.store), 0);
    cr_assert(!memory_has_any(&rig, 1000));
    rig_deinit(&rig);
}

Test(offload_disk_wipe, what_was_left_in_scratch_goes_too) {
    disk_rig rig;
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    qr_record_id record = rig_put(&rig, 1, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    qr_disk *disk = (qr_disk *)(void *)rig.store; /* its writer rests */
    memcpy(disk->writer.scratch_bytes + disk->sizes.footer_bytes_max - sizeof secret, secret, sizeof secret);
    erase(&rig, record);
    cr_assert(!memory_has(&rig, secret, sizeof secret - 1));
    rig_deinit(&rig);
}

/* Reads that were asked for before end as not found, whatever they have read. */
Test(offload_disk_wipe, reads_under_way_leave_nothing) {
    disk_rig rig;
    enum { COUNT = 12 };
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    for (uint32_t round = 0; round < 30; round++) {
        qr_record_id ids[COUNT];
        for (uint32_t i = 0; i < COUNT; i++) ids[i] = rig_put_keyed(&rig, 1000 + i, QR_RECORD_NONE, 1, secret);
        rig_settle(&rig);
        for (uint32_t i = 0; i < COUNT; i++) cr_assert(rig.store->ops->get(rig.store, ids[i], i));
        rig.store->ops->kick(rig.store);
        for (uint32_t i = 0; i < round; i++) rig.store->ops->erasing(rig.store);
        for (uint32_t i = 0; i < COUNT; i++) rig.store->ops->drop(rig.store, ids[i], true);
        rig_settle(&rig);
        cr_assert_eq(rig.store->ops->erasing(rig.store), 0);
        for (uint32_t i = 0; i < COUNT; i++) cr_assert(!memory_has_any(&rig, 1000 + i));
    }
    rig_deinit(&rig);
}

/* What makes room is copied through memory of the writer's. */
Test(offload_disk_wipe, what_was_carried_along_is_in_no_scratch) {
    disk_rig rig;
    rig_init(&rig, 4 * MIB);
    rig_open(&rig);
    qr_record_id record = rig_put_keyed(&rig, 1000, QR_RECORD_NONE, 1, secret);
    rig_settle(&rig);
    for (uint32_t i = 0; rig_stats(&rig).carried_total == 0; i++) {
        rig.store->ops->touch(rig.store, record);
        rig_put(&rig, i % 900, QR_RECORD_NONE, 1);
        rig_settle(&rig);
    }
    cr_assert_eq(rig_get(&rig, record), QUIRE_OK);
    erase(&rig, record);
    cr_assert(!memory_has_any(&rig, 1000));
    rig_deinit(&rig);
}

Test(offload_disk_wipe, what_an_index_has_read_is_in_no_scratch) {
    for (int open_segment = 0; open_segment < 2; open_segment++) {
        disk_rig rig;
        rig_init(&rig, 8 * MIB);
        rig_open(&rig);
        rig_put_keyed(&rig, 1000, QR_RECORD_NONE, 1, secret);
        for (uint32_t i = 0; !open_segment && i < 200; i++) rig_put(&rig, i, QR_RECORD_NONE, 1);
        rig_settle(&rig);
        rig_close(&rig);
        rig_open(&rig);
        if (!open_segment) cr_assert(!memory_has_tokens(&rig, 1000)); /* told, and kept nowhere */
        erase(&rig, rig.found_ids[1000]);
        cr_assert(!memory_has_any(&rig, 1000));
        rig_deinit(&rig);
    }
}

/* Its segment is cleaned for another one's sake first, and then goes as a whole. */
Test(offload_disk_wipe, a_footer_that_was_cleaned_is_in_no_scratch) {
    disk_rig rig;
    qr_record_id ids[100];
    uint32_t count = 0;
    rig_init(&rig, 2 * MIB);
    rig_open(&rig);
    for (; count < 2 || rig_segment_count(&rig) < 2; count++) {
        ids[count] = rig_put_keyed(&rig, count ? count : 1000, QR_RECORD_NONE, 1, count ? "key" : secret);
        rig_settle(&rig);
    }
    erase(&rig, ids[1]);
    for (uint32_t i = 2; i < count; i++) rig.store->ops->drop(rig.store, ids[i], false);
    erase(&rig, ids[0]);
    cr_assert(!memory_has_any(&rig, 1000));
    rig_deinit(&rig);
}

Test(offload_disk_wipe, the_key_that_was_to_be_forgotten_is_forgotten) {
    disk_rig rig;
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    for (int i = 0; i < 3; i++) rig.store->ops->erase_foreign(rig.store, secret, sizeof secret - 1);
    rig.store->ops->erase_foreign(rig.store, "another", 7);
    rig_settle(&rig);
    cr_assert(!memory_has(&rig, secret, sizeof secret - 1) && !memory_has(&rig, "another", 7));
    rig_deinit(&rig);
}
