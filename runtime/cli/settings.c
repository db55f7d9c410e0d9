/* settings.c - the table of settings and the three places that they come from. */
#include "runtime/cli/settings.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/cli/config_file.h"
#include "runtime/cli/size_text.h"
#include "runtime/cli/tier_settings.h"

typedef enum setting_kind {
    SETTING_TEXT,
    SETTING_SIZE,
    SETTING_DAILY,
    SETTING_VERIFY,
    SETTING_COUNT,
    SETTING_OCTAL,
    SETTING_WORD,
    SETTING_TYPES,
    SETTING_SWITCH
} setting_kind;

typedef struct setting_row {
    const char *name, *metavar, *help;
    setting_kind kind;
    unsigned scope;
    size_t offset;
    uint64_t min, max;        /* counts */
    const char *const *words; /* NULL-terminated; the value is the index */
} setting_row;

static const char *const backend_words[] = {"auto", "cpu", "cuda", NULL};
static const char *const policy_words[] = {"dlfu", "lru", NULL};
static const char *const disk_write_words[] = {"complete", "evict", "off", NULL};
static const char *const metrics_words[] = {"none", "vllm", NULL};
static const char *const level_words[] = {"debug", "info", "warn", "error", "off", NULL};
_Static_assert(QR_BACKEND_CUDA == 2 && QUIRE_KV_LRU == 1 && QR_LOG_OFF == 4 && QUIRE_KV_DISK_OFF == 2,
               "words are listed in the order of their values");

#define AT(field) offsetof(qr_settings, field)
#define ENGINE QR_SETTINGS_ENGINE
#define DAEMON QR_SETTINGS_DAEMON

