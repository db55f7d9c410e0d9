/* serve.c - puts the daemon together: socket first, then the model, then the engine.
 *
 * Threads: the caller becomes the loop thread; a loader opens the model and attaches the engine. They meet in `gate`: once
 * the loop has ended the loader attaches nothing more.
 */
#include "runtime/cli/serve.h"

#include <argp.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/cli/cache_folder.h"
#include "runtime/cli/command_line.h"
#include "runtime/cli/pool_sizing.h"
#include "runtime/cli/settings.h"
#include "runtime/cli/socket_path.h"
#include "runtime/cli/start_screen.h"
#include "runtime/cli/terminal.h"
#include "runtime/server/server.h"

enum { PATH_BYTES = 512 };

typedef struct daemon_state {
    const qr_kv_parts *parts; /* what the engine is made over */
    qr_settings settings;
    char socket[PATH_BYTES];
    qr_log log;
    qr_server *server;
    quire_model *model;
    quire_engine *engine;
    pthread_mutex_t gate;
    bool loop_over; /* under gate */
    bool failed;    /* under gate: loading failed, `error` says why; not when it was given up because the loop is over */
    quire_error error;
} daemon_state;

/* ---- loading ---- */

static uint64_t host_joining(const daemon_state *d) { return qr_pool_sizing_joining(&d->settings, d->parts); }

static void daemon_show(const daemon_state *d, const quire_engine_config *config, const qr_sizing *sizing, uint64_t load_ms) {
    qr_cpu_features features;
    qr_cpu_features_detect(&features);
    printf("quire %s\n", QR_VERSION);
    qr_start_screen_print(stdout, d->model, config, sizing);
    quire_engine_stats stats;
    quire_engine_get_stats(d->engine, &stats);
    qr_start_screen_print_tiers(stdout, config, &stats);
    printf("  %-14s%s on %s, %u cores\n", "CPU path", quire_engine_cpu_path(d->engine), features.model, qr_cpu_count());
    if (d->settings.socket) printf("  %-14s%s\n", "socket", d->settings.socket);
    if (d->settings.listen) printf("  %-14s%s\n", "listening", d->settings.listen);
    printf("  %-14s%" PRIu64 " ms\n", "loaded in", load_ms);
    fflush(stdout);
}

/* Asked while a cache on disk is read, which may take long. */
static bool daemon_is_over(void *context) {
    daemon_state *d = context;
    pthread_mutex_lock(&d->gate);
    bool over = d->loop_over;
    pthread_mutex_unlock(&d->gate);
    return over;
}

static quire_status daemon_load(daemon_state *d) {
    quire_engine_config config;
    qr_sizing sizing;
    uint64_t begin_ms = qr_clock_us() / 1000;
    quire_model_options options = {.cpu_path = d->settings.cpu_path, .thread_count = (int)d->settings.threads};
    char fingerprints[PATH_BYTES];
    if (qr_cache_folder("fingerprints", fingerprints, sizeof fingerprints)) options.fingerprint_folder = fingerprints;
    quire_status status = quire_model_open(d->settings.model, &options, &d->model, &d->error);
    if (status == QUIRE_OK)
        status = qr_pool_sizing_resolve(d->model, &d->settings, UINT64_MAX, host_joining(d), &config, &sizing, &d->error);
    if (status != QUIRE_OK) return status;
    config.wake = qr_server_wake;
    config.wake_context = d->server;
    config.cancelled = daemon_is_over;
    config.cancelled_context = d;
    status =
        qr_engine_create_over(&config, d->parts, d->settings.host_cache - host_joining(d), d->model, &d->engine, &d->error);
    if (status == QUIRE_OK) daemon_show(d, &config, &sizing, qr_clock_us() / 1000 - begin_ms);
    return status;
}

static void *daemon_loader(void *context) {
    daemon_state *d = context;
    quire_status status = daemon_load(d);
    bool given_up = status == QUIRE_CANCELLED;
    if (status != QUIRE_OK && !given_up) {
        qr_pool_sizing_name_source(&d->settings, host_joining(d), &d->error);
        qr_log_error(&d->log, "load_failed", QR_STR("source", d->error.source), QR_STR("text", d->error.text));
    }
    pthread_mutex_lock(&d->gate);
    d->failed = status != QUIRE_OK && !given_up;
    if (!d->loop_over && status == QUIRE_OK) qr_server_attach(d->server, d->engine, d->model);
    if (!d->loop_over && d->failed) qr_server_fail(d->server, status);
    pthread_mutex_unlock(&d->gate);
    return NULL;
}

