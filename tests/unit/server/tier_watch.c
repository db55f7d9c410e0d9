#include "runtime/server/tier_watch.h"
#include "base/clock.h"
#include "tests/unit/server/server_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A log that can be read. */
typedef struct spool {
    FILE *file;
    qr_log log;
    char text[4096];
} spool;

static void spool_open(spool *s) {
    s->file = tmpfile();
    cr_assert_not_null(s->file);
    s->log = (qr_log){fileno(s->file), QR_LOG_WARN};
}

static const char *spool_text(spool *s) {
    ssize_t size = pread(fileno(s->file), s->text, sizeof s->text - 1, 0);
    s->text[size > 0 ? size : 0] = 0;
    return s->text;
}

static int lines_of(const char *text) {
    int lines = 0;
    for (; *text; text++) lines += *text == '\n';
    return lines;
}

Test(server_tier_watch, a_line_says_by_how_much_each_count_has_risen) {
    quire_kv_tiers_stats tiers = {0};
    qr_tier_watch watch = {0};
    spool s;
    spool_open(&s);
    qr_tier_watch_look(&watch, &tiers, &s.log);
    cr_assert_str_empty(spool_text(&s), "nothing is wrong");
    tiers.tiers[QUIRE_KV_TIER_DISK].loaded_blocks_total = 5;
    tiers.refused_blocks_total[QUIRE_KV_REFUSED_SLOWER] = tiers.refused_blocks_total[QUIRE_KV_REFUSED_NO_SPACE] = 9;
    qr_tier_watch_look(&watch, &tiers, &s.log);
    cr_assert_str_empty(spool_text(&s), "nor is this");
    tiers.tiers[QUIRE_KV_TIER_DISK].damaged_total = 2;
    tiers.tiers[QUIRE_KV_TIER_HOST].damaged_total = 1;
    qr_tier_watch_look(&watch, &tiers, &s.log);
    qr_tier_watch_look(&watch, &tiers, &s.log);
    cr_assert_eq(lines_of(spool_text(&s)), 1, "%s", s.text);
    cr_assert_not_null(
        strstr(s.text, " warn tier_trouble damaged=3 errors=0 verify_mismatches=0 unwritable_blocks=0 suppressed=0\n"));
    tiers.tiers[QUIRE_KV_TIER_DISK].damaged_total = 3;
    tiers.tiers[QUIRE_KV_TIER_DISK].error_total = 4;
    tiers.verify_mismatches_total = 5;
    tiers.refused_blocks_total[QUIRE_KV_REFUSED_BROKEN] = 6;
    qr_tier_watch_look(&watch, &tiers, &s.log);
    cr_assert_eq(lines_of(spool_text(&s)), 2, "%s", s.text);
    cr_assert_not_null(
        strstr(s.text, " warn tier_trouble damaged=1 errors=4 verify_mismatches=5 unwritable_blocks=6 suppressed=0\n"));
    fclose(s.file);
}

Test(server_tier_watch, every_single_kind_is_told) {
    for (int kind = 0; kind < QR_TROUBLE_COUNT; kind++) {
        quire_kv_tiers_stats tiers = {0};
        qr_tier_watch watch = {0};
        uint64_t *const counts[QR_TROUBLE_COUNT] = {
            &tiers.tiers[QUIRE_KV_TIER_DISK].damaged_total, &tiers.tiers[QUIRE_KV_TIER_DISK].error_total,
            &tiers.verify_mismatches_total, &tiers.refused_blocks_total[QUIRE_KV_REFUSED_BROKEN]};
        spool s;
        spool_open(&s);
        *counts[kind] = 1;
        qr_tier_watch_look(&watch, &tiers, &s.log);
        cr_expect_eq(lines_of(spool_text(&s)), 1, "kind %d", kind);
        fclose(s.file);
    }
}

/* Number n, as the manager keeps it. */
static void add_trouble(quire_kv_tiers_stats *tiers, quire_kv_trouble_kind kind, const char *file, uint64_t offset,
                        const char *what) {
    quire_kv_trouble *trouble = &tiers->troubles[tiers->troubles_total++ % QUIRE_KV_TROUBLES];
    *trouble = (quire_kv_trouble){.kind = kind, .offset = offset, .unix_ms = 1700000000123};
    snprintf(trouble->file, sizeof trouble->file, "%s", file);
    snprintf(trouble->what, sizeof trouble->what, "%s", what);
}

