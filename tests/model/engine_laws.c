/* The laws on the real model. Skips when it is not there. */
#include <stdio.h>

#include "tests/support/engine_laws.h"
#include "tests/support/model_file.h"

int main(void) {
    char path[4096];
    quire_model *model = NULL;
    quire_error error;
    if (!find_model_file(path, sizeof path)) return 77;
    if (quire_model_open(path, &(quire_model_options){.thread_count = 2}, &model, &error) != QUIRE_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    const engine_laws laws = {model, 150, 12}, long_answers = {model, 40, 40};
    int wrong = engine_laws_cached_equals_cold(&laws) + engine_laws_company(&laws) + engine_laws_threads_and_steps(&laws) +
                engine_laws_forks(&laws) + engine_laws_pauses(&long_answers);
    quire_model_close(model);
    return wrong ? 1 : 0;
}
