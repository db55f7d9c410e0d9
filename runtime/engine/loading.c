/* Load or recompute: what a choice that starts takes from lower tiers, and until when it waits for that.
 *
 * A load begins only when it is expected to be over before the same tokens would have been computed (law 4). Blocks arrive
 * from the back of the stored run; the front is prefilled like any prompt, in the choice's turn, up to where the two will
 * meet: a step that computed what is about to arrive would only hold the answer up. Where that is, is found anew in every
 * round from how fast this load really goes (load_pace.h). So a disk that is slower than it was, or was never measured, is met
 * further back, and all that a load costs which does not keep its word is the wait at the meeting: there lies what is on its
 * way, and the choice waits for it as long as it is expected sooner than it could be computed; then it computes the rest.
 *
 *   tokens:  [ attached | computed ->    |   on their way    | <- loaded     | never stored ... ]
 *                       computed         front_tokens                        end of the run
 *
 * Nobody waits for ever. A load fills blocks that its sequence has held since before it began, so it waits for the store only,
 * and a load of which nothing arrives gets slower all the time, until its blocks are computed like any prefill, as after a
 * failure; nothing that a prefill needs is held by somebody who waits for a load. A choice that waits adds no rows and
 * holds back no step, and who waits for its prefix waits for something that ends (admission.c). */
#include <math.h>

#include "base/assertion.h"
#include "runtime/engine/scheduler_internal.h"

/* ---- how long computing would take ---- */

/* What shares every step with a prefill, the rows of those who decode, and how long the prefills take that go before it. */
typedef struct company {
    uint32_t rows;
    uint64_t position_sum;
    double ahead_us;
} company;

