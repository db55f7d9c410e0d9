/* job.c - see job.h. reply_json.c says how a reply looks. */
#include "runtime/server/job.h"

#include "base/assertion.h"
#include "base/clock.h"
#include "runtime/model/model.h"
#include "runtime/server/reply_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static void job_destroy(qr_job *job) {
    QR_ASSERT(job->parts_open == 0 && !job->connection);
    qr_list_remove(&job->node);
    for (uint32_t i = 0; i < job->choice_count; i++) qr_choice_deinit(&job->choices[i]);
    free(job->choices);
    free(job->parts);
    qr_generation_destroy(job->generation);
    free(job);
}

static bool job_make_choices(qr_job *job, const qr_tokenizer *tokenizer) {
    qr_generation *g = job->generation;
    uint32_t count = g->prompt_count * g->n;
    job->parts = calloc(g->prompt_count, sizeof *job->parts);
    job->choices = calloc(count, sizeof *job->choices);
    if (!job->parts || !job->choices) return false;
    for (uint32_t i = 0; i < count; i++) {
        job->choice_count++;
        if (!qr_choice_init(&job->choices[i], i, g, &g->prompts[i / g->n], tokenizer)) return false;
    }
    job->choices_open = count;
    return true;
}

static qr_job *job_create(qr_task *task) {
    qr_server *server = task->server;
    qr_job *job = calloc(1, sizeof *job);
    if (!job) return NULL;
    job->server = server;
    job->generation = task->generation;
    task->generation = NULL;
    job->arrived_us = task->arrived_us;
    job->created_s = qr_clock_wall_ms() / 1000;
    snprintf(job->id, sizeof job->id, "%s-%016" PRIx64, job->generation->chat ? "chatcmpl" : "cmpl",
             qr_random_u64(&server->random));
    qr_list_init(&job->node);
    if (job_make_choices(job, qr_model_tokenizer(server->model))) return job;
    job_destroy(job);
    return NULL;
}

/* Ends when the engine has let go of all requests and the client is answered or gone. */
static void job_release(qr_job *job) {
    if (job->parts_open || job->connection) return;
    qr_server *server = job->server;
    job_destroy(job);
    qr_drain_advance(server);
}

static void job_cancel_parts(qr_job *job) {
    if (!job->server->engine) return; /* the daemon is being taken apart */
    for (uint32_t i = 0; i < job->generation->prompt_count; i++)
        if (job->parts[i].engine_id) quire_engine_cancel(job->server->engine, job->parts[i].engine_id);
}

/* The answer is complete. The connection may go on with its next request, so the job lets go of it first. */
static qr_connection *job_detach(qr_job *job) {
    qr_connection *c = job->connection;
    job->connection = NULL;
    c->job = NULL;
    return c;
}

void qr_job_client_gone(qr_job *job) {
    job->connection = NULL;
    job->server->metrics.clients_gone_total++;
    job_cancel_parts(job);
    job_release(job);
}

void qr_job_abandon(qr_job *job) {
    QR_ASSERT(!job->connection);
    job->parts_open = 0;
    job_destroy(job);
}

void qr_job_fail(qr_job *job, const qr_http_error *error) {
    if (!job->connection) return;
    job_cancel_parts(job);
    qr_connection *c = job_detach(job);
    if (!c->streaming) {
        qr_connection_refuse(c, error);
    } else {
        qr_bytes body = {0};
        qr_http_error_write(error, &body);
        if (!body.failed) qr_connection_event(c, body.data, body.size);
        qr_bytes_deinit(&body);
        qr_connection_end_events(c);
    }
    job_release(job);
}

/* ---- submit ---- */

