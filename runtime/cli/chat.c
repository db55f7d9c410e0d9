/* chat.c - the conversation: what is typed, what is asked of the daemon, what is shown. */
#include "runtime/cli/chat.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/cli/chat_client.h"
#include "runtime/cli/chat_options.h"
#include "runtime/cli/chat_session.h"
#include "runtime/cli/line_reader.h"
#include "runtime/cli/socket_path.h"
#include "runtime/cli/terminal.h"

enum { LOADING_POLL_MS = 200 };

typedef struct chat_state {
    qr_chat_options options;
    char socket[512], model[128];
    int64_t context_tokens; /* 0: the server does not say */
    int interrupt_fd;
    qr_chat_client *client;
    qr_chat_session session;
    /* of this sitting */
    int64_t answers, prompt_tokens, cached_tokens, completion_tokens;
    quire_error error;
} chat_state;

/* ---- one question ---- */

static void show_text(void *context, const char *text, size_t size) {
    (void)context;
    qr_terminal_write(stdout, text, size);
    fflush(stdout);
}

static void set_number(json_t *body, const char *name, double value, double neutral) {
    if (value != neutral) json_object_set_new(body, name, json_real(value));
}

/* Only what differs from the API's defaults is sent. */
static json_t *request_body(const chat_state *c) {
    const quire_sampling *s = &c->options.answer.sampling;
    json_t *body = json_pack("{s:s, s:O, s:b, s:{s:b}}", "model", c->model, "messages", c->session.messages, "stream", 1,
                             "stream_options", "include_usage", 1);
    if (!body) return NULL;
    set_number(body, "temperature", s->temperature, 1);
    set_number(body, "top_p", s->top_p, 1);
    set_number(body, "min_p", s->min_p, 0);
    set_number(body, "repetition_penalty", s->repetition_penalty, 1);
    set_number(body, "presence_penalty", s->presence_penalty, 0);
    set_number(body, "frequency_penalty", s->frequency_penalty, 0);
    if (s->top_k) json_object_set_new(body, "top_k", json_integer(s->top_k));
    if (s->seeded) json_object_set_new(body, "seed", json_integer((json_int_t)s->seed));
    if (c->options.answer.max_tokens) json_object_set_new(body, "max_tokens", json_integer(c->options.answer.max_tokens));
    if (c->options.salt) json_object_set_new(body, "cache_salt", json_string(c->options.salt));
    return body;
}

static void show_status(const chat_state *c, const qr_chat_reply *reply) {
    char context[64] = "";
    if (reply->interrupted) {
        qr_terminal_note(stdout, "stopped");
        return;
    }
    if (c->context_tokens > 0)
        snprintf(context, sizeof context, ", context %.0f %% of %" PRId64,
                 100.0 * (double)(reply->prompt_tokens + reply->completion_tokens) / (double)c->context_tokens,
                 c->context_tokens);
    qr_terminal_note(stdout,
                     "first token %.0f ms, %.1f tokens/s, %" PRId64 " prompt tokens of which %" PRId64 " cached, %" PRId64
                     " answered (%s)%s",
                     reply->first_ms, reply->tokens_per_second, reply->prompt_tokens, reply->cached_tokens,
                     reply->completion_tokens, reply->finish, context);
}

static void count_reply(chat_state *c, const qr_chat_reply *reply) {
    c->answers++;
    if (reply->prompt_tokens < 0) return;
    c->prompt_tokens += reply->prompt_tokens;
    c->cached_tokens += reply->cached_tokens;
    c->completion_tokens += reply->completion_tokens;
}

/* What was said stays in the conversation, also when it was stopped; a question without any answer leaves it. */
static quire_status keep_reply(chat_state *c, const qr_chat_reply *reply, quire_status status) {
    if (status == QUIRE_OK && (reply->size || !reply->interrupted))
        return qr_chat_session_add(&c->session, "assistant", reply->size ? reply->text : "", reply->size);
    qr_chat_session_drop_last(&c->session);
    return status;
}

