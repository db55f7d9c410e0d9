/* reply.c - see reply.h. reply_json.c says how a reply looks. */
#include "runtime/server/reply.h"

#include "base/assertion.h"
#include "base/clock.h"
#include "runtime/model/model.h"
#include "runtime/server/reply_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static void reply_destroy(qr_reply *reply) {
    QR_ASSERT(reply->parts_open == 0 && !reply->connection);
    qr_list_remove(&reply->node);
    for (uint32_t i = 0; i < reply->choice_count; i++) qr_choice_deinit(&reply->choices[i]);
    free(reply->choices);
    free(reply->parts);
    qr_generation_destroy(reply->generation);
    free(reply);
}

static bool reply_make_choices(qr_reply *reply, const qr_tokenizer *tokenizer) {
    qr_generation *g = reply->generation;
    uint32_t count = g->prompt_count * g->n;
    reply->parts = calloc(g->prompt_count, sizeof *reply->parts);
    reply->choices = calloc(count, sizeof *reply->choices);
    if (!reply->parts || !reply->choices) return false;
    for (uint32_t i = 0; i < count; i++) {
        reply->choice_count++;
        if (!qr_choice_init(&reply->choices[i], i, g, &g->prompts[i / g->n], tokenizer)) return false;
    }
    reply->choices_open = count;
    return true;
}

static qr_reply *reply_create(qr_task *task) {
    qr_server *server = task->server;
    qr_reply *reply = calloc(1, sizeof *reply);
    if (!reply) return NULL;
    reply->server = server;
    reply->generation = task->generation;
    task->generation = NULL;
    reply->arrived_us = task->arrived_us;
    reply->created_s = qr_clock_wall_ms() / 1000;
    snprintf(reply->id, sizeof reply->id, "%s-%016" PRIx64, reply->generation->chat ? "chatcmpl" : "cmpl",
             qr_random_u64(&server->random));
    qr_list_init(&reply->node);
    if (reply_make_choices(reply, qr_model_tokenizer(server->model))) return reply;
    reply_destroy(reply);
    return NULL;
}

/* Ends when the engine has let go of all requests and the client is answered or gone. */
static void reply_release(qr_reply *reply) {
    if (reply->parts_open || reply->connection) return;
    qr_server *server = reply->server;
    reply_destroy(reply);
    qr_drain_advance(server);
}

static void reply_cancel_parts(qr_reply *reply) {
    if (!reply->server->engine) return; /* the daemon is being taken apart */
    for (uint32_t i = 0; i < reply->generation->prompt_count; i++)
        if (reply->parts[i].engine_id) quire_engine_cancel(reply->server->engine, reply->parts[i].engine_id);
}

/* The answer is complete. The connection may go on with its next request, so the reply lets go of it first. */
static qr_connection *reply_detach(qr_reply *reply) {
    qr_connection *c = reply->connection;
    reply->connection = NULL;
    c->reply = NULL;
    return c;
}

void qr_reply_client_gone(qr_reply *reply) {
    reply->connection = NULL;
    reply->server->metrics.clients_gone_total++;
    reply_cancel_parts(reply);
    reply_release(reply);
}

void qr_reply_abandon(qr_reply *reply) {
    QR_ASSERT(!reply->connection);
    reply->parts_open = 0;
    reply_destroy(reply);
}

void qr_reply_fail(qr_reply *reply, const qr_http_error *error) {
    if (!reply->connection) return;
    reply_cancel_parts(reply);
    qr_connection *c = reply_detach(reply);
    if (!c->streaming) {
        qr_connection_refuse(c, error);
    } else {
        qr_bytes body = {0};
        qr_http_error_write(error, &body);
        if (!body.failed) qr_connection_event(c, body.data, body.size);
        qr_bytes_deinit(&body);
        qr_connection_end_events(c);
    }
    reply_release(reply);
}

/* ---- submit ---- */

