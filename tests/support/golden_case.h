/* golden_case.h - reading tests/golden/data/smollm2_*.jsonl. The files are ours, so this reads only what they have; a line
 * that does not fit aborts. */
#ifndef QR_TESTS_GOLDEN_CASE_H
#define QR_TESTS_GOLDEN_CASE_H

#include <stdio.h>

#include "tests/support/forward_rig.h"

enum { GOLDEN_TOP = 20 };

typedef struct golden_top {
    quire_token token;
    double logprob;
} golden_top;

typedef struct golden_logits {
    char name[32];
    uint32_t count;
    quire_token *ids; /* [count] */
    double mean_nll;  /* NaN: none */
    uint32_t position_count;
    uint32_t *positions;           /* [position_count] rising */
    golden_top (*top)[GOLDEN_TOP]; /* [position_count] best first */
} golden_logits;

/* False at the end of the file. */
bool golden_logits_read(FILE *file, golden_logits *golden);
void golden_logits_free(golden_logits *golden);

typedef struct golden_greedy {
    uint32_t prompt_count, count;
    quire_token *prompt, *ids;
    double *margins; /* [count] logprob of the best minus the second */
} golden_greedy;

bool golden_greedy_read(FILE *file, golden_greedy *golden);
void golden_greedy_free(golden_greedy *golden);

/* How far a forward pass is from a golden: |difference of log-probability| over the top 20 of every listed position, and
 * the mean negative log-likelihood of the whole text. */
typedef struct golden_distance {
    double mean, largest, nll;
} golden_distance;

/* logits [chunk][vocabulary] is working memory; the rig takes chunks of that size. position_means [position_count], or NULL,
 * gets the mean of each position. */
golden_distance golden_measure(forward_rig *rig, const golden_logits *golden, float *logits, uint32_t chunk,
                               double *position_means);

/* log of the sum of exp over a row. */
double log_sum_exp(const float *logits, uint32_t count);
#endif
