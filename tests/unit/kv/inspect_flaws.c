/* Records that prove themselves and are all the same not what they should be: written for another place, by another model, or
 * told of otherwise by the index of their segment. */
#include <quire/kv.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "offload/segment_file.h"

enum { SLOTS = 4, TOKENS = 16, PAYLOAD = 2 * QR_PAGE_BYTES, BAD = 1 };

static const qr_segment_shape shape = {SLOTS, TOKENS, PAYLOAD};
static const unsigned char salt[] = "salt", pepper[] = "pepper";

typedef void change(qr_record_header *record);

static qr_record_header record_of(const qr_segment_header *segment, uint32_t slot, const unsigned char *payload) {
    qr_record_header record = {.fingerprint = segment->fingerprint,
                               .serial = slot + 1,
                               .segment_id = segment->id,
                               .slot = slot,
                               .depth = 1,
                               .block_tokens = TOKENS,
                               .payload_bytes = PAYLOAD,
                               .payload_checksum = qr_record_checksum(payload, PAYLOAD),
                               .namespace_bytes = 4,
                               .namespace_key = salt};
    for (uint32_t i = 0; i < TOKENS; i++) record.tokens[i] = (quire_token)(slot * 100 + i);
    record.parent_digest = qr_record_root_digest(record.namespace_key, record.namespace_bytes);
    record.chain_digest = qr_record_chain_digest(record.parent_digest, record.tokens, TOKENS);
    return record;
}

/* Three records; one of them is changed on its way to its page (`written`), or to the index (`told`). */
static void write_segment(const char *folder, bool sealed, change *written, change *told) {
    char path[QR_SEGMENT_PATH_MAX];
    size_t size = qr_segment_file_bytes(&shape);
    unsigned char *bytes = calloc(1, size), *footer_bytes = calloc(1, qr_footer_bytes_max(&shape));
    qr_segment_header segment = {{11, 12, 13, 14}, 1, shape};
    qr_footer footer;
    qr_segment_header_encode(&segment, bytes);
    qr_footer_begin(&footer, footer_bytes, &segment);
    for (uint32_t slot = 0; slot < 3; slot++) {
        unsigned char *at = bytes + qr_segment_record_offset(&shape, slot);
        memset(at + QR_RECORD_HEADER_BYTES, (int)slot + 1, PAYLOAD);
        qr_record_header record = record_of(&segment, slot, at + QR_RECORD_HEADER_BYTES), entry = record;
        if (slot == BAD && written) written(&record);
        if (slot == BAD && told) told(&entry);
        qr_record_encode(&record, at);
        qr_footer_set(&footer, &entry);
    }
    if (sealed) memcpy(bytes + qr_segment_footer_offset(&shape), footer_bytes, qr_footer_finish(&footer));
    cr_assert(qr_segment_path(folder, 1, path));
    FILE *file = fopen(path, "wb");
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    fclose(file);
    free(bytes);
    free(footer_bytes);
}

static void keep_reason(void *context, quire_kv_store_flaw flaw, const char *file, uint64_t offset, const char *reason) {
    (void)flaw, (void)file;
    cr_assert_eq(offset, qr_segment_record_offset(&shape, BAD));
    snprintf(context, 256, "%s", reason);
}

/* One record is flawed for this reason (NULL: none is), whether or not payloads are read. */
static void expect_flaw(bool sealed, change *written, change *told, const char *reason) {
    char folder[] = "/tmp/quire-flaws-XXXXXX", found[256] = "", path[QR_SEGMENT_PATH_MAX];
    quire_kv_store_summary summary;
    quire_error error;
    const quire_kv_store_visitor visitor = {.context = found, .flaw = keep_reason};
    cr_assert_not_null(mkdtemp(folder));
    write_segment(folder, sealed, written, told);
    for (int payloads = 0; payloads < 2; payloads++) {
        cr_assert_eq(quire_kv_store_inspect(folder, payloads, &visitor, &summary, &error), QUIRE_OK, "%s", error.text);
        cr_assert(reason ? strstr(found, reason) != NULL : !*found, "'%s', not '%s'", found, reason);
        cr_assert_eq(summary.record_count, reason ? 2 : 3);
        cr_assert_eq(summary.damaged_count, reason && sealed);
        cr_assert_eq(summary.unfinished_count, reason && !sealed);
    }
    cr_assert(qr_segment_path(folder, 1, path));
    unlink(path);
    rmdir(folder);
}

/* ---- the record itself ---- */

static void of_another_segment(qr_record_header *r) { r->segment_id++; }
static void of_another_slot(qr_record_header *r) { r->slot++; }
static void of_another_model(qr_record_header *r) { r->fingerprint.weights++; }
static void of_another_size(qr_record_header *r) { r->payload_bytes += QR_PAGE_BYTES; }
static void of_fewer_tokens(qr_record_header *r) {
    r->block_tokens--;
    r->chain_digest = qr_record_chain_digest(r->parent_digest, r->tokens, r->block_tokens);
}
static void of_another_chain(qr_record_header *r) { r->chain_digest++; }
static void with_a_parent(qr_record_header *r) { r->parent_serial = 7; }
static void of_another_namespace(qr_record_header *r) {
    r->parent_digest++;
    r->chain_digest = qr_record_chain_digest(r->parent_digest, r->tokens, TOKENS);
}
static void deeper(qr_record_header *r) {
    r->depth = 2;
    r->parent_serial = 7;
    r->parent_digest++;
    r->chain_digest = qr_record_chain_digest(r->parent_digest, r->tokens, TOKENS);
}

