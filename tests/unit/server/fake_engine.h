/* fake_engine.h - the calls of quire/engine.h without a model: every choice replies with a script, one token per step.
 *
 * Linked into the tests in place of the engine. Steps run on a thread of its own, as the real ones do.
 */
#ifndef QR_TEST_FAKE_ENGINE_H
#define QR_TEST_FAKE_ENGINE_H

#include <quire/engine.h>

typedef struct fake_script {
    const quire_token *tokens; /* borrowed while the engine lives */
    uint32_t count;            /* afterwards the end token comes */
    quire_token end;
    uint32_t step_us;        /* 0 = 200 */
    bool hold;               /* nothing is admitted */
    uint32_t fail_at;        /* this many tokens, then an error; 0 = never */
    bool fail_first;         /* an error before the first token */
    uint32_t queue_max;      /* QUEUE_FULL beyond; 0 = no limit */
    uint32_t pool_tokens;    /* TOO_LARGE beyond; 0 = no limit */
    uint32_t prefill_steps;  /* steps before the first token, with progress */
    uint32_t context_tokens; /* 0 = 512 */
    /* Tiers: figures to show, or NULL; how many steps a flush and an erasure take. */
    const quire_kv_tiers_stats *tiers;
    uint32_t flush_steps, erase_steps;
    const quire_kv_match *match; /* of every request, or NULL */
} fake_script;

quire_engine *fake_engine_create(const fake_script *script, void (*wake)(void *), void *context);
void fake_engine_set_wake(quire_engine *engine, void (*wake)(void *), void *context);
void fake_engine_release(quire_engine *engine); /* ends `hold` */

typedef struct fake_counts {
    uint32_t live, submitted, started, cancelled, stopped_choices, forgotten_all, forgotten_one, flushes, stopped_flushes;
    uint64_t steps;
    quire_request last; /* pointers are not valid */
    unsigned char last_key[64];
    quire_token last_prompt[256];
} fake_counts;
fake_counts fake_engine_counts(quire_engine *engine);

#endif
