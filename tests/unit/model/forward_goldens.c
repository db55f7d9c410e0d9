/* Tiny models of every tensor type against a float64 model that shares no code with ours (tests/golden/ref_model.py): exact,
 * and with quantised activations and f16 KV as the server runs. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/model/model.h"
#include "tests/support/golden_case.h"
#include "tests/support/tiny_variants.h"

static quire_model *open_variant(const char *name, bool exact) {
    for (int i = 0; i < TINY_VARIANTS; i++) {
        tiny_model tiny;
        if (strcmp(tiny_variant(i, &tiny), name) != 0) continue;
        return tiny_model_open(&tiny, &(quire_model_options){.exact_activations = exact});
    }
    cr_assert_fail("no tiny model %s", name);
    return NULL;
}

/* Measured: at most 7e-6 in the mean and 5e-5 anywhere, both ways; log-probabilities are around -6. A wrong scale, row or
 * order is three orders above, and so is one activation rounded to the other side (the seeds avoid those). */
static void check(const golden_logits *g, bool exact) {
    char name[32];
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(g->name, "/"), g->name);
    quire_model *model = open_variant(name, exact);
    float *logits = malloc((size_t)g->count * TINY_VOCABULARY * sizeof *logits);
    const quire_kv_type kv = exact ? QUIRE_KV_F32 : QUIRE_KV_F16;
    forward_rig rig;
    forward_rig_open(&rig, model, &(rig_options){.rows_max = 64, .tokens_max = 64, .key_type = kv, .value_type = kv});
    golden_distance d = golden_measure(&rig, g, logits, g->count, NULL);
    cr_assert(d.mean <= 2e-5, "%s: mean %g", g->name, d.mean);
    cr_assert(d.largest <= 2e-4, "%s: largest %g", g->name, d.largest);
    cr_assert(fabs(d.nll - g->mean_nll) <= 2e-5, "%s: nll %g", g->name, d.nll - g->mean_nll);
    forward_rig_close(&rig);
    quire_model_close(model);
    free(logits);
}

Test(model_forward_goldens, every_type_agrees_with_an_independent_float64_model) {
    golden_logits g;
    int lines = 0;
    FILE *f = fopen(QR_TEST_DATA "/tiny_logits.jsonl", "r");
    cr_assert_not_null(f);
    for (; golden_logits_read(f, &g); lines++, golden_logits_free(&g)) check(&g, strstr(g.name, "/exact") != NULL);
    (void)fclose(f);
    cr_assert_eq(lines, 2 * TINY_VARIANTS);
}
