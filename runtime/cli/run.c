/* run.c - one request on an engine of its own.
 *
 * The engine's wake rings an eventfd; the main thread polls it together with the interrupt descriptor, so Ctrl-C cancels the
 * request and what was said so far stays on the screen. Before there is an engine it ends the reading of a cache on disk.
 */
#include "runtime/cli/run.h"

#include <argp.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/cli/cache_folder.h"
#include "runtime/cli/command_line.h"
#include "runtime/cli/input_text.h"
#include "runtime/cli/pool_sizing.h"
#include "runtime/cli/run_prompt.h"
#include "runtime/cli/sampling_options.h"
#include "runtime/cli/settings.h"
#include "runtime/cli/terminal.h"
#include "runtime/model/text_stream.h"

enum { KEY_RAW = 300, KEY_IGNORE_EOS, EVENTS_MAX = 16, REQUEST_ID = 1 };

typedef struct run_args {
    qr_settings_parser parser;
    qr_sampling_options answer;
    const qr_kv_parts *parts; /* what the engine is made over */
    const char *prompt;
    bool raw, ignore_eos;
} run_args;

typedef struct run_state {
    const run_args *args;
    qr_settings settings;
    quire_model *model;
    quire_engine *engine;
    qr_text_stream *text;
    qr_token_buffer prompt;
    int wake_fd, interrupt_fd;
    uint64_t begin_us, first_us;
    bool over;
    bool interrupted; /* once and for good */
    quire_event done;
    quire_error error;
} run_state;

/* Asked while a cache on disk is read, which may take long. */
static bool run_is_interrupted(void *context) {
    run_state *r = context;
    if (qr_interrupt_take(r->interrupt_fd)) r->interrupted = true;
    return r->interrupted;
}

/* ---- the answer ---- */

static void show(qr_text text) {
    qr_terminal_write(stdout, text.data, text.size);
    fflush(stdout);
}

static void run_take(run_state *r, const quire_event *event) {
    qr_text text;
    switch (event->kind) {
    case QUIRE_EVENT_TOKEN:
        if (!r->first_us) r->first_us = qr_clock_us();
        if (event->is_end) return;
        (void)qr_text_stream_push(r->text, event->token, &text); /* no stop strings: never says stop */
        show(text);
        return;
    case QUIRE_EVENT_CHOICE_DONE:
        qr_text_stream_finish(r->text, &text);
        show(text);
        return;
    case QUIRE_EVENT_DONE:
        r->done = *event;
        r->over = true;
        return;
    case QUIRE_EVENT_STARTED:
    case QUIRE_EVENT_PROGRESS:
    case QUIRE_EVENT_PROMPT_TOKEN: return;
    }
}

static void run_wait(run_state *r) {
    struct pollfd fds[2] = {{r->wake_fd, POLLIN, 0}, {r->interrupt_fd, POLLIN, 0}};
    uint64_t rung;
    (void)poll(fds, 2, -1);
    if (fds[0].revents && read(r->wake_fd, &rung, sizeof rung) < 0) return; /* taken by nobody else: cannot fail but EAGAIN */
    if (!qr_interrupt_take(r->interrupt_fd)) return;
    r->interrupted = true;
    quire_engine_cancel(r->engine, REQUEST_ID);
}

static void run_follow(run_state *r) {
    quire_event events[EVENTS_MAX];
    while (!r->over) {
        size_t count = quire_engine_poll(r->engine, events, EVENTS_MAX);
        for (size_t i = 0; i < count; i++) run_take(r, &events[i]);
        if (count == 0) run_wait(r);
    }
}

static void run_report(const run_state *r) {
    double ttft_ms = r->first_us ? (double)(r->first_us - r->begin_us) / 1000 : 0, decode_s = (double)r->done.decode_us / 1e6;
    uint32_t said = r->done.completion_tokens;
    qr_terminal_note(stderr,
                     "%s%" PRIu32 " prompt tokens of which %" PRIu32 " cached, first token after %.0f ms, %" PRIu32
                     " tokens at %.1f/s",
                     r->interrupted ? "stopped; " : "", r->done.prompt_tokens, r->done.match.token_count, ttft_ms, said,
                     decode_s > 0 && said > 1 ? (said - 1) / decode_s : 0.0);
}

