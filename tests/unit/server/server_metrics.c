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
    char *save = NULL, *text = strdup(reply_body(reply));
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (line[0] != '#') check_line(line);
    free(text);
    free(reply);
    fixture_stop(&f);
}