static const setting_row rows[] = {
    {"model", "FILE", "Model file (GGUF)", SETTING_TEXT, ENGINE, AT(model), 0, 0, NULL},
    {"context", "N", "Tokens of one conversation at most (default: the model's)", SETTING_COUNT, ENGINE, AT(context), 1,
     1u << 30, NULL},
    {"kv-memory", "SIZE", "Memory for KV blocks (default: half of what is free after the weights)", SETTING_SIZE, ENGINE,
     AT(kv_memory), 1, UINT64_MAX, NULL},
    {"kv-blocks", "N", "The same as a number of blocks", SETTING_COUNT, ENGINE, AT(kv_blocks), 1, UINT32_MAX - 1, NULL},
    {"block-tokens", "N", "Tokens of one block: 16, 32, 64 or 128 (16)", SETTING_COUNT, ENGINE, AT(block_tokens), 16, 128,
     NULL},
    {"kv-type", "T[,T]", "Element type of keys and values: f16, f32, bf16 (f16)", SETTING_TYPES, ENGINE, AT(key_type), 0, 0,
     NULL},
    {"threads", "N", "Compute threads (default: the cores this process may use)", SETTING_COUNT, ENGINE, AT(threads), 1, 256,
     NULL},
    {"max-sequences", "N", "Answers that run at once (64)", SETTING_COUNT, ENGINE, AT(max_sequences), 1, 65536, NULL},
    {"max-waiting", "N", "Requests that may wait before 429 (1024)", SETTING_COUNT, ENGINE, AT(max_waiting), 1, 1u << 20, NULL},
    {"step-ms", "N", "Time that one step may take: the delay that a long prompt adds to running answers (50)", SETTING_COUNT,
     ENGINE, AT(step_ms), 1, 60000, NULL},
    {"host-cache", "SIZE", "Further cache memory; on the CPU it joins the KV memory", SETTING_SIZE, ENGINE, AT(host_cache), 0,
     UINT64_MAX, NULL},
    {"disk-cache", "DIR", "Keep cached blocks in this folder too, also over a restart; made when missing, private to its owner",
     SETTING_TEXT, ENGINE, AT(disk_cache), 0, 0, NULL},
    {"disk-cache-max", "SIZE", "Size of --disk-cache at most (default: 20G, or a quarter of the file system if that is less)",
     SETTING_SIZE, ENGINE, AT(disk_cache_max), 1, UINT64_MAX, NULL},
    {"disk-write", "WHEN",
     "A block is written to --disk-cache: complete = once it is, in idle bandwidth; evict = when its memory is needed; off = "
     "never, only what is there is read (complete)",
     SETTING_WORD, ENGINE, AT(disk_write), 0, 0, disk_write_words},
    {"disk-write-budget", "SIZE/day", "Bytes written to --disk-cache a day at most (no limit)", SETTING_DAILY, ENGINE,
     AT(disk_write_budget), 1 << 20, UINT64_MAX, NULL}, /* less is a unit that was forgotten */
    {"disk-cache-floor", "SIZE", "Left free on the file system of --disk-cache (default: 1G, or 5 % of it if that is less)",
     SETTING_SIZE, ENGINE, AT(disk_cache_floor), 1, UINT64_MAX, NULL},
    {"verify-kv", "off|sample=N|always",
     "Recompute what --disk-cache could give back, every time or one time in N, and compare (off)", SETTING_VERIFY, ENGINE,
     AT(verify_every), 0, UINT64_MAX, NULL},
    {"hibernate-seconds", "N", "Time for writing what is cached and not in --disk-cache yet, at the end (10)", SETTING_COUNT,
     ENGINE, AT(hibernate_seconds), 0, 86400, NULL},
    {"backend", "NAME", "auto, cpu or cuda (auto)", SETTING_WORD, ENGINE, AT(backend), 0, 0, backend_words},
    {"policy", "NAME", "What leaves the cache first: dlfu or lru (dlfu)", SETTING_WORD, ENGINE, AT(policy), 0, 0, policy_words},
    {"cpu-path", "NAME", "scalar, avx2 or avx512 (default: the best of this machine)", SETTING_TEXT, ENGINE, AT(cpu_path), 0, 0,
     NULL},
    {"no-cache", NULL, "Never reuse a prefix", SETTING_SWITCH, ENGINE, AT(no_cache), 0, 0, NULL},

    {"socket", "PATH", "Unix socket (default: $XDG_RUNTIME_DIR/quire/quire.sock, else ~/.quire/quire.sock)", SETTING_TEXT,
     DAEMON, AT(socket), 0, 0, NULL},
    {"socket-mode", "OCTAL", "Permissions of the socket (0600)", SETTING_OCTAL, DAEMON, AT(socket_mode), 0, 0777, NULL},
    {"listen", "HOST:PORT", "Also listen on TCP", SETTING_TEXT, DAEMON, AT(listen), 0, 0, NULL},
    {"api-key-file", "FILE", "API keys, one a line; needed to listen beyond this machine", SETTING_TEXT, DAEMON,
     AT(api_key_file), 0, 0, NULL},
    {"max-connections", "N", "Connections at once (1024)", SETTING_COUNT, DAEMON, AT(max_connections), 1, 1u << 20, NULL},
    {"max-body", "SIZE", "Largest request body (32M)", SETTING_SIZE, DAEMON, AT(max_body), 1, UINT32_MAX, NULL},
    {"drain-seconds", "N", "Time that running answers have after SIGTERM (30)", SETTING_COUNT, DAEMON, AT(drain_seconds), 1,
     86400, NULL},
    {"namespace-by-uid", NULL, "Users never share cached blocks", SETTING_SWITCH, DAEMON, AT(namespace_by_uid), 0, 0, NULL},
    {"metrics-compat", "NAME", "none or vllm: also the metric names that dashboards know (none)", SETTING_WORD, DAEMON,
     AT(metrics_compat), 0, 0, metrics_words},
    {"log-level", "NAME", "debug, info, warn, error or off (info)", SETTING_WORD, DAEMON, AT(log_level), 0, 0, level_words},
    {"seed", "N", "Seed for requests without one (default: from the system)", SETTING_COUNT, ENGINE, AT(seed), 0, UINT64_MAX,
     NULL},
};

enum {
    ROW_COUNT = sizeof rows / sizeof *rows,
    KEY_FIRST = 0x1000,
    KEY_MODEL = KEY_FIRST, /* on the command line 'm' */
    KEY_CONFIG = KEY_FIRST - 1,
    KEY_HOST_PORT = KEY_FIRST - 2,
};
_Static_assert((int)ROW_COUNT <= (int)QR_SETTINGS_MAX, "the parser has room for every row");

/* ---- values ---- */

static quire_status parse_number(const char *text, int base, uint64_t *value) {
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)*text)) return QUIRE_INVALID; /* no sign, no space, not empty */
    unsigned long long number = strtoull(text, &end, base);
    if (errno || *end) return QUIRE_INVALID;
    *value = number;
    return QUIRE_OK;
}

