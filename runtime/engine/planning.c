/* Which rows join the next step: one row for every choice that decodes, then prefill, short rests first and then in order of
 * urgency and age, as much as the rest of the step's time allows, and always at least a block of it, so that decodes never
 * starve a prompt. A choice that loads prefills up to its front and is passed over while the front stands.
 *
 * Every row of a prefill has its block already (admission reserved them); a decode row takes one when it needs it, and when
 * there is none the youngest of the least urgent pauses; but where blocks are about to come back it waits a step. */
#include "base/assertion.h"
#include "runtime/engine/scheduler_internal.h"

/* What is being filled. */
typedef struct planner {
    qr_scheduler *s;
    qr_step_place *place;
    uint64_t now_us;
    uint32_t score_left;
} planner;

/* ---- rows and samples ---- */

static void add_table(planner *p, const qr_choice *c, uint32_t end) {
    qr_step *step = &p->place->step;
    uint32_t count, wanted = (end + p->s->block_tokens - 1) / p->s->block_tokens;
    const quire_block_id *table = quire_kv_seq_table(p->s->kv, c->seq, 0, &count);
    QR_ASSERT(count >= wanted && wanted <= p->s->table_max);
    step->sequences[step->sequence_count] = (qr_step_sequence){c->slot, step->block_id_count, wanted};
    for (uint32_t i = 0; i < wanted; i++) step->block_ids[step->block_id_count + i] = table[i];
    step->block_id_count += wanted;
}

static void add_rows(planner *p, const qr_choice *c, uint32_t rows) {
    qr_step *step = &p->place->step;
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t position = c->scheduled + i;
        quire_token token = position < c->known ? c->tokens[position] : QR_TOKEN_SAMPLED;
        step->rows[step->row_count++] = (qr_step_row){step->sequence_count, position, token};
        p->place->position_sum += position + 1;
    }
}

static qr_step_sample *add_sample(planner *p, qr_choice *c, uint32_t row) {
    qr_step *step = &p->place->step;
    const quire_request *r = &c->job->request;
    QR_ASSERT(step->sample_count < p->s->config.limits.samples_max);
    p->place->sample_choices[step->sample_count] = c;
    qr_step_sample *sample = &step->samples[step->sample_count++];
    *sample = (qr_step_sample){.row = row, .top_logprobs = r->top_logprobs, .sampling = &r->sampling};
    return sample;
}

static void add_draw(planner *p, qr_choice *c, uint32_t row) {
    const quire_request *r = &c->job->request;
    uint32_t index = qr_choice_generated(c) + c->pending;
    bool short_of_minimum = index < r->min_tokens;
    qr_step_sample *sample = add_sample(p, c, row);
    sample->kind = QR_SAMPLE_DRAW;
    sample->draw_index = index;
    sample->seed = c->seed;
    sample->mask_end = short_of_minimum || r->ignore_eos;
    sample->digest = r->logits_digest;
    sample->stop_tokens = r->stop_tokens;
    sample->stop_token_count = short_of_minimum ? r->stop_token_count : 0;
    sample->prompt = c->job->choices[0].tokens; /* before the fork the others have none */
    sample->prompt_count = r->prompt_count;
    sample->generated = c->tokens + r->prompt_count;
    sample->generated_count = qr_choice_generated(c);
    c->pending++;
}

/* Prompt scores: the row of token i gives the logprob of token i + 1. */
static void add_scores(planner *p, qr_choice *c, uint32_t first_row, uint32_t rows) {
    const qr_job *job = c->job;
    if (!job->request.prompt_logprobs) return;
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t position = c->scheduled + i;
        if (position < job->scored || position + 1 >= job->request.prompt_count) continue;
        qr_step_sample *sample = add_sample(p, c, first_row + i);
        sample->kind = QR_SAMPLE_SCORE;
        sample->target = c->tokens[position + 1];
        p->place->score_count++;
        p->score_left--;
    }
}

/* The last row of a history draws: for the choice, or for all of a job that is forked on this result. */
static void add_draws(planner *p, qr_choice *c, uint32_t row) {
    qr_job *job = c->job;
    if (job->limit == 0) return;
    if (job->forked) {
        add_draw(p, c, row);
        return;
    }
    for (uint32_t i = 0; i < job->request.choice_count; i++) {
        if (job->choices[i].state != QR_CHOICE_ENDED) add_draw(p, &job->choices[i], row);
    }
}

