#include "runtime/cli/settings.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static void clear_environment(void) {
    extern char **environ;
    for (char **at = environ; *at;) {
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*at, "="), *at);
        if (strncmp(name, "QUIRE_", 6) == 0) unsetenv(name), at = environ;
        else at++;
    }
}

static quire_status resolve(qr_settings_parser *parser, int argc, const char **argv, qr_settings *settings,
                            quire_error *error) {
    qr_settings_parser_init(parser, QR_SETTINGS_ENGINE | QR_SETTINGS_DAEMON);
    error_t failed =
        argp_parse(&parser->argp, argc, (char **)(void *)argv, ARGP_NO_EXIT | ARGP_NO_ERRS | ARGP_NO_HELP, NULL, parser);
    cr_assert_eq(failed, 0);
    return qr_settings_resolve(parser, settings, error);
}

#define RESOLVE(settings, error, ...)                                                              \
    resolve(&parser, (int)(sizeof((const char *[]){"quire", __VA_ARGS__}) / sizeof(const char *)), \
            (const char *[]){"quire", __VA_ARGS__, NULL}, (settings), (error))

TestSuite(cli_settings, .init = clear_environment);

Test(cli_settings, every_flag_lands_in_its_place) {
    qr_settings_parser parser;
    qr_settings s;
    quire_error error;
    cr_assert_eq(RESOLVE(&s, &error, "--model", "m.gguf", "--socket=/s", "--listen", "127.0.0.1:1", "--api-key-file", "k",
                         "--context", "8192", "--kv-memory", "2G", "--block-tokens", "32", "--kv-type", "bf16,f32", "--threads",
                         "3", "--max-sequences", "9", "--max-waiting", "11", "--step-ms", "20", "--backend", "cpu", "--policy",
                         "lru", "--cpu-path", "avx2", "--no-cache", "--socket-mode", "660", "--drain-seconds", "5",
                         "--max-connections", "7", "--max-body", "64K", "--namespace-by-uid", "--metrics-compat", "vllm",
                         "--log-level", "error", "--seed", "12345678901"),
                 QUIRE_OK, "%s %s", error.source, error.text);
    cr_assert_str_eq(s.model, "m.gguf");
    cr_assert_str_eq(s.socket, "/s");
    cr_assert_str_eq(s.listen, "127.0.0.1:1");
    cr_assert_str_eq(s.api_key_file, "k");
    cr_assert_str_eq(s.cpu_path, "avx2");
    cr_assert_eq(s.socket_mode, 0660);
    cr_assert(s.max_connections == 7 && s.max_body == 65536 && s.drain_seconds == 5 && s.namespace_by_uid);
    cr_assert(s.metrics_compat == 1 && s.log_level == QR_LOG_ERROR && s.backend == QR_BACKEND_CPU);
    cr_assert_eq(qr_settings_check(&s, &error), QUIRE_OK);
    quire_engine_config config;
    qr_settings_engine_config(&s, &config);
    cr_assert(config.context_tokens == 8192 && config.kv_memory_bytes == (uint64_t)2 << 30 && config.block_tokens == 32);
    cr_assert(config.key_type == QUIRE_KV_BF16 && config.value_type == QUIRE_KV_F32 && config.thread_count == 3);
    cr_assert(config.max_sequences == 9 && config.max_waiting == 11 && config.step_us == 20000);
    cr_assert(config.policy == QUIRE_KV_LRU && config.cache_disabled && config.seed == 12345678901u);
    qr_settings_parser_deinit(&parser);
}

Test(cli_settings, flags_of_the_tiers_reach_the_engine) {
    qr_settings_parser parser;
    qr_settings s;
    quire_error error;
    cr_assert_eq(RESOLVE(&s, &error, "--disk-cache", "/nowhere/kv", "--disk-cache-max", "3G", "--disk-write", "evict",
                         "--disk-write-budget", "50G/day", "--disk-cache-floor", "2M", "--verify-kv", "sample=7",
                         "--hibernate-seconds", "0", "--host-cache", "1M"),
                 QUIRE_OK, "%s %s", error.source, error.text);
    cr_assert_eq(qr_settings_check(&s, &error), QUIRE_OK);
    cr_assert_eq(s.host_cache, 1u << 20);
    quire_engine_config config;
    qr_settings_engine_config(&s, &config);
    cr_assert_str_eq(config.disk_cache_path, "/nowhere/kv");
    cr_assert(config.disk_cache_max_bytes == (uint64_t)3 << 30 && config.disk_cache_floor_bytes == 2u << 20);
    cr_assert(config.disk_cache_day_budget_bytes == (uint64_t)50 << 30 && config.disk_write == QUIRE_KV_DISK_EVICT);
    cr_assert(config.verify_every == 7 && s.hibernate_seconds == 0);
    qr_settings_parser_deinit(&parser);
    setenv("QUIRE_DISK_CACHE", "/nowhere/kv", 1);
    setenv("QUIRE_VERIFY_KV", "always", 1);
    cr_assert_eq(RESOLVE(&s, &error, "--model", "m"), QUIRE_OK);
    cr_assert(s.verify_every == 1 && s.hibernate_seconds == 10 && s.disk_write == QUIRE_KV_DISK_COMPLETE);
    cr_assert(s.disk_cache_max > 0 && s.disk_cache_max <= (uint64_t)20 << 30, "the default cap");
    qr_settings_parser_deinit(&parser);
}