static quire_status part_submit(qr_job *job, uint32_t index, quire_error *error) {
    qr_server *server = job->server;
    qr_generation *g = job->generation;
    quire_request request = g->request;
    request.prompt = g->prompts[index].tokens.tokens;
    request.prompt_count = (uint32_t)g->prompts[index].tokens.count;
    request.max_tokens = g->prompts[index].max_tokens;
    if (request.min_tokens > request.max_tokens) request.min_tokens = request.max_tokens;
    if (!qr_live_insert(&server->live, job, index, &request.id)) return QUIRE_NO_MEMORY;
    quire_status status = quire_engine_submit(server->engine, &request, error);
    if (status != QUIRE_OK) return qr_live_remove(&server->live, request.id), status;
    job->parts[index].engine_id = request.id;
    job->parts_open++;
    return QUIRE_OK;
}

static bool job_submit(qr_job *job, qr_http_error *refusal) {
    for (uint32_t i = 0; i < job->generation->prompt_count; i++) {
        quire_error error = {0};
        quire_status status = part_submit(job, i, &error);
        if (status == QUIRE_OK) continue;
        qr_http_refuse_status(refusal, status, &error, NULL);
        if (status == QUIRE_QUEUE_FULL) refusal->retry_after_s = qr_server_retry_after_s(job->server);
        return false;
    }
    return true;
}

void qr_job_start(qr_task *task) {
    qr_connection *c = task->connection;
    qr_job *job = job_create(task);
    qr_http_error error;
    if (!job) {
        qr_http_refuse(&error, 503, NULL, "out of memory");
        return qr_connection_refuse(c, &error);
    }
    qr_list_push_back(&job->server->jobs, &job->node);
    job->connection = c;
    c->job = job;
    if (!job_submit(job, &error)) qr_job_fail(job, &error);
}

/* ---- sending ---- */

static void job_send(qr_job *job, qr_bytes *json) {
    if (json->failed) qr_connection_poison(job->connection);
    else qr_connection_event(job->connection, json->data, json->size);
    qr_bytes_deinit(json);
}

/* The head of a stream, and for chat the role of every choice. */
static void job_begin_stream(qr_job *job) {
    if (!job->generation->stream || job->connection->streaming) return;
    qr_connection_begin_events(job->connection);
    for (uint32_t i = 0; job->generation->chat && job->connection && i < job->choice_count; i++) {
        qr_bytes json = {0};
        qr_reply_role(job, &job->choices[i], &json);
        job_send(job, &json);
    }
}

static void job_send_choice(qr_job *job, qr_choice *choice, bool last) {
    if (!job->connection || !job->generation->stream) return;
    job_begin_stream(job);
    qr_bytes json = {0};
    if (qr_choice_has_news(choice)) {
        qr_reply_chunk(job, choice, &json);
        qr_choice_sent(choice);
        job_send(job, &json);
    }
    if (!choice->ended || last || choice->finish_sent || !job->connection) return;
    choice->finish_sent = true;
    json = (qr_bytes){0};
    qr_reply_finish(job, choice, false, &json);
    job_send(job, &json);
}

static void job_choice_ended(qr_job *job, qr_choice *choice) {
    job->choices_open--;
    job_send_choice(job, choice, job->choices_open == 0);
}

/* ---- completion ---- */

/* The choice that ended last waits for the figures, which its finish chunk or the usage chunk carries. */
static void job_finish_stream(qr_job *job) {
    bool usage = job->generation->include_usage;
    job_begin_stream(job);
    for (uint32_t i = 0; job->connection && i < job->choice_count; i++) {
        qr_choice *choice = &job->choices[i];
        if (choice->finish_sent) continue;
        qr_bytes json = {0};
        choice->finish_sent = true;
        qr_reply_finish(job, choice, !usage, &json);
        job_send(job, &json);
    }
    if (job->connection && usage) {
        qr_bytes json = {0};
        qr_reply_usage(job, &json);
        job_send(job, &json);
    }
    if (!job->connection) return;
    qr_connection_event(job->connection, "[DONE]", 6);
    qr_connection_end_events(job_detach(job));
}

static bool job_failed_memory(const qr_job *job) {
    for (uint32_t i = 0; i < job->choice_count; i++)
        if (qr_choice_failed(&job->choices[i])) return true;
    return false;
}

