#include "runtime/engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/cpu_features.h"
#include "base/hash.h"
#include "base/memory.h"
#include "runtime/engine/logits.h"

typedef struct candidate {
    float logit;
    quire_token token;
} candidate;

struct qr_sampler {
    const qr_softmax_path *path;
    uint32_t vocabulary_size;
    const quire_token *end_tokens;
    uint32_t end_token_count;
    float *adjusted;       /* [vocabulary_size] logits after penalties, bias and mask */
    candidate *candidates; /* [vocabulary_size] */
    float *weights;        /* [vocabulary_size] of the candidates that were popped, in that order */
    float *sums;           /* [blocks of the vocabulary] */
    uint32_t *counts;      /* [vocabulary_size] in the answer so far; all 0 between calls */
    uint8_t *seen;         /* [vocabulary_size] in prompt or answer; all 0 between calls */
};

/* What is drawn from. */
typedef struct distribution {
    const float *logits;
    qr_softmax_scale scale;
    float temperature;
    double total; /* sum of all weights, block by block */
} distribution;

/* ---- memory ---- */

uint64_t qr_sampler_bytes(uint32_t vocabulary_size) {
    uint64_t each = 2 * sizeof(float) + sizeof(candidate) + sizeof(uint32_t) + 1;
    return sizeof(qr_sampler) + each * vocabulary_size + qr_softmax_blocks(vocabulary_size) * sizeof(float);
}

qr_sampler *qr_sampler_create(uint32_t vocabulary_size, const quire_token *end_tokens, uint32_t end_token_count) {
    qr_sampler *s = qr_alloc_zero(1, sizeof *s);
    if (!s) return NULL;
    qr_cpu_features features;
    qr_cpu_features_detect(&features);
    s->path = qr_softmax_best(&features);
    s->vocabulary_size = vocabulary_size;
    s->end_tokens = end_tokens;
    s->end_token_count = end_token_count;
    s->adjusted = qr_alloc_zero(vocabulary_size, sizeof(float));
    s->candidates = qr_alloc_zero(vocabulary_size, sizeof(candidate));
    s->weights = qr_alloc_zero(vocabulary_size, sizeof(float));
    s->sums = qr_alloc_zero(qr_softmax_blocks(vocabulary_size), sizeof(float));
    s->counts = qr_alloc_zero(vocabulary_size, sizeof(uint32_t));
    s->seen = qr_alloc_zero(vocabulary_size, 1);
    if (s->adjusted && s->candidates && s->weights && s->sums && s->counts && s->seen) return s;
    qr_sampler_destroy(s);
    return NULL;
}

void qr_sampler_destroy(qr_sampler *s) {
    if (!s) return;
    free(s->adjusted);
    free(s->candidates);
    free(s->weights);
    free(s->sums);
    free(s->counts);
    free(s->seen);
    free(s);
}

/* ---- 1 to 3: what the request does to the logits ---- */

static bool penalises_repetition(const quire_sampling *p) { return p->repetition_penalty != 1.0f; }
static bool penalises_counts(const quire_sampling *p) { return p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f; }

static bool changes_logits(const qr_step_sample *sample) {
    const quire_sampling *p = sample->sampling;
    return penalises_repetition(p) || penalises_counts(p) || p->bias_count > 0 || sample->mask_end;
}

static void mark(qr_sampler *s, const quire_token *tokens, uint32_t count, uint32_t weight) {
    for (uint32_t i = 0; i < count; i++) {
        QR_ASSERT(tokens[i] >= 0 && (uint32_t)tokens[i] < s->vocabulary_size);
        s->seen[tokens[i]] = 1;
        s->counts[tokens[i]] += weight;
    }
}

/* Each distinct token once, whatever the order; leaves the marks clear. */
static void penalise_marked(qr_sampler *s, const quire_sampling *p, const quire_token *tokens, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        quire_token token = tokens[i];
        if (!s->seen[token]) continue;
        float logit = s->adjusted[token];
        logit = logit > 0 ? logit / p->repetition_penalty : logit * p->repetition_penalty;
        logit -= p->frequency_penalty * (float)s->counts[token];
        if (s->counts[token] > 0) logit -= p->presence_penalty;
        s->adjusted[token] = logit;
        s->seen[token] = 0;
        s->counts[token] = 0;
    }
}

static void penalise(qr_sampler *s, const qr_step_sample *sample, quire_token fed) {
    const quire_sampling *p = sample->sampling;
    uint32_t prompt_count = penalises_repetition(p) ? sample->prompt_count : 0;
    uint32_t fed_count = fed != QR_TOKEN_SAMPLED;
    mark(s, sample->prompt, prompt_count, 0);
    mark(s, sample->generated, sample->generated_count, 1);
    mark(s, &fed, fed_count, 1);
    penalise_marked(s, p, sample->prompt, prompt_count);
    penalise_marked(s, p, sample->generated, sample->generated_count);
    penalise_marked(s, p, &fed, fed_count);
}

