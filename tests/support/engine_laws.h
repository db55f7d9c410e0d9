/* engine_laws.h - law 1 through the whole engine: the bits of an answer do not depend on company, chunking, cache, threads,
 * forks or pauses. For any model. Each returns the number of answers that differ and says which. */
#ifndef QR_TESTS_ENGINE_LAWS_H
#define QR_TESTS_ENGINE_LAWS_H

#include "tests/support/engine_client.h"

typedef struct engine_laws {
    quire_model *model;
    uint32_t prompt_tokens; /* of the longest prompt; the context holds twice as many and more */
    uint32_t answer_tokens;
} engine_laws;

int engine_laws_cached_equals_cold(const engine_laws *laws);
int engine_laws_company(const engine_laws *laws);
int engine_laws_threads_and_steps(const engine_laws *laws);
int engine_laws_forks(const engine_laws *laws);
int engine_laws_pauses(const engine_laws *laws);
#endif
