/* logits.h - what is read off a row of raw logits: log-probabilities, the best tokens, a digest.
 *
 * Every logit has a defined meaning: NaN is never a candidate, as -inf; one or more +inf win over everything finite and
 * share the probability equally; a row without any candidate cannot be sampled. Sums are those of softmax.h, added block by
 * block in double precision, so the same logits give the same bits on every machine.
 *
 * Pure; any thread. */
#ifndef QR_ENGINE_LOGITS_H
#define QR_ENGINE_LOGITS_H

#include "runtime/engine/softmax.h"
#include <quire/engine.h>

/* What a log-probability of a token without any is reported as: finite, so that it survives JSON. */
#define QR_LOGPROB_FLOOR (-1e30f)

typedef struct qr_logits_extent {
    float max;               /* the highest candidate */
    uint32_t infinite_count; /* logits that are +inf */
} qr_logits_extent;

typedef struct qr_logits_summary {
    qr_logits_extent extent;
    double log_sum; /* ln of the sum of e^(logit - max); with +inf logits ln of their count */
} qr_logits_summary;

/* Both false: no candidate (all NaN or -inf). sums [qr_softmax_blocks(count)] is scratch. */
bool qr_logits_measure(const qr_softmax_path *path, const float *logits, uint32_t count, qr_logits_extent *extent);
bool qr_logits_summarize(const qr_softmax_path *path, const float *logits, uint32_t count, float *sums,
                         qr_logits_summary *summary);
/* Log-softmax of one logit; QR_LOGPROB_FLOOR at least. */
float qr_logits_logprob(const qr_logits_summary *summary, float logit);
/* The k best, best first, equal ones by lower id; min(k, count) of them. */
uint32_t qr_logits_top(const qr_logits_summary *summary, const float *logits, uint32_t count, uint32_t k,
                       quire_token_logprob *top);
/* Sum mod 2^64 over i of mix64(i * 2^32 + bits(logit i)), -0 as +0 and any NaN as 0x7fc00000; mix64 is splitmix64's
 * finaliser. Free of order, so that a GPU can form it. */
uint64_t qr_logits_digest(const float *logits, uint32_t count);
#endif
