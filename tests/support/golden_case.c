/* golden_case.c - see golden_case.h. */
#include "tests/support/golden_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 1 << 20 };

/* Behind the key's colon. */
static char *value_of(char *line, const char *key) {
    char quoted[64];
    (void)snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    char *at = strstr(line, quoted);
    if (!at) abort();
    return at + strlen(quoted);
}

/* Numbers of a possibly nested array, flat; *count gets how many. The caller frees. */
static double *numbers_of(char *line, const char *key, size_t *count) {
    char *at = value_of(line, key);
    size_t capacity = 64;
    double *numbers = malloc(capacity * sizeof *numbers);
    int depth = 0;
    *count = 0;
    do {
        if (*at == '[') depth++, at++;
        else if (*at == ']') depth--, at++;
        else if (*at == ',' || *at == ' ') at++;
        else {
            char *end;
            if (*count == capacity) numbers = realloc(numbers, (capacity *= 2) * sizeof *numbers);
            if (!numbers) abort();
            numbers[(*count)++] = strtod(at, &end);
            if (end == at) abort();
            at = end;
        }
    } while (depth);
    return numbers;
}

static quire_token *tokens_of(char *line, const char *key, uint32_t *count) {
    size_t n;
    double *numbers = numbers_of(line, key, &n);
    quire_token *tokens = malloc(n * sizeof *tokens);
    if (!tokens) abort();
    for (size_t i = 0; i < n; i++) tokens[i] = (quire_token)numbers[i];
    free(numbers);
    *count = (uint32_t)n;
    return tokens;
}

static char *read_line(FILE *file) {
    char *line = malloc(LINE_MAX_BYTES);
    if (!line) abort();
    if (fgets(line, LINE_MAX_BYTES, file)) return line;
    free(line);
    return NULL;
}

static void read_top(char *line, golden_logits *g) {
    size_t count;
    double *numbers = numbers_of(line, "top", &count);
    if (count != (size_t)g->position_count * GOLDEN_TOP * 2) abort();
    g->top = malloc(g->position_count * sizeof *g->top);
    if (!g->top) abort();
    for (size_t i = 0; i < count / 2; i++)
        g->top[i / GOLDEN_TOP][i % GOLDEN_TOP] = (golden_top){(quire_token)numbers[2 * i], numbers[2 * i + 1]};
    free(numbers);
}

bool golden_logits_read(FILE *file, golden_logits *g) {
    char *line = read_line(file);
    if (!line) return false;
    memset(g, 0, sizeof *g);
    (void)sscanf(value_of(line, "name"), "\"%31[^\"]", g->name);
    g->ids = tokens_of(line, "ids", &g->count);
    quire_token *positions = tokens_of(line, "positions", &g->position_count);
    g->positions = (uint32_t *)positions; /* both 32 bits, none is negative */
    const char *nll = value_of(line, "mean_nll");
    g->mean_nll = *nll == 'n' ? (double)NAN : strtod(nll, NULL);
    read_top(line, g);
    free(line);
    return true;
}

void golden_logits_free(golden_logits *g) {
    free(g->ids);
    free(g->positions);
    free(g->top);
}

bool golden_greedy_read(FILE *file, golden_greedy *g) {
    char *line = read_line(file);
    size_t margins;
    if (!line) return false;
    memset(g, 0, sizeof *g);
    g->prompt = tokens_of(line, "prompt_ids", &g->prompt_count);
    g->ids = tokens_of(line, "ids", &g->count);
    g->margins = numbers_of(line, "margins", &margins);
    if (margins != g->count) abort();
    free(line);
    return true;
}

void golden_greedy_free(golden_greedy *g) {
    free(g->prompt);
    free(g->ids);
    free(g->margins);
}

double log_sum_exp(const float *logits, uint32_t count) {
    double top = (double)logits[0], sum = 0;
    for (uint32_t i = 1; i < count; i++) top = fmax(top, (double)logits[i]);
    for (uint32_t i = 0; i < count; i++) sum += exp((double)logits[i] - top);
    return top + log(sum);
}

/* Returns the sum over the position's tokens. */
static double add_position(golden_distance *d, const golden_top *top, const float *row, double norm) {
    double sum = 0;
    for (int k = 0; k < GOLDEN_TOP; k++) {
        double error = fabs((double)row[top[k].token] - norm - top[k].logprob);
        sum += error;
        if (!(error <= d->largest)) d->largest = error; /* NaN too */
    }
    d->mean += sum;
    return sum;
}

golden_distance golden_measure(forward_rig *rig, const golden_logits *g, float *logits, uint32_t chunk,
                               double *position_means) {
    golden_distance d = {0};
    uint32_t next = 0;
    forward_rig_forget(rig);
    for (uint32_t at = 0; at < g->count; at += chunk) {
        uint32_t length = g->count - at < chunk ? g->count - at : chunk;
        const rig_chunk part = {0, at, length, g->ids + at, 0};
        forward_rig_step(rig, &part, 1, logits);
        for (uint32_t i = 0; i < length; i++) {
            const float *row = logits + (size_t)i * rig->vocabulary_size;
            double norm = log_sum_exp(row, rig->vocabulary_size);
            if (at + i + 1 < g->count) d.nll += norm - (double)row[g->ids[at + i + 1]];
            if (next == g->position_count || g->positions[next] != at + i) continue;
            double sum = add_position(&d, g->top[next], row, norm);
            if (position_means) position_means[next] = sum / GOLDEN_TOP;
            next++;
        }
    }
    d.nll /= g->count > 1 ? g->count - 1 : 1;
    d.mean /= g->position_count * GOLDEN_TOP;
    return d;
}