static quire_status parse_word(const char *text, const char *const *words, int *value) {
    for (int i = 0; words[i]; i++) {
        if (strcmp(text, words[i]) != 0) continue;
        *value = i;
        return QUIRE_OK;
    }
    return QUIRE_INVALID;
}

static quire_status parse_switch(const char *text, bool *value) {
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1", NULL};
    int word;
    if (parse_word(text, words, &word) != QUIRE_OK) return QUIRE_INVALID;
    *value = word % 2;
    return QUIRE_OK;
}

/* "K" or "K,V". */
static quire_status parse_types(const char *text, quire_kv_type *key, quire_kv_type *value) {
    char word[32];
    size_t size = strcspn(text, ",");
    if (size >= sizeof word) return QUIRE_INVALID;
    memcpy(word, text, size);
    word[size] = 0;
    if (quire_kv_type_parse(word, key) != QUIRE_OK) return QUIRE_INVALID;
    *value = *key;
    return text[size] ? quire_kv_type_parse(text + size + 1, value) : QUIRE_OK;
}

static quire_status row_parse(const setting_row *row, const char *text, qr_settings *settings) {
    void *field = (char *)settings + row->offset;
    uint64_t *number = field;
    quire_status status = QUIRE_INVALID;
    switch (row->kind) {
    case SETTING_TEXT: *(const char **)field = text; return *text ? QUIRE_OK : QUIRE_INVALID;
    case SETTING_WORD: return parse_word(text, row->words, field);
    case SETTING_TYPES: return parse_types(text, &settings->key_type, &settings->value_type);
    case SETTING_SWITCH: return parse_switch(text, field);
    case SETTING_SIZE: status = qr_size_parse(text, number); break;
    case SETTING_DAILY: status = qr_daily_size_parse(text, number); break;
    case SETTING_VERIFY: status = qr_verify_parse(text, number); break;
    case SETTING_COUNT: status = parse_number(text, 10, number); break;
    case SETTING_OCTAL: status = parse_number(text, 8, number); break;
    }
    return status == QUIRE_OK && *number >= row->min && *number <= row->max ? QUIRE_OK : QUIRE_INVALID;
}

/* What the row takes, for its error: "a number from 1 to 256". */
static void row_describe(const setting_row *row, char *text, size_t size) {
    size_t used = 0;
    switch (row->kind) {
    case SETTING_TEXT: snprintf(text, size, "a text that is not empty"); return;
    case SETTING_SIZE: snprintf(text, size, "a size in bytes such as 512M or 4G (K, M, G and T are powers of 1024)"); return;
    case SETTING_DAILY:
        snprintf(text, size, "a size a day of at least 1M, such as 50G/day (K, M, G and T are powers of 1024)");
        return;
    case SETTING_VERIFY: snprintf(text, size, "off, always or sample=N with N from 2 to 1000000"); return;
    case SETTING_TYPES: snprintf(text, size, "f32, f16, bf16, int8 or fp8_e4m3, or two of them for keys,values"); return;
    case SETTING_SWITCH: snprintf(text, size, "yes or no"); return;
    case SETTING_OCTAL: snprintf(text, size, "an octal mode from 0 to 777"); return;
    case SETTING_COUNT:
        snprintf(text, size, "a whole number from %llu to %llu", (unsigned long long)row->min, (unsigned long long)row->max);
        return;
    case SETTING_WORD: break;
    }
    for (int i = 0; row->words[i] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? (row->words[i + 1] ? ", " : " or ") : "", row->words[i]);
}

/* ---- the three places ---- */

static error_t settings_option(int key, char *argument, struct argp_state *state) {
    qr_settings_parser *parser = state->input;
    if (key == 'm') key = KEY_MODEL;
    if (key == KEY_CONFIG) parser->config = argument;
    else if (key == KEY_HOST_PORT) argp_error(state, "TCP is --listen HOST:PORT, for example --listen 127.0.0.1:8080");
    else if (key >= KEY_FIRST && key < KEY_FIRST + ROW_COUNT) parser->given[key - KEY_FIRST] = argument ? argument : "yes";
    else return ARGP_ERR_UNKNOWN;
    return 0;
}

