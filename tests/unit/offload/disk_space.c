/* R10 at the level of the store: the cap and the floor hold, space is made by segments, and a full disk costs nobody anything.
 */
#include "tests/unit/offload/disk_rig.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/disk_sizes.h"
#include "tests/support/faulty_files.h"

#define MIB (1ull << 20)
enum { CHAIN = 4 };

/* `count` records in chains of CHAIN, as owners first, first + 1, ...; lost parents end a chain early. */
static void put_many(disk_rig *rig, uint32_t first, uint32_t count) {
    qr_record_id record = QR_RECORD_NONE;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = i % CHAIN;
        record = rig_put(rig, (first + i) % RIG_RECORDS_MAX, place ? record : QR_RECORD_NONE, place + 1);
        cr_assert_leq(rig_stats(rig).used_bytes, rig->config.cap_bytes);
    }
    rig_settle(rig);
}

Test(offload_disk_space, a_cap_below_the_least_is_refused_with_both_numbers) {
    disk_rig rig;
    uint64_t least = qr_disk_cap_min_bytes(RIG_PAYLOAD, RIG_TOKENS);
    char number[32];
    rig_init(&rig, least - 1);
    snprintf(number, sizeof number, "%llu", (unsigned long long)least);
    rig_fail_open(&rig, QUIRE_INVALID, number);
    snprintf(number, sizeof number, "%llu", (unsigned long long)least - 1);
    rig_fail_open(&rig, QUIRE_INVALID, number);
    rig.config.cap_bytes = least;
    rig_open(&rig);
    put_many(&rig, 0, 60);
    cr_assert_leq(rig_disk_bytes(&rig), least);
    cr_assert_geq(rig_stats(&rig).record_count, 1);
    rig_deinit(&rig);
}

Test(offload_disk_space, real_use_stays_within_the_cap_through_three_restarts) {
    disk_rig rig;
    rig_init(&rig, 32 * MIB);
    uint32_t all = qr_disk_record_max(32 * MIB, RIG_PAYLOAD, RIG_TOKENS);
    for (uint32_t run = 0; run < 4; run++) {
        rig_open(&rig);
        if (run) cr_assert_geq(rig.found_count, all / 2);
        put_many(&rig, run * 1000, all);
        cr_assert_leq(rig_disk_bytes(&rig), 32 * MIB);
        cr_assert(rig_stats(&rig).space_short);
        cr_assert_gt(rig.lost_count, 0);
        rig_close(&rig);
        cr_assert_leq(rig_disk_bytes(&rig), 32 * MIB);
    }
    rig_deinit(&rig);
}

Test(offload_disk_space, a_smaller_cap_at_the_next_start_is_kept_at_once) {
    disk_rig rig;
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    put_many(&rig, 0, 2000);
    rig_close(&rig);
    rig.config.cap_bytes = 12 * MIB;
    rig_open(&rig);
    cr_assert_leq(rig_disk_bytes(&rig), 12 * MIB);
    cr_assert_gt(rig.found_count, 0);
    put_many(&rig, 2000, 1000);
    cr_assert_leq(rig_disk_bytes(&rig), 12 * MIB);
    rig_close(&rig);
    rig.config.cap_bytes = 64 * MIB;
    rig_open(&rig);
    put_many(&rig, 0, 1000);
    cr_assert_eq(rig_stats(&rig).cap_bytes, 64 * MIB);
    rig_deinit(&rig);
}

Test(offload_disk_space, what_was_touched_or_has_children_elsewhere_is_carried) {
    disk_rig rig;
    rig_init(&rig, 4 * MIB);
    rig_open(&rig);
    qr_record_id root = rig_put(&rig, 0, QR_RECORD_NONE, 1), loved = rig_put(&rig, 1, QR_RECORD_NONE, 1);
    rig_put(&rig, 2, QR_RECORD_NONE, 1); /* nobody wants this one */
    rig_settle(&rig);
    put_many(&rig, 100, 100);
    qr_record_id child = rig_put(&rig, 3, root, 2);
    for (uint32_t i = 0; i < 12; i++) {
        rig.store->ops->touch(rig.store, loved);
        rig.store->ops->touch(rig.store, child);
        put_many(&rig, 200 + 100 * i, 100);
    }
    cr_assert(rig.lost[2]);
    cr_assert(!rig.lost[0] && !rig.lost[1] && !rig.lost[3]);
    cr_assert_gt(rig_stats(&rig).carried_total, 2);
    cr_assert_eq(rig_get(&rig, root), QUIRE_OK);
    cr_assert_eq(rig_get(&rig, loved), QUIRE_OK);
    cr_assert_eq(rig_get(&rig, child), QUIRE_OK);
    rig_close(&rig);
    rig_open(&rig);
    cr_assert_eq(rig.found_parents[3], 0);
    cr_assert_eq(rig_get(&rig, rig.found_ids[1]), QUIRE_OK);
    rig_deinit(&rig);
}

