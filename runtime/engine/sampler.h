/* sampler.h - from logits to a token.
 *
 * The order, which docs/HTTP_API.md repeats:
 *   1. repetition penalty over the distinct tokens of prompt and answer so far: logit / r where positive, logit * r where
 *      not; then frequency penalty times the count in the answer so far; then presence penalty once
 *   2. logit_bias is added
 *   3. min_tokens (and ignore_eos): end and stop tokens become impossible
 *   4. temperature 0 (or below 1e-5): the best token, of equal ones the lowest id. Else logits are divided by it
 *   5. top_k: the k best. 6. top_p, over what top_k left and renormalised there: the fewest best tokens that reach it, one
 *      at least. 7. min_p: those at least min_p times as likely as the best
 *   8. the draw: u in [0, 1) is a hash of (seed, choice, index of the token); candidates are taken in the order of their
 *      logits (equal ones by id) after a filter, in the order of ids where there is none.
 * Ties are always broken by the lower id, and no combination leaves zero candidates. Logits that are NaN or infinite have
 * the meaning that logits.h gives them, before and after each of these.
 *
 * A draw depends on its arguments only: not on the batch, on threads or on the machine (softmax.h).
 *
 * Thread: a sampler is scratch of one thread; it allocates nothing after create.
 */
#ifndef QR_ENGINE_SAMPLER_H
#define QR_ENGINE_SAMPLER_H

#include "runtime/engine/backend.h"

/* Below it the division would leave nothing but the best token, or overflow. */
#define QR_SAMPLER_GREEDY_BELOW 1e-5f

typedef struct qr_sampler qr_sampler;

uint64_t qr_sampler_bytes(uint32_t vocabulary_size);
/* end_tokens [end_token_count] are kept by pointer. NULL when out of memory. */
qr_sampler *qr_sampler_create(uint32_t vocabulary_size, const quire_token *end_tokens, uint32_t end_token_count);
void qr_sampler_destroy(qr_sampler *sampler);

/* Draws or scores. logits [vocabulary_size] are read only. fed: the token that the sample's row was given by an earlier
 * step in flight, so that sample.generated lacks it, or QR_TOKEN_SAMPLED when there is none. */
void qr_sampler_run(qr_sampler *sampler, const float *logits, const qr_step_sample *sample, quire_token fed,
                    qr_sample_result *result);
#endif