static void add_choice(planner *p, qr_choice *c, uint32_t rows) {
    qr_step *step = &p->place->step;
    uint32_t first_row = step->row_count;
    QR_ASSERT(rows > 0 && rows <= qr_choice_remaining(c));
    if (c->job->first_row_us == 0) c->job->first_row_us = p->now_us;
    add_table(p, c, c->scheduled + rows);
    add_rows(p, c, rows);
    p->place->entries[step->sequence_count++] = (qr_step_entry){c, c->scheduled, rows};
    add_scores(p, c, first_row, rows);
    bool last = rows == qr_choice_remaining(c);
    c->scheduled += rows;
    c->step_id = step->id;
    c->in_flight++;
    c->job->in_flight++;
    if (last) add_draws(p, c, step->row_count - 1);
}

/* ---- decode ---- */

/* One row is due, and its draw is still wanted. Before the fork nothing follows the prompt. */
static bool decodes_now(const qr_choice *c) {
    if (c->state != QR_CHOICE_RUNNING || c->pause_wanted || qr_choice_prefills(c)) return false;
    if (!c->job->forked || qr_choice_remaining(c) != 1) return false;
    return qr_choice_generated(c) + c->pending < c->job->limit;
}

static qr_choice *pause_victim(const qr_scheduler *s) {
    for (uint32_t i = s->running_count; i-- > 0;) {
        qr_choice *c = s->running[i];
        if (c->state == QR_CHOICE_RUNNING && !c->pause_wanted) return c;
    }
    return NULL;
}

/* Blocks are on their way back when these steps are over. */
static bool release_pending(const qr_scheduler *s) {
    for (uint32_t i = 0; i < s->running_count; i++) {
        if (s->running[i]->pause_wanted || s->running[i]->state == QR_CHOICE_ENDED) return true;
    }
    return false;
}

/* Makes room for one more token of c, pausing others or itself. False: not in this step. */
static bool decode_reserve(planner *p, qr_choice *c) {
    qr_scheduler *s = p->s;
    for (;;) {
        quire_status status = quire_kv_seq_reserve(s->kv, c->seq, c->scheduled + 1);
        if (status == QUIRE_OK) {
            c->reserved = c->scheduled + 1;
            return true;
        }
        if (status == QUIRE_NO_BLOCKS && (release_pending(s) || quire_kv_busy(s->kv))) return false;
        qr_choice *victim = pause_victim(s);
        bool alone = victim == c && s->running_count == 1 && s->in_flight == 0;
        if (status != QUIRE_NO_BLOCKS || !victim || alone) {
            qr_job_end(s, c->job, QUIRE_FINISH_ERROR, status, p->now_us);
            return false;
        }
        if (victim->in_flight > 0) {
            victim->pause_wanted = true;
            return false;
        }
        qr_choice_pause(s, victim);
        if (victim == c) return false;
    }
}

/* Running is sorted and victims come from its end, so whoever leaves it meanwhile stands at i or behind; a job that ends
 * by an error may have choices before i, and the rest is then left to the next step. */
static void plan_decodes(planner *p) {
    qr_scheduler *s = p->s;
    for (uint32_t i = 0; i < s->running_count;) {
        qr_choice *c = s->running[i];
        if (!decodes_now(c)) {
            i++;
            continue;
        }
        bool fits = decode_reserve(p, c);
        if (c->job->done) return;
        if (fits) {
            add_choice(p, c, 1);
            p->place->decode_rows++;
        }
        if (i < s->running_count && s->running[i] == c) i++;
    }
}

/* ---- prefill ---- */

/* Once per step: the rows of a sequence stand together. */
static bool prefills_now(const planner *p, const qr_choice *c) {
    return qr_choice_prefills(c) && qr_choice_ready(c) > 0 && !c->pause_wanted && c->step_id != p->place->step.id;
}

static double spent_us(const planner *p) {
    return qr_cost_model_predict_us(&p->s->cost, p->place->step.row_count, p->place->position_sum);
}

/* Rows of the choice that fit into time_us, and into the step. */
static uint32_t rows_in(const planner *p, const qr_choice *c, double time_us) {
    uint32_t rows_left = p->s->config.limits.rows_max - p->place->step.row_count;
    uint32_t rows = qr_cost_model_rows(&p->s->cost, time_us, c->scheduled, rows_left);
    if (p->place->prefill_rows == 0 && rows < p->s->block_tokens) rows = p->s->block_tokens;
    if (c->job->request.prompt_logprobs && rows > p->score_left) rows = p->score_left;
    if (rows > rows_left) rows = rows_left;
    uint32_t ready = qr_choice_ready(c);
    return rows < ready ? rows : ready;
}

static void add_prefill(planner *p, qr_choice *c, uint32_t rows) {
    if (c->loads) quire_kv_load_computing(p->s->kv, c->seq, c->scheduled + rows);
    add_choice(p, c, rows);
    p->place->prefill_rows += rows;
}