Test(cli_settings, without_anything_the_defaults_hold) {
    qr_settings_parser parser;
    qr_settings s;
    quire_error error;
    cr_assert_eq(RESOLVE(&s, &error, "--model", "m"), QUIRE_OK);
    cr_assert(s.socket_mode == 0600 && s.block_tokens == 16 && s.key_type == QUIRE_KV_F16 && s.value_type == QUIRE_KV_F16);
    cr_assert(s.log_level == QR_LOG_INFO && s.context == 0 && s.kv_memory == 0 && s.policy == QUIRE_KV_DLFU && !s.no_cache);
    cr_assert_eq(qr_settings_check(&s, &error), QUIRE_OK);
    qr_settings_parser_deinit(&parser);
}

static void write_file(char path[], const char *content) {
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, content, strlen(content)), (ssize_t)strlen(content));
    close(fd);
}

Test(cli_settings, the_flag_wins_over_the_environment_and_that_over_the_file) {
    char path[] = "/tmp/quire-settings-XXXXXX";
    qr_settings_parser parser;
    qr_settings s;
    quire_error error;
    write_file(path, "context = 100\nthreads = 2\nstep-ms = 7\nno-cache = yes\n");
    setenv("QUIRE_THREADS", "5", 1);
    setenv("QUIRE_STEP_MS", "9", 1);
    setenv("QUIRE_CONTEXT", "", 1); /* empty counts as unset */
    cr_assert_eq(RESOLVE(&s, &error, "--config", path, "--step-ms", "11"), QUIRE_OK, "%s", error.text);
    cr_assert(s.context == 100 && s.threads == 5 && s.step_ms == 11 && s.no_cache);
    qr_settings_parser_deinit(&parser);
    setenv("QUIRE_CONFIG", path, 1);
    cr_assert_eq(RESOLVE(&s, &error, "--model", "m"), QUIRE_OK);
    cr_assert_eq(s.context, 100);
    qr_settings_parser_deinit(&parser);
    unlink(path);
}