Test(server_tier_watch, a_trouble_is_told_once_with_its_file_and_offset) {
    quire_kv_tiers_stats tiers = {0};
    qr_tier_watch watch = {0};
    spool s;
    spool_open(&s);
    add_trouble(&tiers, QUIRE_KV_TROUBLE_DAMAGED, "segment-0123456789abcdef.quire", 12288, "payload checksum");
    tiers.tiers[QUIRE_KV_TIER_DISK].damaged_total = 1;
    qr_tier_watch_look(&watch, &tiers, &s.log);
    qr_tier_watch_look(&watch, &tiers, &s.log);
    cr_assert_eq(lines_of(spool_text(&s)), 2, "%s", s.text);
    cr_assert_not_null(strstr(s.text, " warn tier_damaged file=segment-0123456789abcdef.quire offset=12288 "
                                      "what=\"payload checksum\" unix_ms=1700000000123\n"),
                       "%s", s.text);
    cr_assert_not_null(strstr(s.text, " warn tier_trouble damaged=1 errors=0 verify_mismatches=0 unwritable_blocks=0 "
                                      "suppressed=0\n"));
    add_trouble(&tiers, QUIRE_KV_TROUBLE_ERROR, "", UINT64_MAX, "gone");
    add_trouble(&tiers, QUIRE_KV_TROUBLE_MISMATCH, "", UINT64_MAX, "differs");
    add_trouble(&tiers, QUIRE_KV_TROUBLE_MISMATCH, "segment-1", 4096, "differs");
    qr_tier_watch_look(&watch, &tiers, &s.log);
    cr_assert_eq(lines_of(spool_text(&s)), 5, "%s", s.text);
    cr_assert_not_null(strstr(s.text, " warn tier_error file=. offset=-1 what=gone "), "%s", s.text);
    cr_assert_not_null(strstr(s.text, " warn tier_verify_mismatch file=\"(host memory)\" offset=-1 what=differs "), "%s",
                       s.text);
    cr_assert_not_null(strstr(s.text, " warn tier_verify_mismatch file=segment-1 offset=4096 what=differs "), "%s", s.text);
    fclose(s.file);
}

Test(server_tier_watch, troubles_without_a_line_are_counted) {
    quire_kv_tiers_stats tiers = {0};
    qr_tier_watch watch = {0};
    spool s;
    spool_open(&s);
    for (uint64_t n = 0; n < QUIRE_KV_TROUBLES + 5; n++) add_trouble(&tiers, QUIRE_KV_TROUBLE_ERROR, "segment-1", n, "bad");
    add_trouble(&tiers, QUIRE_KV_TROUBLE_ERROR, "", 0, ""); /* of which nothing was kept */
    qr_tier_watch_look(&watch, &tiers, &s.log);
    cr_assert_eq(lines_of(spool_text(&s)), QUIRE_KV_TROUBLES - 1 + 1, "%s", s.text);
    cr_assert_null(strstr(s.text, " offset=5 "));
    cr_assert_not_null(strstr(s.text, " offset=6 "), "%s", s.text);
    cr_assert_not_null(strstr(s.text, " offset=12 "), "%s", s.text);
    cr_assert_not_null(strstr(s.text, " suppressed=7\n"), "%s", s.text);
    fclose(s.file);
}

static bool lines_come(spool *s, int lines) {
    for (uint64_t end_us = qr_clock_us() + 10000000; qr_clock_us() < end_us; usleep(10000))
        if (lines_of(spool_text(s)) >= lines) return true;
    return false;
}

/* Nobody asks anything meanwhile. */
Test(server_tier_watch, a_daemon_looks_by_itself_and_once_more_at_its_end) {
    fixture *f = malloc(sizeof *f);
    quire_kv_tiers_stats *tiers = calloc(1, sizeof *tiers); /* counted up below while the server reads */
    spool s;
    spool_open(&s);
    tiers->tiers[QUIRE_KV_TIER_DISK] = (quire_kv_tier_stats){.present = true, .damaged_total = 7};
    fake_script script = {.tiers = tiers};
    qr_server_config options = {.log = &s.log};
    fixture_start(f, "a", &script, &options);
    cr_assert(lines_come(&s, 1));
    cr_assert_not_null(strstr(s.text, "tier_trouble damaged=7 "), "%s", s.text);
    __atomic_store_n(&tiers->tiers[QUIRE_KV_TIER_DISK].error_total, 2, __ATOMIC_RELAXED);
    cr_assert(lines_come(&s, 2));
    cr_assert_not_null(strstr(s.text, "tier_trouble damaged=0 errors=2 "), "%s", s.text);
    __atomic_store_n(&tiers->verify_mismatches_total, 1, __ATOMIC_RELAXED);
    fixture_stop(f);
    cr_assert_not_null(strstr(spool_text(&s), "tier_trouble damaged=0 errors=0 verify_mismatches=1 "), "%s", s.text);
    cr_assert_eq(lines_of(s.text), 3, "%s", s.text);
    fclose(s.file);
    free(tiers);
    free(f);
}
