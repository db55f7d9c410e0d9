/* What a step's result means: tokens whose KV is now written are committed, draws become tokens, and choices go on, fork or
 * end. A failed step commits nothing and ends the requests that were in it; the others do not notice. */
#include <string.h>

#include "base/assertion.h"
#include "runtime/engine/scheduler_internal.h"

static void emit_token(qr_scheduler *s, const qr_choice *c, quire_event_kind kind, const qr_sample_result *result) {
    quire_event event = qr_choice_event(c, kind);
    event.token = result->token;
    event.logprob = result->logprob;
    event.top_count = result->top_count;
    for (uint32_t i = 0; i < result->top_count; i++) event.top[i] = result->top[i];
    event.logits_digest = result->digest;
    event.is_end = false;
    if (kind == QUIRE_EVENT_PROMPT_TOKEN) {
        event.position = c->job->scored;
    } else {
        event.position = qr_choice_generated(c) - 1;
        event.is_end = qr_choice_is_end(s, c, result->token);
    }
    qr_scheduler_emit(s, &event);
}

static bool token_in(const quire_token *list, uint32_t count, quire_token token) {
    for (uint32_t i = 0; i < count; i++) {
        if (list[i] == token) return true;
    }
    return false;
}

bool qr_choice_is_end(const qr_scheduler *s, const qr_choice *c, quire_token token) {
    const quire_request *r = &c->job->request;
    if (token_in(r->stop_tokens, r->stop_token_count, token)) return true;
    return !r->ignore_eos && token_in(s->config.end_tokens, s->config.end_token_count, token);
}

/* ---- draws ---- */

static void count_token(qr_scheduler *s, qr_job *job, uint64_t now_us) {
    if (job->first_token_us == 0) job->first_token_us = now_us;
    job->last_token_us = now_us;
    job->completion_tokens++;
    s->stats.generated_tokens_total++;
}

static void deliver_draw(qr_scheduler *s, qr_choice *c, const qr_sample_result *result, uint64_t now_us) {
    if (c->state == QR_CHOICE_ENDED) return;
    if (result->status != QUIRE_OK) {
        qr_job_end(s, c->job, QUIRE_FINISH_ERROR, result->status, now_us);
        return;
    }
    QR_ASSERT(c->pending > 0);
    c->pending--;
    c->tokens[c->known++] = result->token;
    count_token(s, c->job, now_us);
    emit_token(s, c, QUIRE_EVENT_TOKEN, result);
    if (qr_choice_is_end(s, c, result->token)) {
        qr_choice_end(s, c, QUIRE_FINISH_STOP, now_us);
    } else if (qr_choice_generated(c) == c->job->limit) {
        qr_choice_end(s, c, QUIRE_FINISH_LENGTH, now_us);
    }
}

static void deliver_score(qr_scheduler *s, qr_choice *c, const qr_sample_result *result, uint64_t now_us) {
    if (c->job->done) return;
    if (result->status != QUIRE_OK) {
        qr_job_end(s, c->job, QUIRE_FINISH_ERROR, result->status, now_us);
        return;
    }
    c->job->scored++;
    emit_token(s, c, QUIRE_EVENT_PROMPT_TOKEN, result);
}

/* ---- the fork of a job with several choices ---- */

static void fork_choice(qr_scheduler *s, const qr_choice *parent, qr_choice *child) {
    memcpy(child->tokens, parent->tokens, parent->job->request.prompt_count * sizeof *child->tokens);
    child->computed = child->scheduled = child->reserved = parent->computed;
    child->state = QR_CHOICE_RUNNING;
    if (quire_kv_seq_fork(s->kv, parent->seq, &child->seq) == QUIRE_OK) {
        child->has_sequence = true;
        qr_running_insert(s, child);
        return;
    }
    /* Without a sequence it goes the way of a paused choice: it takes the cached prompt later. */
    qr_slot_return(s, child);
    child->state = QR_CHOICE_QUEUED;
    child->computed = child->scheduled = child->reserved = 0;
    qr_queue_insert(s, child);
}

/* The prompt is computed: every choice stands on its own from here. */
static void fork_job(qr_scheduler *s, qr_job *job, uint64_t now_us) {
    job->forked = true;
    for (uint32_t i = 1; i < job->request.choice_count; i++) {
        qr_choice *child = &job->choices[i];
        if (child->state == QR_CHOICE_EMBRYO) fork_choice(s, &job->choices[0], child);
    }
    for (uint32_t i = 0; i < job->request.choice_count && !job->done; i++) {
        qr_choice *c = &job->choices[i];
        if (c->stop_wanted && c->state != QR_CHOICE_ENDED) qr_choice_end(s, c, QUIRE_FINISH_CANCELLED, now_us);
    }
}

/* ---- entries ---- */

void qr_choice_emit_progress(qr_scheduler *s, const qr_choice *c) {
    const quire_request *r = &c->job->request;
    if (!r->progress || c->job->first_token_us || c->job->done) return;
    quire_event event = qr_choice_event(c, QUIRE_EVENT_PROGRESS);
    event.processed_tokens = c->computed < r->prompt_count ? c->computed : r->prompt_count;
    qr_scheduler_emit(s, &event);
}

/* A request that generates nothing ends when its prompt is computed. */
static void end_if_nothing_to_draw(qr_scheduler *s, qr_job *job, uint64_t now_us) {
    if (job->limit > 0) return;
    for (uint32_t i = 0; i < job->request.choice_count; i++) {
        if (job->choices[i].state != QR_CHOICE_ENDED) qr_choice_end(s, &job->choices[i], QUIRE_FINISH_LENGTH, now_us);
    }
}

