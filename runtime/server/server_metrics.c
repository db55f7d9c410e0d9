/* server_metrics.c - see server_metrics.h; the page is in the text format 0.0.4, in a form that promtool accepts. */
#include "runtime/server/server_metrics.h"

#include "runtime/model/text_stream.h"
#include "runtime/server/endpoints.h"
#include "runtime/server/metrics_page.h"
#include "runtime/server/server_internal.h"
#include "runtime/server/tier_metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const double histogram_bounds[QR_HISTOGRAM_BOUNDS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                             1,     2.5,    5,     10,   20,    40,   80,  160,  640};

/* ---- counting ---- */

void qr_metrics_observe(qr_metrics *metrics, qr_metric which, uint64_t time_us) {
    qr_histogram *histogram = &metrics->histograms[which];
    double seconds = (double)time_us / 1e6;
    int i = 0;
    while (i < QR_HISTOGRAM_BOUNDS && seconds > histogram_bounds[i]) i++;
    histogram->buckets[i]++;
    histogram->count++;
    histogram->sum += seconds;
    if (which != QR_METRIC_REQUEST) return;
    double weight = histogram->count == 1 ? 1 : 0.1;
    metrics->recent_request_s += weight * (seconds - metrics->recent_request_s);
}

void qr_metrics_count_reply(qr_metrics *metrics, int status) {
    for (int i = 0; i < QR_REPLY_CODES_MAX; i++) {
        if (metrics->replies[i].count && metrics->replies[i].status != status) continue;
        metrics->replies[i].status = status;
        metrics->replies[i].count++;
        return;
    }
}

/* ---- the page ---- */

static void page_histogram(qr_bytes *page, const char *name, const qr_histogram *histogram, const char *help) {
    uint64_t sum = 0;
    qr_page_head(page, name, "histogram", help);
    for (int i = 0; i < QR_HISTOGRAM_BOUNDS; i++) {
        sum += histogram->buckets[i];
        qr_bytes_format(page, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, histogram_bounds[i], sum);
    }
    qr_bytes_format(page, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, histogram->count);
    qr_bytes_format(page, "%s_sum %.12g\n%s_count %" PRIu64 "\n", name, histogram->sum, name, histogram->count);
}

/* A label value: valid UTF-8, with backslash, quote and line feed escaped, whatever the model is called. */
static void page_label(qr_bytes *page, const char *text) {
    size_t size;
    char *valid = qr_text_to_utf8(text, strlen(text), &size);
    for (size_t i = 0; valid && i < size; i++) {
        if (valid[i] == '\\' || valid[i] == '"') qr_bytes_append(page, "\\", 1);
        if (valid[i] == '\n') qr_bytes_text(page, "\\n");
        else qr_bytes_append(page, &valid[i], 1);
    }
    free(valid);
}

static void page_info(qr_bytes *page, const qr_server *server) {
    const quire_model_info *info = quire_model_get_info(server->model);
    qr_page_head(page, "quire_build_info", "gauge", "What is running; the value is always 1.");
    qr_bytes_text(page, "quire_build_info{version=\"");
    page_label(page, server->config.version);
    qr_bytes_text(page, "\",model=\"");
    page_label(page, info->name);
    qr_bytes_text(page, "\",quantization=\"");
    page_label(page, info->quantization);
    qr_bytes_text(page, "\",cpu_path=\"");
    page_label(page, quire_engine_cpu_path(server->engine));
    qr_bytes_text(page, "\"} 1\n");
}

static void page_replies(qr_bytes *page, const qr_metrics *metrics) {
    qr_page_head(page, "quire_http_replies_total", "counter", "HTTP replies by status.");
    for (int i = 0; i < QR_REPLY_CODES_MAX && metrics->replies[i].count; i++)
        qr_bytes_format(page, "quire_http_replies_total{code=\"%d\"} %" PRIu64 "\n", metrics->replies[i].status,
                        metrics->replies[i].count);
}

static void page_finishes(qr_bytes *page, const quire_engine_stats *s) {
    const struct {
        const char *reason;
        uint64_t count;
    } rows[] = {{"stop", s->requests_stop},
                {"length", s->requests_length},
                {"timeout", s->requests_timeout},
                {"cancelled", s->requests_cancelled},
                {"failed", s->requests_failed}};
    qr_page_head(page, "quire_requests_finished_total", "counter", "Requests that the engine ended, by reason.");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        qr_bytes_format(page, "quire_requests_finished_total{reason=\"%s\"} %" PRIu64 "\n", rows[i].reason, rows[i].count);
}