static void job_finish_body(qr_job *job) {
    qr_bytes json = {0};
    qr_reply_body(job, &json);
    if (json.failed || job_failed_memory(job)) {
        qr_http_error error;
        qr_http_refuse(&error, 503, NULL, "out of memory");
        qr_connection_refuse(job_detach(job), &error);
    } else {
        qr_connection_reply(job_detach(job), 200, "application/json", json.data, json.size);
    }
    qr_bytes_deinit(&json);
}

static void job_observe(qr_job *job) {
    qr_metrics *metrics = &job->server->metrics;
    qr_usage usage = qr_job_usage(job);
    uint64_t now_us = qr_clock_us(), queued_us = job->parts[0].queued_us;
    qr_metrics_observe(metrics, QR_METRIC_REQUEST, now_us - job->arrived_us);
    qr_metrics_observe(metrics, QR_METRIC_QUEUE, queued_us);
    qr_metrics_observe(metrics, QR_METRIC_PREFILL, usage.prefill_us);
    qr_metrics_observe(metrics, QR_METRIC_DECODE, usage.decode_us);
    qr_log_info(job->server->config.log, "reply", QR_STR("id", job->id), QR_INT("prompt_tokens", usage.prompt_tokens),
                QR_INT("cached_tokens", usage.cached_tokens), QR_INT("completion_tokens", usage.completion_tokens),
                QR_INT("choices", job->choice_count), QR_INT("queued_us", queued_us), QR_INT("prefill_us", usage.prefill_us),
                QR_INT("decode_us", usage.decode_us), QR_INT("total_us", now_us - job->arrived_us));
}

static void job_complete(qr_job *job) {
    job_observe(job);
    if (job->generation->stream) job_finish_stream(job);
    else job_finish_body(job);
}

qr_usage qr_job_usage(const qr_job *job) {
    qr_usage usage = {0};
    for (uint32_t i = 0; i < job->generation->prompt_count; i++) {
        usage.prompt_tokens += job->generation->prompts[i].tokens.count;
        usage.cached_tokens += job->parts[i].match.token_count;
        usage.prefill_us += job->parts[i].prefill_us;
        usage.decode_us += job->parts[i].decode_us;
    }
    for (uint32_t i = 0; i < job->choice_count; i++) usage.completion_tokens += job->choices[i].completion_tokens;
    return usage;
}

/* ---- events ---- */

static void on_started(qr_job *job, qr_job_part *part, const quire_event *event) {
    part->started = true;
    part->match = event->match;
    job->started = true;
    if (job->connection) job_begin_stream(job);
}

static void on_progress(qr_job *job, const qr_job_part *part, const quire_event *event) {
    if (!job->connection || !job->generation->return_progress) return;
    job_begin_stream(job);
    qr_bytes json = {0};
    qr_reply_progress(job, (uint32_t)(part - job->parts), event->processed_tokens, &json);
    job_send(job, &json);
}

static void on_prompt_token(qr_job *job, const qr_job_part *part, const quire_event *event) {
    const qr_generation *g = job->generation;
    uint32_t first = (uint32_t)(part - job->parts) * g->n;
    const qr_tokenizer *tokenizer = qr_model_tokenizer(job->server->model);
    for (uint32_t i = first; i < first + g->n; i++)
        if (!job->choices[i].ended) qr_choice_push_prompt(&job->choices[i], event->token, event, tokenizer);
}

static void token_observe(qr_job *job, qr_choice *choice) {
    uint64_t now_us = qr_clock_us();
    if (!job->first_token_us) {
        job->first_token_us = now_us;
        qr_metrics_observe(&job->server->metrics, QR_METRIC_FIRST_TOKEN, now_us - job->arrived_us);
    }
    if (choice->last_token_us) qr_metrics_observe(&job->server->metrics, QR_METRIC_INTER_TOKEN, now_us - choice->last_token_us);
    choice->last_token_us = now_us;
}

