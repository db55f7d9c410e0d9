/* Load or recompute: what a choice that starts takes from lower tiers, and until when it waits for that.
 *
 * A load begins only when it is expected to be over before the same tokens would have been computed (law 4). Blocks arrive
 * from the back of the stored run; the front is prefilled like any prompt, in the choice's turn, until it meets what is on its
 * way. There the choice waits, for no longer than computing those blocks would take, and in all no longer than twice the
 * estimate; then it computes the rest, from where its front stands.
 *
 *   tokens:  [ attached | computed ->    |   on their way    | <- loaded     | never stored ... ]
 *                       computed         front_tokens                        end of the run
 *
 * Nobody waits for ever. A load fills blocks that its sequence has held since before it began, so it waits for the store only,
 * and not longer than until load_end_us; past that, as after a failure, the blocks that it did not get are computed like any
 * prefill, and nothing that a prefill needs is held by somebody who waits for a load. A choice that waits adds no rows and
 * holds back no step, and who waits for its prefix waits for something that ends (admission.c). */
#include "base/assertion.h"
#include "runtime/engine/scheduler_internal.h"

/* ---- how long computing would take ---- */

/* What shares every step with a prefill: the rows of those who decode. */
typedef struct company {
    uint32_t rows;
    uint64_t position_sum;
} company;

static company decoding_beside(const qr_scheduler *s, const qr_choice *c) {
    company beside = {0};
    for (uint32_t i = 0; i < s->running_count; i++) {
        const qr_choice *other = s->running[i];
        if (other == c || other->state != QR_CHOICE_RUNNING || qr_choice_prefills(other)) continue;
        beside.rows++;
        beside.position_sum += other->known + other->pending;
    }
    return beside;
}

static uint64_t positions_between(uint32_t from, uint32_t to) { return ((uint64_t)from + 1 + to) * (to - from) / 2; }

/* Tokens [from, to) of a history, in chunks as the plan would cut them. The last chunk shares its step with what follows, so
 * it pays for a part of one. */
static double prefill_us(const qr_scheduler *s, const company *beside, uint32_t from, uint32_t to) {
    double step_us = qr_cost_model_predict_us(&s->cost, beside->rows, beside->position_sum), sum_us = 0;
    uint32_t rows_max = s->config.limits.rows_max - beside->rows;
    while (from < to) {
        uint32_t full = qr_cost_model_rows(&s->cost, (double)s->config.step_us - step_us, from, rows_max);
        if (full < s->block_tokens) full = s->block_tokens;
        uint32_t rows = full < to - from ? full : to - from;
        uint64_t positions = beside->position_sum + positions_between(from, from + rows);
        double with_us = qr_cost_model_predict_us(&s->cost, beside->rows + rows, positions);
        sum_us += with_us - step_us + step_us * rows / full;
        from += rows;
    }
    return sum_us;
}

/* Prefills that go before this one. What loads may be over any moment, so it does not count. */
static double prefill_ahead_us(const qr_scheduler *s, const company *beside, const qr_choice *c) {
    double sum_us = 0;
    for (uint32_t i = 0; i < s->running_count && qr_choice_before(s->running[i], c); i++) {
        const qr_choice *other = s->running[i];
        if (qr_choice_prefills(other) && !other->loads) sum_us += prefill_us(s, beside, other->scheduled, other->known);
    }
    return sum_us;
}

/* A load that ends in the middle of a step is noticed at its end. What was never measured is worth a try: it costs nothing but
 * the reading, since the front goes on. */
static bool load_is_faster(const qr_scheduler *s, const qr_choice *c, const quire_kv_load *load) {
    if (load->estimate_us == UINT64_MAX) return true;
    company beside = decoding_beside(s, c);
    double notice_us = beside.rows > 0 ? qr_cost_model_predict_us(&s->cost, beside.rows, beside.position_sum) : 0;
    uint32_t from = load->begin_block * s->block_tokens, to = load->end_block * s->block_tokens;
    double compute_us = prefill_ahead_us(s, &beside, c) + prefill_us(s, &beside, from, to);
    return (double)load->estimate_us + notice_us < compute_us;
}

/* ---- begin ---- */

static uint64_t after(uint64_t now_us, uint64_t span_us) {
    return span_us < UINT64_MAX - now_us ? now_us + span_us : UINT64_MAX;
}

static void load_began(qr_scheduler *s, qr_choice *c, const quire_kv_load *load, uint64_t now_us) {
    quire_kv_load_state state;
    quire_kv_load_get_state(s->kv, c->seq, &state);
    c->loads = true;
    c->front_tokens = state.front_tokens;
    c->load_counts = !c->job->started;
    c->load_abandoned = false;
    c->load_end_us = after(now_us, load->estimate_us < UINT64_MAX / 2 ? 2 * load->estimate_us : UINT64_MAX);
    c->load_wait_us = UINT64_MAX;
    if (c->job->first_row_us == 0) c->job->first_row_us = now_us;
}