static quire_status part_submit(qr_reply *reply, uint32_t index, quire_error *error) {
    qr_server *server = reply->server;
    qr_generation *g = reply->generation;
    quire_request request = g->request;
    request.prompt = g->prompts[index].tokens.tokens;
    request.prompt_count = (uint32_t)g->prompts[index].tokens.count;
    request.max_tokens = g->prompts[index].max_tokens;
    if (request.min_tokens > request.max_tokens) request.min_tokens = request.max_tokens;
    if (!qr_live_insert(&server->live, reply, index, &request.id)) return QUIRE_NO_MEMORY;
    quire_status status = quire_engine_submit(server->engine, &request, error);
    if (status != QUIRE_OK) return qr_live_remove(&server->live, request.id), status;
    reply->parts[index].engine_id = request.id;
    reply->parts_open++;
    return QUIRE_OK;
}

static bool reply_submit(qr_reply *reply, qr_http_error *refusal) {
    for (uint32_t i = 0; i < reply->generation->prompt_count; i++) {
        quire_error error = {0};
        quire_status status = part_submit(reply, i, &error);
        if (status == QUIRE_OK) continue;
        qr_http_refuse_status(refusal, status, &error, NULL);
        if (status == QUIRE_QUEUE_FULL) refusal->retry_after_s = qr_server_retry_after_s(reply->server);
        return false;
    }
    return true;
}

void qr_reply_start(qr_task *task) {
    qr_connection *c = task->connection;
    qr_reply *reply = reply_create(task);
    qr_http_error error;
    if (!reply) {
        qr_http_refuse(&error, 503, NULL, "out of memory");
        return qr_connection_refuse(c, &error);
    }
    qr_list_push_back(&reply->server->replies, &reply->node);
    reply->connection = c;
    c->reply = reply;
    if (!reply_submit(reply, &error)) qr_reply_fail(reply, &error);
}

/* ---- sending ---- */

static void reply_send(qr_reply *reply, qr_bytes *json) {
    if (json->failed) qr_connection_poison(reply->connection);
    else qr_connection_event(reply->connection, json->data, json->size);
    qr_bytes_deinit(json);
}

/* The head of a stream, and for chat the role of every choice. */
static void reply_begin_stream(qr_reply *reply) {
    if (!reply->generation->stream || reply->connection->streaming) return;
    qr_connection_begin_events(reply->connection);
    for (uint32_t i = 0; reply->generation->chat && reply->connection && i < reply->choice_count; i++) {
        qr_bytes json = {0};
        qr_reply_json_role(reply, &reply->choices[i], &json);
        reply_send(reply, &json);
    }
}

static void reply_send_choice(qr_reply *reply, qr_choice *choice, bool last) {
    if (!reply->connection || !reply->generation->stream) return;
    reply_begin_stream(reply);
    qr_bytes json = {0};
    if (qr_choice_has_news(choice)) {
        qr_reply_json_chunk(reply, choice, &json);
        if (qr_choice_echoes(choice)) qr_connection_allow(reply->connection, json.size);
        qr_choice_sent(choice);
        reply_send(reply, &json);
    }
    if (!choice->ended || last || choice->finish_sent || !reply->connection) return;
    choice->finish_sent = true;
    json = (qr_bytes){0};
    qr_reply_json_finish(reply, choice, false, &json);
    reply_send(reply, &json);
}

static void reply_choice_ended(qr_reply *reply, qr_choice *choice) {
    reply->choices_open--;
    reply_send_choice(reply, choice, reply->choices_open == 0);
}

/* ---- completion ---- */

/* The choice that ended last waits for the figures, which its finish chunk or the usage chunk carries. */
static void reply_finish_stream(qr_reply *reply) {
    bool usage = reply->generation->include_usage;
    reply_begin_stream(reply);
    for (uint32_t i = 0; reply->connection && i < reply->choice_count; i++) {
        qr_choice *choice = &reply->choices[i];
        if (choice->finish_sent) continue;
        qr_bytes json = {0};
        choice->finish_sent = true;
        qr_reply_json_finish(reply, choice, !usage, &json);
        reply_send(reply, &json);
    }
    if (reply->connection && usage) {
        qr_bytes json = {0};
        qr_reply_json_usage(reply, &json);
        reply_send(reply, &json);
    }
    if (!reply->connection) return;
    qr_connection_event(reply->connection, "[DONE]", 6);
    qr_connection_end_events(reply_detach(reply));
}

static bool reply_failed_memory(const qr_reply *reply) {
    for (uint32_t i = 0; i < reply->choice_count; i++)
        if (qr_choice_failed(&reply->choices[i])) return true;
    return false;
}