void qr_settings_parser_init(qr_settings_parser *parser, unsigned scopes) {
    *parser = (qr_settings_parser){.scopes = scopes};
    int count = 0;
    for (int i = 0; i < ROW_COUNT; i++) {
        const setting_row *row = &rows[i];
        if (!(row->scope & scopes)) continue;
        int key = KEY_FIRST + i;
        parser->options[count++] = (struct argp_option){.name = row->name,
                                                        .key = key == KEY_MODEL ? 'm' : key,
                                                        .arg = row->metavar,
                                                        .doc = row->help,
                                                        .group = (int)row->scope};
    }
    parser->options[count] = (struct argp_option){.name = "config",
                                                  .key = KEY_CONFIG,
                                                  .arg = "FILE",
                                                  .doc = "Settings as lines of key = value (also $QUIRE_CONFIG)",
                                                  .group = 3};
    /* What other servers call it; without this --host is short for --host-cache. */
    parser->options[count + 1] =
        (struct argp_option){.name = "host", .key = KEY_HOST_PORT, .arg = "HOST", .flags = OPTION_HIDDEN, .group = 3};
    parser->options[count + 2] =
        (struct argp_option){.name = "port", .key = KEY_HOST_PORT, .arg = "PORT", .flags = OPTION_HIDDEN, .group = 3};
    parser->argp = (struct argp){.options = parser->options, .parser = settings_option};
    parser->children[0] =
        (struct argp_child){.argp = &parser->argp, .header = "Settings (flag, else $QUIRE_..., else config file):"};
}

void qr_settings_parser_deinit(qr_settings_parser *parser) {
    free(parser->config_text);
    *parser = (qr_settings_parser){0};
}

