#include "runtime/cli/bench_load.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "runtime/cli/bench_text.h"
#include "runtime/cli/sse_parser.h"

enum { ERROR_BODY_BYTES = 200, POLL_MS = 100 };

typedef struct session {
    struct round *round;
    uint32_t index, turn;
    CURL *easy;
    char *body;
    json_t *messages;
    char *answer;
    size_t answer_size, answer_capacity;
    qr_sse_parser parser;
    uint64_t start_us, first_us, last_us, resume_us; /* resume: 0 = a request is running */
    bool finished, saw_done;
    char failure[ERROR_BODY_BYTES];
    json_int_t prompt_tokens, cached_tokens, completion_tokens;
} session;

typedef struct round {
    const qr_bench_target *target;
    const qr_bench_shape *shape;
    uint32_t number;
    CURLM *multi;
    struct curl_slist *headers;
    session *sessions;
    uint32_t running;
    qr_bench_result *result;
} round;

/* ---- what the server sends ---- */

static bool keep_answer(session *s, const char *text, size_t size) {
    if (s->answer_size + size + 1 > s->answer_capacity) {
        size_t grown = (s->answer_size + size + 1) * 2;
        char *moved = realloc(s->answer, grown);
        if (!moved) return false;
        s->answer = moved;
        s->answer_capacity = grown;
    }
    memcpy(s->answer + s->answer_size, text, size);
    s->answer_size += size;
    s->answer[s->answer_size] = '\0';
    return true;
}

static bool take_text(session *s, json_t *chunk) {
    json_t *delta = json_object_get(json_array_get(json_object_get(chunk, "choices"), 0), "delta");
    json_t *content = json_object_get(delta, "content");
    size_t size = json_string_length(content);
    if (!json_is_string(content) || size == 0) return true;
    uint64_t now = qr_clock_us();
    if (s->first_us == 0) s->first_us = now;
    else if (!qr_series_push(&s->round->result->inter_token_ms, (double)(now - s->last_us) / 1e3)) return false;
    s->last_us = now;
    return keep_answer(s, json_string_value(content), size);
}

static void take_usage(session *s, json_t *chunk) {
    json_t *usage = json_object_get(chunk, "usage"), *cached = NULL;
    if (json_is_object(usage)) {
        s->prompt_tokens = json_integer_value(json_object_get(usage, "prompt_tokens"));
        s->completion_tokens = json_integer_value(json_object_get(usage, "completion_tokens"));
        cached = json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    }
    if (!json_is_integer(cached)) cached = json_object_get(json_object_get(chunk, "timings"), "cache_n");
    if (json_is_integer(cached)) s->cached_tokens = json_integer_value(cached);
}

static void fail(session *s, const char *what) {
    if (!s->failure[0]) snprintf(s->failure, sizeof s->failure, "%s", what);
}

static bool on_event(void *context, const char *data, size_t size) {
    session *s = context;
    if (strcmp(data, "[DONE]") == 0) {
        s->saw_done = true;
        return true;
    }
    json_error_t error;
    json_t *chunk = json_loadb(data, size, JSON_ALLOW_NUL, &error);
    if (!chunk) {
        fail(s, "an event is not JSON");
        return false;
    }
    const char *message = json_string_value(json_object_get(json_object_get(chunk, "error"), "message"));
    if (json_object_get(chunk, "error")) fail(s, message ? message : "error event");
    bool ok = take_text(s, chunk);
    take_usage(s, chunk);
    json_decref(chunk);
    return ok;
}

static size_t on_bytes(char *bytes, size_t unit, size_t count, void *context) {
    session *s = context;
    long code = 0;
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &code);
    if (code != 200) {
        size_t used = strlen(s->failure), room = sizeof s->failure - 1 - used, take = count < room ? count : room;
        memcpy(s->failure + used, bytes, take);
        return unit * count;
    }
    return qr_sse_parser_feed(&s->parser, bytes, unit * count) ? unit * count : 0;
}

/* ---- what we send ---- */

static uint64_t text_seed(const round *r, uint32_t session_index, uint32_t turn) {
    return qr_mix64(r->shape->seed ^ qr_mix64(((uint64_t)r->number << 40) ^ ((uint64_t)session_index << 20) ^ turn));
}

