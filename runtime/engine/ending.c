/* The ways in which a choice or a job stops or pauses. Every one of them returns slot and sequence exactly once, and not
 * before the last step that may still write the sequence's blocks is over. */
#include "base/assertion.h"
#include "runtime/engine/scheduler_internal.h"

void qr_scheduler_emit(qr_scheduler *s, quire_event *event) { s->sink(s->sink_context, event); }

quire_event qr_choice_event(const qr_choice *c, quire_event_kind kind) {
    return (quire_event){.kind = kind, .request_id = c->job->request.id, .choice = c->index};
}

void qr_slot_take(qr_scheduler *s, qr_choice *c) {
    QR_ASSERT(!c->has_slot && s->free_slot_count > 0);
    c->slot = s->free_slots[--s->free_slot_count];
    c->has_slot = true;
}

void qr_slot_return(qr_scheduler *s, qr_choice *c) {
    if (!c->has_slot) return;
    QR_ASSERT(s->free_slot_count < s->config.max_sequences);
    s->free_slots[s->free_slot_count++] = c->slot;
    c->has_slot = false;
    s->release_epoch++;
}

void qr_running_insert(qr_scheduler *s, qr_choice *c) {
    QR_ASSERT(s->running_count < s->config.max_sequences);
    uint32_t i = s->running_count++;
    for (; i > 0 && qr_choice_before(c, s->running[i - 1]); i--) s->running[i] = s->running[i - 1];
    s->running[i] = c;
}

static void running_remove(qr_scheduler *s, const qr_choice *c) {
    uint32_t i = 0;
    while (i < s->running_count && s->running[i] != c) i++;
    QR_ASSERT(i < s->running_count);
    for (s->running_count--; i < s->running_count; i++) s->running[i] = s->running[i + 1];
}

static void choice_release(qr_scheduler *s, qr_choice *c) {
    QR_ASSERT(c->in_flight == 0);
    c->loads = false; /* closing the sequence ends its load */
    if (c->has_sequence) {
        quire_status status = quire_kv_seq_close(s->kv, c->seq);
        QR_ASSERT(status == QUIRE_OK);
        c->has_sequence = false;
        running_remove(s, c);
        s->release_epoch++;
    }
    qr_slot_return(s, c);
}

/* A job that is done leaves when no step can touch it any more. */
static void job_settle(qr_scheduler *s, qr_job *job) {
    if (!job->done || job->in_flight > 0) return;
    if (job->has_namespace) quire_kv_namespace_close(s->kv, job->ns);
    job->has_namespace = false;
    qr_list_remove(&job->node);
    qr_list_push_back(&s->ended, &job->node);
}

static void count_finish(qr_scheduler *s, const qr_job *job, quire_finish finish) {
    switch (finish) {
    case QUIRE_FINISH_ERROR: s->stats.requests_failed++; break;
    case QUIRE_FINISH_CANCELLED: s->stats.requests_cancelled++; break;
    case QUIRE_FINISH_TIMEOUT: s->stats.requests_timeout++; break;
    case QUIRE_FINISH_LENGTH: s->stats.requests_length++; break;
    case QUIRE_FINISH_NONE:
    case QUIRE_FINISH_STOP: s->stats.requests_stop++; break;
    }
}

static uint64_t span_us(uint64_t from, uint64_t to) { return from && to > from ? to - from : 0; }

static void job_done(qr_scheduler *s, qr_job *job, quire_finish finish, quire_status error, uint64_t now_us) {
    QR_ASSERT(!job->done && job->live == 0);
    uint64_t started_us = job->started ? job->started_us : now_us;
    uint64_t prefilled_us = job->first_token_us ? job->first_token_us : now_us;
    quire_event event = {
        .kind = QUIRE_EVENT_DONE,
        .request_id = job->request.id,
        .finish = finish,
        .error = error,
        .match = job->match,
        .processed_tokens = job->request.prompt_count,
        .prompt_tokens = job->request.prompt_count,
        .completion_tokens = job->completion_tokens,
        .preemptions = job->preemptions,
        .queued_us = span_us(job->submitted_us, started_us),
        .prefill_us = span_us(job->first_row_us, prefilled_us),
        .decode_us = span_us(job->first_token_us, job->last_token_us),
    };
    job->done = true;
    if (!job->started) s->waiting_count--;
    s->live_count--;
    qr_list_remove(&job->node);
    qr_list_push_back(&s->closing, &job->node);
    count_finish(s, job, finish == QUIRE_FINISH_NONE && job->cut ? QUIRE_FINISH_LENGTH : finish);
    qr_scheduler_emit(s, &event);
    job_settle(s, job);
}

static void choice_end(qr_scheduler *s, qr_choice *c, quire_finish finish) {
    QR_ASSERT(c->state != QR_CHOICE_ENDED);
    quire_event event = qr_choice_event(c, QUIRE_EVENT_CHOICE_DONE);
    event.finish = finish;
    qr_list_remove(&c->queue_node);
    c->state = QR_CHOICE_ENDED;
    c->loads = false;
    c->job->live--;
    if (finish == QUIRE_FINISH_LENGTH) c->job->cut = true;
    s->release_epoch++;
    if (c->in_flight == 0) choice_release(s, c);
    qr_scheduler_emit(s, &event);
}

void qr_choice_end(qr_scheduler *s, qr_choice *c, quire_finish finish, uint64_t now_us) {
    choice_end(s, c, finish);
    if (c->job->live == 0) job_done(s, c->job, QUIRE_FINISH_NONE, QUIRE_OK, now_us);
}

void qr_job_end(qr_scheduler *s, qr_job *job, quire_finish finish, quire_status error, uint64_t now_us) {
    for (uint32_t i = 0; i < job->request.choice_count; i++) {
        if (job->choices[i].state != QR_CHOICE_ENDED) choice_end(s, &job->choices[i], finish);
    }
    job_done(s, job, finish, error, now_us);
}

void qr_choice_pause(qr_scheduler *s, qr_choice *c) {
    QR_ASSERT(c->state == QR_CHOICE_RUNNING && c->in_flight == 0 && c->pending == 0);
    choice_release(s, c);
    if (!c->job->forked) {
        for (uint32_t i = 1; i < c->job->request.choice_count; i++) qr_slot_return(s, &c->job->choices[i]);
    }
    c->state = QR_CHOICE_QUEUED;
    c->computed = c->scheduled = c->reserved = 0;
    c->passed = 0;
    c->pause_wanted = false;
    c->job->preemptions++;
    s->stats.preemptions_total++;
    qr_queue_insert(s, c);
}

void qr_choice_settle(qr_scheduler *s, qr_choice *c) {
    if (c->in_flight == 0) {
        if (c->state == QR_CHOICE_ENDED) choice_release(s, c);
        if (c->state == QR_CHOICE_RUNNING && c->pause_wanted) qr_choice_pause(s, c);
    }
    job_settle(s, c->job);
}