static double kv_usage(const quire_kv_stats *kv) {
    return kv->block_total ? (double)kv->block_used / (double)kv->block_total : 0;
}

static void page_blocks(qr_bytes *page, const quire_kv_stats *kv) {
    qr_page_head(page, "quire_kv_blocks", "gauge", "KV blocks by state; they add up to the pool.");
    qr_bytes_format(page, "quire_kv_blocks{state=\"free\"} %u\n", kv->block_free);
    qr_bytes_format(page, "quire_kv_blocks{state=\"cached\"} %u\n", kv->block_cached);
    qr_bytes_format(page, "quire_kv_blocks{state=\"used\"} %u\n", kv->block_used);
    qr_page_real(page, "quire_kv_usage_ratio", "gauge", kv_usage(kv), "Blocks used by running requests, from 0 to 1.");
}

static void page_cache(qr_bytes *page, const quire_kv_stats *kv, const quire_kv_tiers_stats *tiers) {
    qr_page_integer(page, "quire_prefix_cache_lookup_tokens_total", "counter", kv->lookup_tokens_total,
                    "Prompt tokens looked up.");
    qr_page_head(page, "quire_prefix_cache_hit_tokens_total", "counter", "Prompt tokens found cached, by tier.");
    qr_bytes_format(page, "quire_prefix_cache_hit_tokens_total{tier=\"device\"} %" PRIu64 "\n", kv->hit_tokens_total);
    qr_bytes_format(page, "quire_prefix_cache_hit_tokens_total{tier=\"host\"} %" PRIu64 "\n",
                    tiers->tiers[QUIRE_KV_TIER_HOST].hit_tokens_total);
    qr_bytes_format(page, "quire_prefix_cache_hit_tokens_total{tier=\"disk\"} %" PRIu64 "\n",
                    tiers->tiers[QUIRE_KV_TIER_DISK].hit_tokens_total);
    qr_page_integer(page, "quire_kv_blocks_inserted_total", "counter", kv->inserted_blocks_total,
                    "Blocks entered into the tree.");
    qr_page_integer(page, "quire_kv_blocks_evicted_total", "counter", kv->evicted_blocks_total, "Cached blocks given up.");
    qr_page_integer(page, "quire_kv_blocks_copied_total", "counter", kv->copied_blocks_total,
                    "Blocks copied for reuse in part.");
}

static void page_engine(qr_bytes *page, const quire_engine_stats *s) {
    qr_page_integer(page, "quire_requests_running", "gauge", s->running, "Requests in the batch.");
    qr_page_integer(page, "quire_requests_waiting", "gauge", s->waiting, "Requests in the queue.");
    qr_page_integer(page, "quire_requests_paused", "gauge", s->paused, "Requests paused for want of blocks.");
    qr_page_integer(page, "quire_requests_total", "counter", s->requests_total, "Requests accepted by the engine.");
    page_finishes(page, s);
    qr_page_integer(page, "quire_prompt_tokens_total", "counter", s->prompt_tokens_total, "Prompt tokens of started requests.");
    qr_page_integer(page, "quire_cached_tokens_total", "counter", s->cached_tokens_total,
                    "Of these, tokens that were not computed.");
    qr_page_integer(page, "quire_generated_tokens_total", "counter", s->generated_tokens_total, "Tokens generated.");
    qr_page_integer(page, "quire_preemptions_total", "counter", s->preemptions_total, "Requests paused and later resumed.");
    qr_page_integer(page, "quire_steps_total", "counter", s->steps_total, "Steps of the engine.");
    qr_page_real(page, "quire_step_seconds_total", "counter", s->step_seconds_total, "Time spent in steps.");
    qr_page_integer(page, "quire_saturated_values_total", "counter", s->saturated_total,
                    "KV values beyond the range of their type.");
    qr_page_integer(page, "quire_weight_bytes", "gauge", s->weight_bytes, "Memory of the weights.");
    qr_page_integer(page, "quire_work_bytes", "gauge", s->work_bytes, "Memory of activations, plans and queues.");
    qr_page_integer(page, "quire_kv_pool_bytes", "gauge", s->kv.pool_bytes, "Memory of the KV pool.");
    qr_page_integer(page, "quire_kv_bookkeeping_bytes", "gauge", s->kv.bookkeeping_bytes, "Memory of tree and tables.");
    page_blocks(page, &s->kv);
    page_cache(page, &s->kv, &s->tiers);
}