static void reply_finish_body(qr_reply *reply) {
    qr_bytes json = {0};
    qr_reply_json_body(reply, &json);
    if (json.failed || reply_failed_memory(reply)) {
        qr_http_error error;
        qr_http_refuse(&error, 503, NULL, "out of memory");
        qr_connection_refuse(reply_detach(reply), &error);
    } else {
        qr_connection_reply(reply_detach(reply), 200, "application/json", json.data, json.size);
    }
    qr_bytes_deinit(&json);
}

static void reply_observe(qr_reply *reply) {
    qr_metrics *metrics = &reply->server->metrics;
    qr_usage usage = qr_reply_usage(reply);
    uint64_t now_us = qr_clock_us(), queued_us = reply->parts[0].queued_us, disk_tokens = 0;
    for (uint32_t i = 0; i < reply->generation->prompt_count; i++) disk_tokens += reply->parts[i].match.disk_tokens;
    qr_metrics_observe(metrics, QR_METRIC_REQUEST, now_us - reply->arrived_us);
    qr_metrics_observe(metrics, QR_METRIC_QUEUE, queued_us);
    qr_metrics_observe(metrics, QR_METRIC_PREFILL, usage.prefill_us);
    qr_metrics_observe(metrics, QR_METRIC_DECODE, usage.decode_us);
    qr_log_info(reply->server->config.log, "reply", QR_STR("id", reply->id), QR_INT("prompt_tokens", usage.prompt_tokens),
                QR_INT("cached_tokens", usage.cached_tokens), QR_INT("disk_tokens", disk_tokens),
                QR_INT("completion_tokens", usage.completion_tokens), QR_INT("choices", reply->choice_count),
                QR_INT("queued_us", queued_us), QR_INT("prefill_us", usage.prefill_us), QR_INT("decode_us", usage.decode_us),
                QR_INT("total_us", now_us - reply->arrived_us));
}

static void reply_complete(qr_reply *reply) {
    reply_observe(reply);
    if (reply->generation->stream) reply_finish_stream(reply);
    else reply_finish_body(reply);
}

qr_usage qr_reply_usage(const qr_reply *reply) {
    qr_usage usage = {0};
    for (uint32_t i = 0; i < reply->generation->prompt_count; i++) {
        usage.prompt_tokens += reply->generation->prompts[i].tokens.count;
        usage.cached_tokens += reply->parts[i].match.token_count;
        usage.prefill_us += reply->parts[i].prefill_us;
        usage.decode_us += reply->parts[i].decode_us;
    }
    for (uint32_t i = 0; i < reply->choice_count; i++) usage.completion_tokens += reply->choices[i].completion_tokens;
    return usage;
}

/* ---- events ---- */

static void on_started(qr_reply *reply, qr_reply_part *part, const quire_event *event) {
    part->started = true;
    part->match = event->match;
    reply->started = true;
    if (reply->connection) reply_begin_stream(reply);
}

static void on_progress(qr_reply *reply, const qr_reply_part *part, const quire_event *event) {
    if (!reply->connection || !reply->generation->return_progress) return;
    reply_begin_stream(reply);
    qr_bytes json = {0};
    qr_reply_json_progress(reply, (uint32_t)(part - reply->parts), event->processed_tokens, &json);
    reply_send(reply, &json);
}

static void on_prompt_token(qr_reply *reply, const qr_reply_part *part, const quire_event *event) {
    const qr_generation *g = reply->generation;
    uint32_t first = (uint32_t)(part - reply->parts) * g->n;
    const qr_tokenizer *tokenizer = qr_model_tokenizer(reply->server->model);
    for (uint32_t i = first; i < first + g->n; i++)
        if (!reply->choices[i].ended) qr_choice_push_prompt(&reply->choices[i], event->token, event, tokenizer);
}

static void token_observe(qr_reply *reply, qr_choice *choice) {
    uint64_t now_us = qr_clock_us();
    if (!reply->first_token_us) {
        reply->first_token_us = now_us;
        qr_metrics_observe(&reply->server->metrics, QR_METRIC_FIRST_TOKEN, now_us - reply->arrived_us);
    }
    if (choice->last_token_us)
        qr_metrics_observe(&reply->server->metrics, QR_METRIC_INTER_TOKEN, now_us - choice->last_token_us);
    choice->last_token_us = now_us;
}

