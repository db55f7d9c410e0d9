/* tier_laws.h - law 1 through the lower tiers, by logits digests, for any model and KV type: what went to host memory or disk
 * and came back, before or after a restart, in part, damaged or too late, changes no bit of an answer.
 *
 * Each returns the number of answers that differ, and of tiers that were not used as they should, and says which. */
#ifndef QR_TESTS_TIER_LAWS_H
#define QR_TESTS_TIER_LAWS_H

#include "tests/support/engine_client.h"

typedef struct tier_laws {
    quire_model *model;
    quire_kv_type type;
    uint32_t prompt_tokens, answer_tokens;
    uint32_t rounds; /* of the isolation law */
} tier_laws;

int tier_laws_host(const tier_laws *laws);      /* a simulated device's memory, delayed and reordered copies */
int tier_laws_disk(const tier_laws *laws);      /* evicted to disk, in one engine; then another on the same folder */
int tier_laws_abandoned(const tier_laws *laws); /* a disk that stops answering in the middle */
int tier_laws_damaged(const tier_laws *laws);   /* a disk that flips bits and fails reads; one whose files are overwritten */
int tier_laws_verified(const tier_laws *laws);  /* every load recomputed and compared */
int tier_laws_other_model(const tier_laws *laws,
                          quire_model *other); /* of the same shapes: one folder in turn, no hit across */
/* R12: eight prompts at once with words of their own, both tiers, delayed copies, again and again. */
int tier_laws_isolation(const tier_laws *laws);
#endif