void qr_load_start(qr_scheduler *s, qr_choice *c, uint32_t limit, quire_kv_match *match, uint64_t now_us) {
    quire_kv_load load;
    quire_status status = quire_kv_load_plan(s->kv, c->seq, c->tokens, c->known, limit, &load);
    if (status != QUIRE_OK || load.begin_block >= load.end_block) return;
    bool verify = quire_kv_verify_next(s->kv);
    if (!verify && !load_is_faster(s, c, &load)) {
        quire_kv_count_refusal(s->kv, QUIRE_KV_REFUSED_SLOWER, load.end_block - load.begin_block);
        match->miss = QUIRE_KV_MISS_SLOWER;
        return;
    }
    status = quire_kv_load_begin(s->kv, c->seq, c->tokens, &load, verify);
    if (status != QUIRE_OK) return;
    if (verify) match->miss = QUIRE_KV_MISS_VERIFYING;
    else load_began(s, c, &load, now_us);
}

/* ---- while it runs ---- */

static void count_gain(qr_scheduler *s, qr_choice *c, uint32_t gained) {
    quire_kv_match *match = &c->job->match;
    quire_kv_load_state state;
    if (!c->load_counts) return;
    quire_kv_load_get_state(s->kv, c->seq, &state);
    match->token_count += gained;
    match->block_count += gained / s->block_tokens;
    match->stored_tokens -= gained < match->stored_tokens ? gained : match->stored_tokens;
    match->host_tokens = state.host_tokens;
    match->disk_tokens = state.disk_tokens;
    s->stats.cached_tokens_total += gained;
}

/* Where the front has reached loaded blocks they are the choice's: as if it had just computed them. */
static void load_take(qr_scheduler *s, qr_choice *c) {
    if (c->in_flight > 0) return;
    QR_ASSERT(c->scheduled == c->computed && c->pending == 0);
    uint32_t gained = quire_kv_load_take(s->kv, c->seq);
    if (gained == 0) return;
    c->computed += gained;
    c->scheduled = c->computed;
    QR_ASSERT(c->computed < c->known);
    count_gain(s, c, gained);
    s->release_epoch++;
    qr_choice_emit_progress(s, c);
}

/* The front stands before blocks that are on their way, and would have computed them by the time they come. Of a load that was
 * given up only copies that must end are on their way. */
static bool waits_too_long(const qr_scheduler *s, qr_choice *c, const quire_kv_load_state *state, uint64_t now_us) {
    if (state->coming_tokens == 0 || c->scheduled < state->front_tokens || c->load_abandoned) {
        c->load_wait_us = UINT64_MAX;
        return false;
    }
    company beside = decoding_beside(s, c);
    double compute_us = prefill_us(s, &beside, c->scheduled, c->scheduled + state->coming_tokens);
    if (c->load_wait_us == UINT64_MAX) c->load_wait_us = after(now_us, (uint64_t)compute_us);
    bool known = state->coming_us != UINT64_MAX;
    return now_us >= c->load_wait_us || (known && (double)state->coming_us > compute_us);
}

static void load_abandon(qr_scheduler *s, qr_choice *c, quire_kv_load_state *state) {
    c->load_abandoned = true;
    c->load_end_us = c->load_wait_us = UINT64_MAX;
    quire_kv_load_abandon(s->kv, c->seq);
    quire_kv_load_get_state(s->kv, c->seq, state);
}

static void load_is_over(qr_choice *c, const quire_kv_load_state *state) {
    c->loads = false;
    if (!c->load_counts) return;
    if (c->load_abandoned) c->job->match.miss = QUIRE_KV_MISS_ABANDONED;
    if (state->failed) c->job->match.miss = QUIRE_KV_MISS_DAMAGED;
}

static void load_advance(qr_scheduler *s, qr_choice *c, uint64_t now_us) {
    quire_kv_load_state state;
    load_take(s, c);
    quire_kv_load_get_state(s->kv, c->seq, &state);
    bool late = now_us >= c->load_end_us || waits_too_long(s, c, &state, now_us);
    if (state.active && late && !c->load_abandoned) load_abandon(s, c, &state);
    c->front_tokens = state.front_tokens;
    if (!state.active) load_is_over(c, &state);
}

void qr_loads_advance(qr_scheduler *s, uint64_t now_us) {
    for (uint32_t i = 0; i < s->running_count; i++) {
        if (s->running[i]->loads) load_advance(s, s->running[i], now_us);
    }
}

uint64_t qr_loads_deadline_us(const qr_scheduler *s) {
    uint64_t earliest = UINT64_MAX;
    for (uint32_t i = 0; i < s->running_count; i++) {
        const qr_choice *c = s->running[i];
        if (!c->loads) continue;
        if (c->load_end_us < earliest) earliest = c->load_end_us;
        if (c->load_wait_us < earliest) earliest = c->load_wait_us;
    }
    return earliest;
}
