#include "runtime/cli/sampling_options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum {
    KEY_TOP_P = 0x2000,
    KEY_TOP_K,
    KEY_MIN_P,
    KEY_SEED,
    KEY_REPETITION,
    KEY_PRESENCE,
    KEY_FREQUENCY,
    KEY_SYSTEM,
};

static const struct argp_option sampling_options[] = {
    {"max-tokens", 'n', "N", 0, "Tokens of the answer at most", 0},
    {"system", KEY_SYSTEM, "TEXT", 0, "System message", 0},
    {"temperature", 't', "X", 0, "0 always takes the likeliest token (0.7)", 0},
    {"top-p", KEY_TOP_P, "X", 0, "Only the likeliest tokens that reach this probability together (1)", 0},
    {"top-k", KEY_TOP_K, "N", 0, "Only the N likeliest tokens (all)", 0},
    {"min-p", KEY_MIN_P, "X", 0, "Only tokens with this share of the likeliest one's probability (0.05)", 0},
    {"seed", KEY_SEED, "N", 0, "The same seed gives the same answer", 0},
    {"repetition-penalty", KEY_REPETITION, "X", 0, "Above 1: less of what prompt and answer hold already (1)", 0},
    {"presence-penalty", KEY_PRESENCE, "X", 0, "-2 to 2 (0)", 0},
    {"frequency-penalty", KEY_FREQUENCY, "X", 0, "-2 to 2 (0)", 0},
    {0},
};

static float real(struct argp_state *state, const char *name, const char *text, double low, double high) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < low || value > high)
        argp_error(state, "--%s takes a number from %g to %g, not '%s'", name, low, high, text);
    return (float)value;
}

static uint64_t whole(struct argp_state *state, const char *name, const char *text, uint64_t low, uint64_t high) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || value < low || value > high)
        argp_error(state, "--%s takes a whole number from %llu to %llu, not '%s'", name, (unsigned long long)low,
                   (unsigned long long)high, text);
    return value;
}

static error_t sampling_option(int key, char *argument, struct argp_state *state) {
    qr_sampling_options *options = state->input;
    quire_sampling *s = &options->sampling;
    switch (key) {
    case 'n': options->max_tokens = (uint32_t)whole(state, "max-tokens", argument, 1, 1u << 30); break;
    case 't': s->temperature = real(state, "temperature", argument, 0, 100); break;
    case KEY_SYSTEM: options->system = argument; break;
    case KEY_TOP_P: s->top_p = real(state, "top-p", argument, 0, 1); break;
    case KEY_TOP_K: s->top_k = (int32_t)whole(state, "top-k", argument, 0, INT32_MAX); break;
    case KEY_MIN_P: s->min_p = real(state, "min-p", argument, 0, 1); break;
    case KEY_REPETITION: s->repetition_penalty = real(state, "repetition-penalty", argument, 0.01, 10); break;
    case KEY_PRESENCE: s->presence_penalty = real(state, "presence-penalty", argument, -2, 2); break;
    case KEY_FREQUENCY: s->frequency_penalty = real(state, "frequency-penalty", argument, -2, 2); break;
    case KEY_SEED:
        s->seed = whole(state, "seed", argument, 0, INT64_MAX);
        s->seeded = true;
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp qr_sampling_argp = {.options = sampling_options, .parser = sampling_option};

/* Milder than the API, whose plain temperature of 1 lets a small model wander off through its unlikely tokens. */
void qr_sampling_options_init(qr_sampling_options *options) {
    *options = (qr_sampling_options){.sampling = {.temperature = 0.7f, .top_p = 1, .min_p = 0.05f, .repetition_penalty = 1}};
}