/* What was computed is on disk for the next one. Ctrl-C gives up what is left. */
static void run_hibernate(run_state *r) {
    enum { LOOK_US = 2000 };
    quire_engine_stats stats;
    quire_engine_get_stats(r->engine, &stats);
    if (!stats.tiers.tiers[QUIRE_KV_TIER_DISK].present || r->settings.hibernate_seconds == 0) return;
    uint64_t before = stats.flushes_total, end_us = qr_clock_us() + r->settings.hibernate_seconds * 1000000;
    quire_engine_flush(r->engine);
    do {
        usleep(LOOK_US);
        quire_engine_get_stats(r->engine, &stats);
    } while ((stats.flushes_total == before || stats.flush_left) && qr_clock_us() < end_us &&
             !qr_interrupt_take(r->interrupt_fd));
    quire_engine_stop_flush(r->engine);
}

/* ---- setting up ---- */

static void run_wake(void *context) {
    uint64_t one = 1;
    ssize_t written = write(((run_state *)context)->wake_fd, &one, sizeof one);
    (void)written; /* fails only when the counter is full: then the reader wakes anyway */
}

static uint32_t run_max_tokens(const run_state *r, uint32_t context) {
    uint32_t room = context > r->prompt.count ? context - (uint32_t)r->prompt.count : 1;
    uint32_t wanted = r->args->answer.max_tokens;
    return wanted && wanted < room ? wanted : room;
}

/* One conversation: unless told otherwise, the pool holds this prompt and its answer and no more. */
static quire_status run_size(const run_state *r, qr_settings *s, quire_error *error) {
    enum { ANSWER_TOKENS_DEFAULT = 1024 };
    uint64_t model_context = quire_model_get_info(r->model)->context_length;
    uint64_t answer = r->args->answer.max_tokens ? r->args->answer.max_tokens : ANSWER_TOKENS_DEFAULT;
    uint64_t wanted = r->prompt.count + answer;
    if (s->context == 0) s->context = wanted < model_context ? wanted : model_context;
    if (r->prompt.count >= s->context)
        return qr_fail(error, QUIRE_TOO_LARGE, "prompt", QR_NO_OFFSET, "%zu tokens leave no room in a context of %" PRIu64,
                       r->prompt.count, s->context);
    if (!s->kv_memory && !s->kv_blocks) s->kv_blocks = s->context / s->block_tokens + 2;
    if (s->max_sequences == 0) s->max_sequences = 1;
    return QUIRE_OK;
}

static quire_status run_engine(run_state *r) {
    quire_engine_config config;
    qr_sizing sizing;
    qr_settings settings = r->settings;
    uint64_t joining = qr_pool_sizing_joining(&settings, r->args->parts);
    quire_status status = run_size(r, &settings, &r->error);
    if (status == QUIRE_OK)
        status = qr_pool_sizing_resolve(r->model, &settings, UINT64_MAX, joining, &config, &sizing, &r->error);
    if (status != QUIRE_OK) return status;
    config.wake = run_wake;
    config.wake_context = r;
    config.cancelled = run_is_interrupted;
    config.cancelled_context = r;
    return qr_engine_create_over(&config, r->args->parts, settings.host_cache - joining, r->model, &r->engine, &r->error);
}

static quire_status run_submit(run_state *r) {
    quire_engine_stats stats;
    quire_engine_get_stats(r->engine, &stats);
    quire_request request = {
        .id = REQUEST_ID,
        .prompt = r->prompt.tokens,
        .prompt_count = (uint32_t)r->prompt.count,
        .choice_count = 1,
        .max_tokens = run_max_tokens(r, stats.context_tokens),
        .ignore_eos = r->args->ignore_eos,
        .top_logprobs = -1,
        .sampling = r->args->answer.sampling,
    };
    r->begin_us = qr_clock_us();
    quire_status status = quire_engine_submit(r->engine, &request, &r->error);
    if (status == QUIRE_OK && r->interrupted) quire_engine_cancel(r->engine, REQUEST_ID);
    return status;
}

static quire_status run_answer(run_state *r) {
    quire_status status = qr_text_stream_create(qr_model_tokenizer(r->model), NULL, false, &r->text);
    if (status != QUIRE_OK) return qr_fail(&r->error, status, NULL, QR_NO_OFFSET, "no memory for the answer's text");
    status = run_submit(r);
    if (status != QUIRE_OK) return status;
    run_follow(r);
    fputc('\n', stdout);
    fflush(stdout);
    if (r->done.finish == QUIRE_FINISH_ERROR)
        return qr_fail(&r->error, r->done.error, NULL, QR_NO_OFFSET, "%s", quire_status_message(r->done.error));
    run_report(r);
    return QUIRE_OK;
}

