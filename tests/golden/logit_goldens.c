/* logit_goldens.c DATA_DIR WHAT - SmolLM2-135M-Instruct Q4_1 against an independent float64 model (ref_model.py).
 *
 *   exact      fp32 activations and KV: the same function as the reference, up to fp32 rounding
 *   served     what the server runs (int8 activations, f16 KV): how far that is from the exact function
 *   positions  the same, a line per position and no bound
 *   greedy     greedy texts, wherever the reference's margin is above what the format can move
 *   chunkings  law 1 on the real model: eight ways to cut a prompt, every instruction set
 *
 * Bounds are measured ones, see docs/TESTING.md. Exit 77: the model file is not there.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/model.h"
#include "runtime/model/model_cpu_path.h"
#include "tests/support/forward_rig.h"
#include "tests/support/golden_case.h"
#include "tests/support/model_file.h"

enum { CHUNK = 64, TOKENS_MAX = 2304 };

typedef struct context {
    const char *data;
    quire_model *model;
    uint32_t vocabulary;
    forward_rig rig;
    float *logits; /* [CHUNK][vocabulary] */
    int failures;
} context;

static void fail_if(context *c, bool bad, const char *name, const char *what, double value, double bound) {
    if (!bad) return;
    printf("FAIL %s: %s %.6g, bound %.6g\n", name, what, value, bound);
    c->failures++;
}

static FILE *open_data(const context *c, const char *name) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", c->data, name);
    FILE *f = fopen(path, "r");
    if (!f) {
        perror(path);
        exit(1);
    }
    return f;
}

/* ---- distances from golden log-probabilities ---- */

typedef struct bound {
    const char *name;
    double mean, largest; /* of |difference of log-probability| over the top 20 of every position */
} bound;

static void compare(context *c, const char *file, const bound *bounds, size_t bound_count) {
    golden_logits g;
    FILE *f = open_data(c, file);
    while (golden_logits_read(f, &g)) {
        const bound *b = NULL;
        for (size_t i = 0; i < bound_count; i++)
            if (!strcmp(bounds[i].name, g.name) || !strcmp(bounds[i].name, "*")) b = &bounds[i];
        golden_distance d = golden_measure(&c->rig, &g, c->logits, CHUNK, NULL);
        double mean = d.mean, shift = isnan(g.mean_nll) ? 0 : d.nll - g.mean_nll;
        printf("{\"case\": \"%s\", \"mean\": %.6f, \"largest\": %.6f, \"nll_shift\": %.6f}\n", g.name, mean, d.largest, shift);
        if (!b) c->failures++;
        else {
            fail_if(c, !(mean <= b->mean), g.name, "mean distance", mean, b->mean);
            fail_if(c, !(d.largest <= b->largest), g.name, "largest distance", d.largest, b->largest);
            fail_if(c, !(fabs(shift) <= b->mean), g.name, "shift of the mean negative log-likelihood", shift, b->mean);
        }
        golden_logits_free(&g);
    }
    (void)fclose(f);
}

/* For compare_peer.py. */
static void print_positions(context *c) {
    golden_logits g;
    FILE *f = open_data(c, "smollm2_logits.jsonl");
    for (; golden_logits_read(f, &g); golden_logits_free(&g)) {
        double *means = malloc(g.position_count * sizeof *means);
        if (!means) abort();
        golden_measure(&c->rig, &g, c->logits, CHUNK, means);
        for (uint32_t i = 0; i < g.position_count; i++)
            printf("{\"case\": \"%s\", \"position\": %u, \"mean\": %.6f}\n", g.name, g.positions[i], means[i]);
        free(means);
    }
    (void)fclose(f);
}

/* ---- greedy ---- */

static quire_token best_of(const float *row, uint32_t count) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (row[i] > row[best]) best = i;
    return (quire_token)best;
}

