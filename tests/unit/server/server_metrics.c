#include "runtime/server/server_metrics.h"
#include "tests/unit/server/server_fixture.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Test(server_server_metrics, buckets_hold_each_value_once) {
    qr_metrics m = {0};
    static const uint64_t values_us[] = {0, 1000, 1001, 999999, 1000000, 640000000, 640000001, UINT32_MAX};
    for (size_t i = 0; i < 8; i++) qr_metrics_observe(&m, QR_METRIC_REQUEST, values_us[i]);
    const qr_histogram *h = &m.histograms[QR_METRIC_REQUEST];
    uint64_t sum = 0;
    for (int i = 0; i <= QR_HISTOGRAM_BOUNDS; i++) sum += h->buckets[i];
    cr_assert_eq(sum, 8);
    cr_assert_eq(h->count, 8);
    cr_assert_eq(h->buckets[0], 2, "a bound belongs to its bucket");
    cr_assert_eq(h->buckets[QR_HISTOGRAM_BOUNDS], 2);
    cr_assert_gt(m.recent_request_s, 0);
}

/* Names and label values by the rules of the text format. */
static void check_line(const char *line) {
    const char *at = line;
    cr_assert(isalpha((unsigned char)*at) || *at == '_', "%s", line);
    while (isalnum((unsigned char)*at) || *at == '_' || *at == ':') at++;
    if (*at == '{') {
        bool quoted = false;
        for (at++; *at && (quoted || *at != '}'); at++) {
            if (quoted && *at == '\\') at++;
            else if (*at == '"') quoted = !quoted;
        }
        cr_assert_eq(*at++, '}', "%s", line);
    }
    cr_assert_eq(*at, ' ', "%s", line);
    char *end;
    double value = strtod(at + 1, &end);
    cr_assert(*end == 0 && value >= 0, "%s", line);
}

/* Each sample belongs to the metric whose head came last, no metric has two heads, and no sample comes twice. */
static void check_page(const char *body) {
    static char seen[1000][200];
    int seen_count = 0;
    char metric[120] = "", *save = NULL, *text = strdup(body);
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char key[200];
        if (strncmp(line, "# TYPE ", 7) == 0) snprintf(metric, sizeof metric, "%.*s", (int)strcspn(line + 7, " "), line + 7);
        if (strncmp(line, "# HELP ", 7) == 0) snprintf(key, sizeof key, "help %.*s", (int)strcspn(line + 7, " "), line + 7);
        else if (line[0] == '#') continue;
        else snprintf(key, sizeof key, "%.*s", (int)(strrchr(line, ' ') - line), line);
        for (int i = 0; i < seen_count; i++) cr_assert_str_neq(seen[i], key);
        cr_assert_lt(seen_count, 1000);
        strcpy(seen[seen_count++], key);
        if (line[0] == '#') continue;
        check_line(line);
        cr_assert_eq(strncmp(line, metric, strlen(metric)), 0, "%s under %s", line, metric);
    }
    free(text);
}

Test(server_server_metrics, the_page_is_strict_even_with_an_odd_model_name) {
    fixture f;
    qr_server_config options = {.metrics_vllm = true};
    fixture_start(&f, "abc", NULL, &options);
    free(client_post(&f, "/v1/completions", "{\"prompt\":\"a\"}"));
    char *reply = client_get(&f, "GET", "/metrics");
    cr_assert_eq(reply_status(reply), 200);
    cr_assert(strstr(reply, "model=\"odd \\\"name\\\"\\\\ %\""));
    cr_assert(strstr(reply, "vllm:e2e_request_latency_seconds_count 1"));
    cr_assert(strstr(reply, "quire_time_to_first_token_seconds_count 1"));
    cr_assert(strstr(reply, "quire_inter_token_seconds_count 3"));
    check_page(reply_body(reply));
    free(reply);
    fixture_stop(&f);
}