Test(kv_inspect_flaws, a_record_that_is_another_ones) {
    const struct {
        change *by;
        const char *reason;
    } rows[] = {{of_another_segment, "another place"},
                {of_another_slot, "another place"},
                {of_another_model, "fingerprint"},
                {of_another_size, "another size"},
                {of_fewer_tokens, "another size"},
                {of_another_chain, "digest disagree"},
                {with_a_parent, "the first block of a"},
                {of_another_namespace, "the first block of a"},
                {deeper, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) expect_flaw(false, rows[i].by, NULL, rows[i].reason);
    expect_flaw(false, NULL, NULL, NULL);
    expect_flaw(true, NULL, NULL, NULL);
}

/* ---- what the index says of it ---- */

static void other_serial(qr_record_header *r) { r->serial = 99; }
static void other_parent(qr_record_header *r) { r->parent_serial = 99; }
static void other_checksum(qr_record_header *r) { r->payload_checksum++; }
static void other_chain(qr_record_header *r) { r->chain_digest++; }
static void other_depth(qr_record_header *r) { r->depth = 2; }
static void longer_key(qr_record_header *r) {
    r->namespace_key = pepper;
    r->namespace_bytes = 6;
}
static void other_key(qr_record_header *r) { r->namespace_key = pepper; }
static void no_key(qr_record_header *r) { r->namespace_bytes = 0; }
static void other_tokens(qr_record_header *r) { r->tokens[TOKENS - 1]++; }

Test(kv_inspect_flaws, an_index_that_says_something_else) {
    change *const changes[] = {other_serial, other_parent, other_checksum, other_chain, other_depth,
                               longer_key,   other_key,    no_key,         other_tokens};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        expect_flaw(true, NULL, changes[i], "index says something else");
}

/* A page of zeros where the index has a record is no free place. */
static void remove_page(const char *folder) {
    char path[QR_SEGMENT_PATH_MAX];
    static const unsigned char nothing[QR_RECORD_HEADER_BYTES];
    cr_assert(qr_segment_path(folder, 1, path));
    FILE *file = fopen(path, "r+b");
    fseek(file, (long)qr_segment_record_offset(&shape, BAD), SEEK_SET);
    cr_assert_eq(fwrite(nothing, 1, sizeof nothing, file), sizeof nothing);
    fclose(file);
}

Test(kv_inspect_flaws, a_record_of_the_index_that_is_not_there) {
    for (int sealed = 0; sealed < 2; sealed++) {
        char folder[] = "/tmp/quire-flaws-XXXXXX", found[256] = "", path[QR_SEGMENT_PATH_MAX];
        quire_kv_store_summary summary;
        quire_error error;
        const quire_kv_store_visitor visitor = {.context = found, .flaw = keep_reason};
        cr_assert_not_null(mkdtemp(folder));
        write_segment(folder, sealed, NULL, NULL);
        remove_page(folder);
        cr_assert_eq(quire_kv_store_inspect(folder, false, &visitor, &summary, &error), QUIRE_OK);
        cr_assert(summary.record_count == 2 && summary.damaged_count == (uint64_t)sealed && summary.unfinished_count == 0);
        cr_assert(qr_segment_path(folder, 1, path));
        unlink(path);
        rmdir(folder);
    }
}

/* Made, and nothing written yet. */
Test(kv_inspect_flaws, a_segment_without_a_header_is_unfinished) {
    char folder[] = "/tmp/quire-flaws-XXXXXX", path[QR_SEGMENT_PATH_MAX];
    quire_kv_store_summary summary;
    quire_error error;
    cr_assert_not_null(mkdtemp(folder));
    cr_assert(qr_segment_path(folder, 1, path));
    FILE *file = fopen(path, "wb");
    cr_assert_eq(ftruncate(fileno(file), (off_t)qr_segment_file_bytes(&shape)), 0);
    fclose(file);
    cr_assert_eq(quire_kv_store_inspect(folder, true, &(quire_kv_store_visitor){0}, &summary, &error), QUIRE_OK);
    cr_assert(summary.segment_count == 1 && summary.unfinished_count == 1 && summary.damaged_count == 0);
    unlink(path);
    rmdir(folder);
}

/* A folder that was emptied can be had at once. */
Test(kv_inspect_flaws, an_emptied_folder_is_given_back) {
    char folder[] = "/tmp/quire-flaws-XXXXXX", lock[64];
    quire_error error;
    uint32_t segments;
    uint64_t bytes;
    cr_assert_not_null(mkdtemp(folder));
    write_segment(folder, true, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(quire_kv_store_clear(folder, &segments, &bytes, &error), QUIRE_OK, "%s", error.text);
        cr_assert(segments == (i == 0) && (bytes > 0) == (i == 0));
    }
    snprintf(lock, sizeof lock, "%s/lock", folder);
    unlink(lock);
    rmdir(folder);
}