/* Tokens behind a stop string still arrive for a step or two and are dropped. */
static void on_token(qr_reply *reply, qr_reply_part *part, qr_choice *choice, const quire_event *event) {
    if (choice->ended || !reply->connection) return;
    token_observe(reply, choice);
    if (qr_choice_push(choice, event, reply->generation, qr_model_tokenizer(reply->server->model))) {
        quire_engine_stop_choice(reply->server->engine, part->engine_id, event->choice);
        reply_choice_ended(reply, choice);
    } else {
        reply_send_choice(reply, choice, false);
    }
}

static void on_choice_done(qr_reply *reply, qr_choice *choice, const quire_event *event) {
    if (choice->ended || event->finish == QUIRE_FINISH_ERROR || event->finish == QUIRE_FINISH_CANCELLED) return;
    qr_choice_finish(choice, event->finish);
    reply_choice_ended(reply, choice);
}

/* A request that the engine ended: choices that are still open end with it. */
static void part_close_choices(qr_reply *reply, const qr_reply_part *part, quire_finish finish) {
    uint32_t n = reply->generation->n, first = (uint32_t)(part - reply->parts) * n;
    for (uint32_t i = first; i < first + n; i++) {
        if (reply->choices[i].ended) continue;
        qr_choice_finish(&reply->choices[i], finish);
        reply_choice_ended(reply, &reply->choices[i]);
    }
}

static bool part_has_open_choice(const qr_reply *reply, const qr_reply_part *part) {
    uint32_t n = reply->generation->n, first = (uint32_t)(part - reply->parts) * n;
    for (uint32_t i = first; i < first + n; i++)
        if (!reply->choices[i].ended) return true;
    return false;
}

static void on_done(qr_reply *reply, qr_reply_part *part, const quire_event *event) {
    qr_live_remove(&reply->server->live, event->request_id);
    part->engine_id = 0;
    part->over = true;
    part->match = event->match;
    part->queued_us = event->queued_us;
    part->prefill_us = event->prefill_us;
    part->decode_us = event->decode_us;
    reply->parts_open--;
    if (reply->connection) {
        qr_http_error error;
        bool cut = event->finish == QUIRE_FINISH_CANCELLED && part_has_open_choice(reply, part);
        if (event->finish == QUIRE_FINISH_ERROR || cut) {
            qr_http_refuse_status(&error, cut ? QUIRE_SHUTTING_DOWN : event->error, NULL, NULL);
            return qr_reply_fail(reply, &error);
        }
        part_close_choices(reply, part, event->finish == QUIRE_FINISH_TIMEOUT ? QUIRE_FINISH_TIMEOUT : QUIRE_FINISH_LENGTH);
        if (reply->parts_open == 0 && reply->connection) reply_complete(reply);
    }
    reply_release(reply);
}

void qr_reply_event(qr_server *server, const quire_event *event) {
    uint32_t index;
    qr_reply *reply = qr_live_find(&server->live, event->request_id, &index);
    if (!reply) return;
    qr_reply_part *part = &reply->parts[index];
    QR_ASSERT(event->choice < reply->generation->n);
    qr_choice *choice = &reply->choices[index * reply->generation->n + event->choice];
    switch (event->kind) {
    case QUIRE_EVENT_STARTED: return on_started(reply, part, event);
    case QUIRE_EVENT_PROGRESS: return on_progress(reply, part, event);
    case QUIRE_EVENT_PROMPT_TOKEN: return on_prompt_token(reply, part, event);
    case QUIRE_EVENT_TOKEN: return on_token(reply, part, choice, event);
    case QUIRE_EVENT_CHOICE_DONE: return on_choice_done(reply, choice, event);
    case QUIRE_EVENT_DONE: return on_done(reply, part, event);
    }
}

void qr_reply_tick(qr_reply *reply, uint64_t now_us) {
    qr_connection *c = reply->connection;
    if (!c || !reply->generation->stream) return;
    uint64_t since_us = c->streaming && c->last_output_us > reply->arrived_us ? c->last_output_us : reply->arrived_us;
    if (now_us < since_us || now_us - since_us < (uint64_t)reply->server->config.ping_ms * 1000) return;
    reply_begin_stream(reply);
    qr_connection_comment(c, "ping");
}
