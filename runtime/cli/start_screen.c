#include "runtime/cli/start_screen.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/cli/size_text.h"
#include "runtime/cli/terminal.h"
#include "runtime/model/model.h"

static void print_text(FILE *file, const char *label, const char *text) {
    fprintf(file, "  %-14s", label);
    qr_terminal_write(file, text, strnlen(text, 256));
    fputc('\n', file);
}

static void print_model(FILE *file, const quire_model *model) {
    const quire_model_info *info = quire_model_get_info(model);
    char line[512];
    snprintf(line, sizeof line, "%s (%s, %s, %.0f M parameters)", info->name, info->architecture, info->quantization,
             (double)info->parameter_count / 1e6);
    print_text(file, "model", line);
    const qr_chat_template *chat = qr_model_chat_template(model);
    snprintf(line, sizeof line, "%s%s", qr_chat_template_family(chat),
             !qr_chat_template_supported(chat)      ? " (no chat: completions only)"
             : qr_chat_template_prefix_stable(chat) ? ""
                                                    : " (a turn is not a prefix of the next: multi-turn chats miss the cache)");
    print_text(file, "chat template", line);
}

/* Pages of the file belong to the kernel's cache and are no part of the sum. */
static void print_file_pages(FILE *file, const quire_model_info *info) {
    char a[QR_SIZE_TEXT_BYTES], b[QR_SIZE_TEXT_BYTES];
    fprintf(file, "  %-14s%s, ", "model file", qr_size_format(info->file_bytes, a));
    if (info->mapped_bytes)
        fprintf(file, "%s of its pages stay in use beside the sum\n", qr_size_format(info->mapped_bytes, b));
    else fputs("its pages given back once read\n", file);
}

static void print_memory(FILE *file, const quire_model *model, const qr_sizing *sizing) {
    char a[QR_SIZE_TEXT_BYTES], b[QR_SIZE_TEXT_BYTES];
    fprintf(file, "  %-14s%s\n", "weights", qr_size_format(sizing->weight_bytes, a));
    fprintf(file, "  %-14s%s of blocks, %s of bookkeeping\n", "KV memory", qr_size_format(sizing->kv_pool_bytes, a),
            qr_size_format(sizing->kv_bookkeeping_bytes, b));
    if (sizing->tiers_bytes)
        fprintf(file, "  %-14s%s for the index and the buffers of the disk\n", "lower tiers",
                qr_size_format(sizing->tiers_bytes, a));
    fprintf(file, "  %-14s%s\n", "work space", qr_size_format(sizing->work_bytes, a));
    fprintf(file, "  %-14s%s\n", "sum", qr_size_format(sizing->total_bytes, a));
    print_file_pages(file, quire_model_get_info(model));
}

static void print_capacity(FILE *file, const quire_engine_config *config, const qr_sizing *sizing) {
    char a[QR_SIZE_TEXT_BYTES], b[QR_SIZE_TEXT_BYTES];
    fprintf(file, "  %-14s%s per token (%s keys, %s values), %s per block of %" PRIu32 "\n", "KV",
            qr_size_format(sizing->kv_token_bytes, a), quire_kv_type_name(config->key_type),
            quire_kv_type_name(config->value_type), qr_size_format(sizing->kv_block_bytes, b), sizing->block_tokens);
    fprintf(file, "  %-14s%" PRIu32 " blocks, %" PRIu64 " tokens\n", "pool", sizing->block_count, sizing->pool_tokens);
    fprintf(file, "  %-14s%" PRIu64 " session%s of the full context of %" PRIu32 " tokens\n", "room for", sizing->sessions,
            sizing->sessions == 1 ? "" : "s", sizing->context_tokens);
}

void qr_start_screen_print(FILE *file, const quire_model *model, const quire_engine_config *config, const qr_sizing *sizing) {
    print_model(file, model);
    print_capacity(file, config, sizing);
    print_memory(file, model, sizing);
}

/* ---- tiers ---- */

static void print_host(FILE *file, const quire_kv_tier_stats *host) {
    char a[QR_SIZE_TEXT_BYTES];
    if (host->present)
        fprintf(file, "  %-14s%s of host memory behind the pool\n", "host cache", qr_size_format(host->total_bytes, a));
}

void qr_start_screen_print_tiers(FILE *file, const quire_engine_config *config, const quire_engine_stats *stats) {
    char a[QR_SIZE_TEXT_BYTES], b[QR_SIZE_TEXT_BYTES];
    const quire_kv_tiers_stats *tiers = &stats->tiers;
    const quire_kv_tier_stats *disk = &tiers->tiers[QUIRE_KV_TIER_DISK];
    print_host(file, &tiers->tiers[QUIRE_KV_TIER_HOST]);
    if (!disk->present) return;
    print_text(file, "disk cache", config->disk_cache_path);
    fprintf(file, "  %-14s%s of at most %s\n", "", qr_size_format(disk->used_bytes, a), qr_size_format(disk->total_bytes, b));
    fprintf(file, "  %-14s%" PRIu32 " blocks of this model (%" PRIu64 " tokens); %" PRIu64 " records indexed in %.2f s\n",
            "found there", disk->block_count, (uint64_t)disk->block_count * stats->block_tokens, tiers->index_records,
            (double)tiers->index_us / 1e6);
}

void qr_start_screen_plan_tiers(FILE *file, const quire_model *model, const quire_engine_config *config,
                                const qr_sizing *sizing) {
    char a[QR_SIZE_TEXT_BYTES], b[QR_SIZE_TEXT_BYTES];
    qr_engine_layout layout;
    quire_kv_disk_plan plan;
    if (!config->disk_cache_path) return;
    qr_sizing_layout(model, config, &layout);
    quire_kv_plan_disk(&layout.kv, &plan);
    print_text(file, "disk cache", config->disk_cache_path);
    fprintf(file, "  %-14sat most %s: %" PRIu32 " blocks of %s, %" PRIu64 " tokens, %" PRIu64 " sessions of the full context\n",
            "", qr_size_format(config->disk_cache_max_bytes, a), plan.block_max, qr_size_format(plan.record_bytes, b),
            (uint64_t)plan.block_max * sizing->block_tokens,
            sizing->blocks_per_context ? (uint64_t)plan.block_max / sizing->blocks_per_context : 0);
}