static void mask(qr_sampler *s, const quire_token *tokens, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) s->adjusted[tokens[i]] = -INFINITY;
}

static const float *adjust(qr_sampler *s, const float *logits, const qr_step_sample *sample, quire_token fed) {
    const quire_sampling *p = sample->sampling;
    if (!changes_logits(sample)) return logits;
    memcpy(s->adjusted, logits, s->vocabulary_size * sizeof(float));
    if (penalises_repetition(p) || penalises_counts(p)) penalise(s, sample, fed);
    for (uint32_t i = 0; i < p->bias_count; i++) s->adjusted[p->bias[i].token] += p->bias[i].bias;
    if (sample->mask_end) {
        mask(s, s->end_tokens, s->end_token_count);
        mask(s, sample->stop_tokens, sample->stop_token_count);
    }
    return s->adjusted;
}

/* With +inf among them the infinite ones share everything: 0 for those, -inf for the rest. */
static const float *flatten(qr_sampler *s, const float *logits) {
    for (uint32_t i = 0; i < s->vocabulary_size; i++) s->adjusted[i] = logits[i] == INFINITY ? 0.0f : -INFINITY;
    return s->adjusted;
}

/* ---- 4 to 7: filters ---- */

/* Candidates wait in a heap whose top is the likeliest; popping them gives their order as far as it is needed. */
typedef struct heap {
    candidate *list;
    uint32_t count;
} heap;

/* a stands before b: likelier, or as likely with a lower id. */
static bool stands_before(const candidate *a, const candidate *b) {
    return a->logit != b->logit ? a->logit > b->logit : a->token < b->token;
}

static void sift_down(const heap *h, uint32_t root) {
    candidate moved = h->list[root];
    for (uint32_t child; (child = 2 * root + 1) < h->count; root = child) {
        if (child + 1 < h->count && stands_before(&h->list[child + 1], &h->list[child])) child++;
        if (!stands_before(&h->list[child], &moved)) break;
        h->list[root] = h->list[child];
    }
    h->list[root] = moved;
}

/* The popped one stands behind the heap: the i-th popped of n collected ends at n - 1 - i. */
static candidate heap_pop(heap *h) {
    candidate top = h->list[0];
    h->list[0] = h->list[--h->count];
    h->list[h->count] = top;
    if (h->count > 0) sift_down(h, 0);
    return top;
}

/* All candidates whose scaled logit is within depth of the best. */
static heap collect(const qr_sampler *s, const distribution *d, float depth) {
    float lowest = d->scale.max - depth * d->temperature;
    heap h = {s->candidates, 0};
    for (uint32_t i = 0; i < s->vocabulary_size; i++) {
        float logit = d->logits[i];
        if (logit >= lowest && logit > -INFINITY) h.list[h.count++] = (candidate){logit, (quire_token)i};
    }
    for (uint32_t i = h.count / 2; i-- > 0;) sift_down(&h, i);
    return h;
}

static uint32_t active_top_k(const qr_sampler *s, const quire_sampling *p) {
    return p->top_k > 0 && (uint32_t)p->top_k < s->vocabulary_size ? (uint32_t)p->top_k : 0;
}

/* Pops until top_k, or else top_p over everything, or else min_p has its fill; the weights go to s->weights. True: it had,
 * and what was not collected cannot matter. */
static bool pop_enough(qr_sampler *s, const distribution *d, const quire_sampling *p, heap *h, uint32_t *popped) {
    uint32_t top_k = active_top_k(s, p), n = 0;
    double sum = 0;
    while (h->count > 0) {
        float weight = qr_softmax_weight(heap_pop(h).logit, d->scale);
        s->weights[n++] = weight;
        sum += (double)weight;
        *popped = n;
        if (top_k ? n == top_k : p->top_p < 1 ? sum >= (double)p->top_p * d->total : weight < p->min_p) return true;
    }
    return false;
}

static double sum_of(const float *weights, uint32_t count) {
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += (double)weights[i];
    return sum;
}

static uint32_t keep_top_p(const float *weights, uint32_t count, double share) {
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += (double)weights[i];
        if (sum >= share) return i + 1;
    }
    return count;
}

static uint32_t keep_min_p(const float *weights, uint32_t count, float min_p) {
    uint32_t kept = 1;
    if (min_p >= 1) return kept;
    while (kept < count && weights[kept] >= min_p) kept++;
    return kept;
}

/* The kept candidates, likeliest first: their number; candidate i stands at (*first)[-i], its weight at s->weights[i]. Looks
 * at the likely ones first: they decide almost always. */
