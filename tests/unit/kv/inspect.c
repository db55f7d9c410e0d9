#include <quire/kv.h>

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/segment_file.h"

enum { SLOTS = 4, TOKENS = 16, PAYLOAD = 2 * QR_PAGE_BYTES };

static const qr_segment_shape shape = {SLOTS, TOKENS, PAYLOAD};

typedef struct seen {
    uint32_t segments, sealed, records, damaged, unfinished;
    uint64_t offset; /* of the last flaw */
    char reason[256], file[128];
    size_t key_bytes;
} seen;

static void on_segment(void *context, const quire_kv_store_segment *segment) {
    seen *s = context;
    s->segments++;
    s->sealed += segment->sealed;
    cr_assert_eq(segment->slot_count, SLOTS);
    cr_assert_eq(segment->weights_fingerprint, 11);
}

static void on_record(void *context, const quire_kv_store_record *record) {
    seen *s = context;
    s->records++;
    s->key_bytes += record->namespace_bytes;
    cr_assert_eq(record->block_tokens, TOKENS);
    cr_assert_eq(record->record_bytes, QR_RECORD_HEADER_BYTES + PAYLOAD);
}

static void on_flaw(void *context, quire_kv_store_flaw flaw, const char *file, uint64_t offset, const char *reason) {
    seen *s = context;
    if (flaw == QUIRE_KV_FLAW_DAMAGED) s->damaged++;
    else s->unfinished++;
    s->offset = offset;
    snprintf(s->reason, sizeof s->reason, "%s", reason);
    snprintf(s->file, sizeof s->file, "%s", file);
}

static seen look(const char *folder, bool payloads, quire_kv_store_summary *summary) {
    seen s = {0};
    quire_error error;
    const quire_kv_store_visitor visitor = {&s, on_segment, on_record, on_flaw};
    cr_assert_eq(quire_kv_store_inspect(folder, payloads, &visitor, summary, &error), QUIRE_OK, "%s", error.text);
    cr_assert(summary->record_count == s.records && summary->damaged_count == s.damaged);
    cr_assert_eq(summary->unfinished_count, s.unfinished);
    return s;
}

/* ---- files as a store writes them ---- */

static uint64_t record_at(uint32_t slot) { return qr_segment_record_offset(&shape, slot); }

static void fill_record(const qr_segment_header *segment, uint32_t slot, unsigned char *at, qr_record_header *record) {
    static const unsigned char key[] = "salt";
    memset(at + QR_RECORD_HEADER_BYTES, (int)slot + 1, PAYLOAD);
    *record = (qr_record_header){.fingerprint = segment->fingerprint,
                                 .serial = segment->id * 100 + slot + 1,
                                 .segment_id = segment->id,
                                 .slot = slot,
                                 .depth = 1,
                                 .block_tokens = TOKENS,
                                 .payload_bytes = PAYLOAD,
                                 .payload_checksum = qr_record_checksum(at + QR_RECORD_HEADER_BYTES, PAYLOAD),
                                 .namespace_bytes = slot == 2 ? 4 : 0,
                                 .namespace_key = key};
    for (uint32_t i = 0; i < TOKENS; i++) record->tokens[i] = (quire_token)(slot * 100 + i);
    record->parent_digest = qr_record_root_digest(record->namespace_key, record->namespace_bytes);
    record->chain_digest = qr_record_chain_digest(record->parent_digest, record->tokens, TOKENS);
    qr_record_encode(record, at);
}

/* Three records of four slots. */
static void write_segment(const char *folder, uint64_t id, bool sealed) {
    char path[QR_SEGMENT_PATH_MAX];
    size_t size = qr_segment_file_bytes(&shape);
    unsigned char *bytes = calloc(1, size), *footer_bytes = calloc(1, qr_footer_bytes_max(&shape));
    qr_segment_header segment = {{11, 12, 13, 14}, id, shape};
    qr_footer footer;
    qr_segment_header_encode(&segment, bytes);
    qr_footer_begin(&footer, footer_bytes, &segment);
    for (uint32_t slot = 0; slot < 3; slot++) {
        qr_record_header record;
        fill_record(&segment, slot, bytes + record_at(slot), &record);
        qr_footer_set(&footer, &record);
    }
    if (sealed) memcpy(bytes + qr_segment_footer_offset(&shape), footer_bytes, qr_footer_finish(&footer));
    cr_assert(qr_segment_path(folder, id, path));
    FILE *file = fopen(path, "wb");
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    fclose(file);
    free(bytes);
    free(footer_bytes);
}