static quire_status chat_ask(chat_state *c, const char *question) {
    qr_chat_reply reply;
    quire_status status = qr_chat_session_add(&c->session, "user", question, strlen(question));
    if (status != QUIRE_OK) return qr_fail(&c->error, status, NULL, QR_NO_OFFSET, "the question is not valid UTF-8");
    json_t *body = request_body(c);
    if (!body) return qr_fail(&c->error, QUIRE_NO_MEMORY, NULL, QR_NO_OFFSET, "no memory for the request");
    status = qr_chat_client_stream(c->client, body, show_text, NULL, &reply, &c->error);
    json_decref(body);
    (void)qr_interrupt_take(c->interrupt_fd);
    if (reply.size || status == QUIRE_OK) fputc('\n', stdout);
    if (status == QUIRE_OK) show_status(c, &reply);
    if (status == QUIRE_OK) count_reply(c, &reply);
    status = keep_reply(c, &reply, status);
    qr_chat_reply_deinit(&reply);
    return status;
}

/* ---- commands ---- */

static void show_error(const chat_state *c) { (void)qr_terminal_fail("chat", &c->error); }

static void command_system(chat_state *c, const char *text) {
    if (*text) {
        if (qr_chat_session_set_system(&c->session, strcmp(text, "-") == 0 ? NULL : text) != QUIRE_OK) {
            qr_terminal_note(stdout, "the text is not valid UTF-8");
            return;
        }
        if (qr_chat_session_count(&c->session) > 1) qr_terminal_note(stdout, "the next answer reads the conversation anew");
    }
    const char *system = qr_chat_session_system(&c->session);
    qr_terminal_note(stdout, "system message: %s", system ? system : "(none)");
}

static void command_reset(chat_state *c, const char *text) {
    (void)text;
    qr_chat_session_reset(&c->session);
    qr_terminal_note(stdout, "a new conversation");
}

static void command_save(chat_state *c, const char *path) {
    if (!*path) qr_terminal_note(stdout, "/save FILE");
    else if (qr_chat_session_save(&c->session, c->model, path, &c->error) != QUIRE_OK) show_error(c);
    else qr_terminal_note(stdout, "saved %zu messages in %s", qr_chat_session_count(&c->session), path);
}

static void command_load(chat_state *c, const char *path) {
    if (!*path) qr_terminal_note(stdout, "/load FILE");
    else if (qr_chat_session_load(&c->session, path, &c->error) != QUIRE_OK) show_error(c);
    else qr_terminal_note(stdout, "%zu messages from %s", qr_chat_session_count(&c->session), path);
}

/* The daemon's memory ledger as lines `name value`. */
static void show_ledger(const json_t *ledger, const char *prefix) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)ledger, key, value) {
        char name[160];
        snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (json_is_object(value)) show_ledger(value, name);
        else if (json_is_integer(value))
            qr_terminal_note(stdout, "  %-40s %" JSON_INTEGER_FORMAT, name, json_integer_value(value));
        else if (json_is_real(value)) qr_terminal_note(stdout, "  %-40s %.3f", name, json_real_value(value));
    }
}

static void command_stats(chat_state *c, const char *text) {
    json_t *ledger = NULL;
    long code = 0;
    (void)text;
    qr_terminal_note(stdout,
                     "%" PRId64 " answers, %" PRId64 " prompt tokens of which %" PRId64 " cached, %" PRId64 " tokens answered",
                     c->answers, c->prompt_tokens, c->cached_tokens, c->completion_tokens);
    if (qr_chat_client_call(c->client, "/v1/kv", NULL, &ledger, &code, &c->error) != QUIRE_OK) show_error(c);
    else if (code == 200) show_ledger(ledger, "");
    json_decref(ledger);
}

static void command_help(chat_state *c, const char *text);

typedef struct chat_command {
    const char *name, *arguments, *help;
    void (*run)(chat_state *c, const char *text);
} chat_command;

