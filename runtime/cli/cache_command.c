/* cache_command.c - the verbs of `quire cache` and where each is done: in the folder itself (cache_report.h) or by the daemon
 * that has it (cache_daemon.h). */
#include "runtime/cli/cache_command.h"

#include <argp.h>
#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quire/kv.h>

#include "base/error.h"
#include "runtime/cli/cache_daemon.h"
#include "runtime/cli/cache_report.h"
#include "runtime/cli/command_line.h"
#include "runtime/cli/size_text.h"
#include "runtime/cli/socket_path.h"
#include "runtime/cli/terminal.h"

enum { KEY_FOLDER = 300, KEY_JSON, KEY_SALT, KEY_TIMEOUT, PATH_BYTES = 512, EXIT_DAMAGED = 1, EXIT_LEFT = 1 };

typedef struct cache_args {
    const char *verb, *folder, *socket, *salt;
    bool json;
    double timeout_s;
} cache_args;

typedef struct cache_verb {
    const char *name;
    bool of_folder, of_daemon;
    int (*run)(const cache_args *args, quire_error *error);
} cache_verb;

static int fail(const quire_error *error) { return qr_terminal_fail("cache", error); }

/* ---- verbs ---- */

static int run_ls(const cache_args *args, quire_error *error) {
    return qr_cache_report_list(args->folder, args->json, error) == QUIRE_OK ? 0 : fail(error);
}

static int run_verify(const cache_args *args, quire_error *error) {
    uint64_t damaged;
    if (qr_cache_report_verify(args->folder, args->json, &damaged, error) != QUIRE_OK) return fail(error);
    return damaged ? EXIT_DAMAGED : 0;
}

static qr_cache_daemon daemon_of(const cache_args *args) {
    return (qr_cache_daemon){.socket = args->socket, .json = args->json, .timeout_s = args->timeout_s};
}

static int run_stat(const cache_args *args, quire_error *error) {
    qr_cache_daemon daemon = daemon_of(args);
    quire_status status =
        args->folder ? qr_cache_report_sums(args->folder, args->json, error) : qr_cache_daemon_stat(&daemon, error);
    return status == QUIRE_OK ? 0 : fail(error);
}

static int run_flush(const cache_args *args, quire_error *error) {
    qr_cache_daemon daemon = daemon_of(args);
    bool flushed = false;
    if (qr_cache_daemon_flush(&daemon, &flushed, error) != QUIRE_OK) return fail(error);
    return flushed ? 0 : EXIT_LEFT;
}

static int clear_folder(const cache_args *args, quire_error *error) {
    uint32_t segments;
    uint64_t bytes;
    char a[QR_SIZE_TEXT_BYTES];
    if (args->salt)
        return (void)qr_fail(error, QUIRE_INVALID, "--salt", QR_NO_OFFSET,
                             "is for a running daemon: leave --disk-cache away (--socket PATH says which daemon)"),
               fail(error);
    quire_status status = quire_kv_store_clear(args->folder, &segments, &bytes, error);
    if (status != QUIRE_OK) {
        int code = fail(error);
        if (status == QUIRE_BUSY) fputs("Without --disk-cache the daemon itself is asked to clear it.\n", stderr);
        return code;
    }
    if (args->json) printf("{\"segments\": %" PRIu32 ", \"bytes\": %" PRIu64 "}\n", segments, bytes);
    else printf("%" PRIu32 " segment%s removed, %s\n", segments, segments == 1 ? "" : "s", qr_size_format(bytes, a));
    return 0;
}

static int run_clear(const cache_args *args, quire_error *error) {
    if (args->folder) return clear_folder(args, error);
    qr_cache_daemon daemon = daemon_of(args);
    uint64_t left = 0;
    if (qr_cache_daemon_clear(&daemon, args->salt, &left, error) != QUIRE_OK) return fail(error);
    return left ? EXIT_LEFT : 0;
}

static const cache_verb verbs[] = {{"ls", true, false, run_ls},
                                   {"stat", true, true, run_stat},
                                   {"verify", true, false, run_verify},
                                   {"flush", false, true, run_flush},
                                   {"clear", true, true, run_clear}};

static const cache_verb *find_verb(const char *name) {
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
    return NULL;
}

/* ---- arguments ---- */