/* Rows of an ended choice are surplus: never committed. */
static void commit_entry(qr_scheduler *s, const qr_step_entry *entry, uint64_t now_us) {
    qr_choice *c = entry->choice;
    if (c->state == QR_CHOICE_ENDED) return;
    QR_ASSERT(entry->first == c->computed && entry->first + entry->rows <= c->known);
    quire_status status = quire_kv_seq_commit(s->kv, c->seq, c->tokens + entry->first, entry->rows);
    if (status != QUIRE_OK) {
        qr_job_end(s, c->job, QUIRE_FINISH_ERROR, status, now_us);
        return;
    }
    c->computed += entry->rows;
    if (!c->job->forked && c->computed == c->job->request.prompt_count && c->job->limit > 0) fork_job(s, c->job, now_us);
    qr_choice_emit_progress(s, c);
}

static void finish_entry(qr_scheduler *s, const qr_step_entry *entry, uint64_t now_us) {
    qr_choice *c = entry->choice;
    if (c->state != QR_CHOICE_ENDED && c->computed == c->known) end_if_nothing_to_draw(s, c->job, now_us);
}

static void apply_results(qr_scheduler *s, qr_step_place *place, const qr_step_result *result, uint64_t now_us) {
    const qr_step *step = &place->step;
    QR_ASSERT(result->sample_count == step->sample_count);
    for (uint32_t i = 0; i < step->sequence_count; i++) commit_entry(s, &place->entries[i], now_us);
    for (uint32_t i = 0; i < step->sample_count; i++) {
        if (step->samples[i].kind == QR_SAMPLE_DRAW) {
            deliver_draw(s, place->sample_choices[i], &result->samples[i], now_us);
        } else {
            deliver_score(s, place->sample_choices[i], &result->samples[i], now_us);
        }
    }
    for (uint32_t i = 0; i < step->sequence_count; i++) finish_entry(s, &place->entries[i], now_us);
}

/* ---- failure ---- */

static bool choice_has_block(const qr_scheduler *s, const qr_choice *c, quire_block_id block) {
    uint32_t count;
    const quire_block_id *table = quire_kv_seq_table(s->kv, c->seq, 0, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (table[i] == block) return true;
    }
    return false;
}

/* A copy that the failed step should have made is missing: whoever holds its target ends too. */
static qr_choice *holder_of_copy(const qr_scheduler *s, const qr_step *step) {
    for (uint32_t i = 0; i < s->running_count; i++) {
        for (uint32_t k = 0; k < step->copy_count && s->running[i]->state == QR_CHOICE_RUNNING; k++) {
            if (choice_has_block(s, s->running[i], step->copies[k].to)) return s->running[i];
        }
    }
    return NULL;
}

static void fail_step(qr_scheduler *s, qr_step_place *place, quire_status status, uint64_t now_us) {
    for (uint32_t i = 0; i < place->step.sequence_count; i++) {
        qr_choice *c = place->entries[i].choice;
        if (c->state != QR_CHOICE_ENDED) qr_job_end(s, c->job, QUIRE_FINISH_ERROR, status, now_us);
    }
    for (qr_choice *c; (c = holder_of_copy(s, &place->step));) qr_job_end(s, c->job, QUIRE_FINISH_ERROR, status, now_us);
}

/* ---- the step ---- */

static void blend(double *rate, double sample) { *rate = *rate > 0 ? 0.8 * *rate + 0.2 * sample : sample; }

/* Speeds are taken from steps that are mostly of one kind. */
static void measure_step(qr_scheduler *s, const qr_step_place *place, const qr_step_result *result) {
    double seconds = (double)result->duration_us * 1e-6;
    s->stats.steps_total++;
    s->stats.step_seconds_total += seconds;
    if (result->status != QUIRE_OK) return;
    qr_cost_model_observe(&s->cost, place->step.row_count, place->position_sum, result->duration_us);
    if (seconds <= 0) return;
    if (place->prefill_rows == 0) blend(&s->stats.decode_tokens_per_second, place->decode_rows / seconds);
    if (place->prefill_rows > 4 * place->decode_rows && place->prefill_rows >= s->block_tokens) {
        blend(&s->stats.prefill_tokens_per_second, place->prefill_rows / seconds);
    }
}

void qr_scheduler_complete(qr_scheduler *s, const qr_step_result *result, uint64_t now_us) {
    QR_ASSERT(s->in_flight > 0);
    qr_step_place *place = &s->places[s->place_first];
    QR_ASSERT(result->id == place->step.id);
    quire_kv_set_time(s->kv, now_us);
    s->place_first = (s->place_first + 1) % s->config.limits.steps_in_flight;
    s->in_flight--;
    measure_step(s, place, result);
    for (uint32_t i = 0; i < place->step.sequence_count; i++) {
        place->entries[i].choice->in_flight--;
        place->entries[i].choice->job->in_flight--;
    }
    if (result->status == QUIRE_OK) {
        apply_results(s, place, result, now_us);
    } else {
        fail_step(s, place, result->status, now_us);
    }
    for (uint32_t i = 0; i < place->step.sequence_count; i++) qr_choice_settle(s, place->entries[i].choice);
    if (place->prefill_rows > 0 || result->tiers_moved) s->release_epoch++;
}