static const chat_command commands[] = {
    {"/system", "[TEXT]", "set the system message (- takes it away), or show it", command_system},
    {"/reset", "", "begin a new conversation; the system message stays", command_reset},
    {"/save", "FILE", "save the conversation", command_save},
    {"/load", "FILE", "go on with a saved one", command_load},
    {"/stats", "", "what this sitting used, and the daemon's memory", command_stats},
    {"/help", "", "this list", command_help},
    {"/quit", "", "end (also Ctrl-D)", NULL},
};

static void command_help(chat_state *c, const char *text) {
    (void)c, (void)text;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char form[32];
        snprintf(form, sizeof form, "%s %s", commands[i].name, commands[i].arguments);
        qr_terminal_note(stdout, "  %-16s%s", form, commands[i].help);
    }
}

/* False: the user wants to end. */
static bool chat_command_run(chat_state *c, const char *line) {
    size_t size = strcspn(line, " \t");
    const char *text = line + size + strspn(line + size, " \t");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strlen(commands[i].name) != size || strncmp(line, commands[i].name, size) != 0) continue;
        if (commands[i].run) commands[i].run(c, text);
        return commands[i].run != NULL;
    }
    qr_terminal_note(stdout, "no such command; /help lists them");
    return true;
}

/* ---- starting ---- */

/* Waits while the daemon loads its model. */
static quire_status chat_wait_ready(chat_state *c) {
    uint64_t end_us = qr_clock_us() + (uint64_t)c->options.wait_seconds * 1000000;
    bool told = false;
    for (;;) {
        json_t *reply = NULL;
        long code = 0;
        quire_status status = qr_chat_client_call(c->client, "/health", NULL, &reply, &code, &c->error);
        json_decref(reply);
        if (status != QUIRE_OK || code == 200) return status;
        if (code != 503) return qr_fail(&c->error, QUIRE_IO, c->socket, QR_NO_OFFSET, "/health answers %ld", code);
        if (qr_clock_us() >= end_us) return qr_fail(&c->error, QUIRE_TIMED_OUT, c->socket, QR_NO_OFFSET, "is not ready");
        if (!told) qr_terminal_note(stderr, "the daemon is loading its model");
        told = true;
        struct pollfd stop = {c->interrupt_fd, POLLIN, 0};
        if (poll(&stop, 1, LOADING_POLL_MS) > 0) return qr_fail(&c->error, QUIRE_CANCELLED, NULL, QR_NO_OFFSET, "stopped");
    }
}

static quire_status chat_read_model(chat_state *c) {
    json_t *reply = NULL;
    long code = 0;
    quire_status status = qr_chat_client_call(c->client, "/v1/models", NULL, &reply, &code, &c->error);
    if (status == QUIRE_OK && code != 200) {
        const char *message = qr_chat_error_message(reply);
        status = qr_fail(&c->error, QUIRE_IO, "/v1/models", QR_NO_OFFSET, "answers %ld%s%s", code, message ? ": " : "",
                         message ? message : "");
    }
    if (status == QUIRE_OK) {
        const json_t *model = json_array_get(json_object_get(reply, "data"), 0);
        const char *id = json_string_value(json_object_get(model, "id"));
        qr_text_sanitize(c->model, sizeof c->model, id ? id : "model", id ? strlen(id) : 5);
        c->context_tokens = json_integer_value(json_object_get(model, "max_model_len"));
    }
    json_decref(reply);
    return status;
}

/* A base model has no chat template: then a chat would only be pretended, and the daemon says so here. */
static quire_status chat_check_template(chat_state *c) {
    json_t *reply = NULL, *body = json_pack("{s:[{s:s, s:s}]}", "messages", "role", "user", "content", "?");
    long code = 0;
    quire_status status = qr_chat_client_call(c->client, "/apply-template", body, &reply, &code, &c->error);
    json_decref(body);
    const char *message = qr_chat_error_message(reply);
    if (status == QUIRE_OK && code == 400)
        status = qr_fail(&c->error, QUIRE_UNSUPPORTED, c->model, QR_NO_OFFSET,
                         "cannot chat: %s. `quire run --raw` continues a text with it", message ? message : "no chat template");
    json_decref(reply);
    return status;
}

