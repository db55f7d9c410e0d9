/* The queue: which waiting job or paused choice starts next.
 *
 * Order is urgency, then age, with two liberties. Among the first few entries of equal urgency the one with most cached
 * prefix blocks goes first, and one that does not fit lets smaller ones pass; after QR_PASSES_MAX passes nobody passes it
 * any more. An entry whose prompt shares more whole blocks with a prompt that is being prefilled than are cached now waits
 * for that one: it always ends (it runs, or it is paused or cancelled and then nobody waits for it), so nobody waits for
 * ever.
 *
 * Starting never takes a block from a runner: it takes free and cached blocks only, all that the prompt needs at once, and
 * leaves some for the runners' growth.
 */
#include <string.h>

#include "base/assertion.h"
#include "runtime/engine/scheduler_internal.h"

void qr_queue_insert(qr_scheduler *s, qr_choice *c) {
    qr_list *at = &s->queue;
    while (at->prev != &s->queue && qr_choice_before(c, QR_LIST_ENTRY(at->prev, qr_choice, queue_node))) at = at->prev;
    qr_list_insert_before(at, &c->queue_node);
    s->release_epoch++;
}

/* The last token is always computed, for its logits; prompt scores need the logits from the first unscored one on. */
static uint32_t attach_limit(const qr_choice *c) {
    const qr_job *job = c->job;
    uint32_t limit = c->known - 1;
    bool unscored = job->request.prompt_logprobs && job->scored + 1 < job->request.prompt_count;
    return unscored ? job->scored : limit;
}

/* ---- prefixes that are being computed ---- */

static uint32_t common_prefix(const qr_choice *a, uint32_t a_count, const qr_choice *b) {
    uint32_t count = a_count < b->known ? a_count : b->known, i = 0;
    while (i < count && a->tokens[i] == b->tokens[i]) i++;
    return i;
}

/* Steps in flight count as not computed. */
static bool may_wait_for(const qr_choice *c, const qr_choice *other) {
    bool computes =
        other->state == QR_CHOICE_RUNNING && (qr_choice_generated(other) == 0 || other->computed + 1 < other->known);
    bool enters = !other->job->forgotten; /* what it computes will be there for others */
    return computes && enters && !other->pause_wanted && other->job->ns == c->job->ns &&
           other->job->request.priority <= c->job->request.priority;
}

/* Cheap: the one it waited for is still at work. */
static bool still_waits(const qr_scheduler *s, const qr_choice *c) {
    if (c->wait_arrival == 0) return false;
    for (uint32_t i = 0; i < s->running_count; i++) {
        const qr_choice *other = s->running[i];
        if (other->job->arrival != c->wait_arrival || other->index != c->wait_index) continue;
        return may_wait_for(c, other) && other->computed < c->wait_tokens;
    }
    return false;
}

/* Looks for a prefill that will give at least one whole block more than `cached_blocks`. */
static bool finds_prefix_to_wait_for(const qr_scheduler *s, qr_choice *c, uint32_t cached_blocks) {
    c->wait_arrival = 0;
    for (uint32_t i = 0; i < s->running_count; i++) {
        const qr_choice *other = s->running[i];
        if (!may_wait_for(c, other)) continue;
        uint32_t shared = common_prefix(c, attach_limit(c), other) / s->block_tokens;
        if (shared <= cached_blocks || shared * s->block_tokens <= other->computed) continue;
        c->wait_arrival = other->job->arrival;
        c->wait_index = other->index;
        c->wait_tokens = shared * s->block_tokens;
        return true;
    }
    return false;
}

/* ---- starting ---- */

static void emit_started(qr_scheduler *s, qr_choice *c) {
    quire_event event = qr_choice_event(c, QUIRE_EVENT_STARTED);
    event.match = c->job->match;
    qr_scheduler_emit(s, &event);
}

static void count_first_start(qr_scheduler *s, qr_choice *c, const quire_kv_match *match, uint64_t now_us) {
    qr_job *job = c->job;
    if (job->started) return;
    job->started = true;
    job->started_us = now_us;
    job->match = *match;
    s->waiting_count--;
    s->stats.prompt_tokens_total += job->request.prompt_count;
    s->stats.cached_tokens_total += match->token_count;
    emit_started(s, c);
}

/* Blocks that nobody runs on. */
static uint32_t blocks_available(const qr_scheduler *s) {
    quire_kv_stats stats;
    quire_kv_get_stats(s->kv, &stats);
    return stats.block_free + stats.block_cached;
}

/* What must stay available for the others and itself to grow: a block for each, two when it was paused for want of
 * blocks before, so that it is not paused again at once. Nothing when it is alone: then it always fits. */
static uint32_t headroom_blocks(const qr_scheduler *s, const qr_choice *c) {
    if (s->running_count == 0) return 0;
    uint32_t runners = s->running_count + qr_choice_slots(c);
    return c->job->preemptions > 0 ? 2 * runners : runners;
}

