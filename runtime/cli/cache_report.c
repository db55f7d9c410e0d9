/* cache_report.c - see cache_report.h. A report gathers what quire_kv_store_inspect shows, and is printed at the end; flaws are
 * printed as they are found, since reading a large folder takes a while. */
#include "runtime/cli/cache_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quire/kv.h>

#include "base/error.h"
#include "base/hash.h"
#include "runtime/cli/size_text.h"

enum { FILE_NAME_BYTES = 80 };

typedef struct segment_row {
    char file[FILE_NAME_BYTES];
    uint64_t file_bytes, weights, record_count;
    uint32_t slot_count;
    bool sealed;
} segment_row;

typedef struct namespace_row {
    uint64_t digest; /* of the key; 0 is the empty key */
    uint64_t record_count, token_count, record_bytes;
} namespace_row;

typedef struct report {
    bool json, failed; /* failed: no memory */
    segment_row *segments;
    namespace_row *namespaces;
    size_t segment_count, segment_capacity, namespace_count, namespace_capacity;
    json_t *flaws; /* json */
    quire_kv_store_summary summary;
} report;

/* ---- gathering ---- */

/* Room for one more of `size` bytes. NULL: no memory. */
static void *row_add(void *rows, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) return rows;
    void *grown = reallocarray(rows, *capacity ? *capacity * 2 : 16, size);
    if (grown) *capacity = *capacity ? *capacity * 2 : 16;
    return grown;
}

static void take_segment(void *context, const quire_kv_store_segment *segment) {
    report *r = context;
    segment_row *rows = row_add(r->segments, r->segment_count, &r->segment_capacity, sizeof *rows);
    if (!rows) {
        r->failed = true;
        return;
    }
    r->segments = rows;
    segment_row *row = &rows[r->segment_count++];
    *row = (segment_row){.file_bytes = segment->file_bytes,
                         .weights = segment->weights_fingerprint,
                         .slot_count = segment->slot_count,
                         .sealed = segment->sealed};
    qr_text_sanitize(row->file, sizeof row->file, segment->file, strlen(segment->file));
}

/* Rows are in the order of their digests. */
static size_t namespace_place(const report *r, uint64_t digest) {
    size_t low = 0, high = r->namespace_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->namespaces[middle].digest < digest) low = middle + 1;
        else high = middle;
    }
    return low;
}

static namespace_row *namespace_of(report *r, uint64_t digest) {
    size_t place = namespace_place(r, digest);
    if (place < r->namespace_count && r->namespaces[place].digest == digest) return &r->namespaces[place];
    namespace_row *rows = row_add(r->namespaces, r->namespace_count, &r->namespace_capacity, sizeof *rows);
    if (!rows) return NULL;
    r->namespaces = rows;
    memmove(&rows[place + 1], &rows[place], (r->namespace_count - place) * sizeof *rows);
    r->namespace_count++;
    rows[place] = (namespace_row){.digest = digest};
    return &rows[place];
}

static void take_record(void *context, const quire_kv_store_record *record) {
    report *r = context;
    uint64_t digest = record->namespace_bytes ? qr_checksum_bytes(record->namespace_key, record->namespace_bytes) : 0;
    namespace_row *row = namespace_of(r, digest);
    if (r->segment_count) r->segments[r->segment_count - 1].record_count++;
    if (!row) {
        r->failed = true;
        return;
    }
    row->record_count++;
    row->token_count += record->block_tokens;
    row->record_bytes += record->record_bytes;
}

static void take_flaw(void *context, quire_kv_store_flaw flaw, const char *file, uint64_t offset, const char *reason) {
    report *r = context;
    const char *kind = flaw == QUIRE_KV_FLAW_DAMAGED ? "damaged" : "unfinished";
    char name[FILE_NAME_BYTES];
    qr_text_sanitize(name, sizeof name, file, strlen(file));
    if (!r->json) printf("%s: %s: offset %" PRIu64 ": %s\n", kind, name, offset, reason);
    else if (json_array_append_new(r->flaws, json_pack("{s:s, s:s, s:I, s:s}", "kind", kind, "file", name, "offset",
                                                       (json_int_t)offset, "reason", reason)))
        r->failed = true;
}

static quire_status report_read(report *r, const char *folder, bool payloads, bool flaws, quire_error *error) {
    quire_kv_store_visitor visitor = {
        .context = r, .segment = take_segment, .record = take_record, .flaw = flaws ? take_flaw : NULL};
    r->flaws = json_array();
    quire_status status = quire_kv_store_inspect(folder, payloads, &visitor, &r->summary, error);
    if (status == QUIRE_OK && (r->failed || !r->flaws))
        return qr_fail(error, QUIRE_NO_MEMORY, folder, QR_NO_OFFSET, "no memory for the report");
    return status;
}

static void report_deinit(report *r) {
    free(r->segments);
    free(r->namespaces);
    json_decref(r->flaws);
}

/* ---- text ---- */

static void print_sums(const report *r, const char *folder) {
    char a[QR_SIZE_TEXT_BYTES], b[QR_SIZE_TEXT_BYTES];
    const quire_kv_store_summary *s = &r->summary;
    uint64_t slots = 0, bytes = 0;
    for (size_t i = 0; i < r->segment_count; i++) slots += r->segments[i].slot_count;
    for (size_t i = 0; i < r->namespace_count; i++) bytes += r->namespaces[i].record_bytes;
    printf("folder      %s", folder);
    if (s->in_use) printf(" (in use by process %" PRIu64 ")", s->owner);
    printf("\nsegments    %" PRIu32 " file%s, %s, room for %" PRIu64 " blocks\nblocks      %" PRIu64 ", %s\n", s->segment_count,
           s->segment_count == 1 ? "" : "s", qr_size_format(s->file_bytes, a), slots, s->record_count,
           qr_size_format(bytes, b));
    if (s->damaged_count) printf("damaged     %" PRIu64 " (quire cache verify says which)\n", s->damaged_count);
    if (s->unfinished_count) printf("unfinished  %" PRIu64 "\n", s->unfinished_count);
}