/* Who is more urgent does not count: nobody may pass it for being short beside it. */
static uint32_t longest_prefill(const planner *p, int32_t priority) {
    const qr_scheduler *s = p->s;
    uint32_t longest = 0;
    for (uint32_t i = s->running_count; i-- > 0 && s->running[i]->job->request.priority >= priority;) {
        uint32_t rest = prefills_now(p, s->running[i]) ? qr_choice_remaining(s->running[i]) : 0;
        if (rest > longest) longest = rest;
    }
    return longest;
}

/* A few blocks are short for everybody; beyond that, beside the longest of its own priority or a less urgent one. */
static bool is_short(const planner *p, const qr_choice *c) {
    uint32_t rest = qr_choice_remaining(c);
    return rest <= QR_SHORT_BLOCKS * p->s->block_tokens ||
           rest <= longest_prefill(p, c->job->request.priority) / QR_SHORT_PARTS;
}

/* What is nearly done goes first: a chat that has all but its last words cached must not wait behind a long prompt. It takes
 * at most half of the time; where that is too short for it, a part of it goes first in every other step. So the long one
 * goes on too. */
static void plan_short_prefill(planner *p) {
    const qr_scheduler *s = p->s;
    double end_us = (spent_us(p) + (double)s->config.step_us) / 2;
    for (uint32_t i = 0; i < s->running_count; i++) {
        qr_choice *c = s->running[i];
        if (!prefills_now(p, c) || !is_short(p, c)) continue;
        uint32_t rows = rows_in(p, c, end_us - spent_us(p));
        bool turn = p->place->step.id % 2 == 0 && p->place->prefill_rows == 0;
        if (rows > 0 && (turn || rows == qr_choice_remaining(c))) add_prefill(p, c, rows);
    }
}

static void plan_prefill(planner *p) {
    const qr_scheduler *s = p->s;
    plan_short_prefill(p);
    for (uint32_t i = 0; i < s->running_count; i++) {
        qr_choice *c = s->running[i];
        if (!prefills_now(p, c)) continue;
        uint32_t rows = rows_in(p, c, (double)s->config.step_us - spent_us(p));
        if (rows == 0) return;
        add_prefill(p, c, rows);
    }
}

/* ---- the plan ---- */

static void place_clear(qr_step_place *place, uint64_t id) {
    qr_step *step = &place->step;
    step->id = id;
    step->row_count = step->sequence_count = step->sample_count = step->block_id_count = step->copy_count = 0;
    place->score_count = place->decode_rows = place->prefill_rows = 0;
    place->position_sum = 0;
}

static void take_copies(qr_scheduler *s, qr_step *step) {
    uint32_t max = QR_COPIES_PER_CHOICE * s->config.max_sequences;
    step->copy_count = (uint32_t)quire_kv_take_copies(s->kv, step->copies, max);
    QR_ASSERT(step->copy_count < max);
}

static uint64_t earliest_deadline(const qr_scheduler *s) {
    uint64_t earliest = UINT64_MAX;
    QR_LIST_EACH (node, &s->live) {
        const qr_job *job = QR_LIST_ENTRY(node, qr_job, node);
        if (job->deadline_us < earliest) earliest = job->deadline_us;
    }
    return earliest;
}

static void expire(qr_scheduler *s, uint64_t now_us) {
    if (now_us < s->next_deadline_us) return;
    uint32_t left = QR_EXPIRED_PER_PLAN;
    QR_LIST_EACH_SAFE (node, following, &s->live) {
        qr_job *job = QR_LIST_ENTRY(node, qr_job, node);
        if (job->deadline_us > now_us || left == 0) continue;
        qr_job_end(s, job, QUIRE_FINISH_TIMEOUT, QUIRE_OK, now_us);
        left--;
    }
    s->next_deadline_us = earliest_deadline(s);
}

bool qr_scheduler_plan(qr_scheduler *s, uint64_t now_us, qr_step **step) {
    *step = NULL;
    if (s->in_flight == s->config.limits.steps_in_flight) return false;
    quire_kv_set_time(s->kv, now_us);
    expire(s, now_us);
    qr_loads_advance(s, now_us);
    qr_step_place *place = &s->places[(s->place_first + s->in_flight) % s->config.limits.steps_in_flight];
    planner p = {s, place, now_us, s->config.limits.samples_max - s->config.max_sequences};
    place_clear(place, s->next_step_id);
    plan_decodes(&p);
    qr_admission_run(s, now_us);
    plan_prefill(&p);
    if (place->step.row_count == 0) return false;
    take_copies(s, &place->step);
    s->next_step_id++;
    s->in_flight++;
    *step = &place->step;
    return true;
}