/* Feeds the golden text, so that one close call does not end the comparison. */
static void check_greedy(context *c, double margin) {
    golden_greedy g;
    uint32_t checked = 0, close_calls = 0, moved = 0;
    double widest = 0;
    FILE *f = open_data(c, "smollm2_greedy.jsonl");
    while (golden_greedy_read(f, &g)) {
        quire_token *all = malloc((g.prompt_count + g.count) * sizeof *all);
        if (!all) abort();
        memcpy(all, g.prompt, g.prompt_count * sizeof *all);
        memcpy(all + g.prompt_count, g.ids, g.count * sizeof *all);
        forward_rig_forget(&c->rig);
        const rig_chunk part = {0, 0, g.prompt_count + g.count - 1, all, g.prompt_count - 1};
        forward_rig_step(&c->rig, &part, 1, c->logits);
        for (uint32_t i = 0; i < g.count; i++) {
            bool agrees = best_of(c->logits + (size_t)i * c->vocabulary, c->vocabulary) == g.ids[i];
            if (!agrees && g.margins[i] > widest) widest = g.margins[i];
            if (g.margins[i] < margin) close_calls++, moved += !agrees;
            else checked++, fail_if(c, !agrees, "greedy", "another token in spite of a margin of", g.margins[i], margin);
        }
        golden_greedy_free(&g);
        free(all);
    }
    (void)fclose(f);
    printf("{\"greedy\": %u, \"close_calls\": %u, \"moved\": %u, \"widest_moved\": %.4f}\n", checked, close_calls, moved,
           widest);
}

/* ---- chunkings ---- */

static void check_chunkings(context *c) {
    static const uint32_t chunks[] = {100, 99, 64, 33, 16, 7, 2, 1};
    static const char *const paths[] = {"avx512", "avx2"};
    golden_logits g;
    FILE *f = open_data(c, "smollm2_logits.jsonl");
    do
        if (!golden_logits_read(f, &g)) abort();
    while (strcmp(g.name, "repeat") != 0 && (golden_logits_free(&g), true));
    (void)fclose(f);
    const size_t bytes = (size_t)g.count * c->vocabulary * sizeof(float);
    float *expected = malloc(bytes), *got = malloc(bytes);
    if (!expected || !got) abort();
    bool first = true;
    for (size_t p = 0; p < 2; p++) {
        qr_cpu_path path;
        if (qr_cpu_path_find(paths[p], &path, NULL)) continue;
        forward_rig_close(&c->rig);
        forward_rig_open(&c->rig, c->model,
                         &(rig_options){.rows_max = 128,
                                        .key_type = QUIRE_KV_F16,
                                        .value_type = QUIRE_KV_F16,
                                        .threads = 1 + (int)p,
                                        .cpu_path = paths[p]});
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
            forward_rig_forget(&c->rig);
            forward_rig_prompt(&c->rig, g.ids, g.count, chunks[i], 0, first ? expected : got);
            fail_if(c, !first && memcmp(expected, got, bytes) != 0, paths[p], "other bits with chunks of", chunks[i], 0);
            first = false;
        }
    }
    printf("{\"chunkings\": %zu, \"tokens\": %u}\n", sizeof chunks / sizeof *chunks, g.count);
    golden_logits_free(&g);
    free(expected);
    free(got);
}

int main(int argc, char **argv) {
    char path[4096];
    quire_error error;
    if (argc != 3) return 2;
    context c = {.data = argv[1]};
    const char *what = argv[2];
    const bool exact = !strcmp(what, "exact");
    if (!find_model_file(path, sizeof path)) {
        printf("no model file at %s\n", path);
        return 77;
    }
    const quire_model_options options = {.exact_activations = exact};
    if (quire_model_open(path, &options, &c.model, &error)) {
        printf("%s: %s\n", error.source, error.text);
        return 1;
    }
    c.vocabulary = quire_model_get_info(c.model)->vocabulary_size;
    c.logits = malloc((size_t)CHUNK * c.vocabulary * sizeof *c.logits);
    if (!c.logits) abort();
    const quire_kv_type kv = exact ? QUIRE_KV_F32 : QUIRE_KV_F16;
    forward_rig_open(
        &c.rig, c.model,
        &(rig_options){.rows_max = CHUNK, .tokens_max = TOKENS_MAX, .key_type = kv, .value_type = kv, .threads = 2});
    static const bound exact_bounds[] = {{"*", 1e-4, 1e-3}};
    static const bound served_bounds[] = {{"*", 0.15, 1.0}};
    if (exact) compare(&c, "smollm2_logits.jsonl", exact_bounds, 1);
    else if (!strcmp(what, "served")) compare(&c, "smollm2_logits.jsonl", served_bounds, 1);
    else if (!strcmp(what, "positions")) print_positions(&c);
    else if (!strcmp(what, "greedy")) check_greedy(&c, 0.3);
    else if (!strcmp(what, "chunkings")) check_chunkings(&c);
    else return 2;
    forward_rig_close(&c.rig);
    quire_model_close(c.model);
    free(c.logits);
    return c.failures != 0;
}