static void print_segments(const report *r) {
    char a[QR_SIZE_TEXT_BYTES];
    if (r->segment_count) printf("\n%-32s %10s %8s %8s  %-8s %s\n", "segment", "size", "blocks", "slots", "state", "weights");
    for (size_t i = 0; i < r->segment_count; i++) {
        const segment_row *row = &r->segments[i];
        printf("%-32s %10s %8" PRIu64 " %8" PRIu32 "  %-8s %016" PRIx64 "\n", row->file, qr_size_format(row->file_bytes, a),
               row->record_count, row->slot_count, row->sealed ? "sealed" : "open", row->weights);
    }
}

static void namespace_name(const namespace_row *row, char name[24]) {
    if (row->digest) snprintf(name, 24, "#%016" PRIx64, row->digest);
    else snprintf(name, 24, "(no salt)");
}

static void print_namespaces(const report *r) {
    char a[QR_SIZE_TEXT_BYTES], name[24];
    if (r->namespace_count) printf("\n%-32s %10s %8s %8s\n", "namespace", "size", "blocks", "tokens");
    for (size_t i = 0; i < r->namespace_count; i++) {
        const namespace_row *row = &r->namespaces[i];
        namespace_name(row, name);
        printf("%-32s %10s %8" PRIu64 " %8" PRIu64 "\n", name, qr_size_format(row->record_bytes, a), row->record_count,
               row->token_count);
    }
}

/* ---- JSON ---- */

static json_t *sums_json(const report *r, const char *folder) {
    const quire_kv_store_summary *s = &r->summary;
    json_t *owner = s->in_use ? json_integer((json_int_t)s->owner) : json_null();
    return json_pack("{s:s%, s:o, s:I, s:I, s:I, s:I, s:I}", "folder", folder, strlen(folder), "in_use_by", owner, "segments",
                     (json_int_t)s->segment_count, "file_bytes", (json_int_t)s->file_bytes, "blocks",
                     (json_int_t)s->record_count, "damaged", (json_int_t)s->damaged_count, "unfinished",
                     (json_int_t)s->unfinished_count);
}

static json_t *segments_json(const report *r) {
    json_t *list = json_array();
    for (size_t i = 0; i < r->segment_count; i++) {
        const segment_row *row = &r->segments[i];
        char weights[17];
        snprintf(weights, sizeof weights, "%016" PRIx64, row->weights);
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I, s:b, s:s}", "file", row->file, "file_bytes",
                                              (json_int_t)row->file_bytes, "blocks", (json_int_t)row->record_count, "slots",
                                              (json_int_t)row->slot_count, "sealed", (int)row->sealed, "weights", weights));
    }
    return list;
}

static json_t *namespaces_json(const report *r) {
    json_t *list = json_array();
    for (size_t i = 0; i < r->namespace_count; i++) {
        const namespace_row *row = &r->namespaces[i];
        char name[24];
        namespace_name(row, name);
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:I, s:I}", "namespace", name, "blocks", (json_int_t)row->record_count,
                                        "tokens", (json_int_t)row->token_count, "bytes", (json_int_t)row->record_bytes));
    }
    return list;
}

static quire_status print_json(json_t *object, quire_error *error) {
    bool ok = object && json_dumpf(object, stdout, JSON_INDENT(2)) == 0;
    if (ok) fputc('\n', stdout);
    json_decref(object);
    return ok ? QUIRE_OK : qr_fail(error, QUIRE_IO, NULL, QR_NO_OFFSET, "the report cannot be written");
}

/* ---- the three reports ---- */

quire_status qr_cache_report_list(const char *folder, bool json, quire_error *error) {
    report r = {.json = json};
    quire_status status = report_read(&r, folder, false, false, error);
    if (status == QUIRE_OK && json) {
        json_t *object = sums_json(&r, folder);
        json_object_set_new(object, "segment_files", segments_json(&r));
        json_object_set_new(object, "namespaces", namespaces_json(&r));
        status = print_json(object, error);
    } else if (status == QUIRE_OK) {
        print_sums(&r, folder);
        print_segments(&r);
        print_namespaces(&r);
    }
    report_deinit(&r);
    return status;
}

quire_status qr_cache_report_sums(const char *folder, bool json, quire_error *error) {
    report r = {.json = json};
    quire_status status = report_read(&r, folder, false, false, error);
    if (status == QUIRE_OK && json) status = print_json(sums_json(&r, folder), error);
    else if (status == QUIRE_OK) print_sums(&r, folder);
    report_deinit(&r);
    return status;
}

quire_status qr_cache_report_verify(const char *folder, bool json, uint64_t *damaged, quire_error *error) {
    report r = {.json = json};
    quire_status status = report_read(&r, folder, true, true, error);
    *damaged = r.summary.damaged_count;
    if (status == QUIRE_OK && json) {
        json_t *object = sums_json(&r, folder);
        json_object_set(object, "flaws", r.flaws);
        status = print_json(object, error);
    } else if (status == QUIRE_OK) {
        char a[QR_SIZE_TEXT_BYTES];
        printf("%" PRIu64 " blocks hold, %" PRIu64 " are damaged, %" PRIu64 " unfinished; %s in %" PRIu32 " file%s\n",
               r.summary.record_count, r.summary.damaged_count, r.summary.unfinished_count,
               qr_size_format(r.summary.file_bytes, a), r.summary.segment_count, r.summary.segment_count == 1 ? "" : "s");
    }
    report_deinit(&r);
    return status;
}