/* Opens a sequence with the cached prefix and room for the whole history; as before when there is no room. */
static quire_status sequence_start(qr_scheduler *s, qr_choice *c, quire_kv_match *match) {
    quire_status status = quire_kv_seq_open(s->kv, c->job->ns, &c->seq);
    if (status != QUIRE_OK) return status;
    if (c->job->forgotten) status = quire_kv_seq_forget(s->kv, c->seq, true);
    if (status == QUIRE_OK) status = quire_kv_seq_attach(s->kv, c->seq, c->tokens, c->known, attach_limit(c), match);
    if (status == QUIRE_OK) status = quire_kv_seq_reserve(s->kv, c->seq, c->known);
    if (status == QUIRE_OK && blocks_available(s) < headroom_blocks(s, c)) status = QUIRE_NO_BLOCKS;
    if (status == QUIRE_OK) return status;
    quire_status closed = quire_kv_seq_close(s->kv, c->seq);
    QR_ASSERT(closed == QUIRE_OK);
    return status;
}

typedef enum start_result { STARTED, NO_ROOM, HOPELESS } start_result;

static start_result choice_start(qr_scheduler *s, qr_choice *c, uint64_t now_us) {
    quire_kv_match match = {0};
    quire_status status = sequence_start(s, c, &match);
    if (status != QUIRE_OK) {
        /* An empty house that has no room for one, and gets none, is an error to report, not a reason to wait. */
        bool may_come = s->running_count > 0 || s->in_flight > 0 || quire_kv_busy(s->kv);
        if (status == QUIRE_NO_BLOCKS && may_come) return NO_ROOM;
        qr_job_end(s, c->job, QUIRE_FINISH_ERROR, status, now_us);
        return HOPELESS;
    }
    qr_list_remove(&c->queue_node);
    c->has_sequence = true;
    c->state = QR_CHOICE_RUNNING;
    c->computed = c->scheduled = match.token_count;
    c->reserved = c->known;
    c->wait_arrival = 0;
    qr_slot_take(s, c);
    if (!c->job->forked) {
        for (uint32_t i = 1; i < c->job->request.choice_count; i++) {
            if (c->job->choices[i].state == QR_CHOICE_EMBRYO) qr_slot_take(s, &c->job->choices[i]);
        }
    }
    qr_running_insert(s, c);
    if (match.stored_tokens > 0) qr_load_start(s, c, attach_limit(c), &match, now_us);
    count_first_start(s, c, &match, now_us);
    return STARTED;
}

/* ---- choosing ---- */

typedef struct candidate {
    qr_choice *choice;
    uint32_t cached_blocks; /* those of lower tiers too, while loads pay */
    bool tried;
} candidate;

/* The queue's first entries of one urgency that wait for nothing but room. */
static uint32_t candidates_collect(const qr_scheduler *s, candidate out[QR_WINDOW]) {
    uint32_t count = 0, scanned = 0;
    QR_LIST_EACH (node, &s->queue) {
        qr_choice *c = QR_LIST_ENTRY(node, qr_choice, queue_node);
        if (count == QR_WINDOW || scanned++ == QR_SCAN_MAX) break;
        if (count > 0 && c->job->request.priority != out[0].choice->job->request.priority) break;
        if (still_waits(s, c)) continue;
        quire_kv_match match;
        quire_kv_match_prefix(s->kv, c->job->ns, c->tokens, c->known, attach_limit(c), &match);
        if (finds_prefix_to_wait_for(s, c, match.block_count)) continue;
        uint32_t stored_blocks = s->loads_pay ? match.stored_tokens / s->block_tokens : 0;
        out[count++] = (candidate){c, match.block_count + stored_blocks, false};
        if (c->passed >= QR_PASSES_MAX) break;
    }
    return count;
}

static candidate *candidates_best(candidate *list, uint32_t count) {
    candidate *best = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (!list[i].tried && (!best || list[i].cached_blocks > best->cached_blocks)) best = &list[i];
    }
    return best;
}

/* Starts one entry. NO_ROOM: none can. */
static start_result start_one(qr_scheduler *s, uint64_t now_us) {
    candidate list[QR_WINDOW];
    uint32_t count = candidates_collect(s, list);
    if (count > 0 && list[0].choice->passed >= QR_PASSES_MAX) count = 1;
    for (candidate *pick; (pick = candidates_best(list, count)); pick->tried = true) {
        if (qr_choice_slots(pick->choice) > s->free_slot_count) continue;
        start_result result = choice_start(s, pick->choice, now_us);
        if (result == NO_ROOM) continue;
        for (candidate *older = list; result == STARTED && older < pick; older++) older->choice->passed++;
        return result;
    }
    return NO_ROOM;
}

/* One hopeless entry ends per plan, so that a plan's events are bounded. */
void qr_admission_run(qr_scheduler *s, uint64_t now_us) {
    start_result result = STARTED;
    if (s->blocked_epoch == s->release_epoch) return;
    while (result == STARTED && !qr_list_empty(&s->queue) && s->free_slot_count > 0) result = start_one(s, now_us);
    if (result != HOPELESS) s->blocked_epoch = s->release_epoch;
}