Test(server_server_metrics, every_figure_of_a_tier_has_a_sample) {
    quire_kv_tiers_stats tiers = {.verified_blocks_total = 31,
                                  .verify_mismatches_total = 32,
                                  .erased_blocks_total = 33,
                                  .index_records = 34,
                                  .index_bytes = 35,
                                  .index_reads = 36,
                                  .index_us = 1500000};
    tiers.tiers[QUIRE_KV_TIER_DISK] = (quire_kv_tier_stats){.present = true,
                                                            .total_bytes = 1,
                                                            .used_bytes = 2,
                                                            .block_count = 3,
                                                            .loads_queued = 4,
                                                            .stores_queued = 5,
                                                            .loaded_blocks_total = 6,
                                                            .loaded_bytes_total = 7,
                                                            .stored_blocks_total = 8,
                                                            .stored_bytes_total = 100,
                                                            .load_seconds_total = 0.5,
                                                            .store_seconds_total = 0.25,
                                                            .load_bytes_per_second = 2e9,
                                                            .hit_tokens_total = 11,
                                                            .written_bytes_total = 150,
                                                            .evicted_blocks_total = 13,
                                                            .damaged_total = 14,
                                                            .error_total = 15,
                                                            .budget_bytes = 16,
                                                            .budget_left_bytes = 17};
    tiers.tiers[QUIRE_KV_TIER_HOST].hit_tokens_total = 9;
    tiers.refused_blocks_total[QUIRE_KV_REFUSED_SLOWER] = 41;
    static const char *const lines[] = {"quire_prefix_cache_hit_tokens_total{tier=\"device\"} 0",
                                        "quire_prefix_cache_hit_tokens_total{tier=\"host\"} 9",
                                        "quire_prefix_cache_hit_tokens_total{tier=\"disk\"} 11",
                                        "vllm:prefix_cache_hits_total 20",
                                        "quire_tier_capacity_bytes{tier=\"disk\"} 1",
                                        "quire_tier_used_bytes{tier=\"disk\"} 2",
                                        "quire_tier_blocks{tier=\"disk\"} 3",
                                        "quire_tier_blocks{tier=\"host\"} 0",
                                        "quire_tier_queued_blocks{tier=\"disk\",direction=\"load\"} 4",
                                        "quire_tier_queued_blocks{tier=\"disk\",direction=\"store\"} 5",
                                        "quire_tier_moved_blocks_total{tier=\"disk\",direction=\"load\"} 6",
                                        "quire_tier_moved_bytes_total{tier=\"disk\",direction=\"load\"} 7",
                                        "quire_tier_moved_blocks_total{tier=\"disk\",direction=\"store\"} 8",
                                        "quire_tier_moved_bytes_total{tier=\"disk\",direction=\"store\"} 100",
                                        "quire_tier_moved_seconds_total{tier=\"disk\",direction=\"load\"} 0.5",
                                        "quire_tier_moved_seconds_total{tier=\"disk\",direction=\"store\"} 0.25",
                                        "quire_tier_load_bytes_per_second{tier=\"disk\"} 2000000000",
                                        "quire_tier_written_bytes_total{tier=\"disk\"} 150",
                                        "quire_disk_write_amplification_ratio 1.5",
                                        "quire_tier_evicted_blocks_total{tier=\"disk\"} 13",
                                        "quire_tier_damaged_total{tier=\"disk\"} 14",
                                        "quire_tier_errors_total{tier=\"disk\"} 15",
                                        "quire_tier_write_budget_bytes{tier=\"disk\"} 16",
                                        "quire_tier_write_budget_left_bytes{tier=\"disk\"} 17",
                                        "quire_tier_refused_blocks_total{reason=\"slower\"} 41",
                                        "quire_tier_refused_blocks_total{reason=\"no_space\"} 0",
                                        "quire_kv_verified_blocks_total 31",
                                        "quire_kv_verify_mismatches_total 32",
                                        "quire_tier_erased_blocks_total 33",
                                        "quire_disk_index_records 34",
                                        "quire_disk_index_bytes 35",
                                        "quire_disk_index_reads 36",
                                        "quire_disk_index_seconds 1.5"};
    fixture f;
    fake_script script = {.tiers = &tiers};
    qr_server_config options = {.metrics_vllm = true};
    fixture_start(&f, "a", &script, &options);
    char *reply = client_get(&f, "GET", "/metrics");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char wanted[200];
        snprintf(wanted, sizeof wanted, "\n%s\n", lines[i]);
        cr_expect_not_null(strstr(reply, wanted), "%s", lines[i]);
    }
    check_page(reply_body(reply));
    free(reply);
    fixture_stop(&f);
}