static uint32_t filter(qr_sampler *s, const distribution *d, const quire_sampling *p, const candidate **first) {
    uint32_t count = 0;
    heap h = collect(s, d, 8);
    uint32_t collected = h.count;
    if (!pop_enough(s, d, p, &h, &count)) {
        h = collect(s, d, INFINITY);
        collected = h.count;
        (void)pop_enough(s, d, p, &h, &count); /* with everything collected, all that there is is enough */
    }
    *first = &s->candidates[collected - 1];
    double total = active_top_k(s, p) ? sum_of(s->weights, count) : d->total;
    if (p->top_p < 1) count = keep_top_p(s->weights, count, (double)p->top_p * total);
    if (p->min_p > 0) count = keep_min_p(s->weights, count, p->min_p);
    return count;
}

/* ---- 8: the draw ---- */

static double uniform(uint64_t seed, uint64_t index) { return (double)(qr_mix64(seed ^ qr_mix64(index)) >> 11) * 0x1p-53; }

/* The first whose running sum passes the target; rounding may leave none, then the last that has any weight. */
static uint32_t pick(const float *weights, uint32_t count, double target) {
    uint32_t last = 0;
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += (double)weights[i];
        if (sum > target) return i;
        if (weights[i] > 0) last = i;
    }
    return last;
}

/* In the order of ids: the block first, then the token in it. */
static quire_token draw_unfiltered(const qr_sampler *s, const distribution *d, double u) {
    float weights[QR_SOFTMAX_BLOCK];
    double target = u * d->total;
    uint32_t block = pick(s->sums, qr_softmax_blocks(s->vocabulary_size), target);
    uint32_t begin = block * QR_SOFTMAX_BLOCK, count = s->vocabulary_size - begin;
    if (count > QR_SOFTMAX_BLOCK) count = QR_SOFTMAX_BLOCK;
    for (uint32_t i = 0; i < count; i++) weights[i] = qr_softmax_weight(d->logits[begin + i], d->scale);
    return (quire_token)(begin + pick(weights, count, target - sum_of(s->sums, block)));
}

static quire_token draw(qr_sampler *s, const distribution *d, const qr_step_sample *sample) {
    const quire_sampling *p = sample->sampling;
    double u = uniform(sample->seed, sample->draw_index);
    if (!active_top_k(s, p) && p->top_p >= 1 && p->min_p <= 0) return draw_unfiltered(s, d, u);
    const candidate *first;
    uint32_t kept = filter(s, d, p, &first);
    return first[-(ptrdiff_t)pick(s->weights, kept, u * sum_of(s->weights, kept))].token;
}

static quire_token best(const float *logits, uint32_t count, float max) {
    uint32_t i = 0;
    while (i < count && logits[i] != max) i++;
    QR_ASSERT(i < count);
    return (quire_token)i;
}

static double total_weight(const qr_sampler *s, const distribution *d) {
    s->path->block_sums(d->logits, s->vocabulary_size, d->scale, s->sums);
    return sum_of(s->sums, qr_softmax_blocks(s->vocabulary_size));
}

static quire_status choose(qr_sampler *s, const float *logits, const qr_step_sample *sample, quire_token fed,
                           quire_token *token) {
    qr_logits_extent extent;
    const float *adjusted = adjust(s, logits, sample, fed);
    float temperature = sample->sampling->temperature;
    if (!qr_logits_measure(s->path, adjusted, s->vocabulary_size, &extent)) return QUIRE_BAD_LOGITS;
    if (temperature < QR_SAMPLER_GREEDY_BELOW) {
        *token = best(adjusted, s->vocabulary_size, extent.max);
        return QUIRE_OK;
    }
    if (extent.infinite_count > 0) {
        adjusted = flatten(s, adjusted);
        extent.max = 0;
    }
    distribution d = {adjusted, {extent.max, QR_LOG2_E / temperature}, temperature, 0};
    if (!active_top_k(s, sample->sampling)) d.total = total_weight(s, &d);
    *token = draw(s, &d, sample);
    return QUIRE_OK;
}

void qr_sampler_run(qr_sampler *s, const float *logits, const qr_step_sample *sample, quire_token fed,
                    qr_sample_result *result) {
    memset(result, 0, sizeof *result);
    result->token = sample->target;
    if (sample->kind == QR_SAMPLE_DRAW) result->status = choose(s, logits, sample, fed, &result->token);
    if (sample->digest) result->digest = qr_logits_digest(logits, s->vocabulary_size);
    if (result->status != QUIRE_OK || (sample->top_logprobs < 0 && sample->kind == QR_SAMPLE_DRAW)) return;
    qr_logits_summary summary;
    if (!qr_logits_summarize(s->path, logits, s->vocabulary_size, s->sums, &summary)) {
        result->status = QUIRE_BAD_LOGITS;
        return;
    }
    uint32_t top_count = sample->top_logprobs > 0 ? (uint32_t)sample->top_logprobs : 0;
    result->logprob = qr_logits_logprob(&summary, logits[result->token]);
    result->top_count = qr_logits_top(&summary, logits, s->vocabulary_size, top_count, result->top);
}
