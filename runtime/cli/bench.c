#include "runtime/cli/bench.h"

#include <argp.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/cli/bench_report.h"
#include "runtime/cli/command_line.h"
#include "runtime/cli/socket_path.h"

enum { KEY_BYTES_MAX = 512, SESSIONS_MAX = 4096 };

typedef struct bench_args {
    qr_bench_run run;
    char socket[256], keys[2][KEY_BYTES_MAX];
    const char *key_files[2];
    bool json;
} bench_args;

enum {
    OPT_AGAINST_URL = 1000,
    OPT_AGAINST_SOCKET,
    OPT_AGAINST_NAME,
    OPT_AGAINST_PID,
    OPT_AGAINST_KEY,
    OPT_NAME,
    OPT_PID,
    OPT_KEY,
    OPT_TURNS,
    OPT_SYSTEM,
    OPT_USER,
    OPT_MAX,
    OPT_ROUNDS,
    OPT_SEED,
    OPT_THINK,
    OPT_TIMEOUT,
    OPT_IGNORE_EOS,
    OPT_JSON
};

static const struct argp_option OPTIONS[] = {
    {0, 0, 0, 0, "Endpoint:", 1},
    {"socket", 's', "PATH", 0, "Unix socket of the server (default: $QUIRE_SOCKET, else the daemon's own)", 1},
    {"url", 'u', "URL", 0, "Base address, e.g. http://127.0.0.1:8080", 1},
    {"name", OPT_NAME, "NAME", 0, "Name in the report", 1},
    {"pid", OPT_PID, "PID", 0, "Process of the server, when it cannot be found by its socket", 1},
    {"api-key-file", OPT_KEY, "FILE", 0, "File with the API key", 1},
    {"model", 'm', "NAME", 0, "Value of the model field", 1},
    {0, 0, 0, 0, "Second endpoint, its rounds interleaved with the first's:", 2},
    {"against-socket", OPT_AGAINST_SOCKET, "PATH", 0, "Unix socket", 2},
    {"against-url", OPT_AGAINST_URL, "URL", 0, "Base address", 2},
    {"against-name", OPT_AGAINST_NAME, "NAME", 0, "Name in the report", 2},
    {"against-pid", OPT_AGAINST_PID, "PID", 0, "Process of the server", 2},
    {"against-api-key-file", OPT_AGAINST_KEY, "FILE", 0, "File with the API key", 2},
    {0, 0, 0, 0, "Load:", 3},
    {"sessions", 'n', "N", 0, "Concurrent sessions (8)", 3},
    {"turns", OPT_TURNS, "N", 0, "Turns of each session (4)", 3},
    {"system-tokens", OPT_SYSTEM, "N", 0, "Length of the shared system prompt, about (1000)", 3},
    {"user-tokens", OPT_USER, "N", 0, "Length of each user message, about (40)", 3},
    {"max-tokens", OPT_MAX, "N", 0, "Answer length at most (64)", 3},
    {"rounds", OPT_ROUNDS, "N", 0, "Rounds, each with a fresh system prompt (3)", 3},
    {"seed", OPT_SEED, "N", 0, "Seed of the texts (1)", 3},
    {"think-ms", OPT_THINK, "MS", 0, "Pause before each next turn (0)", 3},
    {"timeout", OPT_TIMEOUT, "S", 0, "Limit of one request (300)", 3},
    {"ignore-eos", OPT_IGNORE_EOS, 0, 0, "Answers run to --max-tokens: equal work on both sides", 3},
    {0, 0, 0, 0, "Output:", 4},
    {"json", OPT_JSON, 0, 0, "One JSON object instead of the table", 4},
    {0}};

static uint64_t number(struct argp_state *state, const char *text, const char *what, uint64_t low, uint64_t high) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end || end == text || text[0] == '-' || value < low || value > high)
        argp_error(state, "%s must be a number from %llu to %llu, not '%s'", what, (unsigned long long)low,
                   (unsigned long long)high, text);
    return value;
}

