#include "runtime/cli/tier_settings.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

Test(cli_tier_settings, a_size_a_day_is_a_size_with_or_without_its_day) {
    static const struct {
        const char *text;
        quire_status status;
        uint64_t bytes;
    } rows[] = {{"50G/day", QUIRE_OK, (uint64_t)50 << 30},
                {"50G", QUIRE_OK, (uint64_t)50 << 30},
                {"1/day", QUIRE_OK, 1},
                {"/day", QUIRE_INVALID, 0},
                {"", QUIRE_INVALID, 0},
                {"5G/DAY", QUIRE_INVALID, 0},
                {"5G/day/day", QUIRE_INVALID, 0},
                {"-5G/day", QUIRE_INVALID, 0},
                {"00000000000000000000000000000000000000000000000000000000000000000000005G/day", QUIRE_INVALID, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t bytes = 77;
        cr_expect_eq(qr_daily_size_parse(rows[i].text, &bytes), rows[i].status, "%s", rows[i].text);
        cr_expect_eq(bytes, rows[i].bytes, "%s", rows[i].text);
    }
}

Test(cli_tier_settings, verification_is_off_always_or_one_in_n) {
    static const struct {
        const char *text;
        quire_status status;
        uint64_t every;
    } rows[] = {{"off", QUIRE_OK, 0},
                {"always", QUIRE_OK, 1},
                {"sample=2", QUIRE_OK, 2},
                {"sample=1000000", QUIRE_OK, 1000000},
                {"sample=1000001", QUIRE_INVALID, 0},
                {"sample=1", QUIRE_INVALID, 0},
                {"sample=", QUIRE_INVALID, 0},
                {"sample=-3", QUIRE_INVALID, 0},
                {"sample=+3", QUIRE_INVALID, 0},
                {"sample=3x", QUIRE_INVALID, 0},
                {"sample", QUIRE_INVALID, 0},
                {"", QUIRE_INVALID, 0},
                {"1", QUIRE_INVALID, 0},
                {"sample=99999999999999999999", QUIRE_INVALID, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t every = 77;
        cr_expect_eq(qr_verify_parse(rows[i].text, &every), rows[i].status, "%s", rows[i].text);
        if (rows[i].status == QUIRE_OK) cr_expect_eq(every, rows[i].every, "%s", rows[i].text);
    }
}

Test(cli_tier_settings, the_default_cap_is_a_quarter_of_a_small_disk) {
    struct statvfs space;
    char folder[] = "/tmp/quire-cap-XXXXXX", missing[64];
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(statvfs(folder, &space), 0);
    uint64_t quarter = (uint64_t)space.f_blocks * space.f_frsize / 4, most = (uint64_t)20 << 30;
    uint64_t wanted = quarter < most ? quarter : most;
    cr_expect_eq(qr_disk_cache_max_default(folder), wanted);
    snprintf(missing, sizeof missing, "%s/a/b/c", folder);
    cr_expect_eq(qr_disk_cache_max_default(missing), wanted, "its nearest parent counts");
    rmdir(folder);
    cr_expect_gt(qr_disk_cache_max_default("not-there-at-all"), 0);
    cr_expect_gt(qr_disk_cache_max_default("/not-there/at-all"), 0);
    cr_expect_eq(qr_disk_cache_max_default("/dev/null/x"), most, "what cannot be asked is told by opening it");
    cr_expect_eq(qr_disk_cache_max_default("/proc/x"), most, "so is what has no size");
}

Test(cli_tier_settings, a_file_system_holds_less_than_its_size) {
    struct statvfs space;
    uint64_t total;
    cr_assert_eq(statvfs("/tmp", &space), 0);
    uint64_t size = (uint64_t)space.f_blocks * space.f_frsize;
    cr_expect(qr_disk_holds("/tmp/not-there-at-all", size - 1, &total));
    cr_expect_eq(total, size);
    cr_expect_not(qr_disk_holds("/tmp", size, &total));
    cr_expect(qr_disk_holds("/proc/x", UINT64_MAX, &total), "nobody knows");
    cr_expect(qr_disk_holds("/dev/null/x", UINT64_MAX, &total));
}