static const char *row_environment(const setting_row *row, char name[64]) {
    snprintf(name, 64, "QUIRE_%s", row->name);
    for (char *at = name; *at; at++) *at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

typedef struct config_values {
    const char *path;
    const char *values[ROW_COUNT];
    unsigned lines[ROW_COUNT];
} config_values;

static quire_status take_entry(void *context, const char *key, const char *value, unsigned line, quire_error *error) {
    config_values *config = context;
    for (int i = 0; i < ROW_COUNT; i++) {
        if (strcmp(key, rows[i].name) != 0) continue;
        if (config->values[i])
            return qr_fail(error, QUIRE_INVALID, config->path, QR_NO_OFFSET, "line %u sets '%s' again (first on line %u)", line,
                           key, config->lines[i]);
        config->values[i] = value;
        config->lines[i] = line;
        return QUIRE_OK;
    }
    return qr_fail(error, QUIRE_INVALID, config->path, QR_NO_OFFSET, "line %u: there is no setting '%s'", line, key);
}

/* Finds the text of a row and writes where it is from. */
static const char *row_find(const qr_settings_parser *parser, const config_values *config, int i, char place[256]) {
    char variable[64];
    if (parser->given[i]) {
        snprintf(place, 256, "--%s", rows[i].name);
        return parser->given[i];
    }
    const char *text = row_environment(&rows[i], variable);
    if (text) snprintf(place, 256, "$%s", variable);
    else if ((text = config->values[i]) != NULL)
        snprintf(place, 256, "%s, line %u, %s", config->path, config->lines[i], rows[i].name);
    return text;
}

static quire_status resolve_row(const qr_settings_parser *parser, const config_values *config, int i, qr_settings *settings,
                                quire_error *error) {
    char place[256], wanted[128];
    const char *text = row_find(parser, config, i, place);
    if (!text || row_parse(&rows[i], text, settings) == QUIRE_OK) return QUIRE_OK;
    row_describe(&rows[i], wanted, sizeof wanted);
    return qr_fail(error, QUIRE_INVALID, place, QR_NO_OFFSET, "takes %s, not '%s'", wanted, text);
}

/* A setting of the disk cache that has nothing to act on is a mistake, and a costly one when it is noticed late. */
static quire_status check_disk_words(const qr_settings_parser *parser, const config_values *config, quire_error *error) {
    static const char *const words[] = {"disk-cache-max", "disk-cache-floor",  "disk-write", "disk-write-budget",
                                        "verify-kv",      "hibernate-seconds", NULL};
    char place[256];
    int word;
    for (int i = 0; i < ROW_COUNT; i++)
        if (parse_word(rows[i].name, words, &word) == QUIRE_OK && row_find(parser, config, i, place))
            return qr_fail(error, QUIRE_INVALID, place, QR_NO_OFFSET, "needs --disk-cache DIR");
    return QUIRE_OK;
}

quire_status qr_settings_resolve(qr_settings_parser *parser, qr_settings *settings, quire_error *error) {
    *settings = (qr_settings){.key_type = QUIRE_KV_F16,
                              .value_type = QUIRE_KV_F16,
                              .block_tokens = 16,
                              .hibernate_seconds = 10,
                              .socket_mode = 0600,
                              .log_level = QR_LOG_INFO};
    config_values config = {.path = parser->config ? parser->config : getenv("QUIRE_CONFIG")};
    if (config.path && *config.path) {
        quire_status status = qr_config_file_read(config.path, take_entry, &config, &parser->config_text, error);
        if (status != QUIRE_OK) return status;
    }
    for (int i = 0; i < ROW_COUNT; i++) {
        quire_status status = resolve_row(parser, &config, i, settings, error);
        if (status != QUIRE_OK) return status;
    }
    if (!settings->disk_cache) return check_disk_words(parser, &config, error);
    if (!settings->disk_cache_max) settings->disk_cache_max = qr_disk_cache_max_default(settings->disk_cache);
    return QUIRE_OK;
}

static quire_status check_tiers(const qr_settings *settings, quire_error *error) {
    char size[QR_SIZE_TEXT_BYTES];
    uint64_t total;
    if (settings->disk_cache && settings->disk_cache_floor &&
        !qr_disk_holds(settings->disk_cache, settings->disk_cache_floor, &total))
        return qr_fail(error, QUIRE_INVALID, "--disk-cache-floor", QR_NO_OFFSET,
                       "must be less than the %s of the file system, or nothing is ever written", qr_size_format(total, size));
    if (settings->disk_cache && settings->no_cache)
        return qr_fail(error, QUIRE_INVALID, "--disk-cache", QR_NO_OFFSET, "give --disk-cache or --no-cache, not both");
    if (settings->host_cache && settings->no_cache)
        return qr_fail(error, QUIRE_INVALID, "--host-cache", QR_NO_OFFSET, "give --host-cache or --no-cache, not both");
    return QUIRE_OK;
}

quire_status qr_settings_check(const qr_settings *settings, quire_error *error) {
    if (settings->backend == QR_BACKEND_CUDA)
        return qr_fail(error, QUIRE_UNSUPPORTED, "--backend", QR_NO_OFFSET, "this build has no CUDA backend: use cpu or auto");
    if (settings->kv_memory && settings->kv_blocks)
        return qr_fail(error, QUIRE_INVALID, "--kv-blocks", QR_NO_OFFSET, "give --kv-memory or --kv-blocks, not both");
    uint64_t block = settings->block_tokens;
    if (block != 16 && block != 32 && block != 64 && block != 128)
        return qr_fail(error, QUIRE_INVALID, "--block-tokens", QR_NO_OFFSET, "takes 16, 32, 64 or 128, not %llu",
                       (unsigned long long)block);
    return check_tiers(settings, error);
}

void qr_settings_engine_config(const qr_settings *settings, quire_engine_config *config) {
    *config = (quire_engine_config){
        .context_tokens = (uint32_t)settings->context,
        .block_tokens = (uint32_t)settings->block_tokens,
        .kv_memory_bytes = settings->kv_memory,
        .kv_block_count = (uint32_t)settings->kv_blocks,
        .key_type = settings->key_type,
        .value_type = settings->value_type,
        .max_sequences = (uint32_t)settings->max_sequences,
        .max_waiting = (uint32_t)settings->max_waiting,
        .step_us = (uint32_t)settings->step_ms * 1000,
        .thread_count = (int)settings->threads,
        .cpu_path = settings->cpu_path,
        .policy = (quire_kv_policy)settings->policy,
        .cache_disabled = settings->no_cache,
        .disk_cache_path = settings->disk_cache,
        .disk_cache_max_bytes = settings->disk_cache_max,
        .disk_cache_floor_bytes = settings->disk_cache_floor,
        .disk_cache_day_budget_bytes = settings->disk_write_budget,
        .disk_write = (quire_kv_disk_write)settings->disk_write,
        .verify_every = (uint32_t)settings->verify_every,
        .seed = settings->seed,
    };
}

void qr_settings_name_source(quire_error *error) {
    char name[64];
    snprintf(name, sizeof name, "%.60s", error->source);
    for (char *at = name; *at; at++)
        if (*at == '_') *at = '-';
    for (int i = 0; i < ROW_COUNT; i++)
        if (strcmp(rows[i].name, name) == 0) snprintf(error->source, sizeof error->source, "--%s", name);
}