/* Only the loop takes signals: SIGTERM drains, SIGPIPE is a failed write like any other. */
static int daemon_start_loader(daemon_state *d, pthread_t *loader) {
    sigset_t all, before;
    sigfillset(&all);
    signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(loader, NULL, daemon_loader, d);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) (void)qr_fail(&d->error, QUIRE_IO, NULL, QR_NO_OFFSET, "cannot start a thread: %s", strerror(failed));
    return failed;
}

/* ---- running ---- */

static quire_status daemon_open(daemon_state *d) {
    const qr_settings *s = &d->settings;
    qr_server_config config = {
        .socket_path = s->socket,
        .socket_mode = (unsigned)s->socket_mode,
        .listen = s->listen,
        .api_key_file = s->api_key_file,
        .max_body_bytes = s->max_body,
        .max_connections = (uint32_t)s->max_connections,
        .drain_ms = (uint32_t)s->drain_seconds * 1000,
        .hibernate_ms = (uint32_t)s->hibernate_seconds * 1000,
        .namespace_by_uid = s->namespace_by_uid,
        .metrics_vllm = s->metrics_compat == 1,
        .version = QR_VERSION,
        .log = &d->log,
    };
    return qr_server_create(&config, &d->server, &d->error);
}

/* At shutdown every structure is checked, in every build. */
static quire_status daemon_close(daemon_state *d) {
    quire_status status = d->engine && !d->failed ? quire_engine_check(d->engine, &d->error) : QUIRE_OK;
    quire_engine_destroy(d->engine);
    qr_server_destroy(d->server);
    quire_model_close(d->model);
    pthread_mutex_destroy(&d->gate);
    return status;
}

static int daemon_run(daemon_state *d) {
    pthread_t loader;
    if (daemon_open(d) != QUIRE_OK) return qr_terminal_fail("serve", &d->error);
    pthread_mutex_init(&d->gate, NULL);
    if (daemon_start_loader(d, &loader) != 0) {
        (void)daemon_close(d);
        return qr_terminal_fail("serve", &d->error);
    }
    quire_status drained = qr_server_run(d->server);
    pthread_mutex_lock(&d->gate);
    d->loop_over = true;
    pthread_mutex_unlock(&d->gate);
    pthread_join(loader, NULL);
    bool failed = d->failed;
    if (daemon_close(d) != QUIRE_OK || failed) return qr_terminal_fail("serve", &d->error);
    return drained == QUIRE_OK ? 0 : 1; /* 1: answers were cut off, by the limit or a second signal */
}

/* ---- arguments ---- */

static error_t serve_option(int key, char *argument, struct argp_state *state) {
    if (key == ARGP_KEY_INIT) state->child_inputs[0] = state->input;
    else if (key == ARGP_KEY_ARG) argp_error(state, "unexpected argument '%s' (the model is named by --model)", argument);
    else return ARGP_ERR_UNKNOWN;
    return 0;
}

static quire_status serve_settings(qr_settings_parser *parser, daemon_state *d) {
    quire_status status = qr_settings_resolve(parser, &d->settings, &d->error);
    if (status == QUIRE_OK) status = qr_settings_check(&d->settings, &d->error);
    if (status != QUIRE_OK) return status;
    if (!d->settings.model)
        return qr_fail(&d->error, QUIRE_INVALID, NULL, QR_NO_OFFSET, "no model: give --model FILE or set QUIRE_MODEL");
    d->log = (qr_log){STDERR_FILENO, (qr_log_level)d->settings.log_level};
    if (d->settings.socket) return QUIRE_OK;
    status = qr_socket_path_default(d->socket, sizeof d->socket, &d->error);
    d->settings.socket = d->socket;
    return status;
}

int qr_command_serve(int argc, char **argv, const qr_kv_parts *parts) {
    qr_settings_parser parser;
    qr_settings_parser_init(&parser, QR_SETTINGS_ENGINE | QR_SETTINGS_DAEMON);
    struct argp argp = {
        .parser = serve_option,
        .doc = "Serve a model over a Unix socket with the OpenAI API.\v"
               "SIGTERM drains: running answers finish, new requests get 503. With --disk-cache what is cached is written "
               "then, for --hibernate-seconds at most. A second signal ends at once.",
        .children = parser.children};
    qr_command_line_parse(&argp, argc, argv, &parser);
    daemon_state d = {.parts = parts};
    int code = serve_settings(&parser, &d) == QUIRE_OK ? daemon_run(&d) : qr_terminal_fail("serve", &d.error);
    qr_settings_parser_deinit(&parser);
    return code;
}
