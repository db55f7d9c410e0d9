#include "runtime/engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/hash.h"
#include "base/memory.h"
#include "runtime/engine/logits.h"
#include "runtime/engine/scalar_math.h"

enum { WEIGHT_BLOCK = 64 };

typedef struct candidate {
    float logit;
    quire_token token;
} candidate;

struct qr_sampler {
    uint32_t vocabulary_size;
    const quire_token *end_tokens;
    uint32_t end_token_count;
    float *adjusted;       /* [vocabulary_size] logits after penalties, bias and mask */
    candidate *candidates; /* [vocabulary_size] */
    double *weights;       /* [vocabulary_size] of candidates; of blocks of the vocabulary where nothing filters */
    uint32_t *counts;      /* [vocabulary_size] in the answer so far; all 0 between calls */
    uint8_t *seen;         /* [vocabulary_size] in prompt or answer; all 0 between calls */
};

/* What is drawn from. */
typedef struct distribution {
    const float *logits;
    double max, temperature;
    double total; /* sum of all weights, block by block */
} distribution;

/* ---- memory ---- */

uint64_t qr_sampler_bytes(uint32_t vocabulary_size) {
    uint64_t each = sizeof(float) + sizeof(candidate) + sizeof(double) + sizeof(uint32_t) + 1;
    return sizeof(qr_sampler) + each * ((uint64_t)vocabulary_size + WEIGHT_BLOCK);
}

qr_sampler *qr_sampler_create(uint32_t vocabulary_size, const quire_token *end_tokens, uint32_t end_token_count) {
    qr_sampler *s = qr_alloc_zero(1, sizeof *s);
    if (!s) return NULL;
    s->vocabulary_size = vocabulary_size;
    s->end_tokens = end_tokens;
    s->end_token_count = end_token_count;
    s->adjusted = qr_alloc_zero(vocabulary_size, sizeof(float));
    s->candidates = qr_alloc_zero(vocabulary_size, sizeof(candidate));
    s->weights = qr_alloc_zero((size_t)vocabulary_size + WEIGHT_BLOCK, sizeof(double));
    s->counts = qr_alloc_zero(vocabulary_size, sizeof(uint32_t));
    s->seen = qr_alloc_zero(vocabulary_size, 1);
    if (s->adjusted && s->candidates && s->weights && s->counts && s->seen) return s;
    qr_sampler_destroy(s);
    return NULL;
}

void qr_sampler_destroy(qr_sampler *s) {
    if (!s) return;
    free(s->adjusted);
    free(s->candidates);
    free(s->weights);
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

static double weight(const distribution *d, float logit) { return qr_exp_negative(((double)logit - d->max) / d->temperature); }

/* a stands before b: likelier, or as likely with a lower id. */
static bool stands_before(const candidate *a, const candidate *b) {
    return a->logit != b->logit ? a->logit > b->logit : a->token < b->token;
}

static void sift_down(candidate *heap, uint32_t root, uint32_t count) {
    candidate moved = heap[root];
    for (uint32_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && stands_before(&heap[child], &heap[child + 1])) child++;
        if (!stands_before(&moved, &heap[child])) break;
        heap[root] = heap[child];
    }
    heap[root] = moved;
}

/* Heap sort: in place and free of allocation, which qsort is not. */
static void sort_candidates(candidate *list, uint32_t count) {
    for (uint32_t i = count / 2; i-- > 0;) sift_down(list, i, count);
    for (uint32_t end = count; end-- > 1;) {
        candidate last = list[end];
        list[end] = list[0];
        list[0] = last;
        sift_down(list, 0, end);
    }
}

/* All candidates whose scaled logit is within depth of the best, sorted. */
static uint32_t collect(qr_sampler *s, const distribution *d, double depth) {
    double lowest = d->max - depth * d->temperature;
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->vocabulary_size; i++) {
        float logit = d->logits[i];
        if ((double)logit >= lowest && logit > -INFINITY) s->candidates[count++] = (candidate){logit, (quire_token)i};
    }
    sort_candidates(s->candidates, count);
    for (uint32_t i = 0; i < count; i++) s->weights[i] = weight(d, s->candidates[i].logit);
    return count;
}

static uint32_t keep_top_p(const double *weights, uint32_t count, double share) {
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += weights[i];
        if (sum >= share) return i + 1;
    }
    return count;
}

static uint32_t keep_min_p(const double *weights, uint32_t count, double min_p) {
    uint32_t kept = 1;
    if (min_p >= 1) return kept;
    while (kept < count && weights[kept] >= min_p) kept++;
    return kept;
}

static double sum_of(const double *weights, uint32_t count) {
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += weights[i];
    return sum;
}

static uint32_t active_top_k(const qr_sampler *s, const quire_sampling *p) {
    return p->top_k > 0 && (uint32_t)p->top_k < s->vocabulary_size ? (uint32_t)p->top_k : 0;
}

/* True when the filters' answer cannot depend on candidates below the collected ones. */
static bool collected_enough(const qr_sampler *s, const distribution *d, const quire_sampling *p, uint32_t count) {
    uint32_t top_k = active_top_k(s, p);
    if (top_k) return count >= top_k;
    if (p->top_p < 1) return sum_of(s->weights, count) >= (double)p->top_p * d->total;
    return s->weights[count - 1] < (double)p->min_p;
}

