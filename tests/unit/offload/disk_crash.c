/* What survives: a copy of the folder, taken while the store works, is what kill -9 would leave. */
#include "tests/unit/offload/disk_rig.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)

/* Opens the copy as a rig of its own. */
static void open_copy(const disk_rig *rig, disk_rig *copy) {
    rig_init(copy, rig->config.cap_bytes);
    rig_copy_folder(rig, copy->path);
    rig_open(copy);
}

Test(offload_disk_crash, published_records_survive_a_kill) {
    disk_rig rig, copy;
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    qr_record_id parent = QR_RECORD_NONE;
    for (uint32_t i = 0; i < 700; i++) {
        parent = rig_put(&rig, i, i % 5 ? parent : QR_RECORD_NONE, i % 5 + 1);
        if (i % 233) continue;
        rig_settle(&rig);
        open_copy(&rig, &copy);
        cr_assert_eq(copy.found_count, i + 1);
        cr_assert_eq(rig_get(&copy, copy.found_ids[i]), QUIRE_OK);
        cr_assert_eq(rig_stats(&copy).corrupt_total, 0);
        rig_deinit(&copy);
    }
    rig_deinit(&rig);
}

Test(offload_disk_crash, what_was_half_written_is_never_counted) {
    disk_rig rig, copy;
    char path[2 * RIG_PATH_MAX];
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    for (uint32_t i = 0; i < 6; i++) rig_put(&rig, i, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    for (uint64_t cut = 0; cut < 4096 + RIG_PAYLOAD; cut += 1531) { /* record 5 was written up to here */
        static unsigned char zeros[4096 + RIG_PAYLOAD];
        rig_init(&copy, rig.config.cap_bytes);
        rig_copy_folder(&rig, copy.path);
        cr_assert(rig_segment_path(&copy, 0, path));
        int fd = open(path, O_WRONLY);
        uint64_t begin = 4096 + 5 * (4096 + RIG_PAYLOAD) + cut;
        cr_assert_eq(pwrite(fd, zeros, 4096 + RIG_PAYLOAD - cut, (off_t)begin), (ssize_t)(4096 + RIG_PAYLOAD - cut));
        close(fd);
        rig_open(&copy);
        cr_assert_eq(copy.found_count, 5);
        rig_put(&copy, 77, QR_RECORD_NONE, 1);
        rig_settle(&copy);
        rig_close(&copy);
        rig_open(&copy);
        cr_assert_eq(copy.found_count, 6);
        rig_deinit(&copy);
    }
    rig_deinit(&rig);
}

Test(offload_disk_crash, a_kill_while_records_are_carried_counts_each_once) {
    disk_rig rig, copy;
    rig_init(&rig, 2 * MIB);
    rig_open(&rig);
    qr_record_id loved[8];
    for (uint32_t i = 0; i < 8; i++) loved[i] = rig_put(&rig, i, QR_RECORD_NONE, 1);
    rig_settle(&rig);
    for (uint32_t i = 8; i < 1500; i++) {
        if (i % 4 == 0)
            for (uint32_t l = 0; l < 8; l++) rig.store->ops->touch(rig.store, loved[l]);
        rig_put(&rig, i, QR_RECORD_NONE, 1);
        if (i % 60) continue;
        rig_init(&copy, rig.config.cap_bytes);
        rig_copy_folder(&rig, copy.path); /* while it writes */
        rig_open(&copy);
        bool seen[RIG_RECORDS_MAX] = {false};
        for (uint32_t n = 0; n < copy.found_count; n++) {
            cr_assert(!seen[copy.found_owners[n]]);
            seen[copy.found_owners[n]] = true;
        }
        rig_deinit(&copy);
    }
    rig_settle(&rig);
    for (uint32_t i = 0; i < 8; i++) cr_assert_eq(rig_get(&rig, loved[i]), QUIRE_OK);
    rig_deinit(&rig);
}

Test(offload_disk_crash, a_sealed_folder_is_read_from_its_indexes) {
    disk_rig rig, copy;
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    for (uint32_t i = 0; i < 1000; i++) rig_put(&rig, i, QR_RECORD_NONE, 1);
    cr_assert_eq(rig_seal(&rig), QUIRE_OK);
    open_copy(&rig, &copy);
    qr_store_stats stats = rig_stats(&copy);
    cr_assert_eq(copy.found_count, 1000);
    cr_assert_eq(stats.index_records_total, 1000);
    cr_assert_leq(stats.index_reads_total, 3 * rig_segment_count(&copy));
    cr_assert_leq(stats.index_bytes_total, 1000 * 200 + 3 * 4096 * rig_segment_count(&copy));
    rig_deinit(&copy);
    rig_put(&rig, 1001, QR_RECORD_NONE, 1); /* the index is gone by now, and nothing is lost by it */
    rig_settle(&rig);
    open_copy(&rig, &copy);
    cr_assert_eq(copy.found_count, 1001);
    rig_deinit(&copy);
    rig_deinit(&rig);
}

Test(offload_disk_crash, orphans_are_dropped_and_counted) {
    disk_rig rig;
    char path[2 * RIG_PATH_MAX];
    rig_init(&rig, 32 * MIB);
    rig_open(&rig);
    qr_record_id parent = QR_RECORD_NONE;
    for (uint32_t i = 0; i < 500; i++) parent = rig_put(&rig, i, parent, i + 1);
    rig_settle(&rig);
    rig_close(&rig);
    cr_assert(rig_segment_path(&rig, 0, path));
    cr_assert_eq(unlink(path), 0);
    rig_open(&rig);
    cr_assert_eq(rig.found_count, 0);
    cr_assert_gt(rig_stats(&rig).index_orphans_total, 0);
    rig_deinit(&rig);
}

Test(offload_disk_crash, partly_filled_segments_are_filled_on) {
    disk_rig rig;
    rig_init(&rig, 32 * MIB);
    for (uint32_t i = 0; i < 20; i++) {
        rig_open(&rig);
        cr_assert_eq(rig.found_count, i);
        rig_put(&rig, i, QR_RECORD_NONE, 1);
        rig_settle(&rig);
        rig_close(&rig);
    }
    cr_assert_eq(rig_segment_count(&rig), 1);
    rig_deinit(&rig);
}

/* A process of its own has the folder: kill -9 at an instant that it does not choose. */
Test(offload_disk_crash, kill_9_at_any_moment, .timeout = 60) {
    disk_rig rig;
    uint32_t told_count = 0;
    rig_init(&rig, 4 * MIB);
    for (uint32_t round = 0; round < 20; round++) {
        int told[2];
        cr_assert_eq(pipe(told), 0);
        pid_t child = fork();
        cr_assert_geq(child, 0);
        if (child == 0) {
            quire_error error;
            if (qr_disk_open(&rig.config, &rig.store, &error) != QUIRE_OK) _exit(1);
            for (uint32_t i = 0;; i++) {
                quire_token tokens[RIG_TOKENS] = {(quire_token)(i % RIG_RECORDS_MAX), 1, 2, 3};
                uint32_t key[2] = {round, i / RIG_RECORDS_MAX}; /* no chain twice: only the newest of it would count */
                qr_record_info info = {key, sizeof key, QR_RECORD_NONE, 1, tokens};
                qr_record_id record;
                void *payload;
                qr_store_event event;
                if (rig.store->ops->put_begin(rig.store, &info, i, &record, &payload) == QR_STORE_NONE) {
                    rig_fill_payload(payload, i % RIG_RECORDS_MAX);
                    rig.store->ops->put_submit(rig.store, record);
                }
                while (rig.store->ops->poll(rig.store, 0, &event))
                    if (event.kind == QR_STORE_PUT_DONE && (event.status != QUIRE_OK || write(told[1], "x", 1) != 1)) _exit(1);
            }
        }
        char byte;
        close(told[1]);
        for (uint32_t i = 0; i < 5 + round * 13; i++, told_count++) cr_assert_eq(read(told[0], &byte, 1), 1);
        cr_assert_eq(kill(child, SIGKILL), 0);
        cr_assert_eq(waitpid(child, NULL, 0), child);
        close(told[0]);
        rig_open(&rig);
        cr_assert_geq(rig.found_count, told_count < 150 ? told_count : 150,
                      "round %u told %u found %u corrupt %llu io %llu lost %llu seg %u", round, told_count, rig.found_count,
                      (unsigned long long)rig_stats(&rig).corrupt_total, (unsigned long long)rig_stats(&rig).io_error_total,
                      (unsigned long long)rig_stats(&rig).index_orphans_total,
                      rig_segment_count(&rig)); /* the cap leaves so many at least */
        cr_assert_leq(rig_disk_bytes(&rig), 4 * MIB);
        for (uint32_t i = 0; i < rig.found_count; i += 17)
            cr_assert_eq(rig_get(&rig, rig.found_ids[rig.found_owners[i]]), QUIRE_OK);
        rig_close(&rig);
    }
    rig_deinit(&rig);
}