static bool add_message(session *s, const char *role, const char *content) {
    return json_array_append_new(s->messages, json_pack("{s:s, s:s}", "role", role, "content", content)) == 0;
}

static bool add_user_turn(session *s) {
    char opening[64];
    snprintf(opening, sizeof opening, "Question %u of session %u:", s->turn + 1, s->index + 1);
    char *text = qr_bench_text(opening, s->round->shape->user_tokens, text_seed(s->round, s->index + 1, s->turn + 1));
    bool ok = text && add_message(s, "user", text);
    free(text);
    return ok;
}

static char *make_body(const session *s) {
    const round *r = s->round;
    json_t *body =
        json_pack("{s:s, s:O, s:b, s:{s:b}, s:i, s:i, s:f}", "model", r->target->model, "messages", s->messages, "stream", 1,
                  "stream_options", "include_usage", 1, "max_tokens", (int)r->shape->max_tokens, "seed", 1, "temperature", 0.0);
    if (body && r->shape->ignore_eos) json_object_set_new(body, "ignore_eos", json_true());
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

static bool send_turn(session *s) {
    free(s->body);
    s->body = add_user_turn(s) ? make_body(s) : NULL;
    if (!s->body) return false;
    s->answer_size = 0;
    s->first_us = s->last_us = s->resume_us = 0;
    s->saw_done = false;
    s->failure[0] = '\0';
    memset(s->failure, 0, sizeof s->failure);
    s->prompt_tokens = s->completion_tokens = 0;
    s->cached_tokens = -1;
    qr_sse_parser_deinit(&s->parser);
    s->parser = (qr_sse_parser){.on_event = on_event, .context = s};
    curl_easy_setopt(s->easy, CURLOPT_POSTFIELDS, s->body);
    s->start_us = qr_clock_us();
    return curl_multi_add_handle(s->round->multi, s->easy) == CURLM_OK;
}

/* ---- one request is over ---- */

static bool record(session *s, CURLcode code) {
    qr_bench_result *result = s->round->result;
    long http = 0;
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &http);
    result->requests++;
    if (code != CURLE_OK) fail(s, curl_easy_strerror(code));
    else if (http != 200) fail(s, "HTTP error without a body");
    else if (!s->saw_done) fail(s, "the stream ended without [DONE]");
    else if (s->first_us == 0) fail(s, "the answer holds no text");
    if (s->failure[0]) {
        result->failures++;
        if (!result->first_failure[0]) snprintf(result->first_failure, sizeof result->first_failure, "%s", s->failure);
        return false;
    }
    result->prompt_tokens += (uint64_t)s->prompt_tokens;
    result->completion_tokens += (uint64_t)s->completion_tokens;
    if (s->cached_tokens >= 0) result->cached_known = true, result->cached_tokens += (uint64_t)s->cached_tokens;
    qr_series *ttft = s->turn == 0 ? &result->first_ttft_ms : &result->later_ttft_ms;
    return qr_series_push(ttft, (double)(s->first_us - s->start_us) / 1e3) &&
           qr_series_push(&result->request_ms, (double)(qr_clock_us() - s->start_us) / 1e3);
}

static void end_session(session *s) {
    s->finished = true;
    s->round->running--;
}

static void next_turn(session *s) {
    s->turn++;
    if (s->turn == s->round->shape->turn_count || !add_message(s, "assistant", s->answer)) end_session(s);
    else s->resume_us = qr_clock_us() + (uint64_t)s->round->shape->think_ms * 1000;
}

static void take_finished(round *r) {
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(r->multi, &left));) {
        session *s = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &s);
        CURLcode code = message->data.result;
        curl_multi_remove_handle(r->multi, message->easy_handle);
        if (record(s, code)) next_turn(s);
        else end_session(s);
    }
}

static void resume_waiting(round *r) {
    uint64_t now = qr_clock_us();
    for (uint32_t i = 0; i < r->shape->session_count; i++) {
        session *s = &r->sessions[i];
        if (s->finished || s->resume_us == 0 || s->resume_us > now) continue;
        if (!send_turn(s)) end_session(s);
    }
}