static company decoding(const qr_scheduler *s) {
    company beside = {0};
    for (uint32_t i = 0; i < s->running_count; i++) {
        const qr_choice *c = s->running[i];
        if (c->state != QR_CHOICE_RUNNING || qr_choice_prefills(c)) continue;
        beside.rows++;
        beside.position_sum += c->known + c->pending;
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

/* Of what loads the load may be over any moment, so it holds nobody up. */
static void company_add(const qr_scheduler *s, company *beside, const qr_choice *c) {
    if (qr_choice_prefills(c) && !c->loads) beside->ahead_us += prefill_us(s, beside, c->scheduled, c->known);
}

static company company_of(const qr_scheduler *s, const qr_choice *c) {
    company beside = decoding(s);
    for (uint32_t i = 0; i < s->running_count && qr_choice_before(s->running[i], c); i++)
        company_add(s, &beside, s->running[i]);
    return beside;
}

/* Until the choice could compute what comes next: others go before, and so do its own rows under way. */
static double ahead_us(const qr_scheduler *s, const company *beside, const qr_choice *c) {
    return beside->ahead_us + prefill_us(s, beside, c->computed, c->scheduled);
}

static double load_compute_us(const qr_scheduler *s, const company *beside, const quire_kv_load *load) {
    return prefill_us(s, beside, load->begin_block * s->block_tokens, load->end_block * s->block_tokens);
}

/* A load that ends in the middle of a step is noticed at its end. */
static bool load_is_faster(const qr_scheduler *s, const qr_choice *c, const quire_kv_load *load) {
    company beside = company_of(s, c);
    double notice_us = beside.rows > 0 ? qr_cost_model_predict_us(&s->cost, beside.rows, beside.position_sum) : 0;
    return (double)load->estimate_us + notice_us < beside.ahead_us + load_compute_us(s, &beside, load);
}

/* ---- where the front goes ---- */

/* So many blocks count as much as what was expected of a load: about what a store reads at once. */
enum { PACE_WEIGHT = 16 };

/* Nothing is given up sooner: so long the wake-up of a thread may take on a busy machine, and it says nothing about the disk.
 */
static const uint64_t patience_us = 10000;

static uint32_t blocks_of(const qr_scheduler *s, uint32_t tokens) { return (tokens + s->block_tokens - 1) / s->block_tokens; }

/* What has come of the load, in whatever order. */
static uint32_t blocks_arrived(const qr_scheduler *s, const qr_choice *c, const quire_kv_load_state *state) {
    uint32_t missing = state->front_tokens + state->coming_tokens;
    return missing < c->load_tokens ? (c->load_tokens - missing) / s->block_tokens : 0;
}

/* Front and load work at once, each at its pace, the front when its turn has come: how many blocks are the front's. */
static uint32_t front_share(const qr_scheduler *s, const company *beside, qr_choice *c, uint32_t gap, uint32_t arrived,
                            uint64_t now_us) {
    uint32_t from = blocks_of(s, c->scheduled);
    double before_us = ahead_us(s, beside, c), load_us = qr_load_pace_block_us(&c->load_pace, arrived, now_us);
    double compute_us = prefill_us(s, beside, from * s->block_tokens, (from + gap) * s->block_tokens) / gap;
    double share = fmax(0, (gap * load_us - before_us) / (load_us + compute_us + 1));
    if (share < 0.5) {
        double enough_us = (before_us + compute_us / 2 + 1) / (gap - 0.5);
        c->load_look_us = qr_load_pace_when_us(&c->load_pace, arrived, enough_us);
    }
    return (uint32_t)(share + 0.5);
}

/* A block that is begun is computed to its end. */
static void set_front(const qr_scheduler *s, const company *beside, qr_choice *c, const quire_kv_load_state *state,
                      uint64_t now_us) {
    uint32_t from = blocks_of(s, c->scheduled), arrived = blocks_arrived(s, c, state);
    uint32_t end = c->load_tokens / s->block_tokens - arrived;
    c->front_tokens = state->front_tokens;
    if (c->load_abandoned || c->scheduled >= state->front_tokens) return;
    if (end > from) from += front_share(s, beside, c, end - from, arrived, now_us);
    if (from * s->block_tokens < state->front_tokens) c->front_tokens = from * s->block_tokens;
}

/* The front stands before blocks that are on their way: no longer than they are expected sooner than it could compute them. Of
 * a load that was given up only copies that must end are on their way. */
static bool waits_too_long(const qr_scheduler *s, const company *beside, qr_choice *c, const quire_kv_load_state *state,
                           uint64_t now_us) {
    bool stands = state->coming_tokens > 0 && c->scheduled >= state->front_tokens && !c->load_abandoned;
    uint32_t arrived = blocks_arrived(s, c, state), coming = blocks_of(s, state->coming_tokens);
    c->load_look_us = UINT64_MAX;
    if (stands && !c->load_stands)
        qr_load_pace_begin(&c->load_pace, qr_load_pace_block_us(&c->load_pace, arrived, now_us), coming, arrived, now_us);
    c->load_stands = stands;
    if (!stands) return false;
    double compute_us = prefill_us(s, beside, c->scheduled, c->scheduled + state->coming_tokens);
    double block_us = (ahead_us(s, beside, c) + compute_us) / coming;
    uint64_t until_us = qr_load_pace_when_us(&c->load_pace, arrived, block_us), patient_us = c->load_begun_us + patience_us;
    c->load_look_us = until_us > patient_us ? until_us : patient_us;
    return now_us >= c->load_look_us;
}

/* ---- begin ---- */

static void load_began(qr_scheduler *s, qr_choice *c, const quire_kv_load *load, uint64_t now_us) {
    quire_kv_load_state state;
    company beside = company_of(s, c);
    uint32_t blocks = load->end_block - load->begin_block;
    c->load_held = c->load_abandoned = c->load_stands = false;
    c->load_tokens = load->end_block * s->block_tokens;
    c->load_begun_us = now_us;
    qr_load_pace_begin(&c->load_pace, (double)load->estimate_us / blocks, blocks < PACE_WEIGHT ? blocks : PACE_WEIGHT, 0,
                       now_us);
    if (c->job->first_row_us == 0) c->job->first_row_us = now_us;
    quire_kv_load_get_state(s->kv, c->seq, &state);
    set_front(s, &beside, c, &state, now_us);
}

/* What can be loaded may have changed since it was chosen. */
static void load_begin(qr_scheduler *s, qr_choice *c, uint64_t now_us) {
    quire_kv_load load;
    quire_status status = quire_kv_load_plan(s->kv, c->seq, c->tokens, c->known, c->load_limit, &load);
    if (status == QUIRE_OK) status = quire_kv_load_begin(s->kv, c->seq, c->tokens, &load, false);
    c->loads = status == QUIRE_OK && load.begin_block < load.end_block;
    if (c->loads) load_began(s, c, &load, now_us);
}

/* With several steps in flight one that was planned before may still read or write what has become this choice's blocks
 * (equal blocks were found and its own let go), and a copy between blocks may wait for its step. Rows come after all that by
 * themselves; a load must be made to. So the choice computes its first block, and when that step is over so is all before. */
static void load_choose(qr_scheduler *s, qr_choice *c, uint32_t limit, uint64_t now_us) {
    c->loads = c->load_held = true;
    c->load_counts = !c->job->started;
    c->load_limit = limit;
    c->load_look_us = UINT64_MAX;
    c->front_tokens = (c->computed / s->block_tokens + 1) * s->block_tokens;
    if (s->config.limits.steps_in_flight == 1) load_begin(s, c, now_us);
}

void qr_load_start(qr_scheduler *s, qr_choice *c, uint32_t limit, quire_kv_match *match, uint64_t now_us) {
    quire_kv_load load;
    quire_status status = quire_kv_load_plan(s->kv, c->seq, c->tokens, c->known, limit, &load);
    if (status != QUIRE_OK || load.begin_block >= load.end_block) return;
    if (quire_kv_verify_next(s->kv)) {
        status = quire_kv_load_begin(s->kv, c->seq, c->tokens, &load, true);
        if (status == QUIRE_OK) match->miss = QUIRE_KV_MISS_VERIFYING;
        return;
    }
    s->loads_pay = load_is_faster(s, c, &load);
    if (s->loads_pay) {
        load_choose(s, c, limit, now_us);
        return;
    }
    quire_kv_count_refusal(s->kv, QUIRE_KV_REFUSED_SLOWER, load.end_block - load.begin_block);
    match->miss = QUIRE_KV_MISS_SLOWER;
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

/* What is being copied still comes. */
static void load_abandon(qr_scheduler *s, qr_choice *c, quire_kv_load_state *state) {
    uint32_t coming_tokens = state->coming_tokens;
    c->load_abandoned = true;
    c->load_look_us = UINT64_MAX;
    quire_kv_load_abandon(s->kv, c->seq);
    quire_kv_load_get_state(s->kv, c->seq, state);
    if (state->coming_tokens >= coming_tokens) return;
    quire_kv_count_refusal(s->kv, QUIRE_KV_REFUSED_ABANDONED, (coming_tokens - state->coming_tokens) / s->block_tokens);
    if (c->load_counts) c->job->match.miss = QUIRE_KV_MISS_ABANDONED;
}

static void load_is_over(qr_choice *c, const quire_kv_load_state *state) {
    c->loads = false;
    if (c->load_counts && state->failed) c->job->match.miss = state->cause;
}

static void load_advance(qr_scheduler *s, const company *beside, qr_choice *c, uint64_t now_us) {
    quire_kv_load_state state;
    if (c->load_held) {
        if (c->computed == c->front_tokens) load_begin(s, c, now_us);
        return;
    }
    load_take(s, c);
    quire_kv_load_get_state(s->kv, c->seq, &state);
    if (waits_too_long(s, beside, c, &state, now_us)) load_abandon(s, c, &state);
    set_front(s, beside, c, &state, now_us);
    if (!state.active) load_is_over(c, &state);
}

static bool any_loads(const qr_scheduler *s) {
    uint32_t i = 0;
    while (i < s->running_count && !s->running[i]->loads) i++;
    return i < s->running_count;
}

void qr_loads_advance(qr_scheduler *s, uint64_t now_us) {
    if (!any_loads(s)) return;
    company beside = decoding(s);
    for (uint32_t i = 0; i < s->running_count; i++) {
        if (s->running[i]->loads) load_advance(s, &beside, s->running[i], now_us);
        company_add(s, &beside, s->running[i]);
    }
}

uint64_t qr_loads_deadline_us(const qr_scheduler *s) {
    uint64_t earliest = UINT64_MAX;
    for (uint32_t i = 0; i < s->running_count; i++) {
        const qr_choice *c = s->running[i];
        if (c->loads && c->load_look_us < earliest) earliest = c->load_look_us;
    }
    return earliest;
}