static const struct argp_option cache_options[] = {
    {"disk-cache", KEY_FOLDER, "DIR", 0, "The folder (ls and verify: default $QUIRE_DISK_CACHE)", 0},
    {"socket", 's', "PATH", 0, "Socket of the daemon (default: $QUIRE_SOCKET, else the daemon's own default)", 0},
    {"salt", KEY_SALT, "TEXT", 0, "clear: only what belongs to this cache_salt (\"\": to requests without one)", 0},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0, "flush, clear: how long to wait for the disk (60)", 0},
    {"json", KEY_JSON, NULL, 0, "One JSON object; every size in bytes", 0},
    {0},
};

static error_t cache_option(int key, char *argument, struct argp_state *state) {
    cache_args *args = state->input;
    char *end;
    switch (key) {
    case KEY_FOLDER: args->folder = argument; break;
    case 's': args->socket = argument; break;
    case KEY_SALT: args->salt = argument; break;
    case KEY_JSON: args->json = true; break;
    case KEY_TIMEOUT:
        args->timeout_s = strtod(argument, &end);
        if (end == argument || *end || !(args->timeout_s >= 0 && args->timeout_s <= 3600))
            argp_error(state, "--timeout takes seconds from 0 to 3600");
        break;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0)
            argp_error(state, "'%s' is one word too many: the folder is named by --disk-cache DIR", argument);
        args->verb = argument;
        break;
    case ARGP_KEY_END:
        if (!args->verb || !find_verb(args->verb)) argp_error(state, "say what to do: ls, stat, verify, flush or clear");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const char *environment(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* The folder or the daemon. Where both would do, the daemon is asked unless a folder was named on the command line. */
static quire_status choose_place(const cache_verb *verb, cache_args *args, char socket[PATH_BYTES], quire_error *error) {
    if (args->folder && args->socket)
        return qr_fail(error, QUIRE_INVALID, "--socket", QR_NO_OFFSET, "give --disk-cache or --socket, not both");
    if (args->folder && !verb->of_folder)
        return qr_fail(error, QUIRE_INVALID, "--disk-cache", QR_NO_OFFSET,
                       "'%s' asks the running daemon: leave it away (--socket PATH says which daemon)", verb->name);
    if (args->socket && !verb->of_daemon)
        return qr_fail(error, QUIRE_INVALID, "--socket", QR_NO_OFFSET, "'%s' reads the folder itself: give --disk-cache DIR",
                       verb->name);
    if (!verb->of_daemon && !args->folder) args->folder = environment("QUIRE_DISK_CACHE");
    if (!verb->of_daemon && !args->folder)
        return qr_fail(error, QUIRE_INVALID, NULL, QR_NO_OFFSET, "no folder: give --disk-cache DIR or set QUIRE_DISK_CACHE");
    if (args->folder) return QUIRE_OK;
    if (!args->socket) args->socket = environment("QUIRE_SOCKET");
    if (args->socket) return QUIRE_OK;
    args->socket = socket;
    return qr_socket_path_default(socket, PATH_BYTES, error);
}

int qr_command_cache(int argc, char **argv) {
    static const struct argp argp = {.options = cache_options,
                                     .parser = cache_option,
                                     .args_doc = "ls|stat|verify|flush|clear",
                                     .doc = "Look into a cache on disk, and manage it.\v"
                                            "ls      what lies in a folder: segments, and blocks by namespace\n"
                                            "stat    the sums; without --disk-cache those of a running daemon\n"
                                            "verify  read every record and its checksums; 1 when one does not hold\n"
                                            "flush   have a running daemon write what is cached and not on disk yet\n"
                                            "clear   forget everything, or what belongs to one salt\n\n"
                                            "ls, stat and verify change nothing and may be used while a daemon runs.\n"
                                            "A segment file has its full size from its first block on."};
    char socket[PATH_BYTES];
    quire_error error;
    cache_args args = {.timeout_s = -1};
    qr_command_line_parse(&argp, argc, argv, &args);
    qr_error_clear(&error);
    const cache_verb *verb = find_verb(args.verb);
    if (choose_place(verb, &args, socket, &error) != QUIRE_OK) return fail(&error);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int code = verb->run(&args, &error);
    curl_global_cleanup();
    return code;
}
