#include "runtime/cli/bench_report.h"

#include <jansson.h>
#include <stdlib.h>

static const double QUANTILES[] = {0.5, 0.9, 0.99};
static const char *const QUANTILE_NAMES[] = {"p50", "p90", "p99"};

static double per_second(const qr_bench_result *r, uint64_t tokens) { return r->wall_s > 0 ? (double)tokens / r->wall_s : 0; }
static double mib(uint64_t bytes) { return (double)bytes / (1024.0 * 1024.0); }

static void print_series(FILE *out, const char *what, qr_series *series) {
    if (series->count == 0) {
        fprintf(out, "  %-31s %9s %9s %9s   (0)\n", what, "-", "-", "-");
        return;
    }
    fprintf(out, "  %-31s %9.2f %9.2f %9.2f   (%zu)\n", what, qr_series_percentile(series, QUANTILES[0]),
            qr_series_percentile(series, QUANTILES[1]), qr_series_percentile(series, QUANTILES[2]), series->count);
}

static void print_facts(FILE *out, const qr_bench_facts *facts) {
    if (facts->pid <= 0) {
        fprintf(out, "  server process: not on this machine, or not readable (name it with --pid)\n");
        return;
    }
    fprintf(out, "  server: pid %d, %u cores, %.0f MiB anonymous, %.0f MiB resident\n  flags:  %s\n", (int)facts->pid,
            facts->cores, mib(facts->anonymous_bytes), mib(facts->resident_bytes), facts->command);
}

static void print_side(FILE *out, qr_bench_side *side) {
    qr_bench_result *r = &side->result;
    fprintf(out, "\n%s  %s%s%s\n", side->target.name, side->target.url, side->target.socket_path ? " over " : "",
            side->target.socket_path ? side->target.socket_path : "");
    print_facts(out, &side->facts);
    fprintf(out, "  %-31s %9s %9s %9s   (count)\n", "", QUANTILE_NAMES[0], QUANTILE_NAMES[1], QUANTILE_NAMES[2]);
    print_series(out, "time to first token, turn 1, ms", &r->first_ttft_ms);
    print_series(out, "time to first token, later, ms", &r->later_ttft_ms);
    print_series(out, "between chunks, ms", &r->inter_token_ms);
    print_series(out, "whole request, ms", &r->request_ms);
    fprintf(out, "  requests %llu, failed %llu; %.2f s; generated %.1f tokens/s; prompt %.1f tokens/s",
            (unsigned long long)r->requests, (unsigned long long)r->failures, r->wall_s, per_second(r, r->completion_tokens),
            per_second(r, r->prompt_tokens));
    if (r->cached_known && r->prompt_tokens)
        fprintf(out, "; %.1f %% of prompt tokens cached", 100.0 * (double)r->cached_tokens / (double)r->prompt_tokens);
    fputc('\n', out);
    if (r->failures) fprintf(out, "  first failure: %s\n", r->first_failure);
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

static void print_ratios(FILE *out, qr_bench_run *run) {
    qr_bench_result *a = &run->sides[0].result, *b = &run->sides[1].result;
    fprintf(out,
            "\n%s / %s\n  generated tokens/s %.2f; time to first token p50: turn 1 %.2f, later %.2f; between chunks p50 %.2f\n",
            run->sides[0].target.name, run->sides[1].target.name,
            ratio(per_second(a, a->completion_tokens), per_second(b, b->completion_tokens)),
            ratio(qr_series_percentile(&a->first_ttft_ms, 0.5), qr_series_percentile(&b->first_ttft_ms, 0.5)),
            ratio(qr_series_percentile(&a->later_ttft_ms, 0.5), qr_series_percentile(&b->later_ttft_ms, 0.5)),
            ratio(qr_series_percentile(&a->inter_token_ms, 0.5), qr_series_percentile(&b->inter_token_ms, 0.5)));
}

void qr_bench_print_table(FILE *out, qr_bench_run *run) {
    const qr_bench_shape *s = &run->shape;
    char cpu[128];
    qr_bench_cpu_name(cpu, sizeof cpu);
    fprintf(
        out,
        "%u rounds of %u sessions x %u turns; system prompt about %u tokens, user about %u, answers up to %u%s; seed %llu\n",
        run->round_count, s->session_count, s->turn_count, s->system_tokens, s->user_tokens, s->max_tokens,
        s->ignore_eos ? " (end tokens ignored)" : "", (unsigned long long)s->seed);
    fprintf(out, "machine: %s\n", cpu);
    for (int i = 0; i < run->side_count; i++) print_side(out, &run->sides[i]);
    if (run->side_count == 2) print_ratios(out, run);
}

static json_t *series_json(qr_series *series) {
    json_t *object = json_pack("{s:I}", "count", (json_int_t)series->count);
    for (size_t i = 0; i < sizeof QUANTILES / sizeof *QUANTILES; i++)
        json_object_set_new(object, QUANTILE_NAMES[i], json_real(qr_series_percentile(series, QUANTILES[i])));
    return object;
}

static json_t *side_json(qr_bench_side *side) {
    qr_bench_result *r = &side->result;
    const qr_bench_facts *f = &side->facts;
    json_t *server =
        json_pack("{s:i, s:i, s:I, s:I, s:s}", "pid", (int)f->pid, "cores", (int)f->cores, "anonymous_bytes",
                  (json_int_t)f->anonymous_bytes, "resident_bytes", (json_int_t)f->resident_bytes, "command", f->command);
    json_t *object =
        json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "name", side->target.name, "url", side->target.url, "server", server,
                  "first_ttft_ms", series_json(&r->first_ttft_ms), "later_ttft_ms", series_json(&r->later_ttft_ms),
                  "inter_chunk_ms", series_json(&r->inter_token_ms), "request_ms", series_json(&r->request_ms));
    json_t *totals =
        json_pack("{s:I, s:I, s:f, s:I, s:I, s:f, s:f}", "requests", (json_int_t)r->requests, "failures",
                  (json_int_t)r->failures, "wall_s", r->wall_s, "prompt_tokens", (json_int_t)r->prompt_tokens,
                  "completion_tokens", (json_int_t)r->completion_tokens, "generated_tokens_per_second",
                  per_second(r, r->completion_tokens), "prompt_tokens_per_second", per_second(r, r->prompt_tokens));
    if (!object || !totals) return json_decref(totals), json_decref(object), NULL;
    json_object_update(object, totals);
    json_decref(totals);
    json_object_set_new(object, "cached_tokens", r->cached_known ? json_integer((json_int_t)r->cached_tokens) : json_null());
    return object;
}

bool qr_bench_print_json(FILE *out, qr_bench_run *run) {
    const qr_bench_shape *s = &run->shape;
    char cpu[128];
    qr_bench_cpu_name(cpu, sizeof cpu);
    json_t *sides = json_array();
    for (int i = 0; i < run->side_count; i++) json_array_append_new(sides, side_json(&run->sides[i]));
    json_t *root = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:I, s:o}", "bench", "sessions", "cpu", cpu,
                             "rounds", (int)run->round_count, "sessions", (int)s->session_count, "turns", (int)s->turn_count,
                             "system_tokens", (int)s->system_tokens, "user_tokens", (int)s->user_tokens, "max_tokens",
                             (int)s->max_tokens, "ignore_eos", (int)s->ignore_eos, "seed", (json_int_t)s->seed, "sides", sides);
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    bool ok = text && fprintf(out, "%s\n", text) > 0 && fflush(out) == 0;
    free(text);
    json_decref(root);
    return ok;
}