static quire_status run_open(run_state *r) {
    quire_status status = qr_settings_check(&r->settings, &r->error);
    if (status == QUIRE_OK && !r->settings.model)
        status = qr_fail(&r->error, QUIRE_INVALID, NULL, QR_NO_OFFSET, "no model: give --model FILE or set QUIRE_MODEL");
    quire_model_options options = {.cpu_path = r->settings.cpu_path, .thread_count = (int)r->settings.threads};
    char fingerprints[512];
    if (qr_cache_folder("fingerprints", fingerprints, sizeof fingerprints)) options.fingerprint_folder = fingerprints;
    return status == QUIRE_OK ? quire_model_open(r->settings.model, &options, &r->model, &r->error) : status;
}

static quire_status run_prompt(run_state *r) {
    char *input = NULL;
    qr_text prompt = {r->args->prompt, r->args->prompt ? strlen(r->args->prompt) : 0};
    quire_status status = QUIRE_OK;
    if (!prompt.data) {
        status = qr_input_text_read(stdin, &input, &prompt.size, &r->error);
        prompt.data = input;
    }
    if (status == QUIRE_OK && prompt.size == 0) status = qr_fail(&r->error, QUIRE_INVALID, "prompt", QR_NO_OFFSET, "is empty");
    if (status == QUIRE_OK)
        status = qr_run_prompt(r->model, r->args->raw, r->args->answer.system, prompt, &r->prompt, &r->error);
    if (status == QUIRE_OK && r->prompt.count == 0)
        status = qr_fail(&r->error, QUIRE_INVALID, "prompt", QR_NO_OFFSET, "is empty");
    free(input);
    return status;
}

static int run_all(const run_args *args, const qr_settings *settings) {
    run_state r = {.args = args, .settings = *settings, .wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    qr_error_clear(&r.error);
    r.interrupt_fd = qr_interrupt_open();
    quire_status status = run_open(&r);
    if (status == QUIRE_OK) status = run_prompt(&r);
    if (status == QUIRE_OK) status = run_engine(&r);
    if (status == QUIRE_OK) status = run_answer(&r);
    if (status == QUIRE_OK) run_hibernate(&r);
    quire_engine_destroy(r.engine);
    qr_text_stream_destroy(r.text);
    qr_token_buffer_deinit(&r.prompt);
    quire_model_close(r.model);
    close(r.wake_fd);
    close(r.interrupt_fd);
    if (status == QUIRE_OK) return 0;
    qr_pool_sizing_name_source(settings, qr_pool_sizing_joining(settings, args->parts), &r.error);
    return qr_terminal_fail("run", &r.error);
}

/* ---- arguments ---- */

static const struct argp_option run_options[] = {
    {"raw", KEY_RAW, NULL, 0, "Continue the text as it is, without the chat template", 0},
    {"ignore-eos", KEY_IGNORE_EOS, NULL, 0, "Go on past the model's end token, up to --max-tokens", 0},
    {0},
};

static error_t run_option(int key, char *argument, struct argp_state *state) {
    run_args *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->answer;
        state->child_inputs[1] = &args->parser;
        break;
    case KEY_RAW: args->raw = true; break;
    case KEY_IGNORE_EOS: args->ignore_eos = true; break;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0) argp_error(state, "one prompt, please: quote it");
        args->prompt = strcmp(argument, "-") == 0 ? NULL : argument;
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int qr_command_run(int argc, char **argv, const qr_kv_parts *parts) {
    run_args args = {.parts = parts};
    qr_settings settings;
    quire_error error;
    qr_sampling_options_init(&args.answer);
    qr_settings_parser_init(&args.parser, QR_SETTINGS_ENGINE);
    const struct argp_child children[] = {{&qr_sampling_argp, 0, "Answer:", 0}, args.parser.children[0], {0}};
    const struct argp argp = {.options = run_options,
                              .parser = run_option,
                              .args_doc = "[PROMPT]",
                              .doc = "Answer one prompt (standard input without PROMPT or with -), without a daemon.\v"
                                     "Ctrl-C stops the answer.",
                              .children = children};
    qr_command_line_parse(&argp, argc, argv, &args);
    int code = qr_settings_resolve(&args.parser, &settings, &error) == QUIRE_OK ? run_all(&args, &settings)
                                                                                : qr_terminal_fail("run", &error);
    qr_settings_parser_deinit(&args.parser);
    return code;
}