/* ---- a round ---- */

static bool open_session(round *r, session *s, const char *system_prompt) {
    s->easy = curl_easy_init();
    s->messages = json_array();
    if (!s->easy || !s->messages || !add_message(s, "system", system_prompt)) return false;
    char url[512];
    snprintf(url, sizeof url, "%s/v1/chat/completions", r->target->url);
    curl_easy_setopt(s->easy, CURLOPT_URL, url);
    if (r->target->socket_path) curl_easy_setopt(s->easy, CURLOPT_UNIX_SOCKET_PATH, r->target->socket_path);
    curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, r->headers);
    curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(s->easy, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(s->easy, CURLOPT_PRIVATE, s);
    curl_easy_setopt(s->easy, CURLOPT_TIMEOUT, (long)r->shape->timeout_s);
    curl_easy_setopt(s->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(s->easy, CURLOPT_NOPROXY, "*");
    return send_turn(s);
}

static void close_session(round *r, session *s) {
    if (s->easy) {
        curl_multi_remove_handle(r->multi, s->easy);
        curl_easy_cleanup(s->easy);
    }
    json_decref(s->messages);
    qr_sse_parser_deinit(&s->parser);
    free(s->answer);
    free(s->body);
}

static bool open_sessions(round *r) {
    char opening[96];
    snprintf(opening, sizeof opening,
             "Run %llu, round %u. You answer questions about these notes:", (unsigned long long)r->shape->seed, r->number + 1);
    char *system_prompt = qr_bench_text(opening, r->shape->system_tokens, text_seed(r, 0, 0));
    bool ok = system_prompt != NULL;
    for (uint32_t i = 0; ok && i < r->shape->session_count; i++) {
        r->sessions[i].round = r;
        r->sessions[i].index = i;
        ok = open_session(r, &r->sessions[i], system_prompt);
    }
    free(system_prompt);
    return ok;
}

static void drive(round *r) {
    r->running = r->shape->session_count;
    while (r->running) {
        int active;
        curl_multi_perform(r->multi, &active);
        take_finished(r);
        resume_waiting(r);
        if (r->running) curl_multi_poll(r->multi, NULL, 0, r->shape->think_ms ? 1 : POLL_MS, NULL);
    }
}

static struct curl_slist *make_headers(const qr_bench_target *target) {
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (!headers || !target->api_key) return headers;
    char line[600];
    snprintf(line, sizeof line, "Authorization: Bearer %s", target->api_key);
    struct curl_slist *longer = curl_slist_append(headers, line);
    if (!longer) curl_slist_free_all(headers);
    return longer;
}

quire_status qr_bench_round(const qr_bench_target *target, const qr_bench_shape *shape, uint32_t number,
                            qr_bench_result *result, quire_error *error) {
    round r = {.target = target, .shape = shape, .number = number, .result = result};
    quire_status status = QUIRE_NO_MEMORY;
    r.multi = curl_multi_init();
    r.headers = make_headers(target);
    r.sessions = calloc(shape->session_count, sizeof *r.sessions);
    if (r.multi && r.headers && r.sessions) {
        curl_multi_setopt(r.multi, CURLMOPT_MAXCONNECTS, (long)shape->session_count);
        uint64_t start = qr_clock_us();
        if (open_sessions(&r)) {
            drive(&r);
            status = QUIRE_OK;
        }
        result->wall_s += (double)(qr_clock_us() - start) / 1e6;
    }
    for (uint32_t i = 0; r.sessions && i < shape->session_count; i++) close_session(&r, &r.sessions[i]);
    free(r.sessions);
    curl_slist_free_all(r.headers);
    if (r.multi) curl_multi_cleanup(r.multi);
    if (status != QUIRE_OK)
        return qr_fail(error, status, "bench", QR_NO_OFFSET, "no memory for %u sessions", shape->session_count);
    return QUIRE_OK;
}

void qr_bench_result_deinit(qr_bench_result *result) {
    qr_series_deinit(&result->first_ttft_ms);
    qr_series_deinit(&result->later_ttft_ms);
    qr_series_deinit(&result->inter_token_ms);
    qr_series_deinit(&result->request_ms);
}
