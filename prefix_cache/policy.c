#include "prefix_cache/policy.h"

#include <math.h>

#include "base/hash.h"

/* Before anything is learnt, people are taken to come back after half a minute. H stays between a second and an hour. */
static const double policy_first_horizon_s = 30.0;
static const double policy_horizon_min_s = 1.0;
static const double policy_horizon_max_s = 3600.0;
static const double policy_delay_min_s = 0.01;

enum {
    POLICY_ENDS_PER_UPDATE = 100,       /* prompts between two looks at H */
    POLICY_OBSERVATIONS_SETTLED = 2000, /* steps of the median shrink until here */
};

void qr_policy_init(qr_policy *policy, quire_kv_policy kind, qr_arena *arena) {
    *policy = (qr_policy){.kind = kind, .horizon_s = policy_first_horizon_s, .median_log2 = log2(policy_first_horizon_s)};
    if (kind == QUIRE_KV_DLFU) policy->ends = qr_arena_take(arena, QR_POLICY_ENDS, sizeof *policy->ends);
}

static double policy_seconds(uint64_t from_us, uint64_t to_us) {
    return to_us > from_us ? (double)(to_us - from_us) * 1e-6 : 0.0;
}

static void policy_observe(qr_policy *policy, double delay_s) {
    uint32_t seen = policy->observation_count;
    double step = 1.0 / (1.0 + 0.02 * (seen < POLICY_OBSERVATIONS_SETTLED ? seen : POLICY_OBSERVATIONS_SETTLED));
    double delay_log2 = log2(delay_s > policy_delay_min_s ? delay_s : policy_delay_min_s);
    policy->median_log2 += delay_log2 > policy->median_log2 ? step : -step;
    policy->observation_count++;
}

static uint64_t policy_fingerprint(const qr_node *node) { return qr_mix64((uint64_t)node->root << 32 | node->hash) | 1; }

static qr_policy_end *policy_end_place(const qr_policy *policy, uint64_t fingerprint) {
    return &policy->ends[(fingerprint >> 32) % QR_POLICY_ENDS];
}

/* Somebody came back to this node; if a prompt ended here, that tells how long it took. */
static void policy_return(qr_policy *policy, const qr_node *node) {
    uint64_t fingerprint = policy_fingerprint(node);
    qr_policy_end *end = policy_end_place(policy, fingerprint);
    if (end->fingerprint != fingerprint) return;
    policy_observe(policy, policy_seconds(end->time_us, policy->now_us));
    end->fingerprint = 0;
}

static void policy_touch_dlfu(qr_policy *policy, qr_node *node) {
    double idle_s = policy_seconds(node->touched, policy->now_us);
    policy_return(policy, node);
    node->weight = node->weight > 0 ? (float)(node->weight * exp2(-idle_s / policy->horizon_s) + 1.0) : 1.0f;
    node->touched = policy->now_us;
}

static void policy_touch_lru(qr_policy *policy, qr_node *node) {
    node->weight = node->weight > 0 ? 2.0f : 1.0f;
    node->touched = ++policy->touch_count;
}

void qr_policy_touch(qr_policy *policy, qr_node *node) {
    if (policy->kind == QUIRE_KV_LRU) policy_touch_lru(policy, node);
    else policy_touch_dlfu(policy, node);
}

bool qr_policy_seen_twice(const qr_node *node) { return node->weight > 1; }

void qr_policy_release(qr_policy *policy, qr_node *node) {
    if (policy->kind == QUIRE_KV_LRU) node->touched = ++policy->touch_count;
}

/* H follows the median in steps of at least a quarter octave: ranks under one H stay comparable for a while. */
static void policy_update_horizon(qr_policy *policy) {
    double horizon_s = 2.0 * exp2(policy->median_log2);
    horizon_s = fmin(policy_horizon_max_s, fmax(policy_horizon_min_s, horizon_s));
    if (fabs(log2(horizon_s / policy->horizon_s)) > 0.25) policy->horizon_s = horizon_s;
}

void qr_policy_mark_end(qr_policy *policy, const qr_node *node) {
    if (policy->kind != QUIRE_KV_DLFU) return;
    uint64_t fingerprint = policy_fingerprint(node);
    *policy_end_place(policy, fingerprint) = (qr_policy_end){fingerprint, policy->now_us};
    if (++policy->end_count % POLICY_ENDS_PER_UPDATE == 0) policy_update_horizon(policy);
}

static double policy_rank(const qr_policy *policy, const qr_node *node) {
    if (policy->kind == QUIRE_KV_LRU) return (double)node->touched;
    return log2((double)node->weight) + (double)node->touched * 1e-6 / policy->horizon_s;
}

bool qr_policy_before(const qr_policy *policy, const qr_node *a, const qr_node *b) {
    double x = policy_rank(policy, a), y = policy_rank(policy, b);
    return x != y ? x < y : a->depth > b->depth;
}
