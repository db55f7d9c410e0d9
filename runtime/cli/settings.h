/* settings.h - the settings of the engine and the daemon: one table for `serve`, `run` and `plan`.
 *
 * Each setting has one name. It is a flag (--kv-memory), an environment variable (QUIRE_KV_MEMORY) and a line of the file that
 * --config names (kv-memory = 4G); the earlier of these wins. Errors name the place a bad value came from. Secrets are only
 * ever given as the name of a file.
 */
#ifndef QR_CLI_SETTINGS_H
#define QR_CLI_SETTINGS_H

#include <argp.h>
#include <stdbool.h>

#include <quire/engine.h>

typedef enum qr_backend_choice { QR_BACKEND_AUTO, QR_BACKEND_CPU, QR_BACKEND_CUDA } qr_backend_choice;

typedef struct qr_settings {
    /* Model and engine. Strings are borrowed from the command line, the environment or the parser. 0 = default. */
    const char *model, *cpu_path;
    uint64_t context, kv_memory, kv_blocks, block_tokens, threads, max_sequences, max_waiting, step_ms, seed;
    uint64_t host_cache;
    const char *disk_cache;                                                                        /* NULL: none */
    uint64_t disk_cache_max, disk_cache_floor, disk_write_budget, verify_every, hibernate_seconds; /* tier_settings.h */
    int disk_write;                                                                                /* quire_kv_disk_write */
    quire_kv_type key_type, value_type;
    int backend; /* qr_backend_choice */
    int policy;  /* quire_kv_policy */
    bool no_cache;
    /* Daemon. */
    const char *socket, *listen, *api_key_file;
    uint64_t socket_mode; /* octal */
    uint64_t max_connections, max_body, drain_seconds;
    bool namespace_by_uid;
    int metrics_compat; /* 0 none, 1 vllm */
    int log_level;      /* qr_log_level */
} qr_settings;

typedef enum qr_settings_scope { QR_SETTINGS_ENGINE = 1, QR_SETTINGS_DAEMON = 2 } qr_settings_scope;

enum { QR_SETTINGS_MAX = 40 };

/* Reads the flags of the scopes asked for, as an argp child: put `child` into the command's argp and hand the parser on as its
 * child input. Zero-initialised, then init; deinit after the last use of the settings. */
typedef struct qr_settings_parser {
    struct argp_option options[QR_SETTINGS_MAX + 4];
    struct argp argp;
    struct argp_child children[2];
    const char *given[QR_SETTINGS_MAX]; /* text from the command line, by row */
    const char *config;                 /* --config */
    char *config_text;                  /* the file, cut into strings */
    unsigned scopes;
} qr_settings_parser;

void qr_settings_parser_init(qr_settings_parser *parser, unsigned scopes);
void qr_settings_parser_deinit(qr_settings_parser *parser);

/* After argp_parse: every setting from the first place that has it, checked. A configuration file may hold settings of any
 * scope. Errors: INVALID and IO (the place and the value named, or the setting that it needs beside it). */
QUIRE_MUST_CHECK quire_status qr_settings_resolve(qr_settings_parser *parser, qr_settings *settings, quire_error *error);

/* What this build cannot do is refused here, by name: UNSUPPORTED. Conflicts of settings: INVALID. */
QUIRE_MUST_CHECK quire_status qr_settings_check(const qr_settings *settings, quire_error *error);

/* The engine names a field; the user knows a flag: disk_cache_max becomes --disk-cache-max. Other sources stay. */
void qr_settings_name_source(quire_error *error);

/* The engine's part. Wake is left empty. */
void qr_settings_engine_config(const qr_settings *settings, quire_engine_config *config);
#endif
