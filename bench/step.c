/* step.c - whole steps of a real model: decode at several depths, a batch of sixteen, prefill chunks.
 *
 * One JSON line per case: milliseconds per step (least and median), tokens per second by the median, and where the time
 * went (mean milliseconds). No sampler, no server. KV memory holds random values; weights are the model's.
 * Arguments: [threads] [repetitions] [only cases that contain this text] [cpu path] [f16|f32|bf16].
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/float16.h"
#include "base/random.h"
#include "tests/support/forward_rig.h"
#include "tests/support/model_file.h"

enum { DEPTH_MAX = 8192, BATCH = 16, ROWS = 512, REPEATS_MAX = 99, WARM_UP = 2 };

typedef struct scene {
    const char *name;
    uint32_t sequences, position, count; /* each sequence computes `count` tokens from `position` on */
} scene;

static const scene scenes[] = {
    {"decode at 1", 1, 0, 1},        {"decode at 512", 1, 511, 1},          {"decode at 2048", 1, 2047, 1},
    {"decode at 4096", 1, 4095, 1},  {"decode at 7600", 1, 7599, 1},        {"decode 16 x 272", BATCH, 271, 1},
    {"prefill 512 at 0", 1, 0, 512}, {"prefill 512 at 2048", 1, 2048, 512}, {"prefill 512 at 4096", 1, 4096, 512},
};

typedef struct bench {
    const quire_model *model;
    rig_options options;
    int repeats;
    quire_token tokens[ROWS];
    float *logits; /* [BATCH][vocabulary] */
} bench;

static int order_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Values within 1/2, in whichever type. */
static void fill_kv(forward_rig *rig) {
    qr_random r = {1};
    const quire_kv_type type = rig->options.key_type;
    size_t width = quire_kv_type_bytes(type);
    for (size_t i = 0; i < rig->kv_bytes; i += width) {
        float value = (float)(qr_random_unit(&r) - 0.5);
        uint16_t half = type == QUIRE_KV_F16 ? qr_f32_to_f16(value) : qr_f32_to_bf16(value);
        if (width == 4) memcpy(rig->memory.base + i, &value, 4);
        else memcpy(rig->memory.base + i, &half, 2);
    }
}

static void print_case(const bench *b, const scene *s, const forward_rig *rig, double *ms, const qr_forward_times *t) {
    double scale = 1e3 / b->repeats;
    qsort(ms, (size_t)b->repeats, sizeof *ms, order_doubles);
    double median = ms[b->repeats / 2];
    printf("{\"bench\": \"step\", \"case\": \"%s\", \"path\": \"%s\", \"threads\": %d, \"kv\": \"%s\", \"min_ms\": %.3f, "
           "\"median_ms\": %.3f, \"tokens_per_s\": %.1f, \"product_ms\": %.3f, \"attention_ms\": %.3f, \"head_ms\": %.3f, "
           "\"other_ms\": %.3f}\n",
           s->name, qr_forward_cpu_path(rig->forward), b->options.threads, quire_kv_type_name(b->options.key_type), ms[0],
           median, s->sequences * s->count * 1e3 / median, t->product * scale, t->attention * scale, t->head * scale,
           t->other * scale);
    (void)fflush(stdout);
}

static void run_scene(bench *b, const scene *s) {
    rig_chunk chunks[BATCH];
    double ms[REPEATS_MAX];
    qr_forward_times before, after;
    forward_rig rig;
    rig_options options = b->options;
    options.sequences_max = s->sequences;
    options.tokens_max = s->position + s->count;
    forward_rig_open(&rig, b->model, &options);
    fill_kv(&rig);
    for (uint32_t i = 0; i < s->sequences; i++)
        chunks[i] = (rig_chunk){i, s->position, s->count, b->tokens, s->position + s->count - 1};
    for (int i = -WARM_UP; i < b->repeats; i++) {
        if (!i) qr_forward_get_times(rig.forward, &before);
        uint64_t begin = qr_clock_ns();
        forward_rig_step(&rig, chunks, s->sequences, b->logits);
        if (i >= 0) ms[i] = (double)(qr_clock_ns() - begin) * 1e-6;
    }
    qr_forward_get_times(rig.forward, &after);
    const qr_forward_times spent = {after.product - before.product, after.attention - before.attention,
                                    after.head - before.head, after.other - before.other};
    print_case(b, s, &rig, ms, &spent);
    forward_rig_close(&rig);
}

static bool parse(bench *b, int argc, char **argv) {
    b->options.threads = argc > 1 ? atoi(argv[1]) : 2;
    b->repeats = argc > 2 ? atoi(argv[2]) : 15;
    b->options.cpu_path = argc > 4 && *argv[4] ? argv[4] : NULL;
    b->options.key_type = QUIRE_KV_F16;
    if (argc > 5 && quire_kv_type_parse(argv[5], &b->options.key_type)) return false;
    b->options.value_type = b->options.key_type;
    b->options.rows_max = ROWS;
    b->options.logit_rows_max = BATCH;
    return b->options.threads > 0 && b->repeats > 0 && b->repeats <= REPEATS_MAX;
}

int main(int argc, char **argv) {
    static bench b;
    char path[4096];
    quire_model *model;
    quire_error error;
    if (!parse(&b, argc, argv)) {
        (void)fprintf(stderr, "usage: %s [threads] [repetitions up to 99] [case] [path] [kv type]\n", argv[0]);
        return 2;
    }
    if (!find_model_file(path, sizeof path) || quire_model_open(path, NULL, &model, &error)) {
        (void)fprintf(stderr, "no model at %s\n", path);
        return 1;
    }
    b.model = model;
    const uint32_t vocabulary = quire_model_get_info(model)->vocabulary_size;
    b.logits = malloc((size_t)BATCH * vocabulary * sizeof *b.logits);
    if (!b.logits) return 1;
    for (uint32_t i = 0; i < ROWS; i++) b.tokens[i] = (quire_token)(i * 31 % vocabulary);
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        if (argc < 4 || strstr(scenes[i].name, argv[3])) run_scene(&b, &scenes[i]);
    free(b.logits);
    quire_model_close(model);
    return 0;
}