static void flip(const char *folder, uint64_t id, uint64_t offset) {
    char path[QR_SEGMENT_PATH_MAX];
    unsigned char byte;
    cr_assert(qr_segment_path(folder, id, path));
    int fd = open(path, O_RDWR);
    cr_assert_eq(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 0x10;
    cr_assert_eq(pwrite(fd, &byte, 1, (off_t)offset), 1);
    close(fd);
}

static void make_folder(char folder[]) {
    cr_assert_not_null(mkdtemp(folder));
    write_segment(folder, 1, true);
    write_segment(folder, 2, false);
}

static void remove_folder(const char *folder) {
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    cr_assert_eq(system(command), 0);
}

/* ---- tests ---- */

Test(kv_inspect, shows_every_record_of_sealed_and_open_segments) {
    char folder[] = "/tmp/quire-inspect-XXXXXX", other[128];
    quire_kv_store_summary summary;
    make_folder(folder);
    snprintf(other, sizeof other, "%s/segment-notes.txt", folder);
    fclose(fopen(other, "w"));
    for (int payloads = 0; payloads < 2; payloads++) {
        seen s = look(folder, payloads, &summary);
        cr_assert(s.segments == 2 && s.sealed == 1 && s.records == 6 && s.damaged == 0 && s.unfinished == 0, "%s", s.reason);
        cr_assert_eq(s.key_bytes, 2 * 4, "one record of each has a key");
        cr_assert(summary.segment_count == 2 && summary.file_bytes == 2 * qr_segment_file_bytes(&shape) && !summary.in_use);
    }
    remove_folder(folder);
}

Test(kv_inspect, finds_a_flipped_bit_wherever_it_is) {
    const struct {
        uint64_t id, offset;
        uint32_t records, damaged, unfinished;
        bool in_payload;
    } rows[] = {
        {1, record_at(1) + QR_RECORD_HEADER_BYTES + 5000, 5, 1, 0, true}, /* payload */
        {1, record_at(0) + 60, 5, 1, 0, false},                           /* a header's serial */
        {1, record_at(2) + 130, 5, 1, 0, false},                          /* its tokens */
        {1, 30, 3, 1, 0, false},                                          /* the segment's header */
        {1, qr_segment_footer_offset(&shape) + 100, 6, 1, 0, false},      /* its index: records are found one by one */
        {2, record_at(2) + 60, 5, 0, 1, false},                           /* an open segment: a write that was cut off? */
        {2, record_at(1) + QR_RECORD_HEADER_BYTES, 5, 0, 1, true},
        {1, record_at(3) + 7, 6, 0, 0, false}, /* where no record is */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char folder[] = "/tmp/quire-inspect-XXXXXX";
        quire_kv_store_summary summary;
        make_folder(folder);
        flip(folder, rows[i].id, rows[i].offset);
        seen s = look(folder, true, &summary);
        cr_expect(s.records == rows[i].records && s.damaged == rows[i].damaged && s.unfinished == rows[i].unfinished,
                  "row %zu: %u %u %u %s", i, s.records, s.damaged, s.unfinished, s.reason);
        s = look(folder, false, &summary);
        cr_expect_eq(s.damaged + s.unfinished == 0, rows[i].in_payload || rows[i].damaged + rows[i].unfinished == 0,
                     "row %zu without payloads", i);
        remove_folder(folder);
    }
}

Test(kv_inspect, a_file_that_is_no_segment_is_damage) {
    char folder[] = "/tmp/quire-inspect-XXXXXX", path[QR_SEGMENT_PATH_MAX];
    quire_kv_store_summary summary;
    make_folder(folder);
    cr_assert(qr_segment_path(folder, 1, path));
    cr_assert_eq(truncate(path, (off_t)qr_segment_file_bytes(&shape) - 1), 0);
    seen s = look(folder, true, &summary);
    cr_expect(s.damaged == 1 && s.records == 3 && strstr(s.reason, "bytes"), "%s", s.reason);
    cr_assert_eq(truncate(path, 0), 0);
    s = look(folder, true, &summary);
    cr_expect(s.damaged == 1 && s.records == 3, "empty: %s", s.reason);
    unlink(path);
    cr_assert_eq(mkdir(path, 0700), 0);
    s = look(folder, true, &summary);
    cr_expect(s.damaged == 1 && s.records == 3 && strstr(s.reason, "regular"), "%s", s.reason);
    rmdir(path);
    cr_assert_eq(symlink("/dev/zero", path), 0);
    s = look(folder, true, &summary);
    cr_expect(s.damaged == 1 && s.records == 3, "a link is not followed");
    remove_folder(folder);
}

Test(kv_inspect, another_version_is_said_to_be_one) {
    char folder[] = "/tmp/quire-inspect-XXXXXX", path[QR_SEGMENT_PATH_MAX];
    unsigned char head[16];
    quire_kv_store_summary summary;
    make_folder(folder);
    cr_assert(qr_segment_path(folder, 2, path));
    int fd = open(path, O_RDWR);
    cr_assert_eq(pread(fd, head, sizeof head, 0), (ssize_t)sizeof head);
    head[8]++;
    uint32_t check = (uint32_t)qr_record_checksum(head, 12);
    memcpy(head + 12, &check, sizeof check);
    cr_assert_eq(pwrite(fd, head, sizeof head, 0), (ssize_t)sizeof head);
    close(fd);
    seen s = look(folder, true, &summary);
    cr_expect(s.damaged == 1 && strstr(s.reason, "version"), "%s", s.reason);
    remove_folder(folder);
}

Test(kv_inspect, says_who_has_the_folder_and_leaves_it_alone) {
    char folder[] = "/tmp/quire-inspect-XXXXXX", path[128];
    quire_kv_store_summary summary;
    quire_error error;
    uint32_t segments;
    uint64_t bytes;
    make_folder(folder);
    snprintf(path, sizeof path, "%s/lock", folder);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    cr_assert_eq(write(fd, "4711\n", 5), 5);
    close(fd);
    fd = open(folder, O_RDONLY | O_DIRECTORY);
    look(folder, false, &summary);
    cr_assert(!summary.in_use);
    cr_assert_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
    look(folder, false, &summary);
    cr_assert(summary.in_use && summary.owner == 4711);
    cr_assert_eq(quire_kv_store_clear(folder, &segments, &bytes, &error), QUIRE_BUSY);
    cr_assert(strstr(error.text, "4711"), "%s", error.text);
    close(fd);
    cr_assert_eq(quire_kv_store_clear(folder, &segments, &bytes, &error), QUIRE_OK);
    cr_assert(segments == 2 && bytes == 2 * qr_segment_file_bytes(&shape));
    look(folder, false, &summary);
    cr_assert_eq(summary.segment_count, 0);
    remove_folder(folder);
}

Test(kv_inspect, a_folder_that_is_not_there_is_an_error_and_stays_away) {
    quire_kv_store_summary summary;
    quire_error error;
    uint32_t segments;
    uint64_t bytes;
    const quire_kv_store_visitor visitor = {0};
    char folder[] = "/tmp/quire-kv-inspect-XXXXXX";
    cr_assert(mkdtemp(folder) && rmdir(folder) == 0);
    cr_assert_eq(quire_kv_store_inspect(folder, true, &visitor, &summary, &error), QUIRE_IO);
    cr_assert_eq(quire_kv_store_clear(folder, &segments, &bytes, &error), QUIRE_IO);
    cr_assert_lt(access(folder, F_OK), 0);
}

Test(kv_inspect, a_plan_says_what_a_cap_holds_and_what_is_too_small) {
    quire_kv_config config = {.block_tokens = 16,
                              .group_count = 1,
                              .groups = {{30, 3, 64, 64, QUIRE_KV_F16, QUIRE_KV_F16}},
                              .tiers = {.disk_path = "/tmp/kv", .disk_max_bytes = (uint64_t)1 << 30}};
    quire_kv_disk_plan plan;
    quire_kv_plan_disk(&config, &plan);
    uint64_t payload = quire_kv_block_bytes(&config.groups[0], 16);
    cr_assert(plan.record_bytes >= payload + 4096 && plan.record_bytes < payload + 3 * 4096);
    cr_assert(plan.block_max > 0 && plan.block_max * plan.record_bytes <= config.tiers.disk_max_bytes);
    config.tiers.disk_max_bytes = plan.cap_min_bytes - 1;
    quire_kv_plan_disk(&config, &plan);
    cr_assert_eq(plan.block_max, 0);
    config.tiers.disk_path = NULL;
    quire_kv_plan_disk(&config, &plan);
    cr_assert(plan.record_bytes == 0 && plan.cap_min_bytes == 0);
}