static quire_status chat_open(chat_state *c) {
    quire_status status = QUIRE_OK;
    if (c->options.socket) snprintf(c->socket, sizeof c->socket, "%s", c->options.socket);
    else status = qr_socket_path_default(c->socket, sizeof c->socket, &c->error);
    if (status == QUIRE_OK && qr_chat_session_init(&c->session) != QUIRE_OK)
        status = qr_fail(&c->error, QUIRE_NO_MEMORY, NULL, QR_NO_OFFSET, "no memory");
    if (status == QUIRE_OK)
        status = qr_chat_client_create(c->socket, c->options.api_key_file, c->interrupt_fd, &c->client, &c->error);
    if (status == QUIRE_OK) status = chat_wait_ready(c);
    if (status == QUIRE_OK) status = chat_read_model(c);
    if (status == QUIRE_OK) status = chat_check_template(c);
    if (status == QUIRE_OK && c->options.load) status = qr_chat_session_load(&c->session, c->options.load, &c->error);
    if (status == QUIRE_OK && c->options.answer.system &&
        qr_chat_session_set_system(&c->session, c->options.answer.system) != QUIRE_OK)
        status = qr_fail(&c->error, QUIRE_INVALID, "--system", QR_NO_OFFSET, "is not valid UTF-8");
    return status;
}

/* ---- the two forms ---- */

static int chat_asks(chat_state *c) {
    for (int i = 0; i < c->options.ask_count; i++) {
        printf("%s> ", i ? "\n" : "");
        qr_terminal_write(stdout, c->options.asks[i], strlen(c->options.asks[i]));
        fputc('\n', stdout);
        if (chat_ask(c, c->options.asks[i]) != QUIRE_OK) return qr_terminal_fail("chat", &c->error);
    }
    return 0;
}

static void chat_line(chat_state *c, const char *line, bool *going) {
    if (line[strspn(line, " \t\n")] == 0) return;
    if (*line == '/') *going = chat_command_run(c, line);
    else if (chat_ask(c, line) != QUIRE_OK) show_error(c);
}

static int chat_talk(chat_state *c) {
    qr_line_reader *reader;
    if (qr_line_reader_create("quire", c->interrupt_fd, &reader) != QUIRE_OK) return 1;
    qr_terminal_note(stdout, "%s; /help lists the commands", c->model);
    bool going = true;
    while (going) {
        const char *line;
        qr_line_result result = qr_line_reader_next(reader, &line);
        if (result == QR_LINE_END) break;
        if (result == QR_LINE_READ) chat_line(c, line, &going);
    }
    qr_line_reader_destroy(reader);
    return 0;
}

/* Characters are UTF-8 here whatever the environment says: that is what the API speaks. */
static void use_utf8(void) {
    if (setlocale(LC_CTYPE, "") && strcasecmp(nl_langinfo(CODESET), "UTF-8") == 0) return;
    setlocale(LC_CTYPE, "C.UTF-8");
}

int qr_command_chat(int argc, char **argv) {
    chat_state c = {0};
    qr_chat_options_parse(argc, argv, &c.options);
    qr_error_clear(&c.error);
    use_utf8();
    signal(SIGPIPE, SIG_IGN);
    c.interrupt_fd = qr_interrupt_open();
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int code = chat_open(&c) != QUIRE_OK ? qr_terminal_fail("chat", &c.error)
               : c.options.ask_count     ? chat_asks(&c)
                                         : chat_talk(&c);
    qr_chat_client_destroy(c.client);
    qr_chat_session_deinit(&c.session);
    curl_global_cleanup();
    if (c.interrupt_fd >= 0) close(c.interrupt_fd);
    return code;
}