/* Leaves the kept candidates sorted in s->candidates with their weights; returns how many. Looks at the likely ones first:
 * a few hundred decide almost always. */
static uint32_t filter(qr_sampler *s, const distribution *d, const quire_sampling *p) {
    double depth = 8;
    uint32_t count = collect(s, d, depth);
    while (depth < 1024 && !collected_enough(s, d, p, count)) count = collect(s, d, depth *= 2);
    if (!collected_enough(s, d, p, count)) count = collect(s, d, INFINITY);
    uint32_t top_k = active_top_k(s, p);
    if (top_k && count > top_k) count = top_k;
    double total = top_k ? sum_of(s->weights, count) : d->total;
    if (p->top_p < 1) count = keep_top_p(s->weights, count, (double)p->top_p * total);
    if (p->min_p > 0) count = keep_min_p(s->weights, count, p->min_p);
    return count;
}

/* ---- 8: the draw ---- */

static double uniform(uint64_t seed, uint64_t index) { return (double)(qr_mix64(seed ^ qr_mix64(index)) >> 11) * 0x1p-53; }

/* The first whose running sum passes u times the total; rounding may leave none, then the last that has any weight. */
static uint32_t pick(const double *weights, uint32_t count, double target) {
    uint32_t last = 0;
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += weights[i];
        if (sum > target) return i;
        if (weights[i] > 0) last = i;
    }
    return last;
}

static uint32_t block_size(const qr_sampler *s, uint32_t begin) {
    return s->vocabulary_size - begin < WEIGHT_BLOCK ? s->vocabulary_size - begin : WEIGHT_BLOCK;
}

static void block_weights(const qr_sampler *s, const distribution *d, uint32_t begin, double out[WEIGHT_BLOCK]) {
    uint32_t count = block_size(s, begin);
    for (uint32_t i = 0; i < count; i++) out[i] = weight(d, d->logits[begin + i]);
}

static uint32_t block_count(const qr_sampler *s) { return (s->vocabulary_size + WEIGHT_BLOCK - 1) / WEIGHT_BLOCK; }

static double block_sums(qr_sampler *s, const distribution *d) {
    double all = 0;
    for (uint32_t b = 0; b < block_count(s); b++) {
        double w[WEIGHT_BLOCK];
        block_weights(s, d, b * WEIGHT_BLOCK, w);
        s->weights[b] = sum_of(w, block_size(s, b * WEIGHT_BLOCK));
        all += s->weights[b];
    }
    return all;
}

static quire_token draw_unfiltered(qr_sampler *s, const distribution *d, double u) {
    double w[WEIGHT_BLOCK], target = u * d->total, before = 0;
    uint32_t block = pick(s->weights, block_count(s), target);
    for (uint32_t b = 0; b < block; b++) before += s->weights[b];
    block_weights(s, d, block * WEIGHT_BLOCK, w);
    return (quire_token)(block * WEIGHT_BLOCK + pick(w, block_size(s, block * WEIGHT_BLOCK), target - before));
}

static quire_token draw(qr_sampler *s, const distribution *d, const qr_step_sample *sample) {
    const quire_sampling *p = sample->sampling;
    double u = uniform(sample->seed, sample->draw_index);
    if (!active_top_k(s, p) && p->top_p >= 1 && p->min_p <= 0) return draw_unfiltered(s, d, u);
    uint32_t kept = filter(s, d, p);
    return s->candidates[pick(s->weights, kept, u * sum_of(s->weights, kept))].token;
}

static quire_token best(const float *logits, uint32_t count, float max) {
    uint32_t i = 0;
    while (i < count && logits[i] != max) i++;
    QR_ASSERT(i < count);
    return (quire_token)i;
}

static quire_status choose(qr_sampler *s, const float *logits, const qr_step_sample *sample, quire_token fed,
                           quire_token *token) {
    qr_logits_extent extent;
    const float *adjusted = adjust(s, logits, sample, fed);
    if (!qr_logits_measure(adjusted, s->vocabulary_size, &extent)) return QUIRE_BAD_LOGITS;
    if (sample->sampling->temperature <= 0) {
        *token = best(adjusted, s->vocabulary_size, extent.max);
        return QUIRE_OK;
    }
    if (extent.infinite_count > 0) {
        adjusted = flatten(s, adjusted);
        extent.max = 0;
    }
    distribution d = {adjusted, extent.max, sample->sampling->temperature, 0};
    if (!active_top_k(s, sample->sampling)) d.total = block_sums(s, &d);
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
    if (!qr_logits_summarize(logits, s->vocabulary_size, &summary)) {
        result->status = QUIRE_BAD_LOGITS;
        return;
    }
    uint32_t top_count = sample->top_logprobs > 0 ? (uint32_t)sample->top_logprobs : 0;
    result->logprob = qr_logits_logprob(&summary, logits[result->token]);
    result->top_count = qr_logits_top(&summary, logits, s->vocabulary_size, top_count, result->top);
}