static void set_place(bench_args *args, int side, const char *url, const char *socket) {
    qr_bench_target *target = &args->run.sides[side].target;
    if (url) target->url = url;
    if (socket) target->socket_path = socket, target->url = "http://localhost";
    if (side == 1) args->run.side_count = 2;
}

static error_t parse_load(int key, char *value, struct argp_state *state, qr_bench_run *run) {
    qr_bench_shape *shape = &run->shape;
    switch (key) {
    case 'n': shape->session_count = (uint32_t)number(state, value, "--sessions", 1, SESSIONS_MAX); return 0;
    case OPT_TURNS: shape->turn_count = (uint32_t)number(state, value, "--turns", 1, 1000); return 0;
    case OPT_SYSTEM: shape->system_tokens = (uint32_t)number(state, value, "--system-tokens", 0, 1 << 20); return 0;
    case OPT_USER: shape->user_tokens = (uint32_t)number(state, value, "--user-tokens", 0, 1 << 20); return 0;
    case OPT_MAX: shape->max_tokens = (uint32_t)number(state, value, "--max-tokens", 1, 1 << 20); return 0;
    case OPT_ROUNDS: run->round_count = (uint32_t)number(state, value, "--rounds", 1, 10000); return 0;
    case OPT_SEED: shape->seed = number(state, value, "--seed", 0, INT64_MAX); return 0;
    case OPT_THINK: shape->think_ms = (uint32_t)number(state, value, "--think-ms", 0, 3600000); return 0;
    case OPT_TIMEOUT: shape->timeout_s = (uint32_t)number(state, value, "--timeout", 1, 86400); return 0;
    case OPT_IGNORE_EOS: shape->ignore_eos = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_option(int key, char *value, struct argp_state *state) {
    bench_args *args = state->input;
    qr_bench_side *sides = args->run.sides;
    switch (key) {
    case 's': set_place(args, 0, NULL, value); return 0;
    case 'u': set_place(args, 0, value, NULL); return 0;
    case OPT_AGAINST_SOCKET: set_place(args, 1, NULL, value); return 0;
    case OPT_AGAINST_URL: set_place(args, 1, value, NULL); return 0;
    case OPT_NAME: sides[0].target.name = value; return 0;
    case OPT_AGAINST_NAME: sides[1].target.name = value; return 0;
    case OPT_PID: sides[0].target.pid = (pid_t)number(state, value, "--pid", 1, INT32_MAX); return 0;
    case OPT_AGAINST_PID: sides[1].target.pid = (pid_t)number(state, value, "--against-pid", 1, INT32_MAX); return 0;
    case OPT_KEY: args->key_files[0] = value; return 0;
    case OPT_AGAINST_KEY: args->key_files[1] = value; return 0;
    case 'm': sides[0].target.model = sides[1].target.model = value; return 0;
    case OPT_JSON: args->json = true; return 0;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument '%s'", value); return EINVAL;
    default: return parse_load(key, value, state, &args->run);
    }
}

static bool read_key(const char *path, char *key) {
    FILE *file = fopen(path, "re");
    if (!file || !fgets(key, KEY_BYTES_MAX, file)) {
        fprintf(stderr, "quire bench: cannot read an API key from %s: %s\n", path,
                file ? "the file is empty" : strerror(errno));
        if (file) fclose(file);
        return false;
    }
    fclose(file);
    key[strcspn(key, "\r\n")] = '\0';
    return true;
}

static unsigned port_of(const char *url) {
    const char *host = strstr(url, "://"), *colon = strrchr(host ? host + 3 : url, ':');
    return colon ? (unsigned)atoi(colon + 1) : 80;
}

static pid_t find_pid(const qr_bench_target *target) {
    if (target->pid) return target->pid;
    if (target->socket_path) return qr_bench_pid_of_socket(target->socket_path);
    bool local = strstr(target->url, "127.0.0.1") || strstr(target->url, "localhost") || strstr(target->url, "[::1]");
    return local ? qr_bench_pid_of_port(port_of(target->url)) : 0;
}

static bool prepare(bench_args *args) {
    quire_error error;
    const char *named = getenv("QUIRE_SOCKET");
    if (!args->run.sides[0].target.url && named && *named) set_place(args, 0, NULL, named);
    if (!args->run.sides[0].target.url) {
        if (qr_socket_path_default(args->socket, sizeof args->socket, &error) != QUIRE_OK) {
            fprintf(stderr, "quire bench: %s: %s\n", error.source, error.text);
            return false;
        }
        set_place(args, 0, NULL, args->socket);
    }
    for (int i = 0; i < args->run.side_count; i++) {
        if (!args->key_files[i]) continue;
        if (!read_key(args->key_files[i], args->keys[i])) return false;
        args->run.sides[i].target.api_key = args->keys[i];
    }
    return true;
}

/* With nobody there, further rounds and a table of nothing would say no more. */
static quire_status check_answers(const qr_bench_side *side, quire_error *error) {
    const qr_bench_result *r = &side->result;
    if (r->requests == 0 || r->failures < r->requests) return QUIRE_OK;
    const char *place = side->target.socket_path ? side->target.socket_path : side->target.url;
    return qr_fail(error, QUIRE_IO, place, QR_NO_OFFSET, "%s: none of %llu requests was answered: %s", place,
                   (unsigned long long)r->requests, r->first_failure);
}

static quire_status run_rounds(qr_bench_run *run, quire_error *error) {
    for (uint32_t round = 0; round < run->round_count; round++)
        for (int i = 0; i < run->side_count; i++) {
            int side = round % 2 ? run->side_count - 1 - i : i; /* neither side is always first */
            quire_status status = qr_bench_round(&run->sides[side].target, &run->shape, round, &run->sides[side].result, error);
            if (status == QUIRE_OK) status = check_answers(&run->sides[side], error);
            if (status != QUIRE_OK) return status;
        }
    return QUIRE_OK;
}

static bool report(bench_args *args) {
    for (int i = 0; i < args->run.side_count; i++)
        qr_bench_read_facts(find_pid(&args->run.sides[i].target), &args->run.sides[i].facts);
    if (args->json) return qr_bench_print_json(stdout, &args->run);
    qr_bench_print_table(stdout, &args->run);
    return true;
}

int qr_command_bench(int argc, char **argv) {
    bench_args args = {.run = {.shape = {.session_count = 8,
                                         .turn_count = 4,
                                         .system_tokens = 1000,
                                         .user_tokens = 40,
                                         .max_tokens = 64,
                                         .timeout_s = 300,
                                         .seed = 1},
                               .round_count = 3,
                               .side_count = 1}};
    args.run.sides[0].target = (qr_bench_target){.name = "server", .model = "default"};
    args.run.sides[1].target = (qr_bench_target){.name = "against", .model = "default"};
    const struct argp parser = {
        OPTIONS,
        parse_option,
        NULL,
        "Measures an OpenAI-compatible server as its clients see it: multi-turn sessions behind a shared "
        "system prompt. With a second endpoint the rounds of both are interleaved and ratios are printed.",
        NULL,
        NULL,
        NULL};
    if (qr_command_line_parse(&parser, argc, argv, &args) != 0 || !prepare(&args)) return 2;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0) return 1;
    quire_error error = {0};
    int code = 0;
    if (run_rounds(&args.run, &error) != QUIRE_OK) {
        fprintf(stderr, "quire bench: %s\n", error.text);
        code = 1;
    } else if (!report(&args) || args.run.sides[0].result.failures || args.run.sides[1].result.failures) {
        code = 1;
    }
    for (int i = 0; i < 2; i++) qr_bench_result_deinit(&args.run.sides[i].result);
    curl_global_cleanup();
    return code;
}