/* Tokens behind a stop string still arrive for a step or two and are dropped. */
static void on_token(qr_job *job, qr_job_part *part, qr_choice *choice, const quire_event *event) {
    if (choice->ended || !job->connection) return;
    token_observe(job, choice);
    if (qr_choice_push(choice, event, job->generation, qr_model_tokenizer(job->server->model))) {
        quire_engine_stop_choice(job->server->engine, part->engine_id, event->choice);
        job_choice_ended(job, choice);
    } else {
        job_send_choice(job, choice, false);
    }
}

static void on_choice_done(qr_job *job, qr_choice *choice, const quire_event *event) {
    if (choice->ended || event->finish == QUIRE_FINISH_ERROR || event->finish == QUIRE_FINISH_CANCELLED) return;
    qr_choice_end(choice, event->finish);
    job_choice_ended(job, choice);
}

/* A request that the engine ended: choices that are still open end with it. */
static void part_close_choices(qr_job *job, const qr_job_part *part, quire_finish finish) {
    uint32_t n = job->generation->n, first = (uint32_t)(part - job->parts) * n;
    for (uint32_t i = first; i < first + n; i++) {
        if (job->choices[i].ended) continue;
        qr_choice_end(&job->choices[i], finish);
        job_choice_ended(job, &job->choices[i]);
    }
}

static bool part_has_open_choice(const qr_job *job, const qr_job_part *part) {
    uint32_t n = job->generation->n, first = (uint32_t)(part - job->parts) * n;
    for (uint32_t i = first; i < first + n; i++)
        if (!job->choices[i].ended) return true;
    return false;
}

static void on_done(qr_job *job, qr_job_part *part, const quire_event *event) {
    qr_live_remove(&job->server->live, event->request_id);
    part->engine_id = 0;
    part->over = true;
    part->match = event->match;
    part->queued_us = event->queued_us;
    part->prefill_us = event->prefill_us;
    part->decode_us = event->decode_us;
    job->parts_open--;
    if (job->connection) {
        qr_http_error error;
        bool cut = event->finish == QUIRE_FINISH_CANCELLED && part_has_open_choice(job, part);
        if (event->finish == QUIRE_FINISH_ERROR || cut) {
            qr_http_refuse_status(&error, cut ? QUIRE_SHUTTING_DOWN : event->error, NULL, NULL);
            return qr_job_fail(job, &error);
        }
        part_close_choices(job, part, event->finish == QUIRE_FINISH_TIMEOUT ? QUIRE_FINISH_TIMEOUT : QUIRE_FINISH_LENGTH);
        if (job->parts_open == 0 && job->connection) job_complete(job);
    }
    job_release(job);
}

void qr_job_event(qr_server *server, const quire_event *event) {
    uint32_t index;
    qr_job *job = qr_live_find(&server->live, event->request_id, &index);
    if (!job) return;
    qr_job_part *part = &job->parts[index];
    QR_ASSERT(event->choice < job->generation->n);
    qr_choice *choice = &job->choices[index * job->generation->n + event->choice];
    switch (event->kind) {
    case QUIRE_EVENT_STARTED: return on_started(job, part, event);
    case QUIRE_EVENT_PROGRESS: return on_progress(job, part, event);
    case QUIRE_EVENT_PROMPT_TOKEN: return on_prompt_token(job, part, event);
    case QUIRE_EVENT_TOKEN: return on_token(job, part, choice, event);
    case QUIRE_EVENT_CHOICE_DONE: return on_choice_done(job, choice, event);
    case QUIRE_EVENT_DONE: return on_done(job, part, event);
    }
}

void qr_job_tick(qr_job *job, uint64_t now_us) {
    qr_connection *c = job->connection;
    if (!c || !job->generation->stream) return;
    uint64_t since_us = c->streaming && c->last_output_us > job->arrived_us ? c->last_output_us : job->arrived_us;
    if (now_us < since_us || now_us - since_us < (uint64_t)job->server->config.ping_ms * 1000) return;
    job_begin_stream(job);
    qr_connection_comment(c, "ping");
}
