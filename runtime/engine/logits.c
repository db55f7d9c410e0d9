#include "runtime/engine/logits.h"

#include <math.h>
#include <string.h>

#include "base/assertion.h"
#include "runtime/engine/scalar_math.h"

static uint32_t count_infinite(const float *logits, uint32_t count) {
    uint32_t infinite = 0;
    for (uint32_t i = 0; i < count; i++) infinite += logits[i] == INFINITY;
    return infinite;
}

bool qr_logits_measure(const qr_softmax_path *path, const float *logits, uint32_t count, qr_logits_extent *extent) {
    extent->max = path->max(logits, count);
    extent->infinite_count = extent->max == INFINITY ? count_infinite(logits, count) : 0;
    return extent->max > -INFINITY;
}

static double weight_sum(const qr_softmax_path *path, const float *logits, uint32_t count, float max, float *sums) {
    double sum = 0;
    path->block_sums(logits, count, (qr_softmax_scale){max, QR_LOG2_E}, sums);
    for (uint32_t b = 0; b < qr_softmax_blocks(count); b++) sum += (double)sums[b];
    return sum;
}

bool qr_logits_summarize(const qr_softmax_path *path, const float *logits, uint32_t count, float *sums,
                         qr_logits_summary *summary) {
    memset(summary, 0, sizeof *summary);
    if (!qr_logits_measure(path, logits, count, &summary->extent)) return false;
    bool infinite = summary->extent.infinite_count > 0;
    double sum = infinite ? summary->extent.infinite_count : weight_sum(path, logits, count, summary->extent.max, sums);
    summary->log_sum = qr_log_positive(sum);
    return true;
}

float qr_logits_logprob(const qr_logits_summary *summary, float logit) {
    double difference = (double)logit - (double)summary->extent.max;
    if (summary->extent.infinite_count > 0) difference = logit == INFINITY ? 0.0 : -INFINITY;
    float logprob = (float)(difference - summary->log_sum);
    return logprob >= QR_LOGPROB_FLOOR ? logprob : QR_LOGPROB_FLOOR; /* NaN too */
}

uint32_t qr_logits_top(const qr_logits_summary *summary, const float *logits, uint32_t count, uint32_t k,
                       quire_token_logprob *top) {
    uint32_t found = 0;
    float worst = -INFINITY;
    QR_ASSERT(k <= QUIRE_TOP_LOGPROBS_MAX);
    if (k > count) k = count;
    for (uint32_t i = 0; i < count && k > 0; i++) {
        float logit = logits[i] == logits[i] ? logits[i] : -INFINITY;
        if (found == k && !(logit > worst)) continue;
        uint32_t at = found < k ? found++ : k - 1;
        for (; at > 0 && top[at - 1].logprob < logit; at--) top[at] = top[at - 1];
        top[at] = (quire_token_logprob){(quire_token)i, logit};
        worst = top[found - 1].logprob;
    }
    for (uint32_t i = 0; i < found; i++) top[i].logprob = qr_logits_logprob(summary, top[i].logprob);
    return found;
}

static uint64_t finalise(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint32_t canonical_bits(float logit) {
    uint32_t bits;
    if (logit != logit) return 0x7fc00000u;
    if (logit == 0.0f) return 0;
    memcpy(&bits, &logit, sizeof bits);
    return bits;
}

uint64_t qr_logits_digest(const float *logits, uint32_t count) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += finalise((uint64_t)i << 32 | canonical_bits(logits[i]));
    return sum;
}