static void page_server(qr_bytes *page, const qr_server *server) {
    const qr_metrics *m = &server->metrics;
    qr_page_integer(page, "quire_connections", "gauge", server->connection_count, "Open client connections.");
    qr_page_integer(page, "quire_clients_dropped_total", "counter", m->clients_dropped_total,
                    "Clients dropped because they did not read.");
    qr_page_integer(page, "quire_clients_gone_total", "counter", m->clients_gone_total,
                    "Clients that left before their answer.");
    page_replies(page, m);
    page_histogram(page, "quire_time_to_first_token_seconds", &m->histograms[QR_METRIC_FIRST_TOKEN],
                   "From request to first token.");
    page_histogram(page, "quire_inter_token_seconds", &m->histograms[QR_METRIC_INTER_TOKEN], "Between two tokens of a choice.");
    page_histogram(page, "quire_request_seconds", &m->histograms[QR_METRIC_REQUEST], "From request to the end of its answer.");
    page_histogram(page, "quire_request_queue_seconds", &m->histograms[QR_METRIC_QUEUE], "Waiting for admission.");
    page_histogram(page, "quire_request_prefill_seconds", &m->histograms[QR_METRIC_PREFILL], "Computing the prompt.");
    page_histogram(page, "quire_request_decode_seconds", &m->histograms[QR_METRIC_DECODE], "From first to last token.");
}

static uint64_t hits_of_all_tiers(const quire_engine_stats *s) {
    return s->kv.hit_tokens_total + s->tiers.tiers[QUIRE_KV_TIER_HOST].hit_tokens_total +
           s->tiers.tiers[QUIRE_KV_TIER_DISK].hit_tokens_total;
}

/* The names that dashboards made for vLLM know. */
static void page_vllm(qr_bytes *page, const qr_server *server, const quire_engine_stats *s) {
    const qr_histogram *h = server->metrics.histograms;
    qr_page_integer(page, "vllm:num_requests_running", "gauge", s->running, "Requests in the batch.");
    qr_page_integer(page, "vllm:num_requests_waiting", "gauge", s->waiting, "Requests in the queue.");
    qr_page_real(page, "vllm:kv_cache_usage_perc", "gauge", kv_usage(&s->kv), "Blocks in use, from 0 to 1.");
    qr_page_integer(page, "vllm:prefix_cache_queries_total", "counter", s->kv.lookup_tokens_total, "Tokens looked up.");
    qr_page_integer(page, "vllm:prefix_cache_hits_total", "counter", hits_of_all_tiers(s), "Tokens found.");
    qr_page_integer(page, "vllm:num_preemptions_total", "counter", s->preemptions_total, "Requests paused.");
    qr_page_integer(page, "vllm:prompt_tokens_total", "counter", s->prompt_tokens_total, "Prompt tokens.");
    qr_page_integer(page, "vllm:generation_tokens_total", "counter", s->generated_tokens_total, "Generated tokens.");
    page_histogram(page, "vllm:time_to_first_token_seconds", &h[QR_METRIC_FIRST_TOKEN], "Time to first token.");
    page_histogram(page, "vllm:inter_token_latency_seconds", &h[QR_METRIC_INTER_TOKEN], "Inter-token latency.");
    page_histogram(page, "vllm:e2e_request_latency_seconds", &h[QR_METRIC_REQUEST], "Whole request.");
    page_histogram(page, "vllm:request_queue_time_seconds", &h[QR_METRIC_QUEUE], "Queue time.");
    page_histogram(page, "vllm:request_prefill_time_seconds", &h[QR_METRIC_PREFILL], "Prefill time.");
    page_histogram(page, "vllm:request_decode_time_seconds", &h[QR_METRIC_DECODE], "Decode time.");
}

void qr_metrics_handle(qr_task *task) {
    const qr_server *server = task->server;
    task->content_type = "text/plain; version=0.0.4; charset=utf-8";
    page_server(&task->answer, server);
    if (!server->engine) return;
    quire_engine_stats stats;
    quire_engine_get_stats(server->engine, &stats);
    page_info(&task->answer, server);
    page_engine(&task->answer, &stats);
    qr_tier_metrics_write(&task->answer, &stats);
    if (server->config.metrics_vllm) page_vllm(&task->answer, server, &stats);
}
