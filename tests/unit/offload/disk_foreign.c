/* Forgetting reaches what other models left in the folder: bytes, token ids and keys are in no file any more. */
#include "tests/unit/offload/disk_rig.h"

#include <string.h>

#include "tests/support/faulty_files.h"

#define MIB (1ull << 20)
enum { COUNT = 60, SECRET = 7, SECRETS = COUNT / SECRET + 1 };

static bool is_secret(uint32_t i) { return i % SECRET == 0; }

/* One model's records in its own segments, some of them secret; killed: nothing is sealed or cleaned. The copy is opened. */
static void leave_records(disk_rig *rig, bool killed) {
    disk_rig writer;
    rig_init(&writer, 8 * MIB);
    rig_open(&writer);
    for (uint32_t i = 0; i < COUNT; i++)
        rig_put_keyed(&writer, 1000 + i, QR_RECORD_NONE, 1, is_secret(i) ? "secret-key" : "key");
    rig_settle(&writer);
    if (!killed) rig_close(&writer);
    rig_init(rig, 8 * MIB);
    rig_copy_folder(&writer, rig->path);
    rig_deinit(&writer);
}

static bool has_bytes(const disk_rig *rig, uint32_t owner) {
    static unsigned char payload[RIG_PAYLOAD];
    quire_token tokens[RIG_TOKENS] = {(quire_token)owner, 1, 2, 3};
    rig_fill_payload(payload, owner);
    return rig_folder_has(rig, payload + 512, 64) || rig_folder_has(rig, tokens, sizeof tokens);
}

static bool has_secrets(const disk_rig *rig) {
    bool any = rig_folder_has(rig, "secret-key", 10);
    for (uint32_t i = 0; i < COUNT; i += SECRET) any |= has_bytes(rig, 1000 + i);
    return any;
}

static void forget(disk_rig *rig, const char *key) { rig->store->ops->erase_foreign(rig->store, key, key ? strlen(key) : 0); }

/* What the first model finds again. */
static void check_left(disk_rig *rig, uint32_t count) {
    rig_close(rig);
    rig->config.fingerprint = (qr_fingerprint){1, 2, 3, 4};
    rig->config.cap_bytes = 8 * MIB;
    rig->config.payload_bytes = RIG_PAYLOAD;
    rig_open(rig);
    cr_assert_eq(rig->found_count, count);
    for (uint32_t i = 0; i < count; i++) {
        cr_assert(!is_secret(rig->found_owners[i] - 1000));
        cr_assert_eq(rig_get(rig, rig->found_ids[rig->found_owners[i]]), QUIRE_OK);
    }
    cr_assert_eq(rig_stats(rig).corrupt_total, 0);
}

static void check_namespace(bool killed, uint64_t cap_bytes, uint64_t payload_bytes) {
    disk_rig rig;
    leave_records(&rig, killed);
    rig.config.fingerprint.weights = 99;
    rig.config.cap_bytes = cap_bytes;
    rig.config.payload_bytes = payload_bytes;
    rig_open(&rig);
    cr_assert_eq(rig.found_count, 0);
    cr_assert_gt(rig_stats(&rig).foreign_segment_count, 0);
    cr_assert(has_secrets(&rig) && has_bytes(&rig, 1001));
    forget(&rig, "another-key");
    rig_settle(&rig);
    cr_assert(has_secrets(&rig));
    forget(&rig, "secret-key");
    rig_settle(&rig);
    cr_assert(!has_secrets(&rig));
    cr_assert(has_bytes(&rig, 1001));
    cr_assert_eq(rig_stats(&rig).erased_total, SECRETS);
    check_left(&rig, COUNT - SECRETS);
    cr_assert(!has_secrets(&rig));
    rig_deinit(&rig);
}

Test(offload_disk_foreign, a_namespace_goes_from_sealed_segments) { check_namespace(false, 8 * MIB, RIG_PAYLOAD); }
Test(offload_disk_foreign, a_namespace_goes_from_segments_without_a_footer) { check_namespace(true, 8 * MIB, RIG_PAYLOAD); }
Test(offload_disk_foreign, a_namespace_goes_from_segments_of_other_sizes) { check_namespace(false, 12 * MIB, 4096); }

static uint32_t foreign_left(disk_rig *rig) {
    rig_settle(rig);
    return rig_stats(rig).foreign_segment_count;
}

Test(offload_disk_foreign, everything_goes) {
    disk_rig rig;
    leave_records(&rig, false);
    rig.config.fingerprint.layout = 99;
    rig_open(&rig);
    forget(&rig, NULL);
    cr_assert_eq(foreign_left(&rig), 0);
    cr_assert(!has_secrets(&rig) && !has_bytes(&rig, 1001));
    cr_assert_eq(rig_segment_count(&rig), 0);
    rig_deinit(&rig);
}

/* More at a time than are remembered: then all of it goes, which is more than was asked for. */
Test(offload_disk_foreign, many_namespaces_at_a_time) {
    disk_rig rig;
    char key[16] = "no-such-key-a";
    leave_records(&rig, false);
    rig.config.fingerprint.numerics = 99;
    rig_open(&rig);
    for (int i = 0; i < 200; i++) {
        key[12] = (char)('a' + i % 20);
        forget(&rig, key);
    }
    forget(&rig, "secret-key");
    rig_settle(&rig);
    cr_assert(!has_secrets(&rig));
    cr_assert_eq(rig.store->ops->erasing(rig.store), 0);
    rig_deinit(&rig);
}

Test(offload_disk_foreign, it_is_not_done_before_the_disk_has_done_it) {
    static const char *const lists[] = {"eio_punch=1.0", "eio_sync=1.0", "eio_write=1.0"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        disk_rig rig;
        faults none = {0}, f;
        quire_error error;
        leave_records(&rig, false);
        cr_assert_eq(faults_parse(lists[i], &f, &error), QUIRE_OK);
        faulty_files *files = faulty_files_create(qr_files_system(), &none, false);
        rig.config.files = faulty_files_table(files);
        rig.config.fingerprint.adapter = 99;
        rig.config.retry_us_max = 2000;
        rig_open(&rig);
        faulty_files_set(files, &f);
        forget(&rig, "secret-key");
        faulty_counts counts = {0};
        while (counts.failures < 20) {
            cr_assert_geq(rig.store->ops->erasing(rig.store), 1, "%s", lists[i]);
            faulty_files_get_counts(files, &counts);
        }
        faulty_files_set(files, &none);
        rig_settle(&rig);
        cr_assert_eq(rig.store->ops->erasing(rig.store), 0);
        cr_assert(!has_secrets(&rig));
        check_left(&rig, COUNT - SECRETS);
        rig_deinit(&rig);
        faulty_files_destroy(files);
    }
}