Test(offload_disk_space, segments_of_another_fingerprint_go_first) {
    disk_rig rig;
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    put_many(&rig, 0, 200);
    rig_close(&rig);
    rig.config.fingerprint.weights = 99;
    rig_open(&rig);
    cr_assert_eq(rig.found_count, 0);
    cr_assert_eq(rig.foreign_count, 200);
    uint32_t foreign = rig_stats(&rig).foreign_segment_count;
    cr_assert_gt(foreign, 0);
    rig_put(&rig, 7, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    rig_close(&rig);
    rig.config.fingerprint.weights = 1;
    rig_open(&rig); /* the first model has all of its records still */
    cr_assert_eq(rig.found_count, 200);
    rig_close(&rig);
    rig.config.fingerprint.weights = 99;
    rig_open(&rig);
    cr_assert_eq(rig.found_count, 1);
    for (uint32_t i = 0; rig_stats(&rig).foreign_segment_count; i++) {
        cr_assert_eq(rig.lost_count, 0);
        put_many(&rig, 100 + i, 1);
    }
    rig_deinit(&rig);
}

Test(offload_disk_space, a_full_disk_refuses_leaves_nothing_behind_and_is_tried_again) {
    disk_rig rig;
    faults f = {0};
    rig_init(&rig, 100 * MIB);
    faulty_files *files = faulty_files_create(qr_files_system(), &f, false);
    rig.config.files = faulty_files_table(files);
    rig_open(&rig);
    f.nospace_bytes = 1 * MIB; /* less than a segment */
    faulty_files_set(files, &f);
    qr_record_id record;
    uint32_t refused = 0;
    for (uint32_t i = 0; i < 50; i++) {
        qr_store_refusal refusal = rig_try_put(&rig, i, QR_RECORD_NONE, 1, &record);
        cr_assert(refusal == QR_STORE_NONE || refusal == QR_STORE_NO_SPACE || refusal == QR_STORE_BUSY);
        refused += refusal == QR_STORE_NO_SPACE;
        rig_settle(&rig);
    }
    cr_assert_gt(refused, 0);
    cr_assert_eq(rig.put_ok, 0);
    cr_assert_eq(rig.last_put, QUIRE_NO_SPACE);
    cr_assert_eq(rig_segment_count(&rig), 0);
    cr_assert(rig_stats(&rig).space_short);
    f.nospace_bytes = 0;
    faulty_files_set(files, &f);
    while (rig_try_put(&rig, 60, QR_RECORD_NONE, 1, &record) != QR_STORE_NONE) sched_yield();
    rig_settle(&rig);
    cr_assert_eq(rig.last_put, QUIRE_OK);
    cr_assert_eq(rig_get(&rig, record), QUIRE_OK);
    rig_deinit(&rig);
    faulty_files_destroy(files);
}

Test(offload_disk_space, below_the_floor_nothing_is_begun) {
    disk_rig rig;
    qr_record_id record;
    rig_init(&rig, 8 * MIB);
    rig.config.free_floor_bytes = UINT64_MAX / 4;
    rig_open(&rig);
    cr_assert_eq(rig_try_put(&rig, 1, QR_RECORD_NONE, 1, &record), QR_STORE_NONE);
    rig_settle(&rig);
    cr_assert_eq(rig.last_put, QUIRE_NO_SPACE);
    cr_assert_eq(rig_try_put(&rig, 2, QR_RECORD_NONE, 1, &record), QR_STORE_NO_SPACE);
    cr_assert_eq(rig_segment_count(&rig), 0);
    rig_deinit(&rig);
}

Test(offload_disk_space, below_the_floor_the_oldest_makes_room_for_the_newest) {
    disk_rig rig;
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    put_many(&rig, 0, 200);
    rig_close(&rig);
    uint32_t segments = rig_segment_count(&rig);
    cr_assert_gt(segments, 1);
    rig.config.free_floor_bytes = UINT64_MAX / 4;
    rig_open(&rig);
    cr_assert_eq(rig.found_count, 200);
    uint64_t used = rig_stats(&rig).used_bytes;
    for (uint32_t i = 0; i < 800; i += 100) {
        put_many(&rig, 1000 + i, 100);
        cr_assert_leq(rig_stats(&rig).used_bytes, used);
        cr_assert_eq(rig_segment_count(&rig), segments);
        cr_assert(rig_stats(&rig).space_short);
    }
    cr_assert_eq(rig.put_failed, 0);
    cr_assert(rig.lost[0] && rig.lost[199] && !rig.lost[1799]);
    rig_deinit(&rig);
}

/* What was given back below the floor is gone: somebody else has taken it. */
Test(offload_disk_space, a_full_disk_costs_one_segment_and_no_more) {
    disk_rig rig;
    faults f = {0};
    qr_record_id record;
    rig_init(&rig, 8 * MIB);
    faulty_files *files = faulty_files_create(qr_files_system(), &f, false);
    rig.config.files = faulty_files_table(files);
    rig.config.retry_us_max = 1;
    rig_open(&rig);
    put_many(&rig, 0, 250);
    rig_close(&rig);
    uint32_t segments = rig_segment_count(&rig);
    rig.config.free_floor_bytes = UINT64_MAX / 4;
    rig_open(&rig);
    f.full = true;
    faulty_files_set(files, &f);
    for (uint32_t i = 0; i < 300; i++) {
        (void)rig_try_put(&rig, 1000 + i, QR_RECORD_NONE, 1, &record);
        rig_settle(&rig);
    }
    cr_assert_gt(rig.put_failed, 20);
    cr_assert_geq(rig_segment_count(&rig), segments - 1);
    rig_deinit(&rig);
    faulty_files_destroy(files);
}

Test(offload_disk_space, what_is_erased_from_slots_that_will_be_used_yet_keeps_its_space) {
    disk_rig rig;
    rig_init(&rig, 8 * MIB);
    rig_open(&rig);
    for (uint32_t i = 0; i < 4; i++) rig_put(&rig, i, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    rig_close(&rig);
    uint64_t bytes = rig_disk_bytes(&rig);
    rig_open(&rig);
    rig.store->ops->drop(rig.store, rig.found_ids[3], true); /* the slots behind it are cleaned too */
    rig_settle(&rig);
    cr_assert_geq(rig_disk_bytes(&rig) + 4096 + RIG_PAYLOAD, bytes);
    rig_put(&rig, 5, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    cr_assert_eq(rig.last_put, QUIRE_OK);
    rig_deinit(&rig);
}

Test(offload_disk_space, the_days_budget_is_kept_across_restarts) {
    disk_rig rig;
    qr_record_id record;
    rig_init(&rig, 32 * MIB);
    rig.config.day_budget_bytes = 1 * MIB;
    uint32_t written = 0;
    for (int run = 0; run < 3; run++) {
        rig_open(&rig);
        qr_store_refusal refusal;
        do {
            refusal = rig_try_put(&rig, written, QR_RECORD_NONE, 1, &record);
            written += refusal == QR_STORE_NONE;
            rig_settle(&rig);
        } while (refusal == QR_STORE_NONE && (run || written < 20));
        if (run) cr_assert_eq(refusal, QR_STORE_BUDGET);
        qr_store_stats stats = rig_stats(&rig);
        cr_assert_eq(stats.budget_bytes, MIB);
        if (run == 2) cr_assert(stats.space_short);
        rig_close(&rig);
    }
    cr_assert_leq(written, MIB / (4096 + RIG_PAYLOAD));
    cr_assert_geq(written, MIB / (4096 + RIG_PAYLOAD) * 3 / 4);
    rig_deinit(&rig);
}

Test(offload_disk_space, memory_is_what_was_said) {
    disk_rig rig;
    rig_init(&rig, 32 * MIB);
    uint64_t said = qr_disk_memory_bytes(&rig.config);
    cr_assert_gt(said, 1000000);
    rig.config.write_buffers = 32;
    rig.config.read_buffers = 32;
    cr_assert_geq(qr_disk_memory_bytes(&rig.config), said);
    rig.config.cap_bytes = 1;
    cr_assert_eq(qr_disk_memory_bytes(&rig.config), 0);
    rig_deinit(&rig);
}

Test(offload_disk_space, files_that_cannot_be_removed_or_opened_count) {
    disk_rig rig;
    faults none = {0}, f = {.eio_remove = {.rate = 1}};
    quire_error error;
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    put_many(&rig, 0, 2000);
    rig_close(&rig);
    uint64_t bytes = rig_disk_bytes(&rig);
    faulty_files *files = faulty_files_create(qr_files_system(), &f, false);
    rig.config.files = faulty_files_table(files);
    rig.config.retry_us_max = 1000;
    rig.config.cap_bytes = 12 * MIB;
    cr_assert_eq(qr_disk_open(&rig.config, &rig.store, &error), QUIRE_OK);
    cr_assert_geq(rig_stats(&rig).used_bytes + 8 * 4096, bytes); /* the truth, though it is more than the cap */
    faulty_files_set(files, &none);
    while (rig_stats(&rig).used_bytes > rig.config.cap_bytes) sched_yield();
    cr_assert_leq(rig_disk_bytes(&rig), 12 * MIB);
    rig_close(&rig);
    f = (faults){.eio_open = {.rate = 1}};
    faulty_files_set(files, &f);
    uint32_t segments = rig_segment_count(&rig);
    cr_assert_eq(qr_disk_open(&rig.config, &rig.store, &error), QUIRE_OK);
    cr_assert_eq(rig_stats(&rig).foreign_segment_count, segments);
    faulty_files_set(files, &none);
    rig_deinit(&rig);
    faulty_files_destroy(files);
}
