/* The laws through the lower tiers on the real model. Skips when it is not there. */
#include <stdio.h>

#include "tests/support/model_file.h"
#include "tests/support/tier_laws.h"

int main(void) {
    char path[4096];
    quire_model *model = NULL;
    quire_error error;
    if (!find_model_file(path, sizeof path)) return 77;
    if (quire_model_open(path, &(quire_model_options){.thread_count = 2}, &model, &error) != QUIRE_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    int wrong = 0;
    const quire_kv_type types[] = {QUIRE_KV_F16, QUIRE_KV_BF16, QUIRE_KV_F32};
    for (int i = 0; i < 3; i++) {
        const tier_laws laws = {model, types[i], 160, 6, 6};
        wrong += tier_laws_host(&laws) + tier_laws_disk(&laws);
        if (i == 0) {
            wrong +=
                tier_laws_abandoned(&laws) + tier_laws_damaged(&laws) + tier_laws_verified(&laws) + tier_laws_isolation(&laws);
        }
    }
    quire_model_close(model);
    return wrong ? 1 : 0;
}
