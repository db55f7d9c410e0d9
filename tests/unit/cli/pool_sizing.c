#include "runtime/cli/pool_sizing.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* That plan and daemon come to the same numbers is tested end to end (tests/e2e/test_cli.py). */
Test(cli_pool_sizing, every_flag_that_gives_the_pool_memory_is_named) {
    static const struct {
        const char *source;
        uint64_t kv_memory, kv_blocks, joining;
        const char *named;
    } rows[] = {{"kv_memory", 0, 0, 0, "--kv-memory"},
                {"kv_memory", 0, 0, 1, "--host-cache"},
                {"kv_memory", 1, 0, 1, "--kv-memory and --host-cache"},
                {"kv_memory", 0, 1, 1, "--kv-blocks and --host-cache"},
                {"kv_memory", 1, 0, 0, "--kv-memory"},
                {"kv_memory", 0, 1, 0, "--kv-blocks"},
                {"--host-cache", 1, 0, 1, "--host-cache"},
                {"disk_cache_max", 1, 0, 1, "--disk-cache-max"},
                {"a file", 1, 0, 1, "a file"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qr_settings settings = {.kv_memory = rows[i].kv_memory, .kv_blocks = rows[i].kv_blocks};
        quire_error error = {0};
        snprintf(error.source, sizeof error.source, "%s", rows[i].source);
        qr_pool_sizing_name_source(&settings, rows[i].joining, &error);
        cr_expect_str_eq(error.source, rows[i].named, "row %zu", i);
    }
}
