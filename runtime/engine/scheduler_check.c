/* Every invariant of the scheduler's state, for tests, `check` requests and shutdown. Changes nothing. */
#include "base/error.h"
#include "runtime/engine/scheduler_internal.h"

#define REQUIRE(condition, ...)                                                                         \
    do {                                                                                                \
        if (!(condition)) return qr_fail(error, QUIRE_CORRUPT, "scheduler", QR_NO_OFFSET, __VA_ARGS__); \
    } while (0)

static quire_status check_choice(const qr_scheduler *s, const qr_choice *c, quire_error *error) {
    unsigned long long id = (unsigned long long)c->job->request.id;
    REQUIRE(c->computed <= c->scheduled, "request %llu: computed beyond scheduled", id);
    REQUIRE(c->scheduled <= c->reserved || !c->has_sequence, "request %llu: rows without room", id);
    REQUIRE(c->scheduled <= c->known + c->pending, "request %llu: scheduled beyond what is known", id);
    REQUIRE(qr_choice_generated(c) <= c->job->limit, "request %llu: more tokens than its limit", id);
    REQUIRE(c->in_flight <= s->in_flight, "request %llu: in more steps than are in flight", id);
    REQUIRE(c->has_sequence <= c->has_slot, "request %llu: a sequence without a slot", id);
    REQUIRE(c->state != QR_CHOICE_QUEUED || (!c->has_slot && c->in_flight == 0), "request %llu: queued and running", id);
    REQUIRE(c->state != QR_CHOICE_RUNNING || c->has_sequence, "request %llu: running without a sequence", id);
    REQUIRE(c->state != QR_CHOICE_EMBRYO || !c->job->forked, "request %llu: never forked", id);
    REQUIRE(!c->loads || c->state == QR_CHOICE_RUNNING, "request %llu: it loads and does not run", id);
    if (!c->has_sequence) return QUIRE_OK;
    quire_kv_seq_info info;
    REQUIRE(quire_kv_seq_get(s->kv, c->seq, &info) == QUIRE_OK, "request %llu: its sequence is gone", id);
    REQUIRE(info.token_count == c->computed, "request %llu: %u tokens computed, %u in the KV manager", id, c->computed,
            info.token_count);
    REQUIRE(info.reserved_tokens >= c->reserved, "request %llu: less room than it counts on", id);
    for (uint32_t i = 0; i < info.token_count; i++) {
        REQUIRE(info.tokens[i] == c->tokens[i], "request %llu: token %u differs in the KV manager", id, i);
    }
    return QUIRE_OK;
}

static quire_status check_jobs(const qr_scheduler *s, const qr_list *list, uint32_t *slots, uint32_t *sequences,
                               quire_error *error) {
    QR_LIST_EACH (node, list) {
        const qr_job *job = QR_LIST_ENTRY(node, qr_job, node);
        uint32_t live = 0;
        for (uint32_t i = 0; i < job->request.choice_count; i++) {
            const qr_choice *c = &job->choices[i];
            quire_status status = check_choice(s, c, error);
            if (status != QUIRE_OK) return status;
            live += c->state != QR_CHOICE_ENDED;
            *slots += c->has_slot;
            *sequences += c->has_sequence;
        }
        REQUIRE(live == job->live, "request %llu: live choices miscounted", (unsigned long long)job->request.id);
        REQUIRE(job->done == (live == 0), "request %llu: done and live", (unsigned long long)job->request.id);
    }
    return QUIRE_OK;
}

static quire_status check_orders(const qr_scheduler *s, quire_error *error) {
    for (uint32_t i = 1; i < s->running_count; i++) {
        REQUIRE(qr_choice_before(s->running[i - 1], s->running[i]), "running choices out of order at %u", i);
    }
    const qr_choice *before = NULL;
    QR_LIST_EACH (node, &s->queue) {
        const qr_choice *c = QR_LIST_ENTRY(node, qr_choice, queue_node);
        REQUIRE(c->state == QR_CHOICE_QUEUED, "a choice in the queue that is not queued");
        REQUIRE(!before || qr_choice_before(before, c), "the queue is out of order");
        before = c;
    }
    return QUIRE_OK;
}

static quire_status check_counts(const qr_scheduler *s, quire_error *error) {
    uint32_t live = 0, waiting = 0;
    QR_LIST_EACH (node, &s->live) {
        live++;
        waiting += !QR_LIST_ENTRY(node, qr_job, node)->started;
    }
    REQUIRE(live == s->live_count, "%u live requests, counted %u", live, s->live_count);
    REQUIRE(waiting == s->waiting_count, "%u waiting requests, counted %u", waiting, s->waiting_count);
    return QUIRE_OK;
}

quire_status qr_scheduler_check(const qr_scheduler *s, quire_error *error) {
    uint32_t slots = 0, sequences = 0;
    quire_status status = check_jobs(s, &s->live, &slots, &sequences, error);
    if (status == QUIRE_OK) status = check_jobs(s, &s->closing, &slots, &sequences, error);
    if (status == QUIRE_OK) status = check_orders(s, error);
    if (status == QUIRE_OK) status = check_counts(s, error);
    if (status != QUIRE_OK) return status;
    REQUIRE(slots + s->free_slot_count == s->config.max_sequences, "%u slots taken, %u free, of %u", slots, s->free_slot_count,
            s->config.max_sequences);
    REQUIRE(sequences == s->running_count, "%u sequences open, %u running", sequences, s->running_count);
    return QUIRE_OK;
}