Test(cli_settings, a_bad_value_is_named_with_its_place) {
    static const struct {
        const char *flag, *value;
    } rows[] = {
        {"--context", "0"},
        {"--context", "-1"},
        {"--context", "12x"},
        {"--threads", "257"},
        {"--threads", "2.5"},
        {"--kv-memory", "many"},
        {"--kv-memory", "0"},
        {"--kv-type", "f17"},
        {"--kv-type", "f16,"},
        {"--policy", "fifo"},
        {"--backend", "tpu"},
        {"--log-level", "loud"},
        {"--socket-mode", "888"},
        {"--socket-mode", "1777"},
        {"--model", ""},
        {"--max-body", "5G"},
        {"--kv-blocks", "4294967295"},
        {"--disk-cache", ""},
        {"--disk-cache-max", "0"},
        {"--disk-write", "never"},
        {"--disk-write-budget", "5G/week"},
        {"--disk-write-budget", "50"},
        {"--verify-kv", "sample=1"},
        {"--hibernate-seconds", "-1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qr_settings_parser parser;
        qr_settings s;
        quire_error error;
        cr_expect_eq(RESOLVE(&s, &error, rows[i].flag, rows[i].value), QUIRE_INVALID, "%s %s", rows[i].flag, rows[i].value);
        cr_expect_str_eq(error.source, rows[i].flag);
        cr_expect_not_null(strstr(error.text, rows[i].value), "%s", error.text);
        qr_settings_parser_deinit(&parser);
    }
}

Test(cli_settings, the_environment_and_the_file_are_checked_alike) {
    char path[] = "/tmp/quire-settings-XXXXXX", twice[] = "/tmp/quire-settings-XXXXXX",
         unknown[] = "/tmp/quire-settings-XXXXXX";
    qr_settings_parser parser;
    qr_settings s;
    quire_error error;
    setenv("QUIRE_POLICY", "fifo", 1);
    cr_assert_eq(RESOLVE(&s, &error, "--model", "m"), QUIRE_INVALID);
    cr_assert_str_eq(error.source, "$QUIRE_POLICY");
    cr_assert_not_null(strstr(error.text, "dlfu or lru"));
    qr_settings_parser_deinit(&parser);
    unsetenv("QUIRE_POLICY");
    write_file(path, "\ncontext = lots\n");
    cr_assert_eq(RESOLVE(&s, &error, "--config", path), QUIRE_INVALID);
    cr_assert_not_null(strstr(error.source, "line 2"));
    qr_settings_parser_deinit(&parser);
    write_file(twice, "context = 1\ncontext = 2\n");
    cr_assert_eq(RESOLVE(&s, &error, "--config", twice), QUIRE_INVALID);
    cr_assert_not_null(strstr(error.text, "line 2 sets 'context' again"));
    qr_settings_parser_deinit(&parser);
    write_file(unknown, "contxt = 1\n");
    cr_assert_eq(RESOLVE(&s, &error, "--config", unknown), QUIRE_INVALID);
    cr_assert_not_null(strstr(error.text, "contxt"));
    qr_settings_parser_deinit(&parser);
    unlink(path), unlink(twice), unlink(unknown);
}

Test(cli_settings, without_a_disk_cache_its_settings_are_refused_wherever_they_are_from) {
    static const char *const rows[][2] = {{"disk-cache-max", "1G"}, {"disk-cache-floor", "1G"},  {"disk-write", "complete"},
                                          {"disk-write", "off"},    {"disk-write-budget", "1G"}, {"verify-kv", "off"},
                                          {"verify-kv", "always"},  {"hibernate-seconds", "0"},  {"hibernate-seconds", "10"}};
    char path[] = "/tmp/quire-settings-XXXXXX", flag[64];
    qr_settings_parser parser;
    qr_settings s;
    quire_error error;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(flag, sizeof flag, "--%s", rows[i][0]);
        cr_expect_eq(RESOLVE(&s, &error, flag, rows[i][1]), QUIRE_INVALID, "%s", flag);
        cr_expect_str_eq(error.source, flag);
        cr_expect_str_eq(error.text, "needs --disk-cache DIR");
        qr_settings_parser_deinit(&parser);
        cr_expect_eq(RESOLVE(&s, &error, flag, rows[i][1], "--disk-cache", "/nowhere/kv"), QUIRE_OK, "%s", error.text);
        qr_settings_parser_deinit(&parser);
    }
    setenv("QUIRE_HIBERNATE_SECONDS", "5", 1);
    cr_assert_eq(RESOLVE(&s, &error, "--model", "m"), QUIRE_INVALID);
    cr_assert_str_eq(error.source, "$QUIRE_HIBERNATE_SECONDS");
    qr_settings_parser_deinit(&parser);
    unsetenv("QUIRE_HIBERNATE_SECONDS");
    write_file(path, "\nverify-kv = always\n");
    cr_assert_eq(RESOLVE(&s, &error, "--config", path), QUIRE_INVALID);
    cr_assert_not_null(strstr(error.source, "line 2, verify-kv"), "%s", error.source);
    qr_settings_parser_deinit(&parser);
    unlink(path);
}

Test(cli_settings, what_cannot_be_done_is_refused_by_name) {
    static const struct {
        qr_settings settings;
        const char *source;
        quire_status status;
    } rows[] = {
        {{.backend = QR_BACKEND_CUDA, .block_tokens = 16}, "--backend", QUIRE_UNSUPPORTED},
        {{.disk_cache = "/d", .no_cache = true, .block_tokens = 16}, "--disk-cache", QUIRE_INVALID},
        {{.host_cache = 1, .no_cache = true, .block_tokens = 16}, "--host-cache", QUIRE_INVALID},
        {{.disk_cache = "/", .disk_cache_floor = UINT64_MAX, .block_tokens = 16}, "--disk-cache-floor", QUIRE_INVALID},
        {{.kv_memory = 1, .kv_blocks = 1, .block_tokens = 16}, "--kv-blocks", QUIRE_INVALID},
        {{.block_tokens = 24}, "--block-tokens", QUIRE_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        quire_error error;
        cr_expect_eq(qr_settings_check(&rows[i].settings, &error), rows[i].status);
        cr_expect_str_eq(error.source, rows[i].source);
    }
}

Test(cli_settings, a_field_of_the_engine_is_named_as_a_flag) {
    static const char *const rows[][2] = {
        {"disk_cache_max", "--disk-cache-max"}, {"context", "--context"}, {"/some/file_name", "/some/file_name"}, {"", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        quire_error error = {0};
        snprintf(error.source, sizeof error.source, "%s", rows[i][0]);
        qr_settings_name_source(&error);
        cr_expect_str_eq(error.source, rows[i][1]);
    }
}
